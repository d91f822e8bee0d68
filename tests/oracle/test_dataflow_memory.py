"""Memory of in-graph control flow: peaks, out of memory, and swapping meet independent counts."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_tensors import peak_bytes

from ampsim import flow
from ampsim.clock import SimClock, WallClock
from ampsim.dataflow.graph import Tensor, apply
from ampsim.dataflow.plan import Plan
from ampsim.dataflow.session import Running, Session
from ampsim.errors import OptionError, OutOfMemoryError
from ampsim.hardware import Cluster, Device, Event, Link
from ampsim.trace import Recorder

ROWS = 32
UNIT = 8 * ROWS**2
"""Bytes of a matrix, of which each forward step pushes one."""

FEEDS = {"x": np.eye(ROWS), "w": np.eye(ROWS) / 2}
INPUTS = 2
IDLE = 64
"""Backward steps that a device does nothing else between forward and backward."""


new_stack, push = partial(apply, "stack"), partial(apply, "push")


def pop(handle: Tensor, like: Tensor) -> Tensor:
    return apply("pop", handle, static=like.shape, dtype=like.dtype)


def cluster_of(f: float, c: float, units: float) -> Cluster:
    """A device of a product each f and a copy each c, with room for so many matrices."""
    device = Device(
        name="test", flop_per_s=2 * ROWS**3 / f, memory_bytes=round(units * UNIT),
        copy_bandwidth_bytes_per_s=UNIT / c,
    )  # fmt: skip
    return Cluster(name="test", devices=(device,))


def pushed(trips: int, handle: flow.Tensor, x: flow.Tensor, w: flow.Tensor) -> flow.Tensor:
    """A loop that pushes a product in each iteration; the rows that it pushed."""
    body = lambda i, k: (i + 1, k + flow.length(push(handle, flow.matmul(x, w))))  # noqa: E731  # as users write it
    return flow.while_loop(lambda i, k: i < trips, body, (0, 0))[1]


def forward(trips: int) -> flow.Tensor:
    with flow.FlowGraph():
        x, w = flow.input("x", (ROWS, ROWS)), flow.input("w", (ROWS, ROWS))
        return pushed(trips, new_stack(), x, w)


def there_and_back(trips: int) -> flow.Tensor:
    """The same, then idle steps, then a loop that pops; its steps take f / ROWS."""
    with flow.FlowGraph():
        x, w = flow.input("x", (ROWS, ROWS)), flow.input("w", (ROWS, ROWS))
        handle = new_stack()
        rows = pushed(trips, handle, x, w)
        first = flow.constant(np.ones((1, ROWS)))
        idle, s = flow.while_loop(
            lambda j, s: j < IDLE, lambda j, s: (j + 1, flow.matmul(s, w)), (rows * 0, first)
        )
        left = rows // ROWS + idle * 0
        body = lambda n, s: (n - 1, flow.matmul(s, pop(handle, x)))  # noqa: E731  # as users write it
        return flow.while_loop(lambda n, s: n > 0, body, (left, s))[1]


def computed_s(result: flow.FlowResult) -> float:
    """When the last kernel ended; copies may go on."""
    spans = result.spans
    return float(spans[spans["lane"] == "compute"]["end_s"].max())


def options_of(q: int, capacity: int) -> dict[str, Any]:
    return {"swap_memory": True, "swap_threshold": (q + INPUTS + 0.5) / (capacity + INPUTS + 0.25)}


@pytest.mark.parametrize("f", [1.0, 0.375])
@pytest.mark.parametrize("copies", [0.125, 0.5, 1.0, 1.5, 2.0, 3.25])
@pytest.mark.parametrize("capacity", [2, 3, 5])
def test_a_forward_loop_waits_for_copies_only_when_memory_is_full(f, copies, capacity):
    """F6: with q <= C - 2, T = N f while N <= C or c <= f; else max(N f, (q+2) f + (N-C) c)."""
    c = copies * f
    cluster = cluster_of(f, c, capacity + INPUTS + 0.25)
    for n in (1, 2, 3, 4, 6, 9):
        asked = forward(n)
        for q in range(capacity - 1):
            result = flow.run(asked, FEEDS, cluster=cluster, **options_of(q, capacity))
            expected = n * f
            if n > capacity and c > f:
                expected = max(n * f, (q + 2) * f + (n - capacity) * c)
            assert computed_s(result) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("capacity", [1, 2, 5])
def test_without_swapping_memory_is_full_exactly_when_steps_are_more_than_fit(capacity):
    cluster = cluster_of(1.0, 1.0, capacity + INPUTS)
    result = flow.run(forward(capacity), FEEDS, cluster=cluster)
    assert result.peak_bytes.tolist() == [(capacity + INPUTS) * UNIT]
    assert result.makespan_s == pytest.approx(capacity)
    with pytest.raises(
        OutOfMemoryError,
        match=rf"^worker 0 \(test\) is out of memory at {capacity}.00 s: matmul-1 \(.*_memory.py, "
        rf"line \d+\) in while-1/{capacity} asks for 8,192 bytes, and .* are taken "
        r"\(stacks .* kB, inputs 16.4 kB\); try swap_memory=True, a smaller parallel_iterations, "
        "or a device with more memory_bytes$",
    ):
        flow.run(forward(capacity + 1), FEEDS, cluster=cluster)


def backward_s(n: int, q: int, g: float, c: float) -> float:
    """Seconds of a backward loop that starts with q values there and brings back the others."""
    there, copied_s, ends_s = min(n, q), [0.0], [0.0]
    for step in range(1, n + 1):
        start_s = ends_s[-1]
        if step > there:
            number = step - there
            room_s = min(ends_s[min(number, step - 1)], ends_s[step - 1])
            copied_s.append(max(copied_s[-1], room_s) + c)
            start_s = max(start_s, copied_s[-1])
        ends_s.append(start_s + g)
    return ends_s[-1]


@pytest.mark.parametrize("copies", [0.25, 1.0, 1.5, 4.0, 8.0])
@pytest.mark.parametrize("q", [0, 1, 2, 3])
def test_a_backward_loop_waits_for_copies_that_are_slower_than_its_steps(copies, q):
    """F6 mirrored: prefetch has room for q, so T = max(N g, 2 g + (N - q) c) where c >= g."""
    f, capacity = 1.0, q + 3
    g = f / ROWS
    c = copies * g
    cluster = cluster_of(f, c, capacity + INPUTS + 0.25)
    for n in (1, 2, 3, 5, 8):
        result = flow.run(there_and_back(n), FEEDS, cluster=cluster, **options_of(q, capacity))
        took_s = computed_s(result) - n * f - IDLE * g
        assert took_s == pytest.approx(backward_s(n, q, g, c), rel=1e-9)
        if n > q >= 2 and c >= g:
            assert took_s == pytest.approx(max(n * g, 2 * g + (n - q) * c), rel=1e-9)
        away = max(0, n - q) * UNIT
        assert (result.swapped_out_bytes, result.swapped_in_bytes) == (away, away)


# --- which values move


def recurrent(trips: int, rows: int = ROWS) -> list[flow.Tensor]:
    """A recurrent loop with branches in it, and its gradients."""
    with flow.FlowGraph():
        x, w = flow.input("x", (rows, rows)), flow.input("w", (rows, rows))

        def body(i: flow.Tensor, y: flow.Tensor) -> tuple[flow.Tensor, ...]:
            z = flow.tanh(flow.matmul(y, w))
            return i + 1, flow.cond(i % 3 > 1, lambda: z * y, lambda: flow.sigmoid(z))

        y = flow.while_loop(lambda i, y: i < trips, body, (0, x))[1]
        return [y, *flow.gradients(flow.sum(y), [x, w])]


def plain_cluster(memory_bytes: int | None, **more: Any) -> Cluster:
    device = Device(
        name="test", flop_per_s=1e9, operation_overhead_s=1e-7, memory_bytes=memory_bytes,
        copy_bandwidth_bytes_per_s=1e9, **more,
    )  # fmt: skip
    return Cluster(name="test", devices=(device,))


def copies(result: flow.FlowResult, lane: str) -> pd.DataFrame:
    spans = result.spans
    return spans[spans["lane"] == lane] if "lane" in spans else spans.iloc[:0]


@pytest.mark.parametrize("window", [1, 4, 32, 0])
@pytest.mark.parametrize("run_ahead", [True, False])
def test_swapping_changes_no_bit_and_swaps_nothing_twice(window, run_ahead):
    feeds = {"x": np.linspace(-1, 1, ROWS**2).reshape(ROWS, ROWS), "w": FEEDS["w"] + 0.01}
    asked = recurrent(12)
    options: dict[str, Any] = {"parallel_iterations": window, "run_ahead": run_ahead}
    free = flow.run(asked, feeds, cluster=plain_cluster(None), **options)
    is_wide = window not in (1, 4) and not run_ahead  # many backward iterations are under way
    for share in (0.9,) if is_wide else (0.9, 0.6, 0.45):
        whole = flow.run(asked, feeds, cluster=plain_cluster(10**7), **options)
        room = int(share * whole.peak_bytes[0])
        with pytest.raises(OutOfMemoryError):
            flow.run(asked, feeds, cluster=plain_cluster(room), **options)
        result = flow.run(
            asked, feeds, cluster=plain_cluster(room), swap_memory=True, swap_threshold=0.4,
            **options,
        )  # fmt: skip
        for one, other in zip(result.values, free.values, strict=True):
            assert one.tobytes() == other.tobytes()
        counts = result.evaluations.groupby("operator")["live"].sum()
        assert counts["push"] == counts["pop"] > 0
        out, back = copies(result, "copy-out"), copies(result, "copy-in")
        keys = [list(zip(one["node"], one["state"], strict=True)) for one in (out, back)]
        assert len(set(keys[0])) == len(keys[0]) > 0
        assert len(set(keys[1])) == len(keys[1]) <= len(keys[0])
        assert int(out["bytes"].sum()) == result.swapped_out_bytes
        assert int(back["bytes"].sum()) == result.swapped_in_bytes
        assert result.peak_bytes[0] <= room


def test_pops_give_the_iterations_in_reverse_whether_they_were_away_or_not():
    with flow.FlowGraph():
        x, handle = flow.input("x", (ROWS, ROWS)), new_stack()
        body = lambda i, k: (  # noqa: E731  # as users write it
            i + 1, k + flow.length(push(handle, x + flow.cast(i, "float64")))
        )  # fmt: skip
        _, rows = flow.while_loop(lambda i, k: i < 9, body, (0, 0))
        got = flow.TensorArray(9)
        back = lambda n, a: (n - 1, a.write(9 - n, flow.sum(pop(handle, x))))  # noqa: E731  # as users write it
        asked = flow.while_loop(lambda n, a: n > 0, back, (rows // ROWS, got))[1].stack()
    for options in ({}, {"swap_memory": True, "swap_threshold": 0.1}):
        cluster = plain_cluster(20 * UNIT)
        result = flow.run(asked, {"x": np.zeros((ROWS, ROWS))}, cluster=cluster, **options)
        assert (result.values[0] / ROWS**2).tolist() == [8, 7, 6, 5, 4, 3, 2, 1, 0]
        assert bool(result.swapped_out_bytes) == bool(options)


def test_what_an_array_stacks_comes_back_first():
    """With a threshold of 0 nothing is brought back but what is read, which the array does."""
    with flow.FlowGraph():
        x, w, handle = flow.input("x", (ROWS, ROWS)), flow.input("w", (ROWS, ROWS)), new_stack()
        count = pushed(4, handle, x, w) // ROWS
        body = lambda n, a: (n - 1, a.write(n - 1, pop(handle, x)))  # noqa: E731  # as users write it
        asked = flow.while_loop(lambda n, a: n > 0, body, (count, flow.TensorArray(4)))[1].stack()
    how: Any = {"swap_memory": True, "swap_threshold": 0.0, "run_ahead": False}
    result = flow.run(asked, FEEDS, cluster=cluster_of(1.0, 0.5, 40), **how)
    assert result.swapped_out_bytes >= result.swapped_in_bytes >= 3 * UNIT
    assert np.array_equal(result.values[0], np.stack([FEEDS["w"]] * 4))


@pytest.mark.parametrize(("units", "expected_s"), [(3, 3.0), (2, 12.0)])
def test_bytes_stay_until_their_copy_has_ended_though_nobody_needs_them(units, expected_s):
    """A product is pushed at 1 s, copied until 11 s, and read for the last time before 2 s."""
    with flow.FlowGraph():
        x, w, handle = flow.input("x", (ROWS, ROWS)), flow.input("w", (ROWS, ROWS)), new_stack()
        kept = push(handle, flow.matmul(x, w))
        popped = pop(handle, x)
        popped.node.controls.append(kept)
        asked = flow.matmul(flow.matmul(popped, w), w)
    cluster = cluster_of(1.0, 10.0, INPUTS + units + 0.25)
    result = flow.run(asked, FEEDS, cluster=cluster, swap_memory=True, swap_threshold=0.0)
    assert computed_s(result) == pytest.approx(expected_s, rel=1e-9)


def test_a_run_ends_with_what_it_computes_however_slow_copies_are():
    """A copy that goes on makes room for nobody by then."""
    cluster, clock = cluster_of(1.0, 1e4, 40), SimClock()
    how: Any = {"swap_memory": True, "swap_threshold": 0.0}
    result = flow.run(forward(3), FEEDS, cluster=cluster, clock=clock, **how)
    (copy,) = copies(result, "copy-out").itertuples()
    assert (copy.start_s, copy.end_s) == pytest.approx((1.0, 3.0))
    assert computed_s(result) == result.makespan_s == clock.now == pytest.approx(3.0)


def test_a_copy_whose_device_is_down_when_a_run_ends_never_begins():
    outage = Event(kind="pause", worker="all", from_s=1, until_s=99)
    cluster = cluster_of(1.0, 1.0, 40).model_copy(update={"events": (outage,)})
    how: Any = {"swap_memory": True, "swap_threshold": 0.0, "clock": SimClock()}
    result = flow.run(forward(1), FEEDS, cluster=cluster, **how)
    assert how["clock"].now == result.makespan_s == pytest.approx(1.0)


def test_the_next_instance_waits_for_no_copy_of_the_one_before():
    """Each has one, which outlasts it; the cause of the next one's first kernel is a kernel."""
    (device,) = plain_cluster(10**7).devices
    slow = device.model_copy(update={"copy_bandwidth_bytes_per_s": 1.0})
    how: Any = {"is_abstract": False, "counts_memory": True, "seed": 0}
    ended_s: list[list[float]] = []
    for running in (Running(), Running(swap_memory=True, swap_threshold=0.0)):
        cluster, clock = Cluster(name="test", devices=(slow,)), SimClock()
        plan = Plan(recurrent(5), 32, cluster)
        recorder = Recorder(plan.names, 1)
        session = Session(cluster, clock, recorder, running, **how)
        ended_s.append([])
        for instance in range(3):
            result = session.run(plan, FEEDS, instance)
            ended_s[-1].append(clock.now)
        recorder.flush()
        spans = result.spans
        assert len(copies(result, "copy-out")) == 3 * running.swap_memory
        first = spans[spans["start_s"] == ended_s[-1][0]].iloc[0]
        assert spans["lane"].iloc[first["cause"]] == first["lane"] == "compute"
    assert ended_s[0] == ended_s[1]


