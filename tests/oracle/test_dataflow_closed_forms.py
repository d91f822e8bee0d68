"""Times, windows, deadness and stacks of in-graph control flow meet closed forms exactly."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampsim import flow
from ampsim.clock import WallClock
from ampsim.hardware import Cluster, Device

quarters = st.integers(1, 20).map(lambda number: number / 4)  # exact in binary
FLOP = 2 * 2 * 2 * 2
"""Of a product of two matrices of two rows and columns."""

EYE = {"x": np.eye(2), "w": np.eye(2)}


def cluster_of(seconds: float, dispatch_s: float = 0.0) -> Cluster:
    """A device on which a product takes so long."""
    device = Device(name="test", flop_per_s=FLOP / seconds, dispatch_s=dispatch_s)
    return Cluster(name="test", devices=(device,))


def near(seconds: Any) -> Any:
    """Equal but for rounding: a clock counts ticks of 1e-18 s."""
    return pytest.approx(seconds, rel=1e-12, abs=1e-15)


def chain(products: int) -> flow.Tensor:
    """Products one after the other, without a loop."""
    with flow.FlowGraph():
        y, w = flow.input("x", (2, 2)), flow.input("w", (2, 2))
        for _ in range(products):
            y = flow.matmul(y, w)
        return y


def loop(trips: int) -> flow.Tensor:
    """As many in a loop."""
    with flow.FlowGraph():
        x, w = flow.input("x", (2, 2)), flow.input("w", (2, 2))
        return flow.while_loop(
            lambda i, y: i < trips, lambda i, y: (i + 1, flow.matmul(y, w)), (0, x)
        )[1]


def independent(trips: int) -> flow.Tensor:
    """Products that do not wait for each other."""
    with flow.FlowGraph():
        x, w = flow.input("x", (2, 2)), flow.input("w", (2, 2))
        rows = flow.TensorArray(trips)
        body = lambda i, a: (i + 1, a.write(i, flow.matmul(x, w)))  # noqa: E731  # as users write it
        return flow.while_loop(lambda i, a: i < trips, body, (0, rows))[1].stack()


@settings(max_examples=25, deadline=None)
@given(h=quarters, d=quarters, n=st.integers(1, 6))
def test_a_host_runs_ahead_of_its_device_or_waits_for_it(h, d, n):
    """Two inputs are dispatched, then a product each h; ahead it costs max(h, d), else h + d."""
    ahead = flow.run(chain(n), EYE, cluster=cluster_of(d, h))
    assert ahead.makespan_s == near(3 * h + d + (n - 1) * max(h, d))
    behind = flow.run(chain(n), EYE, cluster=cluster_of(d, h), run_ahead=False)
    assert behind.makespan_s == near(2 * h + n * (h + d))


@pytest.mark.parametrize(("h", "d"), [(0.25, 16.0), (2.0, 0.5)])
def test_an_iteration_takes_the_longer_of_its_dispatches_and_its_kernels(h, d):
    short, long = (flow.run(loop(n), EYE, cluster=cluster_of(d, h)) for n in (10, 11))
    counts = [int(one.evaluations[["live", "dead"]].sum().sum()) for one in (short, long)]
    more = counts[1] - counts[0]
    assert more == 10  # two of Merge, Switch and NextIteration; i < n, i + 1, a product, dead Exit
    assert long.makespan_s - short.makespan_s == near(max(d, more * h))


@settings(max_examples=25, deadline=None)
@given(d=quarters, n=st.integers(1, 9), k=st.integers(1, 6))
def test_an_iteration_opens_when_the_window_has_room(d, n, k):
    """Iteration i of n opens when iteration i - k is over: (i - k + 1) products have been made."""
    result = flow.run(
        independent(n), EYE, cluster=cluster_of(d), parallel_iterations=k, run_ahead=False
    )
    opened = result.frames["opened_s"].tolist()
    assert opened == near([max(0, i - k + 1) * d for i in range(n + 1)])
    assert result.window_max == min(k, n + 1)
    assert result.frames["iteration"].tolist() == list(range(n + 1))
    assert result.frames["over_s"].is_monotonic_increasing
    assert result.makespan_s == near(n * d)


def test_a_window_of_none_bounds_nothing():
    result = flow.run(
        independent(9), EYE, parallel_iterations=0, cluster=cluster_of(1.0), run_ahead=False
    )
    assert result.window_max == 10


@pytest.mark.parametrize("window", [1, 2, 3])
def test_a_window_is_of_a_frame_and_not_of_the_graph_or_of_the_loop(window):
    """Each run of the inner loop has a window of its own, and so has the outer one."""
    with flow.FlowGraph():
        x, w = flow.input("x", (2, 2)), flow.input("w", (2, 2))

        def body(i: flow.Tensor, a: flow.TensorArray) -> tuple[object, ...]:
            rows = flow.TensorArray(6)
            within = lambda j, b: (j + 1, b.write(j, flow.matmul(x, w)))  # noqa: E731  # as users write it
            inner = flow.while_loop(lambda j, b: j < 6, within, (0, rows))[1]
            return i + 1, a.write(i, flow.sum(inner.stack()))

        kept = flow.TensorArray(4)
        asked = flow.while_loop(lambda i, a: i < 4, body, (0, kept))[1].stack()
    result = flow.run(
        asked, EYE, cluster=cluster_of(1.0), parallel_iterations=window, run_ahead=False
    )
    loops = result.frames.assign(frame=result.frames["tag"].str.rpartition("/")[0])
    outer = loops["frame"].str.count("/") == 0
    at_once = {name: most_open(one) for name, one in loops[~outer].groupby("frame") if len(one) > 1}
    assert len(at_once) == 4
    assert set(at_once.values()) == {window}
    assert most_open(loops[outer]) == window
    assert most_open(loops[~outer]) == window**2
    assert result.window_max == window


def squared(trips: int, y: Any) -> Any:
    """A loop whose gradient needs every value that it had."""
    return flow.while_loop(lambda i, y: i < trips, lambda i, y: (i + 1, y * y), (0, y))[1]


@pytest.mark.parametrize("memory_bytes", [None, 10**6])
@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize(("outer", "inner"), [(0, 0), (1, 0), (1, 7), (40, 2), (3, 5)])
def test_a_stack_is_as_deep_as_its_loop_has_iterations(outer, inner, window, memory_bytes):
    """One of the inner loop is new in each iteration of the outer one, whose stacks keep those."""
    with flow.FlowGraph():
        x = flow.input("x", (2,))
        body = lambda i, y: (i + 1, flow.tanh(squared(inner, y)))  # noqa: E731  # as users write it
        y = flow.while_loop(lambda i, y: i < outer, body, (0, x))[1]
        asked = flow.gradients(flow.sum(y), [x])
    device = Device(name="test", flop_per_s=1.0, memory_bytes=memory_bytes)
    result = flow.run(
        asked, {"x": np.ones(2)}, cluster=Cluster(name="test", devices=(device,)),
        parallel_iterations=window,
    )  # fmt: skip
    assert result.stack_depth_max == (max(outer, inner) if outer else 0)


def test_what_saves_nothing_for_a_gradient_has_no_stack():
    assert flow.run(loop(5), EYE, cluster=cluster_of(1.0)).stack_depth_max == 0


def both_of(n: Any, x: Any, y: Any) -> Any:
    """What follows from x, and beside it, for nobody, what follows from y."""
    return flow.cond(n > 2, lambda: (x * 2.0, y * y), lambda: (x * x, y * 3.0))[0]


def of_loop(n: Any, x: Any, y: Any) -> Any:
    return flow.while_loop(lambda i, *_: i < n, lambda i, a, b: (i + 1, a * x, b * y), (0, x, y))[1]


INSIDE: dict[str, Any] = {
    "a cond in a cond": lambda n, x, y: flow.cond(n > 1, lambda: both_of(n, x, y), lambda: x),
    "a loop in a cond": lambda n, x, y: flow.cond(n > 1, lambda: of_loop(n, x, y), lambda: x),
    "a cond in a loop": lambda n, x, y: flow.while_loop(
        lambda i, _a: i < n, lambda i, a: (i + 1, both_of(i, a, y)), (0, x)
    )[1],
}


@pytest.mark.parametrize("inside", INSIDE)
def test_along_an_output_that_nobody_uses_no_gradient_goes_back(inside):
    """Of a construct in another: zeros went back through both, in all iterations."""
    device = Device(name="test", flop_per_s=1.0, memory_bandwidth_bytes_per_s=1.0)
    runs: list[flow.FlowResult] = []
    for count in (1, 2):
        with flow.FlowGraph():
            x, y, n = flow.input("x", (2,)), flow.input("y", (2,)), flow.input("n", (), "int64")
            z = flow.sum(INSIDE[inside](n, x, y)) + flow.sum(y)
            asked = [z, *flow.gradients(z, [x, y][:count])]
        feeds = {"x": np.full(2, 2.0), "y": np.ones(2), "n": 3}
        runs.append(flow.run(asked, feeds, cluster=Cluster(name="test", devices=(device,))))
    assert (runs[1].values[1] == runs[0].values[1]).all()
    assert (runs[1].values[2] == 1).all()
    assert len(runs[1].spans) == len(runs[0].spans) + 1  # the sum's


@pytest.mark.parametrize("window", [1, 2, 3])
def test_a_loop_has_the_window_that_it_asks_for_and_so_has_its_gradient(window):
    """Whatever the run says; loops of maps, folds and scans likewise."""
    how = {"parallel_iterations": window}
    with flow.FlowGraph():
        x, w = flow.input("x", (2, 2)), flow.input("w", (2, 2))
        body = lambda i, a: (i + 1, a.write(i, flow.matmul(x, w)))  # noqa: E731  # as users write it
        rows = flow.while_loop(lambda i, a: i < 8, body, (0, flow.TensorArray(8)), **how)[1].stack()
        beside = lambda a, row: flow.sum(flow.matmul(row, w))  # noqa: E731  # which waits for no other
        made = [
            flow.map_fn(lambda row: flow.sum(flow.matmul(row, w)), rows, **how),
            flow.foldl(beside, rows, 0.0, **how), flow.foldr(beside, rows, 0.0, **how),
            flow.scan(beside, rows, 0.0, **how),
        ]  # fmt: skip
        total = flow.add_n(*(flow.sum(one) for one in made))
        asked = [total, *flow.gradients(total, [w])]
    result = flow.run(asked, EYE, cluster=cluster_of(1.0), parallel_iterations=5, run_ahead=False)
    loops = result.frames.groupby(result.frames["tag"].str.rpartition("-")[0])
    at_once = {name: most_open(one) for name, one in loops}
    kinds = ("while", "map", "foldl", "foldr", "scan")
    assert set(at_once) == {*kinds, *(f"{kind}-1-gradient" for kind in kinds)}
    assert set(at_once.values()) == {window}


def most_open(frames: Any) -> int:
    """The most iterations that are under way at a time."""
    changes = [(at_s, 1) for at_s in frames["opened_s"]] + [(at_s, 0) for at_s in frames["over_s"]]
    now = most = 0
    for _at_s, begins in sorted(changes):  # what is over lets the next one begin
        now += 1 if begins else -1
        most = max(most, now)
    return most


def test_the_host_waits_for_what_it_reads_and_for_nothing_else():
    """A predicate of floats must have been computed; one of integers is the host's own."""
    with flow.FlowGraph():
        x, w, n = flow.input("x", (2, 2)), flow.input("w", (2, 2)), flow.input("n", (), "int64")
        y = flow.matmul(x, w)
        of_floats = flow.cond(flow.sum(y) > 0, lambda: flow.matmul(y, w), lambda: y)
        of_integers = flow.cond(n > 0, lambda: flow.matmul(y, w), lambda: y)
    for asked, fed, decided_s in ((of_floats, {}, 2.0), (of_integers, {"n": 1}, 0.0)):
        result = flow.run(asked, {**EYE, **fed}, cluster=cluster_of(2.0))
        assert set(result.decisions["time_s"]) == {decided_s}
        assert result.makespan_s == 4.0


