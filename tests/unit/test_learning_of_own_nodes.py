"""A model of one's own whose learning depends on more than its order is refused when tried out.

Runs of one digest share what they learned, and a digest is of who read which weights alone.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ampsim
from ampsim.data import ArrayDataset, pump_arrays
from ampsim.errors import GraphError
from ampsim.ir import Graph
from ampsim.nodes import Cond, Linear, Phi, ReLU, SoftmaxCrossEntropy
from ampsim.optim import sgd

COLUMNS = 40


class Ordered(Linear):
    """Adds its gradients one by one, in the order of their states."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.waiting: list[tuple[Any, np.ndarray]] = []

    def accumulate(self, state: Any, x: np.ndarray, gradient: np.ndarray) -> None:
        product = np.concatenate([(x.T @ gradient).reshape(-1), gradient.sum(axis=0)])
        self.waiting.append((state, product))

    def take_gradient(self) -> np.ndarray:
        waiting, self.waiting = self.in_order(), []
        return sum((one for _state, one in waiting), np.zeros_like(self.theta))

    def in_order(self) -> list[tuple[Any, np.ndarray]]:
        return sorted(self.waiting, key=lambda one: one[0])


class Arriving(Ordered):
    """Adds them as they come."""

    def in_order(self) -> list[tuple[Any, np.ndarray]]:
        return self.waiting


class Factor(ReLU):
    """Multiplies by a number that is no part of a message."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.count = 0

    def value(self, x: np.ndarray) -> np.ndarray:
        return super().value(x) * x.dtype.type(1 + self.number() / 8)

    def number(self) -> float:
        raise NotImplementedError


class Counting(Factor):
    def number(self) -> float:
        self.count += 1
        return self.count


class Timed(Factor):
    def number(self) -> float:
        return time.perf_counter() % 1


class Drawn(Factor):
    def number(self) -> float:
        return random.random()


def model_of(learner: type[Linear], light: type[ReLU]) -> ampsim.Model:
    chance = np.random.default_rng(0)
    points = chance.standard_normal((60, COLUMNS)).astype("float32")
    data = ArrayDataset(*[(points, np.arange(60) % 3)] * 2, batch=5)

    def graph() -> Graph:
        made = Graph("own")
        point, label = made.controller(point=("rows", COLUMNS), label=("rows",))
        row = made.add(Linear("first", COLUMNS, COLUMNS), point)
        row: Any = made.add(light("light"), made.add(learner("second", COLUMNS, COLUMNS), row))
        made.end(SoftmaxCrossEntropy("loss"), made.add(Linear("third", COLUMNS, 3), row), label)
        return made

    return ampsim.Model("own", None, graph, data.for_run, pump_arrays, sgd(0.1))


WRONG: dict[str, tuple[type[Linear], type[ReLU]]] = {
    "gradients are added as they come": (Arriving, ReLU),
    "messages are counted": (Linear, Counting),
    "a clock is read": (Linear, Timed),
    "the process draws numbers": (Linear, Drawn),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_learns_by_the_order_of_messages_is_refused_with_a_remedy(what):
    said = (
        r"^(first|second|third) \(\w+\) learns something else where messages come in another "
        r"order; add gradients in the order of their states, and read no clock, .*own-node.md\)$"
    )
    with pytest.raises(GraphError, match=said):
        ampsim.try_out(model_of(*WRONG[what]))


def test_gradients_that_are_added_in_the_order_of_their_states_pass():
    assert ampsim.try_out(model_of(Ordered, ReLU)).items == 5


def test_what_decides_by_values_shares_no_learning_and_is_not_asked(monkeypatch):
    monkeypatch.setattr(Arriving, "reads_values", True)
    assert ampsim.try_out(model_of(Arriving, ReLU)).mode == "numeric"


def test_the_refusal_is_of_what_a_digest_does_not_tell():
    """Two replicas meet in one node, in an order that their devices decide."""
    for learner, count in ((Ordered, 1), (Arriving, 2)):
        results = [
            ampsim.simulate(meeting(learner), cluster_of(rate), ampsim.Pipeline(12))
            for rate in (1e9, 1e12)
        ]
        learned = {
            b"".join(a.tobytes() for a in one.model.parameters().values()) for one in results
        }
        assert len({one.learning_digest for one in results}) == 1
        assert len(learned) == count


def cluster_of(rate: float) -> ampsim.Cluster:
    """Four devices, of which the second has a rate of its own."""
    one = ampsim.Device(name="one", flop_per_s=1e10)
    other = ampsim.Device(name="other", flop_per_s=rate)
    return ampsim.Cluster(name="some", devices=(one, other, one, one))


def meeting(learner: type[Linear]) -> ampsim.Model:
    """A model of two ways, of which the number of an instance chooses one, and one layer after."""
    model = model_of(learner, ReLU)

    def graph() -> Graph:
        made = Graph("own")
        point, label = made.controller(point=("rows", COLUMNS), label=("rows",))
        ways = made.branch(Cond("way", lambda state: "ab"[state[0] % 2], ["a", "b"]), point)
        ends = [made.add(Linear(f"way-{n}", COLUMNS, COLUMNS), way) for n, way in enumerate(ways)]
        row = made.add(
            learner("second", COLUMNS, COLUMNS), made.add(Phi("both", ["a", "b"]), *ends)
        )
        made.end(SoftmaxCrossEntropy("loss"), made.add(Linear("third", COLUMNS, 3), row), label)
        return made

    return replace(model, make_graph=graph)
