"""Whether another placement would be faster, where the default is blind: tried, not guessed.

The default, the paper's, looks at neither devices nor links, and draws workers for light
operations, which may come to lie on a worker that is busy already.

A trial trains in time alone, pass by pass, each pass twice as long as all before it, until the
ratio of the seconds of an instance is stable, or the fastest is far ahead.
`tests/benchmark/bench_placement_advice.py` measures how often the advice is right over 1,500
instances.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ampsim.data_parallel import Solver
from ampsim.dataflow import OfProgram
from ampsim.errors import AmpsimError, PlacementWarning
from ampsim.hardware import HOST, Cluster, Device, Link, light_is_free
from ampsim.model_parallel import PLACEMENTS, Schedule
from ampsim.study.placement_trials import DEFAULT, FIRST, Timed, Trials
from ampsim.study.read_off import UPKEEP

KNOWING: Final = ("balanced", "communication-aware")
"""Names of those that look at what devices compute and what links carry."""

INSTANCES_MIN: Final = 120
"""Instances of a trial at least, as far as there are so many (chosen)."""

INSTANCES_MAX: Final = 1000
"""Instances of a trial at most, but for the last pass (chosen: a few seconds)."""

SHORT: Final = 4
"""Times a first pass, up to which an epoch is tried as a whole (chosen)."""

STABLE: Final = 0.01
"""Share by which a ratio changes at most with the last pass of a trial (chosen)."""

CLEAR: Final = 5
"""Times the change of the last pass by which the fastest is ahead for the trial to end (chosen)."""

WORTH: Final = 1.05
"""Times as fast as the default that another is to be named (chosen: less is not worth a line)."""

SHARE: Final = 2
"""One part in so many of a run's instances is what the trials for it may take (chosen: a run takes
half as long again at most, and far less than that where it computes numbers)."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A placement that is faster than the default."""

    placement: str  # its name
    slowest: float  # how many times as fast it was under the schedule that gains least; at least 1
    fastest: float  # under the one that gains most
    blind_to: str  # what the default does not look at, as the beginning of a sentence

    def __str__(self) -> str:
        """The sentence for a person."""
        low, high = f"{self.slowest:.2f}", f"{self.fastest:.2f}"
        times = high if low == high else f"{low} to {high}"
        return (
            f"{self.blind_to}: take the placement '{self.placement}' ({times} times as fast in "
            f"trials) or 'search', or name '{DEFAULT}' to keep the default"
        )


