"""Whose validation takes time: that of every row of a table, or of none.

Under a schedule validation is a pass over the data on the same devices, while training waits. Under
a solver ranks never stop for it, so that it has no time of its own. Where both stand in one table,
no row is charged for it: rows are compared, ranked and taken apart by their time of training.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from ampsim.data_parallel import Solver
from ampsim.model_parallel import Schedule
from ampsim.study.task import Plan

OFF_THE_CLOCK: Final = "validation takes no time in this table, as under its solvers"
"""What a table says of a schedule beside solvers."""

ASSUMPTION: Final = (
    "validation takes no virtual time in any row: solvers do not stop for it, so that schedules "
    "beside them do not either"
)
"""What a manifest says of such a table."""


def times_validation(plan: Plan, schedule: Schedule, beside: Iterable[Schedule]) -> Plan:
    """The plan of one row of a table whose schedules are `beside`; a solver's stays as it is."""
    if isinstance(schedule, Solver) or not any(isinstance(one, Solver) for one in beside):
        return plan
    return replace(plan, times_validation=False)


def note_validation(rows: Sequence[dict[str, Any]], are_solvers: Sequence[bool]) -> None:
    """Say in rows of schedules that their validation takes no time, where solvers stand beside.

    Args:
        rows: of one table.
        are_solvers: for each row, whether it is a solver's.
    """
    if not any(are_solvers):
        return
    for row, is_solver in zip(rows, are_solvers, strict=True):
        if not is_solver:
            row["note"] = "; ".join(filter(None, [row["note"], OFF_THE_CLOCK]))
