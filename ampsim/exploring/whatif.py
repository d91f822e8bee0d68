"""What if: what binds a run, and what each thing would buy, were it faster.

Three ways, each a hundred times as dear as the one before. Derivatives need the trace of one run
(`ampsim.study.elasticity`). What a factor of 2 or no time at all does, a run in mode "sleep"
says exactly, where order may change. And where the order of gradients and weights changes, which
the learning digest tells, seed by seed, learning changes too: what matters most is learned again
with the seeds of before, and each seed compared with itself, as AMP is chaotic there.

The time to the target is epochs times the time of an epoch. Of what is not learned again epochs are
taken to stay as they are, and the column `basis` says so.

That something faster makes a run slower is no mistake: a list of priorities that is followed
greedily has such anomalies. Source: Graham, "Bounds on multiprocessing timing anomalies", 1969. It
is said where the two runs part first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, Unpack

import pandas as pd
from annotated_types import Ge

from ampsim.errors import OptionError, SimulationError
from ampsim.exploring.axes import setup_of
from ampsim.exploring.changes import CURVE, Change, changes_of
from ampsim.exploring.finding import Figures, Finding, Lines
from ampsim.exploring.making import FirstEpoch, How, Many, PointRuns, Query, question, rows_at
from ampsim.forecasting.change import PARTS_STAY
from ampsim.forecasting.making import traced
from ampsim.output_folder import Kind
from ampsim.report.plot.whatif import speed_up_curves, tornado
from ampsim.runs.compare import first_apart
from ampsim.runs.rows import arrival, median_interval, table_of, times_of
from ampsim.runs.run import Run
from ampsim.runs.task import Row
from ampsim.study.elasticity import DIGITS, elasticities
from ampsim.study.result import Result
from ampsim.study.simulation import ClusterLike, Mode, ModelLike, SchedulesLike
from ampsim.units import NO_CHANGE, format_change, format_percent, format_seconds

Basis: TypeAlias = Literal["learned", "shared", "timing"]
"""Whether a row was learned again, learns what the first row does, or is taken to."""

NOW: Final = Change("now", None)
CURVES_MAX: Final = 3  # things whose curve is drawn, and that are said in words (chosen)
OUTAGES_MOVE: Final = (
    "Shares are as if outages moved with the work: whose time it is now. In the runs of half, "
    "twice and no time they come when they come, so that these may differ much from shares; what "
    "is not learned again is as if each epoch had the outages of the first."
)
AS_FIRST: Final = "Epochs differ: what is not learned again is as if each were as the first."


@question
def whatif(
    model: ModelLike,
    cluster: ClusterLike,
    schedules: SchedulesLike = "amp",
    *,
    repeats: Many = 3,
    mode: Mode = "numeric",
    learn: Annotated[int, Ge(0)] = CURVES_MAX,
    **how: Unpack[How],
) -> WhatIf:
    """Say what binds a run, and what each device, worker, link and overhead would buy if faster.

    Args:
        model: as of `forecast`.
        cluster: likewise.
        schedules: one table each: objects or names.
        repeats: runs of each row that is learned, with seeds `seed`, `seed` + 1, …
        mode: "numeric", or "sleep" for the time of an epoch alone.
        learn: so many things, those that matter most, are learned again at twice their speed, where
            that changes the order of learning.
        how: as of `forecast`; without a target, or in mode "sleep", all is timed with `seed` alone.

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
    setup = setup_of(model, cluster, schedules)
    asked = Query(setup=setup, repeats=repeats, mode=mode, **how)
    rows = rows_at(asked.rows, {}, str, asked.seed, asked.known)
    if unfit := [row for row in rows if isinstance(row, str)]:
        raise OptionError(unfit[0])
    with asked.runs() as runs:
        answers = [
            _Question(row, asked, runs, _Tried(NOW, 1.0, row)).answer(learn)
            for row in rows if isinstance(row, Row)
        ]  # fmt: skip
        missed, failed, apart = runs.said(), runs.failed, runs.apart > 0
    *frames, said = zip(*answers, strict=True)
    table, curves, elastic = (pd.concat(of, ignore_index=True) for of in frames)
    differ = apart or any(row.epochs_differ for row in asked.rows)
    missed += [OUTAGES_MOVE] if setup.cluster.has_outages else [AS_FIRST] * differ
    missed += [f"{PARTS_STAY[0].upper()}{PARTS_STAY[1:]}."] if setup.cluster.shares_fairly else []
    return WhatIf(
        title=f"{setup.model.name} on {setup.cluster.name}: what each thing would buy",
        table=table, curves=curves, elasticities=elastic, target=asked.aimed_at,
        sentences=(*itertools.chain.from_iterable(said), *missed),
        model=setup.model.name, cluster=setup.cluster.name, manifest=asked.manifest(learn=learn),
        failed=failed,
    )  # fmt: skip


