"""Load a model: a Python file with `Config` and `build(config)`, shipped or the user's own."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from ampsim.assets import locate, shipped
from ampsim.errors import AmpsimError, FileFormatError, OptionError, UnknownNameError, one_of
from ampsim.files import sha256_of
from ampsim.study.model import Model


def load_model(name_or_path: str | os.PathLike[str], /, **overrides: Any) -> Model:
    """Build the model of a file.

    Args:
        name_or_path: a shipped model's name, or the path of a ``.py`` file. The file is executed:
            load only files that you would run.
        overrides: fields of the file's `Config`; strings are read as the field's type.

    Returns:
        The model, with its parameters as a run with seed 0 draws them.

    Raises:
        UnknownNameError: no such model, file or field.
        OptionError: a field's value does not fit.
        FileFormatError: the file cannot be executed, or lacks `Config` or `build`.
        GraphError: the graph breaks a rule of the representation.

    Example:
        >>> import ampsim
        >>> model = ampsim.load_model("rnn", hidden=32, replicas=2)
        >>> model.parameters()["linear-1.0.weight"].shape
        (64, 32)
    """
    path = locate("models", name_or_path)
    module = _execute(path, str(name_or_path))
    config = _configure(module, path, overrides)
    try:
        model = module.build(config)
        if isinstance(model, Model):
            model.graph()
    except AmpsimError:
        raise
    except Exception as error:
        raise FileFormatError(f"{path}: build(config) failed{where(error, path)}") from error
    if not isinstance(model, Model):
        raise FileFormatError(
            f"{path}: build(config) must return an ampsim.Model, got {type(model).__name__}"
        )
    origin = {"file": path.name, "sha256": sha256_of(path)}
    return dataclasses.replace(model, origin=origin)


def option_names(name_or_path: str | os.PathLike[str]) -> list[str]:
    """Return the names of a model's options, before it is built.

    Raises:
        UnknownNameError: no such model or file.
        FileFormatError: the file cannot be executed, or lacks `Config` or `build`.
    """
    module = _execute(locate("models", name_or_path), str(name_or_path))
    return [field.name for field in dataclasses.fields(module.Config)]


def _execute(path: Path, shown: str) -> ModuleType:
    """Run the file as a module of its own, under a name that no other file has."""
    name = f"ampsim_model_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileFormatError(
            f"{shown}: expected a Python file (.py) with Config and build(config)"
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except AmpsimError:
        raise
    except Exception as error:
        raise FileFormatError(f"{path}: cannot be executed{where(error, path)}") from error
    for needed in ("Config", "build"):
        if not callable(getattr(module, needed, None)):
            raise FileFormatError(
                f"{path}: expected Config and build(config), got no {needed}; "
                f"a file that works: {_example()}"
            )
    if not dataclasses.is_dataclass(module.Config):
        got = type(module.Config).__name__
        raise FileFormatError(
            f"{path}: Config must be a dataclass, got a {got}; put @dataclass(frozen=True) on it"
        )
    return module


def _example() -> Path:
    return shipped("models") / "rnn.py"


def where(error: Exception, path: Path) -> str:
    """Name the last line of the user's own file on the way to the error, and the error."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f": line {error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    line = f": line {lines[-1]}" if lines else ""
    return f"{line}: {type(error).__name__}: {error}"


def _configure(module: ModuleType, path: Path, overrides: dict[str, Any]) -> Any:
    """Make the file's `Config` with `overrides`, checked against the fields' types."""
    fields = [field.name for field in dataclasses.fields(module.Config)]
    for name in overrides:
        if name not in fields:
            raise UnknownNameError(f"{path.stem}: {one_of('field', name, fields)}")
    try:
        get_type_hints(module.Config)  # names a type that is nowhere
        return TypeAdapter(module.Config).validate_python(overrides)
    except (PydanticUserError, NameError) as error:
        raise FileFormatError(
            f"{path}: Config must have fields of plain types such as int, float, bool or str: "
            f"{str(error).splitlines()[0]}"
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "Config"
        raise OptionError(
            f"{path.stem}: field {field!r}: {_lower_first(first['msg'])}, got {first['input']!r}"
        ) from None


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
