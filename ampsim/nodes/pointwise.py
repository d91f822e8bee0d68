"""Functions of each element, one to a line: what `FUNCTIONS` lists is a node, and is tested as one.

Source: PyTorch's functions of the same names; at kinks and thresholds the slopes are PyTorch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ampsim.arguments import checked
from ampsim.errors import OptionError, UnknownNameError, one_of
from ampsim.ir.message import Direction, Payload, Sends, State
from ampsim.ir.node import CachingNode, Shape
from ampsim.ir.shapes import known
from ampsim.ir.work import NO_WORK, Work, elementwise_work
from ampsim.nodes.elementwise import Elementwise

Array: TypeAlias = np.ndarray
OfArray: TypeAlias = Callable[[Array], Array]
Calls: TypeAlias = tuple[int, int]
"""How many calls of NumPy a function makes, and how many arrays these read and write."""

SPACES: Final = 64
"""Points of the table of the error function in an interval of 1; with six derivatives at the
nearest, what is left out is below 1e-16."""


class Function(NamedTuple):
    """A function with its derivative.

    Attributes:
        value: of x and numbers.
        slope: of x and numbers; of what `value` gave and numbers, if `is_of_value`.
        is_of_value: what the slope is told from, and a step keeps.
        numbers: what they are where they are not given.
    """

    value: Callable[..., Array]
    slope: Callable[..., Array]
    is_of_value: bool = False
    numbers: tuple[float, ...] = ()


def _table_of_erf() -> tuple[Array, ...]:
    at = np.arange(-6 * SPACES, 6 * SPACES + 1) / SPACES
    rows = [np.array([math.erf(one) for one in at])]
    before, now = np.zeros_like(at), 2 / math.sqrt(math.pi) * np.exp(-at * at)
    for order in range(6):
        rows.append(now / math.factorial(order + 1))
        before, now = now, -2 * (at * now + order * before)
    return tuple(rows)


_ERF: Final = _table_of_erf()


def erf(x: Array) -> Array:
    """The error function, by Taylor's series at the nearest point of a table."""
    if isinstance(x, _CallCounter):
        return x.called(x)
    wide = np.minimum(np.maximum(x, -6.0), 6.0, dtype=np.float64)
    place = np.rint(np.where(np.isnan(wide), 0.0, wide) * SPACES)
    off, place = wide - place / SPACES, place.astype(np.intp) + 6 * SPACES
    series = _ERF[-1][place]
    for row in _ERF[-2::-1]:
        series *= off
        series += row[place]
    return series.astype(x.dtype)


def _sigmoid(x: Array) -> Array:
    return 0.5 + 0.5 * np.tanh(0.5 * x)


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1.0 + erf(x * math.sqrt(0.5)))


def _slope_of_gelu(x: Array) -> Array:
    density = np.exp(-0.5 * x * x) * math.sqrt(0.5 / math.pi)
    return 0.5 + 0.5 * erf(x * math.sqrt(0.5)) + x * density


def _bent(x: Array) -> Array:
    return np.tanh(math.sqrt(2 / math.pi) * x * (1.0 + 0.044715 * x * x))


def _slope_of_gelu_tanh(x: Array) -> Array:
    y = _bent(x)
    inner = math.sqrt(2 / math.pi) * (1.0 + 3 * 0.044715 * x * x)
    return 0.5 * (1.0 + y) * (1.0 + x * (1.0 - y) * inner)


def _slope_of_silu(x: Array) -> Array:
    y = _sigmoid(x)
    return y * (1.0 + x * (1.0 - y))


def _slope_of_mish(x: Array) -> Array:
    y = np.tanh(_softplus(x))
    return y + x * (1.0 - y * y) * _sigmoid(x)


def _elu(x: Array, alpha: float, scale: float, rate: float) -> Array:
    return scale * np.maximum(x, 0.0) + scale * alpha * np.expm1(rate * np.minimum(x, 0.0))


