"""Wrong programs of in-graph control flow: one line that names the operator and the place."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from ampsim import flow
from ampsim.dataflow.rendezvous import Rendezvous
from ampsim.errors import AmpsimError, GraphError, OptionError, SimulationError
from ampsim.hardware import Checkpoints, Cluster, Device, MemoryRemedy

HERE = r"\(.*test_dataflow_refusals\.py, line \d+\)"


@pytest.fixture
def graph() -> Iterator[flow.FlowGraph]:
    with flow.FlowGraph() as graph:
        yield graph


@pytest.fixture
def x(graph: flow.FlowGraph) -> flow.Tensor:
    return flow.input("x", (2, 3))


def refused(kind: type[AmpsimError], text: str, build: Callable[[], object]) -> None:
    with pytest.raises(kind) as raised:
        build()
    line = str(raised.value)
    assert "\n" not in line
    assert re.search(text, line), line


def test_nothing_is_built_outside_of_a_graph():
    refused(
        GraphError,
        r"^no graph is open; build operators in `with flow.FlowGraph",
        lambda: flow.constant(1),
    )


def test_a_tensor_has_no_truth_value_and_no_elements(x):
    predicate = flow.sum(x) > 1
    refused(
        GraphError,
        rf"^greater-1 {HERE}: a tensor has no truth value .* use flow.cond",
        lambda: bool(predicate),
    )
    refused(GraphError, rf"^x {HERE}: a tensor has no elements .* use flow.map_fn", lambda: list(x))


@pytest.mark.parametrize("compare", [operator.eq, operator.ne])
def test_tensors_are_compared_by_an_operator_of_the_graph(x, compare):
    """What Python says of two objects would be a constant, and `cond` always take one branch."""
    for other in (0, x + 1.0, None):
        refused(
            GraphError,
            rf"^x {HERE}: tensors have no == and != .*; use flow.equal\(x, y\) or flow.not_equal",
            lambda: compare(x, other),  # noqa: B023  # called at once
        )


def test_an_array_leaves_arithmetic_to_the_tensor(x):
    y = np.ones((2, 3)) * x - np.float32(2.0)
    assert np.array_equal(flow.run(y, {"x": np.ones((2, 3))}).values[0], -np.ones((2, 3)))


def test_shapes_must_fit(x):
    refused(
        GraphError,
        rf"^matmul-1 {HERE}: inputs of shapes \(2, 3\) and \(2, 3\) do not fit: \(rows, d_in\) and",
        lambda: flow.matmul(x, x),
    )
    refused(
        GraphError,
        rf"^add-1 {HERE}: .* do not fit: lengths 2 and 3 of one axis",
        lambda: x + np.ones((2, 2)),
    )
    refused(
        GraphError,
        r"^concat-1 .* all axes but one must be alike",
        lambda: flow.concat([x, np.ones((3, 3))]),
    )
    refused(GraphError, r"^cut-1 .* 2 to 5 is not within axis 1", lambda: flow.cut(x, 2, 5))
    refused(
        GraphError,
        r"^transpose-1 .* \(rows, columns\) is expected",
        lambda: flow.transpose(np.ones(3)),
    )
    refused(
        GraphError,
        r"^softmax_cross_entropy-1 .* \(rows, classes\) and \(rows,\)",
        lambda: flow.softmax_cross_entropy(x, x),
    )
    refused(GraphError, r"^expand-1 .* do not fit", lambda: flow.expand(x, 5))
    refused(
        GraphError,
        r"^pick-1 .* the index must be whole numbers, got float64",
        lambda: flow.pick(x, 0.5),
    )
    refused(
        GraphError,
        r"^where-1 .* the first input must be truth values, got float64",
        lambda: flow.where(1, x, x),
    )


def test_constants_and_inputs_are_checked(x):
    masked = np.ma.masked_array([1.0, 2.0], [True, False])
    for value, told in (
        ("text", "be numbers or .*, got 'text'"),
        (masked, "have a number at every"),
    ):
        refused(OptionError, f"^a constant must {told}", lambda value=value: flow.constant(value))
    refused(OptionError, "^variable 'v' must have a number", lambda: flow.variable("v", masked))
    refused(OptionError, r"^input 'x' is there already; give another name", lambda: flow.input("x"))


def test_what_counts_or_names_places_is_whole(x):
    """Half a place was the one before it."""
    rows = flow.TensorArray().unstack(x)
    for noun, build in {
        "size of an array": lambda: flow.TensorArray(2.5),  # pyright: ignore[reportArgumentType]  # that is the test
        "place of an array": lambda: rows.read(flow.constant(1) / 2),
        "place of an array must be a whole number, got bool": lambda: rows.write(x > 0.0, x),
    }.items():
        refused(GraphError, rf"^array\S* {HERE}: inputs .* the {noun}", build)
    refused(GraphError, r"^places-1 .* truth values are expected, got", lambda: flow.places(x))
    refused(
        OptionError,
        r"^a constant must be numbers or truth values, got \[\[1\], \[1, 2\]\]",
        lambda: flow.constant([[1], [1, 2]]),
    )
    length = flow.length(x)
    for build in (lambda: flow.zeros((length, 2)), lambda: flow.reshape(x, (length, -1))):  # pyright: ignore[reportArgumentType]  # that is the test
        refused(OptionError, r"^shape\[0\] must be a whole number, got Tensor", build)
    refused(OptionError, r"^device must be a whole number, got 0.5", lambda: flow.device(0.5))  # pyright: ignore[reportArgumentType]  # that is the test


def test_branches_give_one_structure_and_one_type(x):
    p = flow.sum(x) > 0
    refused(
        GraphError,
        rf"^cond of greater-1 {HERE}: both branches .*, got \(tensor, tensor\) and tensor",
        lambda: flow.cond(p, lambda: (x, x), lambda: x),
    )
    refused(
        GraphError,
        r"^cond of .*both branches .* type, got float64 of .* and int64 of .*; use",
        lambda: flow.cond(p, lambda: x, lambda: flow.constant(1)),
    )
    refused(
        GraphError,
        r"^cond of .*the true branch of a cond: a constant must be numbers",
        lambda: flow.cond(p, lambda: "text", lambda: x),
    )
    refused(
        GraphError,
        r"the predicate of cond must be one truth value, got float64 of shape \(2, 3\); compare",
        lambda: flow.cond(x, lambda: x, lambda: x),
    )


def test_branches_give_one_array(x):
    p = flow.sum(x) > 0
    one, other = flow.TensorArray(2), flow.TensorArray(2)
    refused(
        GraphError,
        r"one structure, got two arrays; go on from one array",
        lambda: flow.cond(p, lambda: one, lambda: other),
    )


def test_what_a_branch_or_body_makes_is_not_used_outside(x):
    kept: list[flow.Tensor] = []

    def branch() -> flow.Tensor:
        kept.append(flow.tanh(x))
        return kept[0]

    flow.cond(flow.sum(x) > 0, branch, lambda: x)
    refused(
        GraphError,
        rf"^tanh-1 {HERE} was made in the true branch of a cond and is used outside; return it",
        lambda: kept[0] + 1.0,
    )

    def body(i: flow.Tensor, y: flow.Tensor) -> tuple[flow.Tensor, ...]:
        kept.append(y * 2.0)
        return i + 1, kept[-1]

    flow.while_loop(lambda i, y: i < 3, body, (0, x))
    refused(
        GraphError,
        r"^multiply-1 .* was made in the loop while-1 and is used outside",
        lambda: kept[-1] + 1.0,
    )
    refused(
        GraphError,
        r"^run: multiply-1 .* was made in the loop while-1; ask for what",
        lambda: flow.run(kept[-1]),
    )


def test_what_a_predicate_makes_is_not_used_in_the_body(x):
    kept: list[flow.Tensor] = []

    def predicate(i: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
        kept.append(i + 1)
        return i < 3

    refused(
        GraphError,
        r"was made in the predicate of a loop and is used outside",
        lambda: flow.while_loop(predicate, lambda i, y: (kept[0], y), (0, x)),
    )


def test_loop_variables_keep_structure_type_and_shape(x):
    def loop(body: Callable[..., object], inits: object = None, **options: Any) -> object:
        return flow.while_loop(
            lambda i, *_: i < 3, body, (0, x) if inits is None else inits, **options
        )  # pyright: ignore[reportArgumentType]  # that is the test

    refused(
        OptionError,
        r"^while_loop: inits must be a tuple or list of loop variables, got 3",
        lambda: loop(lambda i: i, 3),
    )
    refused(
        OptionError,
        r"^parallel_iterations must be .*>= 1.*, got 0",
        lambda: loop(lambda i, y: (i, y), parallel_iterations=0),
    )
    refused(
        OptionError,
        r"^shapes must be of all 2 loop variables, got 1",
        lambda: loop(lambda i, y: (i, y), shapes=[()]),
    )
    refused(
        GraphError,
        rf"^while-\d+ {HERE}: the body .*, got \(tensor, tensor\) and \(tensor\)",
        lambda: loop(lambda i, y: (i,)),
    )
    refused(
        GraphError,
        rf"^while-\d+ {HERE}: variable 0 must stay int64, got float64 of .*; use flow.cast",
        lambda: loop(lambda i, y: (i + 0.5, y)),
    )
    refused(
        GraphError,
        rf"^while-\d+ {HERE}: variable 1 .* shape \(2, 3\), got \(2, 6\) of concat-\d+ .*; say in",
        lambda: loop(lambda i, y: (i + 1, flow.concat([y, y]))),
    )
    refused(
        GraphError,
        r"the predicate of while-\d+ must be one truth value, got int64",
        lambda: flow.while_loop(lambda i: i, lambda i: i, (0,)),
    )


def test_shapes_of_variables_are_theirs_from_the_start(x):
    """Of a loop that never runs, gradients had the shape that was said."""
    refused(
        OptionError,
        rf"^shapes\[1\] is \(5, 5\), and the variable starts as \(2, 3\), x {HERE}; say None of",
        lambda: flow.while_loop(
            lambda i, y: i < 0, lambda i, y: (i + 1, y), (0, x), shapes=[(), (5, 5)]
        ),
    )


def test_gradients_are_of_floats(x):
    y = flow.sum(x)
    refused(
        GraphError,
        r"^gradients: constant-\d+ .* must be a floating-point tensor, got int64",
        lambda: flow.gradients(y, [flow.constant(1)]),
    )
    slope = flow.gradients(flow.sum(flow.tanh(x)), [x])[0]
    refused(
        GraphError,
        r"^gradients: tanh_gradient-1 .* has no gradient; use flow.stop_gradient",
        lambda: flow.gradients(flow.sum(slope), [x]),
    )


SECOND: dict[str, Callable[..., flow.Tensor]] = {
    "loop": lambda x, n: flow.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * y), (0, x))[
        1
    ],
    "constant": lambda x, n: flow.while_loop(
        lambda i, y: i < n, lambda i, y: (i + 1, y * x), (0, x)
    )[1],
    "branch": lambda x, n: flow.cond(n > 2, lambda: x * x * x, lambda: x),
    "rows": lambda x, n: flow.map_fn(lambda row: row * row, x),
    "nested": lambda x, n: flow.cond(n > 2, lambda: SECOND["loop"](x, n), lambda: x),
}


@pytest.mark.parametrize("name", SECOND)
def test_second_gradients_through_a_branch_or_loop_are_refused(x, name):
    """What the first had saved took none along: those through a loop were too small, or zero."""
    n = flow.input("n", (), "int64")
    (slope,) = flow.gradients(flow.sum(SECOND[name](x, n)), [x])
    (other,) = flow.gradients(flow.sum(flow.stop_gradient(slope) * x), [x])
    refused(
        GraphError,
        rf"^gradients: sum-\d+ {HERE} follows from gradients through a cond or while_loop, of "
        r"which there are none; use flow.stop_gradient$",
        lambda: flow.gradients(flow.sum(slope * slope), [x]),
    )
    feeds = {"x": np.ones((2, 3)), "n": 3}
    if name != "rows":
        assert np.array_equal(*flow.run([slope, other], feeds).values)


def test_second_gradients_of_what_saves_nothing_are_those_of_any_function(x):
    n = flow.input("n", (), "int64")
    _, y = flow.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y + x), (0, x))
    (slope,) = flow.gradients(flow.sum(y * y * y), [x])
    (second,) = flow.gradients(flow.sum(slope), [x])
    values = np.arange(6.0).reshape(2, 3)
    found = flow.run([slope, second], {"x": values, "n": 2}).values
    assert np.allclose(found[0], 81.0 * values**2) and np.allclose(found[1], 162.0 * values)


def test_gradients_in_a_branch_or_body_are_of_what_is_built_there(x):
    """Else they would be zeros, as nothing in there leads from the one to the other."""
    w = flow.variable("w", np.ones((2, 3)))
    loss = flow.sum(x * w)

    def slope() -> Any:
        return flow.gradients(loss, [w])[0]

    refused(
        GraphError,
        rf"^gradients: sum-1 {HERE} was made outside of the true branch of a cond, in which "
        r"nothing leads to it; build it in there, or ask for its gradients outside$",
        lambda: flow.cond(loss > 0.0, slope, lambda: w),
    )
    refused(
        GraphError,
        r"^gradients: sum-1 .* was made outside of the loop while-1, in which",
        lambda: flow.while_loop(lambda i, v: i < 2, lambda i, v: (i + 1, slope()), (0, w)),
    )


def test_feeds_are_checked(x):
    y = flow.sum(x)
    refused(
        OptionError, r"^feeds: input 'x' has no value; give feeds=\{'x': ...\}", lambda: flow.run(y)
    )
    refused(
        OptionError,
        r"^feeds: no needed input named 'z'; needed: ",
        lambda: flow.run(y, {"x": np.ones((2, 3)), "z": 1}),
    )
    refused(
        OptionError,
        r"^feeds: input 'x' must have shape \(2, 3\), got \(3,\)",
        lambda: flow.run(y, {"x": np.ones(3)}),
    )
    refused(
        OptionError,
        r"^feeds: input 'x' must be float64, got",
        lambda: flow.run(y, {"x": np.ones((2, 3)) * 1j}),
    )
    refused(
        OptionError,
        r"^parallel_iterations must be .*>= 0.*, got -1",
        lambda: flow.run(y, {"x": np.ones((2, 3))}, parallel_iterations=-1),
    )


def test_sleep_mode_decides_by_integers_alone(x):
    y = flow.cond(flow.sum(x) > 0, lambda: x, lambda: -x)
    refused(
        OptionError,
        rf"^greater-1 {HERE} decides by floating-point numbers, .*; use mode=\"numeric\"",
        lambda: flow.run(y, {"x": np.ones((2, 3))}, mode="sleep"),
    )


WRONG_LENGTHS: dict[str, tuple[Callable[..., flow.Tensor], str]] = {
    "add": (lambda x, y: x + y, "ValueError: lengths 2 and 4 of one axis"),
    "matmul": (flow.matmul, r"ValueError: \(rows, d_in\) and \(d_in, d_out\) are expected"),
    "concat": (lambda x, y: flow.concat([x, y]), "ValueError: all axes but one must be alike"),
    "reshape_to": (lambda x, y: flow.reshape(x, (5, -1)), "ValueError: cannot reshape array"),
    "cut": (lambda x, y: flow.cut(x, 2, 5), "ValueError: 2 to 5 is not within axis 1"),
    "scatter_to": (
        lambda x, y: flow.scatter(x, np.array([0, 1]), y),
        r"ValueError: rows \(2, 4\) are",
    ),
}


@pytest.mark.parametrize("mode", ["numeric", "sleep"])
@pytest.mark.parametrize("name", WRONG_LENGTHS)
def test_lengths_that_turn_out_not_to_fit_are_told_with_the_operator(graph, name, mode):
    build, text = WRONG_LENGTHS[name]
    x, y = (flow.input(one, (None, None)) for one in "xy")
    built = build(x, y) + flow.sum(y)
    refused(
        SimulationError,
        rf"^{name}-1 {HERE} failed at 0 s: {text}",
        lambda: flow.run(built, {"x": np.ones((2, 3)), "y": np.ones((4, 4))}, mode=mode),
    )


@pytest.mark.parametrize("measure", [flow.softmax_cross_entropy, flow.count_right])
@pytest.mark.parametrize("labels", [1, 2, 4])
def test_a_label_is_one_of_a_row(graph, measure, labels):
    """Fewer labels than rows gave a loss, of other rows than these."""
    label = flow.input("label", (labels,), "int64")
    refused(GraphError, rf"fit: 3 rows and {labels} labels$", lambda: measure(np.eye(3), label))
    rows = flow.input("rows", (None, 3))
    refused(
        SimulationError,
        rf"^{measure.__name__}-\d {HERE} failed at 0 s: ValueError: 3 rows and {labels} labels$",
        lambda: flow.run(measure(rows, label), {"rows": np.eye(3), "label": [0] * labels}),
    )


def test_a_step_that_fails_is_named_with_its_tag_and_time(x):
    rows = flow.TensorArray(2)

    def twice(i: flow.Tensor, a: flow.TensorArray) -> tuple[object, ...]:
        return i + 1, a.write(0, flow.sum(x))

    _, written = flow.while_loop(lambda i, a: i < 3, twice, (0, rows))
    refused(
        SimulationError,
        rf"^array_write-1 {HERE} in while-1/1 failed at 0 s: IndexError: place 0 .* before;",
        lambda: flow.run(written.stack(), {"x": np.ones((2, 3))}),
    )
    refused(
        SimulationError,
        r"place 1 of the array of 2 was not written",
        lambda: flow.run(rows.write(0, flow.sum(x)).stack(), {"x": np.ones((2, 3))}),
    )
    refused(
        SimulationError,
        r"place -1 of the array is below 0",
        lambda: flow.run(rows.write(-1, flow.sum(x)).stack(), {"x": np.ones((2, 3))}),
    )


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"message_overhead_s": 1.0}, r"^cluster: message_overhead_s of 1 is of steps that take"),
        ({"step_overhead_s": 1.0, "dispatch_s": 1.0}, None),
    ],
)
def test_keys_that_mean_nothing_here_are_refused(x, keys, text):
    device = Device(name="test", flop_per_s=1.0, **keys)
    cluster = Cluster(name="test", devices=(device,))

    def run() -> object:
        return flow.run(flow.sum(x), {"x": np.ones((2, 3))}, cluster=cluster)

    if text is None:
        assert flow.run(flow.sum(x), {"x": np.ones((2, 3))}, cluster=cluster).makespan_s == 3.0
    else:
        refused(OptionError, text, run)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (
            {"checkpoints": Checkpoints(every_s=1.0, takes_s=0.1)},
            r"^cluster: checkpoints has no effect on a graph, .*; leave checkpoints out",
        ),
        (
            {"memory": MemoryRemedy(remedy="recompute")},
            r"^cluster: memory has no effect on a graph, .*; leave memory out",
        ),
        (
            {"host": Device(name="host", flop_per_s=1.0, step_overhead_s=1.0)},
            r"^cluster: a host that takes time is a controller's, and a graph has none; give disp",
        ),
    ],
)
def test_a_cluster_with_keys_that_mean_nothing_here_is_refused(x, keys, text):
    cluster = Cluster(name="test", devices=(Device(name="test", flop_per_s=1.0),), **keys)
    feeds = {"x": np.ones((2, 3))}
    refused(OptionError, text, lambda: flow.run(flow.sum(x), feeds, cluster=cluster))


def test_arguments_of_the_wrong_type_are_refused(x):
    refused(OptionError, r"^true_fn must be a function, got 3", lambda: flow.cond(True, 3, 4))  # pyright: ignore[reportArgumentType]  # that is the test
    refused(OptionError, r"^xs must be a list of a Tensor", lambda: flow.gradients(x, x))  # pyright: ignore[reportArgumentType]  # likewise
    refused(OptionError, r"^shape must be a list of", lambda: flow.input("y", 3))  # pyright: ignore[reportArgumentType]  # likewise


def pair() -> Cluster:
    devices = tuple(Device(name=name, flop_per_s=1.0) for name in ("left", "right"))
    return Cluster(name="pair", devices=devices)


def cut_loop() -> flow.Tensor:
    """A loop whose body is on the second device, and what goes on by it on the first."""

    def body(i: flow.Tensor, y: flow.Tensor) -> tuple[flow.Tensor, ...]:
        with flow.device(1):
            half = y * 0.5
        with flow.device(0):
            return i + 1, flow.tanh(half)

    return flow.while_loop(lambda i, y: i < 3, body, (0, flow.input("y")))[1]


def test_an_unknown_device_is_refused(graph):
    y = flow.input("y")
    with flow.device("middle"):
        built = flow.tanh(y)
    placed = lambda device: flow.run(  # noqa: E731  # the shortest
        built, {"y": 1.0}, cluster=pair(), placement={"tanh-1": device}
    )
    refused(
        OptionError,
        rf"^tanh-1 {HERE}: no device named 'middle'; known: left, right$",
        lambda: flow.run(built, {"y": 1.0}, cluster=pair()),
    )
    refused(
        OptionError,
        r"^placement of tanh-1: no device named 'lefd'; did you mean 'left'\? known: left, right$",
        lambda: placed("lefd"),
    )
    refused(
        OptionError,
        r"^placement of tanh-1: device must be one of pair, workers 0 to 1, got 2$",
        lambda: placed(2),
    )
    assert placed(1).spans["worker"].tolist() == [1]


def test_an_unknown_name_in_a_placement_is_refused(graph):
    built = flow.tanh(flow.input("y"))
    refused(
        OptionError,
        r"^placement: no operator named 'tanh-2'; did you mean 'tanh-1'\? known: tanh-1, y$",
        lambda: flow.run(built, {"y": 1.0}, cluster=pair(), placement={"tanh-2": 1}),
    )


def test_a_recv_that_nobody_serves_is_named_with_its_worker_and_tag(graph, monkeypatch):
    built, send = cut_loop(), Rendezvous.send

    def lossy(self: Rendezvous, step: Any, path: Any, *more: Any) -> None:
        if not step.node.name.startswith("send multiply-1"):
            send(self, step, path, *more)

    monkeypatch.setattr(Rendezvous, "send", lossy)
    refused(
        SimulationError,
        r"^worker 0: recv multiply-1 at 0.* in while-1/0 still waits at [\d.e-]+ s, and worker 1 "
        r"has not served it; send that tensor in every iteration, live or dead$",
        lambda: flow.run(built, {"y": 1.0}, cluster=pair()),
    )


UNLIKE: dict[str, Callable[[flow.TensorArray, flow.Tensor], object]] = {
    "another length": lambda array, x: array.write(1, flow.sum(x, axis=1)),
    "another type": lambda array, x: array.write(1, flow.cast(flow.sum(x, axis=0), "float32")),
    "other rows": lambda array, x: array.unstack(flow.transpose(x)),
    "as was said": lambda _array, x: flow.TensorArray(2, element_shape=(4,)).write(0, x),
    "as was read": lambda array, x: (
        (other := flow.TensorArray(2)).read(1),
        other.write(0, flow.cast(x, "float32")),
    ),
}


@pytest.mark.parametrize("case", UNLIKE)
def test_elements_of_an_array_are_alike(x, case):
    """A gradient has the shape that is known of its element."""
    array = flow.TensorArray(2).write(0, flow.sum(x, axis=0))
    with pytest.raises(GraphError, match=r"^write: elements of this array are float64 of shape"):
        UNLIKE[case](array, x)
