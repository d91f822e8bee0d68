"""A model file of an imported module: text that its owner edits, with arrays in a file beside it.

The text makes the graph with the same calls as the import did, so that PyTorch is not needed any
more. The arrays, in NumPy's own format without pickled objects, are data and first weights.
"""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from ampsim.data import ArrayDataset
from ampsim.errors import OptionError
from ampsim.files import replacing, sha256_of, write_text
from ampsim.interop.batches import BatchList
from ampsim.interop.loops import LoopSteps
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

_TAKEN: Final = frozenset(
    {"graph", "np", "ampsim", "interop", "nodes", *dir(builtins), *keyword.kwlist}
)


TEXT: Final = """\"\"\"{name}, imported from {source}; the file is yours to edit.

First weights and data are in {arrays}.
\"\"\"

from dataclasses import dataclass

{numpy}import ampsim
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
        OptionError: the model came from elsewhere, or its optimizer is none of PyTorch's.
        OutputError: a file cannot be written.
    """
    made = model.make_graph
    if model.is_program_only:
        raise OptionError(
            f"{source}: a file can be written of a graph of messages alone, and torch.cond, "
            "while_loop or scan make a program; call ampsim.from_torch in a file of your own"
        )
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
    text = _text(model, made, pump, about)
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


def _text(model: Model, made: TorchGraph, pump: PumpPorts, about: tuple[str, str, str]) -> str:
    source, arrays, digest = about
    plan, method = made.found.plan, made.method
    assert method is not None
    is_array = isinstance(made.data, ArrayDataset)
    has_zeros = any(port.width for port in pump.ports)
    return TEXT.format(
        name=model.name,
        title=python(plan.name),
        source=source,
        arrays=arrays,
        digest=python(digest),
        numpy="import numpy as np\n\n" if has_zeros else "",
        rate=repr(method.keywords["rate"]),
        batch=f"\n    batch: int = {made.data.batch}" if is_array else "",
        calls="\n".join(_graph_lines(plan)),
        pump="\n".join(_pump_lines(pump)),
        first="[0]" if is_array else "",
        kind="ampsim.ArrayDataset" if is_array else "interop.BatchList",
        more=f", config.batch, {python(model.dtype)}" if is_array else "",
        model="\n".join(_model_lines(model, method)),
    )


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
    yield from _wrapped(f"{wires} = graph.controller(", shapes)
    for call in plan.calls:
        yield from _call_lines(call, names)


def _call_lines(call: Call, names: _Names) -> Iterator[str]:
    is_node = isinstance(call.subject, Spec)
    subject = f"nodes.{call.subject}" if is_node else python(call.subject)
    words = [subject, *map(_word, call.arranged([names[ref] for ref in call.feeds]))]
    function = "graph.add" if call.outputs == 1 else "graph.end"
    if call.part is not None:
        function, words = f"interop.{call.part.__name__}", ["graph", *words]
    made = ", ".join(names.new(Ref(call.name, port)) for port in range(call.outputs))
    yield from _wrapped(f"{made}{' = ' if made else ''}{function}(", words)


def _word(given: Any) -> str:
    """An argument of a call: a wire's name, as it is, or something else."""
    if isinstance(given, LoopSteps):
        return f"interop.{given}"
    return given if isinstance(given, str) else python(given)


def _pump_lines(pump: PumpPorts) -> Iterator[str]:
    position = "interop.Position(instance)"
    if pump.length is not None:
        array, axis = pump.length
        position = f"interop.Position(instance, length=batch.arrays[{array}].shape[{axis}])"
    yield f"    arrays, at = batch.arrays, {position}"
    sent = [f"({place}, at, {_payload(one, pump.dtype)})" for place, one in enumerate(pump.ports)]
    yield from _wrapped("return [", sent, "]")


def _payload(port: Port, dtype: str) -> str:
    if port.array is not None:
        return f"arrays[{port.array}]"
    if port.values is not None:
        return f"HELD[{python(f'fixed/{port.name}')}]"
    return f"np.zeros((len(arrays[0]), {port.width}), {python(dtype)})"


def _model_lines(model: Model, method: Method) -> Iterator[str]:
    options = [f"{name}={value}" for name, value in method.keywords.items() if name != "rate"]
    words = [python(model.name), "config", "make_graph", "data.for_run", "pump"]
    words.append(f"ampsim.optim.{method.func.__name__}({', '.join(['config.rate', *options])})")
    for one in fields(Model):
        value = _plain(getattr(model, one.name)) if one.name in TOLD else _default(one)
        if value != _default(one):
            words.append(f"{one.name}={python(value)}")
    yield from _wrapped("model = ampsim.Model(", words)


def _plain(value: Any) -> Any:
    return dict(cast("Mapping[str, int]", value)) if isinstance(value, Mapping) else value


def _default(one: Any) -> Any:
    return {} if one.default is MISSING else one.default
