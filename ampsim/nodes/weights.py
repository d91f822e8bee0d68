"""Weights of nodes: their first values, and their transposes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

Start: TypeAlias = Callable[[np.random.Generator], np.ndarray]
"""Draws a first weight, in its own shape, from the run's stream for that node."""


FEW_ROWS: Final = 8  # measured: up to about these, nothing is faster than a view of Wᵀ
SMALL_WEIGHT: Final = 1 << 18  # chosen: larger ones cost more to copy than one product gains


class Transposed:
    """Wᵀ of one version of W, multiplied in the way that is fastest for the number of rows.

    OpenBLAS is slow where the right matrix is transposed (`tests/benchmark/bench_cells.py`). Of a
    small W, Wᵀ is copied once there are rows enough to pay for it: between about 8 and 100 rows a
    product then takes half as long. Of a large W, (W gᵀ)ᵀ is formed, which saves a tenth; its
    columns lie one after the other, which suits the products that follow.
    """

    __slots__ = ("_copy", "_weight")

    def __init__(self, weight: np.ndarray) -> None:
        self._weight = weight
        self._copy: np.ndarray | None = None

    def matrix(self, rows: int) -> np.ndarray:
        """Return Wᵀ (d_out, d_in) to multiply `rows` with; a view, if few or W large, or a copy."""
        if rows <= FEW_ROWS or self._weight.size > SMALL_WEIGHT:
            return self._weight.T
        if self._copy is None:
            self._copy = np.ascontiguousarray(self._weight.T)
        return self._copy

    def after(self, gradient: np.ndarray) -> np.ndarray:
        """Return g Wᵀ, for g of (rows, d_out)."""
        rows = len(gradient)
        if rows > FEW_ROWS and self._weight.size > SMALL_WEIGHT:
            return (self._weight @ gradient.T).T
        return gradient @ self.matrix(rows)
