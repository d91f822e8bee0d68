"""A graph as a list of calls: it can be made again for each run, compared, and written as text."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

import numpy as np

from ampsim.interop import loops
from ampsim.interop.loops import LoopSteps, Position
from ampsim.ir import Graph, Node, Pumped, Wire


class Ref(NamedTuple):
    """An output of a call, or a port of the controller: what a wire begins at."""

    call: str
    port: int = 0


@dataclass(frozen=True)
class Spec:
    """A node to be made: its class, name and options."""

    kind: type[Node]
    name: str
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    def node(self) -> Node:
        """Make it."""
        return self.kind(self.name, **self.options)

    def __str__(self) -> str:
        """Write the call that makes it, in Python."""
        options = "".join(f", {key}={value!r}" for key, value in self.options.items())
        return f"{self.kind.__name__}({self.name!r}{options})"


@dataclass(frozen=True)
class Call:
    """Something that is added to a graph."""

    name: str  # by which its outputs are known
    part: str  # the function of `ampsim.interop.loops` that adds it; "" for a node by itself
    arguments: tuple[Any, ...]  # nodes to be made, outputs of other calls, and values
    outputs: int = 1  # how many there are; 0 of a loss
    place: str = field(default="", compare=False)  # the user's line that it came from

    @property
    def feeds(self) -> list[Ref]:
        """The wires of its inputs."""
        return [one for one in self.arguments if isinstance(one, Ref)]

    def added_to(self, graph: Graph, wires: dict[Ref, Wire]) -> tuple[Wire, ...]:
        """Add it; return the wires of its outputs."""
        given: list[Any] = [
            wires[one] if isinstance(one, Ref) else one.node() if isinstance(one, Spec) else one
            for one in self.arguments
        ]
        if not self.part:
            return graph.branch(*given)
        made: Any = getattr(loops, self.part)(graph, *given)
        return cast("tuple[Wire, ...]", made) if type(made) is tuple else (made,) * self.outputs


@dataclass(frozen=True)
class Port:
    """Something that the controller pumps for each batch: an array of the batch, or a fixed one."""

    name: str
    shape: tuple[int | str, ...]
    array: int | None = None  # number of the batch's; None where it is none of them
    values: np.ndarray | None = field(default=None, compare=False)  # for each item if (rows, …)

    def payload(self, arrays: tuple[np.ndarray, ...]) -> np.ndarray:
        """Return what is pumped for a batch of these arrays."""
        if self.array is not None:
            return arrays[self.array]
        assert self.values is not None
        return for_each(self.values, arrays) if self.shape[:1] == ("rows",) else self.values


def for_each(values: np.ndarray, arrays: tuple[np.ndarray, ...]) -> np.ndarray:
    """The only row of `values` for each item of a batch of these arrays."""
    return np.broadcast_to(values, (len(arrays[0]), *values.shape[1:]))


@dataclass(frozen=True)
class GraphPlan:
    """The calls that make a graph, in order; calling it makes the graph."""

    name: str
    ports: tuple[Port, ...]  # in the order of the controller's
    calls: tuple[Call, ...]
    length: tuple[int, int] | None = None  # array and axis of steps, where batches differ in it

    def __call__(self) -> Graph:
        """Make the graph."""
        graph = Graph(self.name)
        made = graph.controller(**{one.name: one.shape for one in self.ports})
        wires = {Ref(one.name): wire for one, wire in zip(self.ports, made, strict=True)}
        for call in self.calls:
            made = call.added_to(graph, wires)
            wires |= {Ref(call.name, port): wire for port, wire in enumerate(made)}
        return graph

    def pump(self, instance: int, batch: Any) -> list[Pumped]:
        """Bring the arrays of a batch, and what else the graph reads, to the ports."""
        state = Position(instance, 0, self.steps(batch.arrays) if self.length else 0)
        return [(i, state, one.payload(batch.arrays)) for i, one in enumerate(self.ports)]

    def steps(self, arrays: tuple[np.ndarray, ...]) -> int:
        """Return how many steps a batch of these arrays has."""
        array, axis = self.length or (0, 0)
        return arrays[array].shape[axis]

    @property
    def digest(self) -> str:
        """SHA-256 over all calls and fixed arrays."""
        hasher = hashlib.sha256()
        for call in self.calls:
            hasher.update(f"{call.part} {[*map(str, call.arguments)]}".encode())
        for port in self.ports:
            hasher.update(repr((port.name, port.shape, port.array)).encode())
            hasher.update(b"" if port.values is None else np.ascontiguousarray(port.values).data)
        return hasher.hexdigest()

    def changed(self, change: Callable[[Any], Any]) -> GraphPlan:
        """The plan with other arguments of the calls."""
        calls = [replace(one, arguments=tuple(map(change, one.arguments))) for one in self.calls]
        return replace(self, calls=tuple(calls))


def without_dropout(argument: Any) -> Any:
    """An argument of a call, in which nothing is dropped."""
    if not isinstance(argument, Spec):
        return argument
    rates = {name: 0.0 for name in ("rate", "dropout") if name in argument.options}
    return replace(argument, options={**argument.options, **rates})


def of_any_length(argument: Any) -> Any:
    """An argument of a call, in which loops are as long as the state of what is pumped says."""
    return replace(argument, length=0) if isinstance(argument, LoopSteps) else argument
