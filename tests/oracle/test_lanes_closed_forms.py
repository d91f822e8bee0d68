"""Host, message overhead, dispatch and copies meet closed forms and plain recursions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampsim import Amp, GPipe, Sequential, simulate
from ampsim.hardware import Cluster, Device, Link, MemoryRemedy
from ampsim.ir import Direction, Work

quarters = st.integers(0, 20).map(lambda number: number / 4)  # exact in binary
more = st.integers(1, 20).map(lambda number: number / 4)
OFFLOAD = MemoryRemedy(remedy="offload")
SETTINGS = settings(max_examples=25, deadline=None)


def near(seconds: Any) -> Any:
    """Equal but for rounding: a clock counts ticks of 1e-18 s."""
    return pytest.approx(seconds, rel=1e-12, abs=1e-15)


def cluster_of(workers: int, host: Any = None, **device: Any) -> Cluster:
    keys = {"memory": device.pop("memory", None), "host": host}
    devices = (Device(name="test", flop_per_s=1.0, **device),) * workers
    return Cluster(name="test", devices=devices, **keys)


def host_of(step_s: float, message_s: float) -> Device:
    return Device(name="host", flop_per_s=1.0, step_overhead_s=step_s, message_overhead_s=message_s)


@SETTINGS
@given(
    step_s=quarters, message_s=more, costs=st.tuples(*[st.integers(1, 9)] * 3), n=st.integers(1, 4)
)
def test_a_host_takes_its_time_for_each_message(chain, step_s, message_s, costs, n):
    """One stage, one instance after the other: two messages there, two back, an update.

    What returns for the labels is taken while the device runs the backward step.
    """
    forward, backward, update = costs
    one = step_s + message_s
    model = chain((costs,), instances=n).model()
    result = simulate(model, cluster_of(1, host_of(step_s, message_s)), Sequential(), mode="sleep")
    pumped = step_s + 2 * message_s
    expected = pumped + forward + max(backward, one) + one + one + update + one
    assert result.makespan_s == near(n * expected)
    own = result.spans[result.spans["worker"] == -1]
    host_s = float((own["end_s"] - own["start_s"]).sum())
    assert host_s == near(n * (pumped + 4 * one))
    shares = result.utilisation_by_lane
    assert shares["worker"].tolist() == [-1]
    assert shares["share"].tolist() == near([host_s / result.makespan_s])


@pytest.mark.parametrize("workers", [1, 4])
def test_a_slow_host_bounds_the_throughput_of_any_number_of_workers(chain, workers):
    """It lets an instance in, and takes two messages back: 3 steps, 4 messages."""
    model = chain(((1, 1, 0),) * workers, instances=60).model()
    result = simulate(model, cluster_of(workers, host_of(2.0, 1.0)), Amp(16), mode="sleep")
    period_s = 3 * 2.0 + 4 * 1.0
    assert 60 * period_s <= result.makespan_s <= 60 * period_s + 40
    assert result.bounds.bound_by == "host"
    assert result.bounds.worker_share == near(60 * period_s / result.makespan_s)


def test_a_host_that_costs_nothing_changes_no_bit(chain):
    model = chain(((3, 4, 1),) * 3, instances=7, valid=2).model()
    free = Device(name="host", flop_per_s=1.0, jitter_cv=0.5)
    first, second = (simulate(model, cluster_of(3, host), Amp(3)) for host in (None, free))
    assert first.digest == second.digest


@SETTINGS
@given(p=st.integers(2, 5), overhead_s=quarters, costs=st.lists(st.integers(6, 12), min_size=5))
def test_a_message_costs_both_its_ends(chain, p, overhead_s, costs):
    """Of one instance 2p - 1 on its way there, the label's gradient, 2p - 1 back; then updates.

    The loss shares the last stage's worker. Each update is ordered and acknowledged.
    """
    stages = tuple((cost, 2 * cost, 1) for cost in costs[:p])
    model = chain(stages, instances=3).model()
    result = simulate(model, cluster_of(p, message_overhead_s=overhead_s), Sequential())
    work = sum(forward + backward for forward, backward, _update in stages)
    one = work + (4 * p - 1) * overhead_s + 1 + 2 * overhead_s
    assert result.makespan_s == near(3 * one)


def test_messages_within_a_worker_cost_no_overhead(chain):
    """Three stages on one worker: four messages from and to the host, and the update's two each."""
    model = chain(((4, 6, 1),) * 3, instances=2).model()
    result = simulate(model, cluster_of(1, message_overhead_s=0.5), Sequential())
    assert result.makespan_s == near(2 * (3 * 10 + 4 * 0.5 + 3 * (1 + 2 * 0.5)))


@dataclass(frozen=True)
class Uneven:
    """Batches of so many rows each, of which a step costs one FLOP for each row and matrix."""

    rows: tuple[int, ...]
    base: Any

    def batch_count(self, split: str) -> int:
        return len(self.rows) if split == "train" else 0

    def count(self, split: str) -> int:
        return sum(self.rows) if split == "train" else 0

    def batches(self, split: str, **_options: int) -> Iterator[Any]:
        made: Any = type(next(self.base.batches("train", epoch=0, seed=0)))
        for rows in self.rows if split == "train" else ():
            yield made(np.zeros((rows, 2)), np.zeros(rows, np.int64))


