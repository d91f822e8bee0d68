"""Numbers read off the tables of a run, just made or kept.

Energy: a device takes its idle power all the time, and what its busy power is more while a step
occupies it; a step that a pause or a stop holds up takes none more meanwhile. Links and hosts take
none.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pandas as pd

from ampsim.errors import OptionError
from ampsim.hardware import Cluster, Share, place_name
from ampsim.study.outages import held_up_s
from ampsim.trace import (
    DIRECTIONS,
    LANES,
    MEMORY_CATEGORIES,
    PATH_KINDS,
    CausalRecords,
    Crossing,
    Crossings,
    critical_path,
    read_only,
)
from ampsim.trace.records import LOG_SCHEMAS, log_of
from ampsim.trace.summary import Summary
from ampsim.trace.table import Columns

HOUR_S: Final = 3600.0
UPKEEP: Final = ("idle_power_w", "busy_power_w", "price_usd_per_h")
"""Keys of a device that say what its time takes."""


def _by_worker(groups: Sequence[Mapping[str, Any]], key: str) -> np.ndarray:
    """A number of each worker; NaN where its device's file does not say."""
    return np.array([one.get(key, math.nan) for one in groups for _ in range(one["workers"])])


def crossings_of(cluster: Cluster) -> Crossings | None:
    """Return the shares that messages cross; None where each pair of workers has its own link."""
    return partial(_crossed, cluster) if cluster.has_shared_bandwidth else None


def _crossed(cluster: Cluster, source: int, target: int) -> list[Crossing]:
    """Edges, links and ports that a message from one worker, or the host, to another crosses.

    In fair shares it takes of each what its bytes need; first come, first served, it holds all of
    them as long as the narrowest takes.
    """
    holds = cluster.sharing == "first-come"
    shares = cluster.way_between(source, target).shares
    return [Crossing(name_of(one), None if holds else one.bytes_per_s) for one in shares]


def name_of(share: Share) -> str:
    """Name what a bandwidth belongs to.

    >>> name_of(Share((0, "hub", "edge"), 1e9)), name_of(Share((3, "egress"), 1e9))
    ('edge 0 to hub', 'egress port of worker 3')
    >>> name_of(Share((-1, "ingress"), 1e9))
    'ingress port of host'
    """
    *places, kind = share.of
    if len(places) > 1:
        return f"{kind} {place_name(places[0])} to {place_name(places[1])}"
    place = place_name(places[0])
    return f"{kind} port of {place if place == 'host' else f'worker {place}'}"


TIMELINE_SCHEMA: Final[dict[str, Any]] = {
    "worker": np.int32,
    "time_s": np.float64,
    "bytes": np.int64,
    **dict.fromkeys(MEMORY_CATEGORIES, np.int64),
}
"""Columns of `Result.memory`."""


def timeline(columns: Columns) -> pd.DataFrame:
    """The table of what a recorder has of memory, with the sum of all categories."""
    whole = np.sum([columns[name] for name in MEMORY_CATEGORIES], axis=0, dtype=np.int64)
    return read_only({name: {**columns, "bytes": whole}[name] for name in TIMELINE_SCHEMA})


PART: Final = ("kind", "node", "direction", "worker")
"""What parts of a path have in common that are added up."""

_CONTROLLER: Final = "controller"
NO_DIRECTION: Final = ""
"""Direction of what is no step."""


def path_frame(path: Columns, nodes: Sequence[str]) -> pd.DataFrame:
    """Build the table `Result.critical_path`."""
    codes = {
        "kind": (path["kind"], PATH_KINDS),
        "node": (path["node"], nodes),
        "direction": (
            np.where(path["direction"] < 0, len(DIRECTIONS), path["direction"]),
            (*DIRECTIONS, NO_DIRECTION),
        ),
    }
    decoded = {
        name: pd.Categorical.from_codes(places.copy(), dtype=pd.CategoricalDtype(list(names)))
        for name, (places, names) in codes.items()
    }
    return read_only({**path, **decoded})


