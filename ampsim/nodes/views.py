"""Payloads in another shape: the same numbers, some of them, or one for each row of an axis.

Source: PyTorch's `reshape`, `permute`, `select` and slices, which are views and move no byte of
their own; `mean(dim)`, `max(dim)` and `amax(dim)`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np

from ampsim.arguments import checked
from ampsim.errors import GraphError
from ampsim.ir.message import Direction, Payload, Sends, Standin, State, standin
from ampsim.ir.node import CachingNode, Shape
from ampsim.ir.shapes import known, require
from ampsim.ir.work import VIEW, Work, placed_work


class _Reshaped(CachingNode):
    """Sends one array for one, of another shape; keeps the shape that came."""

    keeps_state = True
    heeds_need = False

    @abstractmethod
    def made(self, whole: np.ndarray) -> tuple[np.ndarray, Any]:
        """Return what is sent, and what backward needs besides the shape."""

    @abstractmethod
    def sent_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of what is sent for a payload of `shape`."""

    @abstractmethod
    def pulled_back(self, gradient: np.ndarray, shape: tuple[int, ...], kept: Any) -> np.ndarray:
        """Return the gradient of a payload of `shape`."""

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send what is made; record the shape, and what else is needed, under the state."""
        shape, kept = payload.shape, None
        if isinstance(payload, Standin):
            result: Payload = standin(self.sent_shape(shape), payload.itemsize)
        else:
            result, kept = self.made(payload)
        if self.is_training:
            self._saved[state] = (shape, kept)
        return ((0, state, result),)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send the gradient in the shape of what came."""
        shape, kept = self._saved.pop(state)
        if gradient is None:
            return ((0, state, None),)
        if self.is_abstract:
            return ((0, state, standin(shape, gradient.itemsize)),)
        return ((0, state, self.pulled_back(gradient, shape, kept)),)


class _View(_Reshaped):
    """Sends a view of what came: an array of the same numbers, or of some of them."""

    @abstractmethod
    def seen(self, whole: np.ndarray) -> np.ndarray:
        """Return the view."""

    def made(self, whole: np.ndarray) -> tuple[np.ndarray, Any]:
        """Return the view; backward needs the shape alone."""
        return self.seen(whole), None

    def sent_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the view of a payload of `shape`."""
        return self.seen(np.broadcast_to(np.zeros((), np.bool_), shape)).shape

    def pulled_back(self, gradient: np.ndarray, shape: tuple[int, ...], kept: Any) -> np.ndarray:
        """The gradient's numbers in the shape of what came."""
        return gradient.reshape(shape)

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Move nothing."""
        return VIEW


class Flatten(_View):
    """(rows, channels, height, width), or more or fewer axes, becomes (rows, their product).

    The order is that of PyTorch's `Flatten`: channel by channel, each row after row.
    """

    @checked
    def __init__(self, name: str) -> None:
        super().__init__(name)

    def seen(self, whole: np.ndarray) -> np.ndarray:
        """Return all numbers of an item side by side."""
        return whole.reshape(self.sent_shape(whole.shape))

    def sent_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """(rows, the product of all other extents)."""
        return shape[0], math.prod(shape[1:])

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require known extents but for the rows; return (rows, their product)."""
        (shape,) = known(shapes)
        rows, *others = shape if len(shape) > 1 else ("rows", "unknown")
        extents = [extent for extent in others if isinstance(extent, int)]
        require(extents == others, self, "(rows, …) with all other extents known", shape)
        return ((rows, math.prod(extents)),)


