"""What tests of solvers share: a linear model in float64, data of any size, and clusters."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

import ampsim
from ampsim.data_parallel import SOLVERS, Sparsified
from ampsim.hardware import Cluster, Device, Link
from ampsim.hardware.topology import Route
from ampsim.ir import Graph
from ampsim.nodes import Linear, SquaredError
from ampsim.optim import OPTIMIZERS

FREE = Link()
COMPRESSED = " compressed"
CASES = [*SOLVERS, *(one + COMPRESSED for one in SOLVERS if issubclass(SOLVERS[one], Sparsified))]
"""Every solver as it is, and where gradients may be sent in part, with three entries of ten."""


class Item(NamedTuple):
    """State of a message."""

    instance: int


@dataclass(frozen=True)
class Rows:
    """A batch."""

    x: np.ndarray
    y: np.ndarray

    @property
    def rows(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Points:
    """Rows of a linear problem, cut into batches in their order."""

    x: np.ndarray
    y: np.ndarray
    batch: int
    name: str = "points"
    description: str = "a linear problem"

    def batches(self, split: str, *, epoch: int, seed: int) -> Iterator[Rows]:
        count = len(self.x) if split == "train" else min(2, len(self.x))
        for start in range(0, count, self.batch):
            part = slice(start, min(start + self.batch, count))
            yield Rows(self.x[part], self.y[part])

    def count(self, split: str) -> int:
        return len(self.x) if split == "train" else min(2, len(self.x))

    def batch_count(self, split: str) -> int:
        return -(-self.count(split) // self.batch)


def graph(width: int = 3, outputs: int = 2, layers: int = 1) -> Graph:
    made = Graph("linear")
    wire, target = made.controller(x=("rows", width), y=("rows", outputs))
    for layer in range(1, layers):
        wire = made.add(Linear(f"linear-{layer}", width, width), wire)
    made.end(
        SquaredError("loss"), made.add(Linear(f"linear-{layers}", width, outputs), wire), target
    )
    return made


def model(
    rows: int,
    batch: int,
    *,
    optimizer: str = "sgd",
    rate: float = 0.05,
    dtype: str = "float64",
    layers: int = 1,
) -> ampsim.Model:
    """A linear model on so many rows, in batches of so many."""
    random = np.random.default_rng(7)
    x = random.normal(size=(rows, 3)).astype(dtype)
    y = (x @ random.normal(size=(3, 2)) + 0.1 * random.normal(size=(rows, 2))).astype(dtype)
    return ampsim.Model(
        name="linear",
        config=None,
        make_graph=lambda: graph(layers=layers),
        make_data=lambda _seed, _count: Points(x, y, batch),
        pump=lambda instance, one: [("x", Item(instance), one.x), ("y", Item(instance), one.y)],
        optimizer=OPTIMIZERS[optimizer](rate),
        dtype=dtype,
        metric="error",
    )


def cluster(
    speeds: list[float], *, link: Link = FREE, jitter_cv: float = 0.0, **more: Any
) -> Cluster:
    """A worker of each speed, in FLOP per second; links to and from the host are free."""
    devices = tuple(
        Device(name=f"d{index}", flop_per_s=speed, jitter_cv=jitter_cv)
        for index, speed in enumerate(speeds)
    )
    count = len(speeds)
    links: tuple[Route, ...] = ()
    if not link.is_free:
        ends = [(s, t) for s in range(count) for t in range(count) if s != t]
        links = tuple(Route(source=s, target=t, link=link) for s, t in ends)
    return Cluster(name="test", devices=devices, link=FREE, links=links, **more)


def solver(name: str, **options: Any) -> Any:
    """A solver by name, as of `CASES`, with those options that it takes."""
    kind = SOLVERS[name.removesuffix(COMPRESSED)]
    if name.endswith(COMPRESSED):
        options = {"compression": 0.3, **options}
    taken = {key: value for key, value in options.items() if key in kind.__dataclass_fields__}
    return kind(**taken)


def draw_exponential(monkeypatch: Any, turns: dict[float, tuple[int, ...]]) -> None:
    """Make times of steps exponential, or nothing, in turn; which turns, the jitter's cv says."""

    def drawn(random: np.random.Generator, cv: float) -> Iterator[float]:
        for is_drawn in itertools.cycle(turns[cv]):
            yield float(random.exponential()) if is_drawn else 0.0

    monkeypatch.setattr("ampsim.machine.pace.lognormal", drawn)


