"""What would change a forecast's answer, from short runs in time alone.

The epochs that each row needed are held, as if a gradient's age did not change with the hardware.
A short run of each row in mode "sleep" at another latency, FLOP rate or number of workers, over the
same at the numbers themselves, then scales its time to the target, as the ends of intervals do
(`ampsim.forecasting.intervals`). Where another row becomes first is found by bisection.

The number that the answer hangs on most is that of which a change by a tenth moves the ratio of the
two leading rows most. What another optimizer would change is read off the trials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

import pandas as pd

from ampsim.data import Dataset
from ampsim.data_parallel import Solver
from ampsim.errors import AmpsimError
from ampsim.forecasting.intervals import Items, Throughputs, items_of
from ampsim.forecasting.making import rated, short_task
from ampsim.hardware import Cluster
from ampsim.model_parallel import PLACEMENTS, placement_of
from ampsim.runs.rows import row_of
from ampsim.runs.run import Run
from ampsim.runs.task import Row, Task
from ampsim.units import format_seconds

LATENCIES_S: Final = tuple(10.0**power for power in range(-9, 1))
"""Between which a latency is looked for (chosen: from a wire of a foot to a second)."""

FACTORS: Final = (0.01, 0.1, 10.0, 100.0)
"""Times the FLOP rate, likewise."""

DIGITS: Final = 1.1
"""Up to which factor a place is found (chosen: the epochs that are held are no more exact)."""

STEP: Final = 1.1
"""Times a number, to see what hangs on it."""

STILL: Final = 0.005
"""Share of the ratio below which two rows are as soon, and nothing hangs on a number (chosen)."""

NUMBERS: Final = (
    "flop_per_s", "operation_overhead_s", "step_overhead_s", "message_overhead_s",
    "memory_bandwidth_bytes_per_s", "light_bandwidth_bytes_per_s", "cache_bandwidth_bytes_per_s",
)  # fmt: skip
"""Numbers of a device on which an answer may hang."""

OF_LINK: Final = ("latency_s", "bandwidth_bytes_per_s")
"""Those of a link."""


class Contender:
    """A row that reached the target, and its short run."""

    def __init__(self, label: str, time_s: float, items: Items, short: Task) -> None:
        """Make the short run.

        Args:
            label: of the row.
            time_s: its median time to the target.
            items: training and validation items of an epoch that take time.
            short: the short run at the numbers themselves.

        Raises:
            AmpsimError: the row's control flow reads values.
        """
        self.label, self.time_s, self._items, self._short = label, time_s, items, short
        self.base = self._run_on(short.plan.cluster)

    def at(self, cluster: Cluster) -> float:
        """The time to the target on another cluster, its epochs held.

        Raises:
            AmpsimError: the row does not fit the cluster.
        """
        made = self._run_on(cluster)
        return self.time_s * made.time_s(*self._items) / self.base.time_s(*self._items)

    def _run_on(self, cluster: Cluster) -> Throughputs:
        plan = self._short.plan
        if cluster.workers != plan.cluster.workers:
            plan = plan.having(placement=placement_of(plan.options.placed.origin["name"]))
        made, _failure = replace(self._short, plan=replace(plan, cluster=cluster)).run(None)
        return rated(made, None)[0]


def what_would_change(
    entries: Sequence[Row], runs: Mapping[str, Sequence[Run]], trials: pd.DataFrame, seed: int
) -> list[str]:
    """Sentences on what would make another row first; none where that cannot be told.

    Args:
        entries: the rows as they ran.
        runs: of each, by label.
        trials: those of tuning.
        seed: of the short runs.
    """
    try:
        rows = sorted(_contenders(entries, runs, seed), key=lambda one: one.time_s)
    except AmpsimError:
        return []
    if len(rows) < 2:
        return []
    cluster = entries[0].plan.cluster
    names = {one.plan.options.placed.origin["name"] for one in entries}
    told = [*_latency(rows, cluster), *_flop(rows, cluster)]
    told += _workers(rows, cluster) if names <= PLACEMENTS.keys() else []
    other = [one for one, is_other in told if is_other]
    same = [one for one, is_other in told if not is_other]
    said = [f"another row is ahead or as soon {'; '.join(other)}"] if other else []
    said += [f"{rows[0].label} stays ahead {'; '.join(same)}"] if same else []
    held = "epochs of each row held, times of short sleep runs"
    lines = [f"what would change it ({held}): {'. '.join(said)}"] if said else []
    return [*lines, *_hangs_on(rows, cluster), *_optimizers(trials)]


def _contenders(
    entries: Sequence[Row], runs: Mapping[str, Sequence[Run]], seed: int
) -> Iterator[Contender]:
    """Rows that reached the target, each with its data read once."""
    for one in entries:
        of = runs.get(one.label, ())
        time_s = row_of(one.label, one.plan.goal, of)["time_to_target_s"] if of else None
        if time_s is None or isinstance(one.schedule, Solver):
            continue
        data = one.plan.model.make_data(seed, one.plan.options.instances)
        model = replace(one.plan.model, make_data=partial(_given, data))
        short = short_task(replace(one, plan=replace(one.plan, model=model)), seed)
        found = Contender(one.label, time_s, items_of(of), short)
        if 0 < found.base.train_per_s < math.inf:
            yield found


def _optimizers(trials: pd.DataFrame) -> Iterator[str]:
    """Who is first with one optimizer for all, by the trials."""
    if "optimizer" not in trials:
        return
    best: dict[str, dict[str, float]] = {}
    keys = ["schedule", "learning_rate", "setting", "optimizer"]
    for (label, _rate, _setting, name), of in trials.groupby(keys)["time_to_target_s"]:
        known = best.setdefault(str(name), {})
        middle = float(of.median()) if of.notna().all() else math.inf
        known[str(label)] = min(known.get(str(label), math.inf), middle)
    firsts = {name: min(times, key=times.__getitem__) for name, times in best.items()}
    words = [
        f"{name}: {first if math.isfinite(best[name][first]) else 'no row arrives'}"
        for name, first in firsts.items()
    ]
    yield f"first with one optimizer for all, by trials of few seeds: {', '.join(words)}"


def _given(data: Dataset[Any], _seed: int, _count: int | None) -> Dataset[Any]:
    """Data that were read before."""
    return data


Told: TypeAlias = tuple[str, bool]
"""A few words, and whether they say that another row is first."""


def _first(rows: Sequence[Contender], cluster: Cluster) -> Contender | None:
    """Who is first on a cluster, or as soon as the first of `rows`; None where a row cannot run."""
    try:
        lead_s, *others_s = (one.at(cluster) for one in rows)
    except AmpsimError:
        return None
    other_s, place = min(zip(others_s, range(1, len(rows)), strict=True))
    return rows[place] if other_s <= (1 + STILL) * lead_s else rows[0]


def _turn(
    rows: Sequence[Contender], values: Sequence[float], on: Callable[[float], Cluster]
) -> tuple[float, Contender] | None:
    """Where, going from the first value to the last, another row is first, and which one."""
    before = values[0]
    for value in values[1:]:
        found = _first(rows, on(value))
        if found is None:
            return None
        if found is not rows[0]:
            while max(value, before) / max(min(value, before), 1e-12) > DIGITS:
                middle = math.sqrt(max(before, 1e-12) * value)
                at = _first(rows, on(middle))
                if at is None or at is rows[0]:
                    before = middle
                else:
                    value, found = middle, at
            return value, found
        before = value
    return None


def _turns(
    rows: Sequence[Contender], now: float, values: Sequence[float], on: Callable[[float], Cluster]
) -> list[tuple[float, Contender, str]]:
    """Where another row is first, going up from a value and going down, who, and which way."""
    ways = {
        "on": [one for one in values if one > now],
        "down": [one for one in reversed(values) if one < now],
    }
    turns = {way: _turn(rows, [now, *of], on) for way, of in ways.items()}
    return [(*turn, way) for way, turn in turns.items() if turn is not None]


def _latency(rows: Sequence[Contender], cluster: Cluster) -> Iterator[Told]:
    if cluster.topology is not None or cluster.edges or cluster.links:
        return
    now = cluster.link.latency_s
    turns = _turns(
        rows, now, LATENCIES_S, lambda one: _changed(cluster, "latency_s", lambda _: one)
    )
    for latency_s, row, way in turns:
        at, told = format_seconds(latency_s), format_seconds(now)
        yield f"from a latency of {at} {way} (now {told}): {row.label}", True
    if not turns:
        yield f"at any latency up to {format_seconds(LATENCIES_S[-1])}", False


def _flop(rows: Sequence[Contender], cluster: Cluster) -> Iterator[Told]:
    turns = _turns(rows, 1.0, FACTORS, lambda one: _scaled(cluster, "flop_per_s", one))
    for factor, row, _way in turns:
        yield f"at {factor:.2g} times the FLOP rate: {row.label}", True
    if not turns:
        yield f"at {FACTORS[0]:g} to {FACTORS[-1]:g} times the FLOP rate", False


def _workers(rows: Sequence[Contender], cluster: Cluster) -> Iterator[Told]:
    differ = (cluster.links, cluster.events, cluster.topology, cluster.edges, cluster.ports)
    if len(set(cluster.devices)) > 1 or any(differ):
        return
    now = cluster.workers
    counts = [now]
    while counts[-1] > 1:
        counts.append(counts[-1] // 2)

    def on(count: int) -> Cluster:
        return cluster.model_copy(update={"devices": cluster.devices[:1] * count})

    for count in (*counts[1:], 2 * now):
        found = _first(rows, on(count))
        if found is None:
            return
        if found is not rows[0]:
            yield f"with {count} worker{'s' * (count > 1)} (now {now}): {found.label}", True
            return
    yield f"with 1 to {2 * now} workers", False


def _scaled(cluster: Cluster, key: str, factor: float) -> Cluster:
    return _changed(cluster, key, lambda value: value * factor)


def _changed(cluster: Cluster, key: str, change: Callable[[float], float]) -> Cluster:
    """The cluster with another number of its link, or of those devices that say it."""
    if key in OF_LINK:
        link = cluster.link.model_copy(update={key: change(getattr(cluster.link, key))})
        return cluster.model_copy(update={"link": link})
    devices = tuple(
        one.model_copy(update={key: change(getattr(one, key))}) if getattr(one, key) else one
        for one in cluster.devices
    )
    return cluster.model_copy(update={"devices": devices})


def _hangs_on(rows: Sequence[Contender], cluster: Cluster) -> Iterator[str]:
    """Which number moves the lead most."""
    device: Any = cluster.devices[0]
    keys = [key for key in NUMBERS if getattr(device, key, None)]
    keys += [key for key in OF_LINK if getattr(cluster.link, key)]
    lead = rows[1].time_s / rows[0].time_s
    moved: dict[str, float] = {}
    for key in keys:
        there = _scaled(cluster, key, STEP)
        try:
            moved[key] = rows[1].at(there) / rows[0].at(there)
        except AmpsimError:
            continue
    if not moved:
        return
    most = max(moved, key=lambda key: abs(math.log(moved[key] / lead)))
    if abs(math.log(moved[most] / lead)) < STILL:
        yield "the lead hangs on no number of devices or links: a tenth more moves it by < 0.5 %"
        return
    yield (
        f"the lead over {rows[1].label} hangs most on {most}: with a tenth more it is "
        f"{moved[most]:.2f} times, in place of {lead:.2f}"
    )
