"""Search: the fastest of the other placements, improved move by move, each move tried."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from ampsim.hardware import HOST
from ampsim.model_parallel.placements.balanced import Balanced
from ampsim.model_parallel.placements.base import Placement, Situation, rounded
from ampsim.model_parallel.placements.communication_aware import CommunicationAware, seconds_per
from ampsim.model_parallel.placements.k_hop import KHop
from ampsim.model_parallel.placements.paper import Paper
from ampsim.options import require_count

TRIALS: Final = 60
"""Placements that are tried (chosen: half a minute for most of the shipped models)."""

GAIN: Final = 0.005
"""Share by which a move must be faster to be made (chosen: less is within what a trial of so many
instances says differently from a longer one)."""

STARTS: Final[tuple[type[Placement], ...]] = (Paper, Balanced, KHop, CommunicationAware)
"""Placements that are tried first."""


@dataclass(frozen=True, slots=True)
class Found:
    """The fastest placement of a search."""

    workers: tuple[int, ...]  # for each node, in the order of ``graph.nodes``
    start: str  # name of the fastest of the placements that it began with
    start_s: float  # seconds of an instance with that one
    seconds: float  # the same with what was found; never more
    trials: int  # how many placements were tried


@dataclass(frozen=True)
class Search:
    """Local search by trials: begins with the fastest of the shipped placements and improves it.

    A move brings a node, or a node and those around it, to another worker, or exchanges two nodes
    or all nodes of two workers. Those that an estimate from the probe calls best are tried first;
    the first that is faster in a trial is made, and the search goes on from there. It ends when no
    move is faster, or after so many trials. Nothing is left to chance.

    Raises:
        OptionError: `trials` is below 1.
    """

    trials: int = TRIALS
    name: ClassVar[str] = "search"

    def __post_init__(self) -> None:
        """Check the option."""
        require_count("trials of a search for a placement", self.trials)

    @property
    def origin(self) -> dict[str, Any]:
        """The name, and how many trials."""
        return {"name": self.name, "trials": self.trials}

    def place(self, situation: Situation) -> list[int]:
        """Place by trials."""
        return list(self.find(situation).workers)

    def find(self, situation: Situation, on_trial: Callable[[int], None] | None = None) -> Found:
        """Search."""
        climb = _Climb(situation, self.trials, on_trial)
        for kind in STARTS:
            climb.takes(kind().place(situation), str(kind().origin["name"]))
        start, start_s = climb.start, climb.best_s
        while any(climb.takes(placement) for placement in climb.moves()):
            pass
        return Found(tuple(climb.best), start, start_s, climb.best_s, climb.spent)


class _Climb:
    """A placement on its way to fewer seconds.

    Attributes:
        best: the fastest so far.
        best_s: seconds of an instance with it.
        start: name of the last start that was the fastest.
        spent: trials made.
    """

    def __init__(
        self, situation: Situation, trials: int, on_trial: Callable[[int], None] | None
    ) -> None:
        assert situation.trial is not None, "a search needs something to try placements with"
        self.best: list[int] = []
        self.best_s = math.inf
        self.start = ""
        self.spent = 0
        self._trial, self._trials, self._on_trial = situation.trial, trials, on_trial
        self._graph, self._cluster = situation.graph, situation.cluster
        self._estimate = _Estimate(situation)
        self._seen: set[tuple[Any, ...]] = set()

    def takes(self, placement: list[int], start: str = "") -> bool:
        """Try a placement, unless it was; tell whether it is faster, and is the best then."""
        self.best = self.best or placement  # also where none can train
        self.start = self.start or start
        key = self._key(placement)
        if key in self._seen or self.spent == self._trials:
            return False
        self._seen.add(key)
        self.spent += 1
        gain = 0.0 if start else GAIN
        enough_s = self.best_s * (1 - gain)
        seconds = self._trial(placement, enough_s)
        if self._on_trial is not None:
            self._on_trial(self.spent)
        if seconds >= enough_s:
            return False
        self.best, self.best_s, self.start = placement, seconds, start or self.start
        return True

    def _key(self, placement: Sequence[int]) -> tuple[Any, ...]:
        """Give one key to placements that differ by names of workers alone, which are alike."""
        cluster = self._cluster
        if cluster.links or cluster.has_shared_bandwidth:
            return tuple(placement)
        kinds = {device: number for number, device in enumerate(dict.fromkeys(cluster.devices))}
        names: dict[int, tuple[int, int]] = {}
        counts = [0] * len(kinds)
        for worker in placement[1:]:
            if worker not in names:
                kind = kinds[cluster.devices[worker]]
                names[worker] = (kind, counts[kind])
                counts[kind] += 1
        return tuple(names[worker] for worker in placement[1:])

    def moves(self) -> Iterator[list[int]]:
        """The placements around the best, those first that the estimate calls fastest."""
        if self.spent == self._trials:
            return
        around: dict[tuple[Any, ...], list[int]] = {}
        for placement in self._around():
            around.setdefault(self._key(placement), placement)
        new = [placement for key, placement in around.items() if key not in self._seen]
        yield from sorted(new, key=self._estimate.seconds)

    def _around(self) -> Iterator[list[int]]:
        best, workers = self.best, range(self._cluster.workers)
        for index in range(1, len(best)):
            near = [one for one in self._near(index) if best[one] == best[index]]
            for worker in workers:
                if worker != best[index]:
                    yield _moved(best, [index], worker)
                    yield _moved(best, [index, *near], worker)
        heavy = [index for index in range(1, len(best)) if self._estimate.costs(index)]
        for one, other in itertools.combinations(heavy, 2):
            if best[one] != best[other]:
                yield _moved(_moved(best, [one], best[other]), [other], best[one])
        for one, other in itertools.combinations(workers, 2):
            exchange = {one: other, other: one}
            yield [exchange.get(worker, worker) for worker in best]

    def _near(self, index: int) -> list[int]:
        wires = [*self._graph.targets[index], *self._graph.sources[index]]
        return [place for place in dict.fromkeys(place for place, _port in wires) if place > 0]


class _Estimate:
    """A placement's estimated worth, from a probe: an order of trials, not an answer."""

    def __init__(self, situation: Situation) -> None:
        probe = situation.probe()
        self._seconds = probe.seconds
        self._rates = [device.flop_per_s for device in situation.cluster.devices]
        self._own_rate = self._rates[0]
        self._costs = seconds_per(situation.cluster)
        self._sent = [
            (one, other, size, probe.sent_count.get((one, other), 1))
            for (one, other), size in probe.sent_bytes.items()
            if one > 0
        ]

    def costs(self, index: int) -> bool:
        """Tell whether a node takes time."""
        return self._seconds[index] > 0

    def seconds(self, placement: Sequence[int]) -> float:
        """Add the busiest worker's computation and a worker's share of what crosses links."""
        loads = [0.0] * len(self._rates)
        for seconds, worker in zip(self._seconds, placement, strict=True):
            if worker != HOST:
                loads[worker] += seconds * self._own_rate / self._rates[worker]
        crossing_s = 0.0
        for one, other, size, count in self._sent:
            if placement[one] != placement[other]:
                of_message_s, of_byte_s = self._costs(placement[one], placement[other])
                crossing_s += count * of_message_s + size * of_byte_s
        return rounded(max(loads) + crossing_s / len(loads))


def _moved(placement: Sequence[int], nodes: Sequence[int], worker: int) -> list[int]:
    moved = list(placement)
    for index in nodes:
        moved[index] = worker
    return moved
