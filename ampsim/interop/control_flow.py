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
from ampsim.dataflow.construct import counted
from ampsim.dataflow.operators.shape import filled
from ampsim.errors import AmpsimError
from ampsim.interop.lowering import Refusal, dtype_of, place_of, require_free, shape_of, short
from ampsim.interop.parameters import Learned, ModuleState, held_in, module_state, specs_of
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
    """One operation: what it reads, the shape of the first of these, and what it gives.

    Shapes are () and types "" of what is no tensor.
    """

    name: str
    rule: str
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    lengths: tuple[int | None, ...]
    shape: tuple[int | None, ...]
    dtype: str
    place: str

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
        return Refusal(f"{self.rule} {why}", remedy, self.place)


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
            about: Any = (_like((*one.args, None)[0], rows).shape, *_like(one, rows), place_of(one))
            operations.append(TorchOperation(one.name, rule, plain(one.args), told, *about))
    return Recorded(tuple(inputs), tuple(operations), outputs)


def _is_of_tensors(one: Any) -> bool:
    """Tell whether an operation is not of extents, which shapes tell."""
    is_extent = short(one).startswith(("sym_", "_assert", "<"))
    return one.op != "call_function" or one.target is operator.getitem or not is_extent


def _like(operation: Any, rows: str) -> Like:
    """Describe an operation's tensor."""
    for one in getattr(getattr(operation, "meta", {}).get("val"), "shape", ()):
        if not isinstance(one, int) and str(one) != rows:
            raise Refusal(f"an extent is {one}, and only the rows of a batch may vary", REMEDY)
    return Like(shape_of(operation), dtype_of(operation))


# --- what PyTorch's operators are here


def _shaped(at: TorchOperation, x: Any, *others: Any) -> flow.Tensor:
    return flow.reshape(x, [-1 if one is None else one for one in at.shape])


def _affine(at: TorchOperation, x: Any, weight: Any, bias: Any = None) -> flow.Tensor:
    product = flow.matmul(flow.reshape(x, (-1, weight.shape[1])), flow.transpose(weight))
    product = product if bias is None else product + bias
    return _shaped(at, product) if len(at.shape) > 2 else product


def _arithmetic(of: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def rule(at: TorchOperation, x: Any, y: Any) -> Any:
        return of(*(
            flow.cast(one, at.dtype)
            if at.dtype.startswith("float") and getattr(one, "is_float", True) is False else one
            for one in (x, y)
        ))  # fmt: skip

    return rule


def _total(at: TorchOperation, x: Any, axes: Any = None, keep: bool = False) -> flow.Tensor:
    x = flow.cast(x, at.dtype) if x.is_float and x.dtype != at.dtype else x  # before it is summed
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
    moved = at.axes(pair or None)  # without a pair all are turned round
    turned = dict(zip(moved, reversed(moved), strict=True))
    return flow.permute(x, tuple(turned.get(axis, axis) for axis in at.axes()))


def _parts(count: int, gates: Any) -> list[flow.Tensor]:
    width = gates.shape[1] // count
    return [flow.cut(gates, place * width, (place + 1) * width) for place in range(count)]


def _lstm_cell(at: TorchOperation, x: Any, state: Any, *weights: Any) -> list[Any]:
    gates = _affine(at, x, *weights[::2]) + _affine(at, state[0], *weights[1::2])
    i, f, g, o = _parts(4, gates)
    c = flow.sigmoid(f) * state[1] + flow.sigmoid(i) * flow.tanh(g)
    return [flow.sigmoid(o) * flow.tanh(c), c]


def _gru_cell(at: TorchOperation, x: Any, h: Any, *weights: Any) -> Any:
    r, z, n = _parts(3, _affine(at, x, *weights[::2]))
    r_h, z_h, n_h = _parts(3, _affine(at, h, *weights[1::2]))
    new = flow.tanh(n + flow.sigmoid(r + r_h) * n_h)
    return new + flow.sigmoid(z + z_h) * (h - new)


def _other_loss(at: TorchOperation, *given: Any) -> None:
    raise at.refused("is another loss than a cross-entropy", "take nn.CrossEntropyLoss()")


def _absolute(x: Any) -> Any:
    return flow.relu(x) + flow.relu(-x)


def _same(x: Any, *others: Any) -> Any:
    return x


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    **{one: getattr(operator, one) for one in ("lt", "le", "gt", "ge", "neg", "getitem")},
    **{one: getattr(flow, one) for one in ("tanh", "sigmoid", "relu", "exp", "log", "square")},
    "__and__ bitwise_and logical_and": flow.logical_and,
    "__or__ bitwise_or logical_or": flow.logical_or,
    "abs": _absolute,
    "alias clone contiguous lift_fresh_copy to": _same,
    "any": flow.any,
    "bitwise_not logical_not": flow.logical_not,
    "detach detach_": flow.stop_gradient,
    "embedding": flow.pick,
    "eq": flow.equal,
    "mm matmul": flow.matmul,
    "ne": flow.not_equal,
    "reciprocal": operator.methodcaller("__rtruediv__", 1.0),  # of 1 / x
    "where": flow.where,
}
_RULES: Final[dict[str, Callable[..., Any]]] = {
    **{one: _arithmetic(getattr(operator, one)) for one in ("add", "sub", "mul")},
    "cat": _joined,
    "div": _arithmetic(lambda x, y: x / y),
    "gru_cell": _gru_cell,
    "linear": _affine,
    "lstm_cell": _lstm_cell,
    "mean": _mean,
    "mse_loss l1_loss broadcast_tensors": _other_loss,
    "permute": _permuted,
    "rsub": _arithmetic(lambda x, y: y - x),
    "select": _select,
    "slice": _cut,
    "sum": _total,
    "t transpose numpy_T": _exchanged,
    "view reshape flatten unsqueeze squeeze": _shaped,
}
FUNCTIONS, RULES = (
    {name: one for names, one in table.items() for name in names.split()}
    for table in (_FUNCTIONS, _RULES)
)
"""By the names of PyTorch's operators what builds them, of their arguments alone, and of the
operation and its arguments; an option that is not taken there is refused."""

