"""Random programs for the dependency engine, and what they come to when nothing is parallel."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field
from typing import Any

import ampsim
from ampsim.dependency import EngineResult
from ampsim.hardware import Cluster, Device, Link

DEVICE = Device(name="device", flop_per_s=1e12)
SLOW = Device(name="slow", flop_per_s=3e11, step_overhead_s=2e-12, jitter_cv=0.3)
HOST = Device(name="cpu", flop_per_s=5e11)
LINKS = (
    Link(),
    Link(latency_s=3e-12),
    Link(bandwidth_bytes_per_s=1e12),
    Link(latency_s=2e-12, bandwidth_bytes_per_s=5e11),
)
CLUSTERS = [
    Cluster(name=f"{count}-{index}", devices=(device,) * count, link=link)
    for count in (1, 2, 3)
    for index, link in enumerate(LINKS)
    for device in (DEVICE, SLOW)
]


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
        clusters = CLUSTERS
        if getattr(policy, "threads", 1) > 1 and policy.name == "per-device":
            clusters = [one for one in CLUSTERS if not one.devices[0].jitter_cv]
        return ampsim.DependencyEngine(
            clusters[chosen.randrange(len(clusters))],
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

    def in_push_order(self, result: EngineResult) -> dict[int, str]:
        """The values that the same operations come to one by one, in the order of pushes."""
        values = {one: mixed("first", str(one)) for one in range(len(self.variables))}
        for name in result.operations["name"]:
            if name in self.steps:
                self.steps[name].apply(values)
        return values


def conflicts(result: EngineResult) -> list[tuple[int, int]]:
    """Pairs of operations of which one mutates what the other uses, the one pushed first first."""
    found: list[tuple[int, int]] = []
    for second, use in enumerate(result.uses):
        for first in range(second):
            other = result.uses[first]
            both = {*other.reads, *other.mutates} & {*use.reads, *use.mutates}
            if both & {*other.mutates, *use.mutates}:
                found.append((first, second))
    return found


def check(seed: int) -> None:
    """One program comes to what it comes to in push order, and no conflicting pair overlaps."""
    program = Program(seed)
    result = program.run()
    assert program.values == program.in_push_order(result), seed
    table = result.operations
    start_s, end_s = table["start_s"].to_numpy(), table["end_s"].to_numpy()
    for first, second in conflicts(result):
        assert end_s[first] <= start_s[second], (seed, first, second)
    names = table["name"].tolist()
    top = [int(name[1:]) for name in names if name.startswith("s")]
    assert sorted(top) == sorted(set(top)), seed
    for number, variable in enumerate(program.variables):
        assert variable.version == sum(number in use.mutates for use in result.uses), seed
    path = result.critical_path
    assert path["start_s"].iloc[1:].tolist() == path["end_s"].iloc[:-1].tolist(), seed
    if len(path):
        assert (path["start_s"].iloc[0], path["end_s"].iloc[-1]) == (0.0, result.makespan_s), seed
