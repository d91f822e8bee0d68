"""`ampsim import`: a model file of a PyTorch module."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

import ampsim
from ampsim.cli.console import Code, answer, hold, object_of
from ampsim.errors import FileFormatError, OptionError, UnknownNameError, one_of
from ampsim.files import expanded, prepared_file


def import_(source: str, *, out: Path, json: str | None = None) -> Code:
    """Write a model file of a PyTorch module, which is yours to edit and needs no PyTorch.

    The file named is Python and is executed: name only files that you would run. The model file
    makes the same graph; data and first weights go to FILE.npz beside it. The object of --json:
    ampsim, file, arrays, model, nodes, parameters, lines.
    """
    from ampsim.cli.models import parameter_count
    from ampsim.interop import write_model_file

    if out.suffix != ".py":
        raise OptionError(f"--out must be a Python file (.py), got {str(out)!r}")
    path, name = _parted(source)
    if os.path.realpath(expanded(str(out))) == os.path.realpath(path):
        raise OptionError(f"--out {out} is the file to import from; name another")
    hold(prepared_file(out))
    model = _made(path, name, source)
    lines, arrays = write_model_file(model, expanded(str(out)), source)
    graph = model.graph()
    row: dict[str, Any] = {"file": str(out), "arrays": str(arrays), "model": model.name}
    row |= {"nodes": len(graph.nodes), "parameters": parameter_count(graph), "lines": lines}
    said = (
        f"wrote {out}, {lines} lines: model {model.name}, {row['nodes']} nodes, "
        f"{row['parameters']:,} parameters; data and first weights are in {arrays.name}"
    )
    answer(json, lambda: object_of(**row), lambda: said)
    return Code.FINE


def _parted(source: str) -> tuple[Path, str]:
    """The file, and the name in it.

    Raises:
        OptionError: there is no name.
        UnknownNameError: there is no such file.
    """
    file, colon, name = source.rpartition(":")
    if not colon or not file or not name.isidentifier():
        raise OptionError(
            f"what to import must be FILE.py:NAME, got {source!r}; for example my_net.py:make"
        )
    path = expanded(file)
    if not os.path.isfile(path):
        raise UnknownNameError(f"{file}: no such file; what to import must be FILE.py:NAME")
    return path, name


def _made(path: Path, name: str, source: str) -> Any:
    """Call the name in the file, which must give a model.

    Raises:
        FileFormatError: there is no such name, or it gives something else.
    """
    from ampsim.study.loading import execute
    from ampsim.user_code import user_code

    module = execute(path, str(path), f"a function {name}")
    if not hasattr(module, name):
        known = [one for one, value in vars(module).items() if callable(value) and one[0] != "_"]
        raise UnknownNameError(f"{path}: {one_of('function', name, known)}")
    made: Any = getattr(module, name)
    is_module = hasattr(made, "forward") and not inspect.isclass(made)
    if callable(made) and not (is_module or isinstance(made, ampsim.Model)):
        with user_code(f"{source} failed", FileFormatError):
            made = made()
    if not isinstance(made, ampsim.Model):
        raise FileFormatError(
            f"{source} must be a function that returns ampsim.from_torch(module, …), got "
            f"{type(made).__name__}; write one that says its examples, loss and data"
        )
    return made
