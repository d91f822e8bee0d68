"""Every operator that is listed: its shape rule, its work, its gradient, and `sleep` mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ampsim import flow
from ampsim.dataflow.graph import Tensor, apply, open_graph
from ampsim.dataflow.operator import OPERATORS, no_work
from ampsim.dataflow.variable import DrawnRuns
from ampsim.hardware import Cluster, Device
from ampsim.ir import Standin, standin

RNG = np.random.default_rng(0)
MATRIX = RNG.normal(size=(3, 4)) + 3.0
LABEL = np.array([0, 3, 1])
SHAPE = {"static": None}
DRAWN = {"held": DrawnRuns("dice", np.array(0)), "draw": 1, "shape": (3, 4)}

CASES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "add": ([MATRIX, MATRIX[0]], {}),
    "subtract": ([MATRIX, MATRIX[:, :1]], {}),
    "multiply": ([MATRIX, MATRIX[0]], {}),
    "divide": ([MATRIX[0], MATRIX], {}),
    "negative": ([MATRIX], {}),
    "add_n": ([MATRIX, MATRIX[0], MATRIX], {}),
    "floor_divide": ([LABEL, 2], {}),
    "remainder": ([LABEL, 2], {}),
    **{name: ([LABEL, 1], {}) for name in ("less", "less_equal", "greater", "greater_equal")},
    **{name: ([LABEL, 3], {}) for name in ("equal", "not_equal")},
    **{name: ([LABEL > 0, LABEL > 1], {}) for name in ("logical_and", "logical_or")},
    "logical_not": ([LABEL > 0], {}),
    "where": ([MATRIX > 3, MATRIX, MATRIX[0]], {}),
    "argmax": ([MATRIX], {"axis": 0}),
    "random": ([7, 0], DRAWN),
    "integers": ([7, 0, 6], DRAWN),
    "numpy_function": (
        [MATRIX, LABEL],
        {"function": lambda x, n: x.sum(1) * n, "shape": (3,), "dtype": np.dtype(float)},
    ),
    **{
        name: ([MATRIX - 3.01], {})
        for name in ("relu", "tanh", "sigmoid", "exp", "square", "identity", "stop_gradient")
    },
    **{name: ([MATRIX, MATRIX], {}) for name in OPERATORS if name.endswith("h_gradient")},
    "relu_gradient": ([MATRIX, MATRIX], {}),
    "sigmoid_gradient": ([MATRIX, MATRIX], {}),
    "log": ([MATRIX], {}),
    "matmul": ([MATRIX, MATRIX.T], {}),
    "transpose": ([MATRIX], {}),
    "permute": ([MATRIX], {"axes": (1, 0)}),
    "shape_of": ([MATRIX], {}),
    "length": ([MATRIX], {"axis": 1}),
    "filled": ([np.array([2, 3])], {"value": 1.0, "dtype": np.dtype(float), **SHAPE}),
    "broadcast_to": ([MATRIX[0], np.array([3, 4])], SHAPE),
    "sum_to": ([MATRIX, np.array([3, 1])], SHAPE),
    "reshape_to": ([MATRIX, np.array([2, 6])], SHAPE),
    "sum": ([MATRIX], {"axis": 1}),
    "expand": ([MATRIX], {"axis": -1}),
    "concat": ([MATRIX, MATRIX[:, :2]], {"axis": 1}),
    "part_of": ([MATRIX, np.array([3, 1]), np.array([3, 3])], {"axis": 1, "place": 1, **SHAPE}),
    "cut": ([MATRIX], {"first": 1, "last": 3, "axis": 1}),
    "pad_to": ([MATRIX, np.array([3, 6])], {"first": 1, "axis": 1, **SHAPE}),
    "pick": ([MATRIX, np.array([2, 0, 2])], {}),
    "scatter_to": ([MATRIX, np.array([2, 0, 2]), np.array([5, 4])], SHAPE),
    "softmax": ([MATRIX], {}),
    "softmax_gradient": ([MATRIX / 10, MATRIX], {}),
    "top": ([MATRIX], {"count": 2}),
    "any": ([LABEL > 2], {}),
    "places": ([LABEL > 0], {}),
    "cast": ([MATRIX], {"dtype": "float32"}),
    "softmax_cross_entropy": ([MATRIX, LABEL], {}),
    "count_right": ([MATRIX, LABEL], {}),
    "softmax_cross_entropy_gradient": ([MATRIX, LABEL, 2.0], {}),
}
RESOURCES = {name for name, one in OPERATORS.items() if one.is_stateful}
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
    """Rows added up in zeros as long as what grows: (2 + 2 + 1) numbers are read, k written."""
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
        assert written["bytes"].tolist() == [8 * (5 + k) for k in (2, 3, 4)]
        assert result.values[0].shape == (4,)
