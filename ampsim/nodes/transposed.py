"""Products with Wᵀ, on the way back through a product with W."""

from __future__ import annotations

from typing import Final

import numpy as np

FEW_ROWS: Final = 8  # measured: up to about these, a copy of Wᵀ gains nothing
SMALL_WEIGHT: Final = 1 << 18  # chosen: larger ones cost more to copy than one product gains


class Transposed:
    """Wᵀ of one version of W: a view, and a copy once there are rows enough to pay for it.

    Between about 8 and 100 rows, a product with the copy takes half as long as one with the view,
    and the copy takes less time than that saves (OpenBLAS; `tests/benchmark/bench_cells.py`).
    """

    __slots__ = ("_copy", "_view")

    def __init__(self, weight: np.ndarray) -> None:
        self._view = weight.T
        self._copy = None if weight.size <= SMALL_WEIGHT else self._view

    def after(self, gradient: np.ndarray) -> np.ndarray:
        """Return g Wᵀ, for g of (rows, d_out)."""
        if len(gradient) <= FEW_ROWS:
            return gradient @ self._view
        if self._copy is None:
            self._copy = np.ascontiguousarray(self._view)
        return gradient @ self._copy
