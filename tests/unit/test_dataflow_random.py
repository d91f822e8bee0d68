"""Generators of programs: bits follow from seed, name, run, draw and iteration, and no more."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import ampsim
from ampsim import flow
from ampsim.data import ArrayDataset
from ampsim.errors import GraphError, OptionError, SimulationError
from ampsim.hardware import Cluster, Device
from ampsim.nodes import Linear
from ampsim.optim import sgd
from ampsim.rng import stream
from ampsim.study.simulation import Simulation

PAIR = Cluster(
    name="pair",
    devices=tuple(Device(name=name, flop_per_s=1.0) for name in ("left", "right")),
)


def test_a_draw_is_that_of_numpy_on_the_stream_of_its_place():
    with flow.FlowGraph():
        dice = flow.Generator("dice", 5)
        asked = [dice.random((2, 3)), dice.integers(flow.input("n", dtype="int64"), (4,))]
    for run in range(2):
        numbers, whole = flow.run(asked, {"n": 6}).values
        assert np.array_equal(numbers, stream(5, "dice", run, 1).random((2, 3)))
        assert np.array_equal(whole, stream(5, "dice", run, 2).integers(6, size=4))


def test_each_iteration_draws_on_a_stream_of_its_own():
    with flow.FlowGraph():
        dice = flow.Generator("dice", 5)
        asked = flow.map_fn(lambda row: row + dice.random(), flow.zeros((3,)))
    wanted = [float(stream(5, "dice", 0, 1, place).random()) for place in range(3)]
    assert flow.run(asked).values[0].tolist() == wanted


def walk() -> list[flow.Tensor]:
    """Draws in a loop, in a branch of it, and before it."""
    seed = flow.input("seed", dtype="int64")
    dice, other = flow.Generator("dice", seed), flow.Generator("other", seed)
    first = dice.random()

    def body(i: Any, total: Any) -> Any:
        with flow.device(1):
            far = other.random()
        near = flow.cond(flow.equal(i % 3, 0), lambda: dice.random(), lambda: far * 2.0)
        return i + 1, total * 0.5 + near

    total = flow.while_loop(lambda i, total: i < 9, body, (0, first))[1]
    return [total, other.random((3,))]


WAYS: dict[str, dict[str, Any]] = {
    "a window of 1": {"parallel_iterations": 1},
    "any window": {"parallel_iterations": 0},
    "without running ahead": {"run_ahead": False},
    "on the other device": {"placement": {"random-1": 1, "random-2": 0, "random-4": 1}},
}


@pytest.mark.parametrize("way", WAYS)
def test_window_and_placement_decide_no_bit(way):
    told: list[Any] = []
    for how in ({}, WAYS[way]):
        with flow.FlowGraph():
            asked = walk()
        runs = [flow.run(asked, {"seed": 3}, cluster=PAIR, **how).values for _ in range(3)]
        told.append(np.array([[one, *more] for one, more in runs]))
    assert np.array_equal(*told)
    assert len(np.unique(told[0])) == told[0].size


def test_a_draw_that_is_dead_moves_no_other():
    with flow.FlowGraph():
        dice, is_so = flow.Generator("dice"), flow.input("is_so", dtype="bool")
        one = flow.cond(is_so, lambda: dice.random(), lambda: flow.constant(0.0))
        asked = [one, dice.random()]
    runs = [flow.run(asked, {"is_so": is_so}).values for is_so in (False, True, False)]
    expected = [stream(0, "dice", run, 2).random() for run in range(3)]
    assert [run[1] for run in runs] == expected
    assert [run[0] for run in runs] == [0.0, stream(0, "dice", 1, 1).random(), 0.0]


def test_sleep_counts_runs_and_draws_whole_numbers_as_numeric_does():
    told: list[list[int]] = []
    for is_asleep_first in (False, True):
        with flow.FlowGraph() as graph:
            dice = flow.Generator("dice", 1)
            asked = [dice.integers(1000), dice.random()]
        first = flow.run(asked, mode="sleep" if is_asleep_first else "numeric")
        told.append([int(one.values[0]) for one in (first, flow.run(asked), flow.run(asked))])
        assert flow.variables(graph)["dice"] == 3
    assert told[0] == told[1]
    assert len(set(told[0])) == 3


def test_a_generator_goes_on_after_a_run_that_failed_and_can_start_anew():
    with flow.FlowGraph() as graph:
        drawn = flow.Generator("dice").random()
        row = flow.pick(flow.constant([1.0]), flow.input("n", dtype="int64"))
    first = flow.run([drawn, row], {"n": 0}).values[0]
    with pytest.raises(SimulationError, match="pick-1"):
        flow.run([drawn, row], {"n": 4})
    second = flow.run([drawn, row], {"n": 0}).values[0]
    assert second == stream(0, "dice", 1, 1).random()
    flow.set_variables(graph, {"dice": 0})
    assert flow.run(drawn).values[0] == first


def test_two_generators_of_one_name_are_one_and_never_draw_alike():
    with flow.FlowGraph():
        asked = [flow.Generator("dice").random((4,)) for _ in range(2)]
    one, other = flow.run(asked).values
    assert not np.isin(one, other).any()


def refused(kind: type[Exception], text: str, build: Any) -> None:
    with flow.FlowGraph(), pytest.raises(kind) as raised:
        build()
    line = str(raised.value)
    assert "\n" not in line
    assert re.search(text, line), line


def test_what_cannot_be_drawn_is_refused():
    refused(
        GraphError,
        r"^generator 'dice': the seed must be one whole number, got float64 of shape \(\)",
        lambda: flow.Generator("dice", 0.5),
    )
    refused(
        OptionError,
        r"^seed must be a whole number >= 0, got -1",
        lambda: flow.run(flow.Generator("dice", -1).random()),
    )
    refused(
        OptionError,
        r"^generator 'w' cannot be made: w \(.*\) is there already; give another name",
        lambda: (flow.variable("w", 1.0), flow.Generator("w")),
    )
    refused(
        OptionError,
        r"^variable 'w' of int64 and shape \(\) cannot be made: w \(.*\), a generator, is there "
        r"already; give another name",
        lambda: (flow.Generator("w"), flow.variable("w", shape=(), dtype="int64")),
    )
    refused(
        GraphError,
        r"^integers-1 .* do not fit: single numbers are expected",
        lambda: flow.Generator("dice").integers(np.array([2, 3])),
    )
    refused(
        SimulationError,
        r"^integers-1 .* failed at 0 s: ValueError: high <= 0",
        lambda: flow.run(flow.Generator("dice").integers(0)),
    )


def test_functions_of_numpy_are_checked():
    def built(function: Any, **told: Any) -> Any:
        return lambda: flow.run(flow.numpy_function(function, [np.arange(3)], **told))

    refused(
        SimulationError,
        r"^numpy_function-1 .*: TypeError: the function must give int64 of shape \(3,\), got "
        r"float64 of shape \(3,\); say shape= and dtype=$",
        built(lambda x: x * 0.5, dtype="int64"),
    )
    refused(
        SimulationError,
        r"the function must give float64 of shape \(2,\), got int64 of shape \(3,\)",
        built(lambda x: x, shape=(2,)),
    )
    refused(
        SimulationError,
        r"^numpy_function-1 .* failed at 0 s: ZeroDivisionError",
        built(lambda x: 1 // 0),
    )

    def slope() -> object:
        x = flow.input("x", (3,))
        return flow.gradients(flow.sum(flow.numpy_function(np.sin, [x])), [x])

    refused(
        GraphError,
        r"^gradients: numpy_function-1 .* has no gradient; use flow.stop_gradient",
        slope,
    )


def drops_in_some(masked: dict[str, flow.Tensor]) -> flow.Tensor:
    """Rows with a part dropped where their count is even; a validation drops it always."""
    count = masked["count"]
    dice = flow.Generator("dice")
    some = flow.cond(flow.equal(count % 2, 0), lambda: dice.random() * 2.0, lambda: 1.0)
    return masked["x"] * some


def drawing() -> ampsim.Model:
    """A model of which each validation draws, and training in some instances."""
    numbers = np.random.default_rng(0).random((12, 2))
    arrays = (numbers, numbers[:, :1])
    data = ArrayDataset(arrays, arrays, batch=2, dtype="float64")

    def inputs(of: str) -> dict[str, flow.Tensor]:
        shapes = {"x": (None, 2), "y": (None, 1), "count": ()}
        kinds = {name: "int64" if name == "count" else "float64" for name in shapes}
        return {one: flow.input(f"{of} {one}", shapes[one], kinds[one]) for one in shapes}

    def loss(given: dict[str, flow.Tensor], x: flow.Tensor) -> flow.Tensor:
        off = flow.linear("linear-1", x, 1) - given["y"]
        return flow.sum(off * off) / 6.0

    def build() -> flow.Objective:
        given = inputs("valid")
        return flow.Objective(loss(given, given["x"] * flow.Generator("dice").random()))

    def train(minimize: Any) -> flow.Objective:
        given = inputs("train")
        made = loss(given, drops_in_some(given))
        return flow.Objective(made, done=minimize(made))

    def feed(batch: Any) -> dict[str, Any]:
        x, y = batch.arrays
        told = {"x": x, "y": y, "count": int(10 * x[0, 0])}
        return {f"{of} {name}": one for of in ("train", "valid") for name, one in told.items()}

    return ampsim.Model(
        name="m", config=None, make_graph=None, make_layers=lambda: [Linear("linear-1", 2, 1)],
        make_program=lambda: flow.Program(build, feed, train),
        make_data=lambda _seed, _count: data, pump=None,
        optimizer=sgd(0.1), target=0.1, dtype="float64",
    )  # fmt: skip


@pytest.mark.parametrize("schedule", [ampsim.Dataflow(), ampsim.Unrolled()])
def test_validations_change_nothing_that_is_learned(schedule):
    """Nor does it matter whether they are on the clock; they took turns with it, unrolled."""
    model = drawing()
    losses = [
        ampsim.simulate(model, "tflops-1", schedule, validate_every=every).epochs["loss"][0]
        for every in (None, 2)
    ]
    assert losses[0] == losses[1]
    timed, off = (
        Simulation(model, ampsim.load_cluster("tflops-1"), schedule, times_validation=is_timed)
        for is_timed in (True, False)
    )
    for _epoch in range(3):
        timed.run_epoch()
        off.run_epoch()
    for column in ("loss", "valid_loss"):
        assert off.result().epochs[column].equals(timed.result().epochs[column])
