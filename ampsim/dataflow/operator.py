"""Operators: what one computes, of what shape, at what cost, and how its gradient is built.

An ordinary operator takes arrays and gives one. In `sleep` mode floats are shapes without numbers
(`Standin`), integers and truth values are computed, and so is whatever follows from shapes alone.
The five primitives of control flow have no kernel: `ampsim.dataflow.executor` has their rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from ampsim.ir.work import NO_WORK, Work, elementwise_work

Shape: TypeAlias = tuple[int | None, ...]
"""Lengths of axes; None where one is known only when the operator runs."""

BOOL: Final = np.dtype(np.bool_)
INT: Final = np.dtype(np.int64)
FLOAT: Final = np.dtype(np.float64)
RESOURCE: Final = np.dtype(object)
"""The type of a handle: of a stack or of an array of tensors."""

STEP: Final = "update"
"""What an operator is called that steps a variable."""

Sizes: TypeAlias = Sequence[tuple[int, ...]]
GradientRule: TypeAlias = Callable[[Any, Any], Sequence[Any]]
"""The gradients of an operator's inputs, None for those that have none: of what
`ampsim.dataflow.gradient.Differentiated` offers, and the output's gradient."""
WorkRule: TypeAlias = Callable[[Sizes, tuple[int, ...], int], Work]
"""The work of an operator: of its inputs' shapes, its output's, and the bytes of a number."""


def no_work(inputs: Sizes, output: tuple[int, ...], itemsize: int) -> Work:
    """Nothing is computed and nothing is moved."""
    return NO_WORK


def elementwise(operations: int = 1, *, passes: int = 2, **counts: int) -> WorkRule:
    """Charge so many passes over arrays of the first input's shape, as nodes are charged."""

    def work(inputs: Sizes, output: tuple[int, ...], itemsize: int) -> Work:
        return elementwise_work(inputs[0], itemsize, operations, passes=passes, **counts)

    return work


def moved(inputs: Sizes, output: tuple[int, ...], itemsize: int) -> Work:
    """Read all inputs once and write the output once; truth values are charged as numbers."""
    elements = math.prod(output) + sum(math.prod(shape) for shape in inputs)
    return Work(0, itemsize * elements)


def copied(inputs: Sizes, output: tuple[int, ...], itemsize: int) -> Work:
    """Read no more than what is written."""
    return moved((output,), output, itemsize)


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """One operator; rules get shapes and types of the inputs, and its attributes by their names."""

    name: str  # what messages, records and the registry call it
    # computes the output, a new array or a view, from inputs and attributes; None of primitives
    kernel: Callable[..., Any] | None
    shape: Callable[..., Shape | None]  # of the output, from the inputs', with None where they have
    dtype: Callable[..., np.dtype[Any]]  # of the output
    work: WorkRule = no_work  # what it is charged for
    gradient: GradientRule | None = None  # None where the output has no gradient
    # the output's shape from the inputs themselves, where it follows from values of integers
    running_shape: Callable[..., tuple[int, ...]] | None = None
    # of an optimizer's step, the rule of its work and how many arrays it passes over beside, from
    # the inputs themselves, where these are not always the same
    running_update: Callable[..., tuple[WorkRule, int]] | None = None
    # of the inputs, who is told when what it still waits for has come; None where it can run
    missing: Callable[..., list[Callable[[], None]] | None] | None = None
    reads_shapes: bool = False  # whether the kernel needs no more of floats than their shapes
    is_stateful: bool = False  # whether it reads or changes a resource, and runs in every mode
    only_waits: bool = False  # whether its inputs must have come, and are not read
    needs_tag: bool = False  # whether the kernel's first argument is (node's number, tag's path)


def _primitive(name: str) -> Operator:
    return Operator(name, None, first_shape, first_dtype)


OPERATORS: Final[dict[str, Operator]] = {}
"""Every operator, by its name."""


def register(operator: Operator) -> Operator:
    """List an operator."""
    assert operator.name not in OPERATORS, f"two operators are called {operator.name}"
    OPERATORS[operator.name] = operator
    return operator


def _first(*given: Any, **attributes: Any) -> Any:
    """The shape or the type of the first input."""
    return given[0]


first_shape = first_dtype = _first


def joint_dtype(*dtypes: np.dtype[Any], **attributes: Any) -> np.dtype[Any]:
    """The type in which all inputs can be told."""
    return np.result_type(*dtypes)


def always(told: Any) -> Callable[..., Any]:
    """The rule of operators that give one type or shape, whatever they take."""
    return lambda *given, **attributes: told


truth, integer, number, handle, scalar = map(always, (BOOL, INT, FLOAT, RESOURCE, ()))


def told_shape(*shapes: Shape, static: Shape | None, **attributes: Any) -> Shape | None:
    """The shape that the attribute `static` tells."""
    return static


def told_dtype(*dtypes: np.dtype[Any], dtype: Any, **attributes: Any) -> np.dtype[Any]:
    """The type that the attribute `dtype` tells."""
    told = np.dtype(dtype)
    if told.kind not in "fib":
        raise TypeError(f"a type of numbers or truth values is expected, got {told}")
    return told


def without_axis(x: Shape, *, axis: int | None) -> Shape:
    """The shape without an axis, or of one number where that is None."""
    if axis is None:
        return ()
    place = range(len(x))[axis]
    return (*x[:place], *x[place + 1 :])


def fits(shape: Shape | None, declared: Shape | None) -> bool:
    """Tell whether a shape is one of those that were declared."""
    if declared is None:
        return True
    if shape is None or len(shape) != len(declared):
        return False
    return all(wanted in (None, one) for one, wanted in zip(shape, declared, strict=True))


def may_be(one: Shape | None, other: Shape | None) -> bool:
    """Tell whether two shapes may turn out to be the same."""
    if one is None or other is None:
        return True
    return len(one) == len(other) and all(
        a == b or None in (a, b) for a, b in zip(one, other, strict=True)
    )


def broadcast(*shapes: Shape, **attributes: Any) -> Shape:
    """The shape to which all inputs are broadcast.

    Raises:
        ValueError: they do not fit each other.
    """
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(_joined(axis) for axis in zip(*padded, strict=True))


def _joined(lengths: Sequence[int | None]) -> int | None:
    long = {length for length in lengths if length not in (1, None)}
    if len(long) > 1:
        raise ValueError(f"lengths {' and '.join(str(one) for one in sorted(long))} of one axis")
    if long:
        return long.pop()
    return None if None in lengths else 1


# --- primitives: what the executor has rules for

CONSTANT, INPUT, VARIABLE = map(_primitive, ("constant", "input", "variable"))
SWITCH, MERGE, ENTER, EXIT = map(_primitive, ("switch", "merge", "enter", "exit"))
ENTER_CONSTANT, NEXT_ITERATION = map(_primitive, ("enter-constant", "next-iteration"))
SEND, RECV, ASKED = map(_primitive, ("send", "recv", "asked"))
TRIGGER: Final = _primitive("trigger")
"""Fires when all its inputs have come, dead ones too, and is never dead itself."""
