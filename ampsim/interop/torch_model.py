"""A PyTorch module becomes a model, `from_torch`; what it learned a state_dict, `to_torch`.

What was made is compared with PyTorch on batches of the data before anyone relies on it, for
`torch.export` records operations. It sees no hook, no backward pass of a `torch.autograd.Function`,
and one side alone of a branch on the shape of the batch, or on `self.training`.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from ampsim.errors import GraphError, OptionError, UnknownNameError, one_of
from ampsim.interop.control_flow import Branching, torch_program
from ampsim.interop.exported import Loss, modes_kept, require_trainable, the_torch
from ampsim.interop.imported_model import (
    OPTIONS,
    TOLERANCE,
    Dataset,
    ImportedGraph,
    imported_graph,
    imported_model,
    only_dtype,
    require_alike,
    state_now,
)
from ampsim.interop.lowering import Refusal
from ampsim.interop.plan import without_dropout
from ampsim.interop.training import Arrays, BatchList, Method, dataset_of, examples, method_of
from ampsim.optim import Optimizer, sgd
from ampsim.study import Model, Result, simulate
from ampsim.text import short
from ampsim.user_code import user_code

if TYPE_CHECKING:
    import torch

SIZES_MAX: Final = 3  # a whole batch, and what is left of training and validation data

UNSEEN: Final = (
    "torch.export does not see hooks, a torch.autograd.Function, or the other side of an if on "
    "self.training or on the batch's shape, takes two states of a scan that start as one tensor "
    "for one (give z and z.clone()), and F.dropout needs training=self.training; leave these out"
)
"""Why PyTorch gives something else than what was recorded, and what to try."""


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
            DataLoader or list of batches, which may differ in size and length of sequences.
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
    if not isinstance(module, torch.nn.Module) or isinstance(module, torch.jit.ScriptModule):
        raise OptionError(
            f"module must be a torch.nn.Module, got {type(module).__name__}; try Net(), no jit"
        )
    is_one = not isinstance(example_inputs, tuple)
    inputs = (example_inputs,) if is_one else cast("tuple[Any, ...]", example_inputs)
    if not inputs or not all(isinstance(one, torch.Tensor) and one.ndim for one in inputs):
        raise OptionError(
            "example_inputs must be a tensor, or a tuple of them, with the batch first, got "
            f"{short(example_inputs)}; of a tree or graph import the cells alone (docs/pytorch.md)"
        )
    if not callable(loss) or isinstance(loss, type):
        raise OptionError(
            "loss must be a function of output and target, such as nn.CrossEntropyLoss(), got "
            f"{short(loss)}"
        )
    if unknown := {*options} - {*OPTIONS}:
        raise UnknownNameError(one_of("option", min(unknown), OPTIONS))
    options["dtype"] = only_dtype(module)
    dataset = dataset_of(data, options.pop("batch", None), options["dtype"], len(inputs[0]))
    try:
        require_trainable(module)
        method = method_of(optimizer, [*module.parameters()])
        require_alike(inputs, dataset)
        return _imported(module, loss, (dataset, method), options)
    except Refusal as refusal:
        raise Refusal(f"{type(module).__name__}: {refusal}") from refusal.__cause__


def _imported(
    module: Any, loss: Loss, how: tuple[Dataset, Method | Optimizer], options: dict[str, Any]
) -> Model:
    """The model of a module, compared with it."""
    try:
        made = imported_graph(module, loss, how, options)
    except Branching as branching:
        made = torch_program(module, branching.args[0])
        if len(examples(how[0])) > 1:
            raise Refusal("sequences must have one length beside torch.scan", "pad them") from None
        options |= {"make_program": made, "make_layers": made.layers}
    model = imported_model(type(module).__name__, made, how, options)
    _require_agreement(model, module, loss)
    return model


def _require_agreement(model: Model, module: Any, loss: Loss) -> None:
    """Check what a batch of each size gives against what it gives in PyTorch, without dropout."""
    if isinstance(made := model.make_graph, ImportedGraph):
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
                    "take NaN out of the data, or add a small number before a sqrt, a log or a /",
                )
        found = _ours(model, arrays)
        sizes = np.array([np.abs(one).max(initial=0) for one in expected.values()])
        weight = max(np.abs(one).max(initial=0) for one in model.parameters().values())
        margins = TOLERANCE[model.dtype] * (sizes + 0.01 * sizes[1:].max())  # chosen
        margins += 4 * np.finfo(model.dtype).eps * (sizes[0] + weight)  # of rounding alone
        for (what, value), margin in zip(expected.items(), margins, strict=True):
            if not np.allclose(found[what], value, 0, margin):
                raise Refusal(f"{what} of a batch of {rows} is not PyTorch's in evaluation", UNSEEN)


def _ours(model: Model, arrays: Arrays) -> dict[str, np.ndarray]:
    """Read our gradients off a step of gradient descent with rate 1."""
    data = BatchList([arrays], [arrays])
    one = replace(model, make_data=data.for_run, optimizer=sgd(1.0), error_scale=1.0)
    result = simulate(one, "tflops-1", "dataflow" if one.is_program_only else "sequential")
    before, after = (state_now(each) for each in (one, result))
    with np.errstate(invalid="ignore"):  # of infinities in a mask, which stay
        found = {
            f"the gradient of {name}": values.astype(float) - after[name].astype(float)
            for name, values in before.items()
        }
    return {"the loss": np.array(result.epochs["loss"].iloc[0]), **found}


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
    return OrderedDict((name, torch.from_numpy(one)) for name, one in state_now(result).items())
