"""Variables: what they have from one run to the next, and every optimizer that steps them."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from ampsim import flow
from ampsim.errors import DivergenceError, GraphError, OptionError, SimulationError
from ampsim.hardware import Cluster, Device
from ampsim.optim import OPTIMIZERS, exponential, sgd, warmup

RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(5, 4)), RNG.normal(size=(5, 3))
WEIGHT, BIAS = RNG.normal(size=(4, 3)), RNG.normal(size=3)
SHAPES = [(4, 3), (3,)]
STEPS = 20


def layer(dtype: str = "float64") -> tuple[flow.Tensor, flow.Tensor]:
    """A linear layer's loss, the mean square, and the epoch."""
    x, y = flow.input("x", (None, 4), dtype), flow.input("y", (None, 3), dtype)
    weight = flow.variable("weight", WEIGHT.astype(dtype))
    bias = flow.variable("bias", BIAS.astype(dtype))
    loss = flow.sum(flow.square(flow.matmul(x, weight) + bias - y)) * 0.5
    return loss, flow.input("epoch")


def slope(theta: np.ndarray) -> np.ndarray:
    weight, bias = theta[:12].reshape(4, 3), theta[12:]
    gap = X @ weight + bias - Y
    return np.concatenate([(X.T @ gap).reshape(-1), gap.sum(axis=0)])


RATES: dict[str, Any] = {
    "constant": 0.02,
    "by epoch": exponential(0.02, 0.5),
    "within epochs": warmup(0.02, 3),
}


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_steps_as_a_plain_loop_does(name, rate):
    optimizer = OPTIMIZERS[name](RATES[rate])
    with flow.FlowGraph() as graph:
        loss, epoch = layer()
        step = flow.minimize(loss, optimizer, epoch=epoch)
    init, update = optimizer.of_tensors(SHAPES).init, optimizer.of_tensors(SHAPES).update
    theta = np.concatenate([WEIGHT.reshape(-1), BIAS])
    state = init(theta)
    for number in range(STEPS):
        passed = number / 4
        flow.run(step, {"x": X, "y": Y, "epoch": passed})
        is_within = getattr(optimizer.rate, "is_within_epochs", False)
        rate_now = optimizer.rate(passed if is_within else int(passed))
        theta, state = update(slope(theta), state, theta, rate_now)
    held = flow.variables(graph)
    got = np.concatenate([held["weight"].reshape(-1), held["bias"]])
    assert np.abs(got - theta).max() <= 1e-12 * np.abs(theta).max()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_single_precision_stays_so_and_sleep_takes_as_long(name):
    times: list[float] = []
    for mode in ("numeric", "sleep"):
        with flow.FlowGraph() as graph:
            loss, epoch = layer("float32")
            step = flow.minimize(loss, OPTIMIZERS[name](0.01), epoch=epoch)
        feeds = {"x": X.astype("float32"), "y": Y.astype("float32"), "epoch": 0.0}
        times.append(flow.run(step, feeds, cluster="p100", mode=mode).makespan_s)
        assert {one.dtype for one in flow.variables(graph).values()} == {np.dtype("float32")}
        is_as_before = np.array_equal(flow.variables(graph)["weight"], WEIGHT.astype("float32"))
        assert is_as_before == (mode == "sleep")
    assert times[0] == times[1]


def test_a_run_reads_what_was_there_when_it_began():
    with flow.FlowGraph() as graph:
        count = flow.variable("count", 3)
        after = flow.assign(count, count + 1)
        twice = count * 2
    assert flow.run([after, twice, count]).values == [4, 6, 3]
    assert flow.run([twice]).values == [8]
    assert flow.variables(graph)["count"] == 4
    flow.set_variables(graph, {"count": 10})
    assert flow.run([after, twice], mode="sleep").values == [11, 20]


def test_a_branch_that_is_not_taken_assigns_nothing():
    """Selective updates (Section 2.2)."""
    with flow.FlowGraph() as graph:
        w, gap = flow.variable("w", 1.0), flow.input("gap")
        new = flow.cond(gap > 0.5, lambda: flow.assign(w, w - gap), lambda: w)
    assert flow.run(new, {"gap": 0.25}).values == [1.0]
    assert flow.variables(graph)["w"] == 1.0
    assert flow.run(new, {"gap": 0.75}).values == [0.25]
    assert flow.variables(graph)["w"] == 0.25


