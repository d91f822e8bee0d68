"""The same numbers in another shape or order of axes, or some of them, as views of an array.

Source: PyTorch's `reshape`, `permute`, `select` and slices. None of them moves a byte of its own.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np

from ampsim.arguments import checked
from ampsim.errors import GraphError
from ampsim.ir import CachingNode, Direction, Payload, Sends, Shape, Standin, State, Work, standin
from ampsim.ir.shapes import known, require
from ampsim.nodes.light import VIEW, elementwise_work


class Reshaping(CachingNode):
    """Sends an array in another shape than it came; keeps the shape that came."""

    keeps_state = True
    heeds_need = False

    @abstractmethod
    def seen(self, whole: np.ndarray) -> np.ndarray:
        """Return what is sent."""

    def taken(self, whole: np.ndarray) -> tuple[np.ndarray, Any]:
        """Return what is sent, and what backward needs besides the shape."""
        return self.seen(whole), None

    def sent_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of what is sent of a payload of `shape`."""
        return self.seen(np.broadcast_to(np.zeros((), np.bool_), shape)).shape

    @abstractmethod
    def pulled_back(self, gradient: np.ndarray, shape: tuple[int, ...], kept: Any) -> np.ndarray:
        """Return the gradient of a payload of `shape`."""

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send it, and record the shape under the state."""
        shape, kept = payload.shape, None
        if isinstance(payload, Standin):
            result = standin(self.sent_shape(shape), payload.itemsize)
        else:
            result, kept = self.taken(payload)
        if self.is_training:
            self._saved[state] = shape, kept
        return ((0, state, result),)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send the gradient in the shape of what came."""
        shape, kept = self._saved.pop(state)
        if gradient is None:
            return ((0, state, None),)
        if self.is_abstract:
            return ((0, state, standin(shape, gradient.itemsize)),)
        return ((0, state, self.pulled_back(gradient, shape, kept)),)

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Nothing is moved by a view."""
        return VIEW


class Flatten(Reshaping):
    """(rows, channels, height, width), or more or fewer axes, becomes (rows, their product).

    The order is that of PyTorch's `Flatten`: channel by channel, each row after row.
    """

    @checked
    def __init__(self, name: str) -> None:
        super().__init__(name)

    def seen(self, whole: np.ndarray) -> np.ndarray:
        """All numbers of an item side by side."""
        return whole.reshape(self.sent_shape(whole.shape))

    def sent_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """(rows, the product of all other extents)."""
        return shape[0], math.prod(shape[1:])

    def pulled_back(self, gradient: np.ndarray, shape: tuple[int, ...], kept: Any) -> np.ndarray:
        """The gradient in the shape of what came."""
        return gradient.reshape(shape)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require known extents but for the rows; return (rows, their product)."""
        (shape,) = known(shapes)
        rows, *others = shape if len(shape) > 1 else ("rows", "unknown")
        extents = [extent for extent in others if isinstance(extent, int)]
        require(extents == others, self, "(rows, …) with all other extents known", shape)
        return ((rows, math.prod(extents)),)


class Reshape(Reshaping):
    """The same numbers in the same order, in another shape.

    Args:
        name: the node's name.
        shape: of what is sent; one extent may be -1, which follows from the others.
    """

    @checked
    def __init__(self, name: str, shape: Sequence[int]) -> None:
        """Send payloads of `shape`.

        Raises:
            GraphError: an extent is below 1 and not -1, or two are -1.
        """
        extents = tuple(shape)
        if any(one < 1 and one != -1 for one in extents) or extents.count(-1) > 1 or not extents:
            raise GraphError(f"{name}: shape must be of extents >= 1 and one -1, got {extents}")
        super().__init__(name)
        self.shape = extents

    def seen(self, whole: np.ndarray) -> np.ndarray:
        """Reshape."""
        return whole.reshape(self.shape)

    def sent_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape, with the extent that follows from the others."""
        rest = -math.prod(self.shape) if -1 in self.shape else 1
        return tuple(math.prod(shape) // rest if one == -1 else one for one in self.shape)

    def pulled_back(self, gradient: np.ndarray, shape: tuple[int, ...], kept: Any) -> np.ndarray:
        """Reshape back."""
        return gradient.reshape(shape)

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
    """All extents multiplied: the known ones, and the names of the others, sorted."""
    count, names = 1, list[str]()
    for extent in shape:
        for factor in str(extent).split(DOT):
            if factor.isdecimal():
                count *= int(factor)
            else:
                names.append(factor)
    return count, sorted(names)


class Permute(Reshaping):
    """The same numbers with the axes in another order: axis i of what is sent is `axes[i]`."""

    @checked
    def __init__(self, name: str, axes: Sequence[int]) -> None:
        """Put the axes in the order of `axes`.

        Raises:
            GraphError: they are not the numbers of all axes.
        """
        if sorted(axes) != list(range(len(axes))):
            raise GraphError(f"{name}: axes must be 0 to below their number, got {tuple(axes)}")
        super().__init__(name)
        self.axes = tuple(axes)
        self._inverse = tuple(np.argsort(self.axes).tolist())

    def seen(self, whole: np.ndarray) -> np.ndarray:
        """Permute."""
        return whole.transpose(self.axes)

    def pulled_back(self, gradient: np.ndarray, shape: tuple[int, ...], kept: Any) -> np.ndarray:
        """Permute back."""
        return gradient.transpose(self._inverse)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require as many axes; return them in their order."""
        (shape,) = known(shapes)
        require(len(shape) == len(self.axes), self, f"{len(self.axes)} axes", shape)
        return (tuple(shape[axis] for axis in self.axes),)


class Pick(Reshaping):
    """A place or a stretch of each axis; the others' gradient is 0.

    Args:
        name: the node's name.
        keys: for each of the first axes a place, which takes the axis away, (start, stop, step) as
            in a slice, or None for all of it; of further axes there is all.
    """

    @checked
    def __init__(self, name: str, keys: Sequence[Any]) -> None:
        """Pick by `keys`.

        Raises:
            GraphError: one is none of these.
        """
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

    def seen(self, whole: np.ndarray) -> np.ndarray:
        """Index."""
        return whole[self._index]

    def pulled_back(self, gradient: np.ndarray, shape: tuple[int, ...], kept: Any) -> np.ndarray:
        """Put the gradient among zeros."""
        whole = np.zeros(shape, gradient.dtype)
        whole[self._index] = gradient
        return whole

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Send a view; write the gradient into zeros."""
        if direction is Direction.FORWARD:
            return VIEW
        return elementwise_work(shape, self.element_bytes, 2)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require at least as many axes; return those that are left, with what is left of them."""
        (shape,) = known(shapes)
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
