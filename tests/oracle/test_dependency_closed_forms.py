"""When operations run, against computations that share no code with the engine (E2 to E6)."""

from __future__ import annotations

import heapq
import random
from typing import Any

import numpy as np
import pytest

import ampsim
from ampsim.dependency import POLICIES, Random, Workspace
from ampsim.errors import OutOfMemoryError
from ampsim.hardware import Cluster, Device, Link

TICK_S = 1e-18
FLOP_PER_S = 1e12
ONE = Cluster(name="one", devices=(Device(name="d", flop_per_s=FLOP_PER_S),))
POLICIES_OF_ONE = {
    "naive": ampsim.Naive(),
    "pooled": ampsim.Pooled(1),
    "per-device": ampsim.PerDevice(),
}


def random_uses(chosen: random.Random, operations: int, variables: int) -> list[Any]:
    """(reads, mutates, FLOP) of so many operations."""
    uses = []
    for _ in range(operations):
        some = chosen.sample(range(variables), chosen.randint(1, 3))
        cut = chosen.randint(0, len(some))
        uses.append((some[:cut], some[cut:], chosen.randint(1, 50)))
    return uses


def pushed(engine: Any, uses: list[Any], places: list[Any]) -> Any:
    """Push them, wait, and return the table."""
    count = 1 + max((one for reads, mutates, _ in uses for one in (*reads, *mutates)), default=0)
    variables = [engine.new_variable() for _ in range(count)]
    for (reads, mutates, flop), place in zip(uses, places, strict=True):
        engine.push(
            None,
            reads=[variables[one] for one in reads],
            mutates=[variables[one] for one in mutates],
            on=place,
            work=ampsim.Work(flop=flop),
        )
    engine.wait_for_all()
    return engine.result


def longest_paths(uses: list[Any]) -> tuple[list[int], list[int]]:
    """Start and end of each in picoseconds, if each waits for its conflicts alone: O(n²)."""
    starts: list[int] = []
    ends: list[int] = []
    for second, (reads, mutates, flop) in enumerate(uses):
        start = 0
        for first in range(second):
            was_read, was_mutated, _ = uses[first]
            if set(mutates) & {*was_read, *was_mutated} or set(reads) & set(was_mutated):
                start = max(start, ends[first])
        starts.append(start)
        ends.append(start + flop)
    return starts, ends


