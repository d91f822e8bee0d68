"""A data set's leading instances: enough for a throughput, in a fraction of the time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ampsim.data import Dataset, Split
from ampsim.study.model import Model


@dataclass(frozen=True, slots=True)
class Leading:
    """The leading instances of each part of a data set.

    Args:
        whole: the data set.
        train: training instances at most.
        valid: validation instances at most.
    """

    whole: Dataset[Any]
    train: int
    valid: int

    @property
    def name(self) -> str:
        """That of the whole."""
        return self.whole.name

    @property
    def description(self) -> str:
        """That of the whole."""
        return self.whole.description

    def count(self, split: Split) -> int:
        """Items at most: those of as many instances of mean size."""
        batches = self.whole.batch_count(split)
        return self.whole.count(split) * self.batch_count(split) // max(batches, 1)

    def batch_count(self, split: Split) -> int:
        """How many instances there are."""
        return min(self.whole.batch_count(split), self.train if split == "train" else self.valid)

    def batches(self, split: Split, *, epoch: int, seed: int) -> Iterator[Any]:
        """The leading instances, in the order of the whole."""
        every = self.whole.batches(split, epoch=epoch, seed=seed)
        return itertools.islice(every, self.batch_count(split))


def leading(model: Model, train: int, valid: int) -> Model:
    """The model with the leading instances of its data."""
    scale = model.error_scale

    def make_data(seed: int, count: int | None) -> Dataset[Any]:
        return Leading(model.make_data(seed, count), train, valid)

    def error_scale(few: Leading) -> float:
        return scale(few.whole) if callable(scale) else scale

    return replace(model, make_data=make_data, error_scale=error_scale)
