"""Arrays with a place and a tag: programs on several devices, written as if nothing were parallel.

``weight[gpu0]`` is the array of that name at that place. Assigning an expression to one pushes the
operation that computes it there; what it needs from elsewhere is copied first. Statements may
stand as the design notes of MXNet's engine write them (see `ampsim.dependency.CaseStudy`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ampsim.dependency.array import Array, Context, place_word
from ampsim.dependency.engine import DependencyEngine
from ampsim.dependency.expression import Expression
from ampsim.dependency.places import Place
from ampsim.errors import OptionError
from ampsim.shown import shown

_HOST: Final = "host"
_DTYPES: Final = ("float16", "float32", "float64")


class Arrays:
    """The arrays of one engine.

    Args:
        engine: pushes their operations.
        dtype: what their elements are.
        is_numeric: whether numbers are computed; otherwise operations only take time and memory.

    Raises:
        OptionError: an argument is none of these.
    """

    def __init__(
        self, engine: DependencyEngine, *, dtype: str = "float64", is_numeric: bool = True
    ) -> None:
        if not isinstance(engine, DependencyEngine):  # pyright: ignore[reportUnnecessaryIsInstance]  # users' call
            raise OptionError(f"engine must be a DependencyEngine, got {shown(engine)}")
        self._context = Context(engine, np.dtype(_number_type(dtype)), is_numeric)

    def new(self, *names: str) -> list[Named]:
        """A name for arrays at any place, for each of these."""
        return [Named(self._context, name) for name in names]


class Named:
    """Arrays of one name, at most one at each place.

    Args:
        context: what they have in common with others.
        name: what records call them, with their place.
    """

    __slots__ = ("_at", "_context", "name")

    def __init__(self, context: Context, name: str) -> None:
        self._context, self.name = context, name
        self._at: dict[int, Array] = {}

    def __getitem__(self, place: Place | slice) -> Array:
        """The array at a place; with a slice, these rows of the host's."""
        if isinstance(place, slice):
            return self[_HOST][place]
        index = self._context.engine.place(place)
        if index not in self._at:
            self._at[index] = Array(self._context, f"{self.name}[{place_word(index)}]", index)
        return self._at[index]

    def __setitem__(self, place: Place, value: Expression | Array | np.ndarray) -> None:
        """Compute an expression, or copy an array, into the array at a place."""
        self[place].assign(value)


def _number_type(dtype: object) -> str:
    """The name of a type of numbers.

    Raises:
        OptionError: it is none.
    """
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise OptionError(f"dtype must be one of {', '.join(_DTYPES)}, got {shown(dtype)}")
    return dtype
