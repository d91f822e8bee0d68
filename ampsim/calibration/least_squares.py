"""Least squares in few parameters: Gauss-Newton with damping, and intervals from the residuals.

Source: Levenberg (1944) and Marquardt (1963) for the damping; Seber and Wild, "Nonlinear
Regression" (1989), Section 5.1, for the intervals. One method for everybody, so that a fit does not
depend on which libraries are installed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

Residuals: TypeAlias = Callable[[Sequence[float]], Sequence[float] | np.ndarray]

STEP: Final = 0.02
"""Of finite differences, in logarithms (chosen: 2 %, far above the jumps of a changed order)."""

TOLERANCE: Final = 1e-4
"""The search ends where no logarithm moves by more (chosen: 0.01 %, far below any residual)."""

MOVE_MAX: Final = 1.0
"""Of a logarithm in one step (chosen: far away a derivative says little)."""

ITERATIONS_MAX: Final = 40
CONDITION_MAX: Final = 1e4
"""Of the Jacobian; chosen: beyond it a residual of 1 % moves a parameter by orders of magnitude."""

SLOPE_MIN: Final = 1e-6
"""Of a parameter; chosen: below it a parameter may change a thousandfold and no point shows it."""

COVERAGE: Final = 0.95
"""Of the intervals of parameters."""


class SingularFit(Exception):
    """The points do not decide the parameters.

    `place` is that of one on which no point depends; None where several cannot be told apart.
    """

    def __init__(self, place: int | None) -> None:
        super().__init__(place)
        self.place = place


@dataclass(frozen=True, slots=True)
class Solution:
    """The point of the least sum of squares."""

    at: list[float]  # the parameters
    residuals: list[float]  # there
    error: list[float]  # standard error of each; NaN of no more points than parameters
    freedom: int  # points less parameters
    is_least: bool  # whether nothing moved any more; else steps ran out

    @property
    def margins(self) -> list[float]:
        """The half width of each parameter's interval; NaN as its error is."""
        quantile = student_quantile((1 + COVERAGE) / 2, max(self.freedom, 1))
        return [quantile * one for one in self.error]


def least_squares(
    residuals: Residuals,
    start: Sequence[float],
    bounds: Sequence[tuple[float, float]],
    law: Sequence[int] | None = None,
    weights: Sequence[float] | None = None,
) -> Solution:
    """Find the parameters, between their bounds, with the least sum of squared residuals.

    Args:
        residuals: of the points, at given parameters.
        start: first parameters.
        bounds: least and most of each.
        law: weights with which the derivatives by the parameters add up to 1 for every point, where
            that is known; it saves a run of all points for each derivative matrix.
        weights: of points that matter more and are no more exact; residuals have their roots.

    Raises:
        SingularFit: the points do not decide the parameters.
    """
    low, high = np.array(bounds, float).T
    at: np.ndarray = np.array(start, float)
    found: np.ndarray = np.array(residuals(at.tolist()))
    damping, moved, slopes = 1e-3, math.inf, _slopes(residuals, at, found, law, high)
    if (fault := _fault(slopes)) is not None:
        raise fault
    for _ in range(ITERATIONS_MAX):
        normal = slopes.T @ slopes
        free = _free(at, low, high, slopes.T @ found)
        step = np.zeros_like(at)
        damped = normal + damping * np.diag(np.diag(normal))
        step[free] = -np.linalg.solve(damped[np.ix_(free, free)], (slopes.T @ found)[free])
        tried: np.ndarray = np.clip(at + np.clip(step, -MOVE_MAX, MOVE_MAX), low, high)
        moved = float(np.abs(tried - at).max())
        there: np.ndarray = np.array(residuals(tried.tolist()))
        is_better = bool(there @ there < found @ found)
        slopes_there = _slopes(residuals, tried, there, law, high) if is_better else slopes
        if is_better and _fault(slopes_there) is None:
            at, found, slopes, damping = tried, there, slopes_there, damping / 10
        else:
            damping *= 10
        if moved < TOLERANCE:
            break
    error = _errors(slopes, found, weights).tolist()
    return Solution(at.tolist(), found.tolist(), error, len(found) - len(at), moved < TOLERANCE)


def _errors(slopes: np.ndarray, found: np.ndarray, weights: Any) -> np.ndarray:
    """Standard errors of the parameters, where all points are equally exact."""
    freedom, inverse = len(found) - slopes.shape[1], np.linalg.inv(slopes.T @ slopes)
    if weights is not None and freedom > 0:
        roots = np.sqrt(weights)
        moves = inverse @ slopes.T * roots  # of the parameters, by an error of each point
        freedom += np.sum((slopes @ moves / roots[:, None]) ** 2) - slopes.shape[1]
        found, inverse = found / roots, moves @ moves.T
    return np.sqrt((found @ found / freedom if freedom > 0 else math.nan) * np.diag(inverse))


def student_quantile(probability: float, freedom: int) -> float:
    """The quantile of Student's t distribution, by bisection of its distribution function.

    >>> round(student_quantile(0.975, 2), 3), round(student_quantile(0.975, 6), 3)
    (4.303, 2.447)
    """
    low, high = 0.0, 1e6
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if student(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def student(t: float, freedom: int) -> float:
    """Student's distribution function at t >= 0.

    With t = √n tan θ, the density is that of cosⁿ⁻¹ θ.
    """
    end = math.atan(t / math.sqrt(freedom))
    angles = np.linspace(0.0, end, 2001)
    weights = np.ones(2001)
    weights[1:-1:2], weights[2:-1:2] = 4.0, 2.0
    integral = float(weights @ np.cos(angles) ** (freedom - 1)) * end / 2000 / 3
    scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    return 0.5 + integral * math.exp(scale) / math.sqrt(math.pi)


def _slopes(
    residuals: Residuals, at: np.ndarray, found: np.ndarray, law: Sequence[int] | None, most: Any
) -> np.ndarray:
    """Derivatives, (points, parameters): by differences, the first by the law if there is one."""
    slopes = np.zeros((len(found), len(at)))
    for place in reversed(range(len(at))):
        if law is not None and not place:
            slopes[:, 0] = law[0] * (1.0 - slopes[:, 1:] @ np.array(law[1:], float))
            if np.abs(slopes[:, 0]).max() > STEP:  # else it may be what the differences are off by
                break
        step = STEP if at[place] + STEP <= most[place] else -STEP  # what is beyond may not be
        beside = at + step * np.eye(len(at))[place]
        slopes[:, place] = (np.array(residuals(beside.tolist())) - found) / step
    return slopes


def _fault(slopes: np.ndarray) -> SingularFit | None:
    """Return the error to raise where the derivatives do not decide the parameters."""
    norms = np.linalg.norm(slopes, axis=0)
    if norms.min() <= SLOPE_MIN:
        return SingularFit(int(norms.argmin()))
    return SingularFit(None) if np.linalg.cond(slopes / norms) > CONDITION_MAX else None


def _free(at: np.ndarray, low: np.ndarray, high: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Places of the parameters that are not held by a bound."""
    held = ((at <= low) & (gradient > 0)) | ((at >= high) & (gradient < 0))
    return np.flatnonzero(~held)
