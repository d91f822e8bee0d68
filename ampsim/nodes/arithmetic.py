"""Sum, Difference, Product: elementwise, of payloads of equal state and shape (Section 4)."""

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
from ampsim.ir.work import VIEW, Work, elementwise_work, joined_work
from ampsim.options import Ports


class Arithmetic(CachingNode):
    """Joins payloads of equal shape by an operation on their elements, in the order of ports.

    Raises:
        GraphError: there are fewer than two inputs.
    """

    keeps_state = True

    @checked
    def __init__(self, name: str, count: Ports = 2) -> None:
        if count < 2:
            raise GraphError(f"{name}: count must be two or more inputs, got {count}")
        self.inputs = tuple(f"operand-{i}" for i in range(count))
        super().__init__(name)

    @abstractmethod
    def joined(self, state: State, operands: list[np.ndarray]) -> np.ndarray:
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
        return joined_work(shape, self.element_bytes, len(self.inputs))

    @abstractmethod
    def work_back(self, shape: tuple[int, ...] | None) -> Work:
        """Return the work of a backward step."""

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require equal shapes; keep them."""
        operands = known(shapes)
        alike = all(shape == operands[0] for shape in operands)
        require(alike, self, "one shape at all inputs", *operands)
        return (operands[0],)


class Sum(Arithmetic):
    """Adds; every input that needs a gradient gets the whole of it.

    An input may lack the first axes of another, or have extent 1 where the other has more: it is
    added to all of them, as NumPy does, and gets the sum of their gradients.
    """

    _is_spread = False

    def joined(self, state: State, operands: list[np.ndarray]) -> np.ndarray:
        """Add; record the shapes if they differ."""
        shapes = [operand.shape for operand in operands]
        if self.is_training and shapes.count(shapes[0]) < len(shapes):
            self._saved[state] = shapes
        if self.is_abstract:
            return max(operands, key=lambda operand: math.prod(operand.shape))
        return reduce(add, operands)

    def work_back(self, shape: tuple[int, ...] | None) -> Work:
        """Nothing is computed where all inputs get one gradient; else it is read and added up."""
        return elementwise_work(shape, self.element_bytes) if self._is_spread else VIEW

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

    def _gathered(self, gradient: Payload, shape: tuple[int, ...]) -> Payload:
        if gradient.shape == shape:
            return gradient
        if self.is_abstract:
            return standin(shape, gradient.itemsize)
        more = gradient.ndim - len(shape)
        spread = [axis + more for axis, extent in enumerate(shape) if extent == 1]
        return gradient.sum(axis=(*range(more), *spread)).reshape(shape)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require one shape, or some that can be added to the largest; return that."""
        operands = known(shapes)
        largest = max(operands, key=lambda shape: (len(shape), -shape.count(1)))
        self._is_spread = any(shape != largest for shape in operands)
        fits = all(
            all(
                mine in (theirs, 1)
                for mine, theirs in zip(shape[::-1], largest[::-1], strict=False)
            )
            for shape in operands
        )
        require(fits, self, "one shape at all inputs", *operands)
        return (largest,)


class Difference(Arithmetic):
    """Subtracts the second of two inputs from the first; the second's gradient is negative."""

    @checked
    def __init__(self, name: str) -> None:
        super().__init__(name)

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


class Product(Arithmetic):
    """Multiplies; an input's gradient is that of the product times the other inputs."""

    def joined(self, state: State, operands: list[np.ndarray]) -> np.ndarray:
        """Multiply; record the factors."""
        if self.is_training:
            self._saved[state] = operands
        return operands[0] if self.is_abstract else reduce(mul, operands)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send each input the gradient times the other inputs."""
        factors = self._saved.pop(state)
        return [
            (place, state, self._gradient(factors, place, gradient) if is_needed else None)
            for place, is_needed in enumerate(self.input_needs_gradient)
        ]

    def kept_bytes(self, state: State, taken_bytes: int) -> int:
        """It keeps all factors."""
        return taken_bytes

    def work_back(self, shape: tuple[int, ...] | None) -> Work:
        """For each input that needs a gradient, what the forward step costs."""
        needed = sum(self.input_needs_gradient)
        once = joined_work(shape, self.element_bytes, len(self.inputs))
        if shape is None or not needed:
            return VIEW
        passed = needed * once.pass_bytes
        return Work(0, needed * once.bytes, needed * once.operations, pass_bytes=passed)

    def _gradient(self, factors: list[np.ndarray], place: int, gradient: Payload) -> Payload:
        if gradient is None or self.is_abstract:
            return gradient
        others: list[Any] = factors[:place] + factors[place + 1 :]
        return reduce(mul, others, gradient)