def test_nothing_leaves_a_stack_that_is_being_popped():
    """Pops begin at 8 s; copies at 1 and 5 s, and the next one would at 9 s."""
    with flow.FlowGraph():
        x, w, handle = flow.input("x", (ROWS, ROWS)), flow.input("w", (ROWS, ROWS)), new_stack()
        left = pushed(8, handle, x, w) // ROWS
        body = lambda n, s: (n - 1, flow.matmul(s, pop(handle, x)))  # noqa: E731  # as users write it
        asked = flow.while_loop(lambda n, s: n > 0, body, (left, x))[1]
    result = flow.run(
        asked, FEEDS, cluster=cluster_of(1.0, 4.0, 30), swap_memory=True, swap_threshold=0.0
    )
    copies = result.spans[result.spans["lane"] == "copy-out"]
    assert copies["start_s"].tolist() == pytest.approx([1.0, 5.0], rel=1e-9)
    assert result.swapped_in_bytes == UNIT  # the second copy was in vain


def test_a_copy_begins_when_what_it_copies_has_been_computed():
    """The host, which has pushed long before, asks for copies while a product is made."""
    device = cluster_of(1.0, 0.125, 30).devices[0].model_copy(update={"dispatch_s": 1 / 64})
    cluster = Cluster(name="test", devices=(device,))
    result = flow.run(forward(6), FEEDS, cluster=cluster, swap_memory=True, swap_threshold=0.0)
    spans = result.spans
    made, copied = (
        spans[spans["lane"] == lane].query("bytes > 0").set_index("state")
        for lane in ("compute", "copy-out")
    )
    assert len(copied) == 6
    late_s = copied["start_s"] - made["end_s"].reindex(copied.index)
    assert (late_s >= -1e-9).all()


