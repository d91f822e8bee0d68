"""A model file of an imported module: text that its owner edits, with arrays in a file beside it.

The text makes the graph with the same calls as the import did, so that PyTorch is not needed any
more. The arrays, in NumPy's own format without pickled objects, are data and first weights.
"""

from __future__ import annotations

import builtins
import keyword
import os
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from ampsim.data import ArrayDataset
from ampsim.errors import OptionError
from ampsim.files import replacing, sha256_of, write_text
from ampsim.interop.imported_model import OPTIONS, ImportedGraph
from ampsim.interop.loops import LoopSteps
from ampsim.interop.plan import GraphPlan, Ref, Spec
from ampsim.interop.training import BatchList, Method
from ampsim.study import Model

WIDTH: Final = 100  # characters of a line

TOLD: Final = ("dtype", "metric", *OPTIONS)
"""Fields of a model that are written, where they are not as usual."""

TEXT: Final = """\"\"\"{name}, imported from {source}; the file is yours to edit.

First weights and data are in {arrays}.
\"\"\"

from dataclasses import dataclass

import ampsim
from ampsim import interop, nodes
from ampsim.ir import Graph

SHA256 = {digest}
HELD = interop.held_arrays(__file__, SHA256)


@dataclass(frozen=True)
class Config:
    rate: float = {rate}{batch}


def make_graph():
    graph = Graph({title})
{calls}
    return graph


def pump(instance, batch):
{pump}


def build(config):
    splits = [interop.split_of(HELD, name){first} for name in ("train", "valid")]
    data = {kind}(*splits{more})
{model}
    first = {{name[7:]: HELD[name] for name in HELD if name.startswith("weight/")}}
    return model.set_parameters(first)
"""


def write_model_file(model: Model, path: Path, source: str) -> tuple[int, Path]:
    """Write a model that `from_torch` made as a file that `load_model` takes.

    Args:
        model: from `from_torch`.
        path: of the text, ``NAME.py``; arrays go to ``NAME.npz``.
        source: what it was imported from, such as "my_net.py:make".

    Returns:
        How many lines the text has, and the path of the arrays.

    Raises:
        OptionError: the model came from elsewhere, its optimizer is none of PyTorch's, it or data
            were replaced since, or NAME.npz is another's file.
        OutputError: a file cannot be written.
    """
    made = model.make_graph
    if model.is_program_only:
        raise OptionError(
            f"{source}: a file can be written of a graph of messages alone, and torch.cond, "
            "while_loop or scan make a program; call ampsim.from_torch in a file of your own"
        )
    if not isinstance(made, ImportedGraph):
        raise OptionError(
            f"{source} must give what ampsim.from_torch(module, …) gives, got another model"
        )
    method, is_other = made.method, model.make_data != made.data.for_run
    if is_other or not isinstance(method, partial) or repr(method()) != repr(model.optimizer):
        raise OptionError(
            f"{source}: a file can be written of an optimizer of torch.optim alone, SGD or Adam, "
            "and of data, that from_torch was given; give it those in place of a later change"
        )
    arrays = path.with_suffix(".npz")
    if os.path.isfile(arrays) and not _is_ours(arrays):
        raise OptionError(
            f"{arrays}: is no file of an earlier import, and would be written over; move it, or "
            f"give {path.name} another name"
        )
    with replacing(arrays) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **_arrays(model, made))
    about = Path(source).name, arrays.name, sha256_of(arrays)
    text = _text(replace(model, error_scale=model.error_scale_of(made.data)), made, method, about)
    write_text(path, text)
    return text.count("\n"), arrays


