"""The table of operators: what each operation of an exported program becomes in a graph.

An exported program keeps the operations that the user wrote, as long as it is not decomposed
(`torch.export`, version 2.13); their names are ATen's. A rule takes the arguments of an operation,
and gives its value. Payloads have PyTorch's shapes, so that each rule stands by itself. The loss is
exported with the module, so that its own reshaping is part of the graph.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias, cast

import numpy as np

from ampsim import nodes
from ampsim.interop.layers import (
    SEED,
    attention,
    cell,
    convolution,
    embedding,
    linear,
    matmul,
    max_pool,
    norm,
    recurrent,
)  # fmt: skip
from ampsim.interop.lowering import (
    LOSS,
    NOTHING,
    Arguments,
    Stacked,
    Value,
    extents,
    hint,
    repeated,
    short,
)
from ampsim.interop.parameters import Learned
from ampsim.interop.plan import Ref, Spec

Rule: TypeAlias = Callable[[Arguments], Value]

_LAYER_NORM: Final = (
    "take nn.LayerNorm or nn.RMSNorm, of images over the channels after x.permute(0, 2, 3, 1), "
    "or nothing"
)
OVER_ALL: Final = (
    "decay of weights into the optimizer, the mean of a batch into nn.MSELoss(); else take "
    "w.reshape(-1, 1), and axis 0 alone"
)
_DRAWN: Final = "draw it with the data, and make it an input"

_REMEDIES: Final[dict[str, str]] = {
    "_adaptive_avg_pool2d avg_pool2d": "take nn.MaxPool2d, or nn.AdaptiveAvgPool2d(1)",
    "__and__ __or__ bitwise_and bitwise_or logical_and logical_or": "multiply both as floats, or "
    "make the mask with the data",
    "adaptive_max_pool2d": "take nn.MaxPool2d, or, to one pixel, x.amax((-2, -1))",
    "addmm": "take b + x @ w",
    "alpha_dropout feature_alpha_dropout feature_dropout": "take nn.Dropout",
    "batch_norm": "statistics of a batch mean something else while several are in flight; "
    f"{_LAYER_NORM}; fold one whose statistics are fixed into the layer before",
    "bernoulli rand rand_like randint randn randn_like": _DRAWN,
    "binary_cross_entropy binary_cross_entropy_with_logits": "take nn.CrossEntropyLoss() and two "
    "classes",
    "conv3d im2col": "take nn.Conv2d",
    "constant_pad_nd pad": "give a convolution zeros as padding=1, or join parts with torch.cat",
    "copy index_put": "join parts with torch.cat",
    "dropout": "leave inplace=True out",
    "detach": "let gradients pass, or leave that part out, such as max_norm of an embedding",
    "eq ge gt le lt ne": "compare with a number, or make the mask with the data",
    "embedding_renorm": "leave max_norm out",
    "embedding_bag": "take nn.Embedding, and a mean or a sum over the words",
    "group_norm instance_norm": _LAYER_NORM,
    "huber_loss kl_div l1_loss smooth_l1_loss": "take nn.MSELoss() or nn.CrossEntropyLoss()",
    "index": "take one place after the other, and torch.stack them",
    "gather index_select": "multiply by a mask of 0 and 1 that comes with the data, and sum",
    "item": "leave .item() out: a tensor of one number does as well",
    "gru lstm": "give sequences of one length instead of packed ones",
    "logsumexp": "take F.log_softmax",
    "map_impl": "call it on all rows at once, as nn.Linear takes them, or take scan",
    "maximum": "take a + F.relu(b - a)",
    "min minimum amin": "take -torch.amax(-x, dim), or of two a - F.relu(a - b)",
    "pow exp2": "for a ** x take torch.exp(x * math.log(a))",
    "mean": "leave the mean over the batch to the loss, such as nn.MSELoss()",
    "one_hot": "make it with the data, or take nn.Embedding",
    "celu hardshrink prelu softshrink": "take nn.LeakyReLU, or nn.ELU",
    "repeat": "take expand, which holds no copies",
    "rnn_relu rnn_tanh": "take nn.GRU or nn.LSTM",
    "rnn_tanh_cell": "take nn.GRUCell or nn.LSTMCell",
    "wrap_with_set_grad_enabled": "let gradients pass, without torch.no_grad()",
}
REMEDIES: Final = {name: one for names, one in _REMEDIES.items() for name in names.split()}
"""What to try instead of an operator for which there is no rule, by its name without overload."""


def _node(kind: Any, **options: Any) -> Rule:
    """A node of the first argument."""
    return lambda given: given.light(kind, given.wire(), **options)


def _applied(given: Arguments, function: str, wire: Ref, *numbers: float, named: str = "") -> Ref:
    """A function of each element of what a wire brings."""
    options = {"numbers": numbers} if numbers != nodes.FUNCTIONS[function].numbers else {}
    return given.light(nodes.Pointwise, wire, named=named or function, function=function, **options)


def _pointwise(function: str) -> Rule:
    """A function of each element with the operator's other arguments for numbers."""
    return lambda given: _applied(given, function, given.wire(), *map(float, given.rest()))