def memoryless(ranks: int, merge_speed: float, merge_cv: float) -> Cluster:
    """Ranks whose forward steps take exponential times, their backward steps none."""
    hosts = cluster([1e8] * ranks + [merge_speed])
    cvs = [0.5] * ranks + [merge_cv]
    devices = [
        one.model_copy(update={"jitter_cv": cv}) for one, cv in zip(hosts.devices, cvs, strict=True)
    ]
    return hosts.model_copy(update={"devices": tuple(devices)})


def quadratic(rows: int, rate: float) -> ampsim.Model:
    """A linear model whose batches are all the same, so that it learns a quadratic bowl."""
    x = np.tile([1.0, 0.0, 0.0], (rows, 1))
    made = model(rows, 1, rate=rate)
    return replace(made, make_data=lambda _seed, _count: Points(x, np.zeros((rows, 2)), 1))


def residual(theta: np.ndarray) -> float:
    """Where in the bowl the weights are: the first output; 3 x 2 weights, 2 biases."""
    return float(theta[0] + theta[6])


def watched(kind: type[Any], **options: Any) -> tuple[Any, list[tuple[np.ndarray, np.ndarray]]]:
    """A solver, and a list that takes the centre and the parcel of each of its merges."""
    seen: list[tuple[np.ndarray, np.ndarray]] = []

    class Watched(kind):
        def merge(self, centre: Any, parcel: Any, pull: float, step: Any) -> Any:
            seen.append((centre.copy(), parcel.copy()))
            return super().merge(centre, parcel, pull, step)

    return Watched(**options), seen


def weights(result: ampsim.Result) -> np.ndarray:
    """All parameters in one vector."""
    return np.concatenate([value.ravel() for value in result.model.parameters().values()])


def stacked(made: ampsim.Model) -> np.ndarray:
    """The parameters of the linear model: weights, and the bias as the last row."""
    parts = made.parameters()
    return np.vstack([parts["linear-1.weight"], parts["linear-1.bias"]])


def batches_of(made: ampsim.Model) -> list[tuple[np.ndarray, np.ndarray]]:
    """Its training batches, in their order."""
    data: Any = made.make_data(0, None)
    return [(one.x, one.y) for one in data.batches("train", epoch=0, seed=0)]


def require_whole_path(result: ampsim.Result) -> None:
    """The critical path leads from time zero to the makespan, without a gap."""
    path = result.critical_path
    assert path["start_s"].iloc[0] == 0
    assert path["end_s"].iloc[-1] == result.makespan_s
    assert (path["start_s"].iloc[1:].to_numpy() == path["end_s"].iloc[:-1].to_numpy()).all()


def require_one_step_at_a_time(result: ampsim.Result) -> None:
    """No device does two steps at once."""
    for _worker, spans in result.spans[result.spans["worker"] >= 0].groupby("worker"):
        busy = spans[spans["end_s"] > spans["start_s"]].sort_values("start_s")
        assert (busy["start_s"].to_numpy()[1:] >= busy["end_s"].to_numpy()[:-1] - 1e-17).all()


__all__ = [
    "CASES", "FREE", "batches_of", "cluster", "draw_exponential", "graph", "memoryless", "model",
    "quadratic", "replace", "require_one_step_at_a_time", "require_whole_path", "residual",
    "solver", "stacked", "watched", "weights",
]  # fmt: skip
