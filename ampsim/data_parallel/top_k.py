"""Top-k sparsification with error feedback: which entries of a gradient are sent, at what cost.

Of each node's vector a rank sends the k entries of the largest magnitude, each a value and an index
of 4 bytes. What it keeps back is added to its next gradient of that vector.

Source: A. F. Aji and K. Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP
2017 (arXiv 1704.05021), whose gradient dropping keeps a share of the entries by magnitude; S.
Stich, J.-B. Cordonnier and M. Jaggi, "Sparsified SGD with Memory", NeurIPS 2018 (arXiv 1809.07599),
Algorithm 1, but for the rate, which is theirs before the memory and here that of the step: the
memory is of gradients. Y. Lin et al., "Deep Gradient Compression", ICLR 2018 (arXiv 1712.01887):
the memory alone, without its momentum correction, clipping, masking or warm-up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Final

import numpy as np

from ampsim.errors import LOWER_RATE, DivergenceError
from ampsim.ir import ParameterizedNode, Work
from ampsim.optim import Vector

INDEX_BYTES: Final = 4
"""Of an index beside each value that is sent."""

SELECTION_FLOP: Final = 5
"""For each entry of a vector: the memory's addition, the magnitude, two comparisons that find the
k-th largest, and one with it. Two is what Hoare's selection takes for a small share (D. E. Knuth,
"Mathematical analysis of algorithms", 1971: 2 n; 2.7 n at 10 %); chosen for all shares."""

SELECTION_ARRAYS: Final = 10
"""Arrays of the vector's size that a selection reads or writes: three in the addition, two for the
magnitudes, four in two passes of partition, one in the comparison with the k-th largest."""

SELECTION_OPERATIONS: Final = 5
"""Addition, magnitude, partition, comparison with what takes the entries out, and zeros there."""


@cache
def kept_count(share: float, size: int) -> int:
    """Count the entries of a vector that are sent: the share, rounded up, and at least one.

    The share counts as it is written, so that 0.01 of 700 is 7, which 0.01 * 700 is not.

    >>> kept_count(0.01, 700), kept_count(0.01, 701), kept_count(0.001, 8), kept_count(1.0, 8)
    (7, 8, 1, 8)
    """
    return max(1, math.ceil(Fraction(repr(share)) * size))


def largest(vector: Vector, count: int) -> Vector:
    """True at the `count` entries of the largest magnitude; of equal ones, the first are taken.

    >>> largest(np.array([1.0, -3.0, 3.0, 0.0, -1.0]), 3).tolist()
    [True, True, True, False, False]
    """
    magnitudes = np.abs(vector)
    threshold = np.partition(magnitudes, len(vector) - count)[len(vector) - count]
    chosen = magnitudes > threshold
    equal = np.flatnonzero(magnitudes == threshold)
    chosen[equal[: count - np.count_nonzero(chosen)]] = True
    return chosen


class ErrorFeedback:
    """Keeps back what one rank does not send of its gradients.

    Args:
        names: of the nodes, one for each vector; for messages to people.

    Attributes:
        kept: for each vector what is kept back, None before its first gradient.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self.kept: list[Vector | None] = [None for _ in names]
        self._shares = [1.0 for _ in names]

    def weigh(self, place: int, share: float) -> None:
        """Let what is kept have its weight in the mean of ranks beside a gradient of another.

        Args:
            place: of the vector.
            share: the weight of its next gradient; what is sent of it has the same.
        """
        kept, before, self._shares[place] = self.kept[place], self._shares[place], share
        if kept is not None and share != before:
            kept *= kept.dtype.type(before / share)

    def sent(self, place: int, gradient: Vector, count: int, now_s: float) -> Vector:
        """Return what is sent of a gradient and of what was kept back: zero but in `count` entries.

        The rest is kept. `gradient` is written over.

        Raises:
            DivergenceError: an entry is not finite, so that none is among the largest.
        """
        kept = self.kept[place]
        if kept is not None:
            gradient += kept
        if not math.isfinite(float(np.abs(gradient).max())):
            raise DivergenceError(
                f"the gradient of {self._names[place]} stopped being finite at {now_s:.9g} s"
                f"; {LOWER_RATE}"
            )
        sent = np.where(largest(gradient, count), gradient, gradient.dtype.type(0))
        gradient -= sent
        self.kept[place] = gradient
        return sent


def entry_bytes(node: ParameterizedNode) -> int:
    """Bytes of one value of a node's vector with its index."""
    return node.theta.itemsize + INDEX_BYTES


def selection_work(node: ParameterizedNode, count: int) -> Work:
    """The work of adding the memory, finding `count` entries and taking them out.

    Beside the passes over the vector, the entries are written, and zeros in their places.
    """
    size, item_bytes = node.parameter_count, node.theta.itemsize
    moved = SELECTION_ARRAYS * size * item_bytes + count * (entry_bytes(node) + item_bytes)
    return Work(SELECTION_FLOP * size, moved, SELECTION_OPERATIONS, pass_bytes=moved)


def addition_of_entries(node: ParameterizedNode, lists: int, count: int) -> Work:
    """The work of adding up `lists` of `count` entries each: one addition an entry.

    Zeros are written first, in all of the vector; then each entry is read, and where it belongs is
    read and written. Each list is one operation.
    """
    entries, item_bytes = lists * count, node.theta.itemsize
    moved = node.parameter_count * item_bytes + entries * (entry_bytes(node) + 2 * item_bytes)
    return Work(entries, moved, 1 + lists, pass_bytes=moved)
