"""What if: what binds a run, and what each thing would buy, were it faster.

Three ways, each a hundred times as dear as the one before. Derivatives need the trace of one run
(`ampsim.exploring.elasticity`). What a factor of 2 or no time at all does, a run in mode "sleep"
says exactly, where order may change. And where the order of gradients and weights changes, which
the learning digest tells, learning changes too: what matters most is learned again with the seeds
of before, and each seed compared with itself, as AMP is chaotic there.

The time to the target is epochs times the time of an epoch. Of what is not learned again epochs are
taken to stay as they are, and the column `basis` says so.

That something faster makes a run slower is no mistake: a list of priorities that is followed
greedily has such anomalies. Source: Graham, "Bounds on multiprocessing timing anomalies", 1969. It
is said where the two runs part first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Annotated, Any, Final, Literal, TypeAlias

import pandas as pd
from annotated_types import Ge, Le

from ampsim.arguments import checked
from ampsim.errors import SimulationError
from ampsim.exploring.axes import Setup
from ampsim.exploring.changes import CURVE, Change, changes_of
from ampsim.exploring.elasticity import elasticities
from ampsim.exploring.making import Asked, make, moved, sleeping
from ampsim.forecasting.making import RunMaker
from ampsim.options import REPEATS_MAX, Count, Seed
from ampsim.runs.compare import first_apart
from ampsim.runs.jobs import opened
from ampsim.runs.ranking import Times
from ampsim.runs.rows import median_interval, times_of
from ampsim.runs.run import Run
from ampsim.runs.store import Keeping
from ampsim.runs.task import Row
from ampsim.study.progress import OnProgress
from ampsim.study.result import Result
from ampsim.study.simulation import (
    ClusterLike,
    Mode,
    ModelLike,
    PlacementLike,
    SchedulesLike,
    Simulation,
    cluster_of,
    model_of,
    schedules_of,
)
from ampsim.text import html_table
from ampsim.units import format_percent, format_seconds

Basis: TypeAlias = Literal["learned", "shared", "timing"]
"""Whether a row was learned again, learns what the first row does, or is taken to."""

COLUMNS: Final = (
    "schedule", "what", "factor", "time_to_target_s", "change", "low", "high", "epoch_s",
    "epochs_to_target", "share", "basis", "seeds", "seeds_agree",
)  # fmt: skip
NUMBERS: Final = tuple(
    name for name in COLUMNS if name not in ("schedule", "what", "basis", "seeds")
)
NOW: Final = "now"
EVERYTHING: Final = "everything"
CURVES_MAX: Final = 3
"""Things whose curve is drawn, and that are said in words (chosen)."""

_SAME: Final = 1e-6
"""Relative difference of two times below which they are called equal; chosen: no one acts on it."""


@dataclass(frozen=True, kw_only=True, repr=False)
class WhatIf:
    """What `whatif` returns.

    Attributes:
        table: one row a thing and factor: `schedule`; `what` is made `factor` times as fast, and
            infinitely; `time_to_target_s`, the median over seeds; `change`, that over the time now,
            less 1, the median over seeds, with the ends of its interval, `low` and `high`;
            `epoch_s`, of an epoch with validation; `epochs_to_target`; `share`, the elasticity of
            the time over what is made faster; `basis`: "learned", "shared" (the first epoch learns
            the same) or "timing" (epochs taken to stay); `seeds`, and in how many of them the
            change has the sign of the median. Without a target `change` is of the time of an epoch.
            Unknown is missing.
        curves: schedule, what, factor, change of the time of an epoch; of what matters most.
        elasticities: schedule, where, constant, elasticity; those of a schedule add up to 1.
        sentences: what matters most, and anomalies, in words.
        target: that is aimed at; None without one.
        model: the model's name.
        cluster: the cluster's name.
    """

    table: pd.DataFrame
    curves: pd.DataFrame
    elasticities: pd.DataFrame
    sentences: tuple[str, ...]
    target: float | None
    model: str
    cluster: str

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(str(name) for name in self.table["schedule"]))
        return f"WhatIf({self.model} on {self.cluster}: {names}; {len(self.table)} rows)"

    def _repr_html_(self) -> str:
        """The rows that double something, the largest change first."""
        headings, rows = cells(self.table)
        note = " ".join(self.sentences)
        caption = f"{self.model} on {self.cluster}: what each thing would buy"
        return html_table(caption, rows, headings=headings, note=note)


@checked
def whatif(
    model: ModelLike,
    cluster: ClusterLike,
    schedules: SchedulesLike = "amp",
    *,
    target: float | None = None,
    max_epochs: Count = 40,
    repeats: Annotated[int, Ge(1), Le(REPEATS_MAX)] = 3,
    instances: Count | None = None,
    seed: Seed = 0,
    mode: Mode = "numeric",
    placement: PlacementLike | None = None,
    learn: Annotated[int, Ge(0)] = CURVES_MAX,
    jobs: Annotated[int, Ge(1), Le(REPEATS_MAX)] = 1,
    on_progress: OnProgress | None = None,
    keeping: Keeping | None = None,
) -> WhatIf:
    """Say what binds a run, and what each device, worker, link and overhead would buy if faster.

    Args:
        model: as of `forecast`.
        cluster: as of `forecast`.
        schedules: one table each: objects or names.
        target: as of `forecast`.
        max_epochs: as of `forecast`.
        repeats: runs of each row that is learned, with seeds `seed`, `seed` + 1, …
        instances: training items to use; None for all.
        seed: of the first repeat, and of the runs that are only timed.
        mode: "numeric", or "sleep" for the time of an epoch alone.
        placement: as of `forecast`; the same for all rows.
        learn: so many things, those that matter most, are learned again at twice their speed, where
            that changes the order of learning.
        jobs: runs to make at a time.
        on_progress: as of `forecast`.
        keeping: as of `forecast`.

    Raises:
        OptionError: an option has a value that it cannot have, or control flow reads values, so
            that no run is timed without learning.
        UnknownNameError: no placement has such a name.
        SimulationError: a run could not go on, or nothing takes time.
        KeyboardInterrupt: Ctrl-C came; what finished is kept, if runs are.

    Example:
        >>> import ampsim
        >>> model = ampsim.load_model("mlp", hidden=16, data="synthetic")
        >>> found = ampsim.whatif(model, "tflops-1", "sequential", mode="sleep", instances=400)
        >>> round(float(found.elasticities["elasticity"].sum()), 9)
        1.0
    """
    loaded, on = model_of(model), cluster_of(cluster)
    asked = Asked(
        target=loaded.measure.require_target(target), max_epochs=max_epochs, repeats=repeats,
        instances=instances, seed=seed, is_numeric=mode == "numeric", placement=placement,
    )  # fmt: skip
    setup = Setup(loaded, on, tuple(schedules_of(schedules)))
    with opened(jobs, jobs) as executor:
        maker = RunMaker(executor, on_progress, keeping)
        tables = [_Question(row, asked, maker, learn).answer() for row in asked.rows(setup)]
    return WhatIf(
        table=pd.concat([one.table for one in tables], ignore_index=True),
        curves=pd.concat([one.curves for one in tables], ignore_index=True),
        elasticities=pd.concat([one.elasticities for one in tables], ignore_index=True),
        sentences=tuple(line for one in tables for line in one.sentences),
        target=loaded.target if asked.target is None else asked.target,
        model=loaded.name,
        cluster=on.name,
    )


@dataclass
class _Tried:
    """A change by a factor, and what came of it.

    Args:
        change: what is made faster.
        factor: how many times as fast.
        row: that runs.
        run: an epoch of it, of which only the time is known.
        learned: its runs with all seeds; empty where it was not learned again.
    """

    change: Change
    factor: float
    row: Row
    run: Run | None = None
    learned: list[Run] = field(default_factory=list[Run])


@dataclass(frozen=True)
class _Answer:
    table: pd.DataFrame
    curves: pd.DataFrame
    elasticities: pd.DataFrame
    sentences: list[str]


class _Question:
    """One schedule's."""

    def __init__(self, row: Row, asked: Asked, maker: RunMaker, learn: int) -> None:
        self._row, self._asked, self._maker, self._learn = row, asked, maker, learn
        self._label = row.label

    def answer(self) -> _Answer:
        """Make the runs, and the tables of them."""
        row, asked = self._row, self._asked
        base = timed(row, asked.seed)
        shares = elasticities(base, row.plan.cluster)
        changes = changes_of(row.plan.cluster, row.schedule, shares)
        tried = [self._tried(one, factor) for one in changes for factor in one.factors]
        sleeper = sleeping(replace(row, label=f"{row.label}, {NOW}"))
        now, *others = self._timed([sleeper, *(one.row for one in tried)])
        for one, run in zip(tried, others, strict=True):
            one.run = run
        now_s = epoch_s(now)
        if not now_s:
            raise SimulationError(
                f"{row.label}: {now.failure or 'nothing takes time, so that nothing binds'}"
            )
        first = sorted(self._matter(tried), key=lambda one: -_effect(one, now_s))
        runs = self._learned(first[: self._learn], now)
        facts = _Facts(row, runs, now, now_s)
        curves = self._curves(first[:CURVES_MAX], [now, *others], now_s)
        rows = [facts.first(), *map(facts.of, tried)]
        table = pd.DataFrame(rows, columns=list(COLUMNS)).astype(dict.fromkeys(NUMBERS, float))
        said = [*self._said(table, first[:CURVES_MAX]), *self._anomalies(tried, base, now_s)]
        elastic = shares.table
        elastic.insert(0, "schedule", row.label)
        return _Answer(table, curves, elastic, said)

    def _tried(self, change: Change, factor: float) -> _Tried:
        plan = self._row.plan
        cluster, schedule = change.on(plan.cluster, self._row.schedule, factor)
        label = f"{self._label}, {change.what} {_times(factor)}"
        row = sleeping(moved(self._row, label, cluster, schedule))
        if change.frees_light:
            row = replace(row, plan=row.plan.having(light_is_free=True))
        return _Tried(change, factor, row)

    def _matter(self, tried: Iterable[_Tried]) -> list[_Tried]:
        """Of each thing the row that doubles it."""
        return [one for one in tried if one.factor == 2.0 and one.change.what != EVERYTHING]

    def _learned(self, first: Sequence[_Tried], now: Run) -> list[Run]:
        """Runs of the row itself with all seeds; those of what matters most are learned again."""
        if not self._asked.is_numeric:
            return []
        again = [one for one in first if one.run is None or not _shares(one.run, now)]
        options = self._row.plan.options
        rows = [
            replace(
                one.row,
                label=f"{one.row.label}, learned",
                plan=one.row.plan.having(mode="numeric", target=options.target),
            )
            for one in again
        ]
        seeds = self._asked.seeds
        pairs = [(row, seed) for row in (self._row, *rows) for seed in seeds]
        made = make(self._maker, self._asked, pairs)
        for place, one in enumerate(again, start=1):
            one.learned = made[place * len(seeds) : (place + 1) * len(seeds)]
        return made[: len(seeds)]

    def _timed(self, rows: Sequence[Row]) -> list[Run]:
        """An epoch of each row, with the first seed."""
        return make(self._maker, self._asked, [(one, self._asked.seed) for one in rows])

    def _curves(self, first: Sequence[_Tried], made: Sequence[Run], now_s: float) -> pd.DataFrame:
        """What factors between do to the time of an epoch; those that were made are taken."""
        points = [self._tried(one.change, factor) for one in first for factor in CURVE]
        known = {run.label: run for run in made}
        known |= {one.row.label: made[0] for one in points if one.factor == 1.0}
        left = [one.row for one in points if one.row.label not in known]
        known |= {run.label: run for run in self._timed(left)}
        rows: list[tuple[Any, ...]] = []
        for one in points:
            change = epoch_s(known[one.row.label]) / now_s - 1
            rows.append((self._label, one.change.what, one.factor, change))
        return pd.DataFrame(rows, columns=["schedule", "what", "factor", "change"])

    def _said(self, table: pd.DataFrame, first: Sequence[_Tried]) -> Iterator[str]:
        """What matters most, in words."""
        for one in first:
            is_it = (table["what"] == one.change.what) & (table["factor"] == 2.0)
            records: Any = table[is_it].to_dict("records")
            yield f"{self._label}: {_sentence(records[0])}"

    def _anomalies(self, tried: Sequence[_Tried], base: Result, now_s: float) -> Iterator[str]:
        """What is slower though something is faster, or the reverse, and where that begins."""
        odd = [one for one in tried if one.run is not None and _is_odd(one, now_s)]
        for one in sorted(odd, key=lambda one: -_effect(one, now_s))[:CURVES_MAX]:
            assert one.run is not None, "an odd run was made"
            change = epoch_s(one.run) / now_s - 1
            way = f"{format_percent(abs(change))} {'longer' if change > 0 else 'shorter'}"
            yield (
                f"{self._label}: {one.change.what} {_times(one.factor)} makes an epoch {way}, an "
                f"anomaly of order: {parting(base, timed(one.row, self._asked.seed))}."
            )


