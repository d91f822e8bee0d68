"""What keys of device files cost on a dependency engine, against closed forms and recursions."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import ampsim
from ampsim.dependency import Arrays, fullc_backward, fullc_forward, loss_gradient
from ampsim.errors import OptionError, SimulationError
from ampsim.hardware import (
    Cluster,
    Device,
    Edge,
    Event,
    HostPorts,
    Link,
    MemoryRemedy,
    Messages,
    Ports,
)

POLICIES = [ampsim.Pooled(9), ampsim.PerDevice()]


def cluster(workers: int = 1, link: Link | None = None, **device: Any) -> Cluster:
    """Devices of one FLOP a second."""
    one = Device(name="d", flop_per_s=1.0, **device)
    return Cluster(name="c", devices=(one,) * workers, link=link or Link())


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_issuing_and_computing_are_a_flow_shop_of_two_machines(policy, seed):
    """Source: Johnson, 1954. Operations in their order: each machine one after the other."""
    chosen = random.Random(seed)
    seconds = [chosen.randint(1, 9) for _ in range(12)]
    engine = ampsim.DependencyEngine(cluster(dispatch_s=3.0), policy)
    for flop in seconds:
        engine.push(None, work=ampsim.Work(flop=flop))
    engine.wait_for_all()
    issued = computed = 0
    ends = []
    for flop in seconds:
        issued += 3
        computed = max(issued, computed) + flop
        ends.append(computed)
    if policy.name == "per-device":
        assert engine.result.operations["end_s"].tolist() == pytest.approx(ends)
    else:  # nine threads: three operations wait for one until others end
        assert engine.result.makespan_s == pytest.approx(ends[-1])
    path = engine.result.critical_path
    assert (path["end_s"] - path["start_s"]).sum() == pytest.approx(ends[-1])


def test_what_depends_on_another_is_issued_when_that_has_ended():
    """A chain of n operations of s hides nothing: n (d + s). So does naive, with p a push."""
    for policy, push_s, makespan in (
        (ampsim.PerDevice(), 0.0, 4 * (3 + 2)),
        (ampsim.Naive(), 0.5, 4 * (0.5 + 3 + 2)),
    ):
        engine = ampsim.DependencyEngine(cluster(dispatch_s=3.0), policy, push_s=push_s)
        a = engine.new_variable("A")
        for _ in range(4):
            engine.push(None, mutates=[a], work=ampsim.Work(flop=2))
        engine.wait_for_all()
        assert engine.result.makespan_s == pytest.approx(makespan)
        path = engine.result.critical_path
        spent = (path["end_s"] - path["start_s"]).groupby(path["kind"]).sum()
        assert (spent["dispatch"], spent["compute"]) == pytest.approx((12, 8))
        busy = engine.result.busy.set_index("kind")["busy_s"]
        assert (busy["dispatch"], busy["compute"].max()) == pytest.approx((12, 8))
        issued = engine.result.dispatches
        assert issued["operation"].tolist() == [0, 1, 2, 3]
        assert (issued["end_s"] - issued["start_s"]).tolist() == pytest.approx([3, 3, 3, 3])


def test_what_takes_no_time_or_is_skipped_is_not_issued():
    engine = ampsim.DependencyEngine(cluster(dispatch_s=3.0))
    a = engine.new_variable("A")

    def fails() -> None:
        raise ValueError

    engine.push(fails, mutates=[a])
    engine.push(None, reads=[a], work=ampsim.Work(flop=5))
    with pytest.raises(SimulationError):
        engine.wait_for_all()
    assert engine.now_s == 0
    assert len(engine.result.dispatches) == 0


def test_the_host_issues_what_it_computes_where_its_file_says_so():
    host = Device(name="cpu", flop_per_s=1.0, dispatch_s=4.0)
    engine = ampsim.DependencyEngine(cluster(), host=host)
    for _ in range(3):
        engine.push(None, on="host", work=ampsim.Work(flop=1))
    engine.wait_for_all()
    assert engine.result.makespan_s == pytest.approx(3 * 4 + 1)


def test_of_two_that_wait_to_be_issued_the_one_with_more_priority_is_first():
    engine = ampsim.DependencyEngine(cluster(dispatch_s=3.0))
    for priority in (0, 1, 5, 5):
        engine.push(None, work=ampsim.Work(flop=1), priority=priority)
    engine.wait_for_all()
    assert engine.result.operations["start_s"].tolist() == pytest.approx([12, 9, 3, 6])


def test_a_device_that_is_down_issues_nothing():
    """Down from 1 to 4: one second of issuing, three of waiting, two of issuing, then it starts."""
    devices = cluster(dispatch_s=3.0).devices
    events = (Event(worker=0, kind="pause", from_s=1.0, until_s=4.0),)
    engine = ampsim.DependencyEngine(Cluster(name="c", devices=devices, events=events))
    engine.push(None, work=ampsim.Work(flop=2))
    engine.wait_for_all()
    assert engine.result.operations["start_s"].tolist() == pytest.approx([6])


@pytest.mark.parametrize("way", ["in", "out"])
@pytest.mark.parametrize(("threads", "seconds"), [(1, 5 * (2 + 3)), (2, 1), (5, 5 * 3 + 2)])
def test_copies_between_worker_and_host_take_the_lane_of_its_device_file(way, threads, seconds):
    """n copies of b bytes at r, latency l: n (l + b / r) one by one, n b / r + l all at once."""
    where = cluster(
        2, Link(latency_s=100.0), copy_bandwidth_bytes_per_s=10.0, copy_latency_s=2.0
    )  # fmt: skip
    engine = ampsim.DependencyEngine(where, ampsim.PerDevice(copy_threads=threads))
    ends = ("host", 1) if way == "in" else (1, "host")
    for _ in range(5):
        engine.push_copy(None, source=ends[0], target=ends[1], size_bytes=30)
    engine.push_copy(None, source=0, target=1, size_bytes=30)  # the cluster's link
    engine.wait_for_all()
    if threads == 2:  # the lane is free again at free_s; a thread when its copy has arrived
        free_s, threads_s = 0.0, [0.0, 0.0]
        for _ in range(5):
            free_s = max(free_s, min(threads_s)) + 3
            threads_s[threads_s.index(min(threads_s))] = free_s + 2
        seconds = max(threads_s)
    copies = engine.result.operations
    assert copies["end_s"].iloc[:5].max() == pytest.approx(seconds)
    assert copies["end_s"].iloc[5] == pytest.approx(100)
    path = engine.result.critical_path
    assert (path["end_s"] - path["start_s"]).sum() == pytest.approx(100)


SLOW: dict[str, Any] = {"latency_s": 1.0, "bandwidth_bytes_per_s": 10.0}
BESIDE: dict[str, tuple[dict[str, Any], float]] = {
    "edges between workers": ({"edges": (Edge(between=(0, 1), **SLOW),)}, 60 / 30 + 2),
    "the host's port": ({"ports": Ports(host=HostPorts(egress_bytes_per_s=10.0))}, 120 / 10 + 2),
    "the workers' ports": ({"ports": Ports(ingress_bytes_per_s=10.0)}, 60 / 10 + 2),
    "edges to the host": (
        {"edges": tuple(Edge(between=(one, "switch"), **SLOW) for one in (0, 1, "host"))},
        120 / 10 + 2 + 1 + 1,
    ),
}
"""What there is beside lanes, and when two workers have 60 bytes each from the host."""


@pytest.mark.parametrize("sharing", ["fair", "first-come"])
@pytest.mark.parametrize("what", BESIDE)
def test_copies_over_lanes_share_edges_and_ports_on_their_way(what, sharing):
    keys, seconds = BESIDE[what]
    devices = cluster(2, copy_bandwidth_bytes_per_s=30.0, copy_latency_s=2.0).devices
    engine = ampsim.DependencyEngine(Cluster(name="c", devices=devices, sharing=sharing, **keys))
    for worker in range(2):
        engine.push_copy(None, source="host", target=worker, size_bytes=60)
    engine.wait_for_all()
    assert engine.result.makespan_s == pytest.approx(seconds)


def test_copies_over_lanes_are_lost_and_sent_again_as_over_links():
    lossy = Messages(loss_probability=0.9, retry_after_s=1.0)
    devices = cluster(copy_bandwidth_bytes_per_s=30.0, copy_latency_s=2.0).devices
    engine = ampsim.DependencyEngine(Cluster(name="c", devices=devices, messages=lossy))
    for _ in range(3):
        engine.push_copy(None, source=0, target="host", size_bytes=60)
    engine.wait_for_all()
    sent = len(engine.result.transfers)
    assert sent > 3
    assert engine.result.makespan_s == pytest.approx(4 * sent + sent - 3)


def test_the_jitter_of_a_host_is_that_of_its_steps():
    """So many operations take their mean, within five standard errors, and vary as told."""
    count, cv = 2000, 0.5
    host = Device(name="cpu", flop_per_s=1.0, jitter_cv=cv)
    engine = ampsim.DependencyEngine(cluster(), host=host, seed=3)
    for _ in range(count):
        engine.push(None, on="host", work=ampsim.Work(flop=1))
    engine.wait_for_all()
    table = engine.result.operations
    seconds = (table["end_s"] - table["start_s"]).to_numpy()
    assert abs(seconds.mean() - 1) < 5 * cv / np.sqrt(count)
    assert abs(seconds.std() - cv) < 0.1
    with pytest.raises(OptionError, match=r"policy: the host, whose time varies .* got 4; try"):
        ampsim.DependencyEngine(cluster(), ampsim.Pooled(4), host=host)


REFUSED: dict[str, Any] = {
    r"worker 0: message_overhead_s of 3 is of steps that take and send messages": lambda: (
        ampsim.DependencyEngine(cluster(message_overhead_s=3.0))
    ),
    r"memory.remedy 'recompute' is of models; on a dependency engine push": lambda: (
        ampsim.DependencyEngine(
            cluster().model_copy(update={"memory": MemoryRemedy(remedy="recompute")})
        )
    ),
    r"host: copy_bandwidth_bytes_per_s is the rate of a worker's lanes": lambda: (
        ampsim.DependencyEngine(
            cluster(), host=Device(name="h", flop_per_s=1.0, copy_bandwidth_bytes_per_s=1.0)
        )
    ),
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_key_that_means_nothing_on_an_engine_is_refused_in_one_line(text):
    with pytest.raises(OptionError, match=text) as raised:
        REFUSED[text]()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("key", ["pass_bandwidth_bytes_per_s", "functions_per_s"])
def test_operations_that_differ_in_passes_or_functions_alone_take_their_own_times(key):
    """The engine keeps costs that it has worked out: all fields of a `Work` tell them apart."""
    field = "pass_bytes" if key.startswith("pass") else "functions"
    keys: dict[str, Any] = {key: 1.0}
    engine = ampsim.DependencyEngine(cluster(**keys))
    for count in (3, 7):
        engine.push(None, work=ampsim.Work(flop=1, **{field: count}))
    engine.wait_for_all()
    times = engine.result.operations[["start_s", "end_s"]]
    assert (times["end_s"] - times["start_s"]).tolist() == pytest.approx([1 + 3, 1 + 7])


def test_a_loss_takes_a_function_of_each_element_where_its_device_names_their_rate():
    """They were free: no operation of the case study took any."""
    fast = cluster().devices[0]
    slow = fast.model_copy(update={"functions_per_s": 2.0})
    engine = ampsim.DependencyEngine(Cluster(name="c", devices=(fast, slow)))
    output, label, gradient = Arrays(engine).new(*"abc")
    for worker in range(2):
        output[worker], label[worker] = np.ones((4, 3)), np.zeros(4)
        gradient[worker] = loss_gradient(output[worker], label[worker])
    engine.wait_for_all()
    busy = engine.result.busy.query("kind == 'compute' and place >= 0")
    assert busy["busy_s"].tolist() == [0, 4 * 3 / 2]


def test_products_reach_the_fraction_of_forward_or_backward_steps_of_the_device_file():
    """48 FLOP at half the rate, backward at a quarter; with the 12 of an update within one."""
    engine = ampsim.DependencyEngine(
        cluster(forward_efficiency=((1, 1, 0.5),), backward_efficiency=((1, 1, 0.25),))
    )
    data, weight, output, ograd, wgrad = (one[0] for one in Arrays(engine).new(*"abcde"))
    data.assign(np.ones((2, 3)))
    weight.assign(np.ones((3, 4)))
    output.assign(fullc_forward(data, weight))
    to_data, to_weight = fullc_backward(output, weight)
    ograd.assign(to_data)
    wgrad.assign(to_weight)
    weight -= to_weight
    for is_backward in (False, True):
        work = ampsim.Work(flop=48)
        engine.push(None, work=work, rows=2, matrix_elements=12, is_backward=is_backward)
    engine.wait_for_all()
    times = engine.result.operations[["start_s", "end_s"]].iloc[2:]
    seconds = times["end_s"] - times["start_s"]
    assert seconds.tolist() == pytest.approx([96, 192, 192, 240, 96, 192])


ARITHMETIC: dict[str, tuple[Any, int, int]] = {
    "sum of three": (lambda a, b, c: a.assign(a + b + c), 4, 6),  # two sums of three arrays each
    "product with a number": (lambda a, b, c: a.assign(2.0 * b), 2, 2),
    "step": (lambda a, b, c: a.__isub__(0.1 * b), 3, 3),
    "step by an array": (lambda a, b, c: a.__isub__(b), 3, 3),
}
"""By name: arithmetic of arrays a, b and c, the arrays that it reads and writes at least, and those
of its operations one by one."""


@pytest.mark.parametrize("name", ARITHMETIC)
@pytest.mark.parametrize("key", ["memory_bandwidth_bytes_per_s", "pass_bandwidth_bytes_per_s"])
def test_arithmetic_of_arrays_takes_what_it_reads_and_writes(key, name):
    pushed, moved, passed = ARITHMETIC[name]
    device = Device(name="d", flop_per_s=1e24, **{key: 8.0})  # an element of float64 a second
    engine = ampsim.DependencyEngine(Cluster(name="c", devices=(device,)))
    arrays = Arrays(engine)
    a, b, c = (one[0] for one in arrays.new("a", "b", "c"))
    for one in (a, b, c):
        one.assign(np.ones(5))
    engine.wait_for_all()
    assert engine.now_s == 0
    pushed(a, b, c)
    engine.wait_for_all()
    assert engine.now_s == pytest.approx(5 * (moved if key.startswith("memory") else passed))
