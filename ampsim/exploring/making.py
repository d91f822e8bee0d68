"""Runs at points: what a question asks of a setup, and its runs, made and kept as a forecast's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ampsim.errors import SimulationError
from ampsim.exploring.axes import Setup
from ampsim.forecasting.making import RunMaker, entries_of, require_fit
from ampsim.hardware import Cluster
from ampsim.model_parallel import Schedule, placement_of
from ampsim.runs.run import Run
from ampsim.runs.task import Row, RunPlan, Task
from ampsim.study.placement_trials import DEFAULT
from ampsim.study.simulation import PlacementLike, RunOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How the runs of a question are made: what `forecast` takes by the same names."""

    target: float | None = None
    max_epochs: int = 40
    repeats: int = 1
    instances: int | None = None
    seed: int = 0
    is_numeric: bool = True
    placement: PlacementLike | None = None

    @property
    def seeds(self) -> range:
        """Those of the runs."""
        return range(self.seed, self.seed + self.repeats)

    def rows(self, setup: Setup) -> list[Row]:
        """A row for each schedule of a setup, ready to run.

        Raises:
            OptionError: a schedule does not fit the model, the cluster or the placement.
            GraphError: the model's graph breaks a rule.
            FileFormatError: a placement file does not fit graph or cluster.
        """
        target = setup.model.target if self.target is None else self.target
        options = RunOptions(
            epochs=self.max_epochs, instances=self.instances, target=target,
            mode="numeric" if self.is_numeric else "sleep",
            placement=placement_of(DEFAULT if self.placement is None else self.placement),
        )  # fmt: skip
        plan = RunPlan(setup.model, setup.cluster, options)
        placements = require_fit(plan, setup.schedules, self.seed)
        entries = entries_of(plan, setup.schedules, None)
        return [
            replace(one, plan=one.plan.having(placement=placed))
            for one, placed in zip(entries, placements, strict=True)
        ]


def sleeping(row: Row) -> Row:
    """The same row for an epoch of which only the time is wanted."""
    return replace(row, plan=row.plan.having(mode="sleep", target=None))


def moved(row: Row, label: str, cluster: Cluster, schedule: Schedule) -> Row:
    """The same row by another name on another cluster, or under another schedule."""
    return replace(row, label=label, schedule=schedule, plan=replace(row.plan, cluster=cluster))


def make(maker: RunMaker, asked: Asked, runs: Sequence[tuple[Row, int]]) -> list[Run]:
    """The run of each row and seed; those that are kept are taken.

    Args:
        maker: makes them.
        asked: says which seeds there are.
        runs: rows and seeds; rows of one label are the same row.

    Raises:
        SimulationError: a run gave nothing, as its process died.
        KeyboardInterrupt: Ctrl-C came; what finished is kept, if runs are.
    """
    if not runs:
        return []
    tasks = [_task(asked, row, seed) for row, seed in runs]
    made = maker.make(tasks)
    if made.interrupted is not None:
        raise KeyboardInterrupt
    for sentence in made.lost:
        raise SimulationError(sentence)
    found = {(run.label, run.seed): run for of_row in made.rows for run in of_row}
    return [found[row.label, seed] for row, seed in runs]


def _task(asked: Asked, row: Row, seed: int) -> Task:
    """One run; of what is only timed there is one, and of what is learned one a seed."""
    is_timed = row.plan.options.mode == "sleep"
    return row.task(seed, *((1, 1) if is_timed else (seed - asked.seed + 1, asked.repeats)))
