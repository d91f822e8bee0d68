"""Exceptions of code that a user wrote: told in one line, with the user's own file and line.

A model's functions, its data set and its nodes are called from inside a run. What they raise is
theirs, whatever it is: an OSError of theirs is no fault of our output, a SystemExit no end of ours.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import os
import site
import sys
import sysconfig
import traceback
from collections.abc import Generator, Iterable, Iterator
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, resolve_name
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple, cast

import numpy as np

from ampsim.errors import AmpsimError, SimulationError

TEXT_MAX: Final = 400
"""Characters that are told of an exception's text at most (chosen: a few lines of a terminal)."""

OURS_TO_PASS: Final = (AmpsimError, KeyboardInterrupt)
"""What is never told as the user's: errors that are told already, and Ctrl-C."""

_PACKAGE: Final = Path(__file__).resolve().parent


class Place(NamedTuple):
    """A line of the user's own."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


def told(error: BaseException) -> str:
    """Kind and text of an exception on one line, and the user's line that it came from.

    >>> told(ValueError("no such  word"))
    'ValueError: no such word'
    """
    kind, text = type(error).__name__, text_of(error)
    place = place_of(error)
    return f"{kind}{': ' if text else ''}{text}" + (f" ({place})" if place else "")


def text_of(error: BaseException) -> str:
    """Text of an exception on one line, of a length that can be read."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # its own __str__ is the user's code too
        return "which cannot be shown"
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}..."


def place_of(error: BaseException) -> Place | None:
    """The innermost line of the user's own on the way to an exception; None where there is none.

    The user's own is what belongs neither to ampsim nor to an installed library.
    """
    if isinstance(error, SyntaxError) and error.filename and is_own(error.filename):
        return Place(error.filename, error.lineno or 0)
    own = [
        Place(frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if is_own(frame.f_code.co_filename)
    ]
    if own:
        return own[-1]
    return place_of(error.__cause__) if error.__cause__ is not None else None


def is_own(file: str) -> bool:
    """Tell whether a source file is the user's; model files are, those that are shipped too."""
    if file.startswith("<"):
        return file.startswith(("<stdin", "<ipython-input"))
    path = Path(os.path.realpath(file))
    if path.is_relative_to(_PACKAGE):
        return path.is_relative_to(_PACKAGE / "_shipped")
    return not any(path.is_relative_to(folder) for folder in _libraries())


_PLAIN: Final = (
    np.generic, np.dtype, np.ufunc, int, float, complex, str, bytes, slice, range, type(None),
)  # fmt: skip
"""What its own text tells from all others; of a function of NumPy nothing else does."""


def add_value(hasher: Any, value: Any, seen: dict[int, Any]) -> None:
    """Hash a value with all that it holds; an object or list that was `seen`, once."""
    if isinstance(value, np.ndarray):
        array = cast("np.ndarray[Any, Any]", value)
        hasher.update(f"{array.dtype.str}{array.shape!r}".encode())
        if not array.dtype.hasobject:
            hasher.update(np.ascontiguousarray(array).data)
            return
        value = array.tolist()
    if isinstance(value, _PLAIN):
        hasher.update(f"{value!r}\0".encode())
        return
    if not isinstance(value, tuple):  # equal ones may be one, or not
        if id(value) in seen:
            return
        seen[id(value)] = value  # which is held, so that no other gets its number
    hasher.update(f"{type(cast('object', value)).__qualname__}(".encode())
    is_list = isinstance(value, list | tuple)
    for part in cast("Iterable[Any]", value) if is_list else _parts(value):
        add_value(hasher, part, seen)
    hasher.update(b")")


def _parts(value: Any) -> Iterable[Any]:
    """Take a value apart: a function into what it does, an object into what would be pickled."""
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value).items()
    if isinstance(value, set | frozenset):
        return sorted(cast("Iterable[Any]", value), key=repr)
    if isinstance(value, type):
        return (value.__qualname__,)
    if isinstance(value, CodeType):
        return value.co_code, value.co_consts, value.co_names
    if isinstance(value, FunctionType):
        return value.__code__, value.__defaults__, value.__kwdefaults__, *_read_by(value)
    try:
        reduced: Any = value.__reduce_ex__(4)
    except Exception:  # a user's own, such as of a lock: its type is all that is known
        return ()
    if isinstance(reduced, str):
        return (reduced,)
    return [list(cast("Any", one)) if isinstance(one, Iterator) else one for one in reduced[1:]]