def test_both_branches_may_assign():
    with flow.FlowGraph() as graph:
        w, is_up = flow.variable("w", 1.0), flow.input("is_up", dtype="bool")
        new = flow.cond(is_up, lambda: flow.assign(w, w * 2.0), lambda: flow.assign(w, w * 0.5))
    for is_so in (True, True, False):
        flow.run(new, {"is_up": is_so})
    assert flow.variables(graph)["w"] == 2.0


def test_rows_are_written_after_the_run_and_what_was_read_stays():
    table = np.arange(8.0).reshape(4, 2)
    with flow.FlowGraph() as graph:
        kept, place = flow.variable("kept", table), flow.input("place", (2,), "int64")
        written = flow.assign_rows(kept, place, flow.pick(kept, place) * 10.0)
        had = flow.pick(kept, place)
    plain = table.copy()
    read = flow.run(kept).values[0]
    for places in ([2, 0], [3, 2]):
        sleep = flow.run([written, had], {"place": places}, mode="sleep").values[0]
        assert sleep.shape == (2, 2)
        flow.run([written, had], {"place": places})
        plain[places] = plain[places] * 10
        assert np.array_equal(flow.variables(graph)["kept"], plain)
    assert np.array_equal(read, table)
    result = flow.run([written, had], {"place": [0, 1]}, cluster=small(1000))
    assert result.peak_bytes[0] >= 64 + 3 * 32  # the table, rows read twice, rows written


def test_of_a_row_that_is_written_twice_the_last_value_stays_and_only_where_it_is_run():
    with flow.FlowGraph() as graph:
        kept, is_up = flow.variable("kept", [0, 0, 0]), flow.input("is_up", dtype="bool")
        one, other = (
            lambda value=value: flow.assign_rows(kept, np.array([1, 1]), np.array([9, value]))
            for value in (5, 7)
        )
        new = flow.cond(is_up, one, other)
    flow.run(new, {"is_up": True})
    assert flow.variables(graph)["kept"].tolist() == [0, 5, 0]
    flow.run(new, {"is_up": False})
    assert flow.variables(graph)["kept"].tolist() == [0, 7, 0]


def test_a_training_loop_in_the_graph_equals_runs_one_by_one():
    """Weights as loop variables, gradients in the body, one assignment at the end."""
    with flow.FlowGraph() as graph:
        x, y = flow.constant(X), flow.constant(Y)
        weight = flow.variable("weight", WEIGHT)

        def body(i: Any, w: Any) -> Any:
            loss = flow.sum(flow.square(flow.matmul(x, w) - y)) * 0.5
            return i + 1, w - flow.gradients(loss, [w])[0] * 0.02

        _, trained = flow.while_loop(lambda i, w: i < STEPS, body, (0, weight))
        step = flow.assign(weight, trained)
    flow.run(step)
    with flow.FlowGraph() as other:
        weight = flow.variable("weight", WEIGHT)
        loss = flow.sum(flow.square(flow.matmul(flow.constant(X), weight) - Y)) * 0.5
        single = flow.minimize(loss, sgd(0.02))
    for _ in range(STEPS):
        flow.run(single)
    gap = flow.variables(graph)["weight"] - flow.variables(other)["weight"]
    assert np.abs(gap).max() <= 1e-12


def small(memory_bytes: int) -> Cluster:
    device = Device(name="small", flop_per_s=1e9, memory_bytes=memory_bytes)
    return Cluster(name="one", devices=(device,))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_memory_holds_variables_with_what_the_optimizer_keeps_of_them(name):
    optimizer = OPTIMIZERS[name](0.01)
    with flow.FlowGraph():
        loss, epoch = layer()
        step = flow.minimize(loss, optimizer, epoch=epoch)
    feeds = {"x": X, "y": Y, "epoch": 0.0}
    result = flow.run(step, feeds, cluster=small(100_000))
    held = 8 * (X.size + Y.size + 2 + (1 + optimizer.arrays) * 15)  # epoch, and the 0.5
    inputs = int(result.memory["inputs"].max())
    assert held <= inputs <= held + 3 * 8  # other constants
    assert not result.memory["bytes"].iloc[-1] or result.memory["bytes"].min() >= 0
    for _ in range(2):  # state that goes on takes no more
        assert flow.run(step, feeds, cluster=small(100_000)).peak_bytes[0] == result.peak_bytes[0]


