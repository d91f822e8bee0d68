"""The nodes of an ONNX graph as operations of the table that PyTorch's become.

Shapes are those of two evaluations, of two items and of three: an extent that differs follows from
the batch. Source: the operators of ONNX 1.23, github.com/onnx/onnx/blob/main/docs/Operators.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, TypeAlias, cast

import numpy as np

from ampsim.interop.lowering import (
    OWN_NODE,
    PLACES_IN_BATCH,
    Arguments,
    Lowering,
    Repeated,
    Value,
    repeated,
)
from ampsim.interop.operators import REMEDIES, RULES
from ampsim.interop.parameters import Learned
from ampsim.nodes import Softmax


@dataclass(eq=False)
class OnnxValue:
    """An operation, or what it gives, as rules of the table look at it; PyTorch has the same."""

    meta: dict[str, Any]  # "val": shape and dtype; "place": the node that it came from
    value: Value = None
    target: str = ""
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def shape(self) -> tuple[int | None, ...]:
        """None is an extent that follows from the batch."""
        return self.meta["val"].shape


Given: TypeAlias = list[Any]
"""A node's inputs, operations; None of one that is left out."""

Rule: TypeAlias = "Callable[[GraphReader, Given, dict[str, Any]], Any]"
"""From a node's inputs and attributes to what it becomes, or the values of all its outputs."""

TARGET: Final = " target "
"""By what the target is known; no name in a file begins with a space."""


