"""Times and messages of programs that are cut over two devices meet closed forms exactly."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampsim import flow
from ampsim.clock import WallClock
from ampsim.errors import OptionError
from ampsim.hardware import Cluster, Device, Link
from ampsim.optim import sgd

PRODUCT_S = 1.0
PRODUCT_FLOP = 2 * 2 * 2 * 2
MATRIX_BYTES = 2 * 2 * 8
LATENCY_S, BANDWIDTH_BYTES_PER_S = 0.25, 64.0  # all times are exact in binary
CROSSING_S = LATENCY_S + MATRIX_BYTES / BANDWIDTH_BYTES_PER_S
EYE = {"x": np.eye(2), "w": np.eye(2)}


def pair() -> Cluster:
    devices = tuple(
        Device(name=name, flop_per_s=PRODUCT_FLOP / PRODUCT_S) for name in ("left", "right")
    )
    link = Link(latency_s=LATENCY_S, bandwidth_bytes_per_s=BANDWIDTH_BYTES_PER_S)
    return Cluster(name="pair", devices=devices, link=link)


def near(seconds: float) -> object:
    """Equal but for rounding: a clock counts ticks of 1e-18 s."""
    return pytest.approx(seconds, rel=1e-12, abs=1e-15)


def test_two_products_over_a_link_take_both_and_the_way_between():
    with flow.FlowGraph():
        x = flow.input("x", (2, 2))
        y = flow.matmul(x, x)
        with flow.device("right"):
            z = flow.matmul(y, y)
    result = flow.run(z, {"x": np.eye(2)}, cluster=pair())
    assert result.makespan_s == near(2 * PRODUCT_S + CROSSING_S)
    assert result.spans["worker"].tolist() == [0, 1]
    assert result.sent == {"tensors": 1, "predicates": 0, "signals": 0, "dead": 0}
    assert result.transfers["bytes"].tolist() == [MATRIX_BYTES]  # y once, though it is read twice


def test_a_step_of_variables_on_another_worker_is_signalled_and_their_weights_stay_there():
    with flow.FlowGraph():
        with flow.device(1):
            x, w = flow.input("x", (2, 2)), flow.variable("w", np.ones((2, 2)))
            loss = flow.sum(flow.matmul(x, w))
        step = flow.minimize(loss, sgd(0.1))
        result = flow.run([step, loss], {"x": np.eye(2)}, cluster=pair())
    assert (result.values[0], w.node.attributes["held"].value.tolist()) == (True, [[0.9] * 2] * 2)
    assert result.sent == {"tensors": 0, "predicates": 0, "signals": 1, "dead": 0}
    assert result.transfers["bytes"].tolist() == [1]
    assert result.makespan_s == result.spans["end_s"].max() > 2 * PRODUCT_S  # not the signal's end


def right(y: flow.Tensor) -> flow.Tensor:
    with flow.device(1):
        return flow.tanh(y)


def twice(y: flow.Tensor) -> flow.Tensor:
    return flow.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, y), (0, y))[1]


ROUNDS: dict[str, Any] = {
    "as it is": lambda i, y, z, a: (i + 1, y, right(z)),
    "as each other": lambda i, y, z, a: (i + 1, z, y),
    "through a loop": lambda i, y, z, a: (i + 1, twice(y), z),
    "through a branch": lambda i, y, z, a: (i + 1, flow.cond(i < 1, lambda: y, lambda: y), z),
    "through one branch": lambda i, y, z, a: (
        i + 1, flow.cond(i < 1, lambda: y, lambda: right(y)), z
    ),
    "as what is outside": lambda i, y, z, a: (i + 1, a, right(z)),
}  # fmt: skip
"""What a body gives of two variables, and of what both start from."""


@pytest.mark.parametrize("body", ROUNDS.values(), ids=ROUNDS)
def test_what_goes_round_as_it_is_stays_on_its_worker_and_its_gradient_too(body):
    with flow.FlowGraph():
        x = flow.input("x", (2, 2))
        a = right(x)
        _, y, z = flow.while_loop(
            lambda i, y, z: i < 3, lambda i, y, z: body(i, y, z, a), (0, a, a)
        )
        with flow.device(1):
            total = flow.sum(y + z)
        asked = [total, *flow.gradients(total, [a])]
    result = flow.run(asked, {"x": np.eye(2)}, cluster=pair())
    sizes = result.transfers["bytes"].tolist()
    assert [one for one in sizes if one > 8] == [MATRIX_BYTES]  # x; others are counts and signals
    np.testing.assert_equal(result.values, flow.run(asked, {"x": np.eye(2)}).values)


def test_what_changes_a_variable_is_where_that_is_also_where_nothing_reads_it():
    with flow.FlowGraph():
        w = flow.variable("w", np.ones((2, 2)))
        with flow.device(1):
            copy = flow.variable("copy", np.zeros((2, 2)))
        asked = flow.assign(copy, w)
    for placement, there in (({}, [MATRIX_BYTES]), ({"w": 1}, [])):
        result = flow.run(asked, cluster=pair(), placement=placement)
        assert result.transfers["bytes"].tolist() == there


@pytest.mark.parametrize("name", ["assign-1", "assign_rows-1", "update-1"])
def test_what_changes_a_variable_is_not_placed_apart_from_it(name):
    with flow.FlowGraph():
        w, v = flow.variable("w", np.ones((1, 2))), flow.variable("v", np.ones((1, 2)))
        changed = {
            "assign-1": lambda: flow.assign(w, v),
            "assign_rows-1": lambda: flow.assign_rows(w, np.zeros(1, int), v),
            "update-1": lambda: flow.minimize(flow.sum(w), sgd(0.1), by=[w]),
        }[name]()
    with pytest.raises(OptionError, match=rf"^placement: {name} is where its .*; place 'w'$"):
        flow.run(changed, cluster=pair(), placement={name: 1})
    flow.run(changed, cluster=pair(), placement={"w": 1})  # also where nothing reads it


def test_what_is_drawn_in_a_device_is_drawn_there():
    """The number of runs before is one number, and what is drawn many."""
    with flow.FlowGraph():
        dice = flow.Generator("dice", 1)
        with flow.device(1):
            asked = flow.sum(dice.random((2, 2)))
    result = flow.run(asked, cluster=pair())
    assert result.transfers["bytes"].tolist() == [8]
    assert set(result.spans["worker"]) == {1}


@pytest.mark.parametrize("trips", [1, 2, 5])
def test_an_iteration_of_a_cut_loop_takes_both_products_and_both_ways(trips):
    """w and the first predicate, a byte, take the link before what the first iteration sends."""

    def body(i: flow.Tensor, y: flow.Tensor) -> tuple[flow.Tensor, ...]:
        with flow.device(1):
            half = flow.matmul(y, w)
        with flow.device(0):
            return i + 1, flow.matmul(half, w)

    with flow.FlowGraph():
        x, w = flow.input("x", (2, 2)), flow.input("w", (2, 2))
        y = flow.while_loop(lambda i, y: i < trips, body, (0, x))[1]
    result = flow.run(y, EYE, cluster=pair())
    first_s = (MATRIX_BYTES + 1) / BANDWIDTH_BYTES_PER_S
    assert result.makespan_s == near(first_s + trips * 2 * (PRODUCT_S + CROSSING_S))
    assert result.sent == {
        "tensors": 2 * trips + 1,  # there and back, and w once
        "predicates": trips + 1,  # the last of them false
        "signals": 0,
        "dead": 2,  # there and back, after the last iteration
    }
    assert len(result.transfers) == sum(result.sent.values())
    tensors_bytes = (2 * trips + 1) * MATRIX_BYTES
    assert result.transfers["bytes"].sum() == tensors_bytes + trips + 1 + 2  # others are a byte


@pytest.mark.parametrize("steps", [1, 4])
def test_a_branch_that_is_not_taken_is_told_for_each_tensor_or_once(steps):
    with flow.FlowGraph():
        x, p = flow.input("x", (2, 2)), flow.input("p", (), "bool")

        def deep() -> flow.Tensor:
            parts = [flow.tanh(x * float(place + 2)) for place in range(steps)]
            with flow.device(1):
                return flow.sum(flow.concat(parts))

        asked = flow.cond(p, deep, lambda: flow.sum(x))
    for broadcast_dead, there in ((False, steps), (True, 1)):
        result = flow.run(
            asked, {"x": np.eye(2), "p": False}, cluster=pair(), broadcast_dead=broadcast_dead
        )
        assert result.sent["dead"] == there
        assert float(result.values[0]) == 2.0


# --- F5: a chain of stages, and the window


def stages(seconds: list[float], latency_s: float = 0.0) -> Cluster:
    """A device for each stage, on which a product of two rows and columns takes so long."""
    devices = tuple(
        Device(name=f"stage-{number}", flop_per_s=PRODUCT_FLOP / one)
        for number, one in enumerate(seconds)
    )
    return Cluster(name="stages", devices=devices, link=Link(latency_s=latency_s))


def chain(trips: int, stages: int, *, is_collected: bool = True) -> list[flow.Tensor]:
    """Each stage multiplies what the one before gives by its own last result.

    Where it is collected, the last one's result is a variable of the loop on the first device.
    """
    with flow.FlowGraph():
        x = flow.input("x", (2, 2))

        def body(
            i: flow.Tensor, states: list[flow.Tensor], last: flow.Tensor
        ) -> tuple[object, ...]:
            after = [x]
            for number, state in enumerate(states):
                with flow.device(number):
                    after.append(flow.matmul(after[-1], state))
            with flow.device(0):
                return i + 1, after[1:], flow.identity(after[-1]) if is_collected else last

        inits = (0, [x] * stages, x)
        _, states, last = flow.while_loop(lambda i, _states, _last: i < trips, body, inits)
        return [*states, last]


def chain_s(cluster: Cluster, trips: int, window: int, **options: Any) -> float:
    built = chain(trips, cluster.workers, is_collected=options.pop("is_collected", True))
    feeds = {"x": np.eye(2)}
    result = flow.run(built, feeds, cluster=cluster, parallel_iterations=window, **options)
    assert result.window_max <= (window or trips + 1)
    return result.makespan_s


@pytest.mark.parametrize("run_ahead", [True, False])
@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 5), trips=st.integers(1, 12), window=st.integers(1, 7))
def test_equal_stages_take_the_closed_form_of_their_window(run_ahead, n, trips, window):
    """F5: with k' = min(k, n) it is floor((N - 1) / k') n + (N - 1) mod k' + n products."""
    seconds = chain_s(stages([1.0] * n), trips, window, run_ahead=run_ahead)
    if n == 1 and run_ahead:  # what one device gives needs not come back to it
        assert seconds == near(trips)
        return
    under_way = min(window, n)
    assert seconds == near((trips - 1) // under_way * n + (trips - 1) % under_way + n)


def chain_of(seconds: list[float], latency_s: float, trips: int, window: int) -> float:
    """When the last of unequal stages has told the first, by recursion over iterations."""
    ended = [0.0] * len(seconds)
    over: list[float] = []
    for trip in range(trips):
        opened = over[trip - window] if trip >= window else 0.0
        for stage, one in enumerate(seconds):
            comes = opened if stage == 0 else ended[stage - 1] + latency_s
            ended[stage] = max(comes, ended[stage], opened + latency_s * (stage > 0)) + one
        over.append(max(ended[-1] + latency_s, over[-1] if over else 0.0))
    return over[-1]


latencies = st.sampled_from([0.0, 0.25, 3.0])


@settings(max_examples=40, deadline=None)
@given(
    seconds=st.lists(st.integers(1, 8).map(lambda one: one / 4), min_size=2, max_size=5),
    latency_s=latencies, trips=st.integers(1, 12), window=st.integers(1, 7),
)  # fmt: skip
def test_unequal_stages_take_the_recursion_of_their_window(seconds, latency_s, trips, window):
    """A window is no factor on the speed: the longest stage and the whole way bound it."""
    found_s = chain_s(stages(seconds, latency_s), trips, window)
    assert found_s == near(chain_of(seconds, latency_s, trips, window))


@pytest.mark.parametrize("window", [1, 2, 3, 8])
def test_an_iteration_takes_the_longest_stage_or_its_share_of_the_whole_way(window):
    """F5: max(max s, (sum of s and of latencies) / k) seconds an iteration, whatever k is."""
    seconds, latency_s = [1.0, 2.5, 0.5, 1.0], 0.25
    times_s = [chain_s(stages(seconds, latency_s), trips, window) for trips in (48, 96)]
    way_s = sum(seconds) + latency_s * len(seconds)
    assert (times_s[1] - times_s[0]) / 48 == near(max(max(seconds), way_s / window))


@pytest.mark.parametrize("window", [1, 2, 8, 0])
def test_no_participant_waits_for_another_at_the_end_of_an_iteration(window):
    """Where nothing comes back, a barrier alone would make a chain wait for its end."""
    assert chain_s(stages([1.0] * 4), 10, window, is_collected=False) == near(10 + 3)


# --- F8: a loop over many devices


def wide(trips: int, devices: int, *, has_barrier: bool) -> list[flow.Tensor]:
    """A product of its own on each device, and a sum of all that each waits for."""
    with flow.FlowGraph():
        x = flow.input("x", (2, 2))

        def body(i: flow.Tensor, states: list[flow.Tensor]) -> tuple[object, ...]:
            after: list[flow.Tensor] = []
            for number, state in enumerate(states):
                with flow.device(number):
                    after.append(flow.matmul(state, state))
            if not has_barrier:
                return i + 1, after
            with flow.device(0):
                together = flow.sum(flow.concat(after))
            for number, state in enumerate(list(after)):
                with flow.device(number):
                    after[number] = state * together
            return i + 1, after

        return flow.while_loop(lambda i, _states: i < trips, body, (0, [x] * devices))[1]


def wide_run(trips: int, devices: int, latency_s: float, *, has_barrier: bool) -> flow.FlowResult:
    """The same, on hosts of which each step takes a second, and devices that take no time."""
    device = Device(name="fast", flop_per_s=1e24, dispatch_s=1.0)
    link = Link(latency_s=latency_s)
    cluster = Cluster(name="wide", devices=(device,) * devices, link=link)
    built = wide(trips, devices, has_barrier=has_barrier)
    feeds = {"x": np.zeros((2, 2))}
    return flow.run(built, feeds, cluster=cluster, parallel_iterations=8)


@pytest.mark.parametrize("devices", [1, 2, 3, 6])
@pytest.mark.parametrize("latency_s", [0.0, 40.0])
@pytest.mark.parametrize("has_barrier", [False, True])
def test_an_iteration_over_many_devices_is_the_first_hosts_or_the_way_there_and_back(
    devices, latency_s, has_barrier
):
    """F8: a + (m - 1) b on the first host; a barrier has two latencies, and m - 1 receipts."""
    short, long = (
        wide_run(trips, devices, latency_s, has_barrier=has_barrier) for trips in (40, 64)
    )
    found_s = (long.makespan_s - short.makespan_s) / 24
    host_s, way_s = 10 + devices - 1, 0.0
    if has_barrier and devices == 1:
        host_s = 13
    elif has_barrier:  # the first device has a control loop, a Recv and a second Send of each
        host_s, way_s = 16 + 3 * (devices - 1), 2 * latency_s + 13 + devices - 1
    assert found_s == pytest.approx(max(host_s, way_s), rel=1e-9)
    others = devices - 1
    for trips, result in ((40, short), (64, long)):
        assert result.sent["predicates"] == others * (trips + 1)  # the last of them false
        sums = 2 * trips if has_barrier else 0
        assert result.sent["tensors"] == others * (sums + 1)  # and x once
        assert result.sent["dead"] == (2 * others if has_barrier else 0)


@pytest.mark.parametrize("devices", [2, 5])
def test_each_participant_is_told_to_go_on_in_each_iteration_and_once_to_end(devices):
    """F8: what its control loop's Switch decides, in the order of iterations."""
    trips = 7
    told = wide_run(trips, devices, 40.0, has_barrier=False).decisions
    told = told[told["node"].str.startswith("switch of while-1 at")].sort_values("time_s")
    assert set(told["worker"]) == set(range(1, devices))
    for _worker, own in told.groupby("worker"):
        assert own["tag"].tolist() == [f"while-1/{number}" for number in range(trips + 1)]
        assert own["taken"].tolist() == [True] * trips + [False]


# --- F9: sums are made in the order of the graph, never in that of arrival


def test_gradients_of_one_place_are_added_in_the_order_of_the_graph_whoever_is_late():
    """Of three reads of a place; 1 is lost beside 1e16, unless -1e16 has come before."""
    with flow.FlowGraph():
        x = flow.input("x", (2, 2))
        array = flow.TensorArray(1).write(0, x)
        made: list[flow.Tensor] = []
        for number, weight in enumerate((1.0, 1e16, -1e16)):
            with flow.device(number):
                made.append(flow.sum(flow.matmul(array.read(0), flow.constant(np.eye(2) * weight))))
        total = made[0] + made[1] + made[2]
        asked = [total, *flow.gradients(total, [x])]
    for late in range(3):
        seconds = [8.0 if number == late else 1.0 for number in range(3)]
        slope = flow.run(asked, {"x": np.eye(2)}, cluster=stages(seconds)).values[1]
        np.testing.assert_array_equal(slope, np.ones((2, 2)))  # that of the last read comes first


# --- F10: deadness over cuts


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("trips", [1, 4])
def test_dead_signals_are_one_a_tensor_or_one_a_branch_and_device(taken, trips):
    """A branch of three steps on each of three devices, in a loop that takes it or does not."""
    others, steps = 3, 3
    with flow.FlowGraph():
        x, p = flow.input("x", (2, 2)), flow.input("p", (), "bool")

        def deep(y: flow.Tensor) -> flow.Tensor:
            halves = [y * float(number + 2) for number in range(2)]
            for number in range(others):
                with flow.device(number + 1):
                    total = flow.matmul(halves[0], halves[1])
                    for _ in range(steps - 1):
                        total = flow.tanh(total)
                halves.append(total)
            with flow.device(0):
                return halves[2] + halves[3] + halves[4]

        body = lambda i, y: (i + 1, flow.cond(p, lambda: deep(y), lambda: y))  # noqa: E731  # as users write it
        built = flow.while_loop(lambda i, y: i < trips, body, (0, x))[1]
    for broadcast_dead in (False, True):
        result = flow.run(
            built, {"x": np.eye(2) / 8, "p": taken}, cluster=stages([1.0] * (others + 1)),
            broadcast_dead=broadcast_dead,
        )  # fmt: skip
        counts = result.evaluations.query("worker > 0 and operator in ('matmul', 'tanh')")
        crossed = trips + 1  # the last iteration is dead throughout
        assert int(counts["live"].sum()) == (others * steps * trips if taken else 0)
        assert int(counts["dead"].sum()) == others * steps * (crossed - trips * taken)
        there = 1 if broadcast_dead else 2
        back = 1
        assert result.sent["dead"] == (there + back) * others * (crossed - trips * taken)


def through(n: int, trips: int) -> tuple[list[flow.Tensor], list[flow.Tensor]]:
    """A value that visits each of n other devices where p holds; it, and with its gradient."""
    with flow.FlowGraph():
        x, p = flow.input("x", (2, 2)), flow.input("p", (), "bool")

        def visit(y: flow.Tensor) -> flow.Tensor:
            for number in range(n):
                with flow.device(number + 1):
                    y = flow.tanh(y)
            with flow.device(0):
                return y * 2.0

        def choose(y: flow.Tensor) -> flow.Tensor:
            return flow.cond(p, lambda: visit(y), lambda: y)

        body = lambda i, y: (i + 1, choose(y))  # noqa: E731  # as users write it
        made = flow.while_loop(lambda i, y: i < trips, body, (0, x))[1] if trips else choose(x)
        return [made], [made, *flow.gradients(flow.sum(made), [x])]


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("trips", [0, 1, 4])
def test_a_cut_carries_one_message_an_iteration_alive_or_dead_with_gradients_too(trips, n):
    """What a branch does not send alive it sends dead: nobody waits, and nobody is told twice.

    A value goes there and back over n + 1 cuts, its gradient over as many, and the other branch's
    gradient over one to where both are added. The last iteration of a loop is dead throughout.
    """
    for built, cuts in zip(through(n, trips), (n + 1, 2 * n + 2), strict=True):
        sent, made = {}, {}
        for taken in (False, True):
            for broadcasts in (False, True):
                result = flow.run(
                    built, {"x": np.eye(2) / 8, "p": taken}, cluster=stages([1.0] * (n + 1)),
                    broadcast_dead=broadcasts,
                )  # fmt: skip
                sent[taken, broadcasts], made[taken, broadcasts] = result.sent, result.values
            np.testing.assert_equal(made[taken, True], made[taken, False])
            alive = {key: sent[taken, True][key] for key in sent[taken, True] if key != "dead"}
            assert alive.items() <= sent[taken, False].items()
            assert sent[taken, True]["dead"] <= sent[taken, False]["dead"]
        there, not_there = sent[True, False], sent[False, False]
        assert sum(there.values()) == sum(not_there.values())
        more = not_there["dead"] - there["dead"]
        assert more == sum(there[key] - not_there[key] for key in ("tensors", "signals"))
        if trips:
            assert there["tensors"] - not_there["tensors"] == trips * cuts
            assert there["dead"] == len(built) // 2 * (6 * n + 1) + n + 1
        elif len(built) == 1:
            assert (there["tensors"], there["dead"]) == (cuts, 0)
            assert (not_there["tensors"], not_there["dead"]) == (0, cuts)
        else:
            assert (there["tensors"], there["dead"]) == (cuts - 1, 1)
            assert (not_there["tensors"], not_there["dead"]) == (1, cuts - 1)


@pytest.mark.quiet
@pytest.mark.slow
def test_the_wall_clock_tells_the_same_story_of_several_devices():
    built, cluster = chain(6, 3), stages([0.02, 0.03, 0.01], 0.0137)
    virtual = flow.run(built, {"x": np.eye(2)}, cluster=cluster, parallel_iterations=2)
    with closing(WallClock()) as clock:
        wall = flow.run(
            built, {"x": np.eye(2)}, cluster=cluster, parallel_iterations=2, clock=clock
        )
    assert virtual.spans.equals(wall.spans)
    assert virtual.transfers.equals(wall.transfers)
    assert virtual.frames.equals(wall.frames)
