"""Elasticities: their sum is 1, and each is what a small change does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ampsim
from ampsim.data_parallel import SOLVERS
from ampsim.data_parallel.inside import inner_named
from ampsim.exploring.changes import EVERYTHING, changes_of
from ampsim.hardware import (
    Cluster,
    Device,
    Event,
    Link,
    MemoryRemedy,
    Messages,
    Ports,
    Route,
    Topology,
)
from ampsim.model_parallel import SCHEDULES, Schedule, Settled
from ampsim.study import Result, Simulation
from ampsim.study.elasticity import HOST_PLACE, WAITS, Elasticities, elasticities
from ampsim.study.simulation import RunOptions

WORKERS = 4
STEP = 1e-7
CHAIN = ampsim.load_model("mlp", hidden=8, data="synthetic", batch=20, valid_images=40)
LOOP = ampsim.load_model("rnn", hidden=4, batch=20, replicas=2)


def timed(
    model: Any, cluster: Cluster, schedule: Schedule, instances: int = 100, **more: Any
) -> Result:
    options = RunOptions(**{"seed": 1, "mode": "sleep", "instances": instances, **more})
    simulation = Simulation(model, cluster, schedule, options)
    simulation.run_epoch()
    return simulation.result()


def time_s(run: Result) -> float:
    """The time of its epoch, until the last message has come to the host."""
    return float(run.epochs["time_s"].max())


def devices(random: np.random.Generator, **more: Any) -> tuple[Device, ...]:
    return tuple(
        Device(
            name=f"d{place}",
            flop_per_s=float(10 ** random.uniform(8.5, 10)),
            step_overhead_s=float(random.uniform(1e-7, 1e-6)),
            **more,
        )
        for place in range(WORKERS)
    )


def uneven(seed: int) -> Cluster:
    """A cluster on which no two times are the same, so that no two paths are equally long."""
    random = np.random.default_rng(seed)
    memory = {"memory_bandwidth_bytes_per_s": 3.1e9, "memory_bandwidth_basis": "peak"}
    pairs = [(one, other) for one in range(WORKERS) for other in range(WORKERS) if one != other]
    links = [
        Link(
            latency_s=float(random.uniform(1e-7, 5e-6)),
            bandwidth_bytes_per_s=float(random.uniform(1e8, 1e9)),
        )
        for _pair in pairs
    ]
    return Cluster(
        name="uneven",
        devices=devices(random, **memory, message_overhead_s=float(random.uniform(1e-8, 1e-7))),
        links=tuple(
            Route(source=one, target=other, link=link)
            for (one, other), link in zip(pairs, links, strict=True)
        ),
    )


def of_free_messages(seed: int) -> Cluster:
    """The same, without overheads of messages."""
    made, free = uneven(seed), {"message_overhead_s": 0.0}
    devices = tuple(one.model_copy(update=free) for one in made.devices)
    return made.model_copy(update={"devices": devices})


def assert_is_derivative(
    model: Any,
    cluster: Cluster,
    schedule: Schedule,
    waits: float = 0.0,
    instances: int = 100,
    **more: Any,
) -> None:
    result = timed(model, cluster, schedule, instances, **more)
    shares = elasticities(result, cluster)
    assert sum(shares.by_constant.values()) == pytest.approx(1.0, abs=1e-9)
    assert shares.of(WAITS) <= waits
    changes = [one for one in changes_of(cluster, schedule, shares) if one.share is not None]
    assert len(changes) > WORKERS
    for index, change in enumerate(changes):
        step = STEP if index % 2 else -STEP  # every other one is slower
        changed = timed(model, *change.on(cluster, schedule, 1 + step), instances, **more)
        found = (1 - time_s(changed) / time_s(result)) / step
        assert found == pytest.approx(change.share, abs=2e-3), change.what


@pytest.mark.parametrize("name", SCHEDULES)
def test_each_is_what_a_small_change_does_under_every_schedule(name):
    several = {"max_active_keys": 4} if hasattr(SCHEDULES[name], "max_active_keys") else {}
    kind: Any = SCHEDULES[name]
    usual = timed(CHAIN, uneven(0), kind(**several)).origin["placement"]["workers"]
    behind = {node: (worker + 1) % WORKERS for node, worker in usual.items()}
    how = {"seed": len(name), "placement": Settled(behind, {"name": "one behind"})}
    assert_is_derivative(CHAIN, uneven(len(name)), kind(**several), **how)


def test_the_last_message_to_the_host_is_a_part_of_the_time():
    cluster = ampsim.load_cluster("gflops-10", workers=2, latency_s=1e-4)
    assert_is_derivative(CHAIN, cluster, ampsim.Sequential(), instances=20)
    assert_is_derivative(CHAIN, cluster, ampsim.Pipeline(4), instances=20)


def test_each_is_what_a_small_change_does_in_a_loop():
    assert_is_derivative(LOOP, uneven(3), ampsim.Amp(max_active_keys=6))


@pytest.mark.parametrize("wait_s", [0.0, 3e-7, 2e-6, 2e-5])
@pytest.mark.parametrize("model", [LOOP, CHAIN])
def test_each_is_what_a_small_change_does_where_messages_are_merged(model, wait_s):
    """A member whose part has no FLOP and no bytes is of the group's overhead: it had no share.

    A wait for more begins where a step ends, or a message comes for whichever node, and is what it
    is set to: all that a group's first message waited for was taken for it.
    """
    cluster = of_free_messages(5)  # each message of a group costs its overhead by itself
    schedule = ampsim.Amp(max_active_keys=8, max_group=4, group_wait_s=wait_s)
    assert_is_derivative(model, cluster, schedule, waits=float(wait_s > 0))


def test_the_path_through_groups_that_wait_ends():
    """Behind a group another one of its node may begin, which took what came later: no cause."""
    model = ampsim.load_model("tree_lstm", data="synthetic", hidden=6)
    cluster = ampsim.load_cluster("tflops-1", workers=5)
    waiting = ampsim.Amp(max_active_keys=6, max_group=7, group_wait_s=3.73e-6)
    result = ampsim.simulate(model, cluster, waiting, mode="sleep", instances=20)
    shares = elasticities(result, cluster)
    assert sum(shares.by_constant.values()) == pytest.approx(1.0, abs=1e-9)
    assert 0.5 < shares.of(WAITS) < 1  # most of the time is the groups'


LATE = Link(latency_s=1.3e-6)
HARDWARE: dict[str, tuple[dict[str, Any], dict[str, Any], float]] = {
    "host": (
        {
            "link": LATE,
            "host": Device(
                name="h", flop_per_s=1e9, step_overhead_s=3.1e-6, message_overhead_s=1.7e-6
            ),
        },
        {},
        0.0,
    ),
    "dispatch": ({"link": LATE}, {"dispatch_s": 2.3e-6}, 0.0),
    "ports": (
        {"link": LATE, "ports": Ports(egress_bytes_per_s=2.1e8, ingress_bytes_per_s=1.9e8)},
        {},
        0.0,
    ),
    "ports in turn": (
        {
            "link": LATE,
            "sharing": "first-come",
            "ports": Ports(egress_bytes_per_s=2.1e8, ingress_bytes_per_s=1.9e8),
        },
        {},
        0.0,
    ),
    "ring": (
        {"topology": Topology(kind="ring", latency_s=1.1e-6, bandwidth_bytes_per_s=3.3e8)},
        {},
        0.0,
    ),
    "jitter": ({"link": LATE}, {"jitter_cv": 0.2}, 0.0),
    "jitter of messages": ({"link": LATE}, {"jitter_cv": 0.2, "message_overhead_s": 1.7e-6}, 0.0),
    "jitter of messages over free links": ({}, {"jitter_cv": 0.2, "message_overhead_s": 1.7e-6}, 0),
    "jitter of issued messages": (
        {"link": LATE},
        {"jitter_cv": 0.2, "message_overhead_s": 1.7e-6, "dispatch_s": 2.3e-6},
        0.0,
    ),
    "copies of slow devices": (
        {
            "link": LATE,
            "memory": MemoryRemedy(remedy="offload"),
            "events": (Event(kind="slow", worker="all", factor=2.2, from_s=0.0, until_s=10.0),),
        },
        {"copy_bandwidth_bytes_per_s": 3e8, "copy_latency_s": 7e-6},
        0.0,
    ),
    "pause": (
        {"link": LATE, "events": (Event(kind="pause", worker=0, from_s=1e-4, until_s=4e-4),)},
        {},
        0.9,
    ),
    "losses": (
        {"link": LATE, "messages": Messages(loss_probability=0.1, retry_after_s=1e-5)},
        {},
        0.9,
    ),
}


@pytest.mark.parametrize("kind", HARDWARE)
def test_each_is_what_a_small_change_does_on_every_kind_of_hardware(kind):
    parts, numbers, waits = HARDWARE[kind]
    random = np.random.default_rng(7)
    cluster = Cluster(name=kind, devices=devices(random, **numbers), **parts)
    assert_is_derivative(CHAIN, cluster, ampsim.Amp(max_active_keys=6), waits)


def test_messages_of_a_loss_that_waits_for_the_others_are_its_own():
    """What a barrier holds back is sent by the last step: the others lasted by nothing known."""
    numbers = {"jitter_cv": 0.2, "message_overhead_s": 2e-5}
    cluster = Cluster(name="c", link=LATE, devices=devices(np.random.default_rng(3), **numbers))
    assert_is_derivative(CHAIN, cluster, ampsim.GPipe(max_active_keys=4))


@pytest.mark.parametrize("link", [LATE, Link()])
@pytest.mark.parametrize("jitter_cv", [0.0, 0.3])
@pytest.mark.parametrize(
    ("key", "others"),
    [
        ("step_overhead_s", {}),
        ("message_overhead_s", {}),
        ("step_overhead_s", {"step_overhead_s": 3.1e-3, "message_overhead_s": 0.0}),
        ("message_overhead_s", {"step_overhead_s": 0.0}),
    ],
)
def test_each_number_of_the_host_has_its_own(key, others, jitter_cv, link):
    parts, _numbers, _waits = HARDWARE["host"]
    host, schedule = (
        parts["host"].model_copy(update={"jitter_cv": jitter_cv, **others}),
        ampsim.Amp(max_active_keys=6),
    )
    parts = {**parts, "host": host, "link": link}
    cluster = Cluster(name="host", devices=devices(np.random.default_rng(7)), **parts)
    usual, longer = (
        timed(CHAIN, cluster.model_copy(update={"host": one}), schedule)
        for one in (host, host.model_copy(update={key: getattr(host, key) * (1 + STEP)}))
    )
    found = (time_s(longer) / time_s(usual) - 1) / STEP
    share = elasticities(usual, cluster).of(HOST_PLACE, key)
    assert share == pytest.approx(found, abs=1e-5) and share > 1e-3


@pytest.mark.parametrize("name", ["sync-sgd:4", "async-sgd:3", "easgd:3"])
def test_each_is_what_a_small_change_does_under_solvers(name):
    link = Link(latency_s=1.3e-6, bandwidth_bytes_per_s=1.1e9)
    cluster = Cluster(name="c", devices=devices(np.random.default_rng(2)), link=link)
    assert_is_derivative(CHAIN, cluster, inner_named(name))


@pytest.mark.parametrize(("name", "seed"), [("sync-sgd", 3), ("async-sgd", 4), ("local-sgd", 5)])
def test_each_is_what_a_small_change_does_under_solvers_of_jittery_pairs(name, seed):
    """Layers and what lies between are on a copy's two workers in turn, the first on the second."""
    link = Link(latency_s=1.3e-6, bandwidth_bytes_per_s=1.1e9)
    hosts = devices(np.random.default_rng(2), jitter_cv=0.2)
    cluster = Cluster(name="c", devices=(*hosts, hosts[1]), link=link)
    place = {node.name: (index + 1) % 2 for index, node in enumerate(CHAIN.graph().nodes[1:])}
    how = {"seed": seed, "placement": Settled(place, {"name": "in turn"})}
    solver = SOLVERS[name](ranks=2, workers_per_rank=2)
    assert_is_derivative(CHAIN, cluster, solver, **how)