def test_small_tensors_stay_where_they_are():
    def swapped(elements: int) -> int:
        with flow.FlowGraph():
            x = flow.input("x", (elements,))
            y = flow.while_loop(lambda i, y: i < 9, lambda i, y: (i + 1, flow.tanh(y)), (0, x))[1]
            asked = flow.gradients(flow.sum(y), [x])
        options = {"swap_memory": True, "swap_threshold": 0.0}
        feeds = {"x": np.ones(elements)}
        return flow.run(asked, feeds, cluster=plain_cluster(10**6), **options).swapped_out_bytes

    assert swapped(256) == 0  # 2048 bytes
    assert swapped(257) > 0


def test_nothing_moves_while_memory_is_not_above_the_threshold():
    asked, feeds = recurrent(6), FEEDS
    peak = int(flow.run(asked, feeds, cluster=plain_cluster(10**7)).peak_bytes[0])
    cluster = plain_cluster(2 * peak)
    at_peak = flow.run(asked, feeds, cluster=cluster, swap_memory=True, swap_threshold=0.5)
    assert at_peak.swapped_out_bytes == 0
    assert at_peak.peak_bytes.tolist() == [peak]
    below = flow.run(asked, feeds, cluster=cluster, swap_memory=True, swap_threshold=0.25)
    assert below.swapped_out_bytes > 0
    for missing, does_swap in ((0, False), (1, True)):  # a byte below what lies there at the end
        cluster = plain_cluster(2 * ((4 + INPUTS) * UNIT - missing))
        told = flow.run(forward(4), FEEDS, cluster=cluster, swap_memory=True, swap_threshold=0.5)
        assert bool(told.swapped_out_bytes) == does_swap