_Pair: TypeAlias = tuple[float, float]
"""Times to the target of one seed, now and after a change."""


class _Facts:
    """What the rows of a table say."""

    def __init__(self, row: Row, runs: Sequence[Run], now: Run, now_s: float) -> None:
        self._row, self._now, self._now_s = row, now, now_s
        self._goal = row.plan.goal
        has_goal = self._goal.target is not None
        self._times: Times = times_of(self._goal, runs) if has_goal else {}

    def first(self) -> dict[str, Any]:
        """The row of what there is now."""
        times = list(self._times.values())
        basis = "learned" if times else "timing"
        return self._record(NOW, 1.0, basis, self._now_s, [(one, one) for one in times])

    def of(self, one: _Tried) -> dict[str, Any]:
        """The row of a change."""
        seconds = epoch_s(one.run)
        ratio = seconds / self._now_s
        if one.learned:
            basis, after = "learned", times_of(self._goal, one.learned)
        else:
            is_shared = one.run is not None and _shares(one.run, self._now)
            basis = "shared" if is_shared else "timing"
            after = {seed: time_s * ratio for seed, time_s in self._times.items()}
        pairs = [(self._times[seed], time_s) for seed, time_s in after.items()]
        found = self._record(one.change.what, one.factor, basis, seconds, pairs)
        return {**found, "share": one.change.share}

    def _record(
        self,
        what: str,
        factor: float,
        basis: Basis,
        seconds: float,
        pairs: Sequence[_Pair],
    ) -> dict[str, Any]:
        times = [after for _before, after in pairs]
        time_s = median(times) if times else math.nan
        changes = [_change(*pair) for pair in pairs]
        known = [one for one in changes if not math.isnan(one)]
        found = median_interval(known)
        is_by_seed = basis == "learned" and what != NOW
        change = found.middle if known else seconds / self._now_s - 1
        agree = sum(_sign(one) == _sign(change or 0.0) for one in known)
        return {
            "schedule": self._row.label,
            "what": what,
            "factor": factor,
            "time_to_target_s": time_s if math.isfinite(time_s) else None,
            "change": change,
            "low": found.low if is_by_seed else None,
            "high": found.high if is_by_seed else None,
            "epoch_s": seconds if math.isfinite(seconds) else None,
            "epochs_to_target": time_s / seconds if math.isfinite(time_s) and seconds else None,
            "share": None,
            "basis": basis,
            "seeds": len(times) or 1,
            "seeds_agree": agree if is_by_seed else None,
        }


