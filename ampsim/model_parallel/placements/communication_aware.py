"""Communication-aware: among balanced placements, one that sends few bytes over links."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Final

from ampsim.hardware import Cluster
from ampsim.model_parallel.placements.balanced import Balanced
from ampsim.model_parallel.placements.base import Situation

SLACK: Final = 0.05
"""How much more than under `Balanced` the busiest worker may have to compute (chosen)."""

_ROUNDING: Final = 1 - 1e-9
"""Factor below which seconds are fewer and not the same sum in another order."""

_Sent = tuple[int, int, int]
"""(node, bytes, messages) that a node exchanges with another one."""

_Moves = tuple[tuple[int, int], ...]
"""Nodes, each with the worker that it moves to."""


@dataclass(frozen=True)
class CommunicationAware:
    """Local search from the balanced placement: move one node, or swap two, while it saves bytes.

    The busiest worker never has more than `SLACK` above the balanced placement's to compute. Bytes
    are those of a probe; whatever goes to or from the host is the same in every placement. Nodes
    that cost nothing move freely, so they end up beside what they talk to.

    Where messages cross the edges of a topology or ports, what is saved is seconds instead: for
    each message the sum of the latencies, and its bytes over the narrowest bandwidth.
    """

    name: ClassVar[str] = "communication-aware"

    @property
    def origin(self) -> dict[str, Any]:
        """The name."""
        return {"name": self.name}

    def place(self, situation: Situation) -> list[int]:
        """Search in a fixed order; nothing is left to chance."""
        search = _Search(situation, Balanced().place(situation))
        while search.improve():
            pass
        return search.placement


def seconds_per(cluster: Cluster) -> Callable[[int, int], tuple[float, float]]:
    """The seconds of a message and of a byte between two workers, the mean of both directions."""

    @cache
    def seconds(one: int, other: int) -> tuple[float, float]:
        links = [cluster.link_between(one, other), cluster.link_between(other, one)]
        rates = [link.bandwidth_bytes_per_s for link in links]
        of_byte_s = sum(0.0 if rate is None else 1 / rate for rate in rates) / 2
        return sum(link.latency_s for link in links) / 2, of_byte_s

    return seconds


class _Search:
    """A placement on its way to fewer bytes."""

    def __init__(self, situation: Situation, placement: list[int]) -> None:
        probe = situation.probe()
        self.placement = placement
        self._seconds = probe.seconds
        self._rates = [device.flop_per_s for device in situation.cluster.devices]
        self._loads = [0.0] * len(self._rates)
        for index in range(1, len(placement)):
            self._loads[placement[index]] += self._seconds[index]
        self._limit = (1 + SLACK) * max(map(self._lasting, range(len(self._rates))))
        self._sent: list[list[_Sent]] = [[] for _ in placement]
        for (one, other), size in probe.sent_bytes.items():
            if one > 0:
                count = probe.sent_count.get((one, other), 1)
                self._sent[one].append((other, size, count))
                self._sent[other].append((one, size, count))
        shares = situation.cluster.has_shared_bandwidth
        self._costs = seconds_per(situation.cluster) if shares else None

    def _lasting(self, worker: int) -> float:
        return self._loads[worker] / self._rates[worker]

    def improve(self) -> bool:
        """Make every move that saves bytes when its turn comes; tell whether there was any."""
        before = self.placement.copy()
        for moves in self._candidates():
            home = tuple((index, self.placement[index]) for index, _worker in moves)
            least = self._crossing(home) * (1 if self._costs is None else _ROUNDING)
            is_cheaper = self._crossing(moves) < least
            if is_cheaper and not self._shift(moves):
                self._shift(home)
        return self.placement != before

    def _candidates(self) -> Iterator[_Moves]:
        """Each node to each other worker, then each pair of nodes that costs something swapped."""
        places = range(1, len(self.placement))
        for index in places:
            for worker in range(len(self._rates)):
                if worker != self.placement[index]:
                    yield ((index, worker),)
        heavy = [index for index in places if self._seconds[index] > 0]
        for one in heavy:
            for other in heavy:
                if one < other and self.placement[one] != self.placement[other]:
                    yield ((one, self.placement[other]), (other, self.placement[one]))

    def _crossing(self, moves: _Moves) -> float:
        moved = dict(moves)
        return sum(
            self._cost(worker, moved.get(other, self.placement[other]), size, count)
            for index, worker in moves
            for other, size, count in self._sent[index]
        )

    def _cost(self, one: int, other: int, size: int, count: int) -> float:
        if one == other:
            return 0
        if self._costs is None:
            return size
        of_message_s, of_byte_s = self._costs(one, other)
        return count * of_message_s + size * of_byte_s

    def _shift(self, moves: _Moves) -> bool:
        """Make `moves`; tell whether no worker has too much to compute then."""
        for index, worker in moves:
            self._loads[self.placement[index]] -= self._seconds[index]
            self._loads[worker] += self._seconds[index]
            self.placement[index] = worker
        return all(self._lasting(worker) <= self._limit for _index, worker in moves)
