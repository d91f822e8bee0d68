"""A PyTorch module becomes a model, `from_torch`; what it learned a state_dict, `to_torch`."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from ampsim.data import ArrayDataset
from ampsim.errors import OptionError, UnknownNameError, one_of
from ampsim.interop.agreement import require_agreement
from ampsim.interop.batches import Arrays, BatchList, dataset_of, examples
from ampsim.interop.control_flow import Branching, TorchProgram, torch_program
from ampsim.interop.exported import ImportedModule, Loss, Refusal, imported, the_torch
from ampsim.interop.loops import LoopSteps
from ampsim.interop.lowering import EXAMPLE_ROWS
from ampsim.interop.optimizers import Method, method_of
from ampsim.interop.plan import GraphPlan, PumpPorts, of_any_length, without_dropout
from ampsim.ir import Graph
from ampsim.study import Model, Result
from ampsim.text import short

if TYPE_CHECKING:
    import torch


OPTIONS: Final = (
    "batch", "error_scale", "error_unit", "items", "min_update_interval", "node_update_intervals",
    "target",
)  # fmt: skip
"""What `from_torch` takes besides; all but the first are those of `ampsim.Model`."""


LOOP_IS_FIXED: Final = (
    "a loop over steps in Python, or of another length than a batch's, is fixed; take nn.LSTM or "
    "nn.GRU, or give sequences of one length"
)


@dataclass(frozen=True, eq=False)
class TorchGraph:
    """Makes the graph of an imported module, and knows the module's state_dict.

    Args:
        found: what the module became.
        state: the state_dict, as arrays, when it was imported.
        method: the optimizer as it can be written; None where it was none of PyTorch's.
        data: the data set.
    """

    found: ImportedModule
    state: dict[str, np.ndarray]
    method: Method | None
    data: Any

    def __call__(self) -> Graph:
        """Make the graph."""
        return self.found.plan()


@dataclass(frozen=True)
class TorchConfig:
    """Where an imported model came from.

    Args:
        module: the class of the module.
        batch: items of a batch, at most.
        recorded: digest of what the module became, by which runs of it are told from others'.
    """

    module: str
    batch: int
    recorded: str = field(repr=False)


def from_torch(
    module: torch.nn.Module,
    example_inputs: Any,
    *,
    loss: Loss,
    data: Any,
    optimizer: Any,
    **options: Any,
) -> Model:
    """Make a model of a PyTorch module, with its weights to start from.

    The module is exported in training mode (`torch.export`) and not changed. A run computes what
    PyTorch computes, but for the masks of dropout, which are drawn from another stream: loss and
    gradients, without dropout, of up to three batches of different shapes are compared with the
    module's first. Two biases of an LSTM stay two.

    Args:
        module: on the CPU, in single or double precision. All of its parameters are trained.
        example_inputs: a tensor, or a tuple of them, one for each input of the module, with the
            batch on the first axis; the target may follow.
        loss: ``loss(output, target)``, that ends in a cross-entropy or a squared error, such as
            ``nn.CrossEntropyLoss()``.
        data: (train, valid), each a tuple of tensors (inputs, target), a map-style Dataset, or a
            DataLoader or list of batches. Batches may differ in the length of their sequences.
        optimizer: of `torch.optim`: SGD, with momentum or Nesterov's, or Adam; or one of
            `ampsim.optim`.
        options: `target`, `min_update_interval`, `node_update_intervals`, `items`, `error_unit` and
            `error_scale`, as of `ampsim.Model`; and `batch`, how many items an instance has where
            data come as whole tensors, by default as many as the example.

    Returns:
        The model; `to_torch` takes what it learned back.

    Raises:
        GraphError: something cannot be; the message names the operation, the user's line and a way
            out.
        OptionError: an argument does not fit, or PyTorch is not installed.

    Example:
        >>> import torch
        >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(60, 4), torch.randint(0, 2, (60,))
        >>> model = from_torch(net, x[:20], loss=torch.nn.CrossEntropyLoss(),
        ...     data=((x, y), (x, y)), optimizer=torch.optim.SGD(net.parameters(), 0.1))
        >>> [node.name for node in model.graph().nodes]
        ['controller', '0', '1.relu', '2', 'loss']
    """
    torch = the_torch()
    if not isinstance(module, torch.nn.Module):
        raise OptionError(
            f"module must be a torch.nn.Module, got {type(module).__name__}; try Net(), not Net"
        )
    is_one = not isinstance(example_inputs, tuple)
    inputs = (example_inputs,) if is_one else cast("tuple[Any, ...]", example_inputs)
    if not inputs or not all(isinstance(one, torch.Tensor) and one.ndim for one in inputs):
        raise OptionError(
            "example_inputs must be a tensor, or a tuple of them, with the batch on the first "
            f"axis, got {short(example_inputs)}"
        )
    if not callable(loss):
        raise OptionError(
            "loss must be a function of output and target, such as nn.CrossEntropyLoss(), got "
            f"{short(loss)}"
        )
    if unknown := set(options) - {*OPTIONS}:
        raise UnknownNameError(one_of("option", min(unknown), OPTIONS))
    dtype = _dtype_of(module)
    dataset = dataset_of(data, options.pop("batch", len(inputs[0])), dtype)
    method = method_of(optimizer, len(list(module.parameters())))
    _require_alike(inputs, dataset)
    try:
        found, length = _found(module, dataset, loss)
    except Branching as branching:
        return _program_model(module, branching.program, dataset, (loss, method), options)
    _require_labels(dataset, found.classes)
    state = {name: one.detach().numpy().copy() for name, one in module.state_dict().items()}
    made = TorchGraph(found, state, method if isinstance(method, partial) else None, dataset)
    pump = PumpPorts(found.plan.ports, dtype, length)
    model = _model(module, made, pump, method, options)
    plain = replace(made, found=replace(found, plan=found.plan.with_calls(without_dropout)))
    require_agreement(module, loss, replace(model, make_graph=plain), to_torch)
    return model


def _program_model(
    module: Any, program: Any, data: ArrayDataset | BatchList, how: Any, options: dict[str, Any]
) -> Model:
    """The model of a module with torch.cond, while_loop or scan: a program only."""
    made, loss, method = torch_program(module, program), *how
    if isinstance(data, BatchList):
        raise Refusal(f"{made.name}: sequences must have one length beside torch.scan; pad them")
    config = TorchConfig(made.name, data.batch, made.digest)
    optimizer: Any = method() if callable(method) else method
    model = Model(
        made.name, config, None, data.for_run, None, optimizer, dtype=_dtype_of(module),
        make_program=made, make_layers=made.layers, **options,
    )  # fmt: skip
    _require_labels(data, made.classes)
    require_agreement(module, loss, model, to_torch)
    return model


def _require_alike(inputs: tuple[Any, ...], data: ArrayDataset | BatchList) -> None:
    """Check that data are what the example is: inputs, and a target."""
    is_ragged = isinstance(data, BatchList)
    arrays = data.train[0] if is_ragged else data.train
    if len(inputs) not in (len(arrays) - 1, len(arrays)):
        raise OptionError(
            f"data must have an array for each of the {len(inputs)} example inputs and one for the "
            f"target, got {len(arrays)}; give (inputs, target)"
        )
    for place, (example, array) in enumerate(zip(inputs, arrays, strict=False)):
        expected, got = tuple(example.shape[1:]), array.shape[1:]
        if len(expected) != len(got) or (expected != got and not is_ragged):
            raise OptionError(
                f"array {place} of data must have items of shape {expected}, as the example has, "
                f"got {got}"
            )


def _require_labels(data: ArrayDataset | BatchList, classes: int) -> None:
    """Check that labels are classes that the loss tells apart."""
    for split in ("train", "valid") if classes else ():
        for batch in data.batches(split, epoch=0, seed=0):
            labels = batch.arrays[-1]
            least, most = (labels.min(), labels.max()) if labels.size else (0, 0)
            if labels.dtype.kind not in "iu" or not 0 <= least <= most < classes:
                raise OptionError(
                    f"the target in {split} must be whole numbers from 0 to {classes - 1}, one for "
                    f"each class, got {labels.dtype} from {least} to {most}; number the classes "
                    "from 0, without one that is ignored"
                )


def _model(
    module: Any, made: TorchGraph, pump: PumpPorts, method: Any, options: dict[str, Any]
) -> Model:
    name, found, data = type(module).__name__, made.found, made.data
    interval = options.setdefault("min_update_interval", 1)
    steps = _mean_length(data, pump)
    intervals = {
        node: interval * (count or steps) for node, count in found.messages.items() if count != 1
    }
    batch = (
        max(len(arrays[0]) for arrays in examples(data))
        if isinstance(data, BatchList)
        else data.batch
    )
    settings: dict[str, Any] = {
        "metric": "accuracy" if found.classes else "error",
        "node_update_intervals": intervals,
        "dtype": pump.dtype,
        **options,
    }
    model = Model(
        name,
        TorchConfig(name, batch, found.plan.digest),
        made,
        data.for_run,
        pump,
        made.method() if made.method else method,
        **settings,
    )
    return model.set_parameters(ours_of(model, made))


def ours_of(model: Model, made: TorchGraph) -> dict[str, np.ndarray]:
    """The module's parameters as those of the graph."""
    graph = model.graph()
    shapes = {
        f"{node.name}.{name}": shape
        for node in graph.parameterized
        for name, shape in node.parameter_shapes.items()
    }
    return {
        name: laid.ours(made.state).reshape(shapes[name])
        for name, laid in made.found.layouts.items()
    }