@pytest.mark.parametrize("n", [0, 1, 5])
def test_steps_of_a_branch_that_is_not_taken_are_dead_and_cost_nothing(n):
    with flow.FlowGraph():
        x, w, p = flow.input("x", (2, 2)), flow.input("w", (2, 2)), flow.input("p", (), "bool")

        def deep() -> flow.Tensor:
            y = x
            for _ in range(n):
                y = flow.matmul(y, w)
            return y

        asked = flow.cond(p, deep, lambda: x)
    result = flow.run(asked, {**EYE, "p": False} if n else {"x": np.eye(2), "p": False})
    counts = result.evaluations.groupby("operator")[["live", "dead"]].sum()
    assert result.makespan_s == 0
    assert int(counts["dead"].sum()) == n
    externals = 3 if n else 2  # x in either branch, and w: a Switch each
    assert counts.T["switch"].tolist() == [externals, 0]
    assert result.decisions["taken"].tolist() == [False] * externals


def test_a_loop_on_a_branch_that_is_not_taken_runs_once_dead():
    with flow.FlowGraph():
        x, p = flow.input("x"), flow.input("p", (), "bool")

        def looped() -> flow.Tensor:
            return flow.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2.0), (0, x))[1]

        asked = flow.cond(p, looped, lambda: x)
    result = flow.run(asked, {"x": 1.5, "p": False})
    assert result.values == [1.5]
    counts = result.evaluations.groupby("operator")[["live", "dead"]].sum()
    assert counts.T["enter"].tolist() == [0, 2]
    assert counts.T["next-iteration"].tolist() == [0, 2]
    assert counts.T["exit"].tolist() == [0, 1]
    assert result.frames["tag"].tolist() == ["while-1/0"]


