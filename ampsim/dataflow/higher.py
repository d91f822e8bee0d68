"""`map_fn`, `foldl`, `foldr` and `scan`, in terms of `while_loop` and `TensorArray`.

Source: Yu et al. (2018), Section 2.1 and Figure 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ampsim.dataflow.construct import while_loop
from ampsim.dataflow.graph import Operand, Tensor, tensors_of
from ampsim.dataflow.structure import TensorArray


def map_fn(
    fn: Callable[[Tensor], Tensor], elems: Operand, *, parallel_iterations: int | None = None
) -> Tensor:
    """Apply fn to each row of `elems`, and stack; no row waits for another."""
    rows, count = _rows(elems)

    def body(i: Tensor, given: TensorArray) -> tuple[Any, ...]:
        return (given.write(i, fn(rows.read(i))),)

    (given,) = _over(count, body, (TensorArray(count),), "map", parallel_iterations)
    return given.stack()


def foldl(
    fn: Callable[[Tensor, Tensor], Tensor], elems: Operand, init: Operand,
    *, parallel_iterations: int | None = None,
) -> Tensor:  # fmt: skip
    """fn(... fn(fn(init, first row), second row) ..., last row)."""
    rows, count = _rows(elems)

    def body(i: Tensor, a: Tensor) -> tuple[Any, ...]:
        return (fn(a, rows.read(i)),)

    (folded,) = _over(count, body, (init,), "foldl", parallel_iterations)
    return folded


def foldr(
    fn: Callable[[Tensor, Tensor], Tensor], elems: Operand, init: Operand,
    *, parallel_iterations: int | None = None,
) -> Tensor:  # fmt: skip
    """fn(... fn(fn(init, last row), last but one) ..., first row)."""
    rows, count = _rows(elems)

    def is_left(i: Tensor, a: Tensor) -> Tensor:
        return i > 0

    def body(i: Tensor, a: Tensor) -> tuple[Any, ...]:
        return i - 1, fn(a, rows.read(i - 1))

    _, folded = while_loop(
        is_left, body, (count, init), parallel_iterations=parallel_iterations, name="foldr"
    )
    return folded


def scan(
    fn: Callable[[Tensor, Tensor], Tensor], elems: Operand, init: Operand,
    *, parallel_iterations: int | None = None,
) -> Tensor:  # fmt: skip
    """fn(init, first row), fn of that and the second row, and so on, stacked."""
    rows, count = _rows(elems)
    (first,) = tensors_of([init])

    def is_within(i: Tensor, a: Tensor, given: TensorArray) -> Tensor:
        return i < count

    def body(i: Tensor, a: Tensor, given: TensorArray) -> tuple[Any, ...]:
        a_out = fn(a, rows.read(i))
        return i + 1, a_out, given.write(i, a_out)

    inits = (0, first, TensorArray(count, dtype=first.dtype, element_shape=first.shape))
    _, _, given = while_loop(
        is_within, body, inits, parallel_iterations=parallel_iterations, name="scan"
    )
    return given.stack()


def _rows(elems: Operand) -> tuple[TensorArray, Tensor]:
    """The rows of a tensor as an array, and how many there are."""
    (tensor,) = tensors_of([elems])
    rows = TensorArray().unstack(tensor)
    return rows, rows.size()


def _over(
    count: Tensor, body: Callable[..., tuple[Any, ...]], inits: tuple[Any, ...], name: str,
    window: int | None,
) -> Any:  # fmt: skip
    """The variables of a loop that runs once for each row, from the first to the last."""

    def is_within(i: Tensor, *carried: Any) -> Tensor:
        return i < count

    def counted(i: Tensor, *carried: Any) -> tuple[Any, ...]:
        return i + 1, *body(i, *carried)

    _, *found = while_loop(is_within, counted, (0, *inits), parallel_iterations=window, name=name)
    return found