FILLED: Final = {
    **dict.fromkeys(("zeros", "new_zeros", "zeros_like"), 0.0),
    **dict.fromkeys(("ones", "new_ones", "ones_like"), 1.0),
}
"""What is new, and of what number."""


class Builder:
    """Builds an exported program in the graph of `ampsim.flow` that is open."""

    def __init__(self) -> None:
        self.rows: flow.Tensor  # with the batch on its first axis
        self.scored: tuple[Any, Any] | None = None  # logits and labels of the cross-entropy

    def run(self, program: Recorded, *given: Any) -> Any:
        """Run a recorded program on what it is given."""
        values = dict(zip(program.inputs, given, strict=True))
        for one in program.operations:
            try:
                value = self._built(one, *_put(one.arguments, values), **one.options)
            except Refusal:
                raise
            except TypeError as error:  # of a rule that lacks an argument
                raise one.refused("cannot be: it has an option that is not as usual") from error
            except AmpsimError as error:
                raise one.refused(f"cannot be: {error}") from error
            if one.dtype and value.dtype != one.dtype:
                value = flow.cast(value, one.dtype)
            values[one.name] = value
        return _put(program.outputs, values)

    def _built(self, one: TorchOperation, *arguments: Any, **options: Any) -> Any:
        rule = one.rule
        if rule in (*CONSTRUCTS, "cross_entropy_loss"):
            return getattr(self, f"_{rule}")(*arguments, **options)
        if rule.startswith(("bitwise", "__")) and one.dtype != "bool":
            raise one.refused("is of the bits of whole numbers")
        if rule in FILLED:
            return self._filled(one, FILLED[rule])
        if rule in FUNCTIONS:
            return FUNCTIONS[rule](*arguments, **options)
        if rule not in RULES:
            raise one.refused("has no rule beside torch.cond, while_loop and scan")
        return RULES[rule](one, *arguments, **options)

    def _filled(self, one: TorchOperation, value: float) -> flow.Tensor:
        parts = [flow.reshape(flow.length(self.rows) if n is None else n, (1,)) for n in one.shape]
        shape = flow.concat(parts, axis=0) if parts else np.zeros(0, np.int64)
        return filled(shape, value, one.dtype, one.shape)

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

        return flow.while_loop(decided, lambda *one: tuple(self.run(body, *one, *others)), inits)

    def _scan(self, combine: Recorded, inits: Any, xs: Any, others: Any = ()) -> list[Any]:
        rows, states = [flow.TensorArray().unstack(one) for one in xs], len(inits)
        count = xs[0].shape[0] or rows[0].size()

        def body(i: flow.Tensor, *carried: Any) -> tuple[Any, ...]:
            read = [one.read(i) for one in rows]
            given = self.run(combine, *carried[:states], *read, *others)
            written = zip(carried[states:], given[states:], strict=True)
            return i + 1, *given[:states], *(array.write(i, y) for array, y in written)

        arrays = [flow.TensorArray(count) for _ in combine.outputs[states:]]
        found = counted("scan", count, body, (*inits, *arrays))
        return [*found[:states], *(one.stack() for one in found[states:])]


