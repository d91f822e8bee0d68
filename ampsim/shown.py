"""Values that came, shown in a few words within a message."""

from __future__ import annotations

import inspect
import reprlib
from numbers import Real
from typing import Any, Final, cast

_TEXT_MAX: Final = 60  # chosen: a message stays one line


def shown(value: Any) -> str:
    """A value in a few words.

    >>> shown("x"), shown(int), shown(len)
    ("'x'", 'the class int', 'the function len')
    """
    if isinstance(value, type):
        return f"the class {getattr(cast('object', value), '__name__', '?')}"
    if inspect.isroutine(value):
        return f"the function {getattr(value, '__name__', '?')}"
    if value is None or isinstance(value, str | bytes | int | float | complex):
        return short(value)
    if isinstance(value, Real) or hasattr(value, "dtype"):
        return f"{type(value).__name__} {short(value)}"
    text, kind = short(value), type(value).__name__
    return text if text.startswith(kind) else f"{text} ({kind})"


def short(value: Any) -> str:
    """A value's repr, cut where it is long; never an exception."""
    try:
        text = " ".join(reprlib.repr(value).split())
    except Exception:  # a user's own __repr__
        return "what cannot be shown"
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."