class GraphReader:
    """Reads a graph's nodes in their order, in which producers come first.

    The arrays are those of the file, which learn or are the same for every batch.
    """

    def __init__(self, low: Lowering, twice: Sequence[Mapping[str, Any]], arrays: dict[str, Any]):
        self.low = low  # takes what they become
        self._twice = twice  # every value of the graph, of two items and of three
        self.node: Any = None  # that is looked at
        self.known: dict[str, OnnxValue] = {}
        self.users: dict[str, list[Any]] = {}
        low.values = arrays
        for name, one in arrays.items():
            self.define(name, one, np.shape(one.values if isinstance(one, Learned) else one))

    def read(
        self, graph: Any, ports: Sequence[str], given: Sequence[np.ndarray], loss: str
    ) -> None:
        """Plan the calls of a graph with its loss; the target is last in `given`."""
        for place, (name, array) in enumerate(zip([*ports, TARGET], given, strict=True)):
            wanted = self.low.free(name.strip())
            wire = self.low.port(wanted, ("rows", *array.shape[1:]), array=place)
            self.define(name, wire, (None, *array.shape[1:]), str(array.dtype))
        for node in graph.node:
            for name in node.input:
                self.users.setdefault(name, []).append(node)
        for self.node in graph.node:
            if self.node.output[0] not in self.known:
                self._read(self.node)
        self._add_loss(self.known[graph.output[0].name], self.known[TARGET], loss)
        self.low.finish()

    def define(self, name: str, value: Value, shape: Sequence[Any], dtype: str = "") -> None:
        """Note a value of the graph."""
        self.known[name] = self.made(value, shape, dtype)

    def made(self, value: Value, shape: Sequence[Any], dtype: str = "") -> OnnxValue:
        """A value of the present node; floats are of the type that the arrays have."""
        place = self.node and f"node {self.node.name or self.node.output[0]}"
        tensor = SimpleNamespace(shape=(*shape,), dtype=dtype or self.low.dtype)
        return OnnxValue({"val": tensor, "place": place or ""}, value)

    def add(self, operator: str, shape: Sequence[Any] | None = None, /, **given: Any) -> OnnxValue:
        """Add an operator of the table; its shape is the node's, unless told."""
        dtype, (name, *_more) = "", self.node.output
        if shape is None:
            shape, dtype = self.shape_of(name), str(np.asarray(self._twice[0][name]).dtype)
        self.low.current = made = self.made(None, shape, dtype)
        made.target, made.arguments = operator, given
        made.value = RULES[operator](Arguments(self.low, made))
        return made

    def shape_of(self, name: str) -> tuple[int | None, ...]:
        """The shape of a value of the graph."""
        one, other = (np.shape(values[name]) for values in self._twice)
        return tuple(a if a == b else None for a, b in zip(one, other, strict=True))

    def numbers(self, given: Given, place: int) -> list[Any] | None:
        """The numbers of an input that must be known before; None of one that is left out."""
        if (one := [*given, *[None] * place][place]) is None:
            return None
        is_known = isinstance(one.value, np.ndarray)
        self.require(f"input {place} follows from data, or learns", is_known)
        return one.value.ravel().tolist()

    def number(self, given: Given, place: int) -> float | None:
        """The only number of such an input."""
        found = self.numbers(given, place)
        self.require(f"input {place} has several numbers", found is None or len(found) == 1)
        return found[0] if found else None

    def require(self, refused: str, is_usual: object) -> None:
        """Refuse a node that is not as usual."""
        if not is_usual:
            raise self.low.refused(f"{self.low.said}: {refused}", "export it without that")

    def _read(self, node: Any) -> None:
        from onnx.helper import get_attribute_value

        self.low.said, given = node.op_type, [self.known.get(name) for name in node.input]
        self.low.current = self.made(None, ())
        outputs = [name for name in node.output if name]
        if node.op_type == "Shape" or all(map(_is_same, filter(None, given))):
            for name in outputs:
                self.define(name, self._same(name), self.shape_of(name))
            return
        if (rule := NODES.get(node.op_type)) is None or node.domain not in ("", "ai.onnx"):
            remedy = REMEDIES.get(NEAREST.get(node.op_type, ""), OWN_NODE)
            raise self.low.refused(f"ampsim has no node for {node.op_type}", remedy)
        made = rule(self, given, {at.name: get_attribute_value(at) for at in node.attribute})
        values = [made.value] if isinstance(made, OnnxValue) else made
        for name, value in zip(node.output, values, strict=False):
            if name:
                dtype = str(np.asarray(self._twice[0][name]).dtype)
                self.define(name, value, self.shape_of(name), dtype)

    def _same(self, name: str) -> Value:
        """Return a value that follows from no data: an array, or one for each item of a batch."""
        one, other = (np.asarray(values[name]) for values in self._twice)
        if one.shape == other.shape:
            return one if one.tobytes() == other.tobytes() else PLACES_IN_BATCH
        shape = self.shape_of(name)
        return repeated(one, shape.index(None)) if shape.count(None) == 1 else PLACES_IN_BATCH

    def _add_loss(self, out: OnnxValue, target: OnnxValue, loss: str) -> None:
        self.node, self.low.said = SimpleNamespace(name=loss, output=["loss"]), loss
        if loss == "squared_error":
            self.add("mse_loss", (), self=out, target=target)
            return
        shape = out.shape
        if feeds := self.low.origin(out.value, Softmax)[1]:
            out = self.made(feeds[0], shape)
        if len(shape) > 2 and class_axis(shape, target.shape) == len(shape) - 1:
            out = self.add("reshape", (None, shape[-1]), self=out)
            target = self.add("reshape", (None,), self=target)
        self.add("cross_entropy_loss", (), self=out, target=target)


def _is_same(one: OnnxValue) -> bool:
    """Tell whether a value follows from no data."""
    return isinstance(one.value, np.ndarray | Repeated) or one.value is PLACES_IN_BATCH


NEAREST: Final = {
    "AveragePool": "avg_pool2d", "BatchNormalization": "batch_norm",
    "GroupNormalization": "group_norm", "InstanceNormalization": "group_norm", "PRelu": "prelu",
    "Pad": "pad", "RNN": "rnn_tanh", "RandomNormal": "randn", "Tile": "repeat",
}  # fmt: skip
"""Operators of PyTorch whose remedies hold for these of ONNX."""


def class_axis(shape: Sequence[Any], target: Sequence[Any]) -> int:
    """The axis that labels lack; the last, where that could be."""
    return len(shape) - 1 if tuple(shape[1:-1]) == tuple(target[1:]) else 1


