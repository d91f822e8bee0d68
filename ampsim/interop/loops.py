"""Loops over the steps of a sequence, and nodes that are used several times, as parts of a graph.

A message's state is a `Position`. Before and after a loop its step is 0; within, it counts.
What is here is added to a graph as a node is, and a model file may use it, too:

>>> from ampsim.ir import Graph
>>> from ampsim.nodes import GRUCell, Linear, SquaredError
>>> graph = Graph("reader")
>>> x, start, target = graph.controller(x=(7, "rows", 3), start=("rows", 4), target=("rows", 1))
>>> steps = LoopSteps(7)
>>> again, last = loop(graph, GRUCell("gru", 3, 4), unstack(graph, "x", x, steps), start, steps)
>>> state = after(graph, "gru", last, steps)
>>> graph.end(SquaredError("loss"), graph.add(Linear("out", 4, 1), state), target)
>>> graph.verify()
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ampsim.ir import Cond, Graph, Isu, Node, Phi, Wire
from ampsim.nodes import Group, Ungroup


class Position(NamedTuple):
    """State of a message: which batch, which step of how many, which use of a shared node."""

    instance: int
    step: int = 0
    length: int = 0
    use: int = 0


@dataclass(frozen=True)
class LoopSteps:
    """The steps of a sequence.

    Args:
        length: how many there are; 0 where the state of what is pumped says so, for each batch.
        is_reversed: whether a loop goes from the last step to the first.
    """

    length: int = 0
    is_reversed: bool = False

    def __repr__(self) -> str:
        """The call that makes it, in short."""
        return f"LoopSteps({self.length}{', is_reversed=True' if self.is_reversed else ''})"

    def count(self, state: Position) -> int:
        """Return how many steps there are."""
        return self.length or state.length

    def at(self, state: Position, step: int) -> Position:
        """Tag a step of a sequence."""
        return state._replace(step=step, length=self.count(state))

    def outside(self, state: Position) -> Position:
        """The state of the whole sequence, of which `state` is a step."""
        return state._replace(step=0, length=0 if self.length else state.length)

    def place(self, state: Position) -> tuple[Position, int, int]:
        """Say of which sequence a step is, which one, and of how many."""
        return self.outside(state), state.step, state.length

    def first(self, state: Position) -> Position:
        """The step that a loop begins with."""
        return self.at(state, self.count(state) - 1 if self.is_reversed else 0)

    def last(self, state: Position) -> Position:
        """The step that a loop ends with."""
        return self.at(state, 0 if self.is_reversed else self.count(state) - 1)

    def more(self, state: Position) -> str:
        """Tell whether another step follows."""
        end = 0 if self.is_reversed else state.length - 1
        return "last" if state.step == end else "again"

    def next(self, state: Position) -> Position:
        """Go on by a step."""
        return state._replace(step=state.step + (-1 if self.is_reversed else 1))

    def back(self, state: Position) -> Position:
        """Go back by a step."""
        return state._replace(step=state.step + (1 if self.is_reversed else -1))


def unstack(graph: Graph, name: str, sequence: Wire, steps: LoopSteps) -> Wire:
    """Cut (steps, rows, …) into a message for each step."""
    return graph.add(Ungroup(f"{name}-steps", steps.at), sequence)


def stack(graph: Graph, name: str, each: Wire, steps: LoopSteps) -> Wire:
    """Put the messages of all steps together, (steps, rows, …)."""
    rows = steps.length or "steps"
    return graph.add(Group(f"{name}-stack", steps.place, rows=rows, new_axis=True), each)


def loop(
    graph: Graph, cell: Node, inputs: Wire, start: Wire, steps: LoopSteps
) -> tuple[Wire, Wire]:
    """Run a cell over all steps; `start` is its first state, (rows, width), before the loop.

    Returns:
        Its states at all steps but the one that the loop ends with, and at that one; `each` joins
        them, `after` leads out of the loop.
    """
    name = cell.name
    begun = graph.add(Isu(f"{name}-first", steps.first, steps.outside), start)
    entry = Phi(f"{name}-phi", ("start", "again"))
    state = graph.add(cell, inputs, graph.add(entry, begun))
    again, last = graph.branch(Cond(f"{name}-more", steps.more, ("again", "last")), state)
    graph.connect(graph.add(Isu(f"{name}-next", steps.next, steps.back), again), entry, "again")
    return again, last


def each(graph: Graph, name: str, again: Wire, last: Wire) -> Wire:
    """Give the states of a loop at all steps."""
    return graph.add(Phi(f"{name}-each", ("again", "last")), again, last)


def after(graph: Graph, name: str, last: Wire, steps: LoopSteps) -> Wire:
    """Lead the last state of a loop out of it."""
    return graph.add(Isu(f"{name}-after", steps.outside, steps.last), last)


def _at_use(number: int, state: Position) -> Position:
    """Tag one of several uses of a node; 0 outside of it."""
    return state._replace(use=number)


def _which(state: Position) -> str:
    return f"use-{state.use}"


def shared(graph: Graph, node: Node, uses: int) -> tuple[Wire, ...]:
    """Add a node that is used several times with the same parameters; give the wire of each use.

    `use` feeds it, once for each use.
    """
    names = tuple(f"use-{number}" for number in range(uses))
    ways = [graph.add(Phi(f"{node.name}-{port}", names)) for port in node.inputs]
    results = graph.branch(Cond(f"{node.name}-uses", _which, names), graph.add(node, *ways))
    return tuple(
        graph.add(
            Isu(f"{node.name}-leave-{number}", partial(_at_use, 0), partial(_at_use, number)), wire
        )
        for number, wire in enumerate(results)
    )


def use(graph: Graph, name: str, number: int, *wires: Wire) -> None:
    """Feed the inputs of the shared node of that name with those of one of its uses."""
    for port, wire in zip(graph[name].inputs, wires, strict=True):
        to, back = partial(_at_use, number), partial(_at_use, 0)
        entering = Isu(f"{name}-{port}-enter-{number}", to, back)
        graph.connect(graph.add(entering, wire), graph[f"{name}-{port}"], f"use-{number}")
