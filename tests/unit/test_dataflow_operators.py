"""Every operator that is listed: its shape rule, its work, its gradient, and `sleep` mode."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from operator_cases import RESOURCES, cases

from ampsim import flow
from ampsim.dataflow.graph import Tensor, apply, open_graph
from ampsim.dataflow.operator import OPERATORS, no_work
from ampsim.errors import GraphError, SimulationError
from ampsim.hardware import Cluster, Device
from ampsim.ir import Standin, standin
from ampsim.nodes import SoftmaxCrossEntropy

CASES = cases(1)
RNG = np.random.default_rng(0)


class One(NamedTuple):
    """State of a message."""

    instance: int


CAST = {"cast"}  # to single precision, whose differences are rough


def test_every_operator_has_a_case_or_a_resource():
    """Those of stacks and arrays run in tests of loops."""
    assert set(CASES) | RESOURCES == set(OPERATORS)
    assert not set(CASES) & RESOURCES


def built(name: str) -> tuple[list[Tensor], Tensor, dict[str, Any]]:
    values, attributes = CASES[name]
    feeds = {f"x{place}": np.asarray(value) for place, value in enumerate(values)}
    inputs = [flow.input(one, value.shape, value.dtype) for one, value in feeds.items()]
    return inputs, apply(name, *inputs, **attributes), feeds


@pytest.mark.parametrize("name", CASES)
def test_shape_and_type_are_as_the_rules_say(name):
    with flow.FlowGraph():
        inputs, y, feeds = built(name)
    value = flow.run(y, feeds).values[0]
    assert value.dtype == y.dtype
    told = (None,) * value.ndim if y.shape is None else y.shape
    assert all(wanted in (None, got) for wanted, got in zip(told, value.shape, strict=True))
    asleep = flow.run(y, feeds, mode="sleep").values[0]
    assert asleep.shape == value.shape
    if isinstance(asleep, Standin):
        assert y.is_float or any(one.is_float for one in inputs)
        assert asleep is standin(value.shape, value.itemsize)
    else:
        assert np.array_equal(asleep, value)


WHOLE = np.array([3, 1, 2])
OF_WHOLE_NUMBERS = {
    "divide": [WHOLE, np.array(2)], "exp": [WHOLE], "log": [WHOLE], "tanh": [WHOLE],
    "softmax": [WHOLE], "relu": [WHOLE], "square": [WHOLE], "sum": [WHOLE > 1],
    "floor_divide": [WHOLE, np.array(2)], "add": [WHOLE > 1, WHOLE > 2],
}  # fmt: skip


@pytest.mark.parametrize("name", OF_WHOLE_NUMBERS)
def test_the_type_of_what_is_made_of_whole_numbers_and_truth_values_is_numpys(name):
    """Fractions were called whole numbers: they cost nothing, and a loop let a variable change."""
    values = OF_WHOLE_NUMBERS[name]
    told = {"axis": None} if name == "sum" else {}
    with flow.FlowGraph():
        inputs = [flow.input(f"x{place}", one.shape, one.dtype) for place, one in enumerate(values)]
        y = apply(name, *inputs, **told)
    feeds = {f"x{place}": one for place, one in enumerate(values)}
    found = flow.run(y, feeds).values[0]
    assert found.dtype == y.dtype
    of_numpy = getattr(np, name, None)
    assert of_numpy is None or found.dtype == of_numpy(*values).dtype


@pytest.mark.parametrize("name", CASES)
def test_work_is_counted(name):
    values = [np.asarray(one) for one in CASES[name][0]]
    operator = OPERATORS[name]
    with flow.FlowGraph():
        _inputs, y, feeds = built(name)
    output = flow.run(y, feeds).values[0]
    work = operator.work([one.shape for one in values], output.shape, 8)
    assert work.flop == (2 * 3 * 4 * 3 if name == "matmul" else 0)
    assert (work.bytes > 0) == (operator.work is not no_work)
    assert work.operations >= 1


DIFFERENTIABLE = [name for name in CASES if OPERATORS[name].gradient and name not in CAST]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_equal_central_differences(name):
    with flow.FlowGraph():
        inputs, y, feeds = built(name)
        floats = [one for one in inputs if one.is_float]
        weights = open_graph().constant(np.cos(np.arange(24.0)))
        flat = flow.reshape(y, (y_size(y, feeds),))
        loss = flow.sum(flat * flow.cut(weights, 0, y_size(y, feeds), 0))
        slopes = flow.gradients(loss, floats)
    found = flow.run([loss, *slopes], feeds).values
    for one, slope in zip(floats, found[1:], strict=True):
        expected = differences(loss, feeds, one.node.name)
        expected = np.zeros(slope.shape) if name == "stop_gradient" else expected
        np.testing.assert_allclose(slope, expected, rtol=1e-6, atol=1e-7)


def y_size(y: Tensor, feeds: dict[str, Any]) -> int:
    return int(flow.run(y, feeds).values[0].size)


def differences(loss: Tensor, feeds: dict[str, Any], name: str, step: float = 1e-6) -> np.ndarray:
    base = np.asarray(feeds[name])
    slopes = np.zeros(base.shape)
    for place in np.ndindex(base.shape):
        sides = []
        for sign in (1, -1):
            moved = base.copy()
            moved[place] += sign * step
            sides.append(float(flow.run(loss, {**feeds, name: moved}).values[0]))
        slopes[place] = (sides[0] - sides[1]) / (2 * step)
    return slopes


def test_a_shape_that_is_told_is_charged_and_had_anew_in_each_iteration():
    """Rows added up in zeros as long as what grows: 2 numbers are read, k written."""
    with flow.FlowGraph():
        x = flow.input("x", (2,))
        body = lambda i, y, z: (  # noqa: E731  # as users write it
            i + 1, flow.concat([y, flow.cut(x, 0, 1, 0)], axis=0), flow.scatter(x, np.arange(2), y)
        )  # fmt: skip
        shapes = [(), (None,), (None,)]
        asked = flow.while_loop(lambda i, y, z: i < 3, body, (0, x, x), shapes=shapes)[2]
    device = Device(name="test", flop_per_s=1e9, memory_bandwidth_bytes_per_s=1e9)
    for mode in ("numeric", "sleep"):
        result = flow.run(
            asked, {"x": np.ones(2)}, cluster=Cluster(name="test", devices=(device,)), mode=mode
        )
        written = result.spans.query("node == 'scatter_to-1'")
        assert written["bytes"].tolist() == [8 * (2 + k) for k in (2, 3, 4)]
        assert result.values[0].shape == (4,)


@pytest.mark.parametrize("mode", ["numeric", "sleep"])
def test_an_array_says_how_many_places_it_has_once_all_is_written_that_comes_before(mode):
    """As many as asked for, as rows, or up to the last that was written; at any place first."""
    with flow.FlowGraph():
        x, n = flow.input("x", (None, 2)), flow.input("n", (), "int64")
        body = lambda i, a: (i + 1, a.write(n + 1 - i, flow.pick(x, i)))  # noqa: E731  # as users write it
        written = flow.while_loop(lambda i, a: i < 3, body, (0, flow.TensorArray(1)))[1]
        arrays = [flow.TensorArray(4), flow.TensorArray(n), flow.TensorArray().unstack(x), written]
        asked = [*(one.size() for one in arrays), written.read(3)]
    *sizes, row = flow.run(asked, {"x": np.arange(10.0).reshape(5, 2), "n": 2}, mode=mode).values
    assert [int(one) for one in sizes] == [4, 2, 5, 4]
    assert row.shape == (2,)
    assert mode == "sleep" or row.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [1, 7])
def test_the_gradient_of_a_loss_is_its_nodes_to_the_bit(rows, dtype):
    logits, label = RNG.normal(size=(rows, 40)).astype(dtype) * 3, RNG.integers(0, 40, rows)
    node = SoftmaxCrossEntropy("loss")
    node.evaluate(0, One(0), logits)
    evaluated = node.evaluate(1, One(0), label)
    with flow.FlowGraph():
        x = flow.input("x", (None, 40), dtype)
        loss = flow.softmax_cross_entropy(x, label)
        asked = [loss, *flow.gradients(loss, [x]), flow.count_right(x, label)]
    found = flow.run(asked, {"x": logits}).values
    assert evaluated is not None and evaluated.report is not None
    report = evaluated.report
    assert np.array_equal(found[1], evaluated.gradients[0][2])
    assert found[2] == report.correct
    rounding = 0.0 if dtype == "float64" else 1e-6  # the node sums in double precision
    assert found[0] == pytest.approx(report.loss_sum / rows, rel=rounding, abs=0)


def test_whole_numbers_are_cut_within_their_axis():
    """These cost nothing, so that nobody asks for the shape that they give."""
    with flow.FlowGraph():
        x = flow.input("x", (None,), "int64")
        with pytest.raises(GraphError, match=r"fit: -2 to -1 is not within axis 0$"):
            flow.cut(x, -2, -1, axis=0)
        with pytest.raises(SimulationError, match=r"ValueError: 0 to 5 is not within axis 0$"):
            flow.run(flow.cut(x, 0, 5, axis=0), {"x": [1, 2, 3]})


def test_a_loop_in_a_loop_has_its_gradient():
    """The handle of a stack lies on another one."""
    with flow.FlowGraph():
        x = flow.input("x", ())

        def cubed(n, y):
            return n + 1, flow.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * x), (0, y))[
                1
            ]

        y = flow.while_loop(lambda n, y: n < 2, cubed, (0, x))[1]
        asked = [y, *flow.gradients(y, [x])]
    assert flow.run(asked, {"x": 1.5}).values == pytest.approx([1.5**7, 7 * 1.5**6])
