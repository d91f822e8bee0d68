"""A module with `torch.cond`, `while_loop` or `scan` becomes a program, which dataflow trains.

`torch.export` keeps each as one operation with programs of its own. It becomes the construct of
`ampsim.flow` of that name, and what stands around it the operators of `RULES`. Parameters stay as
PyTorch has them. Of a branch that is not taken the gradients are zeros, as in PyTorch.
"""

from __future__ import annotations

import hashlib
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from ampsim import flow
from ampsim.dataflow.operators.shape import filled
from ampsim.errors import AmpsimError
from ampsim.interop.lowering import (
    WRAPPED,
    Refusal,
    fixed_in,
    place_of,
    require_free,
    short,
    specs_of,
)
from ampsim.ir import ParameterizedNode
from ampsim.ir.node import Shape

CONSTRUCTS: Final = ("cond", "while_loop", "scan")
REMEDY: Final = "take it out, or write the module without torch.cond, while_loop and scan"


class Like(NamedTuple):
    """Shape, with None for the rows of a batch, and type of a tensor."""

    shape: tuple[int | None, ...]
    dtype: str


class ValueOf(NamedTuple):
    """The value of an operation, by its name."""

    name: str


class TorchOperation(NamedTuple):
    """One operation: what it reads, of which `first` is a tensor or none, and what it gives."""

    name: str
    rule: str
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    first: Like | None
    gives: Like | None
    place: str

    @property
    def lengths(self) -> tuple[int | None, ...]:
        """The shape of the first tensor that it reads."""
        return () if self.first is None else self.first.shape

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape of what it gives."""
        return () if self.gives is None else self.gives.shape

    def axes(self, given: Any = None) -> list[int]:
        """Axes of the first tensor that it reads, all unless given, counted from the first."""
        every = range(len(self.lengths))
        return list(every) if given is None else [every[one] for one in np.atleast_1d(given)]

    def length(self, axis: int) -> int:
        """The length of an axis that is not the batch's."""
        found = self.lengths[axis]
        if found is None:
            raise self.refused("takes the rows of a batch apart")
        return found

    def refused(self, why: str, remedy: str = REMEDY) -> Refusal:
        """Say in a line that it cannot be."""
        return Refusal(f"{self.rule} {why}{self.place and f' ({self.place})'}; {remedy}")


class Recorded(NamedTuple):
    """An exported program, or one within it, as plain data."""

    inputs: tuple[str, ...]
    operations: tuple[TorchOperation, ...]
    outputs: Any


def _recorded(module: Any, rows: str) -> Recorded:
    """The record of a module of `torch.fx`; `rows` is what it calls the rows of a batch."""
    inputs, operations, held = list[str](), list[TorchOperation](), dict[str, Any]()
    outputs: Any = ()

    def plain(one: Any) -> Any:
        if hasattr(one, "op"):
            return held.get(one.name, ValueOf(one.name)) if _is_of_tensors(one) else None
        if isinstance(one, tuple | list):
            return tuple(map(plain, one))  # pyright: ignore[reportUnknownArgumentType]  # PyTorch's
        return one if isinstance(one, bool | int | float | str) else None

    for one in module.graph.nodes:
        if one.op == "placeholder":
            inputs.append(one.name)
        elif one.op == "get_attr":
            found = getattr(module, one.target)
            is_program = hasattr(found, "graph")
            held[one.name] = _recorded(found, rows) if is_program else found.detach().numpy()
        elif one.op == "output":
            outputs = plain(one.args[0])
        elif _is_of_tensors(one):
            rule = "getitem" if one.target is operator.getitem else short(one)
            told = {name: plain(each) for name, each in one.kwargs.items()}
            told = {name: each for name, each in told.items() if each not in (None, False)}
            first, gives = (
                _like(getattr(each, "meta", {}).get("val"), rows)
                for each in ((*one.args, 0)[0], one)
            )
            arguments = plain(one.args)
            made = TorchOperation(one.name, rule, arguments, told, first, gives, place_of(one))
            operations.append(made)
    return Recorded(tuple(inputs), tuple(operations), outputs)


