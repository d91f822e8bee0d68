"""List reduction: compute a function of a list of digits, the function named by the first token.

Source: AMPNet, Appendix B.2 and its footnote 2. 10^5 training and 10^4 validation lists of at most
10 tokens: one of four operations, then digits. The label is the result, rounded, modulo 10.
Lists of equal length are bucketed into batches of 100. The paper leaves open, and here is chosen:

* Halves round to even, as Python's `round` does, on the exact fraction: floating point decides
  nothing. The modulo is Python's too, so that -3 gives 7.
* In a list of one digit `L[1::2]` is empty; its mean counts as 0.
* The number of digits is uniform over 1..9, the operation over the four, each digit over 0..9, all
  independent. The same short list may occur several times and in both splits.
* Token ids: a digit is its own id, operations are 10..13.
* The last batch of a length may have fewer than `batch` lists; none is dropped.
* Each epoch, training lists are shuffled within their length, then batches among each other.
  Validation goes by length, in one order for all epochs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
from annotated_types import Ge, Le

from ampsim.arguments import checked
from ampsim.data.dataset import Registered, Split, drawn, pick
from ampsim.data.vocabulary import frozen
from ampsim.options import Count, Seed
from ampsim.rng import stream

if TYPE_CHECKING:
    from jaxtyping import Bool, Int, Int8

DIGITS_MAX = 9
TOKENS_MAX = 1 + DIGITS_MAX
PADDING = -1


class ListOperation(IntEnum):
    """The four operations on a list L, by their token ids (footnote 2 of the paper)."""

    MEAN = 10
    """`mean(L)`"""
    ALTERNATING = 11
    """`mean(L[0::2]) - mean(L[1::2])`"""
    RANGE = 12
    """`max(L) - min(L)`"""
    LENGTH = 13
    """`len(L)`"""


Operation = ListOperation
"""The former name, for one release."""


class ListBatch(NamedTuple):
    """Lists of one length, step-major: `tokens[t]` is what an RNN reads at step t.

    Both arrays are read-only and contiguous.
    """

    tokens: Int[np.ndarray, "steps rows"]
    labels: Int[np.ndarray, " rows"]

    @property
    def rows(self) -> int:
        """Count of lists."""
        return self.tokens.shape[1]

    @property
    def steps(self) -> int:
        """Tokens of each list, the operation included."""
        return self.tokens.shape[0]


@dataclass(frozen=True, slots=True, eq=False)
class ListSplit:
    """Lists in the order in which they were drawn; the arrays are read-only.

    Args:
        tokens: operation, digits, then `PADDING`.
        length: tokens of each list, the operation included, 2..10.
        label: 0..9.
    """

    tokens: Int8[np.ndarray, "lists 10"]
    length: Int8[np.ndarray, " lists"]
    label: Int8[np.ndarray, " lists"]


@dataclass(frozen=True, slots=True, eq=False)
class ListReduction(Registered):
    """The data set of the paper's RNN; see the module for what it holds.

    >>> data = ListReduction.generate(seed=0, train_count=500, valid_count=100, batch=50)
    >>> data.count("train"), sum(b.rows for b in data.batches("train", epoch=0, seed=0))
    (500, 500)
    """

    name = "list_reduction"
    train: ListSplit
    valid: ListSplit
    batch: int

    @classmethod
    @checked
    def generate(
        cls,
        seed: Seed,
        train_count: Count = 100_000,
        valid_count: Count = 10_000,
        batch: Count = 100,
        digits: Annotated[int, Ge(1), Le(DIGITS_MAX)] = DIGITS_MAX,
    ) -> ListReduction:
        """The data set of a seed; a smaller one holds the first lists of a larger one.

        Args:
            seed: of the lists.
            train_count: training lists.
            valid_count: validation lists.
            batch: lists of one length in a batch, at most.
            digits: of a list at most; the paper's have 9. Lengths are drawn evenly from 1 to these.

        Raises:
            OptionError: a count is no whole number >= 1, or the seed none >= 0.
        """
        draw = partial(_draw, seed, digits)
        return cls(*drawn(draw, train_count, valid_count, 12), batch)

    def count(self, split: Split) -> int:
        """Count of lists that a split has."""
        return len(pick(split, self.train, self.valid).label)

    def batch_count(self, split: Split) -> int:
        """Count of batches that `batches` gives, the same in every epoch."""
        counts = np.bincount(pick(split, self.train, self.valid).length).tolist()
        return sum(-(-count // self.batch) for count in counts)

    def batches(self, split: Split, *, epoch: int, seed: int) -> Iterator[ListBatch]:
        """Every list of a split once; see the module for the order."""
        lists = pick(split, self.train, self.valid)
        shuffle = stream(seed, "order", epoch) if split == "train" else None
        batches: list[ListBatch] = []
        for length in np.unique(lists.length).tolist():
            rows = np.flatnonzero(lists.length == length)
            rows = rows if shuffle is None else shuffle.permutation(rows)
            batches += _cut(lists.tokens[rows, :length], lists.label[rows], self.batch)
        if shuffle is None:
            return iter(batches)
        order: list[int] = shuffle.permutation(len(batches)).tolist()
        return map(batches.__getitem__, order)


def reduce_list(operation: int, digits: list[int]) -> int:
    """The label of one list, as the paper's footnote spells it, in exact fractions.

    >>> reduce_list(ListOperation.MEAN, [2, 3]), reduce_list(ListOperation.MEAN, [3, 4])
    (2, 4)
    >>> reduce_list(ListOperation.ALTERNATING, [1, 4]), reduce_list(ListOperation.LENGTH, [0, 0, 7])
    (7, 3)
    """
    match ListOperation(operation):
        case ListOperation.MEAN:
            result = _mean(digits)
        case ListOperation.ALTERNATING:
            result = _mean(digits[0::2]) - _mean(digits[1::2])
        case ListOperation.RANGE:
            result = Fraction(max(digits) - min(digits))
        case ListOperation.LENGTH:
            result = Fraction(len(digits))
    return round(result) % 10


def _mean(digits: list[int]) -> Fraction:
    return Fraction(sum(digits), max(len(digits), 1))


def _draw(seed: int, digits_max: int, split: Split, count: int) -> ListSplit:
    """Lists of one split, from streams of their own."""
    operations = stream(seed, f"list_reduction.{split}.operations")
    lengths = stream(seed, f"list_reduction.{split}.lengths")
    digits = stream(seed, f"list_reduction.{split}.digits")
    tokens = np.empty((count, TOKENS_MAX), np.int8)
    tokens[:, 0] = operations.integers(min(ListOperation), max(ListOperation) + 1, count, np.int8)
    tokens[:, 1:] = digits.integers(0, 10, (count, DIGITS_MAX), np.int8)
    length = lengths.integers(2, digits_max + 2, count, np.int8)
    present = np.arange(TOKENS_MAX) < length[:, None]
    tokens[~present] = PADDING
    label = _labels(tokens[:, 0], tokens[:, 1:], present[:, 1:])
    return ListSplit(frozen(tokens), frozen(length), frozen(label))


def _labels(
    operation: Int8[np.ndarray, " lists"],
    digits: Int8[np.ndarray, "lists 9"],
    present: Bool[np.ndarray, "lists 9"],
) -> Int8[np.ndarray, " lists"]:
    """`reduce_list` of every row at once, in integers: a result is numerator / denominator."""
    known = np.where(present, digits, 0)
    count = present.sum(axis=1)
    even_sum, odd_sum = known[:, 0::2].sum(axis=1), known[:, 1::2].sum(axis=1)
    even_count, odd_count = (count + 1) // 2, np.maximum(count // 2, 1)
    largest, smallest = known.max(axis=1), np.where(present, digits, 9).min(axis=1)

    choices = [operation == each for each in ListOperation]
    alternating = even_sum * odd_count - odd_sum * even_count
    numerator = np.select(choices, [even_sum + odd_sum, alternating, largest - smallest, count])
    denominator = np.select(choices, [count, even_count * odd_count, 1, 1])
    floor, rest = np.divmod(numerator, denominator)  # rounded to even, as Fraction's `round` does
    up = (2 * rest > denominator) | ((2 * rest == denominator) & (floor % 2 == 1))
    return ((floor + up) % 10).astype(np.int8)


def _cut(
    tokens: Int8[np.ndarray, "lists steps"], labels: Int8[np.ndarray, " lists"], batch: int
) -> Iterator[ListBatch]:
    """Batches of lists of one length, the last perhaps smaller, as views of one array."""
    full = len(labels) // batch * batch
    yield from _cut_evenly(tokens[:full], labels[:full], batch)
    if full < len(labels):
        yield from _cut_evenly(tokens[full:], labels[full:], len(labels) - full)


def _cut_evenly(
    tokens: Int8[np.ndarray, "lists steps"], labels: Int8[np.ndarray, " lists"], batch: int
) -> Iterator[ListBatch]:
    by_batch = tokens.reshape(-1, batch, tokens.shape[1]).transpose(0, 2, 1)
    all_labels = labels.reshape(-1, batch).astype(np.intp)
    return map(ListBatch, frozen(by_batch.astype(np.intp, order="C")), frozen(all_labels))
