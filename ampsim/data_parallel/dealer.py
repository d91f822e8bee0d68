"""Who hands out batches to ranks, epoch after epoch, without a drain in between.

After each part of the training is looked at what was learned. An epoch is one part, or ends one: it
has another whenever so many items have been dealt out, counted from its start. Ranks do not stop
where parts end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol, TypeAlias


class Batch(Protocol):
    """What the dealer asks of a batch."""

    rows: int


Later: TypeAlias = "Callable[[int], Iterable[Any]]"
"""``later(epoch)`` gives the batches of an epoch, counted from 0."""


@dataclass(frozen=True, slots=True)
class Deal:
    """What a rank does next.

    Args:
        epoch: of its batches.
        batches: as many as the schedule inside a rank takes at once, or fewer at the end of an
            epoch; none for a rank that only meets the others this time.
        first: the first instance's number; the others follow.
        rows: items in all of them.
        passed: instances of its epoch that were dealt out before it.
        whole: instances of its epoch; infinite where no learning rate changes within it.
        part: of the training, counted from 0.
        is_last: whether the ranks of a group meet after it, in any case.
    """

    epoch: int
    batches: tuple[Any, ...]
    first: int
    rows: int
    passed: int
    whole: float
    part: int
    is_last: bool = False

    @property
    def at(self) -> float:
        """Where in time its first instance is, in epochs, for learning rates.

        The epoch itself, unless it is known how many instances that has.
        """
        return self.epoch if math.isinf(self.whole) else self.epoch + self.passed / self.whole


class Deals(Protocol):
    """Who tells ranks what to do."""

    def take(self, rank: int) -> Deal | None:
        """What `rank` does next; None where there is nothing left."""
        ...

    def close(self, deal: Deal) -> None:
        """Note that what a deal was for has been done."""
        ...


class Dealer:
    """Hands out each batch of an epoch once; no deal has batches of two epochs.

    A part ends with the deal that reaches its items, or with the round of that deal.

    Args:
        ranks: how many ranks there are.
        together: batches that a rank takes at once.
        in_rounds: whether all ranks take theirs in rounds: a round is of one epoch, and in its
            last one some ranks may have nothing.
        on_part: called with a part when all of its deals are closed, and whether it ends an epoch.

    Attributes:
        dealt: ranks that have batches in the last round.
    """

    def __init__(
        self, ranks: int, together: int, *, in_rounds: bool, on_part: Callable[[int, bool], None]
    ) -> None:
        self._ranks, self._together = ranks, together
        self._in_rounds = in_rounds
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
        self._whole_of: Callable[[int], float] = lambda _epoch: math.inf
        self._whole = math.inf
        self._rounds: dict[int, list[Deal | None]] = {}
        self._left: dict[int, int] = {}
        self._round_of = [0] * ranks
        self._returned: list[Deal] = []
        self.dealt = 0

    def offer(
        self, epoch: int, batches: Iterable[Any], later: Later | None, every: int | None
    ) -> None:
        """Deal out `batches` as those of `epoch`, unless they are dealt out already.

        Args:
            epoch: counted from 0.
            batches: of it.
            later: gives those of later epochs; None where ranks stop after this one.
            every: items after which a part ends; None where only epochs end them.
        """
        self._later, self._every = later, every
        if epoch > self._epoch:
            assert not self._next, f"epoch {epoch} before epoch {self._epoch} is dealt out"
            self._start(epoch, batches)

    def expect(self, batches_of: Callable[[int], float]) -> None:
        """Know how many batches each epoch has, for learning rates that change within it."""
        self._whole_of = batches_of

    def take(self, rank: int) -> Deal | None:
        """What `rank` does next; None where there is nothing left."""
        if not self._in_rounds:
            return self._deal()
        number = self._round_of[rank]
        if number not in self._rounds:
            made = self._round()
            if made is None:
                return None
            self._rounds[number], self._left[number] = made, self._ranks
        self._round_of[rank] += 1
        self._left[number] -= 1
        deal = self._rounds[number][rank]
        if not self._left[number]:
            del self._rounds[number], self._left[number]
        return deal

    def give_back(self, deal: Deal) -> None:
        """Take back a deal that nothing came of; it is the first to be dealt out again."""
        if deal.batches:
            self._returned.append(deal)
            self._returned.sort(key=lambda one: one.first)

    def close(self, deal: Deal) -> None:
        """Note that what a deal was for has been done."""
        if not deal.batches:
            return
        part = deal.part
        self._open[part] -= 1
        is_last = part in self._last_parts or (part == self._part and not self._next)
        is_dealt_out = is_last or part < self._part or self._is_part_full
        if is_dealt_out and not self._open[part]:
            del self._open[part]
            self._last_parts.discard(part)
            self._on_part(part, is_last)

    def has_any(self, part: int) -> bool:
        """Whether a part of an epoch that was offered has anything to deal out, or had."""
        return part < self._part or bool(self._next) or bool(self._open.get(part))

    @property
    def open_deals(self) -> int:
        """Deals that are not closed."""
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

    def _deal(self) -> Deal | None:
        """The next batches; those of another epoch where this one is dealt out."""
        if not (self._next or self._returned) and self._later is not None:
            self._start(self._epoch + 1, self._later(self._epoch + 1))
        elif self._is_part_full and self._next:
            self._start_part()
        return self._same_epoch()

    def _same_epoch(self) -> Deal | None:
        if self._returned:
            return self._returned.pop(0)
        if not self._next:
            return None
        batches = tuple(self._next)
        rows = sum(one.rows for one in batches)
        passed = self._number - self._first
        deal = Deal(self._epoch, batches, self._number, rows, passed, self._whole, self._part)
        self._number += len(batches)
        self._open[self._part] += 1
        self._count(rows)
        self._look_ahead()
        return deal

    def _count(self, rows: int) -> None:
        before, self._items = self._items, self._items + rows
        if self._every is not None and self._items // self._every > before // self._every:
            self._is_part_full = True

    def _round(self) -> list[Deal | None] | None:
        """A deal for each rank; None where nothing is left."""
        first = self._deal()
        if first is None:
            return None
        nothing = replace(first, batches=(), rows=0)
        deals = [first, *(self._same_epoch() or nothing for _ in range(self._ranks - 1))]
        self.dealt = sum(bool(one.batches) for one in deals)
        return [*deals]
