"""A PyTorch module becomes a model, `from_torch`; what it learned a state_dict, `to_torch`.

What was made is compared with PyTorch on batches of the data before anyone relies on it, for
`torch.export` records operations. It sees no hook, no backward pass of a `torch.autograd.Function`,
and one side alone of a branch on the shape of the batch, or on `self.training`.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import numpy as np

from ampsim.data import ArrayDataset
from ampsim.errors import GraphError, OptionError, UnknownNameError, one_of
from ampsim.interop.control_flow import Branching, TorchProgram, torch_program
from ampsim.interop.exported import Loss, imported, modes_kept, the_torch
from ampsim.interop.loops import LoopSteps
from ampsim.interop.lowering import EXAMPLE_ROWS, Lowering, Refusal
from ampsim.interop.parameters import ModuleState, module_state
from ampsim.interop.plan import GraphPlan, Port, PumpPorts, of_any_length, without_dropout
from ampsim.interop.training import Arrays, BatchList, Method, dataset_of, examples, method_of
from ampsim.ir import Graph
from ampsim.optim import sgd
from ampsim.study import Model, Result, simulate
from ampsim.text import short
from ampsim.user_code import user_code

if TYPE_CHECKING:
    import torch


OPTIONS: Final = (
    "batch", "error_scale", "error_unit", "items", "min_update_interval", "node_update_intervals",
    "target",
)  # fmt: skip
"""What `from_torch` takes besides; all but the first are those of `ampsim.Model`."""


SIZES_MAX: Final = 3  # a whole batch, and what is left of training and validation data
Dataset: TypeAlias = ArrayDataset | BatchList

TOLERANCE: Final = {"float64": 1e-9, "float32": 1e-3}
"""Of losses and gradients, relative to the largest (chosen: well above what rounding makes)."""

LOOP_IS_FIXED: Final = (
    "a loop over steps in Python, or of another length than a batch's, is fixed",
    "take nn.LSTM or nn.GRU, or give sequences of one length",
)


@dataclass(frozen=True, eq=False)
class TorchGraph:
    """Makes the graph of an imported module, and knows the module's state_dict."""

    plan: GraphPlan
    state: ModuleState
    method: Method | None  # the optimizer as it can be written; None of one that is not PyTorch's
    data: Any

    def __call__(self) -> Graph:
        """Make the graph."""
        return self.plan()

    @property
    def digest(self) -> str:
        """Tells what is made from what others are."""
        return self.plan.digest


@dataclass(frozen=True)
class TorchConfig:
    """Where an imported model came from."""

    module: str  # its class
    batch: int  # items of a batch, at most
    recorded: str = field(repr=False)  # what the module became, which tells runs from others'


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
    options["dtype"] = _dtype_of(module)
    dataset = dataset_of(data, options.pop("batch", len(inputs[0])), options["dtype"])
    method = method_of(optimizer, len(list(module.parameters())))
    _require_alike(inputs, dataset)
    try:
        return _imported(module, loss, (dataset, method), options)
    except Refusal as refusal:
        raise Refusal(f"{type(module).__name__}: {refusal}") from refusal.__cause__


def _imported(module: Any, loss: Loss, how: tuple[Dataset, Any], options: dict[str, Any]) -> Model:
    """The model of a module, compared with it."""
    dataset = how[0]
    try:
        made, classes = _graph(module, loss, how, options)
    except Branching as branching:
        made = torch_program(module, branching.args[0])
        if isinstance(dataset, BatchList):
            what = "sequences must have one length beside torch.scan"
            raise Refusal(what, "pad them") from None
        options |= {"make_program": made, "make_layers": made.layers}
        classes = made.classes
    _require_labels(dataset, classes)
    model = _model(type(module).__name__, made, how, options)
    _require_agreement(module, loss, model)
    return model