# --- peaks


@pytest.mark.parametrize("window", [1, 32, 0])
@pytest.mark.parametrize("run_ahead", [True, False])
@pytest.mark.parametrize("trips", [0, 1, 7])
def test_the_peak_is_what_spans_and_readers_say(window, run_ahead, trips):
    asked = recurrent(trips)
    result = flow.run(
        asked, FEEDS, cluster=plain_cluster(10**7), parallel_iterations=window, run_ahead=run_ahead
    )
    assert result.peak_bytes.tolist() == [peak_bytes(asked, FEEDS, result.spans)]


@pytest.mark.parametrize("run_ahead", [True, False])
def test_what_no_kernel_reads_is_gone_when_the_next_one_starts(run_ahead):
    """Of a variable that its loop does not read only the last value is there, beside the inputs."""
    with flow.FlowGraph():
        x, w = flow.input("x", (ROWS, ROWS)), flow.input("w", (ROWS, ROWS))
        body = lambda i, y: (i + 1, flow.matmul(x, w))  # noqa: E731  # as users write it
        asked = [flow.while_loop(lambda i, y: i < 4, body, (0, x))[1]]
    result = flow.run(asked, FEEDS, cluster=plain_cluster(10**7), run_ahead=run_ahead)
    assert result.peak_bytes.tolist() == [(INPUTS + 1) * UNIT]
    assert result.peak_bytes.tolist() == [peak_bytes(asked, FEEDS, result.spans)]


