"""Rows that take their epochs from another, which learns the same whatever it runs on.

Where a pipeline drains before it updates, each gradient meets the weights that the mini-batch began
with, on any hardware; and where each stage has fixed turns, it meets the same versions on any.
Hardware then decides how long an epoch takes, which mode "sleep" tells, and how many epochs there
are does not depend on it. (It may change the order in which a node adds up gradients, and with it
their last digits.) So one row learns, and others of the same schedule, options and model name it
with `epochs_of`: their time to target is its epochs, seed by seed, times what an epoch takes them.
So it is with solvers whose ranks all meet, as long as the schedule inside drains: who has which
batch, and who meets whom, does not depend on time. How a collective adds up does not matter.

Source: AMPNet, Appendix C, for the time of an epoch; see `ampsim.runs.rows.time_by_formula`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, Final

from ampsim.data_parallel import Solver
from ampsim.errors import one_of
from ampsim.hardware import Cluster
from ampsim.metric import Goal
from ampsim.model_parallel import Schedule
from ampsim.recipes.entry import ModeName, ScheduleEntry
from ampsim.recipes.grid import Cell
from ampsim.runs.rows import median_interval, time_by_formula
from ampsim.runs.run import Run

TIME_ALONE: Final = frozenset(
    {"collective", "ranks_per_group", "bucket_bytes", "overlap", "workers_per_rank"}
)
"""Options of solvers that decide how long a step takes, and not what it does."""


def borrowing_faults(
    entries: Sequence[ScheduleEntry], cells: Sequence[Cell], mode: ModeName, *, has_end: bool
) -> Iterator[str]:
    """What the rows say that take their epochs from others and must not, one sentence each.

    Args:
        entries: the rows.
        cells: where each stands.
        mode: of rows that name none.
        has_end: whether runs end at a target.
    """
    labels = list(dict.fromkeys(cell.label for cell in cells))
    for entry, cell in zip(entries, cells, strict=True):
        if entry.epochs_of is None:
            continue
        where = f"{cell.where}: epochs_of"
        if not has_end:
            yield f"{where} needs max_epochs and a target; give them instead of epochs"
        if (entry.mode or mode) != "sleep":
            yield f'{where} belongs to mode "sleep", in which nothing is learned; give that too'
        lenders = [
            one for one, at in zip(entries, cells, strict=True) if at.label == entry.epochs_of
        ]
        if not lenders:
            yield f"{where}: {one_of('row', entry.epochs_of, labels)}"
        elif len(lenders) > 1:
            yield (
                f"{where} must name one row, but the grid makes {len(lenders)} of "
                f"{entry.epochs_of!r}; give that one the grid's keys itself"
            )
        else:
            yield from _unlike(where, entry, lenders[0], mode)


def _unlike(
    where: str, entry: ScheduleEntry, lender: ScheduleEntry, mode: ModeName
) -> Iterator[str]:
    """In what the two rows differ and must not."""
    if (lender.mode or mode) != "numeric":
        yield f'{where}: {lender.title!r} must learn; let its mode be "numeric"'
    if entry.set != lender.set:
        yield (
            f"{where}: {lender.title!r} must have the same set, {entry.set}, got {lender.set}; "
            "other options learn otherwise"
        )


def unlike(schedule: Schedule, lender: Schedule) -> str | None:
    """Why one schedule does not learn as another; None where it does."""
    if schedule == lender:
        return None
    if isinstance(schedule, Solver):
        return _unlike_solver(schedule, lender)
    if not schedule.admission.drains:
        return (
            f"epochs_of must name a row of the same schedule where it does not drain, but "
            f"{schedule} is not {lender}"
        )
    for name in ("admission", "updates", "weights"):
        if getattr(schedule, name) != getattr(lender, name):
            return (
                f"epochs_of must name a row with the same {name}: {schedule} does not learn as "
                f"{lender}; give both the same options, or one a run of its own"
            )
    return None


def _unlike_solver(solver: Solver, lender: Schedule) -> str | None:
    """The same of a solver, with its number of ranks."""
    if type(solver) is not type(lender):
        return f"epochs_of must name a row of the same solver, but {solver.name} is not {lender}"
    for name in (one.name for one in fields(solver) if one.name not in TIME_ALONE):
        own, other = getattr(solver, name), getattr(lender, name)
        if own != other:
            return (
                f"epochs_of must name a row with the same {name}, but that of {solver.name} is "
                f"{own} and not {other}; give both the same, or one a run of its own"
            )
    return None


def unfit(schedule: Schedule, cluster: Cluster, lender: Cluster) -> str | None:
    """Why a row cannot take its epochs from one on the cluster `lender`; None where it can."""
    is_timed = not schedule.admission.drains and not schedule.order.turns
    if isinstance(schedule, Solver):
        is_timed = schedule.meets != "all" or not schedule.inside.admission.drains
    if is_timed:
        return (
            f"epochs_of has no sense for {schedule.name}, whose learning depends on what it runs "
            "on; let it run in mode numeric"
        )
    if cluster.events:
        return (
            f"epochs_of has no sense on {cluster.name}, whose events at set times are not the "
            "same in each epoch; let the row run in mode numeric"
        )
    for one in (cluster, lender):
        if one.checkpoints is not None:
            return (
                f"epochs_of has no sense with {one.name}, on which learning depends on what stops "
                "take back to a checkpoint; let the row run in mode numeric"
            )
    return None


def borrowed(
    made: dict[str, Any], goal: Goal, runs: Sequence[Run], lent: Sequence[Run]
) -> tuple[dict[str, Any], dict[int, float]]:
    """A row of mode "sleep" with the epochs of another row, seed by seed, and its times by seed.

    Args:
        made: the row as it is without them.
        goal: what was aimed at.
        runs: its own runs.
        lent: the other row's, with the same seeds.
    """
    epochs = [_epochs(goal, run) for run in lent]
    times = [_time_s(count, run) for count, run in zip(epochs, runs, strict=True)]
    middle, time_s = median_interval(epochs).middle, median_interval(times)
    share = None if time_s.middle is None else time_s.middle / made["makespan_s"]
    best = {
        f"best_{goal.metric.kind}": goal.metric.best(
            float(score) for run in lent for score in run.epochs[goal.metric.kind]
        )
    }
    row = {
        **made,
        "epochs_to_target": middle,
        "time_to_target_s": time_s.middle,
        "time_to_target_low_s": time_s.low,
        "time_to_target_high_s": time_s.high,
        "time_to_target_coverage": time_s.coverage or None,
        "time_to_target_formula_s": time_s.middle,
        "energy_to_target_j": _scaled(made["energy_j"], share),
        "cost_to_target_usd": _scaled(made["cost_usd"], share),
        "repeats_reached": sum(map(math.isfinite, epochs)),
        **best,
        "note": f"epochs as {lent[0].schedule}",
    }
    return row, {run.seed: time_s for run, time_s in zip(runs, times, strict=True)}


def _epochs(goal: Goal, run: Run) -> float:
    """Epochs to the target; infinite where it was not reached."""
    index = goal.reached_by(run.epochs[goal.metric.kind])
    return math.inf if index is None else float(run.epochs["epoch"].iloc[index])


def _time_s(epochs: float, run: Run) -> float:
    """What so many epochs take, each as long as the one that was run."""
    first = run.epochs.iloc[0]
    train = (int(first["instances"]), run.train_per_s)
    valid = (int(first["valid_instances"]), run.valid_per_s)
    if math.isnan(run.valid_per_s):  # it takes no time under solvers, nor beside them
        valid = (0, math.inf)
    return time_by_formula(epochs, train, valid)


def _scaled(whole: float | None, share: float | None) -> float | None:
    return None if whole is None or share is None else whole * share