def _change(before: float, after: float) -> float:
    """How much longer; NaN where neither arrives, infinite where only the first does."""
    if math.isinf(before):
        return math.nan if math.isinf(after) else -1.0
    return after / before - 1


def _sign(value: float) -> int:
    return (value > _SAME) - (value < -_SAME)


def epoch_s(run: Run | None) -> float:
    """Seconds of a run's first epoch, validation included; NaN where it did not end."""
    if run is None or run.failure or not len(run.epochs):
        return math.nan
    return float(run.epochs["time_s"].iloc[0])


def _shares(run: Run, now: Run) -> bool:
    """Whether both learn the same in their first epoch."""
    return bool(run.learning_digest) and run.learning_digest == now.learning_digest


def _effect(one: _Tried, now_s: float) -> float:
    """How large the change of an epoch is, in logarithms; 0 where it is unknown."""
    ratio = epoch_s(one.run) / now_s
    return 0.0 if math.isnan(ratio) else abs(math.log(max(ratio, 1e-300)))


def _is_odd(one: _Tried, now_s: float) -> bool:
    """Whether a run is slower though something is faster, or faster though it is slower."""
    change = epoch_s(one.run) / now_s - 1
    return change > _SAME if one.factor > 1 else change < -_SAME


def _times(factor: float) -> str:
    """A factor in words."""
    known = {0.5: "half as fast", 2.0: "twice as fast", math.inf: "taking no time"}
    return known.get(factor, f"{factor:g} times as fast")