def _graph(
    module: Any, loss: Loss, how: tuple[Dataset, Any], options: dict[str, Any]
) -> tuple[TorchGraph, int]:
    """The graph of a module, and how many classes its loss tells apart; fill in its options."""
    data, method = how
    found, pump = _found(module, data, loss)
    interval = options.setdefault("min_update_interval", 1)
    steps = 1 if pump.length is None else round(np.mean([*map(pump.steps, data.train)]))
    intervals = {
        node: interval * (count or steps) for node, count in found.messages.items() if count != 1
    }
    options.setdefault("node_update_intervals", intervals)
    options["metric"] = "accuracy" if found.classes else "error"
    known = cast("Method", method) if isinstance(method, partial) else None
    made = TorchGraph(found.plan, module_state(module, found.layouts), known, data)
    options |= {"make_graph": made, "pump": pump}
    return made, found.classes


def _model(
    name: str, made: TorchGraph | TorchProgram, how: tuple[Dataset, Any], options: dict[str, Any]
) -> Model:
    """The model of what a module became, with the module's weights."""
    data, method = how
    state = made.state
    is_ragged = isinstance(data, BatchList)
    batch = max(len(one[0]) for one in examples(data)) if is_ragged else data.batch
    optimizer = cast("Method", method)() if isinstance(method, partial) else method
    options = {"make_graph": None, "pump": None, **options}
    config = TorchConfig(name, batch, made.digest)
    model = Model(name, config, make_data=data.for_run, optimizer=optimizer, **options)
    first = {
        ours: state.layouts[ours].ours(state.arrays).reshape(values.shape)
        for ours, values in model.parameters().items()
    }
    return model.set_parameters(first)


def _require_agreement(module: Any, loss: Loss, model: Model) -> None:
    """Check loss and gradients of a batch of each size against the module's, without dropout."""
    if isinstance(made := model.make_graph, TorchGraph):
        model = replace(model, make_graph=replace(made, plan=made.plan.changed(without_dropout)))
    batches, data = dict[Any, Arrays](), model.data(0)
    both = (data.batches(split, epoch=0, seed=0) for split in ("train", "valid"))
    for batch in itertools.chain(*both):
        batches.setdefault(tuple(one.shape for one in batch.arrays), batch.arrays)
        if len(batches) == SIZES_MAX:
            break
    for arrays in batches.values():
        rows = len(arrays[0])
        with user_code(f"{model.name} failed on a batch of {rows}", GraphError):
            expected = _theirs(module, loss, arrays)
        for what, value in expected.items():
            if not np.isfinite(value).all():
                raise Refusal(
                    f"{what} of a batch of {rows} is no finite number in PyTorch",
                    "add a small number before a sqrt, a log or a division",
                )
        found = _ours(model, arrays)
        largest = max(float(np.abs(one).max(initial=0)) for one in expected.values())
        for what, value in expected.items():
            if not np.allclose(found[what], value, 0, TOLERANCE[model.dtype] * largest):
                raise Refusal(
                    f"{what} of a batch of {rows} is not PyTorch's in evaluation",
                    "torch.export does not see hooks, a torch.autograd.Function, or the other side "
                    "of an if on self.training or on the batch's shape, and F.dropout needs "
                    "training=self.training; leave these out",
                )


def _theirs(module: Any, loss: Loss, arrays: Arrays) -> dict[str, np.ndarray]:
    torch = the_torch()
    *inputs, target = (torch.from_numpy(np.array(one)) for one in arrays)
    with modes_kept(module), torch.random.fork_rng([]), torch.enable_grad():
        module.eval()
        value = loss(module(*inputs), target)
        named = dict(module.named_parameters())
        gradients = torch.autograd.grad(value, [*named.values()], allow_unused=True)
    if idle := [name for name, one in zip(named, gradients, strict=True) if one is None]:
        raise Refusal(f"parameter {idle[0]} has no effect on the loss", "take it out of the module")
    found = {f"the gradient of {name}": one for name, one in zip(named, gradients, strict=True)}
    return {"the loss": value.detach().numpy(), **{k: one.numpy() for k, one in found.items()}}


