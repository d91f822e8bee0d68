"""Arguments of public functions, checked against their declared types: one line for each mistake.

What a function declares is what it accepts; nothing is checked twice by hand. NumPy's scalars are
taken for Python's numbers, and become them, so that manifests and JSON can hold them. Truth values
are no numbers, and numbers are finite.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from numbers import Integral, Real
from typing import (
    Any,
    Final,
    ForwardRef,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)

from annotated_types import Ge, Gt, Le, Lt
from typing_extensions import get_protocol_members, is_protocol

from ampsim.errors import OptionError, one_of
from ampsim.text import shown

P = ParamSpec("P")
R = TypeVar("R")

_WORDS: Final[dict[Any, str]] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    bytes: "bytes",
    dict: "a dictionary",
    type(None): "None",
    Any: "anything",
}
_UNION: Final = (Union, types.UnionType)
_NUMBERS: Final = (float, int, Real)  # an abstract class is asked last: it takes far longer


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function refuse arguments that are not of their declared types.

    Raises:
        OptionError: an argument is none of what its annotation names.

    >>> @checked
    ... def twice(count: int) -> int:
    ...     return 2 * count
    >>> twice(3)
    6
    >>> twice("3")
    Traceback (most recent call last):
    ampsim.errors.OptionError: count must be a whole number, got '3'
    """
    signature = inspect.signature(function)
    variadic = {one.name: one.kind for one in signature.parameters.values()}

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise OptionError(f"{function.__qualname__}: {error}") from None
        for name, value in bound.arguments.items():
            hint = _hints(function).get(name, Any)
            if variadic[name] is inspect.Parameter.VAR_POSITIONAL:
                given: Any = tuple(fitting(name, one, hint) for one in value)
            elif variadic[name] is inspect.Parameter.VAR_KEYWORD:
                given = {key: fitting(key, one, hint) for key, one in value.items()}
            else:
                given = fitting(name, value, hint)
            bound.arguments[name] = given
        return function(*bound.args, **bound.kwargs)

    return wrapped


def check_fields(record: Any) -> None:
    """Check a dataclass's fields in its `__post_init__`, and make them Python's own numbers.

    Raises:
        OptionError: a field is not of its declared type.
    """
    hints = _hints(cast("object", type(record)))
    for field in fields(record):
        value: Any = getattr(record, field.name)
        fitted = fitting(field.name, value, hints.get(field.name, Any))
        if fitted is not value:
            object.__setattr__(record, field.name, fitted)


def fitting(name: str, value: Any, hint: Any) -> Any:
    """Return `value` as what `hint` declares.

    Raises:
        OptionError: it is no such thing; the message says what was expected and what came.
    """
    fitted = _fitted(name, value, hint)
    if fitted is _MISFIT:
        raise OptionError(_refusal(name, value, _options(hint)))
    return fitted


def as_float(value: object) -> float:
    """`value` as a Python float; NaN where it is no number, or one that no float holds.

    >>> as_float(4), as_float(True), as_float("4"), as_float(10**400)
    (4.0, nan, nan, nan)
    """
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _refusal(name: str, value: Any, options: Sequence[Any]) -> str:
    """The line for a value that is none of `options`."""
    names = [one for option in options if get_origin(option) is Literal for one in get_args(option)]
    if names and isinstance(value, str):
        return one_of(name, value, names)
    words = [words for one in options if (words := _words_of(one)) != "None"]
    if isinstance(value, Real):  # nobody who gave a number meant a mapping
        words = [one for one in words if "number" in one and "mapping" not in one] or words
        if not isinstance(value, Integral) and not math.isfinite(value):
            words = [one.replace("a number", "a finite number") for one in words]
    return f"{name} must be {_joined(words)}, got {shown(value)}"


_MISFIT: Final[Any] = object()


@functools.cache
def _hints(owner: Any) -> dict[str, Any]:
    """Declared types by name, looked up when they are first needed: some are imported late."""
    owners = reversed(owner.__mro__) if isinstance(owner, type) else [owner]
    found: dict[str, Any] = {}
    for one in owners:
        try:
            found |= inspect.get_annotations(one, eval_str=True)
        except (
            NameError,
            TypeError,
            AttributeError,
            SyntaxError,
        ):  # a user's own; the user's to check
            found |= inspect.get_annotations(one)
    return found


def _options(hint: Any) -> list[Any]:
    """The parts of a union, each for itself."""
    if get_origin(hint) in _UNION:
        return [option for one in get_args(hint) for option in _options(one)]
    return [hint]


