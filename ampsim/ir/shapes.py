"""Sentences about shapes, for the `check` methods of nodes."""

from __future__ import annotations

from ampsim.errors import GraphError
from ampsim.ir.node import Node, Shape


def text(shape: Shape) -> str:
    """Write a shape as people do.

    >>> text(("rows", 128))
    '(rows, 128)'
    """
    inside = ", ".join(str(extent) for extent in shape)
    return f"({inside},)" if len(shape) == 1 else f"({inside})"


def known(shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
    """Return `shapes`, all of which are known by now."""
    assert None not in shapes
    return tuple(shape for shape in shapes if shape is not None)


def require(condition: bool, node: Node, expected: str, *shapes: Shape | None) -> None:
    """Raise a `GraphError` that names node, expectation and shapes unless `condition` holds.

    Raises:
        GraphError: `condition` is False.
    """
    if not condition:
        got = " and ".join("an unknown shape" if s is None else text(s) for s in shapes)
        raise GraphError(f"{node.describe()} expects {expected}, got {got}")
