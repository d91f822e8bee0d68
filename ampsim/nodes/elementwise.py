"""Transforms that keep the shape: ReLU, Tanh, Sigmoid (Section 4), Softmax, Affine, Dropout."""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from operator import index
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ampsim.arguments import checked
from ampsim.constant import constant
from ampsim.errors import GraphError
from ampsim.ir.message import Direction, Payload, Sends, State
from ampsim.ir.node import CachingNode, Shape
from ampsim.ir.shapes import known, require
from ampsim.ir.work import VIEW, Work, elementwise_work
from ampsim.options import Seed
from ampsim.rng import stream

if TYPE_CHECKING:
    from jaxtyping import Float


class _SameShape(CachingNode):
    """Sends a payload of the shape that came."""

    keeps_state = True
    heeds_need = False

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Keep the shape."""
        return known(shapes)


class Elementwise(_SameShape):
    """A function that keeps the shape; its derivative can be told from y, or from x.

    Attributes:
        operations: of a forward and of a backward step.
        passes: payloads that these operations read and write, each by itself.
        keeps_input: whether x is what it keeps, and not y.
    """

    operations: tuple[int, int] = (1, 1)
    passes: tuple[int, int] = (2, 2)
    keeps_input: bool = False

    @checked
    def __init__(self, name: str) -> None:
        super().__init__(name)

    @abstractmethod
    def value(self, x: np.ndarray) -> np.ndarray:
        """Return y = f(x), a new array."""

    @abstractmethod
    def pulled_back(self, y: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Return `gradient` times f'(x), a new array; `y` is f(x), or what it keeps instead."""

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send f(x) and record it under the state."""
        output = payload if self.is_abstract else self.value(payload)
        if self.is_training:
            self._saved[state] = payload if self.keeps_input else output
        return ((0, state, output),)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send the gradient times the derivative."""
        kept = self._saved.pop(state)
        if gradient is None or self.is_abstract:
            return ((0, state, gradient),)
        return ((0, state, self.pulled_back(kept, gradient)),)

    def kept_bytes(self, state: State, taken_bytes: int) -> int:
        """Count x or y, which are of one size."""
        return taken_bytes

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Read and write every element once; back, also what was kept of it."""
        is_back = direction is Direction.BACKWARD
        return elementwise_work(
            shape,
            self.element_bytes,
            self.operations[is_back],
            passes=self.passes[is_back],
            functions=int(not is_back),
            arrays=2 + is_back,
        )


class ReLU(Elementwise):
    """max(x, 0); the derivative at 0 is 0."""

    operations = 1, 2
    passes = 2, 5  # a comparison, and a product with what it gives, which is cast

    def value(self, x: np.ndarray) -> np.ndarray:
        """Return max(x, 0)."""
        return np.maximum(x, constant(0.0, x.dtype))

    def pulled_back(self, y: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Keep the gradient where the output was positive."""
        return gradient * (y > constant(0.0, y.dtype))


