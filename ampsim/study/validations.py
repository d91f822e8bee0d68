"""Validation within an epoch: its pass over the training data in parts, and what they add up to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ampsim.model_parallel import PassReport
from ampsim.model_parallel.passes import PassTotals


def validations(train_count: int, every: int | None) -> int:
    """How often an epoch of so many training items is validated.

    >>> validations(1000, None), validations(1000, 250), validations(1000, 300)
    (1, 4, 4)
    """
    return 1 if every is None else max(math.ceil(train_count / every), 1)


class Parts:
    """The batches of a pass in parts, each of which ends where another `every` items are reached.

    Args:
        batches: of the pass, each of ``batch.rows`` items.
        every: items; None for one part.
    """

    def __init__(self, batches: Iterable[Any], every: int | None) -> None:
        """Take no batch yet."""
        self._batches = iter(batches)
        self._every = every
        self._ahead: list[Any] = []
        self._items = 0
        self._has_begun = False
        self._is_at_end = False

    @property
    def is_over(self) -> bool:
        """Whether nothing is left; a pass without any batch is one empty part."""
        return self._has_begun and self._is_at_end and not self._ahead

    def next_part(self) -> Iterator[Any]:
        """The batches of the next part."""
        self._has_begun = True
        if self._every is None:
            yield from self._batches
            self._is_at_end = True
            return
        until = (self._items // self._every + 1) * self._every
        while self._items < until and (batch := self._taken()) is not None:
            self._items += batch.rows
            yield batch
        self._look_ahead()

    def _taken(self) -> Any:
        self._look_ahead()
        return self._ahead.pop() if self._ahead else None

    def _look_ahead(self) -> None:
        """Have one batch more, as a part is the last if there is none."""
        if not self._ahead and not self._is_at_end:
            found = next(self._batches, None)
            self._is_at_end = found is None
            self._ahead = [] if found is None else [found]


@dataclass(slots=True)
class EpochTotals:
    """What the parts of an epoch add up to.

    Attributes:
        trained: sums over all training.
        valid: sums of the last validation.
        validated: validation items, those of all validations.
        train_s: seconds of training.
        valid_s: seconds of all validations.
        end_s: when the last validation ended.
    """

    trained: PassTotals = field(default_factory=PassTotals)
    valid: PassTotals = field(default_factory=PassTotals)
    validated: int = 0
    train_s: float = 0.0
    valid_s: float = 0.0
    end_s: float = 0.0

    def add(self, train: PassReport, valid: PassReport) -> None:
        """Add a part of the training, and the validation after it."""
        self.trained.include(train.totals)
        self.valid = valid.totals
        self.validated += valid.totals.instances
        self.train_s += train.end_s - train.start_s
        self.valid_s += valid.end_s - valid.start_s
        self.end_s = valid.end_s

    def row(self, error_scale: float) -> tuple[float, ...]:
        """A row of the table of epochs, without the epoch."""
        return (
            self.end_s,
            self.trained.loss,
            self.valid.accuracy,
            self.trained.instances,
            self.trained.accuracy,
            self.valid.loss,
            self.validated,
            self.train_s,
            self.valid_s,
            self.valid.absolute_error * error_scale,
            self.trained.absolute_error * error_scale,
        )