def _dtype_of(module: Any) -> str:
    found = {str(one.dtype).removeprefix("torch.") for one in module.parameters()}
    if len(found) != 1 or not found <= {"float32", "float64"}:
        raise OptionError(
            f"parameters of {type(module).__name__} must all be float32 or all float64, got "
            f"{', '.join(sorted(found)) or 'none'}; call module.float() or module.double()"
        )
    return found.pop()


def _found(module: Any, data: Any, loss: Loss) -> tuple[ImportedModule, tuple[int, int] | None]:
    """What the module becomes, and array and axis of the number of steps, if batches differ."""
    torch = the_torch()
    found: list[ImportedModule] = []
    batches = examples(data)
    for arrays in batches:
        rows = [np.repeat(one[:1], EXAMPLE_ROWS, axis=0) for one in arrays]
        tensors = [torch.from_numpy(np.ascontiguousarray(one)) for one in rows]
        found.append(imported(module, tensors, loss))
    if len(found) == 1:
        return found[0], None
    return _of_any_length(type(module).__name__, found, batches)


def _of_any_length(
    name: str, found: list[ImportedModule], batches: list[Arrays]
) -> tuple[ImportedModule, tuple[int, int]]:
    """One import for batches of any length, of two for different ones.

    Raises:
        GraphError: a number in the graph depends on the length, or several lengths differ.
    """
    one, other = (each.plan for each in found)
    if len(one.ports) != len(other.ports) or len(one.calls) != len(other.calls):
        raise Refusal(f"{name}: {LOOP_IS_FIXED}")
    ports, lengths = list(one.ports), set[tuple[int, int]]()
    for place, (mine, theirs) in enumerate(zip(one.ports, other.ports, strict=True)):
        differing = [
            a
            for a, pair in enumerate(zip(mine.shape, theirs.shape, strict=True))
            if len(set(pair)) > 1
        ]
        if differing and mine.array is None:
            raise Refusal(
                f"{name}: fixed array {mine.name} is as long as a batch; make it an input"
            )
        named = ["steps" if axis in differing else one for axis, one in enumerate(mine.shape)]
        ports[place] = replace(mine, shape=tuple(named))
        lengths |= {(cast("int", mine.array), axis) for axis in differing}
    steps = {tuple(arrays[array].shape[axis] for arrays in batches) for array, axis in lengths}
    if len(steps) != 1:
        raise Refusal(
            f"{name}: batches differ in {len(steps)} lengths, and one may; pad all but one of them"
        )
    loops = _lengths_of_loops(one), _lengths_of_loops(other)
    if set(zip(*loops, strict=False)) - steps:
        raise Refusal(f"{name}: {LOOP_IS_FIXED}")
    plans = [each.plan.with_calls(of_any_length).calls for each in found]
    for mine, theirs in zip(*plans, strict=True):
        if mine != theirs:
            where = f" ({mine.place})" if mine.place else ""
            raise Refusal(
                f"{name}: batches differ in length, and {mine.name} is made for one{where}; use "
                "-1, or give sequences of one length"
            )
    plan = GraphPlan(one.name, tuple(ports), plans[0])
    messages = {
        node: 0 if count != found[1].messages[node] else count
        for node, count in found[0].messages.items()
    }
    return replace(found[0], plan=plan, messages=messages), min(lengths)


