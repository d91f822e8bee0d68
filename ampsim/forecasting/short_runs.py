"""Short runs of a row at the ends of its devices' intervals, in mode "sleep"."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from ampsim.data_parallel import Solver
from ampsim.errors import AmpsimError
from ampsim.forecasting.intervals import End, Spread, Spreading, Throughputs, Unspread, ends_of
from ampsim.forecasting.making import Made, RunMaker
from ampsim.hardware import Cluster
from ampsim.model_parallel import Schedule
from ampsim.runs.run import Run
from ampsim.runs.task import Row, Task, simulation_of
from ampsim.runs.witness import leading
from ampsim.study.progress import Tracker
from ampsim.study.result import Result

TRAINED_MIN: Final = 40
"""Training instances of a short run at least (chosen: as `ampsim calibrate table` takes unless told
otherwise)."""

VALIDATED: Final = 20
"""Its validation instances."""

Rated: TypeAlias = tuple[Throughputs, str | None]
"""Throughputs of a run, and why it ended early if it did."""


@dataclass(frozen=True, slots=True)
class EndRuns:
    """The short runs of a row.

    Args:
        ends: of all intervals of its devices.
        tasks: one at the numbers themselves, then one at each end; none where the row cannot be
            run so.
        leading: training and validation instances of each.
        why_not: why it cannot.
    """

    ends: tuple[End, ...]
    tasks: tuple[Task, ...]
    leading: tuple[int, int]
    why_not: str = ""

    def spread(self, made: Sequence[Rated | None]) -> Spread | Unspread:
        """What the runs say together."""
        if not self.tasks:
            return Unspread(self.ends, self.why_not)
        rates: list[Throughputs] = []
        for one in made:
            if one is None:
                return Unspread(self.ends, "the process of a short run died")
            rate, failure = one
            if failure is not None:
                return Unspread(self.ends, failure)
            if not 0 < rate.train_per_s < math.inf:
                return Unspread(self.ends, "nothing takes time in its short runs")
            rates.append(rate)
        return Spread(self.ends, rates[0], tuple(rates[1:]))


def end_runs(entry: Row, seed: int) -> EndRuns | None:
    """The short runs of a row; None where none of its devices says an interval."""
    ends = tuple(ends_of(entry.plan.cluster))
    if not ends:
        return None
    counts = (trained(entry.schedule, entry.plan.cluster), VALIDATED)
    plan = replace(entry.plan, model=leading(entry.plan.model, *counts))
    plan = plan.having(mode="sleep", epochs=1, target=None, validate_every=None)
    try:  # whether mode "sleep" can run the row
        whole = replace(plan, model=entry.plan.model)
        simulation_of(whole, entry.schedule, seed, Tracker(None, entry.label))
    except AmpsimError as error:
        return EndRuns(ends, (), counts, str(error))
    at_ends = [
        Task(
            replace(plan, cluster=end.on(plan.cluster)), entry.schedule, seed,
            f"{entry.label} at {end.key} of {end.device} = {end.value:.4g}", 1, 1,
        )
        for end in ends
    ]  # fmt: skip
    base = Task(plan, entry.schedule, seed, f"{entry.label} at its devices' numbers", 1, 1)
    return EndRuns(ends, (base, *at_ends), counts)


def trained(schedule: Schedule, cluster: Cluster) -> int:
    """Training instances of a row's short runs.

    They are twice as many as may be in flight; under a solver, as many as all ranks take up to
    their second exchange, so that exchanges take the share of time that they take in a long run.
    """
    count = max(TRAINED_MIN, 2 * (schedule.admission.in_flight_max or 1))
    if not isinstance(schedule, Solver):
        return count
    ranks = schedule.ranks_on(cluster.workers)
    each = schedule.batches_per_assignment * schedule.assignments_per_exchange
    return max(count, 2 * ranks * each)


def with_spreads(entries: Sequence[Row], made: Made, seed: int, maker: RunMaker) -> Made:
    """A forecast's runs with what the intervals of its devices do to each row."""
    by_label = {one.label: one for one in entries}
    runs = [end_runs(by_label[of[0].label], seed) for of in made.rows]
    found: dict[int, Rated] = {}

    def keep(place: int, result: Result, failure: str | None) -> None:
        found[place] = rated(result, failure)

    try:
        maker.make_beside(tasks_of(runs), keep)
    except KeyboardInterrupt:
        unknown = [None if of is None else Unspread(of.ends, "Ctrl-C came first") for of in runs]
        told = made.interrupted or "interrupted: short runs at the ends of intervals did not finish"
        return replace(made, spreads=tuple(unknown), interrupted=told)
    every = [found.get(place) for place in range(len(tasks_of(runs)))]
    return replace(made, spreads=tuple(gathered(runs, every)))


def tasks_of(runs: Sequence[EndRuns | None]) -> list[Task]:
    """The short runs of all rows."""
    return [task for of in runs if of is not None for task in of.tasks]


def rated(run: Result | Run, failure: str | None) -> Rated:
    """Throughputs of a short run that was made, and why it ended early if it did."""
    return Throughputs(float(run.train_per_s), float(run.valid_per_s)), failure


def gathered(runs: Sequence[EndRuns | None], made: Sequence[Rated | None]) -> list[Spreading]:
    """What the runs of each row say, from what came of each task of `tasks_of`."""
    left = iter(made)
    return [
        None if of is None else of.spread(list(itertools.islice(left, len(of.tasks))))
        for of in runs
    ]