def uneven_model(chain: Any, rows: Sequence[int]) -> Any:
    """One stage whose forward step takes as long as its payload has rows, and backward twice."""
    base = chain(((1, 1, 1),), instances=1)

    def make_graph() -> Any:
        graph = base.graph()
        stage = graph.parameterized[0]
        factors = {Direction.FORWARD: 1, Direction.BACKWARD: 2}

        def work(direction: Direction, shape: Any) -> Work:
            return Work(1 if shape is None else factors[direction] * shape[0])

        stage.work = work
        return graph

    data = Uneven(tuple(rows), base)
    return replace(base.model(), make_graph=make_graph, make_data=lambda _seed, _count: data)


def flow_shop(start_s: float, issue_s: float, lasting_s: Sequence[float]) -> list[float]:
    """Ends of jobs that pass two machines in one order, the first for `issue_s` each.

    Source: Johnson (1954): C1 of job i is C1 of job i - 1 plus its time there, and C2 the later of
    C1 of job i and C2 of job i - 1, plus its time there.
    """
    issued = done = start_s
    ends: list[float] = []
    for seconds in lasting_s:
        issued += issue_s
        done = max(issued, done) + seconds
        ends.append(done)
    return ends


@SETTINGS
@given(rows=st.lists(st.integers(1, 9), min_size=1, max_size=8), issue_s=more)
def test_dispatch_is_a_flow_shop_of_two_machines(chain, rows, issue_s):
    """All forward steps wait at the start, all backward steps at the barrier; then the update."""
    model = uneven_model(chain, rows)
    schedule = GPipe(max_active_keys=len(rows))
    result = simulate(model, cluster_of(1, dispatch_s=issue_s), schedule, mode="sleep")
    forward = flow_shop(0.0, issue_s, rows)
    backward = flow_shop(forward[-1], issue_s, [2 * one for one in reversed(rows)])
    spans = result.spans[(result.spans["lane"] == "compute") & (result.spans["node"] == "stage-1")]
    for direction, ends_s in (("forward", forward), ("backward", backward)):
        assert spans[spans["direction"] == direction]["end_s"].tolist() == near(ends_s)
    assert result.makespan_s == near(backward[-1] + issue_s + 1)


def test_a_device_with_work_hides_dispatch_and_one_step_after_the_other_hides_none(chain):
    model = chain(((4, 6, 0),), instances=10).model()
    cluster = cluster_of(1, dispatch_s=2.0)
    one, many = (
        simulate(model, cluster, schedule, mode="sleep").epochs["train_s"].sum()
        for schedule in (Amp(1), Amp(10))
    )
    updates = 10 * 2.0  # that take no time, but are issued: each before the next instance is let in
    assert many < 2.0 + 10 * (4 + 6) + 3 * 2.0
    assert 10 * (2.0 + 4 + 2.0 + 6) <= one <= 10 * (2.0 + 4 + 2.0 + 6) + updates


def offloaded(count: int, forward_s: float, backward_s: float, copy_s: float) -> list[float]:
    """Ends of backward steps of a drained mini-batch on one device, by instance, in plain Python.

    Activation i is there from i x forward on. Copies out follow each other, until all backward
    messages come, the last instance's first: those that have begun end, others do not begin.
    """
    forward_end_s = [(i + 1) * forward_s for i in range(count)]
    all_s = forward_end_s[-1]
    lane_s, back_s, returning_s = 0.0, [all_s] * count, all_s
    is_away = [False] * count
    for i in range(count):
        start_s = max(lane_s, forward_end_s[i])
        if start_s < all_s:
            lane_s = start_s + copy_s
            is_away[i] = lane_s <= all_s
    for i in reversed(range(count)):
        if is_away[i]:
            returning_s += copy_s
            back_s[i] = returning_s
    order = sorted(range(count), key=lambda i: (back_s[i], -i))
    ends_s, at_s = [0.0] * count, all_s
    for i in order:
        at_s = max(at_s, back_s[i]) + backward_s
        ends_s[i] = at_s
    return ends_s


@SETTINGS
@given(
    count=st.integers(1, 8), forward=st.integers(1, 6), backward=st.integers(1, 6), bandwidth=more
)
def test_copies_of_a_drained_mini_batch_are_those_of_a_plain_loop(
    chain, count, forward, backward, bandwidth
):
    rows = 1
    model = chain(((forward, backward, 0),), instances=count, rows=rows).model()
    device: Any = {"copy_bandwidth_bytes_per_s": 16 * bandwidth, "copy_latency_s": 0.5}
    result = simulate(
        model, cluster_of(1, memory=OFFLOAD, **device), GPipe(max_active_keys=count), mode="sleep"
    )
    copy_s = 0.5 + rows * 2 * 8 / (16 * bandwidth)  # two columns in double precision
    spans = result.spans
    is_step = (spans["lane"] == "compute") & (spans["node"] == "stage-1")
    steps = spans[is_step & (spans["direction"] == "backward")].sort_values("instance")
    expected = offloaded(count, forward, backward, copy_s)
    assert steps["end_s"].tolist() == near(expected)


def test_links_and_copies_do_not_share_bandwidth(chain):
    """An activation on its way to the host holds up no message, and none holds it up."""
    model = chain(((3, 4, 1),), instances=4).model()
    link = Link(latency_s=1.0, bandwidth_bytes_per_s=8.0)
    cluster = cluster_of(1, memory=OFFLOAD, copy_bandwidth_bytes_per_s=4.0)
    cluster = cluster.model_copy(update={"link": link})
    sent = simulate(model, cluster, GPipe(4), mode="sleep").transfers
    lasting_s = (sent["end_s"] - sent["start_s"]).to_numpy()
    np.testing.assert_allclose(lasting_s, 1.0 + sent["bytes"] / 8.0)