@pytest.mark.parametrize("trips", [2, 5, 16])
def test_an_unrolled_loop_keeps_a_gradient_of_each_copy_and_a_loop_sums_them(trips):
    """F12: T gradients of w wait for the one sum; in the loop T values y wait on a stack."""
    rows, width = 4, 64
    y_bytes, w_bytes = 8 * rows * width, 8 * width**2
    step = lambda y, w: flow.tanh(flow.matmul(y, w))  # noqa: E731  # as users write it

    def looped(x: flow.Tensor, w: flow.Tensor) -> flow.Tensor:
        return flow.while_loop(lambda i, y: i < trips, lambda i, y: (i + 1, step(y, w)), (0, x))[1]

    def unrolled(x: flow.Tensor, w: flow.Tensor) -> flow.Tensor:
        for _ in range(trips):
            x = step(x, w)
        return x

    feeds = {"x": np.ones((rows, width)), "w": np.eye(width) / 2}
    peaks: list[int] = []
    for program in (looped, unrolled):
        with flow.FlowGraph():
            x, w = flow.input("x", (rows, width)), flow.input("w", (width, width))
            asked = flow.gradients(flow.sum(program(x, w)), [w])
        result = flow.run(asked, feeds, cluster=plain_cluster(10**7))
        peaks += result.peak_bytes.tolist()
        assert peaks[-1] == peak_bytes(asked, feeds, result.spans)
    # w, its sum of gradients before and after, one more; w, and one of each copy, and the sum
    assert peaks == [4 * w_bytes + (trips + 1) * y_bytes, (trips + 2) * w_bytes + y_bytes]