@pytest.mark.parametrize("is_taken", [True, False])
@pytest.mark.parametrize("trips", [0, 1, 7])
@pytest.mark.parametrize("variables", [1, 2, 7])
def test_each_variable_leaves_a_loop_once_however_many_there_are(variables, trips, is_taken):
    """Its Exit is dead in all iterations but the last; on a side that is not taken, in the one.

    Of two loops one after the other, so that the second one waits for what leaves the first.
    """
    with flow.FlowGraph():
        x, p = flow.input("x"), flow.input("p", (), "bool")

        def looped() -> list[flow.Tensor]:
            body = lambda i, *y: (i + 1, *(one + 1.0 for one in y))  # noqa: E731  # as users write it
            state = [x + float(number) for number in range(variables)]
            for _ in range(2):
                state = list(flow.while_loop(lambda i, *y: i < trips, body, (0, *state))[1:])
            return state

        asked = flow.cond(p, looped, lambda: [x] * variables)
    result = flow.run(asked, {"x": 0.0, "p": is_taken})
    left = [number + 2 * trips if is_taken else 0.0 for number in range(variables)]
    assert [float(one) for one in result.values] == left
    exits = result.evaluations.groupby("operator")[["live", "dead"]].sum().T["exit"].tolist()
    expected = [variables, variables * trips] if is_taken else [0, variables]
    assert exits == [2 * one for one in expected]


