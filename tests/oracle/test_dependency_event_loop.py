"""Odd but legal programs on the engine, against an event loop that shares nothing with it.

Work that takes no time, operations on the host, deletions of what is still queued, one variable
read on several devices, crowds of readers, priorities, devices that issue. The loop goes from
instant to instant: what ends, ends; what takes no time and has an idle thread, or needs none, is
done, and what that leads to; then idle threads take the most urgent that is ready.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

import ampsim
from ampsim.hardware import Cluster, Device, Link

DISPATCH_S = 2


@dataclass
class Step:
    """An operation: (kind of lane, place) that it takes, seconds, and what it uses."""

    lane: tuple[str, int]
    seconds: int
    reads: list[int]
    mutates: list[int]
    priority: int = 0
    way: tuple[int, int] | None = None
    after: set[int] = field(default_factory=set)
    ready: float | None = None
    start: float | None = None
    end: float | None = None


class Loop:
    """The event loop.

    Args:
        steps: in push order, all pushed at time 0.
        threads: of each lane that computes; copy_threads of each that copies.
        link: (latency, seconds a byte) of each way.
    """

    def __init__(self, steps: list[Step], threads: int, copy_threads: int, link: Any, issuing: Any):
        self.steps, self.link, self.issuing = steps, link, issuing
        self.counts = {"compute": threads, "copy": copy_threads, "engine": 1, "issue": 1}
        self.free_from: dict[Any, float] = {}
        self.queues: dict[Any, list[int]] = {}
        self.busy: dict[Any, dict[int, float]] = {}
        self.issued: set[int] = set()
        for number, step in enumerate(steps):
            for before, other in enumerate(steps[:number]):
                both = {*step.reads, *step.mutates} & {*other.reads, *other.mutates}
                if both & {*step.mutates, *other.mutates}:
                    step.after.add(before)

    def run(self) -> None:
        now: float = 0
        while True:
            self._end(now)
            while self._ready(now) or self._free(now):
                pass
            self._take(now)
            ends = [end for lane in self.busy.values() for end in lane.values()]
            if not ends:
                return
            now = min(ends)

    def _end(self, now: float) -> None:
        for lane, running in self.busy.items():
            for number in [one for one, end in running.items() if end == now]:
                del running[number]
                if lane[0] == "issue":
                    self.issued.add(number)
                    self.queues.setdefault(self.steps[number].lane, []).append(number)
                else:
                    self.steps[number].end = now

    def _ready(self, now: float) -> bool:
        found = False
        for number, step in enumerate(self.steps):
            ended = all(self.steps[one].end is not None for one in step.after)
            if step.ready is None and ended:
                step.ready, found = now, True
                lane = step.lane
                if lane[0] == "compute" and step.seconds and lane[1] in self.issuing:
                    lane = ("issue", lane[1])
                self.queues.setdefault(lane, []).append(number)
        return found

    def _takes_time(self, step: Step) -> bool:
        return bool(step.seconds) or (step.way is not None and any(self.link))

    def _free(self, now: float) -> bool:
        """Do what takes no time, unless all threads of its device are occupied."""
        for lane, queue in self.queues.items():
            if lane[0] == "compute" and len(self.busy.get(lane, {})) >= self.counts["compute"]:
                continue
            for number in list(queue):
                if not self._takes_time(self.steps[number]):
                    queue.remove(number)
                    self.steps[number].start = self.steps[number].end = now
                    return True
        return False

    def _take(self, now: float) -> None:
        for lane, queue in self.queues.items():
            running = self.busy.setdefault(lane, {})
            kind = lane[0].split("-")[0]
            waiting = [one for one in queue if self._takes_time(self.steps[one])]
            waiting.sort(key=lambda one: (-self.steps[one].priority, self.steps[one].ready, one))
            for number in waiting[: self.counts[kind] - len(running)]:
                queue.remove(number)
                step = self.steps[number]
                if kind == "issue":
                    running[number] = now + DISPATCH_S
                    continue
                step.start = now
                running[number] = now + step.seconds
                if step.way is not None:
                    latency, a_byte = self.link
                    sent = max(now, self.free_from.get(step.way, 0)) + a_byte * step.seconds
                    self.free_from[step.way] = sent
                    running[number] = sent + latency


def program(chosen: random.Random, workers: int, has_host: bool) -> list[Step]:
    """Steps on a few variables, of which each kind of oddity is a part."""
    alive, steps = list(range(chosen.randint(1, 5))), list[Step]()
    for _ in range(chosen.randint(5, 45)):
        if not alive:
            break
        some = chosen.sample(alive, chosen.randint(1, min(3, len(alive))))
        cut = chosen.randint(0, len(some))
        kind = chosen.random()
        priority = chosen.choice((0, 0, 0, 3, -2))
        if kind < 0.08 and len(alive) > 1:
            steps.append(Step(("engine", -1), 0, [], [alive.pop(chosen.randrange(len(alive)))]))
        elif kind < 0.3:
            source, target = chosen.sample(range(-1, workers), 2)
            lane = ("copy-in", target) if source == -1 else ("copy-out", source)
            size = chosen.randint(1, 4)  # none at all may still wait for its link
            steps.append(Step(lane, size, some[:cut], some[cut:], priority, (source, target)))
        elif kind < 0.4:  # a crowd of readers, then one that mutates
            for _reader in range(chosen.randint(5, 20)):
                place = chosen.randrange(workers)
                steps.append(Step(("compute", place), chosen.randint(0, 2), [some[0]], []))
            steps.append(Step(("compute", 0), 1, [], [some[0]]))
        else:
            place = chosen.randint(-1, workers - 1)
            seconds = 0 if place < 0 and not has_host else chosen.choice((0, 1, 2, 2, 5))
            steps.append(Step(("compute", place), seconds, some[:cut], some[cut:], priority))
    return steps


def push(engine: Any, steps: list[Step]) -> None:
    """Push the same to an engine."""
    variables = [engine.new_variable() for _ in range(5)]
    for step in steps:
        reads = [variables[one] for one in step.reads]
        mutates = [variables[one] for one in step.mutates]
        place: Any = "host" if step.lane[1] < 0 else step.lane[1]
        if step.lane[0] == "engine":
            engine.delete_variable(mutates[0])
        elif step.way is not None:
            source, target = ("host" if end < 0 else end for end in step.way)
            engine.push_copy(
                None, reads, mutates, source=source, target=target, size_bytes=step.seconds,
                priority=step.priority,
            )  # fmt: skip
        else:
            work = ampsim.Work(flop=step.seconds) if step.seconds else None
            engine.push(None, reads, mutates, on=place, work=work, priority=step.priority)


def assert_times(
    engine: ampsim.DependencyEngine, steps: list[Step], within: float, seed: int
) -> None:
    """Operations became ready, began and ended as the steps did."""
    table = engine.result.operations
    for column, name in (("ready_s", "ready"), ("start_s", "start"), ("end_s", "end")):
        expected = [getattr(step, name) for step in steps]
        assert table[column].tolist() == pytest.approx(expected, abs=within), (seed, column)


@pytest.mark.parametrize("part", range(4))
def test_odd_programs_start_and_end_when_the_event_loop_says(part):
    compared = 0
    for seed in range(part * 60, (part + 1) * 60):
        chosen = random.Random(seed)
        workers, threads, copy_threads = chosen.randint(1, 3), chosen.randint(1, 3), 1 + seed % 2
        has_host, latency, a_byte = chosen.random() < 0.5, chosen.choice((0, 3)), seed % 3 % 2
        steps = program(chosen, workers, has_host)
        dispatch_s = DISPATCH_S if chosen.random() < 0.4 else 0
        issuing = range(workers) if dispatch_s else ()
        rate = 1.0 if a_byte else None
        # sizes are seconds where bytes take time; a copy over latency alone takes that
        link = Link(latency_s=latency, bandwidth_bytes_per_s=rate)
        device = Device(name="d", flop_per_s=1.0, dispatch_s=dispatch_s)
        engine = ampsim.DependencyEngine(
            Cluster(name="c", devices=(device,) * workers, link=link),
            ampsim.PerDevice(threads, copy_threads),
            host=Device(name="h", flop_per_s=1.0) if has_host else None,
        )
        push(engine, steps)
        for step in steps:  # what copies take is what their link takes
            if step.way is not None and not latency and not a_byte:
                step.seconds = 0
        Loop(steps, threads, copy_threads, (latency, a_byte), issuing).run()
        engine.wait_for_all()
        assert_times(engine, steps, 1e-12, seed)
        compared += len(steps)
    assert compared > 1000


class PoolLoop:
    """Steps that are pushed one by one, each with a thread of the pool to its end.

    At an instant what has ended ends; threads go to the most urgent that is ready; what takes no
    time is done where its device is idle, which may free threads for what it makes ready; at last
    devices take the most urgent that has a thread.
    """

    def __init__(self, steps: list[Step], threads: int, push_s: float) -> None:
        self.steps, self.threads, self.left = steps, threads, threads
        self.pushed = [push_s * (number + 1) for number in range(len(steps))]
        self.ends: dict[int, float] = {}
        self.pool: list[int] = []
        self.free: list[int] = []
        self.lanes: dict[tuple[str, int], list[int]] = {}
        for number, step in enumerate(steps):
            step.after = {
                before
                for before, other in enumerate(steps[:number])
                if {*step.reads, *step.mutates} & {*other.mutates}
                or {*step.mutates} & {*other.reads}
            }

    def run(self) -> None:
        moments = set(self.pushed)
        while moments:
            now = min(moments)
            moments.remove(now)
            for number in [one for one, end in self.ends.items() if end == now]:
                self.steps[number].end = self.ends.pop(number)
                self.left += 1
            self._ready(now)
            while self._free(now) or self._give():
                pass
            for lane, waiting in self.lanes.items():
                waiting.sort(key=self._urgency)
                while waiting and self._is_idle(lane):
                    number = waiting.pop(0)
                    self.steps[number].start = now
                    self.ends[number] = now + self.steps[number].seconds
                    moments.add(self.ends[number])

    def _urgency(self, number: int) -> Any:
        return -self.steps[number].priority, self.steps[number].ready, number

    def _is_idle(self, lane: tuple[str, int]) -> bool:
        busy = sum(self.steps[one].lane == lane for one in self.ends)
        return busy < (self.threads if lane == ("compute", -1) else 1)

    def _ready(self, now: float) -> None:
        for number, step in enumerate(self.steps):
            ended = all(self.steps[one].end is not None for one in step.after)
            if step.ready is None and self.pushed[number] <= now and ended:
                step.ready = now
                self.pool.append(number)

    def _give(self) -> bool:
        self.pool.sort(key=self._urgency)
        given, self.pool = self.pool[: self.left], self.pool[self.left :]
        self.left -= len(given)
        for number in given:
            step = self.steps[number]
            waiting = self.lanes.setdefault(step.lane, []) if step.seconds else self.free
            waiting.append(number)
        return bool(given)

    def _free(self, now: float) -> bool:
        for number in self.free:
            if self._is_idle(self.steps[number].lane):
                self.free.remove(number)
                self.steps[number].start = self.steps[number].end = now
                self.left += 1
                self._ready(now)
                return True
        return False


@pytest.mark.parametrize("part", range(2))
def test_programs_on_a_pool_start_and_end_when_threads_and_devices_let_them(part):
    """A thread has its operation to its end, also while another one's occupies the device."""
    compared = 0
    for seed in range(part * 60, (part + 1) * 60):
        chosen = random.Random(seed)
        workers, threads, push_s = chosen.randint(1, 3), chosen.randint(1, 4), chosen.random() / 3
        steps = [one for one in program(chosen, workers, True) if one.lane[0] != "engine"]
        for number, step in enumerate(steps):  # no two end at once
            step.seconds = 1 if step.way else chosen.randint(1, 5) + number / 64  # pyright: ignore[reportAttributeAccessIssue]  # a fraction
        device = Device(name="d", flop_per_s=1.0)
        engine = ampsim.DependencyEngine(
            Cluster(name="c", devices=(device,) * workers, link=Link(latency_s=1.0)),
            ampsim.Pooled(threads), host=device, push_s=push_s,
        )  # fmt: skip
        push(engine, steps)
        PoolLoop(steps, threads, push_s).run()
        engine.wait_for_all()
        assert_times(engine, steps, 1e-9, seed)
        compared += len(steps)
    assert compared > 1000


