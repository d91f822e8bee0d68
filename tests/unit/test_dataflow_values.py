"""Values that operators take: elements of an array, places, truth values, feeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from ampsim import flow
from ampsim.errors import GraphError, OptionError, SimulationError


@pytest.fixture
def graph() -> Iterator[flow.FlowGraph]:
    with flow.FlowGraph() as graph:
        yield graph


@pytest.fixture
def x(graph: flow.FlowGraph) -> flow.Tensor:
    return flow.input("x", (2, 3))


UNLIKE: dict[str, Callable[[flow.TensorArray, flow.Tensor], object]] = {
    "another length": lambda array, x: array.write(1, flow.sum(x, axis=1)),
    "another type": lambda array, x: array.write(1, flow.cast(flow.sum(x, axis=0), "float32")),
    "other rows": lambda array, x: array.unstack(flow.transpose(x)),
    "as was said": lambda _array, x: flow.TensorArray(2, element_shape=(4,)).write(0, x),
}


@pytest.mark.parametrize("case", UNLIKE)
def test_elements_of_an_array_are_alike(x, case):
    """A gradient has the shape that is known of its element."""
    array = flow.TensorArray(2).write(0, flow.sum(x, axis=0))
    with pytest.raises(GraphError, match=r"^write: elements of this array are float64 of shape"):
        UNLIKE[case](array, x)


def test_a_place_below_0_is_none(graph):
    table = flow.variable("table.weight", np.ones((4, 2)))
    for asked in (
        flow.pick(flow.constant([1.0, 2.0]), np.array([-1])),
        flow.embedding("table", flow.constant([1, -1]), 4, 2),
        flow.scatter(np.ones((1, 2)), np.array([-1]), table),
    ):
        with pytest.raises(SimulationError, match="IndexError: index -1 is below 0"):
            flow.run(asked)


def test_a_group_is_a_truth_value(x):
    """It is taken by whatever takes one."""
    met = flow.group(x)
    asked = [flow.cast(met, "float64"), flow.where(met, x, -x), flow.reshape(met, (1,))]
    values = flow.run(asked, {"x": np.ones((2, 3))}).values
    assert [one.tolist() for one in values] == [1.0, [[1.0] * 3] * 2, [True]]


def test_a_feed_has_one_shape(x):
    with pytest.raises(OptionError, match=r"^feeds: input 'x' must have one shape, got \[\[1\]"):
        flow.run(x, {"x": [[1], [1, 2]]})
