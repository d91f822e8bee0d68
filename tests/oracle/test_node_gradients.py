"""A node's backward step is the derivative of its forward step, by central differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from ampsim.ir import Bcast, Cond, Isu, Node, ParameterizedNode, Phi
from ampsim.nodes import Concat, Embedding, Linear, ReLU, SoftmaxCrossEntropy, Ungroup

STEP = 1e-6


class State(NamedTuple):
    instance: int
    step: int


NOW = State(7, 0)
LARGE = 300  # so many rows that their sums are not made by a one-hot product


def at_step(state: State, step: int) -> State:
    return State(state.instance, step)


def later(state: State) -> State:
    return State(state.instance, state.step + 1)


def earlier(state: State) -> State:
    return State(state.instance, state.step - 1)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape)


def away_from_zero(*shape: int) -> np.ndarray:
    values = normal(*shape)
    return values + np.sign(values) * 0.1


def indices(count: int, *shape: int) -> np.ndarray:
    """Some rows several times, some never."""
    return np.random.default_rng(count).integers(0, count // 2, shape)


CASES: dict[str, tuple[Callable[[], Node], tuple[np.ndarray, ...]]] = {
    "Linear": (lambda: Linear("node", 4, 3), (normal(5, 4),)),
    "Linear, one row": (lambda: Linear("node", 4, 3), (normal(1, 4),)),
    "Embedding": (lambda: Embedding("node", 14, 3), (indices(14, 6, 5),)),
    "Embedding, large": (lambda: Embedding("node", LARGE, 3), (indices(LARGE, 40, 5),)),
    "ReLU": (lambda: ReLU("node"), (away_from_zero(5, 4),)),
    "Concat": (lambda: Concat("node", (2, 1, 3)), (normal(4, 2), normal(4, 1), normal(4, 3))),
    "Ungroup": (lambda: Ungroup("node", at_step), (normal(6, 3, 2),)),
    "Bcast": (lambda: Bcast("node", 3), (normal(4, 2),)),
    "Phi": (lambda: Phi("node", ("only",)), (normal(4, 2),)),
    "Cond": (lambda: Cond("node", lambda _state: "right", ("left", "right")), (normal(4, 2),)),
    "Isu": (lambda: Isu("node", later, earlier), (normal(4, 2),)),
}


def initialised(make: Callable[[], Node]) -> Node:
    node = make()
    if isinstance(node, ParameterizedNode):
        node.adopt(node.initialise(np.random.default_rng(1)))
    return node


def weights(port: int, state: State, shape: tuple[int, ...]) -> np.ndarray:
    """What a message out of `port` counts in the scalar that is differentiated."""
    return np.random.default_rng([port, state.step]).standard_normal(shape)


def forward(node: Node, inputs: tuple[np.ndarray, ...]) -> list[Any]:
    """All messages that leave, the inputs having arrived in reverse order."""
    ports = reversed(range(len(inputs)))
    return [send for port in ports for send in node.forward(port, NOW, inputs[port])]


def scalar(node: Node, inputs: tuple[np.ndarray, ...]) -> float:
    node.is_training = False
    sends = forward(node, inputs)
    return sum(float((weights(port, s, out.shape) * out).sum()) for port, s, out in sends)


def backward(node: Node, inputs: tuple[np.ndarray, ...]) -> dict[int, Any]:
    """The gradient of `scalar` for each input port; gradients come back in reverse order."""
    node.is_training = True
    found: dict[int, Any] = {}
    for port, state, out in reversed(forward(node, inputs)):
        for target, returned, gradient in node.backward(
            port, state, weights(port, state, out.shape)
        ):
            assert returned == NOW and target not in found
            found[target] = gradient
    assert not list(node.pending())
    assert sorted(found) == list(range(len(inputs)))
    return found


def difference(value: np.ndarray, evaluate: Callable[[np.ndarray], float]) -> np.ndarray:
    """Central differences, one element after the other."""
    slope = np.empty_like(value)
    for place in np.ndindex(value.shape):
        moved = value.copy()
        moved[place] = value[place] + STEP
        above = evaluate(moved)
        moved[place] = value[place] - STEP
        slope[place] = (above - evaluate(moved)) / (2 * STEP)
    return slope


@pytest.mark.parametrize("case", CASES)
def test_input_gradient_is_the_slope(case):
    make, inputs = CASES[case]
    node = initialised(make)
    for port, gradient in backward(node, inputs).items():
        if inputs[port].dtype.kind != "f":
            assert gradient is None
            continue

        def evaluate(moved: np.ndarray, port: int = port) -> float:
            return scalar(node, (*inputs[:port], moved, *inputs[port + 1 :]))

        np.testing.assert_allclose(gradient, difference(inputs[port], evaluate), atol=1e-8)


@pytest.mark.parametrize("case", [key for key in CASES if key.startswith(("Linear", "Embedding"))])
def test_parameter_gradient_is_the_slope_and_adds_up_over_messages(case):
    make, inputs = CASES[case]
    node = initialised(make)
    assert isinstance(node, ParameterizedNode)
    backward(node, inputs)
    backward(node, inputs)
    assert node.gradient_count == 2
    gradient = node.take_gradient()
    assert not node.take_gradient().any(), "taking the gradient forgets it"
    theta = node.theta

    def evaluate(moved: np.ndarray) -> float:
        node.adopt(moved)
        return scalar(node, inputs)

    np.testing.assert_allclose(gradient, 2 * difference(theta, evaluate), atol=1e-7)


def test_parameter_gradient_of_many_rows_is_that_of_all_of_them():
    """More rows than a Linear holds before it forms a partial product."""
    node = initialised(lambda: Linear("node", 2, 3))
    assert isinstance(node, ParameterizedNode)
    x, g = normal(20_000, 2), normal(20_000, 3)
    for i in range(20):
        part = slice(1000 * i, 1000 * (i + 1))
        node.forward(0, State(i, 0), x[part])
        node.backward(0, State(i, 0), g[part])
    expected = np.concatenate([(x.T @ g).reshape(-1), g.sum(axis=0)])
    np.testing.assert_allclose(node.take_gradient(), expected, rtol=1e-10)


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("label_first", [False, True])
def test_loss_gradient_is_the_slope_of_the_mean_loss(rows, label_first):
    logits, label = 3 * normal(rows, 4), np.arange(rows) % 4
    node = SoftmaxCrossEntropy("loss")

    def serve(prediction: np.ndarray) -> Any:
        messages = [(0, prediction), (1, label)]
        for port, payload in reversed(messages) if label_first else messages:
            evaluated = node.evaluate(port, NOW, payload)
        return evaluated

    def mean_loss(prediction: np.ndarray) -> float:
        report = serve(prediction).report
        return report.loss_sum / report.rows

    (port, state, gradient), to_label = serve(logits).gradients
    assert (port, state) == (0, NOW) and to_label == (1, NOW, None)
    np.testing.assert_allclose(gradient, difference(logits, mean_loss), atol=1e-8)


def test_loss_reports_what_the_formula_says():
    logits = np.array([[1.0, 2.0, 0.5], [800.0, 0.0, -800.0], [0.0, 0.0, 3.0]])
    label = np.array([1, 2, 2])
    node = SoftmaxCrossEntropy("loss")
    assert node.evaluate(1, NOW, label) is None
    evaluated = node.evaluate(0, NOW, logits)
    assert evaluated is not None and evaluated.report is not None
    report = evaluated.report
    first = np.log(np.exp(-1.0) + 1.0 + np.exp(-1.5))
    third = np.log(2 * np.exp(-3.0) + 1.0)
    assert report.loss_sum == pytest.approx(first + 1600.0 + third, rel=1e-14)
    assert (report.correct, report.rows) == (2, 3)
