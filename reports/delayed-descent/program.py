"""Gradient descent with gradients that come late, on a quadratic: its bounds and its speed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

import ampsim
from ampsim.data import ArrayDataset, pump_arrays
from ampsim.errors import SimulationError
from ampsim.ir import Graph
from ampsim.nodes import Linear, SquaredError
from ampsim.optim import momentum, sgd
from ampsim.recipes.programs import Curves

TITLE = "Momentum and gradients that come late"
TEXT = """
On a quadratic everything that late gradients do can be written down, and a run can refute it.
Along an axis of curvature h, with a rate η, momentum m and gradients that are d updates late,

    v ← m v + h w(d updates ago),   w ← w - η v

has factors z that solve z^d (z - 1) (z - m) + η h z = 0. A run is stable while all |z| ≤ 1.
Plain, that is η h ≤ 2 sin(π / (2 (2d + 1))). With momentum it is 2 (1 + m) in time (d = 0), and
1 - m one update late, for then the product of both z is m + η h.

**Bounds** (table `bounds`). `rate` is the largest stable η h, from the eigenvalues of one update.
`by_amp` is what AMP does: one weight on one device, its loss on a slower one, and d + 1 in
flight, so that each gradient is d updates late; it was found by halving, with runs that learn,
and is within 1 % of `rate`. `moved` is `rate` over 1 - m, which is what one gradient moves a
weight by in all. **In time, momentum 0.9 may move 19 times as much as plain descent; one update
late, no more.** Later than that, it may move less. So the rate that is just stable in time is 38
times too high one update late; without momentum it is twice too high.