def _lengths_of_loops(plan: GraphPlan) -> list[int]:
    return [one.length for call in plan.calls for one in call.more if isinstance(one, LoopSteps)]


def _mean_length(data: Any, pump: PumpPorts) -> int:
    """LoopSteps of a batch in the mean, where they differ."""
    if pump.length is None:
        return 1
    array, axis = pump.length
    return round(np.mean([arrays[array].shape[axis] for arrays in data.train]))


def to_torch(result: Result | Model) -> OrderedDict[str, torch.Tensor]:
    """The weights that a run ended with, as a state_dict of the module that it came from.

    Names, shapes, order and data types are those of the module's own; buffers are as they were.

    Args:
        result: of a run of a model that `from_torch` made, or such a model itself.

    Raises:
        OptionError: the model came from elsewhere, or PyTorch is not installed.

    Example:
        ``net.load_state_dict(ampsim.to_torch(result))``
    """
    torch = the_torch()
    model: Any = getattr(result, "model", result)
    made = getattr(model, "make_graph", None) or getattr(model, "make_program", None)
    if not isinstance(made, TorchGraph | TorchProgram):
        raise OptionError(
            "to_torch takes a result, or a model, that came from ampsim.from_torch; a result's "
            "numbers are in result.model.parameters()"
        )
    shapes = {name: one.shape for name, one in made.state.items()}
    state, ours = dict(made.state), model.parameters()
    if isinstance(made, TorchProgram):
        state |= made.theirs(ours)
    else:
        for name, laid in made.found.layouts.items():
            state |= laid.theirs(ours[name], shapes)
    return OrderedDict(
        (name, torch.from_numpy(np.array(one, dtype=made.state[name].dtype)))
        for name, one in state.items()
    )
