"""Arrays on devices, and the operations that they push.

``weight[gpu0]`` is the array of that name at that place. Assigning an expression to one pushes the
operation that computes it there; what it needs from elsewhere is copied first. Statements may
stand as the design notes of MXNet's engine write them (see `ampsim.dependency.CaseStudy`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from ampsim.arguments import checked
from ampsim.constant import unmasked
from ampsim.dependency.engine import DependencyEngine
from ampsim.dependency.operation import Variable
from ampsim.dependency.places import ARRAYS, Place
from ampsim.dependency.refusals import require_ended, require_name
from ampsim.errors import OptionError
from ampsim.hardware import HOST
from ampsim.ir.work import NO_WORK, Work
from ampsim.text import shown
from ampsim.user_code import place_of

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Expression:
    """An operation on arrays, before it is known where it is computed.

    Args:
        name: what it does, such as "forward".
        inputs: arrays that it reads.
        compute: gives the result from the inputs' values.
        shape: of the result.
        work: what its device is charged for.
        rows, matrix_elements, is_backward: of what it works on, as for `DependencyEngine.push`.
    """

    name: str
    inputs: tuple[Any, ...]
    compute: Callable[..., Any]
    shape: Shape
    work: Work = NO_WORK
    rows: int | None = None
    matrix_elements: int | None = None
    is_backward: bool = False

    def __add__(self, other: Any) -> Expression:
        """The sum with one more array."""
        if self.name != "sum":
            return not_possible(self, "+", other)
        return summed(*self.inputs, other)


def summed(*inputs: Array) -> Expression:
    """The sum of arrays of one shape, added from the first to the last.

    Raises:
        OptionError: their shapes differ, or there are none.
    """
    if not inputs:
        raise OptionError("summed must be given at least one array")
    first = inputs[0]
    for other in inputs:
        if not isinstance(other, Array):  # pyright: ignore[reportUnnecessaryIsInstance]  # users' call
            raise OptionError(f"inputs must be arrays at a place, such as a[0], got {shown(other)}")
        if other.known_shape != first.known_shape:
            raise OptionError(
                f"{first.name} + {other.name} must be of one shape, got {first.known_shape} and "
                f"{other.known_shape}"
            )

    def compute(*values: np.ndarray) -> Any:
        total = values[0]
        for value in values[1:]:
            total = total + value
        return total

    size = int(np.prod(first.known_shape))
    sum_bytes, sums = size * first.arrays.dtype.itemsize, len(inputs) - 1
    read_bytes = sum(one.size_bytes for one in inputs)
    # each sum but the first reads the one before, and all write theirs
    pass_bytes = read_bytes + (2 * sums - 1) * sum_bytes if sums else 0
    work = Work(sums * size, read_bytes + sum_bytes, sums, pass_bytes=pass_bytes)
    return Expression("sum", inputs, compute, first.known_shape, work)


def not_possible(one: Any, sign: str, other: Any) -> Any:
    """Refuse an expression.

    Raises:
        OptionError: always.
    """
    raise OptionError(
        f"{shown(one)} {sign} {shown(other)} is no expression of arrays; sums of arrays, and a "
        "number times an array, are"
    )


class Array:
    """Numbers at one place, and the variable that stands for them.

    Args:
        name: what records call it.
        place: the worker's index, or -1.

    Attributes:
        variable: what operations that use it read or mutate; of rows, that of the whole.
        shape, item_bytes: once something has been assigned; the bytes of one element.
        layer_input: of a weight, what its last forward step was applied to.
    """

    def __init__(self, arrays: Arrays, name: str, place: int, whole: Array | None = None) -> None:
        self.arrays, self.name, self.place = arrays, name, place
        self.whole = whole
        self.variable: Variable = (
            arrays.engine.new_variable(name) if whole is None else whole.variable
        )
        self.shape: Shape | None = None
        self.item_bytes = arrays.dtype.itemsize if whole is None else whole.item_bytes
        self.rows: slice = slice(None)
        self.layer_input: Array | None = None
        self._value: np.ndarray | None = None
        self._held_bytes = 0
        self._near: dict[tuple[int, int | None, int | None], Array] = {}

    def __getitem__(self, rows: slice) -> Array:
        """Some rows: they share numbers and variable with the whole, and can be read only."""
        if self.whole is not None or not isinstance(rows, slice) or rows.step is not None:  # pyright: ignore[reportUnnecessaryIsInstance]  # users' call
            raise OptionError(f"{self.name}: rows must be a slice start:stop, got {shown(rows)}")
        shape = self.known_shape
        part = Array(self.arrays, self.name, self.place, whole=self)
        part.rows = rows
        try:
            part.shape = (len(range(*rows.indices(shape[0]))), *shape[1:])
        except (TypeError, IndexError):
            raise OptionError(
                f"{self.name}: rows must be whole numbers start:stop of an array that has rows, "
                f"got {shown(rows)} of shape {shape}"
            ) from None
        return part

    @property
    def known_shape(self) -> Shape:
        """The shape of its numbers.

        Raises:
            OptionError: nothing has been assigned to it.
        """
        if self.shape is None:
            raise OptionError(f"{self.name} is read before anything was assigned to it")
        return self.shape

    @property
    def size_bytes(self) -> int:
        """Bytes that its numbers take in memory."""
        return int(np.prod(self.known_shape)) * self.item_bytes

    @property
    def value(self) -> Any:
        """Its numbers, as far as operations have run; None before any, or where none are kept.

        They cannot be written to: an operation assigns others.
        """
        held = self._value if self.whole is None else self.whole._value
        if held is None:
            return None
        numbers = held.view() if self.whole is None else held[self.rows]
        numbers.flags.writeable = False
        return numbers

    def numpy(self) -> np.ndarray:
        """Wait for what was pushed until now, and return a copy of the numbers.

        Raises:
            OptionError: nothing was assigned, or no numbers are computed.
            SimulationError: an operation failed on which they depend.
        """
        self.arrays.engine.wait_for(self.variable)
        if self.value is None:
            raise OptionError(f"{self.name} has no numbers; assign some, with is_numeric=True")
        return np.array(self.value)

    def assign(self, given: Expression | Array | np.ndarray) -> None:
        """Push what makes this array hold an expression's result, or a copy of another's numbers.

        Raises:
            OptionError: it is neither, or of another shape than before.
        """
        if given is self:  # as after `-=`
            return
        if isinstance(given, Array):
            given.copyto(self)
            return
        if isinstance(given, np.ndarray):
            own = np.array(unmasked(self.name, given)) if self.arrays.is_numeric else given
            if given.dtype.kind not in "biufc":
                raise OptionError(f"{self.name} must be given numbers, got {given.dtype}")
            item_bytes = None if given.dtype.kind == "f" else given.itemsize
            self._push(Expression("set", (), lambda: own, own.shape), item_bytes)
            return
        if not isinstance(given, Expression):  # pyright: ignore[reportUnnecessaryIsInstance]  # users' call
            raise OptionError(
                f"{self.name} must be given an expression, an array or numbers, got {shown(given)}"
            )
        self._push(given)

    def copyto(self, *targets: Array) -> None:
        """Push a copy of the numbers into each of these."""
        for target in targets:
            require_array(target, "targets").copyfrom(self)

    def copyfrom(self, source: Array) -> None:
        """Push a copy of another array's numbers, from the same place or over the link from there.

        Raises:
            OptionError: the source holds nothing, or is of another shape.
        """
        shape = require_array(source, "source").known_shape
        if source.place == self.place:
            work = Work(bytes=2 * source.size_bytes)
            self._push(Expression("copy", (source,), np.array, shape, work), source.item_bytes)
            return
        self._require(shape, source.item_bytes)
        self.arrays.engine.push_copy(
            partial(self._fill, np.array, (source,)),
            reads=(source.variable,),
            mutates=(self.variable,),
            source=source.place,
            target=self.place,
            size_bytes=source.size_bytes,
            name=f"{source.name} to {place_word(self.place)}",
        )

    def delete(self) -> None:
        """Push the end of this array, and of copies that were pushed for operations elsewhere.

        Memory is given back when all that use it have ended.

        Raises:
            OptionError: it is rows of another, or was deleted already.
        """
        if self.whole is not None:
            raise OptionError(f"{self.name}: rows can be read only; delete the whole array")
        self.arrays.engine.delete_variable(self.variable, self._free)
        for copied in self._near.values():
            copied.delete()
        self._near.clear()

    def __add__(self, other: Array) -> Expression:
        """The sum of two arrays."""
        return summed(self, other) if isinstance(other, Array) else not_possible(self, "+", other)  # pyright: ignore[reportUnnecessaryIsInstance]  # users' call

    def __rmul__(self, factor: float) -> Expression:
        """This array times a number."""
        if isinstance(factor, bool) or not isinstance(factor, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]  # users' call
            return not_possible(factor, "*", self)
        size, moved = int(np.prod(self.known_shape)), 2 * self.size_bytes
        work = Work(flop=size, bytes=moved, pass_bytes=moved)
        return Expression("scale", (self,), partial(np.multiply, factor), self.known_shape, work)

    def __isub__(self, change: Expression | Array) -> Array:
        """Push the subtraction of an expression, in one operation; update steps are such."""
        if isinstance(change, Array):
            moved = 2 * change.size_bytes
            work = Work(bytes=moved, pass_bytes=moved)
            change = Expression("identity", (change,), np.asarray, change.known_shape, work)
        if not isinstance(change, Expression):  # pyright: ignore[reportUnnecessaryIsInstance]  # users' call
            not_possible(self, "-=", change)
        compute, size, more = change.compute, int(np.prod(self.known_shape)), self.size_bytes
        work = change.work + Work(flop=size, bytes=more, operations=0, pass_bytes=more)

        def subtracted(own: np.ndarray, *values: np.ndarray) -> np.ndarray:
            return own - compute(*values)

        inputs = (self, *change.inputs)
        self._push(replace(change, name="update", inputs=inputs, compute=subtracted, work=work))
        return self

    def near(self, place: int) -> Array:
        """This array at another place: a copy that is pushed now, itself where it is there."""
        if place == self.place:
            return self
        key = (place, self.rows.start, self.rows.stop)
        owner = self.whole or self
        if key not in owner._near:
            owner._near[key] = Array(self.arrays, f"{self.name} at {place_word(place)}", place)
        copied = owner._near[key]
        copied.copyfrom(self)
        return copied

    def _push(self, expression: Expression, item_bytes: int | None = None) -> None:
        self._require(expression.shape, item_bytes or self.arrays.dtype.itemsize)
        near = {one: one.near(self.place) for one in dict.fromkeys(expression.inputs)}
        inputs = tuple(near[one] for one in expression.inputs)
        reads = dict.fromkeys(one.variable for one in inputs if one.variable is not self.variable)
        self.arrays.engine.push(
            partial(self._fill, expression.compute, inputs),
            reads=tuple(reads),
            mutates=(self.variable,),
            on=self.place,
            work=None if expression.work is NO_WORK else expression.work,
            name=f"{self.name} {expression.name}",
            rows=expression.rows,
            matrix_elements=expression.matrix_elements,
            is_backward=expression.is_backward,
        )

    def _require(self, shape: Shape, item_bytes: int) -> None:
        """It is whole; its shape and the bytes of its elements stay what they were.

        Raises:
            OptionError: it is not, or they would not.
        """
        if self.whole is not None:
            raise OptionError(f"{self.name}: rows can be read only; assign the whole array")
        if self.shape is not None and self.shape != shape:
            raise OptionError(
                f"{self.name} has shape {self.shape}, got {shape}; give a new name to what has "
                "another shape"
            )
        if self.shape is not None and self.item_bytes != item_bytes:
            raise OptionError(
                f"{self.name} has {self.item_bytes} bytes an element, got {item_bytes}; give a new "
                "name to what has others"
            )
        self.shape, self.item_bytes = shape, item_bytes

    def _fill(self, compute: Callable[..., Any], inputs: tuple[Array, ...]) -> None:
        """Hold the result from now on; its memory is taken when it is first there."""
        if not self._held_bytes:
            self.arrays.engine.memory(self.place).take(ARRAYS, self.size_bytes)
            self._held_bytes = self.size_bytes
        if self.arrays.is_numeric:
            try:
                given = compute(*(one.value for one in inputs))
            except ValueError as error:
                if "read-only" in str(error):
                    raise _written_to(inputs, error) from error
                raise
            require_ended(given)
            self._value = (
                None if given is None else self._checked(np.asarray(unmasked(self.name, given)))
            )

    def _checked(self, value: np.ndarray) -> np.ndarray:
        """Numbers of its shape; fractions in the type of all arrays, others as they are.

        Raises:
            OptionError: they have another shape, or take other bytes than are counted.
        """
        if value.shape != self.shape:
            raise OptionError(
                f"{self.name} has shape {self.shape}, its function gave {value.shape}"
            )
        if value.dtype.kind == "f":
            value = value.astype(self.arrays.dtype, copy=False)
        if value.itemsize != self.item_bytes:
            raise OptionError(
                f"{self.name} has {self.item_bytes} bytes an element, its operation gave "
                f"{value.dtype}; give numbers that have as many, such as x.astype(...)"
            )
        return value

    def _free(self) -> None:
        self.arrays.engine.memory(self.place).give(ARRAYS, self._held_bytes)
        self._held_bytes, self._value = 0, None

    def __repr__(self) -> str:
        """Give name and shape."""
        return f"Array({self.name!r}, shape={self.shape})"


def _written_to(inputs: Sequence[Array], error: ValueError) -> OptionError:
    """The line on a function that writes to what it reads."""
    place = place_of(error)
    return OptionError(
        f"it writes to what it reads ({', '.join(one.name for one in inputs)}); return another "
        "array instead, such as one of np.array(values)" + (f" ({place})" if place else "")
    )


def require_array(given: object, word: str) -> Array:
    """An array, as it is.

    Raises:
        OptionError: it is none; the message calls it `word`.
    """
    if not isinstance(given, Array):
        raise OptionError(f"{word} must be an array at a place, such as a[0], got {shown(given)}")
    return given


def place_word(place: int) -> str:
    """Return the word for a place in names of arrays."""
    return "cpu" if place == HOST else f"gpu{place}"


_HOST: Final = "host"
_DTYPES: Final = ("float16", "float32", "float64")


class Arrays:
    """The arrays of one engine.

    Args:
        engine: pushes their operations.
        dtype: what their elements are; other than fractions keep their own type where assigned.
        is_numeric: whether numbers are computed; otherwise operations only take time and memory.

    Attributes:
        engine, dtype, is_numeric: as given; all arrays share them.

    Raises:
        OptionError: an argument is none of these.
    """

    @checked
    def __init__(
        self, engine: DependencyEngine, *, dtype: str = "float64", is_numeric: bool = True
    ) -> None:
        if dtype not in _DTYPES:
            raise OptionError(f"dtype must be one of {', '.join(_DTYPES)}, got {shown(dtype)}")
        self.engine, self.dtype, self.is_numeric = engine, np.dtype(dtype), is_numeric

    def new(self, *names: str) -> list[Named]:
        """A name for arrays at any place, for each of these.

        Raises:
            OptionError: a name is no text of one line.
        """
        for name in names:
            require_name(name)
        return [Named(self, name) for name in names]


class Named:
    """Arrays of one name, at most one at each place."""

    __slots__ = ("_arrays", "_at", "name")

    def __init__(self, arrays: Arrays, name: str) -> None:
        self._arrays, self.name = arrays, name
        self._at: dict[int, Array] = {}

    def __getitem__(self, place: Place | slice) -> Array:
        """The array at a place; with a slice, these rows of the host's."""
        if isinstance(place, slice):
            return self[_HOST][place]
        index = self._arrays.engine.place(place)
        if index not in self._at:
            self._at[index] = Array(self._arrays, f"{self.name}[{place_word(index)}]", index)
        return self._at[index]

    def __setitem__(self, place: Place, value: Expression | Array | np.ndarray) -> None:
        """Compute an expression, or copy an array, into the array at a place."""
        self[place].assign(value)