def test_two_optimizers_of_one_variable_each_keep_their_own():
    """The most of either was counted; steps of one optimizer in two places share what it keeps."""
    one, other = OPTIMIZERS["adam"](0.01), OPTIMIZERS["adam"](0.02)
    with flow.FlowGraph():
        loss, epoch = layer()
        steps = [flow.minimize(loss, by, epoch=epoch) for by in (one, other, one)]
    feeds = {"x": X, "y": Y, "epoch": 0.0}
    told = [flow.run(step, feeds, cluster=small(100_000)).memory for step in steps]
    held = 8 * (X.size + Y.size + 2 + (1 + 2 + 2) * 15)
    assert all(held <= of["inputs"].max() <= held + 3 * 8 for of in told)


def test_updates_are_charged_as_in_appendix_c():
    with flow.FlowGraph():
        loss, epoch = layer()
        step = flow.minimize(loss, sgd(0.01), epoch=epoch)
    spans = flow.run(step, {"x": X, "y": Y, "epoch": 0.0}).spans
    updates = spans[spans["direction"] == "update"]
    assert updates["flop"].sum() == 12
    assert spans.loc[spans["direction"] == "forward", "flop"].sum() == 2 * 5 * 12
    assert spans.loc[spans["direction"] == "backward", "flop"].sum() == 2 * 5 * 12


def refused(kind: type[Exception], text: str, build: Any) -> None:
    with flow.FlowGraph(), pytest.raises(kind, match=text):
        build(flow.variable("w", 1.0))


def test_what_cannot_be_is_refused():
    def in_a_loop(w: Any) -> None:
        flow.while_loop(lambda i: i < 3, lambda i: (i + 1, flow.assign(w, w))[:1], (0,))

    refused(
        GraphError, r"assign to w: a loop would do it often; make it a loop variable", in_a_loop
    )
    refused(GraphError, r"must stay float64 of shape \(\), got int64", lambda w: flow.assign(w, 3))
    refused(
        GraphError, r"constant.* must be a variable", lambda w: flow.assign(flow.constant(1.0), w)
    )
    refused(OptionError, r"'v' must have a value or a shape", lambda w: flow.variable("v"))
    for value, told in (([1.0, 2.0], r"float64 and shape \(2,\)"), (1, r"int64 and shape \(\)")):
        refused(
            OptionError,
            rf"'w' of {told} cannot be made: w \(.*\), variable of float64 and shape ",
            lambda w, value=value: flow.variable("w", value),
        )
    for value in (np.random.default_rng(0), "three", [None, 1.0], 1j):
        refused(
            OptionError,
            r"^variable 'v' must be numbers or truth values, got ",
            lambda w, value=value: flow.variable("v", value),
        )
    refused(
        OptionError,
        r"^input 'v' must be numbers or truth values, got object",
        lambda w: flow.input("v", (), "object"),
    )
    refused(
        GraphError,
        r"minimize needs variables",
        lambda w: flow.minimize(w, sgd(0.1), by=[flow.constant(1.0)]),
    )


def test_what_a_run_cannot_do_is_refused():
    refused(
        OptionError, r"'v' has no value; give one", lambda w: flow.run(flow.variable("v", shape=()))
    )
    refused(
        SimulationError,
        r"w is assigned twice in one run",
        lambda w: flow.run([flow.assign(w, w + 1.0), flow.assign(w, w + 2.0)]),
    )
    refused(
        DivergenceError,
        r"w stopped being finite in epoch 0; try a lower learning rate",
        lambda w: flow.run(flow.minimize(w * np.inf, sgd(0.1))),
    )


def test_values_that_a_graph_has_no_variable_for_are_refused():
    with flow.FlowGraph() as graph:
        flow.variable("w", 1.0)
    with pytest.raises(OptionError, match="no variable named 'v'"):
        flow.set_variables(graph, {"v": 1.0})
    with pytest.raises(OptionError, match=r"'w' must have shape \(\), got \(2,\)"):
        flow.set_variables(graph, {"w": [1.0, 2.0]})


