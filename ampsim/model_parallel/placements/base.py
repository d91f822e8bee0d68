"""A placement's decisions, what it may look at, and where it puts steps that cost nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from ampsim.hardware import HOST, Cluster, Link
from ampsim.ir import Graph
from ampsim.model_parallel.engine import Engine
from ampsim.model_parallel.job import Job, RunSettings
from ampsim.model_parallel.schedules import Sequential
from ampsim.trace import Recorder
from ampsim.trace.table import Columns

INSTANCES: Final = 200
"""Instances of a probe, or the next multiple of the replicas, so that each serves as many; all
where there are fewer (chosen: the mean cost of a node of the shipped models is then within about
2 %, after a quarter of a second, or a second for the tagger)."""

_LATENCY_S: Final = 1e-9  # any but 0, so that messages are recorded


@dataclass(frozen=True, slots=True)
class Probe:
    """Measured costs of a training pass's instances.

    Args:
        seconds: of all steps of each node, in the order of ``graph.nodes``; replicas have their
            mean, because in the long run each serves as many instances.
        sent_bytes: payloads between two nodes, to and fro, by their places, the smaller first.
        sent_count: messages between them, likewise.
    """

    seconds: tuple[float, ...]
    sent_bytes: dict[tuple[int, int], int]
    sent_count: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])


Trial: TypeAlias = Callable[[Sequence[int], float], float]
"""``trial(placement, enough_s)`` gives the seconds of an instance in steady training, in time alone
and by the schedule that is to be run; infinity where that cannot train so. It ends early, at a
value above `enough_s`, once that is clearly missed."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The facts that a placement may look at.

    Args:
        graph: verified; its first node is the controller.
        cluster: whose workers there are.
        generator: for what is left to chance.
        probe: what a few hundred instances cost and send, found out when first asked for; the same
            for every seed of a run.
        trial: how fast training is with a placement, tried; None where nothing can be tried.
    """

    graph: Graph
    cluster: Cluster
    generator: np.random.Generator
    probe: Callable[[], Probe]
    trial: Trial | None = None


class Placement(Protocol):
    """Decides which worker hosts which node (affinitization; paper, Section 3.1)."""

    @property
    def origin(self) -> dict[str, Any]:
        """Name and options, for a manifest."""
        ...

    def place(self, situation: Situation) -> list[int]:
        """Return a worker for each node, in the order of ``graph.nodes``.

        The controller's is -1: it lives on the host.
        """
        ...


@dataclass(frozen=True)
class Settled:
    """A placement that was found once, for runs with any seed.

    Args:
        workers: by node, all but the controller.
        origin: of the placement that found it.
    """

    workers: Mapping[str, int] = field(repr=False)
    origin: dict[str, Any]

    def place(self, situation: Situation) -> list[int]:
        """Place each node where it was found to go."""
        return [HOST, *(self.workers[node.name] for node in situation.graph.nodes[1:])]


def place_rest(graph: Graph, placement: list[int], workers: int) -> None:
    """Place the nodes that have no worker yet (-1), all of which cost nothing.

    They take turns on the workers that have no node. Where each has one, they share the worker of
    the node that feeds them.
    """
    idle = [worker for worker in range(workers) if worker not in set(placement)]
    if not idle:
        share_with_producers(graph, placement)
        return
    rest = [index for index in range(1, len(placement)) if placement[index] == HOST]
    for turn, index in enumerate(rest):
        placement[index] = idle[turn % len(idle)]


def share_with_producers(graph: Graph, placement: list[int]) -> None:
    """Walk along the wires from placed nodes; what none of them feeds goes to worker 0."""
    frontier = [index for index, worker in enumerate(placement) if worker >= 0]
    while frontier:
        following: list[int] = []
        for index in frontier:
            for target, _port in graph.targets[index]:
                if placement[target] < 0:
                    placement[target] = placement[index]
                    following.append(target)
        frontier = following
    for index in range(1, len(placement)):
        placement[index] = max(placement[index], 0)


def probe(job: Job, cluster: Cluster, batches: Iterable[Any]) -> Probe:
    """Send instances through a graph, one after the other, each node on a device of its own.

    In `sleep` mode, unless control flow reads values.

    Args:
        job: a graph that nothing else uses, and how to train it.
        cluster: of whose first device the costs count, but for those of messages and of issuing
            steps; and what heavy nodes compute again, if its remedy for memory says so.
        batches: of a training pass; the first `INSTANCES` are taken.
    """
    nodes, device = job.graph.nodes, cluster.devices[0]
    without = dict.fromkeys((*device.message_numbers, "dispatch_s"), 0.0)
    device = device.model_copy(update=without)
    recorder = Recorder([node.name for node in nodes], max(1, len(nodes) - 1))
    engine = Engine(
        job,
        Cluster(
            name="probe",
            devices=(device,) * max(1, len(nodes) - 1),
            link=Link(latency_s=_LATENCY_S),
            memory=None if cluster.offloads else cluster.memory,
        ),
        list(range(HOST, len(nodes) - 1)),
        Sequential(),
        recorder=recorder,
        settings=RunSettings.of_trial(job.graph),
    )
    engine.updater.start_epoch(0)
    replicas = max((len(group) for group in job.graph.replica_groups), default=1)
    count = -(-INSTANCES // replicas) * replicas
    engine.run_pass(itertools.islice(batches, count), is_training=True)
    sent = recorder.columns("transfers")
    return Probe(
        _seconds(job, recorder),
        _by_pair(sent, sent["bytes"]),
        _by_pair(sent, np.ones_like(sent["bytes"])),
    )


def _seconds(job: Job, recorder: Recorder) -> tuple[float, ...]:
    spans = recorder.columns("spans")
    lasting_s = spans["end_s"] - spans["start_s"]
    seconds = np.bincount(spans["node"], weights=lasting_s, minlength=len(job.graph.nodes))
    for group in job.graph.replica_groups:
        places = [job.graph.index(node) for node in group]
        seconds[places] = seconds[places].mean()
    return tuple(map(rounded, seconds))


def rounded(seconds: float) -> float:
    """To nine digits: what rounding alone tells apart is equal then, and the first is first."""
    return float(f"{seconds:.9g}")


def _by_pair(sent: Columns, amounts: np.ndarray) -> dict[tuple[int, int], int]:
    found: dict[tuple[int, int], int] = {}
    for source, target, amount in zip(sent["source"], sent["target"], amounts, strict=True):
        pair = (int(min(source, target)), int(max(source, target)))
        found[pair] = found.get(pair, 0) + int(amount)
    return dict(sorted(found.items()))
