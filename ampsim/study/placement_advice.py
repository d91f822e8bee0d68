"""Whether another placement would be faster, where the default is blind: tried, not guessed.

The default, the paper's, does not look at devices and links that differ, and draws workers for
light operations, which may come to lie on a worker that is busy already.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ampsim.data_parallel import Solver
from ampsim.errors import AmpsimError, PlacementWarning
from ampsim.hardware import HOST, Cluster, Device, Link, light_is_free
from ampsim.model_parallel import PLACEMENTS, Placement, RunSettings, Schedule
from ampsim.study.energy import UPKEEP
from ampsim.study.model import Model
from ampsim.study.placing import prober, workers_of
from ampsim.study.training import Training

DEFAULT: Final = "paper"
"""Name of the placement where a user names none."""

KNOWING: Final = ("balanced", "communication-aware")
"""Names of those that look at what devices compute and what links carry."""

INSTANCES: Final = 32
"""Instances of a trial, or twice as many as are in flight (chosen: the pipeline fills, and groups
drain, more than once, in a moment)."""

WORTH: Final = 1.1
"""How many times as fast another placement is for it to be named (chosen: less may be another's
for a whole epoch)."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A placement that is faster than the default.

    Attributes:
        placement: its name.
        slowest: how many times as fast it was under the schedule that gains least; at least 1.
        fastest: under the one that gains most.
        blind_to: what the default does not look at, as the beginning of a sentence.
    """

    placement: str
    slowest: float
    fastest: float
    blind_to: str

    def __str__(self) -> str:
        """The sentence for a person."""
        low, high = f"{self.slowest:.1f}", f"{self.fastest:.1f}"
        times = high if low == high else f"{low} to {high}"
        return (
            f"{self.blind_to}, which the default placement '{DEFAULT}' does not look at: on "
            f"the first instances '{self.placement}' is {times} times as fast; take the placement "
            f"'{self.placement}', or name '{DEFAULT}' to keep it"
        )


def advice_on(
    model: Model,
    cluster: Cluster,
    schedules: Sequence[Schedule],
    *,
    seed: int,
    instances: int | None,
    weighs_light: bool = True,
) -> Advice | None:
    """Try the placements that know devices and links, where it may matter, on the first instances.

    Args:
        model: what is trained.
        cluster: on what.
        schedules: how; solvers are left out.
        seed: of the placements.
        instances: training items at most.
        weighs_light: whether it may matter also where light operations take time and nothing else
            is special: then each seed of the default has a throughput of its own.

    Returns:
        The one that is fastest, if it is at least as fast as the default under all of `schedules`
        that are no solvers and by a tenth under one; None otherwise, and where it cannot matter.
    """
    differs = difference(cluster)
    schedules = [one for one in schedules if not isinstance(one, Solver)]
    is_weighed = weighs_light and cluster.workers > 1
    if differs is not None:
        blind_to = f"{differs} differ"
    elif is_weighed and not all(map(light_is_free, cluster.devices)):
        blind_to = "light operations take time"
    else:
        return None
    if not schedules:
        return None
    trial = _Trial(model, cluster, seed, instances)
    usual = PLACEMENTS[DEFAULT]()
    usual_s = [trial.seconds(usual, schedule) for schedule in schedules]
    found: list[Advice] = []
    for name in KNOWING:
        try:
            tried_s = [trial.seconds(PLACEMENTS[name](), schedule) for schedule in schedules]
        except AmpsimError:  # such as a chain schedule that does not fit it
            continue
        ratios = [usual / tried for usual, tried in zip(usual_s, tried_s, strict=True) if tried]
        if ratios and min(ratios) >= 1 and max(ratios) >= WORTH:
            found.append(Advice(name, min(ratios), max(ratios), blind_to))
    return max(found, key=lambda one: one.slowest, default=None)


def warn(advice: Advice | None) -> None:
    """Say it to a user of Python, at the line that called ampsim's function."""
    if advice is not None:
        warnings.warn(str(advice), PlacementWarning, stacklevel=4)  # above the check of arguments


def difference(cluster: Cluster) -> str | None:
    """Say what differs on a cluster: "devices", "links" or both; None where nothing does."""
    if cluster.workers < 2:
        return None
    differing = {
        "devices": len(set(map(_cost, cluster.devices))) > 1,
        "links": _ways_differ(cluster) if cluster.has_shared_bandwidth else _links_differ(cluster),
    }
    return " and ".join(word for word, is_so in differing.items() if is_so) or None


def _links_differ(cluster: Cluster) -> bool:
    links = {_cost(cluster.link)} | {_cost(route.link) for route in cluster.links}
    return len(links) > 1


def _ways_differ(cluster: Cluster) -> bool:
    """Whether ways over edges and ports differ: between workers, from the host, or to it."""
    workers = range(cluster.workers)
    groups = (
        itertools.permutations(workers, 2),
        ((HOST, worker) for worker in workers),
        ((worker, HOST) for worker in workers),
    )
    for pairs in groups:
        costs = (_cost(cluster.link_between(*pair)) for pair in pairs)
        first = next(costs)
        if any(cost != first for cost in costs):
            return True
    return False


def _cost(part: Device | Link) -> str:
    """What it charges, whatever it is called and whoever says so."""
    said = {"name", "description", "source", "sources", *UPKEEP}
    return part.model_dump_json(exclude=said)


class _Trial:
    """The first instances of a plan, trained in time alone."""

    def __init__(self, model: Model, cluster: Cluster, seed: int, instances: int | None) -> None:
        self._model = model
        self._cluster = cluster
        self._seed = seed
        self._data = model.data(seed, instances)
        self._probed = prober(model, cluster, seed, lambda: self._data)

    def seconds(self, placement: Placement, schedule: Schedule) -> float:
        """How long they take."""
        cluster, seed = self._cluster, self._seed
        graph = self._model.graph(seed)
        workers = workers_of(placement, graph, cluster, seed, self._probed)
        batches = self._data.batches("train", epoch=0, seed=seed)
        count = max(INSTANCES, 2 * (schedule.admission.in_flight_max or 0))
        settings = RunSettings.of_trial(graph, spans_kept=0)
        training = Training(self._model, graph, cluster, workers, schedule, settings=settings)
        training.start_epoch(0)
        done = training.train(batches, count)
        return done.end_s - done.start_s
