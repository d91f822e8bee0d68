"""Arrows of a trace: forward step, the backward step that used its activation, the update."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import NamedTuple, TypeAlias

from ampsim.report.perfetto.event_json import in_microseconds_of

Place: TypeAlias = tuple[str, int]
"""Track of a slice, as it stands in the file, and a time inside it in ns."""

_WAITING_MAX = 1 << 16  # chosen: more than any schedule has in flight; validation never comes back


class Step(NamedTuple):
    """What an arrow needs to know of a step; `state` is the message's, in words."""

    node: str
    direction: str
    instance: int
    state: str
    staleness: int


class Flows:
    """Joins steps as they come; an arrow is written when its head is known, so none hangs.

    A node keeps an activation under its message's state, so a backward step used that of the
    forward step with the same node, instance and state. Of several such forward steps, whose states
    differ in what the trace does not keep, the last is taken. The causes that the trace has do not
    tell: a gradient's is the step that sent it, which is another node's.
    """

    def __init__(self) -> None:
        """Start without arrows."""
        self._next_id = 1
        self._nodes: Collection[str] = ()
        self._forwards: OrderedDict[tuple[str, int], dict[str, list[Place]]] = OrderedDict()
        self._gradients: dict[str, list[Place]] = {}

    def start(self, nodes: Collection[str]) -> None:
        """Begin another schedule, in which `nodes` have updates; others get no arrows."""
        self._nodes = nodes
        self._forwards.clear()
        self._gradients.clear()

    def take(self, lines: list[str], step: Step, place: Place) -> None:
        """Add a step; append the arrows that end there."""
        if step.node not in self._nodes:
            return
        if step.direction == "forward":
            self._wait(step, place)
        elif step.direction == "update":
            for gradient in self._gradients.pop(step.node, ()):
                self._arrow(lines, "gradient", gradient, place)
        elif step.staleness >= 0:
            self._gradients.setdefault(step.node, []).append(place)
            activation = self._activation_of(step)
            if activation:
                self._arrow(lines, "activation", activation, place)

    def _wait(self, step: Step, place: Place) -> None:
        waiting = self._forwards.setdefault((step.node, step.instance), {})
        waiting.setdefault(step.state, []).append(place)
        if len(self._forwards) > _WAITING_MAX:
            self._forwards.popitem(last=False)

    def _activation_of(self, step: Step) -> Place | None:
        """The forward step whose activation a backward step used; None where it is unknown."""
        of = step.node, step.instance
        waiting = self._forwards.get(of, {})
        places = waiting.get(step.state)
        if not places:
            return None
        found = places.pop()
        if not places:
            del waiting[step.state]
        if not waiting:
            del self._forwards[of]
        return found

    def _arrow(self, lines: list[str], name: str, tail: Place, head: Place) -> None:
        common = f'"id":{self._next_id},"name":"{name}","cat":"flow"'
        self._next_id += 1
        for shape, (track, time_ns) in (('"ph":"s"', tail), ('"ph":"f","bp":"e"', head)):
            lines.append(f'{{{shape},{track},"ts":{in_microseconds_of(time_ns)!r},{common}}}')