def _read_by(function: FunctionType) -> Iterator[Any]:
    """Find what a function reads: its closure, and constants and functions of its module."""
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # nothing is in it yet
            yield cell.cell_contents
    for name in function.__code__.co_names:
        found = function.__globals__.get(name)
        if isinstance(found, _PLAIN) or getattr(found, "__module__", "") == function.__module__:
            yield found


def own_code(kind: type) -> Iterator[Any]:
    """Methods and values of a class, and of those that it is of, that are not ampsim's."""
    for one in kind.__mro__:
        if one.__module__.partition(".")[0] not in {_PACKAGE.name, *sys.stdlib_module_names}:
            for name, value in vars(one).items():
                value = getattr(value, "fget", getattr(value, "__func__", value))
                value = getattr(value, "func", value)  # of a cached property
                if isinstance(value, FunctionType) or not name.startswith("_"):
                    yield value


def digest_of_value(value: object, *of_code: Any) -> str:
    """SHA-256 over a value with all that it holds, and over the own code of others' classes.

    These are also what is inner to them; of their own fields nothing counts.
    """
    hasher, libraries = hashlib.sha256(), (_PACKAGE.name, "builtins")
    kinds: list[type] = [
        type(each) for one in of_code for each in (one, getattr(one, "inner", None))
    ]
    own = [one for one in kinds if one.__module__.partition(".")[0] not in libraries]
    add_value(hasher, [value, *(list(own_code(one)) for one in own)], {})
    return hasher.hexdigest()


_READ: Final[dict[int, tuple[ModuleSpec, bytes]]] = {}
"""What modules said when they were first looked at; one that is loaded again has another spec."""


def digest_of_imports(source: bytes) -> str:
    """SHA-256 over the user's own modules that a source imports, and these; empty without any."""
    found, waiting = dict[str, bytes](), [(source, "")]
    while waiting:
        for name in _imported(*waiting.pop()):
            above = name.rpartition(".")[0]
            if name in found or (above and above not in found):
                continue
            # it may be the name of a function, or a module that is nowhere and not needed
            with contextlib.suppress(Exception):
                spec = _own_spec(name)
                _spec, found[name] = _READ.setdefault(id(spec), (spec, _source_of(spec)))
                waiting.append((found[name], spec.parent or ""))
    hasher = hashlib.sha256()
    for name, content in sorted(found.items()):
        hasher.update(f"{name} {len(content)} ".encode() + content)
    return hasher.hexdigest() if found else ""


def _imported(source: bytes, package: str) -> Iterator[str]:
    """The names that a source imports as modules, or perhaps so, those above them among them."""
    with contextlib.suppress(SyntaxError, ValueError):  # of a module in C
        for node in ast.walk(ast.parse(source)):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                base = resolve_name("." * node.level + (node.module or ""), package)
                names = [base, *(f"{base}.{one.name}" for one in node.names)]
            for name in names:
                parts = name.split(".")
                yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _own_spec(name: str) -> ModuleSpec:
    """Find a module of the user's own, of which what it is in was found; else a LookupError."""
    if name in sys.stdlib_module_names or name == _PACKAGE.name:
        raise LookupError(name)
    spec = find_spec(name)
    if spec is None or not all(
        map(is_own, spec.submodule_search_locations or [spec.origin or "<"])
    ):
        raise LookupError(name)
    return spec


def _source_of(spec: ModuleSpec) -> bytes:
    return Path(spec.origin).read_bytes() if spec.has_location and spec.origin else b""


@contextlib.contextmanager
def user_code(what: str, kind: type[AmpsimError] = SimulationError) -> Generator[None]:
    """Tell what the user's code in this block raises as an error of ampsim.

    Args:
        what: the sentence that the exception ends: "make_data of model rnn failed".
        kind: class of the error.

    Raises:
        AmpsimError: of `kind`; one that the code raised itself passes, and so does Ctrl-C.
    """
    try:
        yield
    except OURS_TO_PASS:
        raise
    except BaseException as error:
        raise kind(f"{what}: {told(error)}") from error


@cache
def _libraries() -> tuple[Path, ...]:
    known = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    known += [*site.getsitepackages(), site.getusersitepackages()]
    return tuple(Path(os.path.realpath(one)) for one in known)