def path_parts(pieces: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Build the table `Result.critical_path_parts` of a path in pieces, the earliest first."""
    of_pieces: list[pd.DataFrame] = []
    makespan_s = np.nan
    for path in pieces:
        of_pieces.append(_seconds(path.assign(seconds=path["end_s"] - path["start_s"])))
        makespan_s = float(path["end_s"].iloc[-1]) if len(path) else np.nan
    sums = of_pieces[0] if len(of_pieces) == 1 else _seconds(pd.concat(of_pieces))
    sums = sums[sums["seconds"] > 0].sort_values("seconds", ascending=False, kind="stable")
    return sums.assign(share=sums["seconds"] / makespan_s).reset_index(drop=True)


def _seconds(parts: pd.DataFrame) -> pd.DataFrame:
    """Add up by `PART`, as one number: with four columns as keys it takes twice the time."""
    key = np.zeros(len(parts), np.int64)
    for name in PART:
        codes = parts[name].cat.codes if name != "worker" else parts[name]
        places = codes.to_numpy(np.int64) + 1  # the host is worker -1
        key = key * (places.max(initial=0) + 1) + places
    numbers, _keys = pd.factorize(key)
    first = np.unique(numbers, return_index=True)[1]
    seconds = parts["seconds"].groupby(numbers, sort=False).sum()
    return parts[list(PART)].iloc[first].assign(seconds=seconds.to_numpy()).reset_index(drop=True)


def path_of_tables(
    spans: pd.DataFrame, transfers: pd.DataFrame, admissions: pd.DataFrame
) -> pd.DataFrame:
    """The critical path of a whole trace that has names instead of numbers."""
    names = sorted({str(one) for frame in (spans["node"], transfers["target"]) for one in frame})
    nodes = list(dict.fromkeys([_CONTROLLER, *names]))
    tables = {"spans": spans, "transfers": transfers, "admissions": admissions}
    columns = {
        table: {name: frame[name].to_numpy() for name in LOG_SCHEMAS[table]}
        for table, frame in tables.items()
    }
    columns["spans"]["node"] = numbered(spans["node"], nodes)
    columns["transfers"]["target"] = numbered(transfers["target"], nodes)
    columns["spans"]["direction"] = numbered(spans["direction"], DIRECTIONS)
    columns["spans"]["lane"] = numbered(spans["lane"], LANES)
    logs = {table: log_of(own, table) for table, own in columns.items()}
    records = CausalRecords(*(logs[name] for name in LOG_SCHEMAS), closures=())
    return path_frame(critical_path(records).columns(), nodes)


def numbered(column: pd.Series[Any], names: Sequence[str]) -> np.ndarray:
    """The place among `names` of each name in a column."""
    places = {name: place for place, name in enumerate(names)}
    return column.astype(object).map(places).to_numpy(np.int64)


class _HasEpochs(Protocol):
    @property
    def epochs(self) -> pd.DataFrame: ...


class WithRates:
    """Throughput of a run, by its epochs."""

    @property
    def train_per_s(self: _HasEpochs) -> float:
        """Training items per virtual second of training; NaN where there was none."""
        return rate_of(self.epochs["instances"], self.epochs["train_s"])

    @property
    def valid_per_s(self: _HasEpochs) -> float:
        """Validation items per virtual second of validation; NaN where there was none."""
        return rate_of(self.epochs["valid_instances"], self.epochs["valid_s"])


class Occupation(NamedTuple):
    """The occupation of a run's devices."""

    groups: Sequence[Mapping[str, Any]]  # workers in a row with what they have in common
    outages: pd.DataFrame  # when which device was not as usual
    spans: Callable[[], Iterable[Any]]  # in chunks: worker, start_s, end_s


class ReadOff(WithRates, ABC):
    """Rates of a run, and what its memory and sums over all its spans say."""

    @property
    @abstractmethod
    def memory(self) -> pd.DataFrame:
        """Bytes in the workers' memories: worker, time_s, bytes, weights, gradients, ...

        One row for the fullest moment of each stretch of time, of which a worker has some hundreds:
        `bytes` in all, and then those of each category (docs/decisions/0013-memory.md). Empty where
        nobody counted (`counts_memory` of `simulate`); a pass that was not run again has no rows.
        """

    @property
    @abstractmethod
    def _totals(self) -> Summary:
        """The sums."""

    @property
    @abstractmethod
    def _nodes(self) -> Sequence[str]:
        """The nodes' names, in the order of the sums."""

    @abstractmethod
    def _occupation(self) -> Occupation:
        """Return what occupied the devices, and when."""

    @property
    def peak_memory(self) -> pd.DataFrame:
        """The row of `memory` at which each worker's memory was fullest, of several the first."""
        memory = self.memory
        fullest = memory.groupby("worker")["bytes"].idxmax()
        return memory.loc[fullest].reset_index(drop=True)

    @property
    def peak_bytes(self) -> pd.Series[Any]:
        """The most bytes that lay in each worker's memory at once, by worker.

        Raises:
            OptionError: nobody counted.
        """
        memory = self.memory
        if not len(memory):
            raise OptionError(
                "peak_bytes: memory was not counted in this run; run it with counts_memory=True"
            )
        return memory.groupby("worker")["bytes"].max().rename("peak_bytes")

    @cached_property
    def energy_j(self) -> float:
        """Joules of all devices; NaN where a file does not say their powers.

        Idle power x makespan, and (busy - idle power) x the time in which a step occupies the
        device and it is up. Links and the host take none.
        """
        groups, outages, spans = self._occupation()
        busy_s = self._totals.busy_s
        if len(outages):
            busy_s = busy_s - held_up_s(spans(), outages, len(busy_s))
        idle_w, busy_w = (_by_worker(groups, key) for key in ("idle_power_w", "busy_power_w"))
        if len(idle_w) != len(busy_s):
            return math.nan
        return float((idle_w * self.makespan_s + (busy_w - idle_w) * busy_s).sum())

    @property
    def cost_usd(self) -> float:
        """Price of all devices x makespan, in US dollars; NaN where a file does not say it."""
        usd_per_h = _by_worker(self._occupation().groups, "price_usd_per_h")
        return float(usd_per_h.sum()) * self.makespan_s / HOUR_S if len(usd_per_h) else math.nan

    @cached_property
    def makespan_s(self) -> float:
        """End of the last span; an epoch ends once the controller knows, up to a latency later."""
        return self._totals.end_s

    @property
    def messages(self) -> int:
        """Messages served, updates among them."""
        return self._totals.messages

    @property
    def utilisation(self) -> float:
        """Seconds of service over workers times makespan; NaN where no time passed.

        A step that a pause or a stop holds up keeps its device occupied meanwhile.
        """
        available_s = len(self._totals.busy_s) * self.makespan_s
        busy_s = float(self._totals.busy_s.sum())
        return min(busy_s / available_s, 1.0) if available_s else np.nan  # but for rounding

    @property
    def utilisation_by_worker(self) -> pd.DataFrame:
        """One row a worker: worker, and the shares of the makespan in update, backward, forward.

        The mean over workers of a row's sum is `utilisation`; NaN where no time passed.
        """
        makespan_s = self.makespan_s or np.nan
        shares = pd.DataFrame(self._totals.worked_s / makespan_s, columns=list(DIRECTIONS))
        shares.insert(0, "worker", np.arange(len(shares)))
        return shares

    @property
    def utilisation_by_lane(self) -> pd.DataFrame:
        """Shares of the makespan of the host, and of lanes beside computing: worker, lane, share.

        The share is of the makespan; the host is worker -1. Empty where no device has such a lane,
        and no host takes time.
        """
        makespan_s = self.makespan_s or np.nan
        rows = [
            (worker, LANES[lane], seconds / makespan_s)
            for (worker, lane), seconds in sorted(self._totals.lane_s.items())
        ]
        return pd.DataFrame(rows, columns=["worker", "lane", "share"])

    @property
    def staleness(self) -> pd.DataFrame:
        """The histogram: node, staleness, count of gradients."""
        return histogram(self._nodes, "staleness", self._totals.staleness)

    @property
    def staleness_mean(self) -> float:
        """Mean over all gradients; NaN where there was none."""
        return self._totals.staleness_mean

    @property
    def staleness_max(self) -> int | None:
        """Largest of any gradient; None where there was none."""
        return self._totals.staleness_max


def histogram(
    nodes: Sequence[str], what: str, counts: Mapping[int, Mapping[int, int]]
) -> pd.DataFrame:
    """Build a table of how often each node has each value: node, `what`, count."""
    rows = [
        (nodes[node], value, count)
        for node, own in sorted(counts.items())
        for value, count in sorted(own.items())
    ]
    return pd.DataFrame(rows, columns=["node", what, "count"])


def rate_of(items: pd.Series[Any], seconds: pd.Series[Any]) -> float:
    """Return items per second over whole columns; NaN where no time passed."""
    total_s = float(seconds.sum())
    return float(items.sum()) / total_s if total_s else float("nan")
