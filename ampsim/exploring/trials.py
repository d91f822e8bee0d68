"""Trials of a search: points evaluated seed by seed, until they cannot be on the front any more.

Virtual time, dollars and joules only grow while a run goes on. So a run that has not arrived says
by what it has spent what it will spend at least, and a point of which the medians over all seeds
are at least what another point has is left: exactly, without any statistics, as long as none of its
runs diverges at a rate raised by rule, so that all are made again at the rate as given. More than
half of the seeds, in epochs that suffice for that, run first; the rest where it did not suffice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final, Literal, TypeAlias

from ampsim.errors import OptionError, one_of
from ampsim.exploring.condition import SHORT, Condition
from ampsim.exploring.making import FirstEpoch, PointRuns
from ampsim.runs.rows import row_of, times_of
from ampsim.runs.run import Run
from ampsim.runs.task import Row
from ampsim.text import finite

Outcome: TypeAlias = Literal["complete", "pruned", "infeasible", "not reached", "failed"]
Values: TypeAlias = tuple[float, ...]  # one of each objective

SPENT: Final[Mapping[str, Callable[[Run], float]]] = {
    "time_to_target_s": lambda run: run.makespan_s, "cost_to_target_usd": lambda run: run.cost_usd,
    "energy_to_target_j": lambda run: run.energy_j, "epochs_to_target": lambda run: len(run.epochs),
}  # fmt: skip
"""Objectives that grow as a run goes on, with what it has spent of each."""


def objectives_of(names: Sequence[str]) -> tuple[str, ...]:
    """The columns that are minimised; an OptionError of none, or of one that is none or twice."""
    known = [*SPENT, "epoch_s", "peak_bytes"]
    found = tuple(SHORT.get(name.strip(), name.strip()) for name in names)
    for name in found:
        if name not in known:
            raise OptionError(f"minimise: {one_of('column', name, [*known, *SHORT])}")
    if not found or len(set(found)) < len(found):
        told = "minimise must name columns that differ, such as time_s,dollars"
        raise OptionError(f"{told}, got {','.join(names) or 'none'}")
    return found


@dataclass(frozen=True, slots=True)
class PointOutcome:
    """The end of a point; "complete" if all objectives are known and all conditions hold."""

    outcome: Outcome
    values: Values  # of a point that did not end what it takes at least; infinite where unknown
    violation: float = 0.0  # how far the conditions are from holding, 0 where they do
    seeds: int = 0  # of how many the runs went on to their end
    note: str = ""  # why it failed
    is_lost: bool = False  # whether a run gave nothing, so that the next call asks for it again


@dataclass(frozen=True, slots=True)
class Aim:
    """The aim of a search."""

    objectives: tuple[str, ...]  # columns that are minimised
    conditions: tuple[Condition, ...]  # that must hold
    seeds: range  # of each point
    prunes: bool = True  # whether points are left as soon as they are dominated

    @property
    def has_target(self) -> bool:
        """Whether an objective is to a target."""
        return any(name in SPENT for name in self.objectives)

    @property
    def learns(self) -> bool:
        """Whether anything of it needs runs that learn."""
        return self.has_target or any(one.is_learned for one in self.conditions)

    def judged(
        self, label: str, values: Values, columns: Mapping[str, float | None], seeds: int = 0
    ) -> PointOutcome:
        """Judge a point by its values; without seeds, by what timing tells alone."""
        wanted = [one for one in self.conditions if seeds or not one.is_learned]
        for name, _schedule in (value for one in wanted for value in one.values):
            if columns.get(name) is None and columns.get("repeats_reached", 0) == seeds:
                raise OptionError(f"subject_to: {label} says no {name}; ask for another column")
        violation = sum(_violation(one, columns) for one in wanted)
        return PointOutcome("infeasible" if violation else "complete", values, violation, seeds)


def _violation(condition: Condition, columns: Mapping[str, float | None]) -> float:
    """Return how far a condition is from holding: the log of its sides' ratio, 1 if unknown."""
    found = {of: columns.get(of[0]) for of in condition.values}
    known = {of: math.nan if value is None else float(value) for of, value in found.items()}
    if condition.holds(known):
        return 0.0
    left, right = condition.sides(known)
    if not (0 < left < math.inf and 0 < right < math.inf):
        return 1.0
    return max(abs(math.log(left / right)), 1e-9)