def _is_of_tensors(one: Any) -> bool:
    """Whether an operation is not of extents, which shapes tell."""
    is_extent = short(one).startswith(("sym_", "_assert", "<"))
    return one.op != "call_function" or one.target is operator.getitem or not is_extent


def _like(value: Any, rows: str) -> Like | None:
    """What is known of a tensor; None of anything else."""
    if not hasattr(value, "shape"):
        return None
    for one in value.shape:
        if not isinstance(one, int) and str(one) != rows:
            raise Refusal(f"an extent is {one}, and only the rows of a batch may vary; {REMEDY}")
    shape = tuple(one if isinstance(one, int) else None for one in value.shape)
    return Like(shape, str(value.dtype).removeprefix("torch."))


# --- what PyTorch's operators are here


def _same(at: TorchOperation, x: Any, *others: Any) -> Any:
    return x


def _shaped(at: TorchOperation, x: Any, *others: Any) -> flow.Tensor:
    return flow.reshape(x, [-1 if one is None else one for one in at.shape])


def _affine(at: TorchOperation, x: Any, weight: Any, bias: Any = None) -> flow.Tensor:
    product = flow.matmul(flow.reshape(x, (-1, weight.shape[1])), flow.transpose(weight))
    product = product if bias is None else product + bias
    return _shaped(at, product) if len(at.shape) > 2 else product


def _arithmetic(of: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def rule(at: TorchOperation, x: Any, y: Any) -> Any:
        gives = at.gives
        if gives is not None and gives.dtype.startswith("float"):
            x, y = (
                flow.cast(one, gives.dtype) if getattr(one, "is_float", True) is False else one
                for one in (x, y)
            )
        return of(x, y)

    return rule


def _total(at: TorchOperation, x: Any, axes: Any = None, keep: bool = False) -> flow.Tensor:
    for axis in sorted(at.axes(axes), reverse=True):
        x = flow.sum(x, axis)
    return _shaped(at, x) if keep else x


def _mean(at: TorchOperation, x: Any, axes: Any = None, keep: bool = False) -> flow.Tensor:
    total = _total(at, x, axes, keep)
    for axis in at.axes(axes):
        known = at.lengths[axis]
        total /= flow.cast(flow.length(x, axis), x.dtype) if known is None else float(known)
    return total


def _cut(at: TorchOperation, x: Any, axis: int = 0, first: Any = None, last: Any = None) -> Any:
    (axis,) = at.axes(axis)
    if not first and (last is None or last >= 1 << 62):
        return x
    first, last, _step = slice(first, last).indices(at.length(axis))
    return flow.cut(x, first, last, axis)


def _select(at: TorchOperation, x: Any, axis: int, index: int) -> flow.Tensor:
    (axis,) = at.axes(axis)
    place = range(at.length(axis))[index]
    return _shaped(at, flow.cut(x, place, place + 1, axis))


def _joined(at: TorchOperation, parts: Any, axis: int = 0) -> flow.Tensor:
    return flow.concat(parts, range(len(at.shape))[axis])


def _permuted(at: TorchOperation, x: Any, axes: Any) -> flow.Tensor:
    return flow.permute(x, tuple(at.axes(axes)))


def _exchanged(at: TorchOperation, x: Any, *pair: int) -> flow.Tensor:
    axes, (first, second) = at.axes(), at.axes(pair or (0, 1))
    axes[first], axes[second] = second, first
    return flow.permute(x, tuple(axes))


def _parts(count: int, gates: Any) -> list[flow.Tensor]:
    width = gates.shape[1] // count
    return [flow.cut(gates, place * width, (place + 1) * width) for place in range(count)]


def _lstm_cell(at: TorchOperation, x: Any, state: Any, *weights: Any) -> list[Any]:
    w_x, w_h, b_x, b_h = (*weights, None, None)[:4]
    gates = _affine(at, x, w_x, b_x) + _affine(at, state[0], w_h, b_h)
    i, f, g, o = _parts(4, gates)
    c = flow.sigmoid(f) * state[1] + flow.sigmoid(i) * flow.tanh(g)
    return [flow.sigmoid(o) * flow.tanh(c), c]


def _gru_cell(at: TorchOperation, x: Any, h: Any, *weights: Any) -> Any:
    w_x, w_h, b_x, b_h = (*weights, None, None)[:4]
    r, z, n = _parts(3, _affine(at, x, w_x, b_x))
    r_h, z_h, n_h = _parts(3, _affine(at, h, w_h, b_h))
    new = flow.tanh(n + flow.sigmoid(r + r_h) * n_h)
    return new + flow.sigmoid(z + z_h) * (h - new)


def _absolute(at: TorchOperation, x: Any) -> flow.Tensor:
    return flow.relu(x) + flow.relu(-x)


def _over(x: Any, y: Any) -> Any:
    return x / y


def _subtracted_from(x: Any, y: Any) -> Any:
    return y - x


def _other_loss(at: TorchOperation, *given: Any) -> None:
    raise at.refused("is another loss than a cross-entropy", "take nn.CrossEntropyLoss()")


RULES: Final[Mapping[str, Callable[..., Any]]] = {
    **dict.fromkeys(("alias", "clone", "contiguous", "lift_fresh_copy", "to"), _same),
    **dict.fromkeys(("view", "reshape", "flatten", "unsqueeze", "squeeze"), _shaped),
    **{one: _arithmetic(getattr(operator, one)) for one in ("add", "sub", "mul")},
    "div": _arithmetic(_over), "rsub": _arithmetic(_subtracted_from),
    "abs": _absolute, "linear": _affine, "sum": _total, "mean": _mean, "cat": _joined,
    "slice": _cut, "select": _select, "t": _exchanged, "transpose": _exchanged,
    "numpy_T": _exchanged, "permute": _permuted, "lstm_cell": _lstm_cell, "gru_cell": _gru_cell,
    "mse_loss": _other_loss, "l1_loss": _other_loss,
    "broadcast_tensors": _other_loss,
}  # fmt: skip
"""By the names of PyTorch's operators what builds them, of the operation and its arguments; an
option that a rule does not take is refused."""

FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    **{one: getattr(operator, one) for one in ("lt", "le", "gt", "ge", "neg")},
    "tanh": flow.tanh, "sigmoid": flow.sigmoid, "relu": flow.relu, "exp": flow.exp,
    "log": flow.log, "square": flow.square, "where": flow.where, "any": flow.any,
    "eq": flow.equal, "ne": flow.not_equal, "detach": flow.stop_gradient, "mm": flow.matmul,
    "embedding": flow.pick, "matmul": flow.matmul, "detach_": flow.stop_gradient,
    **dict.fromkeys(("__and__", "bitwise_and", "logical_and"), flow.logical_and),
    **dict.fromkeys(("__or__", "bitwise_or", "logical_or"), flow.logical_or),
    **dict.fromkeys(("bitwise_not", "logical_not"), flow.logical_not),
}  # fmt: skip
"""Likewise, of its arguments alone."""