@dataclass
class _Tried:
    """A thing so many times as fast, and what came of it."""

    change: Change
    factor: float
    row: Row
    epochs: dict[int, FirstEpoch] = field(default_factory=dict[int, FirstEpoch])  # by seed
    times_s: dict[int, float] = field(default_factory=dict[int, float])  # to the target, by seed
    counts: dict[int, float] = field(default_factory=dict[int, float])  # of epochs, likewise


@dataclass(frozen=True)
class _Question:
    """One schedule's."""

    row: Row
    asked: Query
    runs: PointRuns
    now: _Tried

    def answer(self, learn: int) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, list[str]]:
        """Make the runs: the table, the curves, the elasticities, and what they say."""
        row, cluster = self.row, self.row.plan.cluster
        base = traced(row, self.asked.seed)
        shares = elasticities(base, cluster)
        changes = changes_of(cluster, row.schedule, shares)
        tried = [self._tried(one, factor) for one in changes for factor in one.factors]
        self._time([self.now, *tried])
        epoch = self.now.epochs[self.asked.seed]
        if not epoch.epoch_s > 0:
            why = epoch.failure or "nothing takes time, so that nothing binds"
            raise SimulationError(f"{row.label}: {why}")
        doubled = [one for one in tried if one.factor == 2.0 and one.change.what != "everything"]
        first = sorted(doubled, key=lambda one: -round(self._effect(one), DIGITS))
        if self._is_learned:
            self._learn_again(first[:learn])
        table = table_of([self._record(one) for one in (self.now, *tried)])
        twice = table[table["factor"] == 2.0].set_index("what", drop=False)
        first = [one for one in first[:CURVES_MAX] if self._effect(one) > NO_CHANGE]
        said = [f"{row.label}: {sentence_of(dict(twice.loc[one.change.what]))}" for one in first]
        there = [math.isfinite(time_s) for time_s in self.now.times_s.values()]
        few = f"{row.label}: {sum(there)} of {len(there)} seeds reach the target now."
        said[:0] = [few] * (bool(there) and 2 * sum(there) <= len(there))
        elastic = shares.table
        elastic.insert(0, "schedule", row.label)
        said += [f"{row.label}, first epoch: {base.never_met}."] * bool(base.never_met)
        said += [*self._anomalies(tried, base), *self._unlike()]
        return table, self._curves(first, tried), elastic, said

    def _tried(self, change: Change, factor: float) -> _Tried:
        cluster, schedule = change.on(self.row.plan.cluster, self.row.schedule, factor)
        plan = replace(self.row.plan, cluster=cluster)
        plan = plan.having(light_is_free=True) if change.frees_light else plan
        label = f"{self.row.label}, {change.what} {_times(factor)}"
        return _Tried(change, factor, replace(self.row, label=label, schedule=schedule, plan=plan))

    @property
    def _is_learned(self) -> bool:
        return self.asked.mode == "numeric" and self.row.plan.goal.target is not None

    def _time(self, tried: Sequence[_Tried]) -> None:
        seeds = self.asked.seeds if self._is_learned else self.asked.seeds[:1]
        pairs = [(one, seed) for one in tried for seed in seeds]
        found = self.runs.time([(one.row, seed) for one, seed in pairs])
        for (one, seed), epoch in zip(pairs, found, strict=True):
            one.epochs[seed] = epoch

    def _learn_again(self, first: Sequence[_Tried]) -> None:
        """Runs of the row with all seeds, and of those of the first that learn something else."""
        goal, seeds = self.row.plan.goal, self.asked.seeds
        learned = [self.now, *(one for one in first if not self._shares(one))]
        rows = [self.row, *(replace(o.row, label=f"{o.row.label}, learned") for o in learned[1:])]
        made = iter(self.runs.learn([(row, seed) for row in rows for seed in seeds]))
        for one in learned:
            own = [next(made) for _seed in seeds]
            runs = [r for r in own if isinstance(r, Run) and r.seed in (self.now.times_s or seeds)]
            one.times_s = dict(times_of(goal, runs))
            one.counts = {run.seed: arrival(goal, run)[0] for run in runs}
            if not self.now.times_s:
                raise SimulationError(str(own[0]))

    def _curves(self, first: Sequence[_Tried], tried: Sequence[_Tried]) -> pd.DataFrame:
        """Compute the time of an epoch for factors between; what was tried is taken."""
        known = {(one.change.what, one.factor): one for one in tried}
        known |= {(one.change.what, 1.0): self.now for one in first}
        points = [(one.change.what, factor) for one in first for factor in CURVE]
        of = {one.change.what: one.change for one in first}
        new = [self._tried(of[what], by) for what, by in points if (what, by) not in known]
        self._time(new)
        known |= {(one.change.what, one.factor): one for one in new}
        rows = [(self.row.label, *point, self._ratio(known[point]) - 1) for point in points]
        return pd.DataFrame(rows, columns=["schedule", "what", "factor", "change"])

    def _anomalies(self, tried: Sequence[_Tried], base: Result) -> Iterator[str]:
        """Find what is slower, with the first seed, though something is faster, or the reverse."""
        seed = self.asked.seed
        now_s = self.now.epochs[seed].epoch_s
        changes = [(one.epochs[seed].epoch_s / now_s - 1, one) for one in tried]
        odd = [(by, one) for by, one in changes if _sign(by) == (1 if one.factor > 1 else -1)]
        for change, one in sorted(odd, key=lambda pair: -round(abs(pair[0]), DIGITS))[:CURVES_MAX]:
            way = f"{format_percent(abs(change))} {'longer' if change > 0 else 'shorter'}"
            way += f" with seed {seed}" if len(self.now.epochs) > 1 else ""  # rows are medians
            is_left_out = tuple(one.change.factors) == (math.inf,)  # what has no speed
            said = one.change.what if is_left_out else f"{one.change.what} {_times(one.factor)}"
            yield (
                f"{self.row.label}: {said} makes an epoch {way}, an anomaly of order: "
                f"{parting(base, traced(one.row, seed))}."
            )

    def _unlike(self) -> Iterator[str]:
        """Say whose numbers there are, where another seed takes another time."""
        seed, found = self.asked.seed, [*self.now.epochs.values()]
        whose = "shares are those" if len(found) > 1 else "all is"
        more = [(self.row, seed + n) for n in range(1, self.asked.compared)]
        found += self.runs.time(more) if len(found) == 1 else []
        times_s = [one.epoch_s for one in found if one.epoch_s > 0]
        if times_s and (by := max(times_s) / min(times_s) - 1) > NO_CHANGE:
            told = f"seeds differ, epochs by {format_percent(by)}: {whose} of seed {seed}"
            yield f"{self.row.label}: {told}."

    def _ratios(self, one: _Tried) -> dict[int, float]:
        """The time of an epoch over that of now, by seed, where it is known."""
        now_s = {seed: epoch.epoch_s for seed, epoch in self.now.epochs.items()}
        times = {seed: epoch.epoch_s for seed, epoch in one.epochs.items()}
        known = [seed for seed, time_s in times.items() if now_s[seed] > 0 and time_s >= 0]
        return {seed: times[seed] / now_s[seed] for seed in known}

    def _ratio(self, one: _Tried) -> float:
        """Their median; NaN where none is known."""
        return median(self._ratios(one).values() or [math.nan])

    def _effect(self, one: _Tried) -> float:
        """Return the size of an epoch's change, in logarithms; 0 where it is unknown."""
        ratio = self._ratio(one)
        return 0.0 if math.isnan(ratio) else abs(math.log(max(ratio, 1e-300)))

    def _shares(self, one: _Tried) -> bool:
        """Tell if its first epoch learns what it does now, by each seed, and stands for others."""
        pairs = [(epoch.digest, self.now.epochs[seed].digest) for seed, epoch in one.epochs.items()]
        return not self.row.plan.epochs_differ and all(own and own == now for own, now in pairs)

    def _record(self, one: _Tried) -> dict[str, Any]:
        now, is_now = self.now.times_s, one is self.now
        ratios = {seed: own for seed, own in self._ratios(one).items() if seed in now}
        after = one.times_s or {seed: now[seed] * ratio for seed, ratio in ratios.items()}
        arrives = is_now or any(map(math.isfinite, [*now.values(), *after.values()]))
        basis: Basis = "timing" if is_now or not self._shares(one) else "shared"
        basis = "learned" if one.times_s and arrives else basis
        changes = [_change(now[seed], its_s) for seed, its_s in after.items() if seed in now]
        known = [change for change in changes if not math.isnan(change)]
        found, is_by_seed = median_interval(known), basis == "learned" and not is_now
        change = found.middle if known else self._ratio(one) - 1
        if is_by_seed and 2 * len(known) <= len(changes):  # most arrive neither now nor then
            change, is_by_seed = None, False
        agree = sum(_sign(its) == _sign(median(known)) for its in known)
        epochs_s = {seed: epoch.epoch_s for seed, epoch in one.epochs.items()}
        return {
            "schedule": self.row.label, "what": one.change.what, "factor": one.factor,
            "time_to_target_s": _median(after.values()), "change": change,
            "low": found.low if is_by_seed else None, "high": found.high if is_by_seed else None,
            "epoch_s": _median(epochs_s.values()),
            "epochs_to_target": _median((one.counts or self.now.counts)[seed] for seed in after),
            "share": one.change.share, "basis": basis, "seeds": len(after) or 1,
            "seeds_agree": agree if is_by_seed else None,
        }  # fmt: skip