def test_enough_memory_changes_no_span():
    asked = recurrent(6)
    for more in ({}, {"jitter_cv": 0.25}):
        free = flow.run(asked, FEEDS, cluster=plain_cluster(None, **more))
        counted = flow.run(asked, FEEDS, cluster=plain_cluster(10**7, **more))
        assert free.spans.equals(counted.spans)
        assert free.critical_path.equals(counted.critical_path)


@pytest.mark.parametrize("trips", [1, 5])
def test_an_array_holds_what_was_written_and_inputs_are_held_once(trips):
    """Rows of x are parts of it; the stacked array is as large as its elements together."""
    with flow.FlowGraph():
        x, w = flow.input("x", (trips, ROWS, ROWS)), flow.input("w", (ROWS, ROWS))
        asked = flow.map_fn(lambda row: flow.matmul(row, w), x)
    feeds = {"x": np.ones((trips, ROWS, ROWS)), "w": FEEDS["w"]}
    result = flow.run(asked, feeds, cluster=plain_cluster(10**7))
    flows = 8  # where the flows of arrays start
    assert result.peak_bytes.tolist() == [(trips + 1 + 2 * trips) * UNIT + flows]
    memory = result.memory
    assert list(memory) == [
        "worker", "time_s", "bytes", "stacks", "activations", "arrays", "inputs",
    ]  # fmt: skip
    assert memory["inputs"].max() == (trips + 1) * UNIT + flows
    assert memory["arrays"].max() == trips * UNIT
    assert (memory.iloc[:, 3:].sum(axis=1) == memory["bytes"]).all()