def _ours(model: Model, arrays: Arrays) -> dict[str, np.ndarray]:
    """By a step of gradient descent with rate 1."""
    data = BatchList([arrays], [arrays])
    one = replace(model, make_data=data.for_run, optimizer=sgd(1.0))
    result = simulate(one, "tflops-1", "dataflow" if one.is_program_only else "sequential")
    before, after = to_torch(one), to_torch(result)
    found = {
        f"the gradient of {name}": (values.double() - after[name].double()).numpy()
        for name, values in before.items()
    }
    return {"the loss": np.array(result.epochs["loss"].iloc[0]), **found}


def _require_alike(inputs: tuple[Any, ...], data: Dataset) -> None:
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


def _require_labels(data: Dataset, classes: int) -> None:
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


def _dtype_of(module: Any) -> str:
    found = {str(one.dtype).removeprefix("torch.") for one in module.parameters()}
    if len(found) != 1 or not found <= {"float32", "float64"}:
        raise OptionError(
            f"parameters of {type(module).__name__} must all be float32 or all float64, got "
            f"{', '.join(sorted(found)) or 'none'}; call module.float() or module.double()"
        )
    return found.pop()


def _found(module: Any, data: Any, loss: Loss) -> tuple[Lowering, PumpPorts]:
    """What the module becomes, and the pump of a batch."""
    torch = the_torch()
    found: list[Lowering] = []
    batches = examples(data)
    for arrays in batches:
        rows = [np.repeat(one[:1], EXAMPLE_ROWS, axis=0) for one in arrays]
        tensors = [torch.from_numpy(np.ascontiguousarray(one)) for one in rows]
        found.append(imported(module, tensors, loss))
    if len(found) == 1:
        return found[0], PumpPorts(found[0].plan.ports)
    return found[0], _of_any_length(found, batches)


def _of_any_length(found: list[Lowering], batches: list[Arrays]) -> PumpPorts:
    """Make the first import, of two for different lengths, one for any; return its pump."""
    one, other = (each.plan for each in found)
    if len(one.ports) != len(other.ports) or len(one.calls) != len(other.calls):
        raise Refusal(*LOOP_IS_FIXED)
    ports, lengths = list[Port](), set[tuple[int, int]]()
    for mine, theirs in zip(one.ports, other.ports, strict=True):
        pairs = enumerate(zip(mine.shape, theirs.shape, strict=True))
        differing = {axis for axis, (a, b) in pairs if a != b}
        if differing and mine.array is None:
            raise Refusal(f"fixed array {mine.name} is as long as a batch", "make it an input")
        shape = ["steps" if axis in differing else it for axis, it in enumerate(mine.shape)]
        ports.append(replace(mine, shape=tuple(shape)))
        lengths |= {(cast("int", mine.array), axis) for axis in differing}
    steps = {tuple(arrays[array].shape[axis] for arrays in batches) for array, axis in lengths}
    if len(steps) != 1:
        what = f"batches differ in {len(steps)} lengths, and one may"
        raise Refusal(what, "pad all but one of them")
    plans = [each.changed(of_any_length).calls for each in (one, other)]
    for mine, theirs, *both in zip(one.calls, other.calls, *plans, strict=True):
        loops = zip(mine.arguments, theirs.arguments, strict=False)
        if {(a.length, b.length) for a, b in loops if isinstance(a, LoopSteps)} - steps:
            raise Refusal(*LOOP_IS_FIXED)
        if both[0] != both[1]:
            what = f"batches differ in length, and {mine.name} is made for one"
            raise Refusal(what, "use -1, or give sequences of one length", mine.place)
    found[0].plan = GraphPlan(one.name, tuple(ports), plans[0])
    counts = zip(found[0].messages.items(), found[1].messages.values(), strict=True)
    found[0].messages = {node: count * (count == other) for (node, count), other in counts}
    return PumpPorts(found[0].plan.ports, min(lengths))


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
    return OrderedDict(
        (name, torch.from_numpy(np.array(one, dtype=made.state.arrays[name].dtype)))
        for name, one in made.state.theirs(model.parameters()).items()
    )