GELU: Final = {"none": "gelu", "tanh": "gelu_tanh"}  # by what it is approximated


def _clamp(given: Arguments) -> Value:
    wire = given.wire()
    for function, bound in zip(("clamp_min", "clamp_max"), given.rest(), strict=True):
        wire = wire if bound is None else _applied(given, function, wire, float(bound))
    return wire


def _squared(given: Arguments, wire: Ref) -> Ref:
    return _applied(given, "pow", wire, 2.0, named="square")


def _softmax(given: Arguments, *, is_log: bool = False) -> Value:
    axis = given.axis(given["dim"], "a softmax is over the batch", "take dim=-1, over the classes")
    _require_type(given)
    options: dict[str, Any] = {} if axis == len(given.shape) - 1 else {"axis": axis}
    options |= {"is_log": True} if is_log else {}
    return given.light(nodes.Softmax, given.wire(), **options)


def _cast(given: Arguments) -> Value:
    if given.dtype_of() == "bool" and given.dtype.startswith("float"):
        return given.light(nodes.Where, given.wire(), *map(given.number_wire, (1, 0)))
    _require_type(given)
    return given["self"]


def _require_type(given: Arguments) -> None:
    if given.dtype != given.dtype_of():
        raise given.refused(
            "a tensor changes its type",
            "give data of the type that the module computes with, each type as an input of its own",
        )


def _dropout(given: Arguments) -> Value:
    if not given["train"] or not given["p"]:
        return given[given.first]
    return given.light(nodes.Dropout, given.wire(), rate=float(given["p"]), seed=SEED)


def _reshape(given: Arguments) -> Value:
    value = given[given.first]
    if isinstance(value, Stacked) and len(value.values) == 1 and len(given.shape) == 2:
        return value.values[0]  # the last state of a single layer
    return given.reshaped(given.wire())


def _permute(given: Arguments) -> Value:
    axes = list(range(len(given.shape)))
    if given["dims"] is None:  # transpose
        first, second = given["dim0"], given["dim1"]
        axes[first], axes[second] = axes[second], axes[first]
    else:
        axes = [axis % len(axes) for axis in given["dims"]]
    way = partial(np.transpose, axes=axes)
    return given.view(way, lambda: given.low.permuted(given.wire(), axes))


def _picked(given: Arguments, axis: int, key: int | tuple[int | None, ...]) -> Value:
    place = axis % len(given.shape_of())
    index = (*[slice(None)] * place, slice(*key) if isinstance(key, tuple) else key)
    keys = (*[None] * place, key)
    way, value = operator.itemgetter(index), given[given.first]
    if isinstance(value, Learned) and value.wired is None and value.places.ndim == 1:
        keys = (None, key if isinstance(key, tuple) else (key, key + 1 or None, None))  # of (1, n)
    return given.view(way, lambda: given.light(nodes.Pick, given.wire(), keys=keys))


def _flip(given: Arguments) -> Value:
    told = "the batch is turned round", "turn another axis round"
    axes = [given.axis(one, *told) for one in given["dims"]]
    keys = tuple((None, None, -1) if axis in axes else None for axis in range(max(axes) + 1))
    return given.light(nodes.Pick, given.wire(), keys=keys)


def _select(given: Arguments) -> Value:
    if isinstance(given["self"], Stacked) and given["dim"] == 0:
        return given["self"].values[given["index"]]
    return _picked(given, given["dim"], given["index"])


def _slice(given: Arguments) -> Value:
    value, key = given["self"], (given["start"], given["end"], given["step"])
    if not all(isinstance(one, int | None) for one in key):
        raise given.refused(
            "a slice's bounds follow from the batch", "take bounds that are numbers"
        )
    start, end, step = key
    end = None if end is None or end > 1 << 60 else end
    if isinstance(value, Stacked) and given["dim"] == 0:
        return Stacked(value.values[start:end:step], value.hidden)
    if (start or 0, end, step) == (0, None, 1):
        return value
    return _picked(given, given["dim"], (start or None, end, None if step == 1 else step))


