"""What a model file says about itself."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ampsim.errors import FileFormatError
from ampsim.paths import read_regular

_ARGUMENT = re.compile(r"^ {4}(\w+): +(.*(?:\n {6,}.*)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ModelOption:
    """One field of a model's `Config`: name, type, default and what its docstring says of it."""

    name: str
    type: str
    value: Any
    description: str


def docstring_of(path: Path) -> str:
    """Return the docstring of a Python file, which is not executed; empty where it has none.

    Raises:
        FileFormatError: it is no Python.
    """
    try:
        tree = ast.parse(read_regular(path), filename=str(path))
    except (SyntaxError, ValueError) as error:
        raise FileFormatError(f"{path}: is not valid Python: {error}") from error
    return ast.get_docstring(tree) or ""


def options_of(config: Any) -> list[ModelOption]:
    """Return the fields of a model's `Config` with their values, in order."""
    if config is None:
        return []
    kind: Any = config.__class__
    found: dict[str, str] = dict(_ARGUMENT.findall(inspect.getdoc(kind) or ""))
    return [
        ModelOption(
            field.name,
            field.type if isinstance(field.type, str) else field.type.__name__,
            getattr(config, field.name),
            " ".join(found.get(field.name, "").split()),
        )
        for field in dataclasses.fields(kind)
    ]
