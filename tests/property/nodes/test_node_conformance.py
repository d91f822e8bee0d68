"""What every node promises: derivatives, costs, shapes, and that it listens and sends as agreed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from covering import of_each

import ampsim.ir
import ampsim.nodes
from ampsim.errors import GraphError
from ampsim.ir import Direction, Node
from ampsim.ir.shapes import text

NO_NODES = {"Node", "CachingNode", "ParameterizedNode", "LossNode", "Controller"}
"""What nodes are made of, and where instances come from."""


def test_every_node_is_listed(listed):
    named = [getattr(home, name) for home in (ampsim.ir, ampsim.nodes) for name in home.__all__]
    kinds = {one.__name__ for one in named if isinstance(one, type) and issubclass(one, Node)}
    assert kinds - NO_NODES == {name.split(",")[0] for name in listed}
    assert all(type(case.make()).__name__ == name.split(",")[0] for name, case in listed.items())


def has_gradient(node: Node, message: Any) -> bool:
    """Numbers have one, except for the target of a loss."""
    return message.is_float and not (node.is_loss and message.port == 1)


@of_each("trial")
def test_input_gradient_is_the_slope(kit, trial):
    messages = trial.messages
    returned = trial.outcome(trial.node()).returned
    assert returned.keys() == {(m.port, m.state) for m in messages}
    for place, message in enumerate(messages):
        gradient = returned[message.port, message.state]
        if not has_gradient(trial.node(), message):
            assert gradient is None
            continue

        def evaluate(moved: np.ndarray, place: int = place) -> float:
            changed = messages[place]._replace(payload=moved)
            return trial.total(trial.node(), (*messages[:place], changed, *messages[place + 1 :]))

        np.testing.assert_allclose(gradient, kit.slope(message.payload, evaluate), atol=2e-8)


@of_each("learning")
def test_parameter_gradient_is_the_slope_and_adds_up_over_messages(kit, learning):
    node = learning.node()
    for _ in range(2):
        learning.outcome(node)
    assert (node.gradient_count, node.staleness_sum, node.instances) == (2, 0, {7})
    found = kit.slope(node.theta, lambda moved: learning.total(learning.node(moved)))
    np.testing.assert_allclose(node.take_gradient(), 2 * found, atol=1e-7)


@of_each("learning")
def test_taking_the_gradient_forgets_it(learning):
    node = learning.node()
    learning.outcome(node)
    first = node.take_gradient()
    learning.outcome(node)
    assert first.any()
    assert (node.take_gradient() == first).all()


@of_each("learning")
def test_gradient_meets_the_weights_of_the_moment_and_says_how_stale_it_is(learning):
    """After an update between forward and backward; old weights stay whole for who holds them."""
    node = learning.node()
    before, copy = node.theta, node.theta.copy()
    sent = learning.serve(node)
    node.adopt(node.theta * 0.5)
    node.updated()
    learning.send_back(node, map(learning.answer, sent))
    assert (node.staleness_sum, node.staleness_max, node.version) == (1, 1, 1)
    assert (before == copy).all()


def shapes_back(trial: Any, node: Node) -> list[tuple[int, ...]]:
    """Shapes of the gradients that come back; none come to a loss."""
    return [] if node.is_loss else [sent.payload.shape for sent in trial.serve(node)]


@of_each("trial")
def test_cost_is_that_of_appendix_c_whichever_message_comes_last(trial):
    node = trial.node()
    forward, backward, update = trial.flop
    for message in trial.messages:
        if message.port != node.uncharged_port:
            assert node.work(Direction.FORWARD, message.payload.shape).flop == forward
    for shape in shapes_back(trial, node):
        assert node.work(Direction.BACKWARD, shape).flop == backward
    assert node.work(Direction.UPDATE, None).flop == update
    assert node.work(Direction.BACKWARD, None).flop == 0


@of_each("trial")
def test_backward_without_input_gradients_costs_the_accumulation_alone(trial):
    node = trial.node()
    node.input_needs_gradient = (False,) * len(node.inputs)
    for shape in shapes_back(trial, node):
        accumulation = trial.flop[0] if node.is_parameterized else 0
        assert node.work(Direction.BACKWARD, shape).flop == accumulation


@of_each("learning")
def test_the_input_gradients_of_a_learning_node_cost_what_each_costs(learning):
    """2·k·width·d_out for the columns that an input has in the product; together, all of it."""
    node = learning.node()
    ports = range(len(node.inputs))
    (shape,) = shapes_back(learning, node)
    costs = []
    for needed in ports:
        node.input_needs_gradient = tuple(port == needed for port in ports)
        costs.append(node.work(Direction.BACKWARD, shape).flop - learning.flop[0])
    assert sum(costs) == learning.flop[1] - learning.flop[0]
    if len(ports) > 1:
        assert costs == [2 * shape[0] * width * node.d_out for width in node.widths]


@of_each("fussy")
def test_shapes_that_do_not_fit_are_named_with_their_node(fussy):
    node = fussy.node()
    with pytest.raises(GraphError, match=r"^node \(\w+\) expects .+, got ") as caught:
        node.check(fussy.wrong)
    assert node.describe() in str(caught.value)
    assert all(text(shape) in str(caught.value) for shape in fussy.wrong)


@of_each("returning")
def test_check_gives_the_shapes_of_what_leaves(returning):
    node = returning.node()
    shapes: list[Any] = [None] * len(node.inputs)
    for message in returning.messages:
        shapes[message.port] = message.payload.shape
    outputs = node.check(tuple(shapes))
    assert len(outputs) == len(node.outputs)
    for sent in returning.serve(node):
        declared, actual = outputs[sent.port], sent.payload.shape
        assert [d if isinstance(d, int) else a for d, a in zip(declared, actual, strict=True)] == [
            *actual
        ]


@of_each("returning")
def test_none_is_passed_back_as_none_and_counts_as_no_gradient(returning):
    node = returning.node()
    sent = [one._replace(payload=None) for one in returning.serve(node)]
    returned = returning.send_back(node, sent)
    assert returned == {(m.port, m.state): None for m in returning.messages}
    if node.is_parameterized:
        assert (node.gradient_count, node.staleness_sum, node.asks_update()) == (0, 0, False)


@of_each("returning")
def test_one_none_among_gradients_counts_as_zeros(returning):
    def returned(missing: int, void: Callable[[np.ndarray], Any]) -> Any:
        node = returning.node()
        answers = [returning.answer(one) for one in returning.serve(node)]
        answers[missing] = answers[missing]._replace(payload=void(answers[missing].payload))
        return returning.send_back(node, answers)

    count = len(returning.serve(returning.node()))
    for missing in range(count) if count > 1 else ():
        none, zeros = returned(missing, lambda _gradient: None), returned(missing, np.zeros_like)
        np.testing.assert_equal(none, zeros)


@pytest.mark.parametrize("unneeded", [0, 1])
@of_each("learning")
def test_an_input_without_need_gets_no_gradient_from_a_learning_node(learning, unneeded):
    """And the others get theirs; a single input has no other."""
    node = learning.node()
    unneeded = min(unneeded, len(node.inputs) - 1)
    every = learning.outcome(learning.node()).returned
    node.input_needs_gradient = tuple(port != unneeded for port in range(len(node.inputs)))
    found = learning.outcome(node).returned
    for (port, state), gradient in found.items():
        if port == unneeded:
            assert gradient is None
        else:
            np.testing.assert_allclose(gradient, every[port, state], rtol=1e-12)
