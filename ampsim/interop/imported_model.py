"""The model of a PyTorch module, and its graph, which knows what it came from."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias, cast

import numpy as np

from ampsim.data import ArrayDataset
from ampsim.errors import OptionError
from ampsim.interop.control_flow import TorchProgram
from ampsim.interop.exported import Loss, imported
from ampsim.interop.loops import LoopSteps
from ampsim.interop.lowering import Lowering, Refusal
from ampsim.interop.parameters import ModuleState, module_state
from ampsim.interop.plan import GraphPlan, Port, of_any_length
from ampsim.interop.training import Arrays, BatchList, Method, examples
from ampsim.ir import Graph
from ampsim.optim import Optimizer
from ampsim.study import Model, Result

Dataset: TypeAlias = ArrayDataset | BatchList

OPTIONS: Final = (
    "batch", "error_scale", "error_unit", "items", "min_update_interval", "node_update_intervals",
    "target",
)  # fmt: skip
"""What an import takes besides; all but the first are those of `ampsim.Model`."""

TOLERANCE: Final = {"float64": 1e-9, "float32": 1e-3}
"""Of a loss or a gradient, relative to its own largest number (chosen: well above rounding)."""

LOOP_IS_FIXED: Final = (
    "a loop over steps in Python, or of another length than a batch's, is fixed",
    "take nn.LSTM or nn.GRU, or give sequences of one length",
)


@dataclass(frozen=True, eq=False)
class ImportedGraph:
    """Makes the graph of what was imported, and knows the state that it had."""

    plan: GraphPlan
    state: ModuleState
    method: Method | Optimizer  # the optimizer; one of PyTorch's as it can be written
    data: Dataset
    classes: int  # that the loss tells apart; 0 of a regression

    def __call__(self) -> Graph:
        """Make the graph."""
        return self.plan()

    @property
    def digest(self) -> str:
        """Tells what is made from what others are."""
        return self.plan.digest


@dataclass(frozen=True)
class ImportConfig:
    """The source of an imported model."""

    module: str  # its class
    batch: int  # items of a batch, at most
    recorded: str = field(repr=False)  # what the module became, which tells runs from others'


def imported_graph(
    module: Any, loss: Loss, how: tuple[Dataset, Method | Optimizer], options: dict[str, Any]
) -> ImportedGraph:
    """The graph of a module with its loss; fill in its options."""
    data, method = how
    found = _found(module, loss, data)
    plan, interval = found.plan, options.setdefault("min_update_interval", 1)
    steps = 1 if plan.length is None else round(np.mean([*map(plan.steps, data.train)]))
    intervals = {
        node: interval * (count or steps) for node, count in found.messages.items() if count != 1
    }
    options.setdefault("node_update_intervals", intervals)
    options["metric"] = "accuracy" if found.classes else "error"
    made = ImportedGraph(plan, module_state(module, found.layouts), method, data, found.classes)
    options |= {"make_graph": made, "pump": plan.pump}
    return made


def imported_model(
    name: str, made: ImportedGraph | TorchProgram, how: tuple[Dataset, Method | Optimizer],
    options: dict[str, Any],
) -> Model:  # fmt: skip
    """The model of what was imported, with its weights; labels are checked."""
    (data, method), state = how, made.state
    _require_labels(data, made.classes)
    if made.classes and "error_scale" in options:
        raise OptionError("error_scale has no effect on a classifier's accuracy; leave it out")
    batch = data.batch if isinstance(data, ArrayDataset) else max(len(a[0]) for a in data.train)
    optimizer = method() if isinstance(method, partial) else method
    options = {"make_graph": None, "pump": None, **options}
    config = ImportConfig(name, batch, made.digest)
    model = Model(name, config, make_data=data.for_run, optimizer=optimizer, **options)
    first = {
        ours: state.ours(ours).reshape(values.shape) for ours, values in model.parameters().items()
    }
    return model.set_parameters(first)


def state_now(result: Result | Model) -> dict[str, np.ndarray]:
    """The weights of a run, or a model, under the names and in the shapes that they came with.

    Raises:
        OptionError: the model was not imported.
    """
    model: Any = getattr(result, "model", result)
    made = getattr(model, "make_graph", None) or getattr(model, "make_program", None)
    if not isinstance(made, ImportedGraph | TorchProgram):
        raise OptionError(
            "to_torch takes a result, or a model, that came from ampsim.from_torch, got "
            f"{type(result).__name__}; a result's numbers are in result.model.parameters(), and "
            "kept runs and forecasts have none"
        )
    state = made.state.theirs(model.parameters())
    return {name: np.array(one, made.state.arrays[name].dtype) for name, one in state.items()}


def only_dtype(module: Any) -> str:
    """The one type of numbers, single or double precision, that all parameters have."""
    dtypes = {str(one.dtype).removeprefix("torch.") for one in module.parameters()}
    if len(dtypes) != 1 or not dtypes <= {*TOLERANCE}:
        raise OptionError(
            f"parameters of {type(module).__name__} must all be float32 or all float64, got "
            f"{', '.join(sorted(dtypes)) or 'none'}; call module.float() or module.double()"
        )
    return dtypes.pop()


def require_alike(inputs: tuple[Any, ...], data: Dataset) -> None:
    """Check that data are what the example is: inputs, and a target."""
    count = len(inputs)
    arrays = data.train[0] if isinstance(data, BatchList) else data.train
    if len(arrays) not in (count, count + 1):
        raise OptionError(
            f"data must have an array for each of the {count} example inputs and one for the "
            f"target, got {len(arrays)}; give (inputs, target)"
        )
    is_ragged = len(examples(data)) > 1
    for place, (example, array) in enumerate(zip(inputs, arrays, strict=False)):
        expected, got = tuple(example.shape[1:]), array.shape[1:]
        is_alike = len(expected) == len(got) if is_ragged else expected == got
        if not is_alike or not len(array):
            raise OptionError(
                f"array {place} of data must have items of shape {expected}, as the example has, "
                f"got {len(array)} of {got}"
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


def _found(module: Any, loss: Loss, data: Dataset) -> Lowering:
    """The import of a module; for any length, where batches differ in it."""
    batches = examples(data)
    found = [imported(module, loss, each) for each in batches]
    if len(found) == 2:
        _make_of_any_length(found, batches, [*data.train, *data.valid])
    return found[0]


def _make_of_any_length(
    found: list[Lowering], batches: list[Arrays], every: Sequence[Arrays]
) -> None:
    """Make the first import, of two for different lengths, one for any that a batch has."""
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
    used = [port.array for port in ports if port.array is not None]
    axes = [[it for n in used for it in (arrays[n].ndim, *arrays[n].shape[1:])] for arrays in every]
    unlike = {column for column in itertools.zip_longest(*axes) if len({*column}) > 1}
    if len(unlike) != 1 or not lengths:
        what = f"batches differ in {len(unlike) if lengths else 0} lengths, and one may"
        raise Refusal(what, "pad all but one of them")
    steps = {tuple(arrays[array].shape[axis] for arrays in batches) for array, axis in lengths}
    plans = [each.changed(of_any_length).calls for each in (one, other)]
    for mine, theirs, *both in zip(one.calls, other.calls, *plans, strict=True):
        loops = zip(mine.arguments, theirs.arguments, strict=False)
        if {(a.length, b.length) for a, b in loops if isinstance(a, LoopSteps)} - steps:
            raise Refusal(*LOOP_IS_FIXED)
        if both[0] != both[1]:
            what = f"batches differ in length, and {mine.name} is made for one"
            remedy = "give sequences of one length, or where a view names it -1"
            raise Refusal(what, remedy, mine.place)
    found[0].plan = GraphPlan(one.name, tuple(ports), plans[0], min(lengths))
    counts = zip(found[0].messages.items(), found[1].messages.values(), strict=True)
    found[0].messages = {node: count * (count == other) for (node, count), other in counts}
