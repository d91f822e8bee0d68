"""A machine of tokens that fires whatever can fire in random order: the rules, and nothing else.

It shares no code with the executor: no plan, no counts, no queues, no window. A node has fired
where each of its inputs has a token of one tag; a dead Exit waits until its frame is over.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, NamedTuple

from ampsim.dataflow.graph import Node, Tensor

DEAD = object()


class Fired(NamedTuple):
    """A node that has fired."""

    node: str
    tag: tuple[Any, ...]
    is_dead: bool


class TokenMachine:
    def __init__(self, asked: list[Tensor], feeds: dict[str, Any], seed: int) -> None:
        self.asked, self.feeds, self.random = asked, feeds, random.Random(seed)
        self.nodes = needed(asked)
        self.enters = Counter(
            node.attributes["loop"].name
            for node in self.nodes
            if node.operator.name.startswith("enter")
        )
        self.consumers: dict[tuple[Node, int], list[tuple[Node, int]]] = {}
        for node in self.nodes:
            for place, one in enumerate((*node.inputs, *node.controls)):
                self.consumers.setdefault((one.node, one.output), []).append((node, place))
        self.arrived: dict[tuple[Node, Any], dict[int, Any]] = {}
        self.enabled: list[tuple[Node, Any]] = []
        self.fired: Counter[Fired] = Counter()
        self.constants: dict[tuple[Any, str], list[tuple[Node, Any]]] = {}
        self.iterations: dict[tuple[Any, str], int] = {}
        self.entered: Counter[tuple[Any, str]] = Counter()
        self.left: set[tuple[Node, Any]] = set()
        self.found: dict[Tensor, Any] = {}

    def run(self) -> list[Any]:
        for node in self.nodes:
            if not node.inputs and not node.controls:
                self.enabled.append((node, ()))
        while self.enabled or self.iterations:
            if self.enabled:
                place = self.random.randrange(len(self.enabled))
                self.fire(*self.enabled.pop(place))
            self.close_frames()
        return [self.found[one] for one in self.asked]

    def fire(self, node: Node, tag: tuple[Any, ...]) -> None:
        got = self.arrived.pop((node, tag), {})
        kind = node.operator.name
        values = [got[place] for place in sorted(got)]
        is_dead = any(value is DEAD for value in values)
        if kind == "merge" and "loop" not in node.attributes:
            is_dead = all(value is DEAD for value in values)
            self.arrived[node, tag] = {-1: None}  # it never fires again
        self.fired[Fired(node.name, tag, is_dead)] += 1
        self.rule(kind)(node, tag, values, is_dead)

    def rule(self, kind: str) -> Any:
        return getattr(self, "fire_" + kind.replace("-", "_"), self.fire_other)

    def fire_switch(self, node: Node, tag: Any, values: list[Any], is_dead: bool) -> None:
        for side in (0, 1):
            taken = not is_dead and bool(values[1]) == bool(side)
            self.emit(node, side, values[0] if taken else DEAD, tag)

    def fire_merge(self, node: Node, tag: Any, values: list[Any], is_dead: bool) -> None:
        live = [value for value in values if value is not DEAD]
        self.emit(node, 0, live[0] if live else DEAD, tag)

    def fire_enter(self, node: Node, tag: Any, values: list[Any], is_dead: bool) -> None:
        name = node.attributes["loop"].name
        self.entered[tag, name] += 1
        self.iterations.setdefault((tag, name), 0)
        self.emit(node, 0, DEAD if is_dead else values[0], (*tag, (name, 0)))

    def fire_enter_constant(self, node: Node, tag: Any, values: list[Any], is_dead: bool) -> None:
        name = node.attributes["loop"].name
        self.entered[tag, name] += 1
        last = self.iterations.setdefault((tag, name), 0)
        value = DEAD if is_dead else values[0]
        self.constants.setdefault((tag, name), []).append((node, value))
        for number in range(last + 1):
            self.emit(node, 0, value, (*tag, (name, number)))

    def fire_exit(self, node: Node, tag: Any, values: list[Any], is_dead: bool) -> None:
        if not is_dead:
            self.left.add((node, tag[:-1]))
            self.emit(node, 0, values[0], tag[:-1])

    def fire_next_iteration(self, node: Node, tag: Any, values: list[Any], is_dead: bool) -> None:
        if is_dead:
            return
        *outer, (name, number) = tag
        frame = (tuple(outer), name)
        following = (*outer, (name, number + 1))
        if self.iterations[frame] == number:
            self.iterations[frame] = number + 1
            for constant, value in self.constants.get(frame, ()):
                self.emit(constant, 0, value, following)
        self.emit(node, 0, values[0], following)

    def fire_trigger(self, node: Node, tag: Any, values: list[Any], is_dead: bool) -> None:
        self.emit(node, 0, True, tag)

    def fire_constant(self, node: Node, tag: Any, values: list[Any], is_dead: bool) -> None:
        self.emit(node, 0, node.attributes["value"], tag)

    def fire_input(self, node: Node, tag: Any, values: list[Any], is_dead: bool) -> None:
        self.emit(node, 0, self.feeds[node.name], tag)

    def fire_other(self, node: Node, tag: Any, values: list[Any], is_dead: bool) -> None:
        if is_dead:
            self.emit(node, 0, DEAD, tag)
            return
        values = values[: len(node.inputs)]
        if node.operator.needs_tag:
            values = [(node.index, tag), *values]
        assert node.operator.kernel is not None
        self.emit(node, 0, node.operator.kernel(*values, **node.attributes), tag)

    def emit(self, node: Node, output: int, value: Any, tag: tuple[Any, ...]) -> None:
        tensor = node.outputs[output]
        if tensor in self.asked and not tag:
            self.found[tensor] = value
        for consumer, place in self.consumers.get((node, output), ()):
            self.arrive(consumer, place, value, tag)

    def arrive(self, node: Node, place: int, value: Any, tag: tuple[Any, ...]) -> None:
        got = self.arrived.setdefault((node, tag), {})
        is_merge = node.operator.name == "merge"
        if -1 in got:
            return
        got[place] = value
        if is_merge and "loop" in node.attributes:
            can = True
        elif is_merge:
            can = value is not DEAD or len(got) == len(node.inputs)
        else:
            can = len(got) == len(node.inputs) + len(node.controls)
        if can:
            self.arrived[node, tag] = _Fires(got) if is_merge else got
            self.enabled.append((node, tag))

    def close_frames(self) -> None:
        """Let dead Exits out of frames in which nothing can happen any more."""
        for tag, name in list(self.iterations):
            inside = (*tag, name)
            is_busy = any(_is_inside(one, inside) for _node, one in self.enabled)
            has_frames = any(_is_inside(one, inside) for one, _name in self.iterations)
            if is_busy or has_frames or self.entered[tag, name] < self.enters[name]:
                continue
            del self.iterations[tag, name]
            for node in self.nodes:
                if node.operator.name != "exit" or node.attributes["loop"].name != name:
                    continue
                if (node, tag) not in self.left:
                    self.emit(node, 0, DEAD, tag)
            return


class _Fires(dict[int, Any]):
    """The inputs of a Merge that will fire; what comes later is ignored."""

    def __contains__(self, place: object) -> bool:
        return place == -1 or super().__contains__(place)


def _is_inside(tag: tuple[Any, ...], frame: tuple[Any, ...]) -> bool:
    *outer, name = frame
    return (
        len(tag) > len(outer) and tag[: len(outer)] == tuple(outer) and tag[len(outer)][0] == name
    )


def needed(asked: list[Tensor]) -> list[Node]:
    found: dict[Node, None] = {}
    left = [one.node for one in asked]
    while left:
        node = left.pop()
        if node not in found:
            found[node] = None
            left += [one.node for one in (*node.inputs, *node.controls)]
    return list(found)
