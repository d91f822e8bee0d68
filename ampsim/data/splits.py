"""What data sets share: how much of a split is used, and in which order it is handed out."""

from __future__ import annotations

from typing import TypeVar

from ampsim.data.dataset import Split
from ampsim.errors import OptionError
from ampsim.options import require_count
from ampsim.rng import stream

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
