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
        self.exits: dict[str, list[Node]] = {name: [] for name in self.enters}
        for node in self.nodes:
            if node.operator.name == "exit":
                self.exits[node.attributes["loop"].name].append(node)
        self.rules = {node: self.rule(node.operator.name) for node in self.nodes}
        self.arrived: dict[tuple[Node, Any], dict[int, Any]] = {}
        self.enabled: list[tuple[Node, Any]] = []
        self.inside: Counter[tuple[Any, str]] = Counter()
        self.fired: Counter[Fired] = Counter()
        self.constants: dict[tuple[Any, str], list[tuple[Node, Any]]] = {}
        self.iterations: dict[tuple[Any, str], int] = {}
        self.entered: Counter[tuple[Any, str]] = Counter()
        self.left: set[tuple[Node, Any]] = set()
        self.found: dict[Tensor, Any] = {}

    def run(self) -> list[Any]:
        for node in self.nodes:
            if not node.inputs and not node.controls:
                self.enable(node, ())
        while self.enabled or self.iterations:
            if self.enabled:
                place = self.random.randrange(len(self.enabled))
                node, tag = self.enabled.pop(place)
                self.count_inside(tag, -1)
                self.fire(node, tag)
            self.close_frames()
        return [self.found[one] for one in self.asked]

    def enable(self, node: Node, tag: tuple[Any, ...]) -> None:
        self.enabled.append((node, tag))
        self.count_inside(tag, 1)

    def enter(self, tag: tuple[Any, ...], name: str) -> int:
        """Note that an Enter of a loop fired; the last iteration that its frame has begun."""
        self.entered[tag, name] += 1
        if (tag, name) not in self.iterations:
            self.iterations[tag, name] = 0
            self.count_inside(tag, 1)
        return self.iterations[tag, name]

    def count_inside(self, tag: tuple[Any, ...], change: int) -> None:
        """Of each frame that a tag lies in: what can fire there, and frames, is so many more."""
        for depth, (name, _number) in enumerate(tag):
            self.inside[tag[:depth], name] += change

    def fire(self, node: Node, tag: tuple[Any, ...]) -> None:
        got = self.arrived.pop((node, tag), {})
        kind = node.operator.name
        values = [got[place] for place in sorted(got)]
        is_dead = any(value is DEAD for value in values)
        if kind == "merge" and "loop" not in node.attributes:
            is_dead = all(value is DEAD for value in values)
            self.arrived[node, tag] = {-1: None}  # it never fires again
        self.fired[Fired(node.name, tag, is_dead)] += 1
        self.rules[node](node, tag, values, is_dead)

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
        self.enter(tag, name)
        self.emit(node, 0, DEAD if is_dead else values[0], (*tag, (name, 0)))

    def fire_enter_constant(self, node: Node, tag: Any, values: list[Any], is_dead: bool) -> None:
        name = node.attributes["loop"].name
        last = self.enter(tag, name)
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
        if not tag and node.outputs[output] in {*self.asked}:
            self.found[node.outputs[output]] = value
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
            self.enable(node, tag)

    def close_frames(self) -> None:
        """Let dead Exits out of frames in which nothing can happen any more."""
        for tag, name in self.iterations:
            if self.inside[tag, name] or self.entered[tag, name] < self.enters[name]:
                continue
            del self.iterations[tag, name]
            self.count_inside(tag, -1)
            for node in self.exits[name]:
                if (node, tag) not in self.left:
                    self.emit(node, 0, DEAD, tag)
            return


class _Fires(dict[int, Any]):
    """The inputs of a Merge that will fire; what comes later is ignored."""

    def __contains__(self, place: object) -> bool:
        return place == -1 or super().__contains__(place)


def needed(asked: list[Tensor]) -> list[Node]:
    found: dict[Node, None] = {}
    left = [one.node for one in asked]
    while left:
        node = left.pop()
        if node not in found:
            found[node] = None
            left += [one.node for one in (*node.inputs, *node.controls)]
    return list(found)
