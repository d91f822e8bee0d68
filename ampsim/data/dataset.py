"""A data set: what is learned from, what is validated on, and how the two are parted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol, TypeAlias, TypeVar

from ampsim.errors import OptionError
from ampsim.options import require_count
from ampsim.rng import stream

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


T = TypeVar("T")


def pick(split: Split, train: T, valid: T) -> T:
    """The one of two that belongs to a split."""
    assert split in ("train", "valid"), f"a split is 'train' or 'valid', got {split!r}"
    return train if split == "train" else valid


def limit(option: str, wanted: int | None, available: int) -> int:
    """How many items of a split are used: the first `wanted`, or all.

    Raises:
        OptionError: `wanted` is no whole number >= 1, or more than there are.
    """
    if wanted is None:
        return available
    count = require_count(option, wanted)
    if count > available:
        raise OptionError(f"{option} must be at most {available}, all that there are, got {count}")
    return count


def order(split: Split, count: int, *, epoch: int, seed: int) -> list[int]:
    """Indices of a split's items: "train" shuffled anew in each epoch, "valid" as they are."""
    if split == "train":
        return stream(seed, "order", epoch).permutation(count).tolist()
    return list(range(count))
