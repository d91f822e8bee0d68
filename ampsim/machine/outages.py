"""Outages of a worker in the order of their starts: those that are set, and those by chance.

Those by chance are drawn when somebody looks that far ahead, from a stream of the worker's own.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from typing import Final, NamedTuple

from ampsim.errors import SimulationError
from ampsim.hardware import Cluster, Failures
from ampsim.rng import stream

OUTAGES_MAX: Final = 1_000_000
"""Most outages by chance of one worker; chosen: it ends runs of which nearly all is outages."""


class Outage(NamedTuple):
    """A time in which a device is not as usual.

    Attributes:
        start_s: when it begins.
        end_s: when it is over.
        kind: "slow", "pause" or "stop".
        slowness: how many times as long as usual a step takes; infinite where the device is down.
        is_step_lost: whether a step in the middle is done again from its start.
        loses_weights: whether the device comes back with the weights of its last checkpoint.
    """

    start_s: float
    end_s: float
    kind: str
    slowness: float
    is_step_lost: bool
    loses_weights: bool = False


def outages_of(cluster: Cluster, worker: int, seed: int) -> Iterator[Outage]:
    """Every outage of a worker, by its start; without end where they come by chance.

    Raises:
        SimulationError: more came by chance than a run can have.
    """
    events = [
        Outage(one.from_s, one.until_s, one.kind, one.slowness, one.is_step_lost, one.loses_weights)
        for one in cluster.events
        if one.hits(worker)
    ]
    failures = cluster.failures
    if failures is None or not failures.hits(worker):
        return iter(sorted(events))
    return heapq.merge(sorted(events), _drawn(failures, worker, seed))


def outages_until(cluster: Cluster, seed: int, end_s: float) -> list[tuple[int, Outage]]:
    """The outages of all workers that begin before `end_s`, worker by worker, a million of each."""
    found: list[tuple[int, Outage]] = []
    for worker in range(cluster.workers) if cluster.events or cluster.failures else ():
        coming = islice(outages_of(cluster, worker, seed), OUTAGES_MAX)
        found += [(worker, one) for one in takewhile(lambda one: one.start_s < end_s, coming)]
    return found


def has_outages(cluster: Cluster, worker: int) -> bool:
    """Whether a worker has any."""
    given: Sequence[object] = [one for one in cluster.events if one.hits(worker)]
    return bool(given) or (cluster.failures is not None and cluster.failures.hits(worker))


def loses_weights(cluster: Cluster, worker: int) -> bool:
    """Whether some outage of a worker takes its weights back to those of a checkpoint."""
    return any(
        one.loses_weights and one.hits(worker)
        for one in (*cluster.events, cluster.failures)
        if one is not None
    )


def _drawn(failures: Failures, worker: int, seed: int) -> Iterator[Outage]:
    """Outages by chance, one after the other."""
    random, end_s = stream(seed, "failures", worker), 0.0
    what = failures.kind, failures.slowness, failures.is_step_lost, failures.loses_weights
    for _ in range(OUTAGES_MAX):
        start_s = end_s + float(random.exponential(failures.mean_time_between_s))
        end_s = start_s + float(random.exponential(failures.mean_time_to_repair_s))
        yield Outage(start_s, end_s, *what)
    raise SimulationError(
        f"worker {worker} fails more than {OUTAGES_MAX:,} times until {end_s:.9g} s, as "
        f"mean_time_between_s is {failures.mean_time_between_s:g}; try a longer one"
    )
