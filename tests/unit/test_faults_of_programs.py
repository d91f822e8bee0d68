"""Faults of a program of one's own are one line that says which of its functions, and where."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ampsim
from ampsim import flow
from ampsim.errors import AmpsimError, GraphError, OptionError, SimulationError

PLACE = r" \(.*test_faults_of_programs\.py, line \d+\)$"
MODEL = ampsim.load_model("mlp", data="synthetic", hidden=4)


def with_program(**faults: Any) -> ampsim.Model:
    return replace(MODEL, make_program=lambda: replace(MODEL.program, **faults))


def raising(*_: Any) -> Any:
    raise ZeroDivisionError("so")


@pytest.mark.parametrize("way", [ampsim.try_out, lambda model: run(model)], ids=["try_out", "run"])
@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ({"build": raising}, f"^build of a program failed: ZeroDivisionError: so{PLACE}"),
        ({"build": lambda: None}, "^build of a program must return a flow.Objective, got None$"),
        ({"train": raising}, f"^train of a program failed: ZeroDivisionError: so{PLACE}"),
        ({"train": lambda step: None}, "^train of a program must return a flow.Objective, got"),
        ({"feed": raising}, f"^feed of a program failed: ZeroDivisionError: so{PLACE}"),
        (
            {"feed": lambda batch: {"x": np.ma.masked_array(np.zeros(2), [True, False])}},
            "^feed of a program: input 'x' must have a number at every place, got a masked",
        ),
        ({"feed": lambda batch: None}, "^feed of a program must return values by .*, got None$"),
    ],
)  # fmt: skip
def test_what_a_function_raises_or_forgets_is_told(faults, message, way):
    with pytest.raises(AmpsimError, match=message):
        way(with_program(**faults))


def run(model):
    ampsim.simulate(model, ampsim.load_cluster("tflops-1", workers=1), "dataflow", instances=100)


def test_more_right_than_there_are_rows_are_refused():
    def build():
        found: Any = MODEL.program.build()
        return replace(found, correct=found.correct + 1000)

    message = r"^the Objective of a program .*: expected 0 to 100 rows that are right, got 10\d\d$"
    with pytest.raises(AmpsimError, match=message):
        run(with_program(build=build))


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((2,), "nope", r"^input 'x' must be numbers or truth values, got nope$"),
        ((2,), "complex64", r"^input 'x' must be numbers or truth values, got complex64$"),
        ((-4,), "float32", r"^input 'x' must have extents >= 0, .* got \(-4,\)$"),
    ],
)
def test_an_input_of_no_type_or_extent_is_refused(shape, dtype, message):
    with flow.FlowGraph(), pytest.raises(OptionError, match=message):
        flow.input("x", shape, dtype)


WRONG: dict[str, Callable[[Any], object]] = {
    r"shape\[0\] must be a whole number, got 'a'": lambda x: flow.variable("v", shape=("a",)),  # pyright: ignore[reportArgumentType]  # that is the test
    r"shape\[1\] must be a whole number, got 'a'": lambda x: flow.linear("l", x, "a"),  # pyright: ignore[reportArgumentType]  # likewise
    r"shape\[0\] must be a whole number, got None": lambda x: flow.Generator("g").random((None,)),  # pyright: ignore[reportArgumentType]  # likewise
    "variable 'v' must be numbers or truth values, got nope": lambda x: flow.variable(
        "v", shape=(1,), dtype="nope"
    ),
    "array must be numbers or truth values, got 0.5": lambda x: flow.TensorArray(1, dtype=0.5),
    "a constant must be numbers .* got 1000+": lambda x: x / 10**400,
    "a constant must be numbers": lambda x: flow.reshape(x, (2**63, -1)),
    "a constant must be numbers or": lambda x: flow.zeros((10**400, 1)),
    "a constant must be numbers or truth values, got nope": lambda x: flow.constant(1, "nope"),
    "a constant of int64 must hold its value, got 1.5": lambda x: flow.constant(1.5, "int64"),
    "a constant of float32 must .* got None; give numbers that it": lambda x: flow.constant(
        None, "float32"
    ),
    "a constant of float32 must .* got 1e.300; give numbers that it": lambda x: flow.constant(
        1e300, "float32"
    ),
    "variable 'v' must be within float32, got 1e.300": lambda x: flow.variable(
        "v", 1e300, dtype="float32"
    ),
    r"variable 'v' must have shape \(3,\), got \(2,\)": lambda x: flow.variable("v", [1, 2], (3,)),
    r"variable 'v' must be int64, got \[1.5\]": lambda x: flow.variable("v", [1.5], dtype="int64"),
    "placement of sum-1 must be a whole number or text, got None": lambda x: flow.run(
        flow.sum(x), {"x": np.ones((2, 3))}, placement={"sum-1": None}  # pyright: ignore[reportArgumentType]  # likewise
    ),
}  # fmt: skip
"""What is no type, length or device, by what is said of it; it was a traceback, or was taken."""


@pytest.mark.parametrize("told", WRONG)
def test_what_is_no_type_length_or_device_is_refused(told):
    with flow.FlowGraph(), pytest.raises(OptionError, match=f"^{told}"):
        WRONG[told](flow.input("x", (2, 3)))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_constant_that_is_no_finite_number_itself_is_taken(value):
    with flow.FlowGraph():
        held = flow.constant([value, 1.0], "float32").node.attributes["value"]
    np.testing.assert_array_equal(held, np.array([value, 1.0], np.float32))


def test_a_variable_has_the_type_that_is_told_beside_its_value():
    with flow.FlowGraph() as graph:
        flow.variable("v", [1, 2], dtype="float32")
        assert flow.variables(graph)["v"].dtype == np.float32


@pytest.mark.parametrize("build", [
    lambda x: flow.cast(x, "U3"), lambda x: flow.numpy_function(np.copy, [x], dtype=complex),
])  # fmt: skip
def test_nothing_in_a_graph_is_text_or_complex(build):
    with flow.FlowGraph(), pytest.raises(GraphError, match=r"a type of numbers or truth values is"):
        build(flow.input("x", (2, 3)))


@pytest.mark.parametrize("high", [2.5, True])
def test_what_drawn_integers_are_below_is_whole(high):
    """NumPy never draws a 2 below 2.5."""
    with flow.FlowGraph(), pytest.raises(GraphError, match=r"^integers-1 .* below must be a whole"):
        flow.Generator("dice").integers(high)


def test_an_array_has_no_size_below_0():
    with flow.FlowGraph():
        size = flow.TensorArray(flow.length(flow.input("x", (2,))) - 3).size()
    with pytest.raises(
        SimulationError, match=r"^array-1 .* the size of an array must be >= 0, got -1"
    ):
        flow.run(size, {"x": [1.0, 2.0]})