FILLED: Final = {
    **dict.fromkeys(("zeros", "new_zeros", "zeros_like"), 0.0),
    **dict.fromkeys(("ones", "new_ones", "ones_like"), 1.0),
}
"""What is new, and of what number."""


class Builder:
    """Builds an exported program in the graph of `ampsim.flow` that is open.

    Attributes:
        rows: a tensor with the batch on its first axis.
        scored: logits and labels of the cross-entropy, once it was met.
    """

    def __init__(self) -> None:
        self.rows: flow.Tensor
        self.scored: tuple[Any, Any] | None = None

    def run(self, program: Recorded, *given: Any) -> Any:
        """What a program gives of what it is given."""
        values = dict(zip(program.inputs, given, strict=True))
        for one in program.operations:
            try:
                value = self._built(one, *_put(one.arguments, values), **one.options)
            except Refusal:
                raise
            except (AmpsimError, TypeError) as error:
                raise one.refused(f"cannot be: {error}") from error
            if one.gives is not None and value.dtype != one.gives.dtype:
                value = flow.cast(value, one.gives.dtype)
            values[one.name] = value
        return _put(program.outputs, values)

    def _built(self, one: TorchOperation, *arguments: Any, **options: Any) -> Any:
        rule = one.rule
        if rule == "getitem":
            return arguments[0][arguments[1]]
        if rule in (*CONSTRUCTS, "cross_entropy_loss"):
            return getattr(self, f"_{rule}")(*arguments, **options)
        if rule in FILLED:
            return self._filled(one, FILLED[rule])
        if rule in FUNCTIONS:
            return FUNCTIONS[rule](*arguments, **options)
        if rule not in RULES:
            raise one.refused("has no rule beside torch.cond, while_loop and scan")
        return RULES[rule](one, *arguments, **options)

    def _filled(self, one: TorchOperation, value: float) -> flow.Tensor:
        lengths = [flow.length(self.rows) if length is None else length for length in one.shape]
        parts = [flow.reshape(length, (1,)) for length in lengths]
        shape = flow.concat(parts, axis=0) if parts else np.zeros(0, np.int64)
        assert one.gives is not None, "a tensor is filled"
        return filled(shape, value, one.gives.dtype, one.shape)

    def _cross_entropy_loss(self, logits: Any, label: Any) -> flow.Tensor:
        self.scored = logits, label
        return flow.softmax_cross_entropy(logits, label)

    def _cond(self, predicate: Any, true: Recorded, false: Recorded, operands: Any = ()) -> Any:
        return flow.cond(
            flow.reshape(predicate, ()),
            lambda: tuple(self.run(true, *operands)),
            lambda: tuple(self.run(false, *operands)),
        )

    def _while_loop(self, goes_on: Recorded, body: Recorded, inits: Any, others: Any = ()) -> Any:
        def decided(*carried: Any) -> flow.Tensor:
            given = self.run(goes_on, *carried, *others)
            return flow.reshape(given[0] if type(given) is tuple else given, ())  # pyright: ignore[reportUnknownArgumentType]  # of any type

        def repeated(*carried: Any) -> tuple[Any, ...]:
            return tuple(self.run(body, *carried, *others))

        return flow.while_loop(decided, repeated, inits)

    def _scan(self, combine: Recorded, inits: Any, xs: Any, others: Any = ()) -> list[Any]:
        rows, states = [flow.TensorArray().unstack(one) for one in xs], len(inits)
        count = xs[0].shape[0] or rows[0].size()

        def body(i: flow.Tensor, *carried: Any) -> tuple[Any, ...]:
            read = [one.read(i) for one in rows]
            given = self.run(combine, *carried[:states], *read, *others)
            written = zip(carried[states:], given[states:], strict=True)
            return i + 1, *given[:states], *(array.write(i, y) for array, y in written)

        arrays = [flow.TensorArray(count) for _ in combine.outputs[states:]]

        def is_within(i: flow.Tensor, *carried: Any) -> Any:
            return i < count

        _, *found = flow.while_loop(is_within, body, (0, *inits, *arrays), name="scan")
        return [*found[:states], *(one.stack() for one in found[states:])]