class Reshape(_View):
    """Send the same numbers in the same order, in another shape.

    Args:
        name: the node's name.
        shape: of what is sent; one extent may be -1, which follows from the others.

    Raises:
        GraphError: an extent is below 1 and not -1, or two are -1.
    """

    @checked
    def __init__(self, name: str, shape: Sequence[int]) -> None:
        extents = tuple(shape)
        if any(one < 1 and one != -1 for one in extents) or extents.count(-1) > 1 or not extents:
            raise GraphError(f"{name}: shape must be of extents >= 1 and one -1, got {extents}")
        super().__init__(name)
        self.shape = extents

    def seen(self, whole: np.ndarray) -> np.ndarray:
        """Return the numbers in the shape."""
        return whole.reshape(self.shape)

    def sent_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape, with the extent that follows from the others."""
        rest = -math.prod(self.shape) if -1 in self.shape else 1
        return tuple(math.prod(shape) // rest if one == -1 else one for one in self.shape)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require as many numbers, as far as extents are known; name what an instance decides."""
        (shape,) = known(shapes)
        count, names = _product(shape)
        rest = abs(math.prod(self.shape))
        fits = count % rest == 0 if -1 in self.shape else bool(names) or count == rest
        require(fits, self, f"as many numbers as {self.shape} has", shape)
        times = [str(count // rest)] if count > rest or not names else []
        last = DOT.join([*times, *names])
        found = int(last) if not names else last
        return (tuple(found if one == -1 else one for one in self.shape),)


DOT: Final = "·"
"""Between the factors of an extent that an instance decides, such as ``4·rows``."""


def _product(shape: Shape) -> tuple[int, list[str]]:
    """Multiply all extents: the known ones, and the names of the others, sorted."""
    count, names = 1, list[str]()
    for extent in shape:
        for factor in str(extent).split(DOT):
            if factor.isdecimal():
                count *= int(factor)
            else:
                names.append(factor)
    return count, sorted(names)


class Permute(_View):
    """Send the same numbers with the axes in another order: axis i is `axes[i]` of what came.

    Raises:
        GraphError: `axes` are not the numbers of all axes.
    """

    @checked
    def __init__(self, name: str, axes: Sequence[int]) -> None:
        if sorted(axes) != list(range(len(axes))):
            raise GraphError(f"{name}: axes must be 0 to below their number, got {tuple(axes)}")
        super().__init__(name)
        self.axes = tuple(axes)
        self._inverse = tuple(np.argsort(self.axes).tolist())

    def seen(self, whole: np.ndarray) -> np.ndarray:
        """Return the axes in their order."""
        return whole.transpose(self.axes)

    def pulled_back(self, gradient: np.ndarray, shape: tuple[int, ...], kept: Any) -> np.ndarray:
        """Return the axes in the order in which they came."""
        return gradient.transpose(self._inverse)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require as many axes; return them in their order."""
        (shape,) = known(shapes)
        require(len(shape) == len(self.axes), self, f"{len(self.axes)} axes", shape)
        return (tuple(shape[axis] for axis in self.axes),)


class Pick(_View):
    """A place or a stretch of each axis; the others' gradient is 0.

    Args:
        name: the node's name.
        keys: for each of the first axes a place, which takes the axis away, (start, stop, step) as
            in a slice, or None for all of it; of further axes there is all.

    Raises:
        GraphError: a key is none of these.
    """

    @checked
    def __init__(self, name: str, keys: Sequence[Any]) -> None:
        for key in keys:
            is_stretch = isinstance(key, tuple)
            parts = cast("tuple[Any, ...]", key) if is_stretch else (key, None, None)
            numbers = [one for one in parts if one is not None]
            if len(parts) != 3 or not all(type(one) is int for one in numbers) or parts[2] == 0:
                raise GraphError(
                    f"{name}: keys must be whole numbers, (start, stop, step) or None, got {key!r}"
                )
        super().__init__(name)
        self.keys = tuple(keys)
        self._index = tuple(
            slice(None) if one is None else one if isinstance(one, int) else slice(*one)
            for one in self.keys
        )
        self._axes = 0  # the graph's check tells

    def seen(self, whole: np.ndarray) -> np.ndarray:
        """Return what the keys pick."""
        return whole[self._index]

    def pulled_back(self, gradient: np.ndarray, shape: tuple[int, ...], kept: Any) -> np.ndarray:
        """Put the gradient among zeros."""
        whole = np.zeros(shape, gradient.dtype)
        whole[self._index] = gradient
        return whole

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Send a view; write the gradient into zeros."""
        if direction is Direction.FORWARD or shape is None:
            return VIEW
        whole = math.prod(shape)  # which is the larger, but where all of it is picked
        part = math.prod(self.sent_shape(shape)) if len(shape) == self._axes else whole
        return placed_work(part, whole, self.element_bytes)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require at least as many axes; return those that are left, with what is left of them."""
        (shape,) = known(shapes)
        self._axes = len(shape)
        require(len(shape) >= len(self._index), self, f"{len(self._index)} axes", shape)
        left: list[int | str] = []
        for place, extent in enumerate(shape):
            key = self._index[place] if place < len(self._index) else slice(None)
            if isinstance(key, int):
                fits = not isinstance(extent, int) or -extent <= key < extent
                require(fits, self, f"place {key} on axis {place}", shape)
            elif key == slice(None) or isinstance(extent, int):
                left.append(extent if isinstance(extent, str) else len(range(extent)[key]))
            else:
                left.append(f"{extent}[{key.start}:{key.stop}]")
        return (tuple(left),)


class _OverAxis(_Reshaped):
    """Reduces one axis, which is gone from what is sent.

    Raises:
        GraphError: the axis is below 0.
    """

    @checked
    def __init__(self, name: str, axis: int) -> None:
        if axis < 0:
            raise GraphError(f"{name}: axis must be >= 0, got {axis}")
        super().__init__(name)
        self.axis = axis
        self._axes = 0  # the graph's check tells

    def sent_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the extents without that of the axis."""
        return (*shape[: self.axis], *shape[self.axis + 1 :])

    def part(self, shape: tuple[int, ...]) -> int:
        """Return how many numbers are sent of a payload of `shape`, the larger of the two."""
        return math.prod(self.sent_shape(shape) if len(shape) == self._axes else shape)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require the axis; return the others."""
        (shape,) = known(shapes)
        self._axes = len(shape)
        require(len(shape) > max(self.axis, 1), self, f"more than {max(self.axis, 1)} axes", shape)
        return ((*shape[: self.axis], *shape[self.axis + 1 :]),)


class Mean(_OverAxis):
    """The mean along an axis; every element gets its share of the gradient."""

    def made(self, whole: np.ndarray) -> tuple[np.ndarray, Any]:
        """Take the mean."""
        return whole.mean(axis=self.axis), None

    def pulled_back(self, gradient: np.ndarray, shape: tuple[int, ...], kept: Any) -> np.ndarray:
        """Divide by how many there are."""
        return np.broadcast_to(np.expand_dims(gradient / shape[self.axis], self.axis), shape)

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Read every element; back, divide what came, of which all elements are a view."""
        if shape is None:
            return VIEW
        part = self.part(shape)
        read = part if direction is Direction.BACKWARD else math.prod(shape)
        return Work(0, (read + part) * self.element_bytes)


class Max(_OverAxis):
    """The largest along an axis, which alone gets the gradient.

    Of equal ones the first gets it, as in PyTorch's `max(dim)`, or each its share, as in `amax`.

    Args:
        name: the node's name.
        axis: which; it is gone from what is sent.
        splits_ties: whether equal ones share the gradient.
    """

    @checked
    def __init__(self, name: str, axis: int, *, splits_ties: bool = False) -> None:
        super().__init__(name, axis)
        self.splits_ties = splits_ties

    def made(self, whole: np.ndarray) -> tuple[np.ndarray, Any]:
        """Take the largest, and where it is: its place, or a mask."""
        if self.splits_ties:
            largest = whole.max(axis=self.axis, keepdims=True)
            return largest.squeeze(self.axis), whole == largest
        places = np.expand_dims(whole.argmax(axis=self.axis), self.axis)
        return np.take_along_axis(whole, places, self.axis).squeeze(self.axis), places

    def pulled_back(self, gradient: np.ndarray, shape: tuple[int, ...], kept: Any) -> np.ndarray:
        """Put the gradient where the largest was, among zeros."""
        gradient = np.expand_dims(gradient, self.axis)
        if self.splits_ties:
            return gradient / kept.sum(axis=self.axis, keepdims=True, dtype=gradient.dtype) * kept
        whole = np.zeros(shape, gradient.dtype)
        np.put_along_axis(whole, kept, gradient, self.axis)
        return whole

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Read every element, and each result; back, write the gradient into zeros, or share it."""
        if shape is None:
            return VIEW
        whole, part = math.prod(shape), self.part(shape)
        is_back = direction is Direction.BACKWARD
        moved = (whole + part) * self.element_bytes
        if self.splits_ties:  # two passes over numbers, or three over a mask
            return Work(0, moved, 2 + is_back, pass_bytes=3 * moved)
        if is_back:
            return placed_work(part, whole, self.element_bytes)
        return Work(0, moved, 2, pass_bytes=(whole + 2 * part) * self.element_bytes)

    def kept_bytes(self, state: State, taken_bytes: int) -> int:
        """Count where the largest was: 8 bytes for each result, or one for each element."""
        shape, _kept = self._saved[state]
        elements = taken_bytes // self.element_bytes
        return elements if self.splits_ties else elements // shape[self.axis] * 8