Option: TypeAlias = "Rule | tuple[str, Any] | str | float | None"
"""What gives an option's value as a rule does, an attribute with its usual value, or the value."""


def _node(operator: str, *inputs: str, **options: Option) -> Rule:
    """A rule: the node's inputs by their names there, and options."""

    def rule(to: GraphReader, given: Given, at: dict[str, Any]) -> OnnxValue:
        named = dict(zip(inputs or ("self",), given, strict=False))
        for name, one in options.items():
            if isinstance(one, tuple):
                named[name] = at.get(*cast("tuple[str, Any]", one))
            else:
                named[name] = one(to, given, at) if callable(one) else one
        return to.add(operator, **named)

    return rule


def _number(place: int) -> Rule:
    """The only number of an input."""
    return lambda to, given, at: to.number(given, place)


def _linear(
    to: GraphReader, x: Any, weight: Any, bias: Any = None, is_turned: Any = 0
) -> OnnxValue:
    """X W + b; the table's weight is (out, in)."""
    if not is_turned:
        weight = to.add("permute", weight.shape[::-1], self=weight, dims=(1, 0))
    return to.add("linear", input=x, weight=weight, bias=bias)


def _gemm(to: GraphReader, given: Given, at: dict[str, Any]) -> OnnxValue:
    factors = at.get("alpha", 1), at.get("beta", 1), at.get("transA", 0)
    to.require("alpha, beta or transA is given", factors == (1, 1, 0))
    return _linear(to, *given, is_turned=at.get("transB", 0))


def _matmul(to: GraphReader, given: Given, at: dict[str, Any]) -> OnnxValue:
    """Multiply two tensors, or add a layer, whose bias is what the next node adds."""
    weight, (name,) = given[1].value, to.node.output
    if not isinstance(weight, Learned) or weight.values.ndim != 2:
        return to.add("matmul", self=given[0], other=given[1])
    following = to.users.get(name, [])
    if [one.op_type for one in following] == ["Add"]:
        bias = to.known.get(next((one for one in following[0].input if one != name), ""))
        value, (after,) = bias and bias.value, following[0].output
        if isinstance(value, Learned) and value.values.shape == weight.values.shape[1:]:
            made = _linear(to, given[0], given[1], bias)
            to.define(after, made.value, to.shape_of(after))
            return made
    return _linear(to, given[0], given[1])


def _padding(to: GraphReader, given: Given, at: dict[str, Any]) -> list[int]:
    axes = len(given[0].shape) - 2
    pads = at.get("pads", [0] * 2 * axes)
    to.require("padding is not the same on both sides", pads[:axes] == pads[axes:])
    to.require("auto_pad is set", at.get("auto_pad", b"NOTSET") == b"NOTSET")
    return pads[:axes]


def _each_axis(attribute: str) -> Rule:
    """A number for each axis of an image, 1 by default."""
    return lambda to, given, at: at.get(attribute, [1] * (len(given[0].shape) - 2))


_WINDOWS: Final[dict[str, Option]] = {
    "padding": _padding, "stride": _each_axis("strides"), "dilation": _each_axis("dilations"),
}  # fmt: skip
"""Options of a convolution and of a pool."""


def _layer_norm(to: GraphReader, given: Given, at: dict[str, Any]) -> OnnxValue:
    last = len(given[0].shape) - 1
    to.require("axis is not the last", at.get("axis", -1) in (-1, last))
    x, weight, bias = cast("Given", [*given, None])[:3]
    if bias is not None and not isinstance(bias.value, Learned):
        bias = bias if np.any(to.numbers(given, 2)) else None  # 0 is what exporters write for none
    how = {"normalized_shape": weight.shape, "eps": at.get("epsilon", 1e-5)}
    return to.add("layer_norm", input=x, weight=weight, bias=bias, **how)


def _slice(to: GraphReader, given: Given, at: dict[str, Any]) -> OnnxValue:
    starts, ends, axes, steps = (to.numbers(given, place) for place in (1, 2, 3, 4))
    made = given[0]
    for place, (start, end) in enumerate(zip(starts or [], ends or [], strict=True)):
        dim, step = axes[place] if axes else place, steps[place] if steps else 1
        made = to.add("slice.Tensor", self=made, dim=dim, start=start, end=end, step=step)
    return made