def _median(values: Iterable[float]) -> float | None:
    """The median of what is known; None where it is unknown, or infinite."""
    return median_interval([one for one in values if not math.isnan(one)]).middle


def _change(before: float, after: float) -> float:
    """Return how much longer; NaN where neither arrives, infinite where only one does."""
    return after / before - 1 if math.isfinite(before) else after - before


def _sign(value: float) -> int:
    return (value > NO_CHANGE) - (value < -NO_CHANGE)


def _times(factor: float) -> str:
    known = {0.5: "half as fast", 2.0: "twice as fast", math.inf: "taking no time"}
    return known.get(factor, f"{factor:g} times as fast")


def parting(base: Result, other: Result) -> str:
    """Tell where two runs first serve something else that takes time."""
    spans = [result.spans for result in (base, other)]
    in_time = [one[one["end_s"] > one["start_s"]] for one in spans]
    taking = {step for one in in_time for step in zip(one["node"], one["direction"], strict=True)}
    found: list[tuple[float, str]] = []
    for worker in sorted({int(one) for own in spans for one in own["worker"]}):
        of_worker = [own[own["worker"] == worker] for own in spans]
        names = ["start_s", "node", "direction", "instance", "state"]
        steps = [own[names].itertuples(index=False, name=None) for own in of_worker]
        a, b = ([one for one in own if one[1:3] in taking] for own in steps)
        apart = first_apart(a, b, lambda one, two: one[1:] == two[1:])
        if apart is not None:
            start_s = min(one[0] for one in (apart.a, apart.b) if one is not None)
            place = "the host" if worker < 0 else f"worker {worker}"
            step = f"{_step_words(apart.b)} at its step {apart.place + 1}"
            found.append((start_s, f"{place} serves {step}, and not {_step_words(apart.a)}"))
    if not found:
        return "every device serves the same in the same order, and only waits are longer"
    start_s, said = min(found)
    return f"from {format_seconds(start_s)} on, {said}"


