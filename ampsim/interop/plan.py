"""A graph as a list of calls: it can be made again for each run, compared, and written as text."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

import numpy as np

from ampsim.interop.loops import LoopSteps, Position
from ampsim.ir import Graph, Node, Pumped, Wire


def python(value: Any) -> str:
    """A value as it is written in Python, with double quotes.

    >>> print(python(("rows", 7)), python({"lstm": 6}))
    ("rows", 7) {"lstm": 6}
    """
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        inside = [python(one) for one in cast("tuple[Any, ...]", value)]
        return f"({inside[0]},)" if len(inside) == 1 else f"({', '.join(inside)})"
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return f"{{{', '.join(f'{python(key)}: {python(one)}' for key, one in items)}}}"
    return repr(value)


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
        """What makes it, in Python."""
        options = "".join(f", {key}={python(value)}" for key, value in self.options.items())
        return f"{self.kind.__name__}({python(self.name)}{options})"


@dataclass(frozen=True)
class Call:
    """Something that is added to a graph: a node, or a part of `ampsim.interop.loops`.

    Args:
        name: of the call; its outputs are known by it.
        subject: the node, or a name where a part is no single node.
        feeds: what its inputs are wired to.
        part: the function that adds it; None for a node by itself.
        more: further arguments of that function.
        outputs: how many there are; 0 of a loss.
        place: the user's line that it came from.
    """

    name: str
    subject: Spec | str
    feeds: tuple[Ref, ...] = ()
    part: Callable[..., Any] | None = None
    more: tuple[Any, ...] = ()
    outputs: int = 1
    place: str = field(default="", compare=False)

    def added_to(self, graph: Graph, wires: list[Wire]) -> tuple[Wire, ...]:
        """Add it; return the wires of its outputs."""
        subject = self.subject.node() if isinstance(self.subject, Spec) else self.subject
        if self.part is None:
            return graph.branch(cast("Node", subject), *wires)
        made: Any = self.part(graph, subject, *self.arranged(wires))
        if isinstance(made, tuple):
            return cast("tuple[Wire, ...]", made)
        return () if made is None else (made,)

    def arranged(self, wires: list[Any]) -> list[Any]:
        """Wires and further arguments in the order of the function's own."""
        is_number_first = bool(self.more) and isinstance(self.more[0], int)
        return [*self.more, *wires] if is_number_first else [*wires, *self.more]


@dataclass(frozen=True)
class Port:
    """Something that the controller pumps for each batch.

    Args:
        name: of the port.
        shape: as in shapes of graphs.
        array: number of the batch's array; None where it is none of them.
        values: a fixed array; None where it is none.
        width: columns of zeros, a row for each item of the batch, where it is neither.
    """

    name: str
    shape: tuple[int | str, ...]
    array: int | None = None
    values: np.ndarray | None = field(default=None, compare=False)
    width: int = 0

    def payload(self, arrays: tuple[np.ndarray, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """What is pumped for a batch of these arrays."""
        if self.array is not None:
            return arrays[self.array]
        if self.values is not None:
            return self.values
        return np.zeros((len(arrays[0]), self.width), dtype)


@dataclass(frozen=True)
class PumpPorts:
    """A pump: brings the arrays of a batch, and what else the graph reads, to the ports.

    Args:
        ports: in the order of the controller's.
        dtype: of zeros.
        length: array and axis whose extent is the number of steps, where batches differ in it.
    """

    ports: tuple[Port, ...]
    dtype: str
    length: tuple[int, int] | None = None

    def __call__(self, instance: int, batch: Any) -> list[Pumped]:
        """Send everything in the state of the batch."""
        arrays, dtype = batch.arrays, np.dtype(self.dtype)
        length = 0 if self.length is None else arrays[self.length[0]].shape[self.length[1]]
        state = Position(instance, 0, length)
        return [(i, state, one.payload(arrays, dtype)) for i, one in enumerate(self.ports)]


@dataclass(frozen=True)
class GraphPlan:
    """What a graph is made of, in order; calling it makes the graph."""

    name: str
    ports: tuple[Port, ...]
    calls: tuple[Call, ...]

    def __call__(self) -> Graph:
        """Make the graph."""
        graph = Graph(self.name)
        wires = graph.controller(**{one.name: one.shape for one in self.ports})
        known = {Ref(one.name): wire for one, wire in zip(self.ports, wires, strict=True)}
        for call in self.calls:
            made = call.added_to(graph, [known[ref] for ref in call.feeds])
            known |= {Ref(call.name, port): wire for port, wire in enumerate(made)}
        return graph

    @property
    def digest(self) -> str:
        """SHA-256 over all calls and fixed arrays."""
        hasher = hashlib.sha256()
        for call in self.calls:
            more = [str(call.subject), call.feeds, call.part and call.part.__name__, call.more]
            hasher.update(repr(more).encode())
        for port in self.ports:
            hasher.update(repr((port.name, port.shape, port.array, port.width)).encode())
            hasher.update(b"" if port.values is None else np.ascontiguousarray(port.values).data)
        return hasher.hexdigest()

    def with_calls(self, change: Callable[[Call], Call]) -> GraphPlan:
        """The same with each call changed."""
        return replace(self, calls=tuple(map(change, self.calls)))


def without_dropout(call: Call) -> Call:
    """The same call, in which nothing is dropped."""
    if not isinstance(call.subject, Spec):
        return call
    rates = {name: 0.0 for name in ("rate", "dropout") if name in call.subject.options}
    subject = replace(call.subject, options={**call.subject.options, **rates})
    return replace(call, subject=subject)


def of_any_length(call: Call) -> Call:
    """The same call, in which loops are as long as the state of what is pumped says."""
    more = (replace(one, length=0) if isinstance(one, LoopSteps) else one for one in call.more)
    return replace(call, more=tuple(more))


def identifier(name: str) -> str:
    """A name that Python takes for a variable.

    >>> identifier("layers.0.relu-2")
    'layers_0_relu_2'
    """
    word = re.sub(r"\W", "_", name)
    return f"n_{word}" if word[:1].isdecimal() else word
