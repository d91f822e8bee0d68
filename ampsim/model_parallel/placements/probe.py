"""A probe: what instances cost each node, and what they send between nodes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ampsim.hardware import HOST, Cluster, Device, Link
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
    """What instances of a training pass cost.

    Args:
        seconds: of all steps of each node, in the order of ``graph.nodes``; replicas have their
            mean, because in the long run each serves as many instances.
        sent_bytes: payloads between two nodes, to and fro, by their places, the smaller first.
        sent_count: messages between them, likewise.
    """

    seconds: tuple[float, ...]
    sent_bytes: dict[tuple[int, int], int]
    sent_count: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])


def probe(job: Job, device: Device, batches: Iterable[Any]) -> Probe:
    """Send instances through a graph, one after the other, each node on its own `device`.

    In `sleep` mode, unless control flow reads values.

    Args:
        job: a graph that nothing else uses, and how to train it.
        device: whose costs count, but for those of messages and of issuing steps.
        batches: of a training pass; the first `INSTANCES` are taken.
    """
    nodes = job.graph.nodes
    device = device.model_copy(update={"message_overhead_s": 0.0, "dispatch_s": 0.0})
    recorder = Recorder([node.name for node in nodes], max(1, len(nodes) - 1))
    engine = Engine(
        job,
        Cluster(
            name="probe",
            devices=(device,) * max(1, len(nodes) - 1),
            link=Link(latency_s=_LATENCY_S),
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
    return tuple(float(one) for one in seconds)


def _by_pair(sent: Columns, amounts: np.ndarray) -> dict[tuple[int, int], int]:
    """Sums over the messages between two nodes, to and fro."""
    found: dict[tuple[int, int], int] = {}
    for source, target, amount in zip(sent["source"], sent["target"], amounts, strict=True):
        pair = (int(min(source, target)), int(max(source, target)))
        found[pair] = found.get(pair, 0) + int(amount)
    return dict(sorted(found.items()))
