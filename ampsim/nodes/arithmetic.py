"""Sum, Difference, Product: elementwise, of payloads of equal state (Section 4)."""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import reduce
from operator import add, mul
from typing import Any

import numpy as np

from ampsim.arguments import checked
from ampsim.errors import GraphError
from ampsim.ir.message import Direction, Payload, Sends, State, standin
from ampsim.ir.node import CachingNode, Shape
from ampsim.ir.shapes import known, require
from ampsim.ir.work import NO_WORK, VIEW, Work, elementwise_work, joined_work
from ampsim.options import Ports


def largest(operands: list[Any]) -> Any:
    """The operand of the most elements, and of these of the most axes."""
    return max(operands, key=lambda operand: (math.prod(operand.shape), len(operand.shape)))


def unspread(gradient: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Add up a gradient over the axes along which a payload of `shape` was spread."""
    if gradient.shape == shape:
        return gradient
    more = gradient.ndim - len(shape)
    axes = [axis + more for axis, extent in enumerate(shape) if extent == 1]
    return gradient.sum(axis=(*range(more), *axes)).reshape(shape)


class Arithmetic(CachingNode):
    """Joins payloads by an operation on their elements, in the order of ports.

    An input may lack the first axes of another, or have extent 1 where the other has more: it goes
    with all of them, as in NumPy, and gets the sum of their gradients.

    Attributes:
        spread: for each input whether it is smaller than the result.

    Raises:
        GraphError: there are fewer than two inputs.
    """

    keeps_state = True

    @checked
    def __init__(self, name: str, count: Ports = 2) -> None:
        if count < 2:
            raise GraphError(f"{name}: count must be two or more inputs, got {count}")
        self.inputs = tuple(f"operand-{i}" for i in range(count))
        self.spread = (False,) * count  # the graph's check tells
        super().__init__(name)

    @abstractmethod
    def joined(self, state: State, operands: list[np.ndarray]) -> Payload:
        """Return the result, and record what backward needs of it."""

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Wait for the other operands of the state, then send the result."""
        operands = self._arrived.put(port, state, payload)
        if operands is None:
            return ()
        return ((0, state, self.joined(state, operands)),)

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Read all operands and write one payload, an operation for each pair of operands."""
        if direction is Direction.BACKWARD:
            return self.work_back(shape)
        return joined_work(shape, self.element_bytes, len(self.inputs), sum(self.spread))

    @abstractmethod
    def work_back(self, shape: tuple[int, ...] | None) -> Work:
        """Return the work of a backward step."""

    def gathered_work(self, shape: tuple[int, ...] | None) -> Work:
        """Read a gradient and add it up for each input that it is for and that is smaller."""
        sums = sum(map(all, zip(self.spread, self.input_needs_gradient, strict=True)))
        if shape is None or not sums:
            return Work(operations=0)
        size_bytes = sums * self.element_bytes * math.prod(shape)
        return Work(0, size_bytes, sums, pass_bytes=size_bytes if len(self.inputs) > 2 else 0)

    def _gathered(self, gradient: Payload, shape: tuple[int, ...]) -> Payload:
        if self.is_abstract:
            return standin(shape, gradient.itemsize)
        return unspread(gradient, shape)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require one shape, or some that go with the largest; return that."""
        operands = known(shapes)
        whole = max(operands, key=lambda shape: (len(shape), -shape.count(1)))
        self.spread = tuple(shape != whole for shape in operands)
        fits = all(
            all(mine in (theirs, 1) for mine, theirs in zip(shape[::-1], whole[::-1], strict=False))
            for shape in operands
        )
        require(fits, self, "one shape at all inputs", *operands)
        return (whole,)


class Sum(Arithmetic):
    """Adds; every input that needs a gradient gets the whole of it."""

    def joined(self, state: State, operands: list[np.ndarray]) -> np.ndarray:
        """Add; record the shapes if they differ."""
        shapes = [operand.shape for operand in operands]
        if self.is_training and shapes.count(shapes[0]) < len(shapes):
            self._saved[state] = shapes
        return largest(operands) if self.is_abstract else reduce(add, operands)

    def work_back(self, shape: tuple[int, ...] | None) -> Work:
        """Nothing is computed where all inputs get one gradient; else it is read and added up."""
        work = self.gathered_work(shape)
        return work if work.operations else VIEW

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send each input the gradient, or the sum of the parts that it was added to."""
        shapes = self._saved.pop(state, None)
        needed = enumerate(self.input_needs_gradient)
        if shapes is None or gradient is None:
            return [(place, state, gradient if is_needed else None) for place, is_needed in needed]
        return [
            (place, state, self._gathered(gradient, shapes[place]) if is_needed else None)
            for place, is_needed in needed
        ]


class Difference(Arithmetic):
    """Subtracts the second of two inputs from the first; the second's gradient is negative."""

    @checked
    def __init__(self, name: str) -> None:
        super().__init__(name)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require one shape; keep it."""
        made = super().check(shapes)
        require(not any(self.spread), self, "one shape at both inputs", *known(shapes))
        return made

    def joined(self, state: State, operands: list[np.ndarray]) -> np.ndarray:
        """Subtract the second from the first."""
        first, second = operands
        return first if self.is_abstract else first - second

    def work_back(self, shape: tuple[int, ...] | None) -> Work:
        """Read and write every element once, for the negative."""
        return elementwise_work(shape, self.element_bytes)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send the first input the gradient, the second its negative."""
        to_first, to_second = self.input_needs_gradient
        negative = gradient if gradient is None or self.is_abstract else -gradient
        return (
            (0, state, gradient if to_first else None),
            (1, state, negative if to_second else None),
        )


class MatrixProduct(Arithmetic):
    """Multiplies the last two axes as matrices: (…, n, k) and (…, k, m), or (k, m), give (…, n, m).

    Without parameters it is light: its 2·n·k·m FLOP are charged by devices that charge light
    operations. An extent that an instance decides is taken for the largest payload's last but one.
    """

    multiplies = True
    _extents: Shape = ("n", "k", "m")
    _is_one = False
    """Whether one matrix multiplies many."""

    @checked
    def __init__(self, name: str) -> None:
        super().__init__(name)

    def joined(self, state: State, operands: list[np.ndarray]) -> Payload:
        """Multiply; record both."""
        if self.is_training:
            self._saved[state] = operands
        first, second = operands
        if self.is_abstract:
            return standin((*first.shape[:-1], second.shape[-1]), first.itemsize)
        return first @ second

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send each input the product of the gradient and the other, transposed."""
        first, second = self._saved.pop(state)
        back: list[Payload] = [None, None]
        if gradient is not None and self.is_abstract:
            back = [first, second]
        elif gradient is not None:
            to_first, to_second = self.input_needs_gradient
            back[0] = gradient @ second.swapaxes(-1, -2) if to_first else None
            if to_second:
                back[1] = unspread(first.swapaxes(-1, -2) @ gradient, second.shape)
        needed = self.input_needs_gradient
        return [(i, state, one if needed[i] else None) for i, one in enumerate(back)]

    def kept_bytes(self, state: State, taken_bytes: int) -> int:
        """Count both factors, which the backward step needs."""
        return taken_bytes

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Count a product forward, and one back for each input that needs a gradient."""
        if shape is None:
            return NO_WORK
        is_back = direction is Direction.BACKWARD
        products = sum(self.input_needs_gradient) if is_back else 1
        n, k, m = (shape[-2] if isinstance(one, str) else one for one in self._extents)
        rows = math.prod(shape[:-2])
        elements = products * (rows * n * (k + m) + (1 if self._is_one else rows) * k * m)
        operations = max(products, 1)
        if is_back and self._is_one and self.input_needs_gradient[1]:  # summed over the rows
            operations, elements = operations + 1, elements + 2 * rows * k * m
        return Work(2 * products * rows * n * k * m, self.element_bytes * elements, operations)

    def work_back(self, shape: tuple[int, ...] | None) -> Work:
        """Count a product for each input that needs a gradient."""
        return self.work(Direction.BACKWARD, shape)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require (…, n, k) and (…, k, m), or (k, m)."""
        first, second = known(shapes)
        is_pair = len(first) >= len(second) >= 2 and second[:-2] in ((), first[:-2])
        require(is_pair and first[-1] == second[-2], self, "(…, n, k) and (…, k, m)", first, second)
        self._extents, self._is_one = (first[-2], first[-1], second[-1]), len(first) > len(second)
        return ((*first[:-1], second[-1]),)


class Where(Arithmetic):
    """The second input where the first, a mask, is true, and the third elsewhere."""

    @checked
    def __init__(self, name: str) -> None:
        super().__init__(name, 3)

    def joined(self, state: State, operands: list[np.ndarray]) -> Payload:
        """Choose; record the mask and the shapes of what is chosen from."""
        mask, first, second = operands
        if self.is_training:
            self._saved[state] = mask, first.shape, second.shape
        if self.is_abstract:
            return standin(largest(operands).shape, first.itemsize)
        return np.where(mask, first, second)

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Read all operands and write one payload, in one operation."""
        if direction is Direction.BACKWARD or shape is None:
            return self.work_back(shape)
        return Work(0, (4 - sum(self.spread)) * self.element_bytes * math.prod(shape))

    def work_back(self, shape: tuple[int, ...] | None) -> Work:
        """Multiply by the mask, and for the second by its opposite, as far as it is needed."""
        _mask, first, second = self.input_needs_gradient
        if shape is None or not first + second:
            return VIEW
        size_bytes = self.element_bytes * math.prod(shape)
        moved, passed = 3 * (first + second) * size_bytes, (3 * first + 4 * second) * size_bytes
        return self.gathered_work(shape) + Work(0, moved, first + 2 * second, pass_bytes=passed)

    def kept_bytes(self, state: State, taken_bytes: int) -> int:
        """Count the mask, a byte for each element."""
        return math.prod(self._saved[state][0].shape)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send each input the gradient where it was chosen; the mask gets none."""
        mask, *shapes = self._saved.pop(state)
        back: list[Any] = [(0, state, None)]
        for place, shape in enumerate(shapes, 1):
            part = None if gradient is None or not self.input_needs_gradient[place] else gradient
            if part is not None and not self.is_abstract:
                part = part * (mask if place == 1 else np.logical_not(mask))
            back.append((place, state, part if part is None else self._gathered(part, shape)))
        return back


class Product(Arithmetic):
    """Multiplies; an input's gradient is that of the product times the other inputs."""

    def joined(self, state: State, operands: list[np.ndarray]) -> np.ndarray:
        """Multiply; record the factors."""
        if self.is_training:
            self._saved[state] = operands
        return largest(operands) if self.is_abstract else reduce(mul, operands)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send each input the gradient times the other inputs."""
        factors = self._saved.pop(state)
        return [
            (place, state, self._gradient(factors, place, gradient) if is_needed else None)
            for place, is_needed in enumerate(self.input_needs_gradient)
        ]

    def kept_bytes(self, state: State, taken_bytes: int) -> int:
        """Count all factors, which the backward step needs."""
        return taken_bytes

    def work_back(self, shape: tuple[int, ...] | None) -> Work:
        """For each input that needs a gradient, what the forward step costs with it instead."""
        places = [place for place, needed in enumerate(self.input_needs_gradient) if needed]
        if shape is None or not places:
            return VIEW
        small, count = sum(self.spread), len(self.inputs)
        products = (
            joined_work(shape, self.element_bytes, count, small - self.spread[place])
            for place in places
        )
        return reduce(add, products, self.gathered_work(shape))

    def _gradient(self, factors: list[np.ndarray], place: int, gradient: Payload) -> Payload:
        others: list[Any] = factors[:place] + factors[place + 1 :]
        if gradient is not None and not self.is_abstract:
            gradient = reduce(mul, others, gradient)
        return gradient if gradient is None else self._gathered(gradient, factors[place].shape)