@pytest.mark.parametrize("window", [1, 0])
@pytest.mark.parametrize("trips", [1, 8])
def test_arrays_and_their_gradients_are_swapped_around_and_give_the_same_bits(window, trips):
    """What an array holds stays; what the loop over it saves moves; nothing is left in the end."""
    with flow.FlowGraph():
        x, w = flow.input("x", (trips, ROWS, ROWS)), flow.input("w", (ROWS, ROWS))
        step = lambda a, row: flow.tanh(flow.matmul(a, w) * row)  # noqa: E731  # as users write it
        y = flow.scan(step, x, flow.pick(x, 0), parallel_iterations=window or None)
        asked = [y, *flow.gradients(flow.sum(y), [x, w])]
    numbers = np.linspace(-1, 1, trips * ROWS**2).reshape(trips, ROWS, ROWS)
    feeds = {"x": numbers, "w": FEEDS["w"]}
    free = flow.run(asked, feeds, cluster=plain_cluster(None), parallel_iterations=window)
    whole = flow.run(asked, feeds, cluster=plain_cluster(10**8), parallel_iterations=window)
    room = int(whole.peak_bytes[0])
    result = flow.run(
        asked, feeds, cluster=plain_cluster(room), parallel_iterations=window, swap_memory=True,
        swap_threshold=0.1,
    )  # fmt: skip
    assert result.swapped_out_bytes > 0
    assert whole.spans.equals(free.spans)
    for one, other in zip(result.values, free.values, strict=True):
        assert one.tobytes() == other.tobytes()


def test_what_is_fed_needs_room_too():
    with pytest.raises(
        OutOfMemoryError,
        match=r"^worker 0 \(test\) is out of memory at 0 s: x \(.*\) asks for 8,192 bytes, and",
    ):
        flow.run(forward(1), FEEDS, cluster=plain_cluster(UNIT - 1))


# --- traces


SWAPPING: dict[str, Any] = {"swap_memory": True, "swap_threshold": 0.3}


@pytest.mark.parametrize("dispatch_s", [0.0, 3e-6])
def test_sleep_and_numeric_runs_have_one_trace_and_causes_have_no_gap(dispatch_s):
    asked = recurrent(9)
    cluster = plain_cluster(30 * UNIT)
    if dispatch_s:
        device = Device(
            name="test", flop_per_s=1e9, dispatch_s=dispatch_s, memory_bytes=30 * UNIT,
            copy_bandwidth_bytes_per_s=1e9,
        )  # fmt: skip
        cluster = Cluster(name="test", devices=(device,))
    numeric = flow.run(asked, FEEDS, cluster=cluster, **SWAPPING)
    asleep = flow.run(asked, FEEDS, cluster=cluster, mode="sleep", **SWAPPING)
    again = flow.run(asked, FEEDS, cluster=cluster, **SWAPPING)
    assert numeric.swapped_out_bytes > 0
    for other in (asleep, again):
        assert numeric.spans.equals(other.spans)
        assert numeric.memory.equals(other.memory)
    path = numeric.critical_path
    assert float((path["end_s"] - path["start_s"]).sum()) == pytest.approx(numeric.makespan_s)
    for _lane, own in numeric.spans.groupby("lane", observed=True):
        own = own[own["end_s"] > own["start_s"]].sort_values("start_s")
        assert (own["start_s"].to_numpy()[1:] >= own["end_s"].to_numpy()[:-1] - 1e-12).all()


def test_a_kernel_that_waited_for_memory_was_caused_by_the_copy_that_made_room():
    cluster = cluster_of(1.0, 2.0, 3 + INPUTS + 0.25)
    result = flow.run(forward(6), FEEDS, cluster=cluster, **options_of(1, 3))
    spans = result.spans
    late = spans[(spans["lane"] == "compute") & (spans["start_s"] > 3.5)]
    assert len(late)
    causes = spans.iloc[late["cause"].to_numpy()]
    assert set(causes["lane"]) == {"copy-out"}
    assert causes["end_s"].tolist() == late["start_s"].tolist()