**Speed** (table `updates`: until the distance has fallen by a factor e, at the best rate, in the
slowest of twelve curvatures from 1/300 to 1). In time momentum 0.9 takes an eighth of the
updates. One update late it takes as many as plain descent, and later more. **All that momentum
gains on a badly conditioned problem is gone with one update of delay.** No noise is needed for
that. The best momentum of those tried (table `momenta`) is 0.8 in time, any one update late, and
below 0 from two updates on, where Mitliagkas, Zhang, Hadjis and Ré expect it ("Asynchrony begets
Momentum", 2016).

**Weights that are predicted** as AMP does it here (SpecTrain: d smoothed steps ahead, smoothed by
0.9) bear no larger rate and are no faster: what is smoothed comes late itself. What prediction
does to a network is in [staleness-momentum](../staleness-momentum/report.md).

**Is asynchrony itself a momentum?** (table `implied`). In that paper P ranks whose steps have no
memory make late gradients whose mean step is that of momentum 1 - 1/P, with a P-th of the rate.
Here ranks under Async SGD say by how much each gradient is late. Of 40 updates from weights at
rest the mean over a thousand starts is fitted with a momentum and a pull. Where steps vary much
(a coefficient of variation of 2) the momentum is `foretold` within 0.1. Where they do not vary
it is not: that of two ranks is the rate itself, 0.1 or 0.3 in place of 0.5, that of four rises
with the rate, and the fit misses up to 0.13 of a step (`missed`). **AMP's queues keep their
order, so that its delays are regular**: with four in flight, 97 of 100 gradients of a chain's
first layer are three updates late. The bounds above hold for it, and no momentum can be
subtracted from it.
"""
DELAYS = (0, 1, 2, 3, 4)
MOMENTA = (0.0, 0.9)
TRIED = (-0.6, -0.4, -0.2, 0.0, 0.4, 0.8, 0.9)
CONDITION = 300
SMOOTHING = 0.9  # of weight prediction: ampsim.model_parallel.stash
UPDATES, HALVINGS = 200, 9
RANKS, JITTERS, RATES, DRAWS = (2, 4), (0.0, 1.0, 2.0), (0.1, 0.3), 3000
WITNESS = {"DELAYS": (0, 1), "UPDATES": 60, "HALVINGS": 3, "RANKS": (2,), "DRAWS": 300}
CURVES = [
    Curves(
        "bounds", "The largest stable rate", "bounds", x="delay", y="moved", by="way",
        x_label="updates that a gradient is late", y_label="rate × curvature / (1 - momentum)",
        is_log_y=True,
    ),
    Curves(
        "updates", "Updates for a factor e, at the best rate", "updates", x="delay", y="updates",
        by="way", x_label="updates that a gradient is late", y_label="updates", is_log_y=True,
    ),
]  # fmt: skip


# --- what the recursion says


def step_matrix(strength: float, delay: int, kept: float, ahead: float = 0.0) -> np.ndarray:
    """One update as a matrix, on one axis of a quadratic.

    The state is the last `delay` + 1 weights, as many smoothed steps, the newest first, and the
    velocity times the rate.

    Args:
        strength: rate times curvature.
        delay: updates between the reading of the weights and the use of their gradient.
        kept: momentum.
        ahead: smoothed steps by which weights are predicted; 0 where the latest are read.
    """
    count = delay + 1
    velocity, weight, smooth = 2 * count, np.arange(count), np.arange(count, 2 * count)
    matrix = np.zeros((2 * count + 1, 2 * count + 1))
    matrix[velocity, [velocity, weight[-1], smooth[-1]]] = kept, strength, -strength * ahead
    matrix[weight[0], weight[0]] = 1.0
    matrix[weight[0]] -= matrix[velocity]
    smoothing = SMOOTHING if ahead else 0.0  # nobody reads what is smoothed otherwise
    matrix[smooth[0], smooth[0]] = smoothing
    matrix[smooth[0]] += (1 - smoothing) * matrix[velocity]
    matrix[weight[1:], weight[:-1]] = matrix[smooth[1:], smooth[:-1]] = 1.0
    return matrix


def factor(strength: float, delay: int, kept: float, ahead: float = 0.0) -> float:
    """What an update leaves of the distance in the end: the largest modulus of an eigenvalue."""
    return float(abs(np.linalg.eigvals(step_matrix(strength, delay, kept, ahead))).max())


@cache
def bound(delay: int, kept: float, ahead: float = 0.0) -> float:
    """The largest rate times curvature at which the distance does not grow."""
    low, high = 1e-4, 1e-4
    while factor(high, delay, kept, ahead) <= 1 + 1e-9:
        low, high = high, high * 1.01
    while high > low * (1 + 1e-9):
        middle = math.sqrt(low * high)
        is_stable = factor(middle, delay, kept, ahead) <= 1
        low, high = (middle, high) if is_stable else (low, middle)
    return low


def fastest(delay: int, kept: float, ahead: float = 0.0) -> tuple[float, float]:
    """Updates for a factor e at the best rate, and that rate, over curvatures up to 1."""
    curvatures = np.geomspace(1 / CONDITION, 1, 12)
    limit = bound(delay, kept, ahead)
    left = {
        rate: max(factor(rate * curvature, delay, kept, ahead) for curvature in curvatures)
        for rate in limit * np.linspace(0.02, 0.98, 49)
    }
    best = min(left, key=lambda rate: left[rate])
    return -1 / math.log(left[best]), float(best)


def ways() -> Iterator[tuple[str, int, float, float]]:
    """How gradients are used: its name, delay, momentum, and smoothed steps ahead."""
    for kept in MOMENTA:
        name = f"momentum {kept}" if kept else "plain"
        yield from ((name, delay, kept, 0.0) for delay in DELAYS)
        yield from ((f"{name}, predicted", delay, kept, delay) for delay in DELAYS if delay)


# --- the same by AMP


def quadratic(rate: float, kept: float, updates: int) -> ampsim.Model:
    """Half the square of one weight, which starts at 1: a layer of one weight, and 0 wanted."""

    def graph() -> Graph:
        made = Graph("quadratic")
        row, wanted = made.controller(row=("rows", 1), wanted=("rows", 1))
        layer = Linear("layer", 1, 1, start=lambda _random: np.ones((1, 1)), has_bias=False)
        made.end(SquaredError("loss"), made.add(layer, row), wanted)
        return made

    train = np.full((updates, 1), math.sqrt(0.5)), np.zeros((updates, 1))
    data = ArrayDataset(
        train=train, valid=tuple(one[:1] for one in train), batch=1, dtype="float64"
    )
    method = momentum(rate, kept) if kept else sgd(rate)
    return ampsim.Model(
        "quadratic", None, graph, data.for_run, pump_arrays, method, metric="error",
        dtype="float64",
    )  # fmt: skip


def trained(
    rate: float, delay: int, kept: float, *, is_ahead: bool = False, updates: int
) -> ampsim.Result:
    """AMP with so many updates of delay: the loss takes a second, all else next to nothing."""
    device = ampsim.load_cluster("tflops-1").devices[0]
    slow = device.model_copy(update={"step_overhead_s": 1.0})
    cluster = ampsim.Cluster(name="a layer and a loss", devices=(device, slow))
    remedy = "weight-prediction" if is_ahead else "none"
    schedule = ampsim.Amp(max_active_keys=delay + 1, min_update_interval=1, remedy=remedy)
    return ampsim.simulate(quadratic(rate, kept, updates), cluster, schedule)


def grows(rate: float, delay: int, kept: float, is_ahead: bool) -> bool:
    """Whether the losses of the second half of a run are more than those of the first."""

    def loss(updates: int) -> float:
        result = trained(rate, delay, kept, is_ahead=is_ahead, updates=updates)
        return float(result.epochs["loss"].iloc[0])

    try:
        half, whole = loss(UPDATES), loss(2 * UPDATES)
    except SimulationError:  # weights stopped being finite
        return True
    return 2 * whole - half > half


def found(delay: int, kept: float, is_ahead: bool) -> float:
    """The largest rate at which a run of AMP does not grow, by halving."""
    low, high = 0.01, 4.0
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if grows(middle, delay, kept, is_ahead) else (middle, high)
    return math.sqrt(low * high)


# --- momentum that asynchrony makes


def delays(ranks: int, jitter: float) -> list[int]:
    """By how many updates each gradient of so many asynchronous ranks is late; no start."""
    device = ampsim.load_cluster("tflops-1").devices[0]
    rank = device.model_copy(update={"step_overhead_s": 1.0, "jitter_cv": jitter})
    cluster = ampsim.Cluster(name="ranks", devices=(rank,) * ranks + (device,))
    model, solver = quadratic(0.1, 0.0, DRAWS), ampsim.AsyncSGD(ranks=ranks)
    result = ampsim.simulate(model, cluster, solver, mode="sleep")
    return [int(one) for one in result.updates["staleness"]][10 * ranks :]


def implied(late: list[int], rate: float, updates: int = 40) -> tuple[float, float, float]:
    """Momentum and pull that the mean of many runs has, and what these two miss of a step at most.

    The runs start at different places of the delays, from weights that were 1 for long. Fitted is
    the step of the mean, `momentum` times its last step less `pull` times the mean.
    """
    runs: list[list[float]] = []
    for start in range(0, len(late) - updates, 3):
        weights = [1.0]
        for place in range(updates):
            read = weights[max(place - late[start + place], 0)]
            weights.append(weights[-1] - rate * read)
        runs.append(weights)
    mean = np.mean(runs, axis=0)
    step = np.diff(mean)
    terms = np.stack([step[:-1], -mean[1:-1]], axis=1)
    fitted = np.linalg.lstsq(terms, step[1:], rcond=None)[0]
    missed = float(abs(terms @ fitted - step[1:]).max() / abs(step).max())
    return float(fitted[0]), float(fitted[1]), missed


def tables() -> dict[str, pd.DataFrame]:
    """Bounds of rates, updates at the best rate, and momentum that asynchrony makes."""
    bounds = [
        {
            "way": name,
            "delay": delay,
            "rate": bound(delay, kept, ahead),
            "by_amp": found(delay, kept, is_ahead=ahead > 0),
            "moved": bound(delay, kept, ahead) / (1 - kept),
        }
        for name, delay, kept, ahead in ways()
    ]
    updates: list[dict[str, Any]] = []
    for name, delay, kept, ahead in ways():
        count, rate = fastest(delay, kept, ahead)
        updates.append({"way": name, "delay": delay, "updates": count, "rate": rate})
    momenta = [
        {"delay": delay, "momentum": kept, "updates": fastest(delay, kept)[0]}
        for delay in DELAYS[:4]
        for kept in TRIED
    ]
    made: list[dict[str, Any]] = []
    for ranks in RANKS:
        for jitter in JITTERS:
            late = delays(ranks, jitter)
            for rate in RATES:
                fitted, pull, missed = implied(late, rate)
                made.append(
                    {
                        "ranks": ranks, "jitter": jitter, "rate": rate, "momentum": fitted,
                        "foretold": 1 - 1 / ranks, "pull": pull, "pull_foretold": rate / ranks,
                        "missed": missed,
                    }
                )  # fmt: skip
    return {
        "bounds": pd.DataFrame(bounds), "updates": pd.DataFrame(updates),
        "momenta": pd.DataFrame(momenta), "implied": pd.DataFrame(made),
    }  # fmt: skip
