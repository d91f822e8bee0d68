"""An ONNX file becomes a model, `from_onnx`; what it learned goes back into one, `to_onnx`.

Operations become those of PyTorch's that the table of operators has (`ampsim.interop.operators`),
so that PyTorch is not needed. A file says neither which of its arrays learn nor which extents
follow from the batch. So it is computed twice, by ONNX's own evaluator in NumPy: what has another
extent with three items than with two follows from the batch. Arrays of floating-point numbers
learn, but for single numbers that are no bias, and those that the user calls fixed.

Source: the operators of ONNX 1.23 (opset 28), github.com/onnx/onnx/blob/main/docs/Operators.md.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from ampsim.errors import FileFormatError, OptionError, UnknownNameError, one_of
from ampsim.interop.imported_model import (
    imported_graph,
    imported_model,
    only_dtype,
    require_agreement,
    require_columns,
    require_options,
    state_now,
)
from ampsim.interop.lowering import Lowering, Refusal
from ampsim.interop.onnx_graph import GraphReader, class_axis
from ampsim.interop.parameters import Laid, Learned, ModuleState
from ampsim.interop.training import Arrays, dataset_of
from ampsim.optim import Optimizer
from ampsim.study import Model, Result
from ampsim.text import short
from ampsim.user_code import text_of

OPSET_MIN: Final = 13
"""From which on axes of a softmax, and of what is reduced, mean what they do here."""

TOLERANCE: Final = 1e-5  # of a loss: ONNX's evaluator computes erf in single precision

BATCH: Final = 100  # items of an instance, where nobody says (chosen: as in the paper's)

LOSSES: Final = ("cross_entropy", "squared_error")


def the_onnx() -> Any:
    """ONNX.

    Raises:
        OptionError: it is not installed.
    """
    try:
        import onnx
        import onnx.reference  # pyright: ignore[reportUnusedImport]  # of onnx
    except ImportError:
        raise OptionError(
            "models from ONNX need onnx, which is not installed; pip install 'ampsim[onnx]'"
        ) from None
    return onnx


def from_onnx(model: Any, *, loss: str, data: Any, optimizer: Optimizer, **options: Any) -> Model:
    """Make a model of an ONNX file, with its weights to start from.

    A run computes what the file says, with gradients. The loss of up to three batches of different
    shapes is compared with that of ONNX's own evaluator first.

    Args:
        model: path of the file, or an `onnx.ModelProto`. Each of its inputs has the batch on the
            first axis; its first output is what the loss takes.
        loss: "cross_entropy", of logits with the classes on the last axis (or where the target
            lacks an axis) and labels, or "squared_error". A softmax at the end is the loss's.
        data: (train, valid), each a tuple of arrays (inputs, target), or a list of such batches.
        optimizer: one of `ampsim.optim`.
        options: `fixed`, names of arrays that do not learn, such as a table of places; `shares`,
            asked for where several nodes read an array: True if they are one layer, False if each
            has its own, for exporters keep equal arrays once; `batch`, how many items an instance
            has; and `target`, `min_update_interval`, `node_update_intervals`, `items`, `error_unit`
            and `error_scale`, as of `ampsim.Model`.

    Returns:
        The model; `to_onnx` takes what it learned back.

    Raises:
        FileFormatError: the file cannot be read as ONNX.
        GraphError: something cannot be; the message names the operation, its node and a way out.
        OptionError: an argument does not fit, or onnx is not installed.

    Example:
        ``ampsim.from_onnx("net.onnx", loss="cross_entropy", data=((x, y), (u, v)),
        optimizer=ampsim.optim.adam(1e-3))``
    """
    proto, name = _read(model)
    _require_known(loss, optimizer, options)
    fixed = options.pop("fixed", ())
    if (shares := options.pop("shares", None)) is False:
        _part(proto.graph, lambda one, _copy: one not in fixed)
    arrays = {one.name: _array(one) for one in proto.graph.initializer}
    learning = _learning(proto.graph, arrays, fixed)
    if shares is None:
        _require_apart(proto.graph, name, learning)
    dtypes, what = [str(arrays[one].dtype) for one in learning], f"{name}: arrays that learn"
    options["dtype"] = only_dtype(dtypes, what, "export it in single precision")
    dataset = dataset_of(data, options.pop("batch", BATCH), options["dtype"])
    evaluator = the_onnx().reference.ReferenceEvaluator(proto)
    ports = [one.name for one in proto.graph.input if one.name not in arrays]
    require_columns(dataset, (len(ports) + 1,), f"{len(ports)} inputs of {name}")

    def read(given: Arrays) -> Lowering:
        low = Lowering(name, options["dtype"])
        more = tuple(np.concatenate([one, one[:1]]) for one in given)
        twice = _evaluated(evaluator, ports, given), _evaluated(evaluator, ports, more)
        values = {one: Learned(one, it) if one in learning else it for one, it in arrays.items()}
        GraphReader(low, twice, values).read(proto.graph, ports, given, loss)
        return low

    def state_of(layouts: Mapping[str, Laid]) -> ModuleState:
        used = {one for laid in layouts.values() for one in laid.names}
        if idle := [one for one in learning if one not in used]:
            raise Refusal(f"array {idle[0]} has no effect on the loss", "call it fixed")
        return ModuleState(arrays, {}, layouts)

    try:
        how = dataset, optimizer
        made = imported_graph(read, state_of, how, options)
        found = imported_model(name, made, how, options)
        theirs = partial(_loss_of, evaluator, proto.graph, ports, loss)
        remedy = "tell the authors of ampsim which operations the file has"
        require_agreement(found, theirs, "ONNX", remedy, TOLERANCE)
    except Refusal as refusal:
        raise Refusal(f"{name}: {refusal}") from refusal.__cause__
    return found


def _require_known(loss: Any, optimizer: Any, options: Mapping[str, Any]) -> None:
    if not isinstance(loss, str) or loss not in LOSSES:
        raise UnknownNameError(one_of("loss", str(loss), LOSSES))
    if not isinstance(optimizer, Optimizer):
        raise OptionError(
            f"optimizer must be one of ampsim.optim, got {short(optimizer)}; try "
            "ampsim.optim.adam(1e-3)"
        )
    require_options(options, "fixed", "shares")


def _require_apart(graph: Any, name: str, learning: Sequence[str]) -> None:
    """Ask where several nodes read an array that learns: a file does not tell."""
    counts = Counter(one for node in graph.node for one in node.input)
    if several := [one for one in learning if counts[one] > 1]:
        raise OptionError(
            f"array {several[0]} of {name} is read by {counts[several[0]]} nodes; say shares=True "
            "if they are one layer, or shares=False if the exporter kept equal arrays once"
        )


def to_onnx(result: Result | Model, model: Any) -> Any:
    """The file that a model came from, as an `onnx.ModelProto`, with the weights of a run.

    Args:
        result: of a run of a model that `from_onnx` made, or such a model itself.
        model: what was given to `from_onnx`.

    Raises:
        OptionError: the result's model came from elsewhere, or onnx is not installed.

    Example:
        ``onnx.save(ampsim.to_onnx(result, "net.onnx"), "trained.onnx")``
    """
    proto, name = _read(model)
    state = state_now(result, "from_onnx")
    _part(proto.graph, lambda _one, copy: copy in state)
    if {one.name for one in proto.graph.initializer} != {*state}:
        raise OptionError(f"{name} is not the file that this model came from")
    for one in proto.graph.initializer:
        one.CopyFrom(the_onnx().numpy_helper.from_array(state[one.name], one.name))
    return proto


def _read(model: Any) -> tuple[Any, str]:
    """The model, checked, and its name."""
    onnx = the_onnx()
    if not isinstance(model, str | os.PathLike | onnx.ModelProto):
        raise OptionError(f"model must be a path or an onnx.ModelProto, got {short(model)}")
    proto, name = onnx.ModelProto(), str(model)
    try:
        if isinstance(model, onnx.ModelProto):
            proto.CopyFrom(model)
            name = proto.graph.name or "model"
        else:
            proto, name = onnx.load(name), Path(name).name
        onnx.checker.check_model(proto)
    except OSError as error:
        raise FileFormatError(f"{name}: cannot be read: {error.strerror}") from None
    except Exception as error:  # protobuf's own, or the checker's
        raise FileFormatError(f"{name}: is no ONNX model: {text_of(error)}") from None
    if any(not one.domain and one.version < OPSET_MIN for one in proto.opset_import):
        raise FileFormatError(f"{name}: is of an opset before {OPSET_MIN}; export it with a later")
    return proto, name


def _part(graph: Any, is_wanted: Callable[[str, str], bool]) -> None:
    """Give nodes after the first that read an array a copy, if that is wanted of its name."""
    seen, held = Counter[str](), {one.name: one for one in graph.initializer}
    for node in graph.node:
        for place, name in enumerate(node.input):
            seen[name] += 1
            copy = f"{name}-{seen[name]}"
            if seen[name] == 1 or name not in held or not is_wanted(name, copy):
                continue
            if _array(held[name]).dtype.kind == "f":
                node.input[place] = copy
                graph.initializer.add().CopyFrom(held[name])
                graph.initializer[-1].name = copy


def _array(held: Any) -> np.ndarray:
    return the_onnx().numpy_helper.to_array(held)


def _learning(graph: Any, arrays: Mapping[str, np.ndarray], fixed: Collection[str]) -> list[str]:
    """Names of the arrays that learn: no mask of infinities, and one number only of a layer."""
    if unknown := {*fixed} - {*arrays}:
        raise UnknownNameError(one_of("array of the file", min(unknown), arrays))
    products = {node.output[0] for node in graph.node if node.op_type == "MatMul"}
    layers = {
        name
        for node in graph.node
        if node.op_type in {"Gemm", "Conv"} or (node.op_type == "Add" and products & {*node.input})
        for name in node.input
    }
    return [
        name
        for name, one in arrays.items()
        if one.dtype.kind == "f" and name not in fixed and (one.size > 1 or name in layers)
        if np.isfinite(one).all()
    ]


def _evaluated(evaluator: Any, ports: Sequence[str], arrays: Arrays) -> dict[str, Any]:
    """Every value of the graph, for a batch."""
    try:
        return evaluator.run(None, dict(zip(ports, arrays, strict=False)), intermediate=True)
    except Exception as error:
        raise Refusal(
            f"ONNX's own evaluator fails on a batch of {len(arrays[0])}: {text_of(error)}",
            "give inputs as the file takes them, and export it with a batch of any size",
        ) from error


def _loss_of(
    evaluator: Any, graph: Any, ports: Sequence[str], loss: str, arrays: Arrays
) -> dict[str, np.ndarray]:
    """The loss of a batch, of what ONNX's evaluator gives."""
    values, target = _evaluated(evaluator, ports, arrays), arrays[-1]
    last = graph.output[0].name
    out = np.asarray(values[last], float)
    if loss == "squared_error":
        return {"the loss": np.square(out - target).mean()}
    makers = {name: node.op_type for node in graph.node for name in node.output}
    out = np.moveaxis(out, class_axis(out.shape, target.shape), -1)
    if makers.get(last) == "Softmax":
        out = np.log(out)
    logs = out - np.logaddexp.reduce(out, axis=-1, keepdims=True)
    return {"the loss": -np.take_along_axis(logs, target[..., None], -1).mean()}