class Tanh(Elementwise):
    """The hyperbolic tangent; its derivative is 1 − y²."""

    operations = 1, 3
    passes = 2, 7

    def value(self, x: np.ndarray) -> np.ndarray:
        """Return tanh(x)."""
        return np.tanh(x)

    def pulled_back(self, y: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Multiply by 1 − y²."""
        slope = y * y
        np.subtract(constant(1.0, slope.dtype), slope, out=slope)
        slope *= gradient
        return slope


class Sigmoid(Elementwise):
    """The logistic function 1 / (1 + e⁻ˣ); its derivative is y (1 − y)."""

    operations = 4, 3
    passes = 8, 8

    def value(self, x: np.ndarray) -> np.ndarray:
        """Return (1 + tanh(x / 2)) / 2, which cannot overflow."""
        half = constant(0.5, x.dtype)
        output = x * half
        np.tanh(output, out=output)
        output *= half
        output += half
        return output

    def pulled_back(self, y: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Multiply by y (1 − y)."""
        slope = y * y
        np.subtract(y, slope, out=slope)
        slope *= gradient
        return slope


class Softmax(Elementwise):
    """exp(x) / Σ exp(x) along an axis, or the logarithm of that.

    Args:
        name: the node's name.
        axis: along which the values add up to 1; below 0 it counts from the last.
        is_log: whether the logarithm is sent.
    """

    @checked
    def __init__(self, name: str, axis: int = -1, *, is_log: bool = False) -> None:
        super().__init__(name)
        self.axis = axis
        self.is_log = is_log
        self.operations = (6, 4) if is_log else (5, 4)
        self.passes = (8, 8) if is_log else (8, 9)

    def value(self, x: np.ndarray) -> np.ndarray:
        """Return the softmax, from differences to the largest, which cannot overflow."""
        less = x - x.max(axis=self.axis, keepdims=True)
        powers = np.exp(less)
        total = powers.sum(axis=self.axis, keepdims=True)
        if self.is_log:
            less -= np.log(total)
            return less
        powers /= total
        return powers

    def pulled_back(self, y: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Return the gradient less its mean by y, times y; of a logarithm, less y times its sum."""
        if self.is_log:
            return gradient - np.exp(y) * gradient.sum(axis=self.axis, keepdims=True)
        back = gradient - (gradient * y).sum(axis=self.axis, keepdims=True)
        back *= y
        return back

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require the axis; keep the shape."""
        (shape,) = known(shapes)
        require(-len(shape) <= self.axis < len(shape), self, f"an axis {self.axis}", shape)
        return (shape,)


class Affine(_SameShape):
    """x times a factor, plus a shift; both are numbers that do not learn."""

    @checked
    def __init__(self, name: str, *, factor: float = 1.0, shift: float = 0.0) -> None:
        super().__init__(name)
        self.factor = factor
        self.shift = shift

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send x · factor + shift."""
        if self.is_abstract:
            return ((0, state, payload),)
        output = payload * self.factor
        output += self.shift
        return ((0, state, output),)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send the gradient times the factor."""
        if gradient is None or self.is_abstract:
            return ((0, state, gradient),)
        return ((0, state, gradient * self.factor),)

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Read and write every element, twice forward."""
        is_back = direction is Direction.BACKWARD
        return elementwise_work(shape, self.element_bytes, 2 - is_back, passes=4 - 2 * is_back)


class Masks:
    """Inverted dropout: each element is 0 with probability `rate`, else 1 / (1 − rate).

    The numbers come from a counter-based generator (Philox; Salmon et al., 2011) whose key is the
    seed and the purpose, and whose counter is a digest of the state, whose instance is counted
    through all epochs without those of validation. A message gets the same mask in whatever order
    messages are served and however often is validated, and setting a counter costs a microsecond.

    Args:
        purpose: what the masks are for; unique in a graph.
        rate: probability of an element to be dropped.
        seed: of the run.

    Attributes:
        validated: instances of validation before the pass, which have numbers too.

    Raises:
        GraphError: the rate is not a number from 0 to below 1.
        OptionError: the seed is negative or no whole number.
    """

    validated = 0

    def __init__(self, purpose: str, rate: float, seed: int) -> None:
        if not 0 <= rate < 1:
            raise GraphError(f"{purpose}: rate must be >= 0 and < 1, got {rate}")
        key = stream(seed, f"dropout/{purpose}").integers(0, 2**64, 2, np.uint64)
        self._philox = np.random.Philox(key=key)
        self._start: Any = self._philox.state
        self._generator = np.random.Generator(self._philox)
        self._rate = np.float32(rate)
        self._kept = 1.0 / (1.0 - rate)

    def of(
        self, state: State, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> Float[np.ndarray, ...]:
        """The mask of `shape` for the message of `state`."""
        trained = (state[0] - self.validated, *state[1:])
        digest = hashlib.blake2b(_text(trained).encode(), digest_size=24).digest()
        counter = self._start["state"]["counter"]
        counter[0] = 0  # counts the numbers drawn
        counter[1:] = np.frombuffer(digest, "<u8")
        self._philox.state = self._start
        is_kept = self._generator.random(shape, np.float32) >= self._rate
        return np.multiply(is_kept, self._kept, dtype=dtype)


def masked_work(elements: int, element_bytes: int, direction: Direction) -> Work:
    """The work of a mask, beside that of a fused step: to draw it, and to multiply by it.

    Numbers are drawn, compared with the rate, and made 0 or a factor; backward, it is kept.
    """
    size_bytes = elements * element_bytes
    if direction is Direction.BACKWARD:
        return Work(0, size_bytes, 1, pass_bytes=3 * size_bytes)
    return Work(0, size_bytes, 4, pass_bytes=8 * size_bytes, functions=elements)


class Dropout(_SameShape):
    """Inverted dropout: 0 with probability `rate`, else x / (1 − rate); identity in validation.

    The mask depends on seed, name and state alone, so that the order of messages does not change
    it; of the instance, on its place in training: each epoch has masks of its own, however often is
    validated. With `masks_of` the masks are those of the node of that name.

    Raises:
        GraphError: the rate is not a number from 0 to below 1.
        OptionError: the seed is negative or no whole number.
    """

    @checked
    def __init__(self, name: str, rate: float, seed: Seed, *, masks_of: str | None = None) -> None:
        self._masks = Masks(masks_of or name, rate, seed)
        super().__init__(name)

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send the payload times its mask, and record the mask under the state."""
        if not self.is_training:
            return ((0, state, payload),)
        if self.is_abstract:
            self._saved[state] = None
            return ((0, state, payload),)
        mask = self._saved[state] = self.mask(state, payload.shape, payload.dtype)
        return ((0, state, payload * mask),)

    def mask(
        self, state: State, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> Float[np.ndarray, ...]:
        """The mask of a message in training."""
        return self._masks.of(state, shape, dtype)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send the gradient times the mask."""
        mask = self._saved.pop(state)
        if gradient is None or mask is None:
            return ((0, state, gradient),)
        return ((0, state, gradient * mask),)

    def kept_bytes(self, state: State, taken_bytes: int) -> int:
        """Count the mask, as large as what it is for."""
        return taken_bytes

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Read and write every element once, and a mask; in validation nothing is done."""
        if shape is None or not self.is_training:
            return VIEW
        elements = math.prod(shape)
        return masked_work(elements, self.element_bytes, direction) + Work(
            0, 2 * elements * self.element_bytes, 0
        )


def _text(state: State) -> str:
    """The numbers of a state, nested as it is; equal states have equal texts.

    >>> _text((3, (np.int64(1), ()), True))
    '(3,(1,()),1)'
    """
    if isinstance(state, tuple):
        return f"({','.join(map(_text, cast('tuple[Any, ...]', state)))})"
    try:
        return str(index(state))
    except TypeError:
        return repr(state)
