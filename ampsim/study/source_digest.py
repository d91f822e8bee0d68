"""A hash of what ampsim's code does, not of how it is written."""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path
from typing import Final, cast

WITHOUT_EFFECT: Final = ("cli", "report", "_shipped")
"""Parts that show numbers and decide none; shipped models have hashes of their own."""

_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_UNSAID: Final = {"ctx", "kind", "type_comment", "type_ignores", "type_params"}


@cache
def source_digest() -> str:
    """SHA-256 over the code that decides numbers: all of the package but `WITHOUT_EFFECT`.

    Comments, docstrings and layout do not count, so that a report need not be made again when a
    sentence was put better.
    """
    root = Path(__file__).parents[1]
    hasher = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        if place.parts[0] not in WITHOUT_EFFECT:
            hasher.update(f"{place.as_posix()}\0{meaning_of(path.read_text('utf-8'))}\0".encode())
    return hasher.hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 over what one file of Python says, of which comments are no part."""
    return hashlib.sha256(meaning_of(path.read_text("utf-8")).encode()).hexdigest()


def meaning_of(source: str) -> str:
    r"""Python source without comments, docstrings and layout, the same under every Python.

    >>> meaning_of("x = 1  # one") == meaning_of('"A number."\nx = (1)')
    True
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return _told(tree)


def _told(value: object) -> str:
    """A node and what is below it, without fields that are empty or known to some Pythons only."""
    if isinstance(value, list):
        return f"[{','.join(_told(one) for one in cast('list[object]', value))}]"
    if not isinstance(value, ast.AST):
        return repr(value)
    fields = [
        f"{name}={_told(one)}"
        for name, one in ast.iter_fields(value)
        if name not in _UNSAID and one is not None and one != []
    ]
    return f"{type(value).__name__}({','.join(fields)})"