def _slope_of_elu(x: Array, alpha: float, scale: float, rate: float) -> Array:
    left = scale * alpha * rate * np.exp(rate * np.minimum(x, 0.0))
    return scale * (x > 0.0) + left * (x <= 0.0)


def _thresholded(x: Array, beta: float, threshold: float) -> Array:
    return np.where(beta * x > threshold, x, _softplus(beta * x) / beta)


def _slope_of_thresholded(x: Array, beta: float, threshold: float) -> Array:
    return np.where(beta * x > threshold, 1.0, _sigmoid(beta * x))


def _leaky(x: Array, slope: float) -> Array:
    return np.maximum(x, 0.0) + slope * np.minimum(x, 0.0)


def _slope_of_leaky(x: Array, slope: float) -> Array:
    return (x > 0.0) + slope * (x <= 0.0)


def _clipped(x: Array, least: float, most: float) -> Array:
    return np.minimum(np.maximum(x, least), most)


def _slope_of_clipped(x: Array, least: float, most: float) -> Array:
    return (x > least) & (x < most)


def _power(x: Array, exponent: float) -> Array:
    return x**exponent


def _slope_of_power(x: Array, exponent: float) -> Array:
    return exponent * x ** (exponent - 1.0) if exponent else np.zeros_like(x)


def _by_x(value: OfArray, slope: OfArray) -> Function:
    return Function(value, slope)


def _by_y(value: OfArray, slope: OfArray) -> Function:
    return Function(value, slope, is_of_value=True)


FUNCTIONS: Final[dict[str, Function]] = {
    "abs": _by_x(np.abs, np.sign),
    "clamp_max": Function(np.minimum, np.less_equal, numbers=(1.0,)),
    "clamp_min": Function(np.maximum, np.greater_equal, numbers=(0.0,)),
    "cos": _by_x(np.cos, lambda x: -np.sin(x)),
    "elu": Function(_elu, _slope_of_elu, numbers=(1.0, 1.0, 1.0)),
    "erf": _by_x(erf, lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x)),
    "exp": _by_y(np.exp, lambda y: y),
    "expm1": _by_y(np.expm1, lambda y: y + 1.0),
    "gelu": _by_x(_gelu, _slope_of_gelu),
    "gelu_tanh": _by_x(lambda x: 0.5 * x * (1.0 + _bent(x)), _slope_of_gelu_tanh),
    "hardtanh": Function(_clipped, _slope_of_clipped, numbers=(-1.0, 1.0)),
    "leaky_relu": Function(_leaky, _slope_of_leaky, numbers=(0.01,)),
    "log": _by_x(np.log, lambda x: 1.0 / x),
    "log1p": _by_x(np.log1p, lambda x: 1.0 / (1.0 + x)),
    "log_sigmoid": _by_y(lambda x: -_softplus(-x), lambda y: -np.expm1(y)),
    "mish": _by_x(lambda x: x * np.tanh(_softplus(x)), _slope_of_mish),
    "pow": Function(_power, _slope_of_power, numbers=(2.0,)),
    "reciprocal": _by_y(lambda x: 1.0 / x, lambda y: -y * y),
    "root": _by_y(np.sqrt, lambda y: 0.5 / np.where(y, y, np.inf)),
    "rsqrt": _by_y(lambda x: 1.0 / np.sqrt(x), lambda y: -0.5 * y * y * y),
    "silu": _by_x(lambda x: x * _sigmoid(x), _slope_of_silu),
    "sin": _by_x(np.sin, np.cos),
    "softplus": Function(_thresholded, _slope_of_thresholded, numbers=(1.0, 20.0)),
    "sqrt": _by_y(np.sqrt, lambda y: 0.5 / y),
}
"""By the names of PyTorch's operators; both forms of gelu have one of their own, and "root" is the
sqrt of its norm and std, with slope 0 at 0."""


