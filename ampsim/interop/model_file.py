"""A model file of an imported module: text that its owner edits, with arrays in a file beside it.

The text makes the graph with the same calls as the import did, so that PyTorch is not needed any
more. The arrays, in NumPy's own format without pickled objects, are data and first weights.
"""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from ampsim.errors import OptionError
from ampsim.files import replacing, sha256_of, write_text
from ampsim.interop.batches import BatchList
from ampsim.interop.optimizers import Method
from ampsim.interop.plan import (
    Call,
    GraphPlan,
    Port,
    PumpPorts,
    Ref,
    Spec,
    identifier,
    python,
)
from ampsim.interop.torch_model import TorchGraph
from ampsim.study import Model

WIDTH: Final = 100
"""Characters of a line."""

TOLD: Final = (
    "target", "min_update_interval", "node_update_intervals", "dtype", "metric", "error_unit",
    "items",
)  # fmt: skip
"""Fields of a model that are written, where they are not as usual."""

_TAKEN: Final = frozenset({"graph", "config", "np", "ampsim", *dir(builtins), *keyword.kwlist})


def write_model_file(model: Model, path: Path, source: str) -> tuple[int, Path]:
    """Write a model that `from_torch` made as a file that `load_model` takes.

    Args:
        model: from `from_torch`.
        path: of the text, ``NAME.py``; arrays go to ``NAME.npz``.
        source: what it was imported from, such as "my_net.py:make".

    Returns:
        How many lines the text has, and the path of the arrays.

    Raises:
        OptionError: the model came from elsewhere, or its optimizer is none of PyTorch's.
        OutputError: a file cannot be written.
    """
    made = model.make_graph
    if not isinstance(made, TorchGraph):
        raise OptionError(
            f"{source} must give what ampsim.from_torch(module, …) gives, got another model"
        )
    if made.method is None:
        raise OptionError(
            f"{source}: a file can be written of an optimizer of torch.optim alone; "
            "take torch.optim.SGD or Adam"
        )
    pump = model.pump
    assert isinstance(pump, PumpPorts)
    arrays = path.with_suffix(".npz")
    with replacing(arrays) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **_arrays(model, made, pump))
    about = Path(source).name, arrays.name, sha256_of(arrays)
    text = "\n".join(_lines(model, made, pump, about))
    write_text(path, text)
    return text.count("\n"), arrays


def _arrays(model: Model, made: TorchGraph, pump: PumpPorts) -> dict[str, Any]:
    held: dict[str, Any] = {f"weight/{name}": one for name, one in model.parameters().items()}
    held |= {f"fixed/{one.name}": one.values for one in pump.ports if one.values is not None}
    for split in ("train", "valid"):
        given = getattr(made.data, split)
        batches = given if isinstance(made.data, BatchList) else [given]
        for number, arrays in enumerate(batches):
            for place, array in enumerate(arrays):
                held[f"{split}/{number:06}/{place}"] = array
    return held


def _lines(
    model: Model, made: TorchGraph, pump: PumpPorts, about: tuple[str, str, str]
) -> Iterator[str]:
    source, arrays, digest = about
    plan, method = made.found.plan, made.method
    assert method is not None
    kind = type(made.data).__name__
    yield f'"""{model.name}, imported from {source}; the file is yours to edit.'
    yield ""
    yield f"First weights and data are in {arrays}."
    yield '"""'
    yield ""
    yield "from dataclasses import dataclass"
    yield ""
    if any(port.width for port in pump.ports):
        yield "import numpy as np"
        yield ""
    yield "import ampsim"
    yield from _imports(plan, kind, method.maker.__name__)
    yield ""
    yield f"HELD = held_arrays(__file__, {python(digest)})"
    yield ""
    yield ""
    yield "@dataclass(frozen=True)"
    yield "class Config:"
    yield f"    rate: float = {method.options['rate']!r}"
    if kind == "ArrayDataset":
        yield f"    batch: int = {made.data.batch}"
    yield ""
    yield ""
    yield from _graph_lines(plan)
    yield ""
    yield ""
    yield from _pump_lines(pump)
    yield ""
    yield ""
    yield from _build_lines(model, kind, method)
    yield ""


def _imports(plan: GraphPlan, kind: str, maker: str) -> Iterator[str]:
    """Only what is used, in the order in which isort has it."""
    specs = [call.subject for call in plan.calls if isinstance(call.subject, Spec)]
    nodes = {spec.kind.__name__ for spec in specs}
    parts = {call.part.__name__ for call in plan.calls if call.part is not None}
    steps = (
        {"LoopSteps"} if any("LoopSteps" in repr(call.more) for call in plan.calls) else set[str]()
    )
    where = {"ArrayDataset": "ampsim.data", "BatchList": "ampsim.interop"}[kind]
    interop = {"Position", "held_arrays", "split_of"} | parts | steps
    if where == "ampsim.interop":
        interop.add(kind)
    else:
        yield f"from {where} import {kind}"
    yield from _import("ampsim.interop", interop)
    yield "from ampsim.ir import Graph"
    yield from _import("ampsim.nodes", nodes)
    yield f"from ampsim.optim import {maker}"


