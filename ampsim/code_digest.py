"""Digests of values and of the user's code behind them, by which what is kept is found again."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, resolve_name
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final, cast

import numpy as np

from ampsim.user_code import PACKAGE, is_own

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
        if one.__module__.partition(".")[0] not in {PACKAGE.name, *sys.stdlib_module_names}:
            for name, value in vars(one).items():
                value = getattr(value, "fget", getattr(value, "__func__", value))
                value = getattr(value, "func", value)  # of a cached property
                if isinstance(value, FunctionType) or not name.startswith("_"):
                    yield value


def digest_of_value(value: object, *of_code: Any) -> str:
    """SHA-256 over a value with all that it holds, and over the own code of others' classes.

    These are also what is inner to them; of their own fields nothing counts.
    """
    hasher, libraries = hashlib.sha256(), (PACKAGE.name, "builtins")
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
    if name in sys.stdlib_module_names or name == PACKAGE.name:
        raise LookupError(name)
    spec = find_spec(name)
    if spec is None or not all(
        map(is_own, spec.submodule_search_locations or [spec.origin or "<"])
    ):
        raise LookupError(name)
    return spec


def _source_of(spec: ModuleSpec) -> bytes:
    return Path(spec.origin).read_bytes() if spec.has_location and spec.origin else b""