def _step_words(step: tuple[Any, ...] | None) -> str:
    if step is None:
        return "nothing more"
    _start_s, node, direction, instance, state = step
    return f"{direction} of {node} for instance {instance}{f' ({state})' if state else ''}"


def sentence_of(record: dict[str, Any]) -> str:
    """Say what doubling one thing buys, as the table's row has it."""
    change, share = record["change"], record["share"]
    if math.isnan(change):
        arrives = not math.isnan(record["time_to_target_s"])
        then = "reach the target, and do not now" if arrives else "do not reach the target"
        return f"{record['what']} twice as fast: most seeds {then}."
    way = "sooner" if change < 0 else "later"
    said = f"{record['what']} twice as fast: {format_percent(abs(change))} {way}"
    if not math.isnan(record["seeds_agree"]):
        ends: tuple[float, float] = (record["low"], record["high"])
        told = map(format_percent, sorted(map(abs, ends)))
        if not ends[0] * ends[1] >= 0:  # as where an end is a seed that arrives only now, or then
            only = zip(ends, ("reached only then", "reached only now"), strict=True)
            told = (format_change(end) or words for end, words in only)
        between = f"{' to '.join(told)}, " if record["seeds"] > 1 else ""
        said += f" ({between}{record['seeds_agree']:.0f} of {record['seeds']} seeds)"
    elif record["basis"] == "timing" and not math.isnan(record["time_to_target_s"]):
        said += ", if it takes as many epochs as now"
    of_it = f"; it accounts for {format_percent(share)} of the time now"
    return f"{said}{of_it * (share is not None and not math.isnan(share))}."


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WhatIf(Finding):
    """The result of `whatif`: what each thing would buy, were it faster.

    Attributes:
        table: one row a thing and factor: `schedule`; `what` is made `factor` times as fast, and
            infinitely; `time_to_target_s`, the median over seeds; `change`, that over the time now,
            less 1, the median over seeds, with the ends of its interval, `low` and `high`;
            `epoch_s`, of an epoch with validation, and `epochs_to_target`, medians likewise;
            `share`, the elasticity of the time over what is made faster; `basis`: "learned",
            "shared" (the first epoch learns the same) or "timing" (epochs taken to stay); `seeds`,
            and in how many of them the change has the sign of the median. Without a target `change`
            is of the time of an epoch. Unknown is missing.
        curves: schedule, what, factor, change of the time of an epoch; of what matters most.
        elasticities: schedule, where, constant, elasticity; those of a schedule add up to 1.
        target: that is aimed at; None without one.
    """

    kind: ClassVar[Kind] = "whatif"
    files: ClassVar = {
        "report.md": "page", "whatif.csv": "table", "curves.csv": "curves",
        "elasticities.csv": "elasticities", "tornado.png": "figure", "curves.png": "figure",
    }  # fmt: skip
    told = ("sentences", "rows", "curves", "elasticities")

    curves: pd.DataFrame
    elasticities: pd.DataFrame
    target: float | None

    @property
    def cells(self) -> Lines:
        """A line a thing, its factors beside each other; one for all that do nothing.

        Where nobody knows a time to the target, an epoch's stands there. One schedule is not named.
        """
        arrives = self.table["time_to_target_s"].notna().any()
        column, of = ("time_to_target_s", "to target") if arrives else ("epoch_s", "epoch")
        headings = ["schedule", "what", "share", "half", "twice", "no time", of, "basis"]
        lines: list[list[str]] = []
        idle: dict[str, list[str]] = {}
        for (schedule, what), own in self.table.groupby(["schedule", "what"], sort=False):
            records: Any = own.to_dict("records")
            does = any(abs(one["change"]) > NO_CHANGE or one["share"] for one in records)
            if what != NOW.what and not does:
                idle.setdefault(str(schedule), []).append(str(what))
                continue
            by_factor = {one["factor"]: one for one in records}
            twice = by_factor.get(2.0) or by_factor.get(math.inf) or by_factor[1.0]
            changes = {factor: format_change(one["change"]) for factor, one in by_factor.items()}
            time, share = format_seconds(twice[column]), format_percent(twice["share"])
            shown = [changes.get(factor, "") for factor in (0.5, 2.0, math.inf)]
            lines.append([str(schedule), str(what), share, *shown, time, str(twice["basis"])])
        for schedule, names in idle.items():
            what = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
            lines.append([schedule, what, *["0 %"] * 4, "", ""])
        kept = [name != "schedule" or self.table["schedule"].nunique() > 1 for name in headings]
        headings, *lines = ([*itertools.compress(line, kept)] for line in (headings, *lines))
        return headings, lines

    def figures(self) -> Figures:
        """Its figures, by their files."""
        curves = {"curves.png": speed_up_curves(self.curves)} if len(self.curves) else {}
        return {"tornado.png": tornado(self.table), **curves}