def _split(given: Arguments) -> Value:
    axis = given.axis(given["dim"], "the batch is cut into parts", "cut another axis")
    stops = np.cumsum([int(one.shape[axis]) for one in given.operation.meta["val"]]).tolist()
    cuts = zip([0, *stops], stops, strict=False)
    return [_picked(given, axis, (start, stop, None)) for start, stop in cuts]


def _cat(given: Arguments) -> Value:
    axes, axis = len(given.shape), given["dim"]
    widths: list[int | None] = [shape[axis] for shape in given.shapes_of("tensors")]
    if None in widths:
        raise given.refused("items of a batch are put below each other", "concatenate another axis")
    return given.low.joined([*map(given.low.wire, given["tensors"])], widths, axis % axes, axes)


def _stack(given: Arguments) -> Value:
    axis = given["dim"] % len(given.shape)
    shape = extents((*given.shape[:axis], 1, *given.shape[axis + 1 :]))
    return given.low.stacked([*map(given.low.wire, given["tensors"])], shape, axis)


def _scalar(value: Any) -> float | None:
    """The number that an operand is; None of one with more or other numbers."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    is_one = isinstance(value, np.ndarray) and value.size == 1
    return float(cast("np.ndarray[Any, np.dtype[Any]]", value).item()) if is_one else None


def _operands(given: Arguments) -> list[Ref]:
    """Wires of both operands; where neither has the shape of the result, the first is expanded."""
    first, second = (given.operand(name) for name in ("self", "other"))
    is_whole = given.shape in (given.shape_of("self"), given.shape_of("other"))
    return [first if is_whole else _expanded(given, first), second]


def _plus(sign: int, given: Arguments) -> Value:
    """X ± y · alpha, of two payloads or of one and a number."""
    low, factor = given.low, sign * float(given["alpha"])
    x, y = given["self"], given["other"]
    first, second = map(_scalar, (x, y))
    if second is not None:
        shift = factor * second
        return low.light(nodes.Affine, low.wire(x), shift=shift) if shift else x
    if first is not None:
        if (first, factor) == (0, 1):
            return y  # as Python's `sum` begins
        return low.light(nodes.Affine, low.wire(y), factor=factor, shift=first)
    wires = _operands(given)
    if factor == -1 and given.shape_of("self") == given.shape_of("other"):
        return low.light(nodes.Difference, *wires)
    if factor != 1:
        wires[1] = low.light(nodes.Affine, wires[1], factor=factor)
    return low.light(nodes.Sum, *wires)


def _affine(given: Arguments) -> Value:
    """A number − x, or −x."""
    shift, factor = float(given["other"] or 0), -float(given["alpha"] or 1)
    return given.light(nodes.Affine, given.wire(), factor=factor, shift=shift)


def _times(given: Arguments) -> Value:
    x, y = given["self"], given["other"]
    for one, other in ((x, y), (y, x)):
        if (number := _scalar(other)) is not None:
            return given.light(nodes.Affine, given.low.wire(one), factor=number)
    return given.light(nodes.Product, *_operands(given))


def _over(given: Arguments) -> Value:
    low, number = given.low, _scalar(given["other"])
    if number is None:
        first, second = _operands(given)
        return low.light(nodes.Product, first, _applied(given, "reciprocal", second))
    if not number:
        raise low.refused("a tensor is divided by 0", "divide by another number")
    return low.light(nodes.Affine, given.wire(), factor=1 / number)


def _where(given: Arguments) -> Value:
    """One of two by a mask; the mask may follow from the data, not from what learns."""
    is_filled = given["condition"] is None
    names = ("value", "self") if is_filled else ("self", "other")
    mask = given.wire("mask" if is_filled else "condition")
    _require_data(given, mask)
    return given.light(nodes.Where, mask, *map(given.operand, names))


def _compare(given: Arguments) -> Value:
    comparison, number = short(given.operation), _scalar(given["other"])
    if comparison.endswith("not"):
        if given.dtype != "bool":
            raise given.refused("whole numbers are calculated with", "do that before, in the data")
        comparison, number = "eq", 0.0
    if number is None:
        raise given.refused("two tensors are compared", REMEDIES["eq"])
    _require_data(given, given.wire())
    options = {"comparison": comparison, "number": number}
    return given.light(nodes.Compare, given.wire(), named=comparison, **options)


def _require_data(given: Arguments, wire: Ref) -> None:
    if given.low.learns(wire):
        remedy = "choose by the data, multiply, or take F.relu"
        raise given.refused(f"{given.low.said} is by numbers that learn", remedy)


def _mean(given: Arguments, factor: Callable[[int], float] | None = None) -> Value:
    return given.kept(_averaged(given, given.wire(), factor))


def _averaged(given: Arguments, wire: Ref, factor: Callable[[int], float] | None = None) -> Ref:
    """The mean of a payload of the first argument's shape, times a factor of how many it is of."""
    axes = given.axes(f"a {short(given.operation)} is over the batch", REMEDIES["mean"])
    if axes and len(axes) == len(given.shape_of()):
        raise given.refused(f"{given.low.said} is over all axes, as of a parameter w", OVER_ALL)
    for axis in reversed(axes):
        wire = given.light(nodes.Mean, wire, axis=axis)
    if factor is not None:
        count = math.prod(given.shape_of()[axis] or 1 for axis in axes)
        wire = given.light(nodes.Affine, wire, factor=factor(count))
    return wire


