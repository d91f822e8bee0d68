"""Concat, Ungroup, ReLU, loss: joining, cutting, caches and refusals."""

import re
from typing import NamedTuple

import numpy as np
import pytest

from ampsim.errors import GraphError
from ampsim.ir import Direction, LossReport, Standin, Work
from ampsim.nodes import (
    Columns,
    Concat,
    Difference,
    Group,
    MaxPool,
    Product,
    ReLU,
    Replicate,
    Sigmoid,
    SoftmaxCrossEntropy,
    Split,
    SquaredError,
    Sum,
    Tanh,
    Ungroup,
)


class Step(NamedTuple):
    instance: int
    step: int = 0


def numbered(state, i):
    return state._replace(step=i)


def test_concat_waits_for_all_parts_of_a_state_in_any_order():
    concat = Concat("c", (1, 2))
    assert concat.forward(1, Step(0), np.array([[2.0, 3.0]])) == ()
    assert concat.forward(0, Step(1), np.array([[7.0]])) == ()
    assert list(concat.pending()) == [Step(0), Step(1)]
    ((_, state, joined),) = concat.forward(0, Step(0), np.array([[1.0]]))
    assert (state, joined.tolist()) == (Step(0), [[1.0, 2.0, 3.0]])
    assert list(concat.pending()) == [Step(1)]


def test_concat_that_gets_a_part_twice_says_so():
    concat = Concat("c", (1, 2))
    concat.forward(1, Step(0), np.ones((1, 2)))
    with pytest.raises(AssertionError, match=r"^port 1 got Step\(instance=0, step=0\) twice"):
        concat.forward(1, Step(0), np.ones((1, 2)))


def test_concat_cuts_the_gradient_where_it_joined():
    sends = Concat("c", (1, 2)).backward(0, Step(0), np.array([[1.0, 2.0, 3.0]]))
    assert [(port, part.tolist()) for port, _, part in sends] == [(0, [[1.0]]), (1, [[2.0, 3.0]])]
    assert [part for _, _, part in Concat("c", (1, 2)).backward(0, Step(0), None)] == [None] * 2


def test_concat_of_shapes_has_their_widths():
    concat = Concat("c", (1, 2))
    concat.is_abstract = True
    concat.forward(0, Step(0), Standin((5, 1), 8))
    ((_, _, joined),) = concat.forward(1, Step(0), Standin((5, 2), 8))
    assert (joined.shape, joined.itemsize) == ((5, 3), 8)
    parts = concat.backward(0, Step(0), joined)
    assert [part.shape for _, _, part in parts] == [(5, 1), (5, 2)]


@pytest.mark.parametrize("widths", [(), (3,), (3, 0)])
def test_concat_of_too_little_is_refused(widths):
    text = f"c: widths must be two or more numbers >= 1, got {widths}"
    with pytest.raises(GraphError, match=f"^{re.escape(text)}$"):
        Concat("c", widths)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_ungroup_groups_gradients_back_in_any_order(order):
    ungroup = Ungroup("u", numbered)
    payload = np.arange(6.0).reshape(3, 2)
    sends = ungroup.forward(0, Step(0), payload)
    assert [(s, part.tolist()) for _, s, part in sends] == [
        (Step(0, i), payload[i].tolist()) for i in range(3)
    ]
    for i in order[:-1]:
        assert ungroup.backward(0, Step(0, i), 10 * payload[i]) == ()
    assert list(ungroup.pending()) == [Step(0)]
    last = order[-1]
    ((_, state, grouped),) = ungroup.backward(0, Step(0, last), 10 * payload[last])
    assert (state, grouped.tolist()) == (Step(0), (10 * payload).tolist())
    assert list(ungroup.pending()) == []


def test_ungroup_returns_nothing_where_nothing_is_needed():
    ungroup = Ungroup("u", numbered)
    ungroup.forward(0, Step(0), np.zeros((2, 3)))
    ungroup.backward(0, Step(0, 1), None)
    assert ungroup.backward(0, Step(0, 0), None) == ((0, Step(0), None),)