def test_each_is_what_a_small_change_does_to_a_program():
    link = Link(latency_s=1.3e-6, bandwidth_bytes_per_s=1.1e9)
    cluster = Cluster(name="c", devices=devices(np.random.default_rng(2)), link=link)
    assert_is_derivative(CHAIN, cluster, ampsim.Dataflow())


PROGRAMS: dict[str, Any] = {
    "dataflow": ampsim.Dataflow(),
    "one iteration at a time": ampsim.Dataflow(parallel_iterations=1),
    "unrolled": ampsim.Unrolled(),
    "out-of-graph": ampsim.OutOfGraph(round_trip_s=7e-6),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_is_what_a_small_change_does_to_a_program_on_several_devices(name):
    """An instance follows what ended last of the one before, on whichever device that was."""
    model = ampsim.load_model("dynamic_lstm", layers=2, devices=2, hidden=4, length=4, batch=10)
    assert_is_derivative(model, of_free_messages(3), PROGRAMS[name], instances=20)


def even(seed: int, **numbers: float) -> Cluster:
    """A cluster whose times are whole numbers of ticks, also at twice the length.

    Bandwidth is infinite: when a link is free again is a sum of rounded seconds, and no tick.
    """
    random = np.random.default_rng(seed)

    def seconds() -> float:
        return int(random.integers(1, 2000)) * 1e-9

    return Cluster(
        name="even",
        devices=tuple(
            Device(
                name=f"d{place}", flop_per_s=1e9 * 2.0 ** int(random.integers(0, 5)),
                step_overhead_s=seconds(), **numbers,
            )
            for place in range(WORKERS)
        ),
        link=Link(latency_s=seconds()),
        host=Device(name="h", flop_per_s=1e9, step_overhead_s=seconds()),
        events=(Event(kind="pause", worker=0, from_s=1e-4, until_s=2e-4),),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["sequential", "pipeline:4", "amp:6", "pipedream"])
def test_twice_as_fast_in_everything_is_half_the_time_to_the_bit(name, seed):
    cluster, schedule = even(seed, message_overhead_s=3.5e-8), inner_named(name)
    slow = timed(CHAIN, *EVERYTHING.on(cluster, schedule, 0.5))
    run = timed(CHAIN, cluster, schedule)
    assert slow.makespan_s == 2 * run.makespan_s
    assert (slow.spans["start_s"] == 2 * run.spans["start_s"]).all()


WAITING = ampsim.Amp(max_active_keys=6, max_group=3, group_wait_s=2e-6)
LOCAL = ampsim.LocalSGD(ranks=2, inner=WAITING)


@pytest.mark.parametrize("schedule", [WAITING, LOCAL, ampsim.EASGD(ranks=1, inner=LOCAL)])
def test_waits_of_a_schedule_are_scaled_with_everything(schedule):
    cluster = even(1).model_copy(update={"host": None})
    whats = [one.what for one in changes_of(cluster, schedule, Elasticities({}))]
    assert "group_wait_s of the schedule" in whats
    slow = timed(CHAIN, *EVERYTHING.on(cluster, schedule, 0.5))
    assert slow.makespan_s == pytest.approx(2 * timed(CHAIN, cluster, schedule).makespan_s)


@pytest.mark.parametrize("link", [Link(latency_s=1e-4), Link(bandwidth_bytes_per_s=1e9)])
def test_what_is_equal_stays_in_order_and_rounding_is_no_part_at_any_speed(link):
    devices = [Device(name="d", flop_per_s=1e9, step_overhead_s=1e-6)] * 3
    cluster, schedule = Cluster(name="three", devices=devices, link=link), inner_named("sequential")
    found = list[list[str]]()
    for factor in (1.0, 1 / 7):
        at, _same = EVERYTHING.on(cluster, schedule, factor)
        shares = elasticities(timed(LOOP, at, schedule), at)
        assert shares.table["elasticity"].min() > 1e-9
        whats = [change.what for change in changes_of(at, schedule, shares)]
        found.append([*shares.table["where"], *shares.table["constant"], *whats])
    assert found[0] == found[1]
