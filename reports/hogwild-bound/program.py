"""Equations 4 to 9 of Wongpanich, You and Demmel on sums whose constants are known exactly."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

import ampsim
from ampsim.data.arrays import ArrayBatch, pump_arrays
from ampsim.ir import Graph
from ampsim.nodes import Linear, SquaredError
from ampsim.optim import sgd
from ampsim.recipes.programs import Curves

TITLE = "The bound of Hogwild! and EA-wild on sparse and dense sums"
TEXT = """
Equations (4) to (9) of Wongpanich, You and Demmel (HPC Asia 2020), Section 3.3, restate the bound
of Hogwild! (Niu, Recht, Re and Wright, 2011). Here they are held to sums whose constants are
known exactly: f is the mean of (x_e w - x_e w*)^2 / 2 over edges e, without noise, all x_e of
length sqrt(d), and w starts at a distance of 1 from w*. In the **sparse** sum an edge is two
neighbours in a ring of d weights, so that omega = 2, delta = 2 / d and rho = 3 / d. In the
**dense** sums every edge has all weights, so that rho = delta = 1: once with x_e alike in all
directions (a Hadamard matrix), once with half of their squared length in one direction, as images
have that are not centred. In the first two L = c = 1; M, a bound on gradients, is d in all.
Epsilon is 0.05, a tenth of f at the start, and theta a half.

**The bound holds, and is never near.** At the rate of equation (8), with d = 8, the measured
steps are 0.38 of the bound of equation (9) without a lag, and 0.27 to 0.30 with one. Both grow
with the lag as the rate falls. Equation (8) has 4 tau^2 and equation (9) has 6 tau^2, as the
paper prints them.

**With the best of twelve rates for each lag, 32 workers are 23 times as fast as one on the sparse
sum, and 4 times on the dense sum with one direction.** That is the near-linear speed-up that the
paper expects of sparse sums, and its loss in a dense one. P workers of one speed make P steps in
the time of one, of weights P - 1 steps old; steps are medians of 15 orders of edges.

**What the bound does not see**: on the dense sum that is alike in all directions 32 workers are
20 times as fast, nearly as on the sparse one, although its rho and delta are those of the other
dense sum. It is not zeros that let workers go on without waiting, but that stale gradients seldom
point the same way. The bound itself promises a speed-up below 1 for two workers or more on each
of these sums (column `bound_speed_up`): as the paper says, d has to be far larger than P^4.

