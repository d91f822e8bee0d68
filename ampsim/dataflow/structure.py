"""Structures of tensors: what branches and bodies take and give, flat and as they were.

A structure is a tensor, an array of tensors, or a tuple or list of structures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import Any, cast

from ampsim.dataflow import operator as op
from ampsim.dataflow.graph import Tensor, apply, constant, tensors_of, type_of_numbers
from ampsim.dataflow.operators import resource
from ampsim.errors import GraphError, OptionError

assert resource, "its operators are listed"


class TensorArray:
    """Tensors by their places; each place is written once.

    It does not change: `write` gives the array as it is then, from which to go on. What is known of
    the elements, shape and type, is the same for all that came of one array.

    Args:
        size: how many places there are; writing beyond makes it longer.
        dtype: the type of the elements, unless what is written before any is read has another.
        element_shape: the shape of each; by default what is written first has.

    Raises:
        OptionError: the type is none of numbers or truth values.
    """

    def __init__(
        self, size: int | Tensor = 0, *, dtype: Any = "float64",
        element_shape: Sequence[int | None] | None = None,
    ) -> None:  # fmt: skip
        static = None if element_shape is None else tuple(element_shape)
        self._told: dict[str, Any] = {"static": static, "dtype": type_of_numbers("array", dtype)}
        # what no element changes any more; shared with all that come of it
        self._fixed = set[str]()
        self.handle = apply("array", size)
        self.flow = constant(0.0)

    def with_flow(self, flow: Tensor) -> TensorArray:
        """Give the array as it is when `flow` has come."""
        other = copy(self)
        other.flow = flow
        return other

    def write(self, index: int | Tensor, value: Any) -> TensorArray:
        """Write a place; the array as it is then.

        Raises:
            GraphError: the value has not the elements' shape, or the type of those written before.
        """
        (tensor,) = tensors_of([value])
        written = apply("array_write", self.handle, index, tensor, self.flow)
        self._know(tensor, tensor.shape)
        return self.with_flow(written)

    def read(self, index: int | Tensor) -> Tensor:
        """A place that was written before."""
        self._fixed.add("dtype")
        return apply("array_read", self.handle, index, self.flow, **self._told)

    def unstack(self, x: Tensor) -> TensorArray:
        """Write all rows of x, the first at place 0; the array as it is then.

        Raises:
            GraphError: as of `write`.
        """
        (tensor,) = tensors_of([x])
        self._know(tensor, None if tensor.shape is None else tensor.shape[1:])
        return self.with_flow(apply("array_unstack", self.handle, tensor, self.flow))

    def _know(self, tensor: Tensor, shape: tuple[int | None, ...] | None) -> None:
        """Take what is known of elements that are written."""
        told, dtype = self._told["static"], self._told["dtype"] if self._fixed else tensor.dtype
        if not op.may_be(told, shape) or tensor.dtype != dtype:
            raise GraphError(
                f"write: elements of this array are {dtype} of shape {told}, got {tensor.dtype} of "
                f"shape {shape}; give each array elements that are alike, and say dtype= of one "
                "that is read first"
            )
        self._fixed.add("dtype")
        self._told.update(static=shape if told is None else told, dtype=tensor.dtype)

    def stack(self) -> Tensor:
        """Stack all places into one tensor, with a new first axis."""
        shape = self._told["static"]
        told = {**self._told, "static": None if shape is None else (None, *shape)}
        return apply("array_stack", self.handle, self.flow, **told)

    def size(self) -> Tensor:
        """Return the number of places."""
        return apply("array_size", self.handle, self.flow)


def _parts(structure: object) -> Iterator[Any]:
    if isinstance(structure, tuple | list):
        for part in cast("Sequence[object]", structure):
            yield from _parts(part)
    else:
        yield structure


def rebuilt(structure: object, leaves: Iterable[Any]) -> Any:
    """A structure of the same form with other leaves."""
    left = iter(leaves)
    if isinstance(structure, TensorArray):
        return structure.with_flow(next(left))
    if isinstance(structure, tuple | list):
        parts = [rebuilt(part, left) for part in cast("Sequence[object]", structure)]
        if hasattr(cast("Any", structure), "_fields"):
            return type(cast("Any", structure))(*parts)
        return tuple(parts) if isinstance(structure, tuple) else parts
    return next(left)


def form(structure: object) -> str:
    """The form of a structure in words, such as "(tensor, array)"."""
    if isinstance(structure, TensorArray):
        return "array"
    if isinstance(structure, tuple | list):
        return f"({', '.join(form(part) for part in cast('Sequence[object]', structure))})"
    return "tensor"


def require_alike(first: object, second: object, what: str) -> None:
    """Two structures have one form and the same arrays.

    Raises:
        GraphError: they have not; the message begins with `what`.
    """
    if form(first) != form(second):
        raise GraphError(f"{what}, got {form(first)} and {form(second)}")
    for one, other in zip(_arrays(first), _arrays(second), strict=True):
        if _origin(one.handle) is not _origin(other.handle):
            raise GraphError(f"{what}, got two arrays; go on from one array with write or unstack")


def leaves_of(structure: object, where: str) -> list[Tensor]:
    """The leaves as tensors of the present context.

    Raises:
        GraphError: one is neither a tensor nor a number, or cannot be used here.
    """
    flat = [one.flow if isinstance(one, TensorArray) else one for one in _parts(structure)]
    try:
        return tensors_of(flat)
    except OptionError as error:
        raise GraphError(f"{where}: {error}") from error


def _arrays(structure: object) -> Iterator[TensorArray]:
    return (one for one in _parts(structure) if isinstance(one, TensorArray))


def _origin(handle: Tensor) -> Tensor:
    while handle.captured_from is not None:
        handle = handle.captured_from
    return handle
