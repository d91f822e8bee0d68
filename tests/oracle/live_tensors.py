"""The most bytes that are live at once, from the spans of a run and who reads what.

Who reads what is found by a machine of tokens that carries with each value which kernel made it. It
shares no code with the account: no owners, no counts, no queue. Programs have no arrays here.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pandas as pd
from token_machine import DEAD, TokenMachine

from ampsim import flow
from ampsim.dataflow.graph import Node

FREE = ("identity", "stop_gradient", "transpose", "broadcast_to")
"""What is charged nothing: its output lies where its input does."""


class Origin(NamedTuple):
    """Which kernel made a value, in which iteration."""

    node: str
    tag: str


class Token:
    """A value, and where it comes from; the caller's has no origin. Of a pop also which it was."""

    def __init__(
        self, value: Any, origin: Origin | None, size_bytes: int, pop: Origin | None = None
    ) -> None:
        self.value, self.origin, self.size_bytes, self.pop = value, origin, size_bytes, pop

    def __bool__(self) -> bool:
        return bool(self.value)


def origin_of(token: Token) -> tuple[Origin | None, int, Origin | None]:
    """All of a token but its value."""
    return token.origin, token.size_bytes, token.pop


class ReadingMachine(TokenMachine):
    """A machine of tokens that notes who reads what."""

    def __init__(self, asked: list[flow.Tensor], feeds: dict[str, Any]) -> None:
        super().__init__(asked, feeds, 0)
        self.sizes: dict[Origin, int] = {}
        self.readers: dict[Origin, list[Origin]] = {}
        self.held_bytes = 0
        self.unread: set[Origin] = set()

    def fire_constant(self, node: Node, tag: Any, values: list[Any], is_dead: bool) -> None:
        self.emit_held(node, node.attributes["value"], tag)

    def fire_input(self, node: Node, tag: Any, values: list[Any], is_dead: bool) -> None:
        self.emit_held(node, self.feeds[node.name], tag)

    def emit_held(self, node: Node, value: Any, tag: Any) -> None:
        if node.outputs[0].is_float:
            self.held_bytes += value.nbytes
        self.emit(node, 0, Token(value, None, 0), tag)

    def fire_other(self, node: Node, tag: Any, values: list[Any], is_dead: bool) -> None:
        if is_dead:
            self.emit(node, 0, DEAD, tag)
            return
        operator, values = node.operator, values[: len(node.inputs)]
        assert operator.kernel is not None
        me = Origin(node.name, "/".join(f"{name}/{number}" for name, number in tag))
        if operator.is_stateful:  # a stack takes and gives tokens as they are
            given = [values[0].value, *values[1:]] if values else []
            value = operator.kernel(*given, **node.attributes)
            token = value if isinstance(value, Token) else Token(value, None, 0)
            if operator.name == "pop" and token.origin is not None:
                token = Token(token.value, token.origin, token.size_bytes, me)
                self.unread.add(me)
            self.emit(node, 0, token, tag)
            return
        value = operator.kernel(*(one.value for one in values), **node.attributes)
        floats = [one.is_float for one in (*node.inputs, *node.outputs)]
        if not any(floats) or operator.reads_shapes:
            self.emit(node, 0, Token(value, None, 0), tag)
            return
        for one in values:
            if one.origin is not None:
                self.readers[one.origin].append(me)
            self.unread.discard(one.pop)
        if operator.name in FREE:
            self.emit(node, 0, Token(value, *origin_of(values[0])), tag)
            return
        output = node.outputs[0]
        self.sizes[me] = math.prod(value.shape) * output.dtype.itemsize
        self.readers[me] = []
        self.emit(node, 0, Token(value, me if output.is_float else None, self.sizes[me]), tag)


def reads_all_that_it_pops(asked: list[flow.Tensor], feeds: dict[str, Any]) -> bool:
    """Whether a kernel reads whatever is popped.

    What goes to a branch that is not taken is kept until its pop, of which there is no span, so
    that `peak_bytes` does not hold of it.
    """
    machine = ReadingMachine(asked, feeds)
    machine.run()
    return not machine.unread


def peak_bytes(asked: list[flow.Tensor], feeds: dict[str, Any], spans: pd.DataFrame) -> int:
    """The most that lies in memory: of each output from its kernel's start to its readers' end."""
    machine = ReadingMachine(asked, feeds)
    results = {one.origin for one in machine.run()}
    times = {
        Origin(node, tag.removeprefix("tag").strip()): (start_s, end_s)
        for node, tag, start_s, end_s in zip(
            spans["node"], spans["state"].astype(str), spans["start_s"], spans["end_s"], strict=True
        )
    }
    changes: list[tuple[float, int, int]] = []
    for origin, size_bytes in machine.sizes.items():
        ends_s = [times[one][1] for one in (origin, *machine.readers[origin])]
        changes.append((times[origin][0], 1, size_bytes))
        if origin not in results:
            changes.append((max(ends_s), 0, -size_bytes))
    most = now = machine.held_bytes
    for _time_s, _order, change in sorted(changes):
        now += change
        most = max(most, now)
    return most