def _put(one: Any, values: Mapping[str, Any]) -> Any:
    """What is known by name, as its value."""
    if isinstance(one, ValueOf):
        return values[one.name]
    if isinstance(one, np.ndarray):
        return flow.constant(one)
    return tuple([_put(each, values) for each in one]) if type(one) is tuple else one  # pyright: ignore[reportUnknownVariableType]  # of any type


# --- as a model


class TorchParameters(ParameterizedNode):
    """Parameters of a part of a module, with PyTorch's values; no message comes to it."""

    def __init__(self, name: str, values: Mapping[str, np.ndarray]) -> None:
        super().__init__(name, {part: one.shape for part, one in values.items()})
        self._first = np.concatenate([one.ravel() for one in values.values()], dtype=np.float64)

    def initialise(self, generator: np.random.Generator) -> np.ndarray:
        """PyTorch's."""
        return self._first

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """There is nothing to check."""
        return ()

    def forward(self, port: int, state: Any, payload: Any) -> Any:
        """None comes."""
        raise AssertionError("a program has its own operators and gradients")

    def backward(self, port: int, state: Any, gradient: Any) -> Any:
        """None comes."""
        return self.forward(port, state, gradient)

    def take_gradient(self) -> np.ndarray:
        """There is none."""
        return np.zeros(self.parameter_count)