def test_ungroup_of_a_shape_gives_shapes():
    ungroup = Ungroup("u", numbered)
    ungroup.is_abstract = True
    sends = ungroup.forward(0, Step(0), Standin((2, 3, 4), 8))
    assert [part.shape for _, _, part in sends] == [(3, 4)] * 2
    ungroup.backward(0, Step(0, 0), Standin((3, 4), 8))
    ((_, _, grouped),) = ungroup.backward(0, Step(0, 1), Standin((3, 4), 8))
    assert (grouped.shape, grouped.itemsize) == ((2, 3, 4), 8)


def test_relu_passes_gradients_only_where_it_passed_values():
    relu = ReLU("r")
    ((_, _, out),) = relu.forward(0, Step(0), np.array([-1.0, 0.0, 2.0]))
    assert out.tolist() == [0.0, 0.0, 2.0]
    assert list(relu.pending()) == [Step(0)]
    ((_, _, gradient),) = relu.backward(0, Step(0), np.array([5.0, 5.0, 5.0]))
    assert gradient.tolist() == [0.0, 0.0, 5.0]
    relu.forward(0, Step(1), np.ones(1))
    assert relu.backward(0, Step(1), None) == ((0, Step(1), None),)
    assert list(relu.pending()) == []


def test_loss_reports_once_prediction_and_label_are_there():
    loss = SoftmaxCrossEntropy("l")
    assert loss.evaluate(1, Step(0), np.array([1, 0])) is None
    evaluated = loss.evaluate(0, Step(0), np.log(np.array([[1.0, 3.0], [1.0, 4.0]])))
    assert evaluated is not None and evaluated.report is not None
    sends, report = evaluated.gradients, evaluated.report
    assert report.loss_sum == pytest.approx(-np.log(3 / 4) - np.log(1 / 5))
    assert (report.correct, report.rows) == (1, 2)
    assert sends[0][2] == pytest.approx(np.array([[0.25, -0.25], [-0.8, 0.8]]) / 2)
    assert sends[1] == (1, Step(0), None)


def test_loss_of_a_validation_pass_reports_and_sends_nothing():
    loss = SoftmaxCrossEntropy("l")
    loss.is_training = False
    loss.forward(1, Step(0), np.array([0]))
    assert loss.forward(0, Step(0), np.zeros((1, 2))) == ()
    loss.forward(1, Step(1), np.array([0]))
    evaluated = loss.evaluate(0, Step(1), np.zeros((1, 2)))
    assert evaluated is not None
    assert evaluated.report == LossReport(pytest.approx(np.log(2)), 1, 1)  # pyright: ignore[reportArgumentType]  # approximately


def test_loss_of_large_numbers_does_not_overflow():
    loss = SoftmaxCrossEntropy("l")
    loss.forward(1, Step(0), np.array([0]))
    evaluated = loss.evaluate(0, Step(0), np.array([[1e4, -1e4]]))
    assert evaluated is not None and evaluated.report == LossReport(0.0, 1, 1)


def test_nothing_comes_back_to_a_loss():
    with pytest.raises(AssertionError, match="a loss has no outputs"):
        SoftmaxCrossEntropy("l").backward(0, Step(0), None)


@pytest.mark.parametrize(
    ("node", "operations", "passes"),
    [(ReLU("n"), 1, 0), (Sigmoid("n"), 4, 8), (SoftmaxCrossEntropy("n"), 17, 12)],
)
def test_light_nodes_charge_bytes_and_operations_and_no_flop(node, operations, passes):
    passed = passes * 4 * 15  # 0 where a pass over the bytes is all
    expected = Work(0, 2 * 4 * 15, operations, pass_bytes=passed, functions=15)
    assert node.work(Direction.FORWARD, (5, 3)) == expected
    assert node.work(Direction.FORWARD, None) == Work(0, 0)


def test_a_loss_of_one_row_takes_fewer_operations():
    work = SoftmaxCrossEntropy("n").work(Direction.FORWARD, (1, 3))
    assert (work.bytes, work.operations) == (2 * 4 * 3, 10)


