"""Random programs for the dependency engine, and what they come to when nothing is parallel."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pandas as pd

import ampsim
from ampsim.dependency import EngineResult
from ampsim.hardware import Cluster, Device, Event, HostPorts, Link, Ports, Topology

DEVICE = Device(name="device", flop_per_s=1e12)
SLOW = Device(name="slow", flop_per_s=3e11, step_overhead_s=2e-12, jitter_cv=0.3)
HOST = Device(name="cpu", flop_per_s=5e11)
LINKS = (
    Link(),
    Link(latency_s=3e-12),
    Link(bandwidth_bytes_per_s=1e12),
    Link(latency_s=2e-12, bandwidth_bytes_per_s=5e11),
)
COPYING = Device(
    name="copying", flop_per_s=1e12, copy_bandwidth_bytes_per_s=7e11, copy_latency_s=1e-12
)
ISSUING = COPYING.model_copy(update={"name": "issuing", "dispatch_s": 1e-12})
EDGES: dict[str, Any] = {"latency_s": 1e-12, "bandwidth_bytes_per_s": 4e11}
PORTS = Ports(egress_bytes_per_s=6e11, host=HostPorts(ingress_bytes_per_s=9e11))
SHARED: tuple[dict[str, Any], ...] = (
    {"ports": PORTS},
    {"ports": PORTS, "link": LINKS[3]},
    {"topology": Topology(kind="ring", **EDGES), "link": LINKS[3]},
    {"topology": Topology(kind="star", **EDGES), "ports": PORTS},
)
FABRICS: tuple[dict[str, Any], ...] = (
    *({"link": link} for link in LINKS),
    *({**one, "sharing": sharing} for one in SHARED for sharing in ("fair", "first-come")),
)
ROUNDING_S = 1e-17
DEVICES = ((DEVICE,), (SLOW,), (COPYING,), (COPYING, DEVICE), (ISSUING, SLOW, DEVICE))
"""Those of the first workers, in turn."""

EVENTS: tuple[tuple[Event, ...], ...] = (
    (),
    (Event(kind="pause", worker=0, from_s=1e-11, until_s=3e-11),),
    (
        Event(kind="slow", worker=0, from_s=4e-12, until_s=2e-11, factor=3.0),
        Event(kind="stop", worker=0, from_s=1.5e-11, until_s=1.8e-11),
        Event(kind="pause", worker=0, from_s=4e-11, until_s=1e-9),
    ),
)
"""What befalls the first worker; the last of them begins while most programs still run."""


def cluster_of(chosen: random.Random, *, is_steady: bool) -> Cluster:
    """Any number and kind of devices on any fabric; without jitter and events where `is_steady`."""
    count, devices = chosen.randint(1, 3), chosen.choice(DEVICES)
    fabric, events = chosen.choice(FABRICS), chosen.choice(EVENTS)
    if "topology" in fabric:
        count = 3
    if is_steady:
        devices, events = tuple(one for one in devices if not one.jitter_cv) or (DEVICE,), ()
    of_workers = tuple(devices[worker % len(devices)] for worker in range(count))
    return Cluster(name="random", devices=of_workers, events=events, **fabric)


def policy_of(chosen: random.Random) -> Any:
    """Any shipped policy, with few threads."""
    threads = chosen.randint(1, 3)
    kinds = (
        ampsim.Naive(),
        ampsim.Pooled(threads),
        ampsim.PerDevice(1, copy_threads=threads),
        ampsim.PerDevice(threads, copy_threads=chosen.randint(1, 2)),
    )
    return kinds[chosen.randrange(4)]


def mixed(name: str, *values: str) -> str:
    """Another value for each name and each order of values: no sum hides an exchange."""
    return hashlib.blake2b("|".join((name, *values)).encode(), digest_size=8).hexdigest()


@dataclass
class Step:
    """An operation of a program: numbers of the variables that it uses, and what it pushes."""

    name: str
    reads: list[int]
    mutates: list[int]
    nested: list[Step] = field(default_factory=list)

    def apply(self, values: dict[int, str]) -> None:
        """Change the values as its function does."""
        seen = [values[one] for one in (*self.reads, *self.mutates)]
        for one in self.mutates:
            values[one] = mixed(f"{self.name} {one}", *seen)


class Program:
    """One random program.

    Args:
        seed: of everything in it.
        engine: runs it; one of its own choice unless given.
    """

    def __init__(self, seed: int, engine: Any = None) -> None:
        self.random = random.Random(seed)
        self.engine = engine or self._engine()
        count = self.random.randint(1, 6)
        self.variables = [self.engine.new_variable(f"v{one}") for one in range(count)]
        self.values = {one: mixed("first", str(one)) for one in range(count)}
        self.steps: dict[str, Step] = {}
        self.alive = list(range(count))

    def _engine(self) -> Any:
        chosen = self.random
        policy = policy_of(chosen)
        has_threads = getattr(policy, "threads", 1) > 1 and policy.name == "per-device"
        return ampsim.DependencyEngine(
            cluster_of(chosen, is_steady=has_threads),
            policy,
            host=chosen.choice((None, HOST)),
            push_s=chosen.choice((0.0, 0.0, 1e-12, 4e-12)),
            seed=chosen.randrange(100),
        )

    def run(self, operations: int = 16) -> EngineResult:
        """Push everything, wait, and return what the engine recorded."""
        for _ in range(operations):
            if self.alive:
                self._push(self._step())
            if self.random.random() < 0.05 and len(self.alive) > 1:
                self._delete()
            if self.random.random() < 0.05 and self.alive:
                self.engine.wait_for(self.variables[self.random.choice(self.alive)])
        self.engine.wait_for_all()
        return self.engine.result

    def _step(self, depth: int = 0) -> Step:
        chosen = self.random.sample(self.alive, self.random.randint(1, min(3, len(self.alive))))
        cut = self.random.randint(0, len(chosen))
        step = Step(f"s{len(self.steps)}", chosen[:cut], chosen[cut:])
        self.steps[step.name] = step
        if depth < 2 and self.random.random() < 0.1:
            step.nested = [self._step(depth + 1) for _ in range(self.random.randint(1, 2))]
        return step

    def _push(self, step: Step) -> None:
        chosen, workers = self.random, self.engine.cluster.workers
        places = ["host", *range(workers)]

        def function() -> None:
            step.apply(self.values)
            for one in step.nested:
                if not any(self.variables[v].is_deleted for v in (*one.reads, *one.mutates)):
                    self._push(one)

        reads = [self.variables[one] for one in step.reads]
        mutates = [self.variables[one] for one in step.mutates]
        common = {"name": step.name, "priority": chosen.choice((0, 0, 1, -2.5))}
        if chosen.random() < 0.3:
            source, target = chosen.sample(places, 2)
            size = chosen.randint(0, 20)
            self.engine.push_copy(
                function, reads, mutates, source=source, target=target, size_bytes=size, **common
            )
            return
        work = None if chosen.random() < 0.2 else ampsim.Work(flop=chosen.randint(0, 20))
        on = chosen.choice(places)
        self.engine.push(function, reads, mutates, on=on, work=work, **common)

    def _delete(self) -> None:
        gone = self.random.choice(self.alive)
        self.alive.remove(gone)
        step = Step(f"delete v{gone}", [], [gone])
        self.steps[step.name] = step
        self.engine.delete_variable(self.variables[gone], lambda: step.apply(self.values))

    def in_order(self, names: list[str]) -> dict[int, str]:
        """The values that operations come to one by one."""
        values = {one: mixed("first", str(one)) for one in range(len(self.variables))}
        for name in names:
            if name in self.steps:
                self.steps[name].apply(values)
        return values


class Part(NamedTuple):
    """Of a critical path."""

    kind: str
    operation: int
    start_s: float
    end_s: float


def conflicts(result: EngineResult) -> list[tuple[int, int]]:
    """Pairs of operations of which one mutates what the other uses, the one pushed first first."""
    found: list[tuple[int, int]] = []
    earlier: list[tuple[set[int], set[int]]] = []
    for second, use in enumerate(result.uses):
        used, mutated = {*use.reads, *use.mutates}, {*use.mutates}
        for first, (others, changed) in enumerate(earlier):
            if not used.isdisjoint(changed) or not mutated.isdisjoint(others):
                found.append((first, second))
        earlier.append((used, mutated))
    return found


def columns_of(table: pd.DataFrame, names: str) -> dict[str, list[Any]]:
    """Columns of a table as lists."""
    return {name: table[name].tolist() for name in names.split()}


def check_path(result: EngineResult, table: dict[str, list[Any]]) -> None:
    """The critical path joins from 0 to the end, and is that of the operations' own table.

    What made an operation ready is followed back from the last one until a push did: from then on,
    the path has the work of just these operations, each at its own time.
    """
    columns = columns_of(result.critical_path, "kind operation start_s end_s")
    path = [Part(*one) for one in zip(*columns.values(), strict=True)]
    if not path:
        assert not result.makespan_s
        return
    assert [one.start_s for one in path[1:]] == [one.end_s for one in path[:-1]]
    assert (path[0].start_s, path[-1].end_s) == (0.0, result.makespan_s)
    number, chain = int(path[-1].operation), list[int]()
    while number >= 0 and path[-1].kind != "push":
        chain.append(number)
        number = int(table["waited_for"][number])
    times = {one: (table["start_s"][one], table["end_s"][one]) for one in chain}
    sent = columns_of(result.transfers, "operation start_s end_s")
    sent_s = zip(*sent.values(), strict=True)
    times |= {one: tuple(ends_s) for one, *ends_s in sent_s if one in times}  # its last one's
    works = [one for one in path if one.kind in ("compute", "transfer")]
    for number, (start_s, end_s) in times.items():
        if end_s > start_s:
            own = [one for one in works if one.operation == number]
            assert len(own) == 1, f"operation {number} is not on the path"
            off_s = abs(own[0].start_s - start_s) + abs(own[0].end_s - end_s)
            assert off_s < ROUNDING_S, number
    if chain:
        later = [one for one in path if one.start_s >= table["pushed_s"][chain[-1]]]
        assert {one.operation for one in later if one.kind != "push"} <= set(chain)


def check(seed: int) -> None:
    """One program comes to what it comes to in push order, and no conflicting pair overlaps.

    Time ends with its last operation.
    """
    program = Program(seed)
    result = program.run()
    table = columns_of(result.operations, "name pushed_s start_s end_s waited_for")
    assert program.values == program.in_order(table["name"]), seed
    start_s, end_s = table["start_s"], table["end_s"]
    for first, second in conflicts(result):
        assert end_s[first] <= start_s[second], (seed, first, second)
    top = [int(name[1:]) for name in table["name"] if name.startswith("s")]
    assert sorted(top) == sorted(set(top)), seed
    for number, variable in enumerate(program.variables):
        assert variable.version == sum(number in use.mutates for use in result.uses), seed
    assert program.engine.now_s == result.makespan_s, f"{seed}: time went on for nothing"
    check_path(result, table)
