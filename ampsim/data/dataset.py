"""The one interface that every data set has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol, TypeAlias, TypeVar

Split: TypeAlias = Literal["train", "valid"]
"""Part of a data set: what is learned from, and what accuracy is measured on."""

BatchT_co = TypeVar("BatchT_co", covariant=True)


class Dataset(Protocol[BatchT_co]):
    """Items in two splits, handed out in batches; the controller pumps a batch as one instance."""

    @property
    def name(self) -> str:
        """Name as in reports and data folders."""
        ...

    @property
    def description(self) -> str:
        """One line: what an item holds and what is to be told from it."""
        ...

    def count(self, split: Split) -> int:
        """How many items a split has; throughputs count these."""
        ...

    def batch_count(self, split: Split) -> int:
        """How many batches `batches` gives, the same in every epoch.

        A data set of which that is not so says how many "train" has in the first one here, and in
        any by a method `epoch_batches(epoch)`.
        """
        ...

    def batches(self, split: Split, *, epoch: int, seed: int) -> Iterator[BatchT_co]:
        """Every item of a split once; the order of "train" depends on epoch and seed only."""
        ...
