"""How often each row of a forecast is run: a given number of times, or until the order is clear.

Who stops as soon as a difference shows finds one that is not there more often than he says: each
look is another chance. So seeds are looked at a few times only, each time twice as many as before,
and each of K looks may call wrongly with a K-th of the probability that all together may
(Bonferroni). Every row has the same seeds at every look.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ampsim.errors import OptionError
from ampsim.model_parallel import Schedule
from ampsim.study.forecast_runs import Made, Run, RunMaker
from ampsim.study.learning_rates import Scaling, rate_of
from ampsim.study.ranking import Ranking, Sureness, seeds_needed
from ampsim.study.schedule_names import labels_of
from ampsim.study.task import Plan, Task
from ampsim.study.validation_time import times_validation

MAX_REPEATS: Final = 40
"""Runs of each row at most where they go on until the order is clear (chosen: three looks at the
default schedules)."""

_LOOKS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Entry:
    """A row that is to be run.

    Args:
        label: what it is called.
        schedule: what runs.
        plan: on what, and for how long.
    """

    label: str
    schedule: Schedule
    plan: Plan

    def task(self, seed: int, repeat: int, repeats: int) -> Task:
        """One of its runs."""
        return Task(self.plan, self.schedule, seed, self.label, repeat, repeats)


def entries_of(plan: Plan, schedules: Sequence[Schedule], scaling: Scaling | None) -> list[Entry]:
    """The rows of a table, each with a label and a learning rate of its own.

    Args:
        plan: what they share.
        schedules: one row each.
        scaling: how a row's rate grows; see `ampsim.study.learning_rates`.
    """
    return [
        Entry(
            label,
            schedule,
            replace(
                times_validation(plan, schedule, schedules),
                rate=rate_of(plan.model, schedule, scaling),
            ),
        )
        for schedule, label in zip(schedules, labels_of(schedules), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Looks:
    """After how many runs of each row it is asked whether the order is clear.

    Args:
        counts: of runs, growing; a single one where nothing is asked.
        sureness: how sure a call must be at each of them.
    """

    counts: tuple[int, ...]
    sureness: Sureness


def looks_of(rows: int, repeats: int, sure: float | None, max_repeats: int) -> Looks:
    """When to look at so many rows.

    Args:
        rows: how many.
        repeats: runs of each; with `sure`, at least.
        sure: how sure the order must be; None to make `repeats` runs and ask nothing.
        max_repeats: runs of each at most, with `sure`.

    Raises:
        OptionError: so few runs could never be that sure, or there is nothing to compare.

    >>> looks_of(3, 1, 0.9, 40).counts
    (7, 14, 40)
    """
    if sure is None:
        return Looks((repeats,), Sureness())
    if rows < 2:
        raise OptionError("sure compares schedules, got one; name several, or give repeats instead")
    found: Looks | None = None
    for count in range(1, _LOOKS_MAX):
        sureness = Sureness(sure, count)
        first = max(repeats, seeds_needed(rows, sureness))
        if first * 2 ** (count - 1) > max_repeats:
            break
        doubled = [first * 2**look for look in range(count)]
        found = Looks((*doubled[:-1], max_repeats), sureness)
    if found is None:
        needed = max(repeats, seeds_needed(rows, Sureness(sure)))
        raise OptionError(
            f"max_repeats must be >= {needed}, for fewer runs of {rows} schedules cannot be "
            f"{sure:g} sure, got {max_repeats}; raise it, or lower sure"
        )
    return found


def run_rows(
    entries: Sequence[Entry],
    looks: Looks,
    seed: int,
    maker: RunMaker,
    rank_of: Callable[[Sequence[Sequence[Run]]], Ranking | None],
) -> Made:
    """Run each row until its order is clear, or as often as it may be.

    Args:
        entries: the rows.
        looks: when to look.
        seed: of the first run of each row; the next has the next.
        maker: makes the runs.
        rank_of: ranks the rows by their runs.
    """
    done = 0
    rows: dict[str, tuple[Run, ...]] = {one.label: () for one in entries}
    lost: tuple[str, ...] = ()
    made = Made((), None, ())
    for count in looks.counts:
        tasks = [
            one.task(seed + repeat, repeat + 1, count)
            for one in entries
            for repeat in range(done, count)
        ]
        made, done = maker.make(tasks), count
        for of_row in made.rows:
            rows[of_row[0].label] = (*rows[of_row[0].label], *of_row)
        lost += made.lost
        ranking = rank_of([one for one in rows.values() if one])
        if made.interrupted or (ranking is not None and ranking.is_called):
            break
    return replace(made, rows=tuple(one for one in rows.values() if one), lost=lost)
