"""Trials of a search: points evaluated seed by seed, until they cannot be on the front any more.

Virtual time, dollars and joules only grow while a run goes on. So a run that has not arrived says
by what it has spent what it will spend at least, and a point of which the medians over all seeds
are at least what another point has is left: exactly, without any statistics. More than half of the
seeds, in epochs that suffice for that, run first; the rest only where it did not suffice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Literal, TypeAlias

from ampsim.errors import OptionError, one_of
from ampsim.exploring.condition import Condition
from ampsim.exploring.pareto import Values, dominates
from ampsim.exploring.timing import FirstEpoch, Timer
from ampsim.forecasting.making import RunMaker
from ampsim.metric import Goal
from ampsim.runs.rows import row_of, times_of
from ampsim.runs.run import Run
from ampsim.runs.task import Row, Task

Outcome: TypeAlias = Literal["complete", "pruned", "infeasible", "not reached", "failed"]

SPENT: Final = {
    "time_to_target_s": "makespan_s",
    "cost_to_target_usd": "cost_usd",
    "energy_to_target_j": "energy_j",
    "epochs_to_target": "",
}
"""Objectives that grow as a run goes on, with the number of a run that has what it spent."""

OF_TIMING: Final = ("epoch_s", "peak_bytes")
"""Objectives that an epoch in mode "sleep" gives."""

SHORT: Final = {
    "time_s": "time_to_target_s",
    "dollars": "cost_to_target_usd",
    "joules": "energy_to_target_j",
    "epochs": "epochs_to_target",
}
_TIMED: Final = ("epoch_s", "train_per_s", "peak_bytes", "staleness_mean")


def objectives_of(names: Sequence[str]) -> tuple[str, ...]:
    """The columns that are minimised.

    Raises:
        OptionError: there is none, one comes twice, or is no such column.
    """
    known = [*SPENT, *OF_TIMING]
    found = tuple(SHORT.get(name.strip(), name.strip()) for name in names)
    for name in found:
        if name not in known:
            raise OptionError(f"minimise: {one_of('column', name, [*known, *SHORT])}")
    if not found or len(set(found)) < len(found):
        raise OptionError(
            f"minimise must name columns that differ, such as time_s,dollars, got "
            f"{','.join(names) or 'none'}"
        )
    return found


@dataclass(frozen=True, slots=True)
class PointOutcome:
    """What came of a point.

    Args:
        outcome: "complete" if all objectives are known and all conditions hold.
        values: of the objectives; of a point that was pruned, or did not arrive, what it takes at
            least; infinite where nothing is known.
        violation: how far the conditions are from holding, 0 where they do.
        seeds: of how many the runs went on to their end.
        note: why it failed; else empty.
    """

    outcome: Outcome
    values: Values
    violation: float = 0.0
    seeds: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Aim:
    """What a search is for.

    Args:
        objectives: columns that are minimised.
        conditions: that must hold.
        seeds: of each point.
        prunes: whether points are left as soon as they are dominated.
    """

    objectives: tuple[str, ...]
    conditions: tuple[Condition, ...]
    seeds: range
    prunes: bool = True

    @property
    def learns(self) -> bool:
        """Whether anything of it needs runs that learn."""
        is_objective = any(name in SPENT for name in self.objectives)
        return is_objective or any(one.is_learned for one in self.conditions)

    def violation(self, columns: Mapping[str, float | None], *, learned: bool) -> float:
        """How far conditions are from holding, added up; those that are not known yet are left."""
        wanted = [one for one in self.conditions if learned or not one.is_learned]
        return sum(_violation(one, columns) for one in wanted)


def _violation(condition: Condition, columns: Mapping[str, float | None]) -> float:
    known: dict[tuple[str, str], float] = {}
    for column, schedule in condition.values:
        value = columns.get(column)
        known[column, schedule] = math.nan if value is None else float(value)
    if condition.holds(known):
        return 0.0
    left, right = condition.left.of(known), condition.right.of(known)
    if not (0 < left < math.inf and 0 < right < math.inf):
        return 1.0
    return max(abs(math.log(left / right)), 1e-9)


@dataclass(slots=True)
class _Candidate:
    """A point under evaluation."""

    row: Row
    timed: FirstEpoch | None = None
    runs: dict[int, Run] = field(default_factory=dict[int, Run])
    whole: set[int] = field(default_factory=set[int])  # seeds whose runs went to their end
    trial: PointOutcome | None = None


class Evaluator:
    """Evaluates points of a search.

    Args:
        aim: what the search is for.
        maker: makes the runs.
        timer: times the points.
    """

    def __init__(self, aim: Aim, maker: RunMaker, timer: Timer) -> None:
        """Evaluate nothing yet."""
        self._aim, self._maker, self._timer = aim, maker, timer

    def evaluate(self, rows: Sequence[Row], front: Sequence[Values]) -> list[PointOutcome]:
        """What comes of rows, one for each point; those of one label are one point.

        Args:
            rows: of the points.
            front: points that are known; what they dominate is left.

        Raises:
            KeyboardInterrupt: what has finished is kept, if runs are.
            OptionError: an objective is unknown, as devices have no price or power.
        """
        points = {row.label: _Candidate(row) for row in rows}
        self._time([*points.values()])
        self._learn(list(_open(points)), front)
        found = {label: one.trial for label, one in points.items()}
        return [trial for row in rows if (trial := found[row.label]) is not None]

    def _time(self, points: Sequence[_Candidate]) -> None:
        """Time all points; settle those of which nothing is learned."""
        first = self._aim.seeds.start
        tasks = [one.row.task(first, at, len(points)) for at, one in enumerate(points, 1)]

        def take(place: int, found: FirstEpoch) -> None:
            points[place].timed = found

        self._timer.time(tasks, take)
        for one in points:
            assert one.timed is not None, "a timer gives every task its time"
            columns = _timed_columns(one.timed)
            violation = self._aim.violation(columns, learned=False)
            values = self._values(one, {})
            if violation:
                one.trial = PointOutcome("infeasible", values, violation)
            elif not self._aim.learns:
                one.trial = PointOutcome("complete", values)

    def _learn(self, points: Sequence[_Candidate], front: Sequence[Values]) -> None:
        """Train what is left: more than half of the seeds first, all of them where need be."""
        seeds = self._aim.seeds
        if self._aim.prunes and front:
            half = seeds[: len(seeds) // 2 + 1]
            self._run([(one, seed, self._cap(one, front)) for one in points for seed in half])
            for one in points:
                if any(dominates(known, self._bounds(one)) for known in front):
                    one.trial = PointOutcome("pruned", self._bounds(one), seeds=len(one.whole))
        left = [one for one in points if one.trial is None]
        self._run([(one, s, _epochs(one)) for one in left for s in seeds if s not in one.whole])
        for one in left:
            if one.trial is None:
                one.trial = self._settled(one)

    def _run(self, asked: Sequence[tuple[_Candidate, int, int]]) -> None:
        """Make runs of points, each with a seed and by when it ends."""
        if not asked:
            return
        tasks = [_task(one.row, seed, epochs, self._aim.seeds) for one, seed, epochs in asked]
        made = self._maker.make(tasks)
        if made.interrupted is not None:
            raise KeyboardInterrupt
        found = {(run.label, run.seed): run for of in made.rows for run in of}
        for one, seed, epochs in asked:
            run = found.get((one.row.label, seed))
            if run is None:
                one.trial = PointOutcome("failed", self._values(one, {}), note=made.lost[0])
                continue
            one.runs[seed] = run
            if epochs == _epochs(one) or run.failure or _time_s(one.row, run) < math.inf:
                one.whole.add(seed)

    def _cap(self, one: _Candidate, front: Sequence[Values]) -> int:
        """After how many epochs a run that has not arrived is dominated, as its first one tells."""
        assert one.timed is not None, "points are timed before they learn"
        fixed = self._values(one, {})
        rates = [self._rate(one.timed, name) for name in self._aim.objectives]
        enough = math.inf
        for known in front:
            needed = 1.0
            for value, rate, own in zip(known, rates, fixed, strict=True):
                if rate is None:
                    needed = needed if value <= own else math.inf
                else:
                    needed = max(needed, value / rate if rate else math.inf)
            enough = min(enough, needed)
        most = _epochs(one)
        return most if enough >= most else min(math.floor(enough) + 1, most)

    def _rate(self, timed: FirstEpoch, name: str) -> float | None:
        """What an epoch adds to an objective; None of one that no run changes."""
        per_s = {
            "time_to_target_s": 1.0,
            "cost_to_target_usd": timed.usd_per_s or 0.0,
            "energy_to_target_j": timed.power_w or 0.0,
        }
        if name == "epochs_to_target":
            return 1.0
        return per_s[name] * timed.epoch_s if name in per_s else None

    def _settled(self, one: _Candidate) -> PointOutcome:
        """What came of a point of which all seeds ran."""
        runs = [one.runs[seed] for seed in self._aim.seeds]
        goal = one.row.plan.goal
        values = self._bounds(one)
        columns = {**row_of(one.row.label, goal, runs), **_timed_columns(_known(one.timed))}
        if columns["time_to_target_s"] is None and any(n in SPENT for n in self._aim.objectives):
            return PointOutcome("not reached", values, 1.0, len(runs))
        violation = self._aim.violation(columns, learned=True)
        return PointOutcome("infeasible" if violation else "complete", values, violation, len(runs))

    def _bounds(self, one: _Candidate) -> Values:
        """Medians over all seeds; what they are at least, as far as seeds have not ended."""
        return self._values(one, one.runs)

    def _values(self, one: _Candidate, runs: Mapping[int, Run]) -> Values:
        timed, goal = _known(one.timed), one.row.plan.goal
        found: list[float] = []
        for name in self._aim.objectives:
            if name in OF_TIMING:
                found.append(_require(name, _timed_columns(timed)[name], one.row))
                continue
            self._require_known(name, timed, one.row)
            of_seeds = [runs.get(seed) for seed in self._aim.seeds]
            found.append(median(_spent(name, goal, run) if run else 0.0 for run in of_seeds))
        return tuple(found)

    def _require_known(self, name: str, timed: FirstEpoch, row: Row) -> None:
        needed = {"cost_to_target_usd": timed.usd_per_s, "energy_to_target_j": timed.power_w}
        if name in needed:
            _require(name, needed[name], row)


def _require(name: str, value: float | None, row: Row) -> float:
    if value is None:
        raise OptionError(
            f"minimise: {name} is unknown of {row.label}; its devices' files must say "
            f"{'their prices' if name.startswith('cost') else 'what it takes'}, or leave it out"
        )
    return float(value)


def _open(points: Mapping[str, _Candidate]) -> list[_Candidate]:
    return [one for one in points.values() if one.trial is None]


def _known(timed: FirstEpoch | None) -> FirstEpoch:
    assert timed is not None, "points are timed first"
    return timed


def _timed_columns(timed: FirstEpoch) -> dict[str, float | None]:
    ages = timed.staleness.values()
    staleness = sum(ages) / len(ages) if ages else None
    return dict(
        zip(_TIMED, (timed.epoch_s, timed.train_per_s, timed.peak_bytes, staleness), strict=True)
    )


def _epochs(one: _Candidate) -> int:
    return one.row.plan.options.epochs


def _task(row: Row, seed: int, epochs: int, seeds: range) -> Task:
    plan = row.plan.having(epochs=epochs)
    return Task(plan, row.schedule, seed, row.label, seed - seeds.start + 1, len(seeds))


def _time_s(row: Row, run: Run) -> float:
    return times_of(row.plan.goal, [run])[run.seed]


def _spent(name: str, goal: Goal, run: Run) -> float:
    """What a run takes to the target; what it has spent, if it did not arrive."""
    time_s = times_of(goal, [run])[run.seed]
    is_there = math.isfinite(time_s)
    if name == "epochs_to_target":
        index = goal.reached_by(run.looks[goal.metric.kind])
        return (
            float(run.looks["epoch"].iloc[index]) if index is not None else float(len(run.epochs))
        )
    whole = float(getattr(run, SPENT[name]))
    share = min(time_s / run.makespan_s, 1.0) if is_there and run.makespan_s else 1.0
    return whole * share