@dataclass(eq=False, slots=True)
class _Candidate:
    row: Row
    timed: FirstEpoch  # with the first seed
    runs: dict[int, Run] = field(default_factory=dict[int, Run])  # made so far, by seed
    whole: set[int] = field(default_factory=set[int])  # seeds whose runs went to their end
    trial: PointOutcome | None = None  # what came of it; None as long as that is open

    @property
    def epochs_max(self) -> int:
        """The most epochs of its runs."""
        return self.row.plan.options.epochs

    @property
    def columns(self) -> dict[str, float | None]:
        """Values of timing, but the most memory that a run of any seed has taken so far."""
        tables = [run.peak_memory["bytes"] for run in self.runs.values()]
        peak = max((int(of.max()) for of in tables if len(of)), default=self.timed.peak_bytes)
        return {**self.timed.columns, "peak_bytes": peak}

    def per_epoch(self, name: str) -> float | None:
        """Return an epoch's part of an objective; None where it has none, or that is unknown."""
        epoch_s = self.timed.epoch_s
        adds = {"time_to_target_s": epoch_s, "epochs_to_target": 1.0, **self.timed.upkeep(epoch_s)}
        return adds.get(name)

    def taken(self, name: str, seed: int, *, is_settled: bool) -> float:
        """Return what a run takes to the target; else what it spent, or, if settled, infinite."""
        if (run := self.runs.get(seed)) is None:
            return 0.0
        found = row_of("", self.row.plan.goal, [run])
        if found["time_to_target_s"] is None:
            return math.inf if is_settled else float(SPENT[name](run))
        return float(found[name] or 0.0)


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Evaluates points of a search."""

    aim: Aim
    runs: PointRuns

    def evaluate(self, rows: Sequence[Row | str], front: Sequence[Values]) -> list[PointOutcome]:
        """Evaluate rows, or why there is none; leave those that the front dominates.

        Raises:
            KeyboardInterrupt: what has finished is kept, if runs are.
            OptionError: an objective or a condition is unknown, as devices have no price or power.
        """
        aim, fit = self.aim, [row for row in rows if isinstance(row, Row)]
        points = list(map(_Candidate, fit, self.runs.time([(row, aim.seeds.start) for row in fit])))
        for one in points:
            if one.timed.failure is not None:
                one.trial = self._failed(one.timed.failure)
                continue
            judged = aim.judged(one.row.label, self._values(one), one.timed.columns)
            one.trial = judged if judged.violation or not aim.learns else None
        self._learn([one for one in points if one.trial is None], front)
        trials = iter([one.trial for one in points if one.trial is not None])
        return [self._failed(one) if isinstance(one, str) else next(trials) for one in rows]

    def _failed(self, why: str) -> PointOutcome:
        unknown, is_lost = (math.inf,) * len(self.aim.objectives), why in self.runs.lost
        return PointOutcome("failed", unknown, note=why, is_lost=is_lost)

    def _learn(self, points: Sequence[_Candidate], front: Sequence[Values]) -> None:
        """Train what is left: more than half of the seeds first, all of them where need be."""
        seeds = self.aim.seeds
        if self.aim.prunes and front:
            half = seeds[: len(seeds) // 2 + 1]
            self._run([(one, seed, self._cap(one, front)) for one in points for seed in half])
            for one in points:
                bounds = self._values(one)
                if one.trial is None and any(dominates(known, bounds) for known in front):
                    one.trial = PointOutcome("pruned", bounds, seeds=len(one.whole))
        left = [one for one in points if one.trial is None]
        self._run([(one, s, one.epochs_max) for one in left for s in seeds if s not in one.whole])
        for one in left:
            one.trial = one.trial or self._settled(one)

    def _run(self, asked: Sequence[tuple[_Candidate, int, int]]) -> None:
        pairs = [
            (replace(one.row, plan=one.row.plan.having(epochs=by)), seed) for one, seed, by in asked
        ]
        for (one, seed, by), run in zip(asked, self.runs.learn_once(pairs), strict=True):
            if isinstance(run, str):
                one.trial = PointOutcome("failed", self._values(one), note=run, is_lost=True)
                continue
            one.runs[seed] = run
            reached_s = times_of(one.row.plan.goal, [run])[seed]
            if by == one.epochs_max or run.failure or reached_s < math.inf:
                one.whole.add(seed)
        again = list[tuple[_Candidate, int, int]]()
        for one in dict.fromkeys(one for one, _seed, _by in asked):
            if given := self.runs.as_given(one.row, [*one.runs.values()]):
                again += [(one, seed, one.epochs_max) for seed in one.runs]
                one.row, one.runs, one.whole = given, {}, set()
        if again:
            self._run(again)

    def _cap(self, one: _Candidate, front: Sequence[Values]) -> int:
        """After how many epochs a run that has not arrived is dominated, as its first one tells."""

        def needed(value: float, rate: float | None, own: float) -> float:
            without = 1.0 if rate is None and value <= own else math.inf
            return value / rate if rate else without

        own, rates = self._values(one), list(map(one.per_epoch, self.aim.objectives))
        enough = min(max(1.0, *map(needed, known, rates, own)) for known in front)
        return min(math.floor(min(enough, one.epochs_max)) + 1, one.epochs_max)

    def _settled(self, one: _Candidate) -> PointOutcome:
        runs, goal = [one.runs[seed] for seed in self.aim.seeds], one.row.plan.goal
        columns = {**row_of(one.row.label, goal, runs), **one.columns}
        best, worst = goal.metric.best_column, -math.inf if goal.metric.is_rising else math.inf
        own = [row_of("", goal, [run])[best] for run in runs]  # of a table's row it is the luckiest
        columns[best] = finite(median(worst if of is None else of for of in own))
        if columns["time_to_target_s"] is None and self.aim.has_target:
            return PointOutcome("not reached", self._values(one), 1.0, len(runs))
        values = self._values(one, is_settled=True)
        return self.aim.judged(one.row.label, values, columns, len(runs))

    def _values(self, one: _Candidate, *, is_settled: bool = False) -> Values:
        """Medians over all seeds; as long as it is not settled, what the point takes at least."""
        found = list[float]()
        for name in self.aim.objectives:
            known = one.per_epoch(name) if name in SPENT else one.columns[name]
            if known is None:
                what = "their prices" if name.startswith("cost") else "what it takes"
                told = f"{name} is unknown of {one.row.label}; its devices' files must say {what}"
                raise OptionError(f"minimise: {told}, or leave it out")
            if name in SPENT:
                known = median(one.taken(name, s, is_settled=is_settled) for s in self.aim.seeds)
            found.append(float(known))
        return tuple(found)


def dominates(one: Values, other: Values) -> bool:
    """Tell whether one is nowhere worse, and somewhere better.

    >>> dominates((1.0, 2.0), (1.0, 3.0)), dominates((1.0, 2.0), (1.0, 2.0))
    (True, False)
    """
    return all(a <= b for a, b in zip(one, other, strict=True)) and one != other


def reference_of(points: Sequence[Values]) -> Values:
    """The corner up to which volumes are counted (chosen: a tenth of each range above it)."""
    return tuple(
        high + 0.1 * (high - min(column) or abs(high) or 1.0)
        for column in zip(*points, strict=True)
        if math.isfinite(high := max(column))
    )