def _gather(to: GraphReader, given: Given, at: dict[str, Any]) -> OnnxValue:
    """Rows of a table, or one place of an axis."""
    table, axis = given[0].value, at.get("axis", 0)
    if not given[1].shape:
        return to.add("select.int", self=given[0], dim=axis, index=to.number(given, 1))
    if not isinstance(table, Learned) or (axis, table.values.ndim) != (0, 2):
        raise to.low.refused("several places are gathered of no table", REMEDIES["index"])
    return to.add("embedding", weight=given[0], indices=given[1], padding_idx=-1)


def _split(to: GraphReader, given: Given, at: dict[str, Any]) -> Value:
    axis: int = at.get("axis", 0)
    parts = [to.shape_of(name) for name in to.node.output]
    stops = [*itertools.accumulate([shape[axis] or 0 for shape in parts], initial=0)]
    return [
        to.add("slice.Tensor", self=given[0], dim=axis, start=start, end=stop, step=1).value
        for start, stop in itertools.pairwise(stops)
    ]


_REDUCED: Final[dict[str, Option]] = {
    "dim": lambda to, given, at: at.get("axes") or to.numbers(given, 1), "keepdim": ("keepdims", 1),
}  # fmt: skip
_OF_IMAGE: Final[dict[str, Option]] = {
    "dim": lambda to, given, at: [*range(2, len(given[0].shape))], "keepdim": True,
}  # fmt: skip
"""Options of what is reduced: over the axes that are told, and over all of an image."""


def _bounded(bound: str, to: GraphReader, given: Given, at: dict[str, Any]) -> OnnxValue:
    to.require("it is of more than a tensor and a number", len(given) < 3)
    limits = {"min": None, "max": None, bound: to.number(given, 1)}
    return to.add("clamp", self=given[0], **limits)


def _dropout(to: GraphReader, given: Given, at: dict[str, Any]) -> OnnxValue:
    to.require("it is exported in training mode", not to.number(given, 2))
    return to.add("alias", self=given[0])


GATES: Final = {"LSTM": [0, 2, 3, 1], "GRU": [1, 0, 2]}
"""Places in ONNX of PyTorch's gates: i, f, g, o in i, o, f, g; and r, z, n in z, r, n."""


def _by_gate(way: int, half: int | None, gates: list[int], array: np.ndarray) -> np.ndarray:
    """Take a direction's part of an array, or of its biases one half, by PyTorch's gates."""
    one = array[way] if half is None else np.split(array[way], 2)[half]
    return one.reshape(len(gates), -1, *one.shape[1:])[gates].reshape(one.shape)


def _recurrent(to: GraphReader, given: Given, at: dict[str, Any]) -> Value:
    """A layer, (steps, rows, columns), in one direction or both."""
    kind, (x, *arrays) = to.node.op_type, [*given, *[None] * 8][:8]
    ways = {b"forward": 1, b"bidirectional": 2}.get(at.get("direction", b"forward"), 0)
    to.require("its direction is reverse", ways)
    to.require("it is not as PyTorch's", not (at.get("layout") or at.get("input_forget")))
    to.require("linear_before_reset is 0", kind == "LSTM" or at.get("linear_before_reset"))
    usual = [b"Sigmoid", b"Tanh", b"Tanh"][: len(GATES[kind]) - 1] * ways
    to.require("activations are given", at.get("activations", usual) == usual and "clip" not in at)
    learned = [one.value for one in arrays[:3] if one and isinstance(one.value, Learned)]
    to.require("it has no biases that learn", len(learned) == 3)
    to.require("it has lengths, or peepholes", arrays[3] is None and arrays[6] is None)
    parts = [(0, None), (1, None), (2, 0), (2, 1)]
    seen = [
        learned[place].seen(partial(_by_gate, way, half, GATES[kind]))
        for way in range(ways)
        for place, half in parts
    ]
    parameters = [to.made(one, one.values.shape) for one in seen]
    (steps, rows, *_), hidden = given[0].shape, learned[1].values.shape[2]
    zeros = Repeated(np.zeros((ways, 1, hidden), to.low.dtype), 1)
    first = [one or zeros for one in arrays[4:6]]
    how = {"name": to.node.name, "num_layers": 1, "bidirectional": ways > 1}
    how["hx"] = first if kind == "LSTM" else first[0]
    shape = steps, rows, ways * hidden
    made = to.add(f"{kind.lower()}.input", shape, input=x, params=parameters, **how)
    states, *last = made.value
    if to.node.output[0]:
        cut = to.add("reshape", (steps, rows, ways, hidden), self=to.made(states, shape))
        states = to.add("permute", self=cut, dims=(0, 2, 1, 3)).value
    return [states, *last]


