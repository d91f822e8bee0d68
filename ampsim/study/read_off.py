"""What is read off the tables of a run alone, whoever holds them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd

from ampsim.study.energy import cost_usd, energy_j
from ampsim.study.outages import held_up_s
from ampsim.study.path_tables import path_parts
from ampsim.trace import DIRECTIONS, LANES
from ampsim.trace.summary import Summary


class _HasEpochs(Protocol):
    @property
    def epochs(self) -> pd.DataFrame: ...


class _HasPath(Protocol):
    @property
    def critical_path(self) -> pd.DataFrame: ...


class Rates:
    """Throughput of a run, by its epochs."""

    @property
    def train_per_s(self: _HasEpochs) -> float:
        """Training items per virtual second of training; NaN where there was none."""
        return rate_of(self.epochs["instances"], self.epochs["train_s"])

    @property
    def valid_per_s(self: _HasEpochs) -> float:
        """Validation items per virtual second of validation; NaN where there was none."""
        return rate_of(self.epochs["valid_instances"], self.epochs["valid_s"])


class WithPath(Rates):
    """The same, and where the time of its critical path goes."""

    @property
    def critical_path_parts(self: _HasPath) -> pd.DataFrame:
        """Where `critical_path` spends its time: kind, node, direction, worker, seconds, share.

        One row for all of its parts that agree in these, the longest first; the seconds add up to
        `makespan_s`.
        """
        return path_parts(self.critical_path)


class Occupation(NamedTuple):
    """What occupied the devices of a run.

    Attributes:
        groups: workers in a row with what they have in common, as in a manifest.
        outages: when which device was not as usual.
        spans: gives all spans of the run in chunks: worker, start_s, end_s.
    """

    groups: Sequence[Mapping[str, Any]]
    outages: pd.DataFrame
    spans: Callable[[], Iterable[Any]]


class WithTotals(WithPath, ABC):
    """The same, and what sums over all spans say."""

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
        """What occupied the devices, and when."""

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
        return energy_j(groups, busy_s, self.makespan_s)

    @property
    def cost_usd(self) -> float:
        """Price of all devices x makespan, in US dollars; NaN where a file does not say it."""
        return cost_usd(self._occupation().groups, self.makespan_s)

    @cached_property
    def makespan_s(self) -> float:
        """End of the last span."""
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
        return float(self._totals.busy_s.sum()) / available_s if available_s else np.nan

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
        """Of the host and of other lanes than that of computing: worker, lane, share.

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
        names = self._nodes
        rows = [
            (names[node], staleness, count)
            for node, counts in sorted(self._totals.staleness.items())
            for staleness, count in sorted(counts.items())
        ]
        return pd.DataFrame(rows, columns=["node", "staleness", "count"])

    @property
    def staleness_mean(self) -> float:
        """Mean over all gradients; NaN where there was none."""
        return self._totals.staleness_mean

    @property
    def staleness_max(self) -> int | None:
        """Largest of any gradient; None where there was none."""
        return self._totals.staleness_max


def rate_of(items: pd.Series[Any], seconds: pd.Series[Any]) -> float:
    """Return items per second over whole columns; NaN where no time passed."""
    total_s = float(seconds.sum())
    return float(items.sum()) / total_s if total_s else float("nan")