def timed(row: Row, seed: int) -> Result:
    """An epoch of a row in mode "sleep", with all of its records."""
    plan = row.plan
    options = replace(
        plan.options, seed=seed, mode="sleep", target=None, spans_kept=None, counts_memory=True
    )
    simulation = Simulation(plan.model, plan.cluster, row.schedule, options)
    simulation.run_epoch()
    return simulation.result()


def parting(base: Result, other: Result) -> str:
    """Where two runs first serve something else, in words."""
    taking = _taking_time(base) | _taking_time(other)
    ours, theirs = _served(base, taking), _served(other, taking)
    found: list[tuple[float, str]] = []
    for worker in sorted(ours.keys() | theirs.keys()):
        a, b = ours.get(worker, []), theirs.get(worker, [])
        apart = first_apart(a, b, lambda one, two: one[1:] == two[1:])
        if apart is not None:
            starts = [one[0] for one in (apart.a, apart.b) if one is not None]
            words = [_step_words(one) for one in (apart.a, apart.b)]
            place = "the host" if worker < 0 else f"worker {worker}"
            said = f"{place} serves {words[1]} at its step {apart.place + 1}, and not {words[0]}"
            found.append((min(starts), said))
    if not found:
        return "every device serves the same in the same order, and only waits are longer"
    start_s, said = min(found)
    return f"from {format_seconds(start_s)} on, {said}"


