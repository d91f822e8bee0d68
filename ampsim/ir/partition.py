"""Partition: the control payload of `Distribute` and `Collect` (Section 4, Figure 3)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from ampsim.errors import GraphError

if TYPE_CHECKING:
    from jaxtyping import Int


class Partition:
    """A partition says which rows of a whole go to which successor.

    A row may be in several parts, in one part several times, or in none; parts may be empty. It
    is a payload as an index array is: integers, which stay real in `sleep` mode. Nothing in it
    changes once it is made.

    Args:
        parts: for each successor, the rows that it gets, in its order.
        size: rows of the whole.

    Attributes:
        size: rows of the whole.
        rows: the rows of all parts, one part after the other.
        cuts: where in `rows` each part lies.
        lengths: rows of each part.
        shape: (size,), the declared shape of a controller's port that pumps it.
        is_one_to_one: whether no row is named twice.

    >>> partition = Partition(([2, 0], [], [2]), size=3)
    >>> partition.rows.tolist(), partition.cuts
    ([2, 0, 2], (slice(0, 2, None), slice(2, 2, None), slice(2, 3, None)))

    Raises:
        GraphError: a part is no list of integers, or names a row that the whole has not.
    """

    __slots__ = ("_summations", "cuts", "is_one_to_one", "lengths", "rows", "shape", "size")

    def __init__(
        self, parts: Sequence[Int[np.ndarray, " rows"] | Sequence[int]], size: int
    ) -> None:
        arrays = [_indices(number, part) for number, part in enumerate(parts)]
        self.lengths = [len(part) for part in arrays]
        edges = [0, *accumulate(self.lengths)]
        self.size = size
        self.rows = np.concatenate(arrays) if arrays else np.zeros(0, np.intp)
        self.cuts = tuple(map(slice, edges[:-1], edges[1:]))
        self.shape = (size,)
        # Seen as unsigned, a negative number is the largest: one look finds both kinds of mistake.
        if edges[-1] and self.rows.view(np.uintp).max() >= size:
            lowest = int(self.rows.min())
            raise GraphError(
                f"Partition: rows must be from 0 to below {size}, the size of the whole, "
                f"got {lowest if lowest < 0 else self.rows.max()}"
            )
        is_short = edges[-1] <= size
        self.is_one_to_one = is_short and (not edges[-1] or int(np.bincount(self.rows).max()) == 1)
        self._summations: dict[Any, Any] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the indices."""
        return self.rows.nbytes

    def one_hot(self, dtype: np.dtype[Any]) -> np.ndarray:
        """The (size, rows) matrix whose product with the parts sums them by row of the whole."""
        matrix = self._summations.get(dtype)
        if matrix is None:
            matrix = np.zeros((self.size, len(self.rows)), dtype)
            matrix[self.rows, np.arange(len(self.rows))] = 1
            self._summations[dtype] = matrix
        return matrix

    def runs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(order, names, starts): `rows` in that order are runs of equal names."""
        runs = self._summations.get("runs")
        if runs is None:
            order = np.argsort(self.rows, kind="stable")
            names, starts = np.unique(self.rows[order], return_index=True)
            runs = self._summations["runs"] = (order, names, starts)
        return runs

    def __repr__(self) -> str:
        lengths = tuple(cut.stop - cut.start for cut in self.cuts)
        return f"Partition(parts of {lengths}, size={self.size})"


def _indices(number: int, part: Any) -> np.ndarray:
    array = np.asarray(part)
    if array.dtype == np.intp and array.ndim == 1:
        return array
    if not array.size:
        return np.zeros(0, np.intp)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise GraphError(
            f"Partition: part {number} must be a list of integers, "
            f"got {array.dtype} of shape {array.shape}"
        )
    return array.astype(np.intp, copy=False)