NODES: Final[dict[str, Rule]] = {
    **{name: _node(name.lower()) for name in (
        "Abs", "Cos", "Erf", "Exp", "Expand", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Sigmoid",
        "Sin", "Sqrt", "Tanh",
    )},
    **{name: _node("reshape") for name in ("Flatten", "Reshape", "Squeeze", "Unsqueeze")},
    "Add": _node("add.Tensor", "self", "other", alpha=1),
    "Cast": _node("to.dtype"),
    "Clip": _node("clamp", min=_number(1), max=_number(2)),
    "Concat": lambda to, given, at: to.add("cat", tensors=given, dim=at["axis"]),
    "Conv": _node("conv2d", "input", "weight", "bias", groups=("group", 1), **_WINDOWS),
    "Div": _node("div.Tensor", "self", "other"),
    "Dropout": _dropout,
    "Elu": _node("elu", alpha=("alpha", 1.0), scale=1.0, input_scale=1.0),
    "Equal": _node("eq.Scalar", "self", "other"),
    "GRU": _recurrent,
    "Gather": _gather,
    "Gemm": _gemm,
    "Gelu": _node(
        "gelu", approximate=lambda to, given, at: at.get("approximate", b"none").decode()
    ),
    "GlobalAveragePool": _node("mean.dim", **_OF_IMAGE),
    "GlobalMaxPool": _node("amax", **_OF_IMAGE),
    "Greater": _node("gt.Scalar", "self", "other"),
    "GreaterOrEqual": _node("ge.Scalar", "self", "other"),
    "Identity": _node("alias"),
    "LSTM": _recurrent,
    "LayerNormalization": _layer_norm,
    "LeakyRelu": _node("leaky_relu", negative_slope=("alpha", 0.01)),
    "Less": _node("lt.Scalar", "self", "other"),
    "LessOrEqual": _node("le.Scalar", "self", "other"),
    "LogSoftmax": _node("log_softmax.int", dim=("axis", -1)),
    "MatMul": _matmul,
    "Max": partial(_bounded, "min"),
    "MaxPool": _node(
        "max_pool2d", kernel_size=("kernel_shape", None), ceil_mode=("ceil_mode", 0), **_WINDOWS
    ),
    "Min": partial(_bounded, "max"),
    "Mul": _node("mul.Tensor", "self", "other"),
    "Not": _node("logical_not"),
    "Pow": _node("pow.Tensor_Scalar", exponent=_number(1)),
    "ReduceL2": _node("linalg_vector_norm", **_REDUCED),
    "ReduceMax": _node("amax", **_REDUCED),
    "ReduceMean": _node("mean.dim", **_REDUCED),
    "ReduceSum": _node("sum.dim_IntList", **_REDUCED),
    "Slice": _slice,
    "Softmax": _node("softmax.int", dim=("axis", -1)),
    "Softplus": _node("softplus", beta=1.0, threshold=20.0),
    "Split": _split,
    "Sub": _node("sub.Tensor", "self", "other", alpha=1),
    "Transpose": _node(
        "permute", dims=lambda to, given, at: at.get("perm", [*range(len(given[0].shape))][::-1])
    ),
    "Where": _node("where.self", "condition", "self", "other"),
}  # fmt: skip
"""What becomes of an operator of ONNX."""