@pytest.mark.parametrize("inner", [0, 1, 3])
def test_every_value_that_a_loop_pushes_is_popped(inner):
    with flow.FlowGraph():
        x = flow.input("x")

        def body(i: flow.Tensor, y: flow.Tensor) -> tuple[flow.Tensor, ...]:
            _, z = flow.while_loop(
                lambda j, z: j < i * inner, lambda j, z: (j + 1, flow.tanh(z) * y), (0, y)
            )
            return i + 1, flow.cond(i % 2 > 0, lambda: flow.exp(z * 0.1), lambda: z * z)

        y = flow.while_loop(lambda i, y: i < 4, body, (0, x))[1]
        asked = flow.gradients(y, [x])
    counts = flow.run(asked, {"x": 0.5}).evaluations.groupby("operator")["live"].sum()
    assert counts["push"] == counts["pop"] > 0


def test_what_a_loop_captures_is_never_pushed():
    with flow.FlowGraph() as graph:
        x, w = flow.input("x", (2, 2)), flow.input("w", (2, 2))
        body = lambda i, y: (i + 1, flow.matmul(y, w))  # noqa: E731  # as users write it
        y = flow.while_loop(lambda i, y: i < 3, body, (0, x))[1]
        flow.gradients(flow.sum(y), [x, w])
    pushed = [node.inputs[1].node.name for node in graph.nodes if node.operator.name == "push"]
    assert pushed == ["switch-2"]  # y at the start of an iteration