def advice_on(
    trials: Trials, schedules: Sequence[Schedule], *, seed: int, trained: int | None = None
) -> Advice | None:
    """Try the placements that know devices and links, where it may matter.

    Args:
        trials: of a model on a cluster.
        schedules: how; solvers whose copies have one worker each are left out.
        seed: of what the default leaves to chance.
        trained: instances that are to be trained on; trials take their `SHARE` at most, and there
            are none where that is too little. None for as many as trials need.

    Returns:
        The one that is fastest, if it is at least as fast as the default under all of `schedules`
        and clearly faster under one; None otherwise, where it cannot matter, and where the default
        itself cannot be tried, as the run will say.
    """
    blind_to = blindness(trials.cluster)
    schedules = [
        one
        for one in schedules
        if not isinstance(one, OfProgram)
        and (not isinstance(one, Solver) or one.workers_per_rank > 1)
    ]
    limit = INSTANCES_MAX
    if trained is not None:
        limit = min(limit, trained // SHARE // (1 + len(KNOWING)))
    if blind_to is None or not schedules or limit < FIRST:
        return None
    try:
        tried = [_ratios(trials, schedule, seed, limit) for schedule in schedules]
    except AmpsimError:
        return None
    found = [_advice(name, tried, blind_to) for name in KNOWING]
    return max(filter(None, found), key=lambda one: one.slowest, default=None)


_Tried: TypeAlias = tuple[Mapping[str, float], float]
"""How many times as fast as the default each placement is under a schedule, after the last pass,
and by which share that changed it: 0 for a whole epoch, infinity for one pass."""


def _advice(name: str, tried: Sequence[_Tried], blind_to: str) -> Advice | None:
    """Say whether one placement, tried under each schedule, is worth taking."""
    if any(name not in ratios for ratios, _change in tried):
        return None
    values = [ratios[name] for ratios, _change in tried]
    least = [max(WORTH - 1, 3 * change) for _ratios, change in tried]
    is_worth = any(one - 1 >= more for one, more in zip(values, least, strict=True))
    if min(values) < 1 or not is_worth:
        return None
    return Advice(name, min(values), max(values), blind_to)


class _Race:
    """The default and the placements that know more, trained side by side under one schedule.

    Raises:
        AmpsimError: the default does not fit.
    """

    def __init__(self, trials: Trials, schedule: Schedule, seed: int) -> None:
        """Place all; no time passes yet."""
        self._workers: dict[str, tuple[int, ...]] = {}
        self._timed: dict[tuple[int, ...], Timed] = {}
        for name in (DEFAULT, *KNOWING):
            workers = tuple(trials.place(PLACEMENTS[name](), schedule, seed))
            try:
                if workers not in self._timed:
                    self._timed[workers] = Timed(trials, schedule, workers)
            except AmpsimError:  # such as a chain schedule that does not fit it
                if name == DEFAULT:
                    raise
                continue
            self._workers[name] = workers
        self.instances = 0

    @property
    def has_ended(self) -> bool:
        """Whether the epoch has, or all placements are the same."""
        return len(self._timed) == 1 or any(one.has_ended for one in self._timed.values())

    def go_on(self, count: int) -> None:
        """Train on so many instances more; who cannot is left out, unless it is the default."""
        self.instances += count
        for workers, timed in list(self._timed.items()):
            try:
                timed.go_on(count)
            except AmpsimError:
                if workers == self._workers[DEFAULT]:
                    raise
                del self._timed[workers]
                self._workers = {name: at for name, at in self._workers.items() if at != workers}

    def ratios(self) -> dict[str, float]:
        """The speed of each other placement, over that of the default."""
        seconds = {name: self._timed[at].instance_s for name, at in self._workers.items()}
        usual = seconds.pop(DEFAULT)
        return {name: usual / one if 0 < one < math.inf else 1.0 for name, one in seconds.items()}


def _ratios(trials: Trials, schedule: Schedule, seed: int, limit: int) -> _Tried:
    """Return the speed of each placement that fits over that of the default; none of short runs."""
    count = trials.first_pass(schedule)
    if limit < count:
        return {}, math.inf
    epoch = trials.data.epoch_batches(trials.epochs - 1)
    if epoch <= min(limit, SHORT * count):
        count = epoch + 1  # so that it ends, and is measured as it is
    race = _Race(trials, schedule, seed)
    race.go_on(count)
    ratios = race.ratios()
    change = 0.0 if race.has_ended else math.inf
    while not race.has_ended and 2 * race.instances <= limit:
        before = ratios
        race.go_on(race.instances)
        ratios = race.ratios()
        change = max((abs(one / before[name] - 1) for name, one in ratios.items()), default=0.0)
        first, second, *_rest = sorted([*ratios.values(), 1.0, 0.0], reverse=True)
        is_clear = first >= second * (1 + CLEAR * change)  # the default is among them
        if race.instances >= INSTANCES_MIN and (change < STABLE or is_clear):
            break
    return ratios, change


def warn(advice: Advice | None) -> None:
    """Say it to a user of Python, at the line that called ampsim's function."""
    if advice is not None:
        warnings.warn(str(advice), PlacementWarning, stacklevel=4)  # above the check of arguments


def blindness(cluster: Cluster) -> str | None:
    """Say what the default does not look at, such as "devices differ"; None where nothing is."""
    if cluster.workers < 2:
        return None
    if (differs := difference(cluster)) is not None:
        return f"{differs} differ"
    if not cluster.is_link_free or any(one.message_numbers for one in cluster.devices):
        return "messages take time"
    return None if all(map(light_is_free, cluster.devices)) else "light operations take time"


def difference(cluster: Cluster) -> str | None:
    """Say what differs on a cluster: "devices", "links" or both; None where nothing does."""
    if cluster.workers < 2:
        return None
    differing = {
        "devices": len(set(map(_cost, cluster.devices))) > 1,
        "links": _ways_differ(cluster),
    }
    return " and ".join(word for word, is_so in differing.items() if is_so) or None


def _ways_differ(cluster: Cluster) -> bool:
    """Tell whether ways over edges and ports differ: between workers, from the host, or to it."""
    if not cluster.has_shared_bandwidth:
        return len({_cost(cluster.link), *(_cost(route.link) for route in cluster.links)}) > 1
    workers = range(cluster.workers)
    groups = (
        itertools.permutations(workers, 2),
        ((HOST, worker) for worker in workers),
        ((worker, HOST) for worker in workers),
    )
    return any(len({_cost(cluster.link_between(*pair)) for pair in pairs}) > 1 for pairs in groups)


def _cost(part: Device | Link) -> str:
    """Write down what a part charges, whatever it is called and whoever says so."""
    said = {"name", "description", "source", "sources", *UPKEEP}
    return part.model_dump_json(exclude=said)
