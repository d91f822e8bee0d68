"""Efficiency over rows and elements, fitted to products that were measured at scattered shapes.

A product takes its overhead and FLOP times the seconds of one, which are interpolated between the
points of a grid as `ampsim.hardware.surface` does. The logarithms of these are found by Gauss and
Newton's method: the sum of squared logarithms of fitted over measured seconds is least. Where no
product decides a value, it lies on the straight line through its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Final, NamedTuple

import numpy as np

from ampsim.hardware.surface import element_parts, row_parts

ROW_PLACES: Final = (2, 16)
"""Rows of the grid, beside the least and the most that were measured. Chosen: one row is a product
with a vector, which libraries do in another way; from 32 on they differ little."""

ELEMENT_PLACES: Final = (3_000, 30_000, 300_000)
"""Elements of the grid, beside the least and the most (chosen: a decade apart)."""

STIFFNESS: Final = 0.1
"""Weight of a bend of the surface beside that of a product (chosen: small; a test shows that it
does not move a surface that products decide)."""

COMPUTE_MIN: Final = 0.05
"""Least part of a product's time that is taken for arithmetic (chosen: keeps its rate finite)."""

ITERATIONS: Final = 50
STEP_MAX: Final = 1.0
"""Of a logarithm in one step (chosen: far away a derivative says little)."""


class Rated(NamedTuple):
    """A product: its shape, its FLOP, and how long it took, of which so much was overhead."""

    rows: int
    elements: int
    flop: int
    seconds: float
    overhead_s: float


class Grid(NamedTuple):
    """Rates on a grid, (rows, elements, FLOP per second), rows ascending, elements within them."""

    points: list[tuple[int, int, float]]

    def fractions(self, of_flop_per_s: float) -> list[tuple[int, int, float]]:
        """The same as fractions of a rate, in four digits, and at most all of it."""
        return [
            (rows, elements, round(min(rate / of_flop_per_s, 1.0), 4))
            for rows, elements, rate in self.points
        ]


def fit_grid(products: Sequence[Rated]) -> Grid:
    """Fit rates to products."""
    rows = _places([one.rows for one in products], ROW_PLACES)
    elements = _places([one.elements for one in products], ELEMENT_PLACES)
    parts = np.array([_spread(one, rows, elements) for one in products])
    flop, seconds, overhead_s = np.array([one[2:] for one in products], float).T
    bends = STIFFNESS * _bends(np.log(rows), np.log(elements))
    rates = flop / np.maximum(seconds - overhead_s, COMPUTE_MIN * seconds)
    logs = np.full(parts.shape[1], -math.log(float(np.median(rates))))
    for _ in range(ITERATIONS):
        compute_s = flop[:, None] * parts * np.exp(logs)
        fitted_s = overhead_s + compute_s.sum(axis=1)
        slopes = np.vstack([compute_s / fitted_s[:, None], bends])
        residuals = np.r_[np.log(fitted_s / seconds), bends @ logs]
        logs += np.clip(_solution(slopes, -residuals), -STEP_MAX, STEP_MAX)
    rated: list[float] = np.exp(-logs).tolist()
    places = product(rows, elements)
    return Grid([(*place, rate) for place, rate in zip(places, rated, strict=True)])


def _solution(matrix: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Least squares of a linear system."""
    return np.linalg.lstsq(matrix, values, rcond=None)[0]


def _spread(one: Rated, rows: list[int], elements: list[int]) -> np.ndarray:
    """The parts of a product's time that the points of the grid decide, flat."""
    by_rows, by_elements = np.zeros(len(rows)), np.zeros(len(elements))
    for row, part in row_parts(set(rows), one.rows):
        by_rows[rows.index(row)] = part
    for element, part in element_parts(set(elements), one.elements):
        by_elements[elements.index(element)] = part
    return np.outer(by_rows, by_elements).reshape(-1)


def _places(counts: Sequence[int], inner: Sequence[int]) -> list[int]:
    """Those of `inner` that lie between the least count and the most, and these two."""
    low, high = min(counts), max(counts)
    return sorted({low, high, *(place for place in inner if low < place < high)})


def _bends(rows: np.ndarray, elements: np.ndarray) -> np.ndarray:
    """A row for each three neighbours on the grid: how far the middle is off the line."""
    found: list[np.ndarray] = []
    for axis, places in enumerate((rows, elements)):
        for middle in range(1, len(places) - 1):
            low, at, high = places[middle - 1 : middle + 2]
            part = (at - low) / (high - low)
            for beside in range((elements, rows)[axis].size):
                bend = np.zeros((rows.size, elements.size))
                view = bend if axis == 0 else bend.T
                view[middle - 1 : middle + 2, beside] = (1 - part, -1.0, part)
                found.append(bend.reshape(-1))
    return np.array(found).reshape(-1, rows.size * elements.size)