def test_of_what_only_the_shape_is_needed_the_shape_is_pushed_and_not_the_numbers():
    """The gradient of a sum is as long as what was summed, which grows from trip to trip."""
    with flow.FlowGraph() as graph:
        x = flow.input("x", (2,))
        body = lambda i, y, s: (i + 1, flow.concat([y, y], axis=0), s + flow.sum(y))  # noqa: E731  # as users write it
        shapes = [(), (None,), ()]
        total = flow.while_loop(lambda i, y, s: i < 4, body, (0, x, 0.0), shapes=shapes)[2]
        asked = flow.gradients(total, [x])
    pushed = [node.inputs[1] for node in graph.nodes if node.operator.name == "push"]
    assert pushed
    assert not [one.node.name for one in pushed if one.is_float]
    assert flow.run(asked, {"x": np.ones(2)}).values[0].tolist() == [1 + 2 + 4 + 8] * 2


@pytest.mark.parametrize("run_ahead", [True, False])
def test_each_step_is_charged_once_on_each_lane_and_what_its_device_file_says(run_ahead):
    """The host's dispatches, live and dead, and the device's kernels; neither is charged twice."""
    keys = {"dispatch_s": 0.25, "step_overhead_s": 2.0}
    device = Device(name="test", flop_per_s=FLOP, **keys)
    cluster = Cluster(name="test", devices=(device,))
    with flow.FlowGraph():
        x, w, p = flow.input("x", (2, 2)), flow.input("w", (2, 2)), flow.input("p", (), "bool")
        body = lambda i, y: (i + 1, flow.cond(p, lambda: flow.matmul(y, w), lambda: y))  # noqa: E731  # as users write it
        y = flow.while_loop(lambda i, y: i < 3, body, (0, x))[1]
        asked = flow.gradients(flow.sum(y), [w])
    result = flow.run(asked, {**EYE, "p": True}, cluster=cluster, run_ahead=run_ahead)
    spans = result.spans.assign(seconds=result.spans["end_s"] - result.spans["start_s"])
    lanes = spans.groupby("lane", observed=True)["seconds"].sum()
    steps = int(result.evaluations[["live", "dead"]].sum().sum())
    assert lanes["dispatch"] == near(steps * keys["dispatch_s"])
    kernels = spans[spans["lane"] == "compute"]
    expected_s = (kernels["flop"] / FLOP + keys["step_overhead_s"]).to_numpy()
    assert kernels["seconds"].to_numpy() == near(expected_s)
    assert int(kernels["flop"].sum()) == 9 * FLOP  # y w forward, y by g and g by w backward


def test_kernels_of_a_run_do_not_overlap_and_causes_lead_to_its_start():
    result = flow.run(loop(5), EYE, cluster=cluster_of(1.0, 0.25))
    spans = result.spans
    for _lane, own in spans.groupby("lane", observed=True):
        own = own[own["end_s"] > own["start_s"]].sort_values("start_s")
        assert (own["start_s"].to_numpy()[1:] >= own["end_s"].to_numpy()[:-1] - 1e-12).all()
    path = result.critical_path
    assert float((path["end_s"] - path["start_s"]).sum()) == near(result.makespan_s)
    assert spans["flop"].sum() == 5 * FLOP


@pytest.mark.quiet
@pytest.mark.slow
@pytest.mark.parametrize("run_ahead", [True, False])
def test_the_wall_clock_tells_the_same_story(run_ahead):
    made = [loop(4), independent(4)]
    for asked in made:
        options: dict[str, Any] = {"cluster": cluster_of(0.01, 0.001), "run_ahead": run_ahead}
        virtual = flow.run(asked, EYE, parallel_iterations=2, **options)
        with closing(WallClock()) as clock:
            wall = flow.run(asked, EYE, parallel_iterations=2, clock=clock, **options)
        assert virtual.spans.equals(wall.spans)
        assert virtual.frames.equals(wall.frames)
        assert virtual.decisions.equals(wall.decisions)