def _import(package: str, names: Iterable[str]) -> Iterator[str]:
    found = sorted(names, key=lambda name: (not name[0].isupper(), name.lower()))
    line = f"from {package} import {', '.join(found)}"
    if len(line) <= WIDTH:
        yield line
        return
    yield f"from {package} import ("
    yield from (f"    {name}," for name in found)
    yield ")"


class _Names:
    """Variables for wires, each with a name of its own."""

    def __init__(self) -> None:
        self._of: dict[Ref, str] = {}

    def new(self, ref: Ref) -> str:
        wanted = identifier(ref.call) + (f"_{ref.port}" if ref.port else "")
        while wanted in _TAKEN or wanted in self._of.values():
            wanted += "_"
        self._of[ref] = wanted
        return wanted

    def __getitem__(self, ref: Ref) -> str:
        return self._of[ref]


def _wrapped(head: str, words: Sequence[str], tail: str = ")", *, indent: int = 4) -> Iterator[str]:
    """A call on one line, or with an argument on each."""
    space = " " * indent
    whole = f"{space}{head}{', '.join(words)}{tail}"
    if len(whole) <= WIDTH:
        yield whole
        return
    yield f"{space}{head}"
    yield from (f"{space}    {word}," for word in words)
    yield f"{space}{tail}"


def _graph_lines(plan: GraphPlan) -> Iterator[str]:
    names = _Names()
    wires = ", ".join(names.new(Ref(port.name)) for port in plan.ports)
    shapes = [f"{names[Ref(port.name)]}={python(port.shape)}" for port in plan.ports]
    yield "def make_graph():"
    yield f"    graph = Graph({python(plan.name)})"
    yield from _wrapped(f"{wires} = graph.controller(", shapes)
    for call in plan.calls:
        yield from _call_lines(call, names)
    yield "    return graph"


def _call_lines(call: Call, names: _Names) -> Iterator[str]:
    subject = str(call.subject) if isinstance(call.subject, Spec) else python(call.subject)
    rest = call.arranged([names[ref] for ref in call.feeds])
    words = [subject, *(one if isinstance(one, str) else python(one) for one in rest)]
    if call.part is None:
        function = "graph.add" if call.outputs == 1 else "graph.end"
    else:
        function, words = call.part.__name__, ["graph", *words]
    made = ", ".join(names.new(Ref(call.name, port)) for port in range(call.outputs))
    yield from _wrapped(f"{made}{' = ' if made else ''}{function}(", words)


def _pump_lines(pump: PumpPorts) -> Iterator[str]:
    yield "def pump(instance, batch):"
    position = "Position(instance)"
    if pump.length is not None:
        array, axis = pump.length
        position = f"Position(instance, length=batch.arrays[{array}].shape[{axis}])"
    yield f"    arrays, at = batch.arrays, {position}"
    sent = [
        f"({number}, at, {_payload(port, pump.dtype)})" for number, port in enumerate(pump.ports)
    ]
    yield from _wrapped("return [", sent, "]")


def _payload(port: Port, dtype: str) -> str:
    if port.array is not None:
        return f"arrays[{port.array}]"
    if port.values is not None:
        return f"HELD[{python(f'fixed/{port.name}')}]"
    return f"np.zeros((len(arrays[0]), {port.width}), {python(dtype)})"


def _build_lines(model: Model, kind: str, method: Method) -> Iterator[str]:
    is_array = kind == "ArrayDataset"
    options = {**method.options, "rate": "config.rate"}
    rated = ", ".join(
        f"{name}={value}" if name != "rate" else str(value) for name, value in options.items()
    )
    settings = [
        f"{one.name}={python(value)}"
        for one in fields(Model)
        if one.name in TOLD and (value := _plain(getattr(model, one.name))) != _default(one)
    ]
    yield "def build(config):"
    one = "[0]" if is_array else ""
    yield f'    splits = [split_of(HELD, name){one} for name in ("train", "valid")]'
    more = f", config.batch, {python(model.dtype)}" if is_array else ""
    yield f"    data = {kind}(*splits{more})"
    words = [python(model.name), "config", "make_graph", "data.for_run", "pump"]
    words += [f"{method.maker.__name__}({rated})", *settings]
    yield from _wrapped("model = ampsim.Model(", words)
    yield '    first = {name[7:]: HELD[name] for name in HELD if name.startswith("weight/")}'
    yield "    return model.set_parameters(first)"


def _plain(value: Any) -> Any:
    return dict(cast("Mapping[str, int]", value)) if isinstance(value, Mapping) else value


def _default(one: Any) -> Any:
    return {} if one.default is MISSING else one.default
