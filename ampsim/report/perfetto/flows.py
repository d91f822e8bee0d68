"""Arrows of a trace: forward step, the backward step that used its activation, the update."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import TypeAlias

from ampsim.report.perfetto.event_json import in_microseconds_of

Place: TypeAlias = tuple[str, int]
"""Track of a slice, as it stands in the file, and a time inside it in ns."""

_WAITING_MAX = 1 << 16  # chosen: more than any schedule has in flight; validation never comes back


class Flows:
    """Matches steps as they come; an arrow is written when its head is known, so none hangs.

    Spans name the instance of a step but not its loop counters: where an instance comes through a
    node several times, the last forward step is taken to come back first, as in a loop.
    """

    def __init__(self) -> None:
        """Start without arrows."""
        self._next_id = 1
        self._nodes: Collection[str] = ()
        self._forwards: OrderedDict[tuple[str, int], list[Place]] = OrderedDict()
        self._gradients: dict[str, list[Place]] = {}

    def start(self, nodes: Collection[str]) -> None:
        """Begin another schedule, in which `nodes` have updates; others get no arrows."""
        self._nodes = nodes
        self._forwards.clear()
        self._gradients.clear()

    def take(self, lines: list[str], step: tuple[str, str, int, int], place: Place) -> None:
        """Add a step (node, direction, instance, staleness); append the arrows that end there."""
        node, direction, instance, staleness = step
        if node not in self._nodes:
            return
        if direction == "forward":
            self._wait(node, instance, place)
        elif direction == "update":
            for gradient in self._gradients.pop(node, ()):
                self._arrow(lines, "gradient", gradient, place)
        elif staleness >= 0:
            self._gradients.setdefault(node, []).append(place)
            places = self._forwards.get((node, instance))
            if places:
                self._arrow(lines, "activation", places.pop(), place)
                if not places:
                    del self._forwards[node, instance]

    def _wait(self, node: str, instance: int, place: Place) -> None:
        self._forwards.setdefault((node, instance), []).append(place)
        if len(self._forwards) > _WAITING_MAX:
            self._forwards.popitem(last=False)

    def _arrow(self, lines: list[str], name: str, tail: Place, head: Place) -> None:
        common = f'"id":{self._next_id},"name":"{name}","cat":"flow"'
        self._next_id += 1
        for shape, (track, time_ns) in (('"ph":"s"', tail), ('"ph":"f","bp":"e"', head)):
            lines.append(f'{{{shape},{track},"ts":{in_microseconds_of(time_ns)!r},{common}}}')