def picoseconds(column: Any) -> list[int]:
    """Times in s as whole picoseconds, which they must be."""
    ticks = [round(each * 1e18) for each in column]
    assert all(each % 10**6 == 0 for each in ticks)
    return [each // 10**6 for each in ticks]


@pytest.mark.parametrize("seed", range(40))
def test_with_threads_for_all_each_starts_when_its_last_conflict_ends(seed):
    chosen = random.Random(seed)
    uses = random_uses(chosen, 40, chosen.randint(3, 8))
    engine = ampsim.DependencyEngine(ONE, ampsim.PerDevice(threads=len(uses)))
    result = pushed(engine, uses, [0] * len(uses))
    starts, ends = longest_paths(uses)
    assert picoseconds(result.operations["start_s"]) == starts
    assert picoseconds(result.operations["end_s"]) == ends
    assert round(result.makespan_s * 1e12) == max(ends)


def test_no_reader_overtakes_a_mutation_that_waits():
    """A long read, a mutation, a short read: the last waits for the mutation, not for nothing."""
    engine = ampsim.DependencyEngine(ONE, ampsim.PerDevice(threads=4))
    uses = [([0], [1], 50), ([], [0], 10), ([0], [2], 5), ([0], [3], 7)]
    table = pushed(engine, uses, [0] * 4).operations
    assert picoseconds(table["start_s"]) == [0, 50, 60, 60]


@pytest.mark.parametrize("name", POLICIES)
def test_one_thread_is_never_idle(name):
    chosen = random.Random(name)
    for _ in range(10):
        uses = random_uses(chosen, 30, 4)
        engine = ampsim.DependencyEngine(ONE, POLICIES_OF_ONE[name])
        result = pushed(engine, uses, [0] * len(uses))
        assert round(result.makespan_s * 1e12) == sum(flop for *_, flop in uses)
        if name == "naive":
            assert result.operations["start_s"].is_monotonic_increasing


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", ["per-device", "pooled"])
@pytest.mark.parametrize("has_priorities", [False, True])
def test_makespan_keeps_grahams_bounds(threads, kind, has_priorities):
    """Source: Graham, "Bounds on multiprocessing timing anomalies" (1969): list scheduling."""
    chosen = random.Random(threads)
    host = Device(name="cpu", flop_per_s=FLOP_PER_S)
    for _ in range(10):
        uses = random_uses(chosen, 40, 12)
        policy = ampsim.PerDevice(threads) if kind == "per-device" else ampsim.Pooled(threads)
        engine = ampsim.DependencyEngine(ONE, policy, host=host)
        variables = [engine.new_variable() for _ in range(12)]
        for reads, mutates, flop in uses:
            engine.push(
                None, [variables[one] for one in reads], [variables[one] for one in mutates],
                on="host", work=ampsim.Work(flop=flop),
                priority=chosen.randint(0, 3) if has_priorities else 0,
            )  # fmt: skip
        engine.wait_for_all()
        makespan = round(engine.result.makespan_s * 1e12)
        path, work = max(longest_paths(uses)[1]), sum(flop for *_, flop in uses)
        assert max(path, work / threads) <= makespan
        assert makespan <= path * (1 - 1 / threads) + work / threads + 1e-9


def list_schedule(uses: list[Any], threads: int) -> list[int]:
    """Starts under first come first served on so many threads, by an event loop of its own."""
    before = [
        {
            first
            for first in range(second)
            if set(uses[second][1]) & {*uses[first][0], *uses[first][1]}
            or set(uses[second][0]) & set(uses[first][1])
        }
        for second in range(len(uses))
    ]
    starts, left = [-1] * len(uses), {one: set(each) for one, each in enumerate(before)}
    ready = sorted((0, one) for one in left if not left[one])
    running: list[tuple[int, int]] = []
    now = 0
    while ready or running:
        while ready and len(running) < threads:
            _, one = ready.pop(0)
            starts[one] = now
            heapq.heappush(running, (now + uses[one][2], one))
        now = running[0][0]
        while running and running[0][0] == now:
            _, done = heapq.heappop(running)
            for one, each in left.items():
                if done in each:
                    each.remove(done)
                    if not each:
                        ready.append((now, one))
        ready.sort()
    return starts


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_starts_are_those_of_a_list_schedule_of_ones_own(threads):
    chosen = random.Random(threads)
    for _ in range(20):
        uses = random_uses(chosen, 30, 10)
        engine = ampsim.DependencyEngine(ONE, ampsim.PerDevice(threads))
        table = pushed(engine, uses, [0] * len(uses)).operations
        assert picoseconds(table["start_s"]) == list_schedule(uses, threads)


@pytest.mark.parametrize("copy_threads", [1, 2, 3])
def test_copies_of_one_link_take_turns_and_their_latencies_overlap(copy_threads):
    """n copies of b bytes: with c threads, max(c b/B, b/B + L) for each c of them."""
    count, size, rate, latency_s = 6, 1000, 1e9, 4e-6
    link = Link(latency_s=latency_s, bandwidth_bytes_per_s=rate)
    cluster = Cluster(name="one", devices=ONE.devices, link=link)
    engine = ampsim.DependencyEngine(cluster, ampsim.PerDevice(copy_threads=copy_threads))
    for _ in range(count):
        engine.push_copy(None, source=0, target="host", size_bytes=size)
    engine.wait_for_all()
    ends: list[float] = []
    for number in range(count):  # starts when a thread and the link are free
        thread_s = ends[number - copy_threads] if number >= copy_threads else 0.0
        link_s = ends[-1] - latency_s if ends else 0.0
        ends.append(max(thread_s, link_s) + size / rate + latency_s)
    assert engine.result.operations["end_s"].tolist() == pytest.approx(ends, rel=1e-12)


def test_pushes_cost_the_host_and_are_hidden_as_long_as_they_are_short():
    """n operations of s on one device, pushed in p each: max(n p + s, p + n s); naive n (p + s)."""
    count, flop = 50, 10
    for push_s in (0.0, 2e-12, 10e-12, 30e-12):
        for policy, form in (
            (ampsim.PerDevice(), max(count * push_s + 1e-11, push_s + count * 1e-11)),
            (ampsim.Naive(), count * (push_s + 1e-11)),
        ):
            engine = ampsim.DependencyEngine(ONE, policy, push_s=push_s)
            for _ in range(count):
                engine.push(None, work=ampsim.Work(flop=flop))
            engine.wait_for_all()
            assert engine.result.makespan_s == pytest.approx(form, rel=1e-12)
            path = engine.result.critical_path
            assert (path["end_s"] - path["start_s"]).sum() == pytest.approx(form, rel=1e-12)


@pytest.mark.parametrize("policy", [ampsim.Naive(), ampsim.Pooled(3), ampsim.PerDevice(3)])
@pytest.mark.parametrize("flop", [(1, 1), (9, 1), (1, 9)])
def test_draws_are_those_of_a_loop_to_the_bit(policy, flop):
    cluster = Cluster(name="two", devices=ONE.devices * 2)
    engine = ampsim.DependencyEngine(cluster, policy)
    generators = [Random(engine, seed=5, index=index) for index in (0, 1)]
    drawn: list[list[float]] = [[], []]
    for number in range(20):
        which = number % 2
        generators[which].draw(
            lambda random, which=which: drawn[which].append(random.normal()),
            on=which, work=ampsim.Work(flop=flop[which]), name=f"draw {which}",
        )  # fmt: skip
    engine.wait_for_all()
    alone = ampsim.DependencyEngine(ONE)
    for which in (0, 1):
        fresh = Random(alone, seed=5, index=which).generator
        assert drawn[which] == [fresh.normal() for _ in range(10)]
    table = engine.result.operations
    for which in (0, 1):
        own = table[table["name"] == f"draw {which}"]
        assert (own["start_s"].to_numpy()[1:] >= own["end_s"].to_numpy()[:-1]).all()
    if policy.name == "per-device":  # the two run side by side
        assert engine.result.makespan_s == pytest.approx(10e-12 * max(flop))


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_so_many_operations_overlap_as_there_are_workspaces(copies):
    engine = ampsim.DependencyEngine(ONE, ampsim.PerDevice(threads=6))
    workspace = Workspace(engine, 0, copies)
    for size in (10, 30, 20, 40, 5, 30):
        engine.push(None, mutates=[workspace.request(size)], work=ampsim.Work(flop=10), name="use")
    workspace.delete()
    engine.wait_for_all()
    table = engine.result.operations
    used = table[table["name"] == "use"]
    overlap = max(
        ((used["start_s"] <= time_s) & (used["end_s"] > time_s)).sum() for time_s in used["start_s"]
    )
    assert overlap == copies
    assert round(engine.result.makespan_s * 1e12) == 10 * -(-6 // copies)
    grown = [max((10, 30, 20, 40, 5, 30)[one::copies]) for one in range(copies)]
    assert engine.result.peak_bytes[0] == sum(grown)
    assert engine.memory(0).total_bytes == 0


@pytest.mark.parametrize("place", [0, 1, "host"])
def test_a_buffer_grows_where_it_lies_whatever_another_place_does(place):
    """Worker 0 is occupied until 10 s; at 1 s a buffer is asked for."""
    engine = ampsim.DependencyEngine(
        Cluster(name="two", devices=(Device(name="d", flop_per_s=1.0),) * 2)
    )
    ended = engine.new_variable()
    engine.push(None, work=ampsim.Work(flop=10))
    engine.push(None, mutates=[ended], on=1, work=ampsim.Work(flop=1))
    engine.wait_for(ended)
    buffer = Workspace(engine, place).request(8)
    engine.push(None, mutates=[buffer], on=place, name="use")
    engine.wait_for_all()
    assert engine.result.operations["end_s"].tolist()[-2:] == [10.0 if place == 0 else 1.0] * 2


@pytest.mark.parametrize("short", [0, 1])
def test_memory_is_recycled_by_deletion_and_one_byte_too_few_is_too_few(short):
    """a, b, then a is gone, c: under Naive at most two of the three lie there at a time."""
    sizes = {"a": 800, "b": 400, "c": 480}
    peak = max(800, 800 + 400, 400 + 480)
    device = Device(name="d", flop_per_s=FLOP_PER_S, memory_bytes=peak - short)
    engine = ampsim.DependencyEngine(Cluster(name="one", devices=(device,)), ampsim.Naive())
    arrays = ampsim.dependency.Arrays(engine)
    a, b, c = arrays.new(*sizes)
    a[0] = np.zeros(100)
    b[0] = np.zeros(50)
    a[0].delete()
    c[0] = np.zeros(60)
    if short:
        with pytest.raises(OutOfMemoryError, match=r"^b\[gpu0\] set .*needs 1,200 bytes of 1,199"):
            engine.wait_for_all()
        return
    engine.wait_for_all()
    assert engine.result.peak_bytes[0] == peak
    b[0].delete()
    c[0].delete()
    engine.wait_for_all()
    assert engine.memory(0).total_bytes == 0


def test_a_deletion_waits_for_all_that_use_the_variable():
    engine = ampsim.DependencyEngine(ONE, ampsim.PerDevice(threads=3))
    a = engine.new_variable("A")
    for flop in (30, 10):
        engine.push(None, reads=[a], work=ampsim.Work(flop=flop))
    ends: list[float] = []
    engine.delete_variable(a, lambda: ends.append(engine.now_s))
    engine.wait_for_all()
    assert ends == [pytest.approx(30e-12)]


def test_the_clusters_host_computes_and_its_file_says_what_a_push_costs():
    """Two operations of 10 ps on the host, pushed in 3 ps each: 3 + 2 x 10."""
    host = Device(name="cpu", flop_per_s=FLOP_PER_S, message_overhead_s=3e-12)
    cluster = Cluster(name="one", devices=ONE.devices, host=host)
    for push_s, makespan in ((None, 23), (0.0, 20), (15e-12, 40)):
        engine = ampsim.DependencyEngine(cluster, push_s=push_s)
        for _ in range(2):
            engine.push(None, on="host", work=ampsim.Work(flop=10))
        engine.wait_for_all()
        assert round(engine.result.makespan_s * 1e12) == makespan
