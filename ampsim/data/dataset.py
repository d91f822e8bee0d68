"""A data set: what is learned from, what is validated on, and how the two are parted."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeAlias, TypeVar, cast

import numpy as np

from ampsim.arguments import checked
from ampsim.data.registry import DATASETS, find_file
from ampsim.errors import OptionError
from ampsim.options import Count, require_count, require_room
from ampsim.rng import stream

Split: TypeAlias = Literal["train", "valid"]
"""Part of a data set: what is learned from, and what accuracy is measured on."""

BatchT_co = TypeVar("BatchT_co", covariant=True)


class Dataset(Protocol[BatchT_co]):
    """Items in two splits, handed out in batches; the controller pumps a batch as one instance."""

    def count(self, split: Split) -> int:
        """Count of items that a split has; throughputs count these."""
        ...

    def batch_count(self, split: Split) -> int:
        """Count of batches that `batches` gives, the same in every epoch.

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
    """Count the items of a split that are used: the first `wanted`, or all.

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
    return _order(split, count, epoch=epoch, seed=seed).tolist()


def _order(split: Split, count: int, *, epoch: int, seed: int) -> np.ndarray:
    if split == "train":
        return stream(seed, "order", epoch).permutation(count)
    return np.arange(count, dtype=np.intp)


def chunks(split: Split, count: int, size: int, *, epoch: int, seed: int) -> Iterator[np.ndarray]:
    """Indices of a split's items in their order, so many at a time; the last may be fewer."""
    rows = _order(split, count, epoch=epoch, seed=seed)
    return (rows[start : start + size] for start in range(0, count, size))


def drawn(
    draw: Callable[[Split, int], T], train_count: int, valid_count: int, item_bytes: int
) -> tuple[T, T]:
    """Both splits of a synthetic data set, by what draws so many items of one.

    Raises:
        OptionError: a count is no whole number >= 1, or so many items would not fit into memory.
    """
    return (
        draw("train", require_room("instances", train_count, item_bytes)),
        draw("valid", require_room("valid_count", valid_count, item_bytes)),
    )


class Registered:
    """A data set whose name and description stand in `DATASETS`."""

    __slots__ = ()
    name: ClassVar[str]

    @property
    def description(self) -> str:
        """One line: what an item holds and what is to be told from it."""
        return DATASETS[self.name].description


class ItemDataset(Registered, Generic[T]):
    """A frozen dataclass of items, `train` and `valid`, each an instance of its own."""

    __slots__ = ()
    train: Any
    valid: Any

    def items(self, split: Split) -> Sequence[T]:
        """The items of a split, in their own order."""
        return pick(split, self.train, self.valid)

    def count(self, split: Split) -> int:
        """Count of items that a split has."""
        return len(self.items(split))

    def batch_count(self, split: Split) -> int:
        """Count of instances that `batches` gives: one for each item."""
        return self.count(split)

    def batches(self, split: Split, *, epoch: int, seed: int) -> Iterator[T]:
        """Every item of a split once; "train" shuffled anew in each epoch."""
        items = self.items(split)
        return map(items.__getitem__, order(split, len(items), epoch=epoch, seed=seed))


class SplitFiles(ItemDataset[T]):
    """A data set of items with a file for each split, "train" and "valid"."""

    __slots__ = ()

    @classmethod
    @abstractmethod
    def read(cls, train_path: Path, valid_path: Path) -> Self:
        """Read both files whole."""

    @classmethod
    @checked
    def load(
        cls,
        folder: str | os.PathLike[str] | None = None,
        *,
        train_count: Count | None = None,
        valid_count: Count | None = None,
    ) -> Self:
        """The real data set.

        Args:
            folder: the data folder; see `data_folder`.
            train_count: how many items of the training file, the first in it; None for all.
            valid_count: how many of the validation file.

        Raises:
            MissingDataError: a file is not there.
            FileFormatError: a file does not hold what it must.
            OptionError: a count is no whole number >= 1, or more than there are.
        """
        whole = cls.read(*(find_file(cls.name, split, folder) for split in ("train", "valid")))
        return replace(
            cast("Any", whole),
            train=whole.train[: limit("instances", train_count, len(whole.train))],
            valid=whole.valid[: limit("valid_count", valid_count, len(whole.valid))],
        )
