"""A data set whose batches grow: the warm-up of the batch, in place of that of the learning rate.

Source: Wongpanich, You and Demmel (HPC Asia 2020), Figure 3: "warmup means we gradually increase
the batch size in the first few epochs"; that a larger batch does what a lower rate does, S. Smith,
P. Kindermans, C. Ying and Q. Le, "Don't decay the learning rate, increase the batch size", ICLR
2018. Neither says how it grows; here it is in a straight line, as rates do
(`ampsim.optim.warmup`), and the same throughout an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ampsim.data.dataset import Split
from ampsim.errors import OptionError
from ampsim.options import require_count

START = 0.1
"""Of the whole batch in the first epoch; as that of a rate's warm-up."""


class BatchWarmup:
    """A data set with smaller batches in its first epochs; validation has the whole one.

    In epoch e of E, counted from 0, a batch has B (s + (1 - s) e / E) items, rounded, and at least
    1; from then on it has B. Under a solver that is what a rank takes.

    Args:
        data: a frozen dataclass with a field `batch`, such as `ArrayDataset`.
        epochs: E, in which batches are smaller.
        start: s, the part of the batch in the first epoch.

    Raises:
        OptionError: `data` has no `batch`, there are no epochs, `start` is not above 0 and below 1,
            or no batch would be smaller.
    """

    def __init__(self, data: Any, epochs: int, start: float = START) -> None:
        """Know the batch of each epoch."""
        self._data = data
        whole = getattr(data, "batch", None)
        if not hasattr(data, "__dataclass_fields__") or not isinstance(whole, int):
            raise OptionError(
                "data of a warm-up of the batch must be a dataclass with a field batch, got a "
                f"{type(data).__name__}; ampsim.ArrayDataset is one"
            )
        length = require_count("epochs of a warm-up of the batch", epochs)
        if not 0 < start < 1:
            raise OptionError(
                f"start of a warm-up of the batch must be > 0 and < 1, got {start}; try {START}"
            )
        parts = (start + (1 - start) * epoch / length for epoch in range(length))
        self._sizes = [max(1, round(whole * part)) for part in parts]
        if self._sizes[0] == whole:
            raise OptionError(
                f"a warm-up of the batch must begin with fewer items, but {start} of {whole} is "
                f"{whole} too; take a larger batch, or leave the warm-up out"
            )

    @property
    def name(self) -> str:
        """That of the data."""
        return self._data.name

    @property
    def description(self) -> str:
        """That of the data."""
        return self._data.description

    def of_epoch(self, epoch: int) -> Any:
        """The data with the batches of an epoch, counted from 0."""
        if epoch >= len(self._sizes):
            return self._data
        return replace(self._data, batch=self._sizes[epoch])

    def count(self, split: Split) -> int:
        """How many items a split has."""
        return self._data.count(split)

    def batch_count(self, split: Split) -> int:
        """How many batches `batches` gives; of "train", in the first epoch."""
        return self._data.batch_count(split) if split == "valid" else self.epoch_batches(0)

    def epoch_batches(self, epoch: int) -> int:
        """How many training batches an epoch has."""
        return self.of_epoch(epoch).batch_count("train")

    def batches(self, split: Split, *, epoch: int, seed: int) -> Iterator[Any]:
        """Every item of a split once, in the order of the data."""
        data = self._data if split == "valid" else self.of_epoch(epoch)
        return data.batches(split, epoch=epoch, seed=seed)