def _rooted(squares: Callable[[Arguments], Ref], given: Arguments) -> Value:
    """The root of squares, with slope 0 where all are 0."""
    return _applied(given, "root", squares(given))


def _square_sum(given: Arguments) -> Ref:
    if given["ord"] not in (None, 2):
        raise given.refused("a norm is not that of order 2", "take order 2")
    return given.kept(_averaged(given, _squared(given, given.wire()), float))


def _variance(given: Arguments) -> Ref:
    """The mean square of differences to the mean, as of one number fewer unless told."""
    x, shape = given.wire(), [*given.shape_of()]
    less = 1.0 if given["correction"] is None else float(given["correction"])
    mean = given.light(nodes.Affine, _averaged(given, x), factor=-1.0)
    for axis in given.axes("", ""):
        shape[axis] = 1
    difference = given.light(nodes.Sum, x, given.light(nodes.Reshape, mean, shape=extents(shape)))
    squares = _squared(given, difference)
    return given.kept(_averaged(given, squares, lambda count: count / (count - less)))


def _largest(given: Arguments, **more: Any) -> Value:
    """Reduce several axes, put last and made one: equal numbers share a gradient among them."""
    wire, shape = given.wire(), given.shape_of()
    axes = given.axes("a maximum is over the batch", "take another axis")
    if len(axes) > 1:
        others = [axis for axis in range(len(shape)) if axis not in axes]
        wire = given.light(nodes.Permute, wire, axes=(*others, *axes))
        joined = [*(shape[axis] for axis in others), math.prod(shape[axis] or 1 for axis in axes)]
        wire = given.light(nodes.Reshape, wire, shape=extents(joined))
        axes = [len(others)]
    return given.kept(given.light(nodes.Max, wire, axis=axes[0], **more))


def _expand(given: Arguments) -> Value:
    return given["self"] if given.shape_of() == given.shape else _expanded(given, given.wire())


def _expanded(given: Arguments, wire: Ref) -> Ref:
    """Expand to the shape of the operation's tensor by adding zeros of it."""
    if given.shape.count(None) > 1:
        raise given.refused("two axes of a tensor would be the batch", "keep the batch as one axis")
    zeros = np.zeros([*map(hint, given.operation.meta["val"].shape)], given.dtype)
    whole = repeated(zeros, given.shape.index(None)) if None in given.shape else zeros
    return given.light(nodes.Sum, given.low.wire(whole), wire)


def _cross_entropy(given: Arguments) -> Value:
    """nn.CrossEntropyLoss of logits, or nn.NLLLoss of their log_softmax; classes on axis 1."""
    low, logits, shape = given.low, given.wire(), given.shape_of()
    options, feeds = low.origin(logits, nodes.Softmax)
    if short(given.operation).startswith("nll"):
        axis = options.get("axis", len(shape) - 1)
        if "is_log" not in options or axis != 1:
            what = "NLLLoss is of no log_softmax over the classes, axis 1"
            raise low.refused(what, "take nn.CrossEntropyLoss() of logits")
        logits = feeds[0]
    # a label of -100 is ignored by PyTorch's losses; none of ours is below 0
    usual = {"weight": None, "reduction": 1, "ignore_index": -100, "label_smoothing": 0}
    _require_usual(given, usual)
    if len(shape) < 2 or len(given.shape_of("target")) != len(shape) - 1:
        raise low.refused(
            "the target of a cross-entropy is no class for each row",
            "give labels (rows,) for logits (rows, classes)",
        )
    target = given.wire("target")
    if low.learns(target):
        raise low.refused("the target of a cross-entropy learns", "give it the data's labels")
    low.classes = shape[1] or 0
    if len(shape) > 2:
        logits = low.permuted(logits, (0, *range(2, len(shape)), 1))
        logits = low.light(nodes.Reshape, logits, shape=(-1, shape[1]))
        target = low.light(nodes.Reshape, target, shape=(-1,))
    low.call(Spec(nodes.SoftmaxCrossEntropy, low.free("loss")), logits, target, outputs=0)
    return LOSS


