"""The queue of batches from which ranks take theirs, and that of a group.

The training is validated after each of its parts. An epoch is one part, or ends one: it has another
whenever so many items have been assigned, counted from its start. Ranks do not stop where parts
end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeAlias

Later: TypeAlias = "Callable[[int], Iterable[Any]]"
"""``later(epoch)`` gives the batches of an epoch, counted from 0."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The batches that a rank trains next.

    Args:
        epoch: of its batches.
        batches: as many as the schedule inside a rank takes at once, or fewer at the end of an
            epoch; none for a rank that only meets the others this time.
        first: the first instance's number; the others follow.
        rows: items in all of them.
        passed: instances of its epoch that were assigned before it.
        whole: instances of its epoch; infinite where no learning rate changes within it.
        at: where in time its first instance is, in epochs, for learning rates.
        part: of the training, counted from 0.
        is_last: whether the ranks of a group reduce after it, in any case.
        ends_part: whether its rank does nothing more for its part, where ranks take batches in
            rounds.
        share: of its items among all of which the mean gradient is one step.
    """

    epoch: int
    batches: tuple[Any, ...]
    first: int
    rows: int
    passed: int
    whole: float
    at: float
    part: int
    is_last: bool = False
    ends_part: bool = False
    share: float = 1.0


def epochs_at(epoch: int, passed: int, whole: float) -> float:
    """The time of an instance in epochs, for learning rates.

    The epoch itself, unless it is known how many instances that has.

    >>> epochs_at(2, 5, 20), epochs_at(2, 5, math.inf)
    (2.25, 2)
    """
    return epoch if math.isinf(whole) else epoch + passed / whole


class BatchQueue:
    """Assigns each batch of an epoch once; no assignment has batches of two epochs.

    A part ends with the assignment that reaches its items, or with the round of that assignment.

    Args:
        ranks: how many ranks there are.
        together: batches that a rank takes at once.
        in_rounds: whether all ranks take theirs in rounds: a round is of one epoch, and in its
            last one some ranks may have nothing.
        averages: whether the mean gradient of a round, by items, is one step.
        on_part: called with a part when all of its assignments are closed, and whether it ends an
            epoch.
        whole_of: as `batches_of` of `RunSettings`.

    Attributes:
        ranks_in_round: ranks that have batches in the last round.
    """

    def __init__(
        self,
        ranks: int,
        together: int,
        *,
        in_rounds: bool,
        averages: bool = False,
        on_part: Callable[[int, bool], None],
        whole_of: Callable[[int], float],
    ) -> None:
        self._ranks, self._together = ranks, together
        self._in_rounds, self._averages = in_rounds, averages
        self._on_part = on_part
        self._epoch = -1
        self._batches: Iterator[Any] = iter(())
        self._next: list[Any] = []
        self._later: Later | None = None
        self._every: int | None = None
        self._part = -1
        self._items = 0
        self._is_part_full = False
        self._last_parts: set[int] = set()
        self._open: dict[int, int] = {}
        self._number = self._first = 0
        self._whole_of = whole_of
        self._whole = math.inf
        self._rounds: dict[int, list[Assignment | None]] = {}
        self._left: dict[int, int] = {}
        self._round_of = [0] * ranks
        self._returned: list[Assignment] = []
        self.ranks_in_round = 0

    def offer(
        self, epoch: int, batches: Iterable[Any], later: Later | None, every: int | None
    ) -> None:
        """Queue `batches` as those of `epoch`, unless that epoch has begun.

        Args:
            epoch: counted from 0.
            batches: of it.
            later: gives those of later epochs; None where ranks stop after this one.
            every: items after which a part ends; None where only epochs end them.
        """
        self._later, self._every = later, every
        if epoch > self._epoch:
            assert not self._next, f"epoch {epoch} before epoch {self._epoch} is assigned"
            self._start(epoch, batches)

    def take(self, rank: int) -> Assignment | None:
        """The batches of `rank` that come next; None where none are left."""
        if not self._in_rounds:
            return self._assign()
        number = self._round_of[rank]
        if number not in self._rounds:
            made = self._round()
            if made is None:
                return None
            self._rounds[number], self._left[number] = made, self._ranks
        self._round_of[rank] += 1
        self._left[number] -= 1
        assignment = self._rounds[number][rank]
        if not self._left[number]:
            del self._rounds[number], self._left[number]
        return assignment

    def give_back(self, assignment: Assignment) -> None:
        """Take back an assignment that was cancelled; it is the first to be assigned again."""
        if assignment.batches:
            self._returned.append(assignment)
            self._returned.sort(key=lambda one: one.first)

    def close(self, assignment: Assignment) -> None:
        """Note that the step of an assignment has been made."""
        if not assignment.batches:
            return
        part = assignment.part
        self._open[part] -= 1
        is_last = part in self._last_parts or (part == self._part and not self._next)
        is_assigned = is_last or part < self._part or self._is_part_full
        if is_assigned and not self._open[part]:
            del self._open[part]
            self._last_parts.discard(part)
            self._on_part(part, is_last)

    def has_any(self, part: int) -> bool:
        """Tell whether a part of an epoch that was offered has any batch to assign, or had."""
        return part < self._part or bool(self._next) or bool(self._open.get(part))

    @property
    def open_assignments(self) -> int:
        """Assignments that are not closed."""
        return sum(self._open.values())

    def _start(self, epoch: int, batches: Iterable[Any]) -> None:
        self._epoch, self._first, self._whole = epoch, self._number, self._whole_of(epoch)
        self._batches = iter(batches)
        if self._open.get(self._part):
            self._last_parts.add(self._part)
        self._items = 0
        self._start_part()
        self._look_ahead()

    def _start_part(self) -> None:
        self._part += 1
        self._open[self._part] = 0
        self._is_part_full = False

    def _look_ahead(self) -> None:
        self._next = list(islice(self._batches, self._together))

    def _assign(self) -> Assignment | None:
        """The next batches; those of another epoch where this one is all assigned."""
        if not (self._next or self._returned) and self._later is not None:
            self._start(self._epoch + 1, self._later(self._epoch + 1))
        elif self._is_part_full and self._next:
            self._start_part()
        return self._same_epoch()

    def _same_epoch(self) -> Assignment | None:
        if self._returned:
            return self._returned.pop(0)
        if not self._next:
            return None
        batches = tuple(self._next)
        rows = sum(one.rows for one in batches)
        passed = self._number - self._first
        at = epochs_at(self._epoch, passed, self._whole)
        assignment = Assignment(
            self._epoch, batches, self._number, rows, passed, self._whole, at, self._part
        )
        self._number += len(batches)
        self._open[self._part] += 1
        self._count(rows)
        self._look_ahead()
        return assignment

    def _count(self, rows: int) -> None:
        before, self._items = self._items, self._items + rows
        if self._every is not None and self._items // self._every > before // self._every:
            self._is_part_full = True

    def _round(self) -> list[Assignment | None] | None:
        """An assignment for each rank; None where nothing is left."""
        first = self._assign()
        if first is None:
            return None
        nothing = replace(first, batches=(), rows=0)
        assignments = [first, *(self._same_epoch() or nothing for _ in range(self._ranks - 1))]
        self.ranks_in_round = sum(bool(one.batches) for one in assignments)
        ends_part = self._is_part_full or not self._next
        rows = sum(one.rows for one in assignments) if self._averages else None
        return [replace(one, ends_part=ends_part, share=_share(one, rows)) for one in assignments]


def _share(assignment: Assignment, rows: int | None) -> float:
    """The share of its items among those of a round; 1 where each assignment is a step."""
    return 1.0 if rows is None else assignment.rows / rows


class GroupQueue:
    """Splits a group's assignment into rounds of its ranks, which reduce after the last.

    Args:
        ranks: of the group.
        together: batches that a rank takes at once.
        averages: as of `BatchQueue`.
    """

    def __init__(self, ranks: int, together: int, *, averages: bool) -> None:
        self._ranks, self._together, self._averages = ranks, together, averages
        self._rounds: list[list[Assignment]] = [[] for _ in range(ranks)]

    def offer(self, assignment: Assignment) -> None:
        """Split this; batches in their order, to one rank after the other."""
        each, all_at_once = self._together, self._ranks * self._together
        for first in range(0, len(assignment.batches), all_at_once):
            is_last = first + all_at_once >= len(assignment.batches)
            of_round = assignment.batches[first : first + all_at_once]
            rows = sum(one.rows for one in of_round) if self._averages else None
            for rank, rounds in enumerate(self._rounds):
                start = first + rank * each
                batches = assignment.batches[start : start + each]
                passed = assignment.passed + start
                own = replace(
                    assignment,
                    batches=batches,
                    first=assignment.first + start,
                    rows=sum(one.rows for one in batches),
                    passed=passed,
                    at=epochs_at(assignment.epoch, passed, assignment.whole),
                    is_last=is_last,
                    ends_part=False,
                )
                around = assignment.share if self._averages else 1.0
                rounds.append(replace(own, share=around * _share(own, rows)))

    def take(self, rank: int) -> Assignment | None:
        """The batches of `rank` in its next round; None after the last."""
        return self._rounds[rank].pop(0) if self._rounds[rank] else None

    def close(self, assignment: Assignment) -> None:
        """Do nothing: the group closes its own assignment."""