@pytest.mark.parametrize(("dispatch_s", "starts_s"), [(0.0, 4.5), (1.0, 11.5)])
def test_a_kernel_that_waited_for_memory_starts_when_another_worker_has_taken_what_lay_there(
    dispatch_s, starts_s
):
    """However busy the host is by then; and the message is its cause."""
    with flow.FlowGraph():
        x, n = flow.input("x", (ROWS, ROWS)), flow.input("n", (), "int64")
        y = flow.tanh(x)
        with flow.device(1):
            elsewhere = flow.tanh(y)
        number = n + 1
        after = number + 0  # with a dispatch of each, the message has left before the kernel comes
        waits = flow.exp(x) if dispatch_s else x * flow.sum(flow.sum(x) + 1.0)
        waits.node.controls.append(after)
        for _ in range(9):
            number = number + 1
    told = {"flop_per_s": 1e24, "step_overhead_s": 1.0}
    devices = (
        Device(name="small", **told, memory_bytes=2 * UNIT + 100, dispatch_s=dispatch_s),
        Device(name="large", **told, memory_bytes=10**9),
    )
    link = Link(bandwidth_bytes_per_s=UNIT / (4.5 if dispatch_s else 2.5))
    result = flow.run(
        [waits, elsewhere, number], {"x": np.eye(ROWS), "n": 0}, run_ahead=False,
        cluster=Cluster(name="two", devices=devices, link=link),
    )  # fmt: skip
    (sent,), spans = result.transfers.itertuples(), result.spans
    is_kernel = spans.get("lane", "compute") == "compute"
    (late,) = spans[is_kernel & (spans["node"] == waits.node.name)].itertuples()
    assert (late.start_s, sent.end_s) == (starts_s, starts_s)
    assert late.cause == -2


@pytest.mark.quiet
@pytest.mark.slow
def test_the_wall_clock_swaps_alike():
    cluster = cluster_of(0.01, 0.0137, 3 + INPUTS + 0.25)
    virtual = flow.run(forward(6), FEEDS, cluster=cluster, **options_of(1, 3))
    with closing(WallClock()) as clock:
        wall = flow.run(forward(6), FEEDS, cluster=cluster, clock=clock, **options_of(1, 3))
    assert virtual.spans.equals(wall.spans)
    assert virtual.memory.equals(wall.memory)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("run_ahead", [True, False])
@pytest.mark.parametrize("has_swapping", [True, False])
def test_a_worker_among_others_says_that_it_has_no_room(run_ahead, has_swapping, place):
    """Its host has run everything while its device waits for room that no other worker makes."""
    with flow.FlowGraph():
        x, n = flow.input("x", (ROWS, ROWS)), flow.input("n", (), "int64")
        with flow.device(1 - place):
            elsewhere = n + 1
        with flow.device(place):
            y = flow.tanh(x) * x
    (one,) = cluster_of(1.0, 1.0, 2.5).devices
    cluster = Cluster(name="two", devices=(one, one))
    said = rf"^worker {place} \(test\) is out of memory at .*: multiply-1 \(.*asks"
    with pytest.raises(OutOfMemoryError, match=said):
        flow.run(
            [y, elsewhere], {"x": np.eye(ROWS), "n": 1}, cluster=cluster,
            swap_memory=has_swapping, run_ahead=run_ahead,
        )  # fmt: skip


# --- refusals


@settings(max_examples=5, deadline=None)
@given(share=st.sampled_from([-0.1, 1.0, 2.0]))
def test_a_threshold_is_a_share(share):
    with pytest.raises(OptionError, match=r"^swap_threshold must be .*(below 1|>= 0), got"):
        flow.run(forward(1), FEEDS, cluster=plain_cluster(10**6), swap_memory=True,
                 swap_threshold=share)  # fmt: skip


def test_options_that_would_have_no_effect_are_refused():
    with pytest.raises(
        OptionError, match=r"^swap_threshold of 0.5 has no effect without swap_memory"
    ):
        flow.run(forward(1), FEEDS, swap_threshold=0.5)
    with pytest.raises(OptionError, match=r"^swap_memory needs memory_bytes of the device, and"):
        flow.run(forward(1), FEEDS, cluster=plain_cluster(None), swap_memory=True)
    device = Device(name="test", flop_per_s=1e9, memory_bytes=10**6)
    cluster = Cluster(name="test", devices=(device,))
    with pytest.raises(OptionError, match=r"^swap_memory needs copy_bandwidth_bytes_per_s of"):
        flow.run(forward(1), FEEDS, cluster=cluster, swap_memory=True)
    with pytest.raises(OptionError, match=r"^peak_bytes: memory was not counted in this run"):
        _ = flow.run(forward(1), FEEDS, cluster=plain_cluster(None)).peak_bytes
