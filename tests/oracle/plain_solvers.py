"""Plain loops of solvers on the linear problem; they share no code with what they check."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
from solver_cases import Points, batches_of, model, stacked

import ampsim

SHARES: Final = {0.1: (1, 10), 0.3: (3, 10), 0.625: (5, 8), 1.0: (1, 1)}
"""Shares of entries, and the same as fractions."""


class Problem(NamedTuple):
    """The linear model's data, and where it starts."""

    theta: np.ndarray
    batches: list[tuple[np.ndarray, np.ndarray]]

    def gradient(self, theta: np.ndarray, number: int) -> np.ndarray:
        """Of half the squared error, the mean over a batch's rows."""
        x, y = self.batches[number % len(self.batches)]
        full = np.hstack([x, np.ones((len(x), 1))])
        return full.T @ (full @ theta - y) / len(x)


def problem(made: ampsim.Model) -> Problem:
    """That of a model as it is."""
    return Problem(stacked(made), batches_of(made))


def drawn(seed: int, rows: int, batch: int, **options: Any) -> ampsim.Model:
    """A linear model on data of its own, from weights of its own."""
    random = np.random.default_rng(seed)
    x, y = random.normal(size=(rows, 3)), random.normal(size=(rows, 2))
    made = replace(
        model(rows, batch, **options), make_data=lambda _seed, _count: Points(x, y, batch)
    )
    start = {name: 0.5 * random.normal(size=one.shape) for name, one in made.parameters().items()}
    return made.set_parameters(start)


def async_loop(
    plain: Problem, compute_s: list[float], merge_s: float, until: int,
    rate_of: Callable[[float, int], float],
    *,
    sent_of: Callable[[int, np.ndarray], np.ndarray] = lambda _rank, gradient: gradient,
) -> tuple[np.ndarray, list[int]]:  # fmt: skip
    """Asynchronous SGD by a heap: weights, and the staleness of each merge.

    `rate_of` takes the place in time, in epochs, and the staleness; `sent_of` a rank and its
    gradient.
    """
    events: list[tuple[float, int, int, str]] = []
    order, deal, per_epoch = itertools.count(), itertools.count(), len(plain.batches)
    read: dict[int, tuple[np.ndarray, int, int]] = {}
    queue: list[int] = []
    theta, stale, is_busy = plain.theta, [], False

    def take(rank: int, now: float) -> None:
        read[rank] = (theta, len(stale), next(deal))
        heapq.heappush(events, (now + compute_s[rank], next(order), rank, "gradient"))

    for rank in range(len(compute_s)):
        take(rank, 0.0)
    while len(stale) < until:
        now, _order, rank, what = heapq.heappop(events)
        if what == "gradient":
            queue.append(rank)
        else:
            is_busy = False
            take(rank, now)
        if queue and not is_busy:
            served = queue.pop(0)
            seen, version, number = read[served]
            lag = len(stale) - version
            sent = sent_of(served, plain.gradient(seen, number))
            theta = theta - rate_of(number / per_epoch, lag) * sent
            stale.append(lag)
            is_busy = True
            heapq.heappush(events, (now + merge_s, next(order), served, "merged"))
    return theta, stale