@dataclass(frozen=True, eq=False)
class TorchProgram:
    """Makes the program of an imported module, and knows the module's state_dict.

    Args:
        name: of the module's class.
        recorded: what the module and its loss are.
        inputs: what that is given: arrays, or names.
        likes: of variables and inputs, by their names.
        names: of the module's parameters, by those of the variables.
        state: the state_dict, as arrays, when it was imported.
    """

    name: str
    recorded: Recorded
    inputs: Sequence[Any]
    likes: Mapping[str, Like]
    names: Mapping[str, str]
    state: Mapping[str, np.ndarray]

    def __call__(self) -> flow.Program:
        """Make the program."""
        return flow.Program(self.build, self._feed)

    @property
    def digest(self) -> str:
        """Tells what is recorded from what others are, to the last digit of a fixed array."""
        with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
            return hashlib.sha256(repr((self.recorded, self.inputs)).encode()).hexdigest()[:16]

    @property
    def classes(self) -> int:
        """How many the loss tells apart."""
        with flow.FlowGraph():
            return self._built()[1].shape[1]

    def _feed(self, batch: Any) -> dict[str, Any]:
        fed = [one for one in self.likes if one not in self.names]
        return dict(zip(fed, batch.arrays, strict=True))

    def build(self) -> flow.Objective:
        """Build the operators of an instance.

        Raises:
            GraphError: something cannot be.
        """
        loss, logits, label = self._built()
        return flow.Objective(loss, flow.count_right(logits, label))

    def _built(self) -> tuple[Any, Any, Any]:
        builder, given = Builder(), list[Any]()
        for one in self.inputs:
            if not isinstance(one, str):
                given.append(flow.constant(one))
            elif one in self.names:
                shape = self.state[self.names[one]].shape
                given.append(flow.variable(one, shape=shape, dtype=self.likes[one].dtype))
            else:
                given.append(flow.input(one, *self.likes[one]))
                builder.rows = given[-1]
        try:
            (loss,) = builder.run(self.recorded, *given)
        except Refusal as error:
            raise Refusal(f"{self.name}: {error}") from None
        if builder.scored is None or loss.node.operator.name != "softmax_cross_entropy":
            raise Refusal(
                f"{self.name}: a module with torch.cond, while_loop or scan is trained on a "
                "cross-entropy alone; take nn.CrossEntropyLoss()"
            )
        return loss, *builder.scored

    def layers(self) -> list[TorchParameters]:
        """The nodes of the parameters."""
        found: dict[str, dict[str, np.ndarray]] = {}
        for ours, theirs in self.names.items():
            node, _, part = ours.rpartition(".")
            found.setdefault(node, {})[part] = self.state[theirs]
        return [TorchParameters(node, values) for node, values in found.items()]

    def theirs(self, ours: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The parameters by the module's names."""
        return {self.names[name]: one for name, one in ours.items()}


class Branching(Refusal):
    """A module holds torch.cond, while_loop or scan, which a graph of messages cannot be.

    Attributes:
        program: what PyTorch exported.
    """

    def __init__(self, text: str, program: Any) -> None:
        super().__init__(text)
        self.program = program


def torch_program(module: Any, program: Any) -> TorchProgram:
    """Make a program of what PyTorch exported of a module with its loss.

    Raises:
        GraphError: something cannot be; the message names the operation, the user's line and a way
            out.
    """
    name = type(module).__name__
    require_free(name, program)
    specs = specs_of(program)
    rows = next(one.meta["val"].shape for one, it in specs if it.kind.name == "USER_INPUT")[0]
    inputs, likes, names = list[Any](), dict[str, Any](), dict[str, str]()
    for holder, spec in specs:
        told = holder.name
        if spec.kind.name == "PARAMETER":
            theirs = spec.target.removeprefix(WRAPPED)
            told = theirs if "." in theirs else f"{name}.{theirs}"
            names[told] = theirs
        elif spec.kind.name != "USER_INPUT":
            inputs.append(fixed_in(program, spec.target).copy())
            continue
        inputs.append(told)
        likes[told] = _like(holder.meta["val"], str(rows))
    state = {key: one.detach().numpy().copy() for key, one in module.state_dict().items()}
    try:
        recorded = _recorded(program.graph_module, str(rows))
    except Refusal as error:
        raise Refusal(f"{name}: {error}") from None
    return TorchProgram(name, recorded, inputs, likes, names, state)