The table `in_ampsim` makes the same steps with `ampsim.Hogwild` on P equal devices and a server:
the order of edges is that of the loop, the staleness becomes P - 1, and f at the end is the
loop's. Not derived: the step from this proposition to EA-wild. The proposition has one vector of
weights; EA-wild has one for each worker and a spring, and the paper proves nothing of these.
"""
SMALL, LARGE = 8, 64
SUMS = ("sparse", "dense, alike", "dense, one direction")
BOUND_LAGS = {"sparse": (0, 1, 2, 4), "dense, alike": (0, 1)}
RANKS = (1, 2, 4, 8, 16, 32)
CHECKED = (1, 4, 16)
SEEDS = 15
RATES = 12
STEPS_MAX = 30_000
EPSILON, THETA = 0.05, 0.5
WITNESS = {
    "LARGE": 16, "BOUND_LAGS": {"sparse": (0, 1), "dense, alike": (0,)}, "RANKS": (1, 4),
    "CHECKED": (4,), "SEEDS": 3, "RATES": 4, "STEPS_MAX": 2_000,
}  # fmt: skip
CURVES = [
    Curves(
        "speed-up", "Speed-up of P workers, each lag at its best rate", "speed_up",
        x="workers", y="speed_up", by="sum", x_label="workers", y_label="speed-up",
        is_log_x=True, is_log_y=True,
    ),
    Curves(
        "bound", "Steps to the target at the rate of equation (8)", "bound", x="lag", y="steps",
        by="what", x_label="lag of the weights, in steps", y_label="steps", is_log_y=True,
    ),
]  # fmt: skip


@cache
def edges(kind: str, d: int) -> np.ndarray:
    """The rows x_e of a sum whose f_e is (x_e w - x_e w*)^2 / 2; all have the length sqrt(d).

    The mean of x_e x_e^T is the identity, but for the last kind, whose first direction has half of
    its trace.
    """
    if kind == "sparse":
        rows = np.zeros((2 * d, d))
        for e in range(2 * d):
            rows[e, e // 2], rows[e, (e // 2 + 1) % d] = 1, 1 - 2 * (e % 2)
        return rows * math.sqrt(d / 2)
    rows = np.ones((1, 1))
    while len(rows) < d:
        rows = np.block([[rows, rows], [rows, -rows]])
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (d, 1))
    if kind == "dense, alike":
        return rows * signs
    scale = np.full(d, math.sqrt(d / 2 / (d - 1)))
    scale[0] = math.sqrt(d / 2)
    turned = rows / math.sqrt(d)
    return (rows * signs * scale) @ turned


@dataclass(frozen=True)
class Constants:
    """What equations (5) to (9) ask of a sum, for weights no farther from the best than first."""

    omega: int
    delta: float
    rho: float
    c: float
    lipschitz: float
    gradient: float

    def growth(self, lag: int, factor: int) -> float:
        """By how much a lag divides the rate (factor 4) or multiplies the steps (factor 6)."""
        return 1 + 6 * self.rho * lag + factor * lag**2 * self.omega * math.sqrt(self.delta)

    def rate(self, lag: int) -> float:
        """Equation (8)."""
        below = 2 * self.lipschitz * self.gradient**2 * self.growth(lag, 4)
        return THETA * EPSILON * self.c / below

    def steps(self, lag: int) -> float:
        """Equation (9), for D_0 = 1."""
        logarithm = math.log(self.lipschitz / EPSILON)
        first = 2 * self.lipschitz * self.gradient**2 * logarithm / (self.c**2 * THETA * EPSILON)
        return first * self.growth(lag, 6)


def constants(kind: str, d: int) -> Constants:
    """Count edges; take eigenvalues; |G_e| = |x_e|^2 |w - w*| at most."""
    rows = edges(kind, d)
    touched = rows != 0
    meets = (touched.astype(int) @ touched.T.astype(int)) > 0
    curvature = np.linalg.eigvalsh(rows.T @ rows / len(rows))
    return Constants(
        omega=int(touched.sum(axis=1).max()),
        delta=float(touched.mean(axis=0).max()),
        rho=float(meets.mean(axis=1).max()),
        c=float(round(curvature[0], 12)),
        lipschitz=float(round(curvature[-1], 12)),
        gradient=float(d),
    )


def first_weights(d: int) -> np.ndarray:
    """At a distance of 1 from the best, which are zeros; the same in every run."""
    drawn = np.random.default_rng(1).normal(size=d)
    return drawn / np.linalg.norm(drawn)


def picks(count: int) -> np.ndarray:
    """The edge of each step of each seed, (steps, seeds), as a share of all edges."""
    return np.random.default_rng(2).random((STEPS_MAX, count))


def descend(
    kind: str, d: int, lag: int, rates: np.ndarray, shares: np.ndarray
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """The steps of all runs at once, and f before each eighth of them.

    w_(t+1) = w_t - rate G_e(w_max(0, t - lag)); a run whose f is above 1000 stays where it is.

    Args:
        kind: of the sum.
        d: how many weights it has.
        lag: tau.
        rates: of each run.
        shares: which edge each run takes, (steps, runs), from 0 to 1.
    """
    rows = edges(kind, d)
    curvature = rows.T @ rows / len(rows)
    w = np.tile(first_weights(d), (len(rates), 1))
    past = [w] * (lag + 1)
    for step, share in enumerate(shares):
        if step % 8 == 0:
            f = 0.5 * np.einsum("rd,rd->r", w @ curvature, w)
            yield step, f, w
            rates = np.where(f < 1e3, rates, 0.0)
        x = rows[(share * len(rows)).astype(int)]
        slot = step % (lag + 1)
        w = w - (rates * np.einsum("rd,rd->r", x, past[slot]))[:, None] * x
        past[slot] = w


def steps_to_target(
    kind: str, d: int, lag: int, rates: np.ndarray, shares: np.ndarray
) -> np.ndarray:
    """Steps after which f is at most `EPSILON`, to within eight; infinite where it never is."""
    found = np.full(len(rates), math.inf)
    for step, f, _w in descend(kind, d, lag, rates, shares):
        found[(f <= EPSILON) & (found == math.inf)] = step
        if not ((found == math.inf) & (f < 1e3)).any():
            break
    return found


def bound() -> pd.DataFrame:
    """Steps at the rate of equation (8), beside the bound of equation (9)."""
    rows: list[dict[str, Any]] = []
    for kind, lags in BOUND_LAGS.items():
        known = constants(kind, SMALL)
        for lag in lags:
            allowed = int(known.steps(lag))
            rate = np.array([known.rate(lag)])
            shares = np.random.default_rng(3).random((allowed, 1))
            needed = float(steps_to_target(kind, SMALL, lag, rate, shares)[0])
            facts = {
                "sum": kind, "d": SMALL, "omega": known.omega, "delta": known.delta,
                "rho": known.rho, "lag": lag, "rate": known.rate(lag),
            }  # fmt: skip
            rows.append({**facts, "what": f"{kind}: measured", "steps": needed})
            rows.append({**facts, "what": f"{kind}: bound", "steps": float(allowed)})
    return pd.DataFrame(rows)


@cache
def tuned(kind: str, lag: int) -> tuple[float, float]:
    """The best rate of those tried, and the median of its steps to the target."""
    rates = 2.0 ** (0.5 * np.arange(2, 2 - RATES, -1)) / LARGE
    shares = np.tile(picks(SEEDS), (1, RATES))
    found = steps_to_target(kind, LARGE, lag, np.repeat(rates, SEEDS), shares)
    medians = np.median(found.reshape(RATES, SEEDS), axis=1)
    best = int(np.argmin(medians))
    return float(rates[best]), float(medians[best])


def speed_up() -> pd.DataFrame:
    """P workers of one speed make P steps in the time of one, of weights P - 1 steps old."""
    rows: list[dict[str, Any]] = []
    for kind in SUMS:
        known = constants(kind, LARGE)
        _rate, alone = tuned(kind, 0)
        for workers in RANKS:
            rate, steps = tuned(kind, workers - 1)
            rows.append(
                {
                    "sum": kind,
                    "workers": workers,
                    "rate": rate,
                    "steps": steps,
                    "speed_up": workers * alone / steps,
                    "bound_speed_up": workers / known.growth(workers - 1, 6),
                }
            )
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class Ordered:
    """Edges one by one, in the order of the loop."""

    rows: np.ndarray
    name: str = "edges"
    description: str = "rows of a sum"

    def batches(self, split: str, *, epoch: int, seed: int) -> Iterator[ArrayBatch]:
        """Each by itself; the best weights are zeros, so that every target is 0."""
        for row in self.rows[: self.count(split)]:
            yield ArrayBatch((row[None, :], np.zeros((1, 1))))

    def count(self, split: str) -> int:
        """How many; one is enough to validate on."""
        return len(self.rows) if split == "train" else 1

    batch_count = count


def squares(d: int) -> Graph:
    """A row times the weights, without a bias, and the square of that."""
    graph = Graph("squares")
    x, target = graph.controller(x=("rows", d), target=("rows", 1))
    first = first_weights(d)[:, None]
    node = Linear("w", d, 1, start=lambda _generator: first, has_bias=False)
    graph.end(SquaredError("loss"), graph.add(node, x), target)
    return graph


def in_ampsim() -> pd.DataFrame:
    """The loop's last weights beside those of Hogwild! in ampsim, with the same edges in order."""
    rows: list[dict[str, Any]] = []
    for kind in SUMS:
        for ranks in CHECKED:
            rate, steps = tuned(kind, ranks - 1)
            count = 8 * int(steps // 8)
            shares = picks(SEEDS)[:, :1]
            f = next(
                f for step, f, _w in descend(kind, LARGE, ranks - 1, np.array([rate]), shares)
                if step == count
            )  # fmt: skip
            matrix = edges(kind, LARGE)
            taken = matrix[(shares[:count, 0] * len(matrix)).astype(int)]
            model = ampsim.Model(
                name="squares",
                config=None,
                make_graph=lambda: squares(LARGE),
                make_data=lambda _seed, _count, taken=taken: Ordered(taken),
                pump=pump_arrays,
                optimizer=sgd(rate / 2),  # the node's loss is the whole square
                dtype="float64",
                metric="error",
            )
            hosts = ampsim.load_cluster("tflops-1", workers=ranks + 1)
            result = ampsim.simulate(model, hosts, ampsim.Hogwild(ranks=ranks))
            w = result.model.parameters()["w.weight"][:, 0]
            rows.append(
                {
                    "sum": kind,
                    "ranks": ranks,
                    "steps": count,
                    "staleness_max": result.staleness_max,
                    "f_in_ampsim": float(0.5 * np.mean((matrix @ w) ** 2)),
                    "f_in_the_loop": float(f[0]),
                }
            )
    return pd.DataFrame(rows)


def tables() -> dict[str, pd.DataFrame]:
    """All three."""
    return {"bound": bound(), "speed_up": speed_up(), "in_ampsim": in_ampsim()}