def _is_ours(path: Path) -> bool:
    """Tell whether a file has arrays such as `_arrays` names alone."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as held:
        return all(re.match(r"(weight|fixed|(train|valid)/\d{6})/", n) for n in held.namelist())


def _arrays(model: Model, made: ImportedGraph) -> dict[str, Any]:
    held: dict[str, Any] = {f"weight/{name}": one for name, one in model.parameters().items()}
    held |= {f"fixed/{one.name}": one.values for one in made.plan.ports if one.values is not None}
    for split in ("train", "valid"):
        given = getattr(made.data, split)
        batches = given if isinstance(made.data, BatchList) else [given]
        for number, arrays in enumerate(batches):
            for place, array in enumerate(arrays):
                held[f"{split}/{number:06}/{place}"] = array
    return held


def _text(model: Model, made: ImportedGraph, method: Method, about: tuple[str, str, str]) -> str:
    source, arrays, digest = about
    plan, data = made.plan, made.data
    is_array = isinstance(data, ArrayDataset)
    return TEXT.format(
        name=model.name,
        title=repr(plan.name),
        source=source,
        arrays=arrays,
        digest=repr(digest),
        rate=repr(method.keywords["rate"]),
        batch=f"\n    batch: int = {data.batch}" if isinstance(data, ArrayDataset) else "",
        calls="\n".join(_graph_lines(plan)),
        pump="\n".join(_pump_lines(plan)),
        first="[0]" if is_array else "",
        kind="ampsim.ArrayDataset" if is_array else "interop.BatchList",
        more=f", config.batch, {model.dtype!r}" if is_array else "",
        model="\n".join(_model_lines(model, method)),
    )


def _variables(plan: GraphPlan) -> dict[Ref, str]:
    """A variable for each wire, with a name of its own."""
    refs = [Ref(port.name) for port in plan.ports]
    refs += [Ref(call.name, port) for call in plan.calls for port in range(call.outputs)]
    names: dict[Ref, str] = {}
    taken = {"graph", "Graph", "np", "ampsim", "interop", "nodes", *dir(builtins), *keyword.kwlist}
    for ref in refs:
        wanted = re.sub(r"\W|^(?=\d)", "_", ref.call) + (f"_{ref.port}" if ref.port else "")
        while wanted in taken:
            wanted += "_"
        names[ref] = wanted
        taken.add(wanted)
    return names


def _wrapped(head: str, words: Sequence[str], tail: str = ")") -> Iterator[str]:
    """A call on one line, or with an argument on each."""
    whole = f"    {head}{', '.join(words)}{tail}"
    if len(whole) <= WIDTH:
        yield whole
    else:
        yield from (f"    {head}", *(f"        {word}," for word in words), f"    {tail}")


def _graph_lines(plan: GraphPlan) -> Iterator[str]:
    names = _variables(plan)
    wires = ", ".join(names[Ref(port.name)] for port in plan.ports)
    shapes = [f"{names[Ref(port.name)]}={port.shape}" for port in plan.ports]
    yield from _wrapped(f"{wires} = graph.controller(", shapes)
    for call in plan.calls:
        function = "graph.add" if call.outputs else "graph.end"
        words = [names[one] if isinstance(one, Ref) else _word(one) for one in call.arguments]
        if call.part:
            function, words = f"interop.{call.part}", ["graph", *words]
        made = ", ".join(names[Ref(call.name, port)] for port in range(call.outputs))
        yield from _wrapped(f"{made}{' = ' if made else ''}{function}(", words)


def _word(given: Any) -> str:
    """An argument of a call that is no wire."""
    if isinstance(given, Spec):
        return f"nodes.{given}"
    return f"interop.{given}" if isinstance(given, LoopSteps) else repr(given)


def _pump_lines(plan: GraphPlan) -> Iterator[str]:
    position = "interop.Position(instance)"
    if plan.length is not None:
        array, axis = plan.length
        position = f"interop.Position(instance, length=batch.arrays[{array}].shape[{axis}])"
    yield f"    arrays, at = batch.arrays, {position}"
    sent = list[str]()
    for place, port in enumerate(plan.ports):
        payload = f"arrays[{port.array}]"
        if port.array is None:
            payload = f"HELD[{f'fixed/{port.name}'!r}]"
            if port.shape[:1] == ("rows",):
                payload = f"interop.for_each({payload}, arrays)"
        sent.append(f"({place}, at, {payload})")
    yield from _wrapped("return [", sent, "]")


def _model_lines(model: Model, method: Method) -> Iterator[str]:
    options = [f"{name}={value}" for name, value in method.keywords.items() if name != "rate"]
    words = [repr(model.name), "config", "make_graph", "data.for_run", "pump"]
    words.append(f"ampsim.optim.{method.func.__name__}({', '.join(['config.rate', *options])})")
    for one in fields(Model):
        value: Any = getattr(model, one.name)
        value = dict(cast("Any", value)) if isinstance(value, Mapping) else value
        if one.name in TOLD and value != ({} if one.default is MISSING else one.default):
            words.append(f"{one.name}={value!r}")
    yield from _wrapped("model = ampsim.Model(", words)
