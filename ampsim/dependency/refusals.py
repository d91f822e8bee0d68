"""Checks of the arguments of a push; each refuses with one line."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Coroutine, Generator, Sequence
from functools import partial
from typing import Any, Final, cast

from ampsim.arguments import as_float
from ampsim.dependency.operation import Variable
from ampsim.errors import OptionError
from ampsim.text import shown

COUNT_MAX: Final = 10**18
"""Most bytes or FLOP of one operation: what a column of 64 bits adds up without care (chosen)."""

_SUSPENDS: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_REMEDY: Final = "give a plain function, and push each of its steps"


def variables_of(given: Any, word: str) -> tuple[Variable, ...]:
    """Return a list of variables as a tuple.

    Raises:
        OptionError: it is no list, or holds something else.
    """
    if isinstance(given, Variable):
        raise OptionError(
            f"{word} must be a list of variables, got {given!r}; write [{given.name}]"
        )
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise OptionError(f"{word} must be a list of variables, got {shown(given)}")
    found = cast("Sequence[object]", given)
    for index, one in enumerate(found):
        if not isinstance(one, Variable):
            raise OptionError(
                f"{word}[{index}] must be a variable of this engine (new_variable), "
                f"got {shown(one)}"
            )
    return tuple(cast("Sequence[Variable]", found))


def require_usable(engine: object, reads: Sequence[Variable], mutates: Sequence[Variable]) -> None:
    """Require that variables are this engine's, not deleted, and each there once.

    Raises:
        OptionError: one is not.
    """
    seen: dict[Variable, str] = {}
    for word, variables in (("reads", reads), ("mutates", mutates)):
        for one in variables:
            if one.engine is not engine and not one.is_deleted:
                raise OptionError(
                    f"{word}: variable {one.name!r} is of another engine; make one with this "
                    "engine's new_variable"
                )
            if one.is_deleted:
                raise OptionError(
                    f"{word}: variable {one.name!r} was deleted; push before delete_variable, or "
                    "make a new variable"
                )
            if one in seen:
                both = word != seen[one]
                where = "in reads and in mutates" if both else f"twice in {word}"
                remedy = "keep it in mutates, which may read too" if both else "keep one of them"
                raise OptionError(f"variable {one.name!r} is {where}; {remedy}")
            seen[one] = word


def require_function(function: object, *, is_optional: bool = False) -> None:
    """Require a function that runs to its end when it is called.

    Raises:
        OptionError: it is none, or a generator or coroutine, which would not have run yet.
    """
    if not callable(function):
        if is_optional and function is None:
            return
        options = "a function without arguments" + (" or None" if is_optional else "")
        raise OptionError(f"function must be {options}, got {shown(function)}")
    plain: Any = function
    while isinstance(plain, partial):
        plain = cast("Any", plain).func
    code = getattr(plain, "__code__", None) or getattr(type(plain).__call__, "__code__", None)
    if code is not None and code.co_flags & _SUSPENDS:
        raise OptionError(
            f"function must run to its end when it is called, got {shown(plain)}, which is a "
            f"generator or coroutine; {_REMEDY}"
        )


def require_ended(returned: object) -> None:
    """Require that a function returned no generator or coroutine, of which nothing has run yet.

    Raises:
        OptionError: it is.
    """
    if isinstance(returned, Generator | Coroutine | AsyncGenerator):
        if not isinstance(returned, AsyncGenerator):
            cast("Any", returned).close()  # else Python warns that nobody awaited it
        kind = type(cast("object", returned)).__name__
        raise OptionError(f"it returned a {kind}, of which nothing has run; {_REMEDY}")


def require_name(name: object) -> None:
    """Require a name that is text which a line can hold.

    Raises:
        OptionError: it is not.
    """
    is_text = isinstance(name, str) and bool(name.strip()) and name.isprintable()
    if name is not None and not is_text:
        raise OptionError(f"name must be a text of one line or None, got {shown(name)}")


def require_priority(priority: object) -> None:
    """Require a priority that is a finite number.

    Raises:
        OptionError: it is not.
    """
    if not abs(as_float(priority)) < float("inf"):
        raise OptionError(f"priority must be a finite number, got {shown(priority)}")


def size_of(size_bytes: object) -> int:
    """Return a count of bytes as an int.

    Raises:
        OptionError: it is none.
    """
    value = as_float(size_bytes)
    if not (0 <= value <= COUNT_MAX and value == int(value)):
        raise OptionError(
            f"size_bytes must be a whole number from 0 to {COUNT_MAX:g}, got {shown(size_bytes)}"
        )
    return int(value)