def _squared_error(given: Arguments) -> Value:
    """nn.MSELoss."""
    low, shape = given.low, given.shape_of()
    _require_usual(given, {"reduction": 1})
    if shape != given.shape_of("target"):
        raise low.refused(*OF_ONE_SHAPE)
    wires = sorted((given.wire(one) for one in ("self", "target")), key=low.learns)[::-1]
    if low.learns(wires[1]):
        raise low.refused("both operands of a squared error learn", "give it the data's target")
    if len(shape) > 2:
        wires = [low.light(nodes.Reshape, one, shape=(-1, shape[-1])) for one in wires]
    low.call(Spec(nodes.SquaredError, low.free("loss")), *wires, outputs=0)
    return LOSS


OF_ONE_SHAPE: Final = (
    "prediction and target of a loss differ in shape",
    "bring both to one shape, such as with target.unsqueeze(1)",
)


def _broadcast(given: Arguments) -> Value:
    """Broadcast as nn.MSELoss does its operands; nothing, where they have one shape."""
    if len({*given.shapes_of("tensors")}) > 1:
        raise given.refused(*OF_ONE_SHAPE)
    return given["tensors"]


def _require_usual(given: Arguments, usual: dict[str, Any]) -> None:
    for name, expected in usual.items():
        if (told := given[name]) is not None and np.any(told != expected):
            raise given.refused(f"the loss has {name}", "leave it at its default")


_RULES: Final[dict[str, Rule]] = {
    "_to_copy to.dtype": _cast,
    "alias clone contiguous lift_fresh_copy": lambda given: given[given.first],
    "add.Tensor": partial(_plus, 1),
    "amax": partial(_largest, splits_ties=True),
    "bmm matmul mm": matmul,
    "broadcast_tensors": _broadcast,
    "cat": _cat,
    "chunk split.Tensor split_with_sizes": _split,
    "clamp": _clamp,
    "conv1d conv2d convolution": convolution,
    "cross_entropy_loss nll_loss_nd": _cross_entropy,
    "div.Tensor": _over,
    "dropout": _dropout,
    "embedding": embedding,
    "eq.Scalar ge.Scalar gt.Scalar le.Scalar lt.Scalar ne.Scalar bitwise_not logical_not": _compare,
    "expand": _expand,
    "flatten.using_ints reshape squeeze squeeze.dim squeeze.dims unflatten.int unsqueeze view "
    "_unsafe_view": _reshape,
    "flip": _flip,
    "gelu": lambda given: _applied(given, GELU[given["approximate"]], given.wire()),
    "gru.input lstm.input": recurrent,
    "gru_cell lstm_cell": cell,
    "layer_norm": partial(norm, nodes.LayerNorm),
    "linalg_vector_norm": partial(_rooted, _square_sum),
    "linear": linear,
    "log_softmax.int": partial(_softmax, is_log=True),
    "masked_fill.Scalar masked_fill.Tensor where.Scalar where.ScalarOther where.ScalarSelf "
    "where.self": _where,
    "max.dim": lambda given: (_largest(given), NOTHING),
    "max_pool1d max_pool2d": max_pool,
    "mean.dim": _mean,
    "mse_loss": _squared_error,
    "mul.Tensor": _times,
    "native_dropout": lambda given: (_dropout(given), NOTHING),
    "neg rsub.Scalar": _affine,
    "permute transpose.int": _permute,
    "pow.Tensor_Scalar": _pointwise("pow"),
    "relu": _node(nodes.ReLU),
    "rms_norm": partial(norm, nodes.RMSNorm),
    "scaled_dot_product_attention": attention,
    "select.int": _select,
    "sigmoid": _node(nodes.Sigmoid),
    "slice.Tensor": _slice,
    "softmax.int": _softmax,
    "stack": _stack,
    "std.correction": partial(_rooted, _variance),
    "sub.Tensor": partial(_plus, -1),
    "sum.dim_IntList": partial(_mean, factor=float),
    "tanh": _node(nodes.Tanh),
    "var.correction": _variance,
}
RULES: Final = {name: _pointwise(name) for name in nodes.FUNCTIONS} | {
    name: rule for names, rule in _RULES.items() for name in names.split()
}
"""By the operators' names, without "aten." and ".default"; PyTorch decomposes what is not in it."""