def test_rows_that_do_not_fit_are_refused():
    def rows(index: Any, value: Any) -> Any:
        return lambda w: flow.assign_rows(flow.variable("kept", np.zeros((4, 2))), index, value)

    def in_a_loop(w: Any) -> None:
        kept = flow.variable("kept", np.zeros(4))
        body = lambda i: (i + 1, flow.assign_rows(kept, np.array([0]), np.zeros(1)))[:1]  # noqa: E731  # the shortest
        flow.while_loop(lambda i: i < 3, body, (0,))

    refused(GraphError, r"assign_rows to kept: a loop would do it often", in_a_loop)
    for wrong in (
        rows(np.array([0.0]), np.zeros((1, 2))), rows(0, np.zeros(2)),
        rows(np.array([0]), np.zeros(2)), rows(np.array([0]), np.zeros((1, 2), "float32")),
    ):  # fmt: skip
        refused(
            GraphError,
            r"^assign_rows: kept \(.*\) is float64 of shape \(4, 2\) and takes int64 places "
            r"\(count,\) and rows like its own, got .* of shape",
            wrong,
        )
    refused(
        GraphError,
        r"^assign_rows: constant.* must be a variable; make one: flow.variable",
        lambda w: flow.assign_rows(flow.constant([1.0]), np.array([0]), np.array([1.0])),
    )
    for place in (4, -1):
        refused(
            SimulationError,
            rf"^assign_rows-1 .* rows \[{place}\] are not within the 4 of kept",
            lambda w, place=place: flow.run(rows(np.array([place]), np.zeros((1, 2)))(w)),
        )


def test_what_is_not_trainable_is_stepped_by_nobody_unless_asked_for():
    with flow.FlowGraph() as graph:
        w, fixed = flow.variable("w", 1.0), flow.variable("fixed", 2.0, trainable=False)
        loss = w * fixed
        step, other = flow.minimize(loss, sgd(0.5)), flow.minimize(loss, sgd(0.5), by=[fixed])
    flow.run(step)
    assert flow.variables(graph) == {"w": 0.0, "fixed": 2.0}
    flow.set_variables(graph, {"w": 1.0})
    flow.run(other)
    assert flow.variables(graph) == {"w": 1.0, "fixed": 1.5}


def test_a_run_that_failed_leaves_variables_as_they_were():
    with flow.FlowGraph() as graph:
        w, n = flow.variable("w", 1.0), flow.input("n", dtype="int64")
        new, late = flow.assign(w, w + 1.0), n
        for _ in range(9):  # so that w has been assigned when the run fails
            late = late + 0
        row = flow.pick(flow.constant([1.0, 2.0]), late)
    with pytest.raises(SimulationError, match="pick-1"):
        flow.run([new, row], {"n": 7})
    assert flow.variables(graph)["w"] == 1.0
    flow.run([new, row], {"n": 1})
    assert flow.variables(graph)["w"] == 2.0


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_of_a_run_that_failed_an_optimizer_keeps_nothing_either(name):
    """Also of those that write over what they kept; the run fails after the step."""
    runs = {True: [1, 1], False: [1, 7, 1]}
    found = {}
    for is_whole, places in runs.items():
        with flow.FlowGraph() as graph:
            w, n = flow.variable("w", np.ones((2, 2))), flow.input("n", dtype="int64")
            step, late = flow.minimize(flow.sum(flow.square(w)), OPTIMIZERS[name](0.1)), n
            for _ in range(40):
                late = late + 0
            row = flow.pick(flow.constant([1.0, 2.0]), late)
        for place in places:
            if place == 7:
                with pytest.raises(SimulationError, match="pick-1"):
                    flow.run([step, row], {"n": place})
            else:
                flow.run([step, row], {"n": place})
        found[is_whole] = flow.variables(graph)["w"]
    np.testing.assert_array_equal(found[False], found[True])


@pytest.mark.parametrize("names", [*permutations(OPTIMIZERS, 2)], ids="-".join)
def test_two_optimizers_of_one_variable_keep_what_is_theirs(names):
    methods = [OPTIMIZERS[name](0.1).of_tensors([(2,)]) for name in names]
    with flow.FlowGraph() as graph:
        w = flow.variable("w", [1.0, -2.0])
        steps = [flow.minimize(flow.sum(flow.square(w)), OPTIMIZERS[one](0.1)) for one in names]
    theta = np.array([1.0, -2.0])
    states = [method.init(theta) for method in methods]
    for which in (0, 1, 0, 1):
        flow.run(steps[which])
        method = methods[which]
        theta, states[which] = method.update(2 * theta, states[which], theta, method.rate(0))
    np.testing.assert_allclose(flow.variables(graph)["w"], theta, rtol=1e-12)