@pytest.mark.parametrize("part", range(2))
def test_odd_programs_on_a_pool_leave_no_device_to_what_is_less_urgent(part):
    """What becomes ready by work that takes no time counts at the same instant."""
    compared = 0
    for seed in range(part * 60, (part + 1) * 60):
        chosen = random.Random(seed)
        workers, threads, latency = (
            chosen.randint(1, 3),
            chosen.randint(1, 6),
            chosen.choice((0, 3)),
        )
        has_host, device = chosen.random() < 0.5, Device(name="d", flop_per_s=1.0)
        steps = [one for one in program(chosen, workers, has_host) if one.lane[0] != "engine"]
        engine = ampsim.DependencyEngine(
            Cluster(name="c", devices=(device,) * workers, link=Link(latency_s=latency)),
            ampsim.Pooled(threads), host=Device(name="h", flop_per_s=1.0) if has_host else None,
        )  # fmt: skip
        push(engine, steps)
        for step in steps:
            if step.way is not None:
                step.seconds = latency
        PoolLoop(steps, threads, 0.0).run()
        engine.wait_for_all()
        assert_times(engine, steps, 1e-9, seed)
        compared += len(steps)
    assert compared > 1000


@pytest.mark.parametrize("dispatch_s", [0.0, 2.0])
def test_a_pool_that_has_threads_for_all_is_as_a_thread_of_each_place(dispatch_s):
    for seed in range(60):
        chosen = random.Random(seed)
        workers = chosen.randint(1, 3)
        steps = program(chosen, workers, False)
        link = Link(latency_s=chosen.choice((0, 3)), bandwidth_bytes_per_s=chosen.choice((None, 1)))
        device = Device(name="d", flop_per_s=1.0, dispatch_s=dispatch_s)
        cluster = Cluster(name="c", devices=(device,) * workers, link=link)
        tables = list[Any]()
        for policy in (ampsim.Pooled(len(steps)), ampsim.PerDevice()):
            engine = ampsim.DependencyEngine(cluster, policy)
            push(engine, steps)
            engine.wait_for_all()
            tables.append(engine.result.operations[["ready_s", "start_s", "end_s"]])
        assert tables[0].equals(tables[1]), seed