def _put(one: Any, values: Mapping[str, Any]) -> Any:
    """Replace what is known by name by its value."""
    if isinstance(one, ValueOf):
        return values[one.name]
    if isinstance(one, np.ndarray):
        return flow.constant(one)
    return tuple([_put(each, values) for each in one]) if type(one) is tuple else one  # pyright: ignore[reportUnknownVariableType]  # of any type


# --- as a model


class TorchParameters(ParameterizedNode):
    """Parameters of a part of a module; no message comes to it."""

    def initialise(self, generator: np.random.Generator) -> np.ndarray:
        """Start from zeros, in whose place the model is given PyTorch's."""
        return np.zeros(self.parameter_count)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """There is nothing to check."""
        return ()

    def forward(self, port: int, state: Any, payload: Any) -> Any:
        """Fail: no message comes."""
        raise AssertionError("a program has its own operators and gradients")

    def backward(self, port: int, state: Any, gradient: Any) -> Any:
        """Fail: no message comes."""
        return self.forward(port, state, gradient)

    def take_gradient(self) -> np.ndarray:
        """There is none."""
        return np.zeros_like(self.theta)


@dataclass(frozen=True, eq=False)
class TorchProgram:
    """Makes the program of an imported module, and knows the module's state_dict."""

    name: str  # of the module's class
    recorded: Recorded  # what the module and its loss are
    inputs: Sequence[Any]  # what that is given: arrays, or names
    likes: Mapping[str, Like]  # of variables and inputs, by their names
    state: ModuleState  # with variables for parameters

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
        """Count the classes that the loss tells apart."""
        with flow.FlowGraph():
            return self._built()[1].shape[1]

    def _feed(self, batch: Any) -> dict[str, Any]:
        fed = [one for one in self.likes if one not in self.state.layouts]
        return dict(zip(fed, batch.arrays, strict=True))

    def build(self) -> flow.Objective:
        """Build the operators of an instance."""
        loss, logits, label = self._built()
        return flow.Objective(loss, flow.count_right(logits, label))

    def _built(self) -> tuple[Any, Any, Any]:
        builder, given = Builder(), list[Any]()
        for one in self.inputs:
            if not isinstance(one, str):
                given.append(flow.constant(one))
            elif one in self.state.layouts:
                shape: Any = self.likes[one].shape
                given.append(flow.variable(one, shape=shape, dtype=self.likes[one].dtype))
            else:
                given.append(flow.input(one, *self.likes[one]))
                builder.rows = given[-1]
        (loss,) = builder.run(self.recorded, *given)
        if builder.scored is None or loss.node.operator.name != "softmax_cross_entropy":
            raise Refusal(
                "a module with torch.cond, while_loop or scan is trained on a cross-entropy alone",
                "take nn.CrossEntropyLoss()",
            )
        return loss, *builder.scored

    def layers(self) -> list[TorchParameters]:
        """The nodes of the parameters."""
        shapes: dict[str, dict[str, Any]] = {}
        for name in self.state.layouts:
            node, _, part = name.rpartition(".")
            shapes.setdefault(node, {})[part] = self.likes[name].shape
        return [TorchParameters(node, parts) for node, parts in shapes.items()]


class Branching(Exception):  # a case, and no error
    """A module holds torch.cond, while_loop or scan: its argument, what PyTorch exported."""


def torch_program(module: Any, program: Any) -> TorchProgram:
    """Make a program of what PyTorch exported of a module with its loss; refuse what cannot be."""
    name = type(module).__name__
    require_free(program)
    held, rows = held_in(module, program), ""
    inputs, likes, layouts = list[Any](), dict[str, Any](), dict[str, np.ndarray]()
    for holder, _spec in specs_of(program):
        told: Any = held.get(holder.name, holder.name)
        if isinstance(told, Learned):
            own = told.name if "." in told.name else f"{name}.{told.name}"
            layouts[own], told = told.places, own
        if isinstance(told, str):
            rows = rows or ("" if told in layouts else str(holder.meta["val"].shape[0]))
            likes[told] = _like(holder, rows)
        inputs.append(told)
    recorded = _recorded(program.graph_module, rows)
    return TorchProgram(name, recorded, inputs, likes, module_state(module, layouts))