def _fitted(name: str, value: Any, hint: Any) -> Any:
    """The value as `hint` has it, or `_MISFIT`."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in _UNION:
        fits = (_fitted(name, value, option) for option in _options(hint))
        return next((one for one in fits if one is not _MISFIT), _MISFIT)
    if hint is Any or hint is object or isinstance(hint, TypeVar | str | ForwardRef):
        return value
    if hasattr(hint, "__metadata__"):
        return _within(name, value, hint)
    if origin is Literal:
        return value if any(value is one or _equal(value, one) for one in args) else _MISFIT
    if origin is not None:
        return _fitted_generic(name, value, origin, args)
    if hint is None or hint is type(None):
        return None if value is None else _MISFIT
    if hint in (int, float, bool):
        return _number(value, hint)
    return _instance(value, hint)


def _instance(value: Any, hint: Any) -> Any:
    if hint is str and type(value) is not str and isinstance(value, str):
        return str.__str__(value)  # NumPy's text, too
    if is_protocol(hint) and not isinstance(value, type):
        return value if all(hasattr(value, one) for one in get_protocol_members(hint)) else _MISFIT
    if is_protocol(hint):
        return _MISFIT
    return value if isinstance(value, hint) else _MISFIT


def _equal(value: Any, one: Any) -> bool:
    return isinstance(value, type(one)) and not isinstance(value, bool) and bool(value == one)


def _number(value: Any, hint: Any) -> Any:
    """A Python number of a Python or NumPy scalar; NaN and infinity are none."""
    is_flag = type(value).__name__ in ("bool", "bool_") and hasattr(value, "__bool__")
    if hint is bool:
        return bool(value) if is_flag else _MISFIT
    if is_flag:
        return _MISFIT
    try:
        if isinstance(value, Integral):
            whole = operator.index(value)
            return whole if hint is int or math.isfinite(float(whole)) else _MISFIT
        if hint is float and isinstance(value, Real) and math.isfinite(value):
            return float(value)
    except (TypeError, ValueError, ArithmeticError):
        return _MISFIT
    return _MISFIT


def _within(name: str, value: Any, hint: Any) -> Any:
    """A value of an annotated type, within the bounds that its annotation names."""
    kind, *notes = get_args(hint)
    fitted = _fitted(name, value, kind)
    if fitted is _MISFIT:
        return _MISFIT
    for note in notes:
        if isinstance(note, Ge) and fitted < note.ge:
            return _MISFIT
        if isinstance(note, Gt) and fitted <= note.gt:
            return _MISFIT
        if isinstance(note, Le) and fitted > note.le:
            raise OptionError(f"{name} must be at most {note.le:,}, got {shown(value)}")
        if isinstance(note, Lt) and fitted >= note.lt:
            raise OptionError(f"{name} must be below {note.lt:,}, got {shown(value)}")
    return fitted


def _fitted_generic(name: str, value: Any, origin: Any, args: tuple[Any, ...]) -> Any:
    """A list, tuple or mapping, item by item; of other generics, such as functions, the class."""
    if origin is type:
        return value if isinstance(value, type) else _MISFIT
    if origin is Callable:
        return value if callable(value) else _MISFIT
    if origin is Sequence and getattr(value, "ndim", 0) == 1:
        value = value.tolist()  # an array, or a column of a table
    if isinstance(value, str | bytes) or not isinstance(value, origin):
        return _MISFIT
    if origin is tuple and Ellipsis not in args:
        return _pair(name, value, args)
    if issubclass(origin, Mapping):
        return {
            fitting(f"{name}: a key", key, args[0]): fitting(f"{name} of {key}", one, args[1])
            for key, one in cast("Mapping[Any, Any]", value).items()
        }
    if issubclass(origin, Sequence):
        items = [
            fitting(f"{name}[{place}]", one, args[0])
            for place, one in enumerate(cast("Sequence[Any]", value))
        ]
        return tuple(items) if isinstance(value, tuple) else items
    return value


def _pair(name: str, value: tuple[Any, ...], args: tuple[Any, ...]) -> Any:
    if len(value) != len(args):
        return _MISFIT
    parts = enumerate(zip(value, args, strict=True))
    return tuple(fitting(f"{name}[{place}]", one, hint) for place, (one, hint) in parts)


def _words_of(hint: Any) -> str:
    origin, args = get_origin(hint), get_args(hint)
    if hint in _WORDS:
        return _WORDS[hint]
    if hasattr(hint, "__metadata__"):
        if isinstance(args[1], str):
            return args[1]
        least = [f" >= {note.ge:,}" for note in args[1:] if isinstance(note, Ge)]
        above = [f" above {note.gt:,}" for note in args[1:] if isinstance(note, Gt)]
        return _words_of(args[0]) + "".join(least + above)
    if origin is Literal:
        return _joined([repr(one) for one in args])
    if origin is Callable:
        return "a function"
    if origin is tuple and Ellipsis not in args:
        return f"({', '.join(_words_of(one) for one in args)})"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"a mapping to {_joined([_words_of(one) for one in _options(args[1])])}"
    if isinstance(origin, type) and issubclass(origin, Collection):
        return f"a list of {_joined([_words_of(one) for one in _options(args[0])])}"
    kind = cast("object", hint if origin is None else origin)
    name = getattr(kind, "__name__", str(kind))
    return "a path" if name == "PathLike" else f"{'an' if name[:1] in 'AEIO' else 'a'} {name}"


def _joined(words: Sequence[str]) -> str:
    """Words with "or" before the last, each once."""
    *first, last = dict.fromkeys(words)
    return f"{', '.join(first)} or {last}" if first else last
