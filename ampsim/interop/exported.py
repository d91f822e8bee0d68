"""A PyTorch module, exported with its loss, becomes a plan of a graph.

Source: `torch.export.export` of PyTorch 2.13, not strict, not decomposed: an LSTM stays one
operation. It runs the module once with example inputs and records what it does; how often a loop
over steps goes round, and the way through a structure, are then fixed.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import itertools
import logging
import operator
import random
import traceback
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, cast

import numpy as np

from ampsim.errors import AmpsimError, OptionError
from ampsim.interop.control_flow import CONSTRUCTS, Branching
from ampsim.interop.lowering import (
    EXAMPLE_ROWS,
    LOSS,
    OWN_NODE,
    Arguments,
    Lowering,
    MissingRule,
    Refusal,
    Repeated,
    hint,
    is_tensor,
    name_of,
    place_of,
    repeated,
    require_free,
    shape_of,
    short,
)
from ampsim.interop.operators import REMEDIES, RULES
from ampsim.interop.parameters import specs_of
from ampsim.user_code import Place, is_own, text_of
from ampsim.user_code import place_of as place_of_error

Loss = Callable[..., Any]

TOLD_MAX: Final = 160  # characters of an error of PyTorch's that are told (chosen: a line or two)

FILLING: Final = ("full_like", "new_full", "new_ones", "new_zeros", "ones_like", "zeros_like")
"""Operators that read no numbers of their tensor."""


def the_torch() -> Any:
    """PyTorch.

    Raises:
        OptionError: it is not installed.
    """
    try:
        import torch
    except ImportError:
        raise OptionError(
            "models from PyTorch need PyTorch, which is not installed; "
            "pip install 'ampsim[torch]', or pip install torch"
        ) from None
    return torch


def imported(module: Any, loss: Loss, batch: Sequence[np.ndarray]) -> Lowering:
    """Export a module with its loss, and plan a graph of it; the target is last in the `batch`.

    What the table of operators lacks is decomposed by PyTorch, which also makes what changes a
    tensor in place into what gives a new one. What cannot be is refused.
    """
    with _recording(module):
        program = _exported(module, loss, batch)
    if any(_has_branches(one) and one.target.name() in CONSTRUCTS for one in program.graph.nodes):
        raise Branching(program)
    try:
        return _lowered(module, program, loss, {})
    except MissingRule as missing:
        try:
            with _recording(module):
                table = the_torch().export.default_decompositions()
                for target in [*table]:  # what has a rule, or a remedy of its own, stays whole
                    if name_of(target) in RULES or name_of(target).partition(".")[0] in REMEDIES:
                        table.pop(target)
                decomposed = program.run_decompositions(table)
        except Refusal:
            raise missing from None
        names: dict[str, list[str]] = {}
        for one in program.graph.nodes:
            if hasattr(one.target, "_schema") and name_of(one.target) not in RULES:
                names.setdefault(one.meta.get("stack_trace", ""), []).append(short(one))
        return _lowered(module, decomposed, loss, names)


def _lowered(module: Any, program: Any, loss: Loss, names: Mapping[str, list[str]]) -> Lowering:
    """Lower a program; `names` are of its operations before it was decomposed, by their lines."""
    program.graph.eliminate_dead_code(_is_kept)
    low = Lowering(module, program)
    if (code := getattr(loss, "__code__", None)) is not None and is_own(code.co_filename):
        low.loss_place = str(Place(code.co_filename, code.co_firstlineno))
    *inputs, target = [one for one, spec in specs_of(program) if spec.kind.name == "USER_INPUT"]
    given = inspect.signature(module.forward).parameters.values()
    called = [one.name for one in given if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    wanted = [*itertools.islice(itertools.cycle(called or ["input"]), len(inputs)), "target"]
    for place, (operation, port) in enumerate(zip([*inputs, target], wanted, strict=True)):
        if operation.users:
            shape = tuple("rows" if one is None else one for one in shape_of(operation))
            low.values[operation.name] = low.port(low.free(port), ("rows", *shape[1:]), array=place)
    steps = [one for one in program.graph.nodes if one.op == "call_function"]
    for operation in sorted(steps, key=_has_branches, reverse=True):  # which are refused
        low.current = operation
        _lower(low, operation, names)
    require_free(program)
    (result,) = program.graph_signature.user_outputs
    if low.values.get(result) is not LOSS:
        raise Refusal(
            "the loss ends in another operation than a cross-entropy or a squared error",
            "take nn.CrossEntropyLoss(), nn.NLLLoss() after log_softmax, or nn.MSELoss()",
        )
    low.finish()
    return low


def _exported(module: Any, loss: Loss, batch: Sequence[np.ndarray]) -> Any:
    """Run `torch.export` on tensors of its own: one that fails leaves its marks on them."""
    torch = the_torch()

    class ModuleWithLoss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()  # pyright: ignore[reportUnknownMemberType]  # PyTorch's
            self.module = module
            self.loss = loss

        def forward(self, *given: Any) -> Any:
            return self.loss(self.module(*given[:-1]), given[-1])

    copies = tuple(torch.from_numpy(np.repeat(one[:1], EXAMPLE_ROWS, axis=0)) for one in batch)
    rows = tuple({0: torch.export.Dim.AUTO} for _ in batch)
    before = random.getstate(), (*np.random.get_state(),)[2:]  # noqa: NPY002  # users draw from it
    cache = {"fake_tensor_cache_enabled": False}  # shapes recur too seldom for it to pay
    with torch._dynamo.config.patch(cache if hasattr(torch._dynamo.config, *cache) else {}):
        program = torch.export.export(ModuleWithLoss(), copies, dynamic_shapes=(rows,))
    if (random.getstate(), (*np.random.get_state(),)[2:]) != before:  # noqa: NPY002  # likewise
        raise Refusal(
            "random numbers are drawn in Python or NumPy, and the first would stand for all",
            "take nn.Dropout, or draw them with the data and make them an input",
        )
    return program


@contextlib.contextmanager
def _recording(module: Any) -> Generator[None]:
    """Have a module in training mode, and what PyTorch cannot record told in a line."""
    was_disabled, quiet = logging.root.manager.disable, io.StringIO()
    try:
        with (
            # of attributes that nn.LSTM sets, and PyTorch's account of what cannot be recorded
            warnings.catch_warnings(action="ignore"),
            modes_kept(module),
            contextlib.redirect_stdout(quiet),
            contextlib.redirect_stderr(quiet),
        ):
            if not module.training:
                module.train()
            logging.disable(logging.ERROR)
            yield
    except AmpsimError:
        raise
    except Exception as error:
        raise _failed(error) from error
    finally:
        logging.disable(was_disabled)


@contextlib.contextmanager
def modes_kept(module: Any) -> Generator[None]:
    """Leave each part of a module in training or evaluation, as it was."""
    modes = [(one, one.training) for one in module.modules()]
    try:
        yield
    finally:
        for one, is_training in modes:
            one.training = is_training


def _failed(error: Exception) -> Refusal:
    """The refusal of a module that `torch.export` cannot record."""
    place, kind = str(place_of_error(error) or ""), type(error).__name__
    frames = [frame for frame, _line in traceback.walk_tb(error.__traceback__)]
    if "_detect_is_causal_mask" in [frame.f_code.co_name for frame in frames]:
        what = "PyTorch looks whether a mask is causal, at its numbers"
        return Refusal(what, "say so beside it, is_causal=True (of a decoder tgt_is_causal)", place)
    if "DataDependent" in kind or "data-dependent" in str(error):
        return Refusal(
            "control flow reads values",
            "compute both ways and choose with a product, take torch.cond, or write a model file "
            "with Cond (docs/own-model.md)", place,
        )  # fmt: skip
    if "HigherOrderOp" in kind:
        return Refusal(
            "torch.cond, while_loop or scan cannot be recorded",
            "let both branches, and each step of a loop, give new tensors (x.clone(), not x) of "
            "the same shapes and types, and change none in place", place,
        )  # fmt: skip
    if any(frame.f_locals.get("batch_sizes") is not None for frame in frames):
        return Refusal("a sequence is packed", REMEDIES["lstm"], place)
    if "fake tensor in the exported program constant" in str(error):
        what = "a tensor is read that is no parameter, buffer or input, such as .data of one"
        return Refusal(what, "leave .data out, or make it a buffer (register_buffer)", place)
    said = text_of(error)
    said = said if len(said) <= TOLD_MAX else f"{said[:TOLD_MAX]}..."
    return Refusal(
        f"torch.export cannot record it{place and f' ({place})'}: {kind}: {said}",
        "try loss(module(inputs), target) on a batch of the data, with tensors all the way",
    )


def _is_kept(operation: Any) -> bool:
    """Tell whether an operation matters though nothing reads it."""
    return operation.op in ("placeholder", "output") or _is_in_place(operation)


def _is_in_place(operation: Any) -> bool:
    schema = getattr(operation.target, "_schema", None)
    return schema is not None and schema.is_mutable and short(operation) != "detach_"


def require_trainable(module: Any) -> None:
    """Refuse parameters that are not trained here, and a state that is no tensor of numbers."""
    for name, value in {**dict(module.named_buffers()), **module.state_dict()}.items():
        if not hasattr(value, "detach"):
            what = f"{name} in the state_dict is no tensor, but {type(value).__name__}"
            raise Refusal(what, "leave get_extra_state out")
        if "float8" in str(value.dtype) or value.dtype == the_torch().bfloat16:
            raise Refusal(f"buffer {name} is of {value.dtype}", "let it be of float32")
    for parameter, values in module.named_parameters():
        if not values.requires_grad:
            raise Refusal(
                f"{parameter} does not require a gradient, and ampsim trains every parameter",
                "let it learn, make a matrix a buffer, or look words up in the data",
            )
        if values._backward_hooks or values._post_accumulate_grad_hooks:
            what = f"{parameter} has a hook on its gradient, which is not taken over"
            raise Refusal(what, "leave register_post_accumulate_grad_hook and register_hook out")
        if str(values.device) != "cpu":
            raise Refusal(f"{parameter} is on {values.device}", "call module.cpu() first")


def _lower(low: Lowering, operation: Any, names: Mapping[str, list[str]]) -> None:
    target = operation.target
    if target is operator.getitem:
        low.values[operation.name] = low.values[operation.args[0].name][operation.args[1]]
        return
    if _has_branches(operation):
        held = [one.target for one in operation.all_input_nodes if one.op == "get_attr"]
        owner = operation.graph.owning_module
        within = [one for name in held for one in getattr(owner, name).graph.nodes]
        low.current = next(filter(place_of, within), operation)
        raise low.refused(
            f"no rule for torch.{target.name()}", REMEDIES.get(target.name(), OWN_NODE)
        )
    if not hasattr(target, "_schema") or short(operation).startswith(("sym_", "_assert")):
        return  # arithmetic on extents, which shapes tell
    own = short(operation)
    before = names.get(operation.meta.get("stack_trace", ""), [own])
    said = low.said = own if own in before else before[0]
    remedy = REMEDIES.get(said.rstrip("_"))
    if _is_fixed(low, operation) and not _is_in_place(operation):
        low.values[operation.name] = _computed(low, operation)
    elif rule := RULES.get(name_of(target)):
        low.values[operation.name] = rule(Arguments(low, operation))
    elif said.endswith("_") and not said.startswith("_"):
        usual = "make a new one, such as with torch.cat or x = x + y"
        raise low.refused(f"{said} changes a tensor in place", remedy or usual, MissingRule)
    else:
        if not remedy and (remedy := REMEDIES.get(own)) and own != said:
            said = f"{own}, a part of {said}"
        kind = Refusal if remedy else MissingRule
        raise low.refused(f"ampsim has no node for {said}", remedy or OWN_NODE, kind)


def _has_branches(operation: Any) -> bool:
    """Tell whether it is torch.cond, while_loop or scan, with programs of their own."""
    return isinstance(operation.target, the_torch()._ops.HigherOrderOperator)


def _is_fixed(low: Lowering, operation: Any) -> bool:
    """Tell whether an operation gives the same for every item of every batch."""
    if not is_tensor(operation) or shape_of(operation).count(None) > 1:
        return False
    if the_torch().Tag.nondeterministic_seeded in operation.target.tags:
        return False
    read = filter(is_tensor, operation.all_input_nodes)
    known = all(isinstance(low.values.get(one.name), np.ndarray | Repeated) for one in read)
    return known or short(operation) in FILLING


def _computed(low: Lowering, operation: Any) -> Any:
    """Compute now what is the same for every batch, with one as large as the example."""
    torch = the_torch()

    def real(one: Any) -> Any:
        value: Any = low.values.get(one.name)
        if isinstance(value, Repeated):
            rows = EXAMPLE_ROWS * value.times
            return torch.from_numpy(np.repeat(value.values, rows, axis=value.axis))
        if isinstance(value, np.ndarray):
            return torch.from_numpy(np.array(cast("np.ndarray[Any, Any]", value)))
        found = one.meta["val"]
        if is_tensor(one):
            return torch.empty([*map(hint, found.shape)], dtype=found.dtype)
        return hint(found)

    arguments, options = torch.fx.map_arg((operation.args, operation.kwargs), real)
    made = operation.target(*arguments, **options).detach().numpy()
    shape = shape_of(operation)
    return repeated(made, shape.index(None)) if None in shape else made