_Step: TypeAlias = "tuple[float, str, str, int, str]"


def _taking_time(result: Result) -> set[tuple[str, str]]:
    """Nodes and directions some of whose steps take time."""
    spans = result.spans
    taking = spans[spans["end_s"] > spans["start_s"]]
    return set(zip(taking["node"], taking["direction"], strict=True))


def _served(result: Result, taking: set[tuple[str, str]]) -> dict[int, list[_Step]]:
    """What each device serves of these: when it begins, node, direction, instance, state."""
    spans = result.spans
    names = ("start_s", "node", "direction", "instance", "state")
    found: dict[int, list[_Step]] = {}
    for worker, *step in zip(spans["worker"], *(spans[name] for name in names), strict=True):
        start_s, node, direction, instance, state = step
        if (node, direction) in taking:
            one = (float(start_s), node, direction, int(instance), state)
            found.setdefault(int(worker), []).append(one)
    return found


def _step_words(step: _Step | None) -> str:
    if step is None:
        return "nothing more"
    _start_s, node, direction, instance, state = step
    return f"{direction} of {node} for instance {instance}{f' ({state})' if state else ''}"


def _sentence(record: dict[str, Any]) -> str:
    """What doubling one thing buys."""
    change, share = record["change"], record["share"]
    way = "sooner" if change < 0 else "later"
    said = f"{record['what']} twice as fast: {format_percent(abs(change))} {way}"
    if not math.isnan(record["low"]) and not math.isnan(record["high"]):
        ends = sorted(abs(record[name]) for name in ("low", "high"))
        seeds = f"{record['seeds_agree']:.0f} of {record['seeds']} seeds"
        said += f" ({format_percent(ends[0])} to {format_percent(ends[1])}, {seeds})"
    elif record["basis"] == "timing" and not math.isnan(record["time_to_target_s"]):
        said += ", if it takes as many epochs as now"
    if share is None or math.isnan(share):
        return f"{said}."
    return f"{said}; it accounts for {format_percent(share)} of the time now."


def cells(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Headings and rows for a person: a row a thing, its factors beside each other."""
    headings = [
        "schedule",
        "what",
        "share now",
        "half",
        "twice",
        "no time",
        "time to target",
        "basis",
    ]
    rows: list[list[str]] = []
    for (schedule, what), own in table.groupby(["schedule", "what"], sort=False):
        records: Any = own.to_dict("records")
        by_factor = {one["factor"]: one for one in records}
        twice = by_factor.get(2.0) or by_factor.get(math.inf) or by_factor[1.0]
        share = twice["share"]
        rows.append(
            [
                str(schedule),
                str(what),
                format_percent(share),
                *(_change_text(by_factor.get(factor)) for factor in (0.5, 2.0, math.inf)),
                format_seconds(twice["time_to_target_s"]),
                str(twice["basis"]),
            ]
        )
    return headings, rows


def _change_text(record: dict[str, Any] | None) -> str:
    """A change in percent, with its sign."""
    if record is None or record["change"] is None or math.isnan(record["change"]):
        return ""
    change = record["change"]
    if abs(change) < _SAME:
        return "0 %"
    return f"{'+' if change > 0 else '-'}{format_percent(abs(change))}"


def to_plain(found: WhatIf) -> dict[str, Any]:
    """The answer as JSON can hold it; the factor of what takes no time is None."""
    return {
        "rows": plain_rows(found.table),
        "curves": plain_rows(found.curves),
        "elasticities": plain_rows(found.elasticities),
    }


def plain_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table as JSON can hold them; unknown and infinite are None."""
    return [
        {str(key): _plain(value) for key, value in record.items()}
        for record in table.to_dict("records")
    ]


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):  # a NumPy scalar
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
