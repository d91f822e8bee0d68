"""Short runs of a recipe's rows at the ends of their devices' intervals, kept like all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ampsim.study.device_spread import Rates, Spreading
from ampsim.study.end_runs import EndRuns, end_runs, gathered, tasks_of
from ampsim.study.jobs import Task
from ampsim.study.kept_runs import Known, known_by
from ampsim.study.outline import Outline
from ampsim.study.repeats import Entry
from ampsim.study.row_plan import Row
from ampsim.study.witness import Witness


@dataclass(frozen=True, slots=True)
class AtEnds:
    """The short runs of all rows.

    Args:
        rows: ready to run, with the learning rates that they have.
        runs: those of each; None of one on devices without intervals.
        seed: of all of them.
    """

    rows: tuple[Row, ...]
    runs: tuple[EndRuns | None, ...]
    seed: int

    @property
    def tasks(self) -> list[Task]:
        """The runs that are to be made."""
        return tasks_of(self.runs)

    def known(self, witnesses: Mapping[str, Witness]) -> list[Known]:
        """What each of them is kept under.

        Args:
            witnesses: of the rows, by their labels.
        """
        return [
            one
            for row, of in zip(self.rows, self.runs, strict=True)
            for task in (() if of is None else of.tasks)
            for one in known_by(
                replace(row, plan=task.plan), [self.seed], witnesses[row.label],
                leading=of.leading if of else (),
            )
        ]  # fmt: skip

    def spreads(self, made: Sequence[tuple[Outline, str | None]]) -> list[Spreading]:
        """What they say of each row.

        Args:
            made: what came of each task.
        """
        rated = {
            place: (Rates(float(outline.train_per_s), float(outline.valid_per_s)), failure)
            for place, (outline, failure) in enumerate(made)
        }
        return gathered(self.runs, rated)


def at_ends(rows: Sequence[Row], seed: int) -> AtEnds:
    """The short runs of rows.

    Args:
        rows: ready to run.
        seed: of the runs.
    """
    entries = [Entry(row.label, row.schedule, row.plan) for row in rows]
    return AtEnds(tuple(rows), tuple(end_runs(one, seed) for one in entries), seed)
