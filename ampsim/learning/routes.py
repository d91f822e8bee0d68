"""Messages that are never served: they only find their way, or some rows or columns go on."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any, Final

from ampsim.ir import Bcast, Cond, Isu, Node, Phi, Sends, State
from ampsim.learning.operation import Trace
from ampsim.nodes import Columns, Replicate, Split, Ungroup


def _as_it_is(node: Node) -> Trace:
    return node.forward


def _ungroup(node: Ungroup) -> Trace:
    def trace(port: int, state: State, ref: Any) -> Sends:
        item, offset, rows, columns = ref
        states = node.states(state, rows)
        if not rows:
            return ((0, states[0], ref),)
        return [(0, one, (item, offset + i, 1, columns)) for i, one in enumerate(states)]

    return trace


def _columns(node: Columns) -> Trace:
    start, stop = node.start, node.stop

    def trace(port: int, state: State, ref: Any) -> Sends:
        item, offset, rows, columns = ref
        first = columns[0] if columns else 0
        return ((0, state, (item, offset, rows, (first + start, first + stop))),)

    return trace


def _split(node: Split) -> Trace:
    edges = list(enumerate(pairwise(accumulate(node.widths, initial=0))))

    def trace(port: int, state: State, ref: Any) -> Sends:
        item, offset, rows, columns = ref
        first = columns[0] if columns else 0
        return [
            (part, state, (item, offset, rows, (first + start, first + stop)))
            for part, (start, stop) in edges
        ]

    return trace


ROUTES: Final[dict[type[Node], Callable[[Any], Trace]]] = {
    Bcast: _as_it_is,
    Columns: _columns,
    Cond: _as_it_is,
    Isu: _as_it_is,
    Phi: _as_it_is,
    Replicate: _as_it_is,
    Split: _split,
    Ungroup: _ungroup,
}
"""Classes whose messages only find their way: what makes the trace of a node."""