class Pointwise(Elementwise):
    """A function of each element, by its name in `FUNCTIONS`, such as "gelu".

    Args:
        name: the node's name.
        function: one of `FUNCTIONS`.
        numbers: that it takes besides, such as the slope of "leaky_relu"; as usual if left out.

    Raises:
        UnknownNameError: there is no such function.
        OptionError: it takes another count of numbers.
    """

    @checked
    def __init__(self, name: str, function: str, numbers: Sequence[float] = ()) -> None:
        if function not in FUNCTIONS:
            raise UnknownNameError(f"{name}: {one_of('function', function, FUNCTIONS)}")
        super().__init__(name)
        self.function = FUNCTIONS[function]
        self.numbers = tuple(numbers) or self.function.numbers
        if len(self.numbers) != len(self.function.numbers):
            raise OptionError(
                f"{name}: numbers of {function} must be {len(self.function.numbers)}, such as "
                f"{self.function.numbers}, got {tuple(numbers)}"
            )
        self.keeps_input = not self.function.is_of_value
        (once, passes), (more, back) = _calls(function, self.numbers)
        self.operations, self.passes = (once, more + 1), (passes, back + 3)

    def value(self, x: Array) -> Array:
        """Return f(x)."""
        return self.function.value(x, *self.numbers)

    def pulled_back(self, y: Array, gradient: Array) -> Array:
        """Return the gradient times the slope; `y` is x where the slope is told from that."""
        slope = self.function.slope(y, *self.numbers)
        return np.multiply(gradient, slope, dtype=gradient.dtype)


COMPARISONS: Final[dict[str, Callable[..., Array]]] = {
    "eq": np.equal, "ge": np.greater_equal, "gt": np.greater, "le": np.less_equal, "lt": np.less,
    "ne": np.not_equal,
}  # fmt: skip
"""By the names of PyTorch's operators."""


class Compare(CachingNode):
    """Whether each element compares so with a number: a mask of truth values, without gradient.

    Raises:
        UnknownNameError: there is no such comparison.
    """

    keeps_state = True
    heeds_need = False

    @checked
    def __init__(self, name: str, comparison: str, number: float) -> None:
        if comparison not in COMPARISONS:
            raise UnknownNameError(f"{name}: {one_of('comparison', comparison, COMPARISONS)}")
        super().__init__(name)
        self.comparison = comparison
        self.number = number

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send the mask."""
        is_real = isinstance(payload, np.ndarray)
        mask = COMPARISONS[self.comparison](payload, self.number) if is_real else payload
        return ((0, state, mask),)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send no gradient."""
        return ((0, state, None),)

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Read and write every element once."""
        is_back = direction is Direction.BACKWARD
        return NO_WORK if is_back else elementwise_work(shape, self.element_bytes)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Keep the shape."""
        return known(shapes)


class _CallCounter(np.ndarray):
    """An array that counts what is called with it, and the arrays that these read and write."""

    calls: list[int]

    def called(self, *inputs: Any) -> _CallCounter:
        """Note a call; return an array that counts further ones."""
        arrays = {id(one) for one in inputs if isinstance(one, _CallCounter)}
        self.calls.append(len(arrays) + 1)
        made = np.ones(self.shape).view(_CallCounter)
        made.calls = self.calls
        return made

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, **options: Any
    ) -> _CallCounter:
        return self.called(*inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> _CallCounter:
        return self.called(*args)


@cache
def _calls(name: str, numbers: tuple[float, ...]) -> tuple[Calls, Calls]:
    """The calls that a function and its slope make; an `erf` is one, as where a library has it."""
    found: list[Calls] = []
    for function in FUNCTIONS[name][:2]:
        watched = np.ones(1).view(_CallCounter)
        watched.calls = []
        function(watched, *numbers)
        found.append((len(watched.calls), sum(watched.calls)))
    return found[0], found[1]
