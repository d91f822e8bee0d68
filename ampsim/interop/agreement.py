"""What was imported is compared with PyTorch on batches of the data, before anyone relies on it.

`torch.export` records operations. It sees no hook, no backward pass of a `torch.autograd.Function`,
and one side alone of a branch on the shape of the batch, or on `self.training`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np

from ampsim.interop.batches import Arrays, BatchList
from ampsim.interop.exported import Loss, Refusal, modes_kept, the_torch
from ampsim.optim import sgd
from ampsim.study import Model, simulate
from ampsim.user_code import user_code

StateOf: TypeAlias = Callable[[Any], Mapping[str, Any]]

SIZES_MAX: Final = 3  # a whole batch, and what is left of training and validation data
TOLERANCE: Final = {"float64": 1e-9, "float32": 1e-3}
"""Of losses and gradients, relative to the largest (chosen: well above what rounding makes)."""


def require_agreement(module: Any, loss: Loss, model: Model, state_of: StateOf) -> None:
    """Check loss and gradients of a batch of each size against the module's, without dropout.

    Args:
        module: in any mode, which it keeps.
        loss: of output and target.
        model: of the module, with a graph that drops nothing, and its first weights.
        state_of: gives the state_dict of a model or result.

    Raises:
        GraphError: they differ, or the module fails.
    """
    for arrays in _of_each_size(model):
        rows = len(arrays[0])
        with user_code(f"{model.name} failed on a batch of {rows}", Refusal):
            expected = _theirs(module, loss, arrays)
        found = _ours(model, arrays, state_of)
        largest = max(float(np.abs(one).max(initial=0)) for one in expected.values())
        for what, value in expected.items():
            if not np.allclose(found[what], value, 0, TOLERANCE[model.dtype] * largest):
                raise Refusal(
                    f"{model.name}: {what} of a batch of {rows} is not PyTorch's in evaluation; "
                    "torch.export does not see hooks, a torch.autograd.Function, or the other side "
                    "of an if on self.training or on the batch's shape, and F.dropout needs "
                    "training=self.training; leave these out"
                )


def _of_each_size(model: Model) -> list[Arrays]:
    """The first batch of each size, read until there are enough."""
    batches, data = dict[Any, Arrays](), model.data(0)
    for split in ("train", "valid"):
        for batch in data.batches(split, epoch=0, seed=0):
            batches.setdefault(tuple(one.shape for one in batch.arrays), batch.arrays)
            if len(batches) == SIZES_MAX:
                return [*batches.values()]
    return [*batches.values()]


def _theirs(module: Any, loss: Loss, arrays: Arrays) -> dict[str, np.ndarray]:
    torch = the_torch()
    *inputs, target = (torch.from_numpy(np.array(one)) for one in arrays)
    with modes_kept(module), torch.random.fork_rng([]), torch.enable_grad():
        module.eval()
        value = loss(module(*inputs), target)
        named = dict(module.named_parameters())
        gradients = torch.autograd.grad(value, [*named.values()])
    found = {f"the gradient of {name}": one for name, one in zip(named, gradients, strict=True)}
    return {"the loss": value.detach().numpy(), **{k: one.numpy() for k, one in found.items()}}


def _ours(model: Model, arrays: Arrays, state_of: StateOf) -> dict[str, np.ndarray]:
    """By a step of gradient descent with rate 1."""
    data = BatchList([arrays], [arrays])
    one = replace(model, make_data=data.for_run, optimizer=sgd(1.0))
    schedule = "dataflow" if one.is_program_only else "sequential"
    result = simulate(one, "tflops-1", schedule)
    before, after = state_of(one), state_of(result)
    found = {
        f"the gradient of {name}": (values - after[name]).numpy() for name, values in before.items()
    }
    return {"the loss": np.array(result.epochs["loss"].iloc[0]), **found}