@pytest.mark.parametrize(
    ("node", "forward", "backward"),
    [(ReLU("n"), 2, 5), (Tanh("n"), 2, 7), (Sigmoid("n"), 8, 8)],
)
def test_passes_are_those_of_the_operations_one_by_one(node, forward, backward):
    """ReLU back: y > 0, and the gradient times that, cast. Tanh back: y y, 1 - y y, times g."""
    for direction, payloads in ((Direction.FORWARD, forward), (Direction.BACKWARD, backward)):
        work = node.work(direction, (5, 3))
        assert (work.pass_bytes or work.bytes) == payloads * 4 * 15
        assert work.functions == (15 if direction is Direction.FORWARD else 0)


@pytest.mark.parametrize(("element_bytes", "passes"), [(4, 3 + 3 + 4 + 4 + 2 + 2), (8, 10)])
def test_a_squared_error_sums_up_in_double_precision(element_bytes, passes):
    """A difference, it in double, that times itself and its size, their sum; the gradient."""
    node = SquaredError("n")
    node.element_bytes = element_bytes
    assert node.work(Direction.FORWARD, (5, 3)).pass_bytes == passes * element_bytes * 15


def test_a_pool_passes_over_its_windows_once_for_each_pixel():
    """Of 4 pixels: one copied; three compared, copied where larger, noted. Back: 4 products."""
    node = MaxPool("n", 2)
    images, windows = 4 * 2 * 3 * 8 * 8, 4 * 2 * 3 * 4 * 4
    forward = node.work(Direction.FORWARD, (2, 3, 8, 8))
    backward = node.work(Direction.BACKWARD, (2, 3, 8, 8))
    assert forward.pass_bytes == (2 + 3 * 5) * windows
    assert backward.pass_bytes == 4 * 3 * windows + images


@pytest.mark.parametrize(
    ("node", "of_views"),
    [
        (Ungroup("n", numbered), Direction.FORWARD),
        (Replicate("n", numbered, lambda _state: 2), Direction.FORWARD),
        (Split("n", (1, 2)), Direction.FORWARD),
        (Columns("n", 3, 0, 3), Direction.FORWARD),
        (Concat("n", (1, 2)), Direction.BACKWARD),
        (Group("n", lambda state: (state, 0, 1)), Direction.BACKWARD),
    ],
)
def test_views_move_no_bytes_and_what_joins_them_does(node, of_views):
    back = Direction.BACKWARD if of_views is Direction.FORWARD else Direction.FORWARD
    assert node.work(of_views, (5, 3)) == Work()
    assert node.work(back, (5, 3)).bytes == 2 * 4 * 15


def test_concat_charges_for_the_whole_of_what_it_joins():
    assert Concat("c", (1, 2)).work(Direction.FORWARD, (5, 1)) == Work(0, 2 * 4 * 15)


SINGLE = 4 * 2 * 3  # bytes of a payload of 2 x 3


@pytest.mark.parametrize(
    ("node", "forward", "backward"),
    [
        # forward reads all operands and writes one; backward is a pass-through, a product for each
        # input, or one negative
        (Sum("s", 3), Work(0, 4 * SINGLE, 2, pass_bytes=6 * SINGLE), Work(0, 0, 1)),
        (Product("p"), Work(0, 3 * SINGLE, 1), Work(0, 6 * SINGLE, 2)),
        (
            Product("p", 3),
            Work(0, 4 * SINGLE, 2, pass_bytes=6 * SINGLE),
            Work(0, 12 * SINGLE, 6, pass_bytes=18 * SINGLE),
        ),
        (Difference("d"), Work(0, 3 * SINGLE, 1), Work(0, 2 * SINGLE, 1)),
    ],
)
def test_arithmetic_is_charged_for_the_operations_that_it_does(node, forward, backward):
    assert node.work(Direction.FORWARD, (2, 3)) == forward
    assert node.work(Direction.BACKWARD, (2, 3)) == backward
    assert node.work(Direction.BACKWARD, None) == Work()


def test_a_product_is_charged_for_the_gradients_that_are_needed_only():
    product = Product("p")
    product.input_needs_gradient = (True, False)
    assert product.work(Direction.BACKWARD, (2, 3)) == Work(0, 3 * SINGLE, 1)
    product.input_needs_gradient = (False, False)
    assert product.work(Direction.BACKWARD, (2, 3)) == Work()