def test_whoever_writes_into_what_a_run_gave_does_not_change_a_variable():
    with flow.FlowGraph() as graph:
        w = flow.variable("w", np.ones((2, 3)))
        asked = [w, flow.transpose(w), flow.reshape(w, (6,)), flow.assign(w, w * 1.0)]
    for value in flow.run(asked).values + flow.run(asked[:3]).values:
        if value.flags.writeable:
            value[...] = 7.0
    np.testing.assert_array_equal(flow.variables(graph)["w"], np.ones((2, 3)))


def test_what_a_variable_is_given_has_its_type_and_one_shape():
    with flow.FlowGraph() as graph:
        flow.variable("count", 1)
    with pytest.raises(OptionError, match=r"^variable 'count' must be int64, got 1.7"):
        flow.set_variables(graph, {"count": 1.7})
    with pytest.raises(OptionError, match=r"^variable 'count' must be within int64, got"):
        flow.set_variables(graph, {"count": np.uint64(1 << 63)})
    for give in (
        lambda: flow.variable("ragged", [[1.0], [1.0, 2.0]]),
        lambda: flow.set_variables(graph, {"count": [[1], [1, 2]]}),
    ):
        with graph, pytest.raises(OptionError, match=r"^variable '\w+' must have one shape, got"):
            give()


def test_a_place_below_0_is_none():
    with flow.FlowGraph():
        table = flow.variable("table.weight", np.ones((4, 2)))
        every = (
            flow.pick(flow.constant([1.0, 2.0]), np.array([-1])),
            flow.embedding("table", flow.constant([1, -1]), 4, 2),
            flow.scatter(np.ones((1, 2)), np.array([-1]), table),
        )
    for asked in every:
        with pytest.raises(SimulationError, match="IndexError: index -1 is below 0"):
            flow.run(asked)


def test_a_group_is_a_truth_value():
    """It is taken by whatever takes one."""
    with flow.FlowGraph():
        x = flow.input("x", (2, 3))
        met = flow.group(x)
        asked = [flow.cast(met, "float64"), flow.where(met, x, -x), flow.reshape(met, (1,))]
    values = flow.run(asked, {"x": np.ones((2, 3))}).values
    assert [one.tolist() for one in values] == [1.0, [[1.0] * 3] * 2, [True]]


@pytest.mark.parametrize("broadcast_dead", [False, True])
@pytest.mark.parametrize("is_taken", [True, False])
def test_a_group_of_a_branch_that_is_not_taken_is_dead(is_taken, broadcast_dead):
    """So the value is that of the branch that is taken, however late it comes, on any worker."""
    slow = Device(name="slow", flop_per_s=1.0, memory_bandwidth_bytes_per_s=8.0)
    cluster = Cluster(name="two", devices=(slow, slow))
    with flow.FlowGraph() as graph:
        taken, x = flow.input("taken", (), "bool"), flow.input("x", (2,))
        weight = flow.variable("weight", [1.0, 2.0])

        def stepped() -> tuple[flow.Tensor, ...]:
            done = flow.minimize(flow.sum(weight * x), sgd(0.5))
            twice = x + x
            with flow.device(1):
                return done, flow.logical_not(done), twice * 2.0

        def measured() -> tuple[flow.Tensor, ...]:
            return flow.sum(x) < 0.0, flow.sum(x) > 0.0, x

        asked = flow.cond(taken, stepped, measured)
    feeds = {"taken": is_taken, "x": [1.0, 1.0]}
    result = flow.run(asked, feeds, cluster=cluster, broadcast_dead=broadcast_dead)
    assert [one.tolist() for one in result.values[:2]] == [is_taken, not is_taken]
    assert flow.variables(graph)["weight"].tolist() == ([0.5, 1.5] if is_taken else [1.0, 2.0])


def test_a_feed_has_one_shape_and_is_within_its_type():
    with flow.FlowGraph():
        x, count = flow.input("x", (2, 3)), flow.input("count", (), "int8")
    with pytest.raises(OptionError, match=r"^feeds: input 'count' must be within int8, got 300$"):
        flow.run(count, {"count": 300})
    with pytest.raises(OptionError, match=r"^feeds: input 'x' must have one shape, got \[\[1\]"):
        flow.run(x, {"x": [[1], [1, 2]]})
