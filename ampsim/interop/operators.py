"""The table of operators: what each operation of an exported program becomes in a graph.

An exported program keeps the operations that the user wrote, as long as it is not decomposed
(`torch.export`, version 2.13); their names are ATen's. A rule takes the lowering and the operation,
and gives its value. Payloads have PyTorch's shapes, so that each rule stands by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, cast

import numpy as np

from ampsim.interop.loss_rules import broadcast, cross_entropy, log_softmax, squared_error
from ampsim.interop.lowering import (
    Arguments,
    Learned,
    Lowering,
    Stacked,
    Value,
    Zeros,
    extents,
    node_name,
    shape_of,
    short,
)
from ampsim.interop.plan import Ref, Spec
from ampsim.interop.recurrent import cell, layers
from ampsim.interop.remedies import REMEDIES
from ampsim.interop.weights import Laid, Layout
from ampsim.nodes import (
    Affine,
    Attention,
    Conv2d,
    Difference,
    Dropout,
    Embedding,
    LayerNorm,
    Linear,
    Max,
    MaxPool,
    Mean,
    Pick,
    Product,
    ReLU,
    Reshape,
    Sigmoid,
    Sum,
    Tanh,
)

Rule: TypeAlias = Callable[[Lowering, Arguments], Value]

SEED: Final = 0
"""Of masks; each node has its own, by its name."""


def _of_first(kind: Any, low: Lowering, given: Arguments) -> Value:
    """A node of one input and no options."""
    return low.light(kind, low.wire(given[given.first]))


def _same(low: Lowering, given: Arguments) -> Value:
    """What came, as of a copy."""
    return given[given.first]


def _cast(low: Lowering, given: Arguments) -> Value:
    if given.operation.meta["val"].dtype != given.operation.args[0].meta["val"].dtype:
        raise low.refused(
            "a tensor changes its type", "give data of the type that the module computes with"
        )
    return given["self"]


def _dropout(low: Lowering, given: Arguments) -> Value:
    if not given["train"] or not given["p"]:
        return given[given.first]
    return low.light(Dropout, low.wire(given[given.first]), rate=float(given["p"]), seed=SEED)


def _native_dropout(low: Lowering, given: Arguments) -> Value:
    """The same, and the mask, for which there is no node."""
    return _dropout(low, given), None


def _layer(
    low: Lowering, given: Arguments, wire: Ref, spec: tuple[Any, dict[str, Any]], way: str
) -> Ref:
    """A node with an operation's weight, which lies in that way, and bias, if it has one."""
    kind, options = spec
    layout: Layout = {}
    for part in ("weight", "bias"):
        value = given[part]
        if isinstance(value, Learned):
            layout[part] = Laid(way if part == "weight" else "reshaped", (value.name,))
        elif value is not None:
            raise low.refused(
                f"{part} of this {short(given.operation)} is no parameter of the module",
                "keep it in an nn.Parameter of its own, or in a layer such as nn.Linear; attention "
                "to another sequence takes one for query, key and value each",
            )
    if kind in (Linear, Conv2d) and "bias" not in layout:
        options["has_bias"] = False
    name = node_name(layout["weight"].names[0])
    return low.learning(Spec(kind, name, options), layout, wire)


def _linear(low: Lowering, given: Arguments) -> Value:
    d_out, d_in = given.shape_of("weight")
    spec = Linear, {"d_in": d_in, "d_out": d_out}
    return _layer(low, given, low.wire(given["input"]), spec, "transposed")


def _matmul(low: Lowering, given: Arguments) -> Value:
    """Of a payload and a parameter, (in, out)."""
    weight = given[given.second]
    if not isinstance(weight, Learned) or weight.values.ndim != 2:
        raise low.refused("a product is of two tensors that do not learn", REMEDIES["bmm"])
    d_in, d_out = weight.values.shape
    options: dict[str, Any] = {"d_in": d_in, "d_out": d_out, "has_bias": False}
    layout = {"weight": Laid("reshaped", (weight.name,))}
    spec = Spec(Linear, node_name(weight.name), options)
    return low.learning(spec, layout, low.wire(given[given.first]))


def _embedding(low: Lowering, given: Arguments) -> Value:
    if given["scale_grad_by_freq"] or given["sparse"]:
        raise low.refused(
            "an embedding scales gradients by frequency, or has sparse ones", "leave both False"
        )
    vocabulary, width = given.shape_of("weight")
    options: dict[str, Any] = {"vocabulary": vocabulary, "width": width}
    if given["padding_idx"] >= 0:
        options["padding"] = given["padding_idx"]
    return _layer(low, given, low.wire(given["indices"]), (Embedding, options), "reshaped")


def _layer_norm(low: Lowering, given: Arguments) -> Value:
    if given["weight"] is None or given["bias"] is None or len(given["normalized_shape"]) != 1:
        raise low.refused(
            "a LayerNorm has no weight or no bias, or is over several axes",
            "take nn.LayerNorm(width) with both",
        )
    options = {"columns": given["normalized_shape"][0], "epsilon": given["eps"]}
    return _layer(low, given, low.wire(given["input"]), (LayerNorm, options), "reshaped")


def _windows(given: Arguments, kernel: Sequence[int], *, is_pool: bool) -> dict[str, Any]:
    """Kernel, stride and padding as our nodes take them: a number, or (down, across)."""

    def pair(numbers: Sequence[int], usual: int) -> Any:
        width = len(given.shape) - 2
        both = [usual, *numbers, *numbers] if width == 1 else [*numbers, *numbers]
        return both[0] if both[0] == both[1] else (both[0], both[1])

    found: dict[str, Any] = {"kernel": pair(kernel, 1)}
    stride, padding = pair(given["stride"] or kernel, 1), pair(given["padding"], 0)
    if stride != (found["kernel"] if is_pool else 1):
        found["stride"] = stride
    if padding:
        found["padding"] = padding
    return found


def _images(low: Lowering, given: Arguments, wire: Ref) -> Ref:
    """Sequences (rows, channels, steps) as images of one row of pixels; images as they are."""
    shape = given.shape_of(given.first)
    if len(shape) == 4:
        return wire
    if len(shape) != 3 or None in shape[1:]:
        raise low.refused(f"{short(given.operation)} has no batch", "give it a first axis of 1")
    return low.light(Reshape, wire, shape=(-1, shape[1], 1, shape[2]))


def _pixels(low: Lowering, given: Arguments, wire: Ref) -> Ref:
    """Back from images of one row of pixels, where there were sequences."""
    if len(given.shape) == 4:
        return wire
    return low.light(Reshape, wire, shape=(-1, *given.shape[1:]))


def _convolution(low: Lowering, given: Arguments) -> Value:
    if any(one != 1 for one in given["dilation"]) or given["groups"] != 1 or given["transposed"]:
        raise low.refused(
            "a convolution has dilation or groups, or is transposed",
            "take nn.Conv2d with dilation=1 and groups=1",
        )
    filters, channels, *kernel = cast("tuple[int, ...]", given.shape_of("weight"))
    options: dict[str, Any] = {"channels": channels, "filters": filters}
    options |= _windows(given, kernel, is_pool=False)
    images = _images(low, given, low.wire(given["input"]))
    return _pixels(low, given, _layer(low, given, images, (Conv2d, options), "reshaped"))


def _max_pool(low: Lowering, given: Arguments) -> Value:
    if any(one != 1 for one in given["dilation"]) or given["ceil_mode"]:
        raise low.refused("a pool has dilation or ceil_mode", "leave both as they are")
    options = _windows(given, given["kernel_size"], is_pool=True)
    images = _images(low, given, low.wire(given["self"]))
    return _pixels(low, given, low.light(MaxPool, images, **options))


def _to_one_pixel(kind: Any, low: Lowering, given: Arguments) -> Value:
    """Adaptive pools to one pixel: a mean, or the largest, over all."""
    if any(one != 1 for one in given["output_size"]):
        raise low.refused("an adaptive pool gives several pixels", "take output size 1, or MaxPool")
    wire, axes = low.wire(given["self"]), len(given.shape)
    for axis in range(axes - 1, 1, -1):
        wire = low.light(kind, wire, axis=axis)
    return _reshaped(low, given, wire)


def _reshape(low: Lowering, given: Arguments) -> Value:
    value = given[given.first]
    if isinstance(value, Stacked) and len(value.values) == 1 and len(given.shape) == 2:
        return value.values[0]  # the last state of a single layer
    return _reshaped(low, given, low.wire(value))


def _reshaped(low: Lowering, given: Arguments, wire: Ref) -> Ref:
    shape = given.shape or (1,)
    if shape.count(None) > 1:
        raise low.refused(
            "two extents of a shape follow from the batch", "keep the batch as one axis"
        )
    return low.light(Reshape, wire, shape=extents(shape))


def _transpose(low: Lowering, given: Arguments) -> Value:
    axes = list(range(len(given.shape)))
    first, second = given["dim0"], given["dim1"]
    axes[first], axes[second] = axes[second], axes[first]
    return low.permuted(low.wire(given["self"]), axes)


def _permute(low: Lowering, given: Arguments) -> Value:
    count = len(given.shape)
    return low.permuted(low.wire(given["self"]), [axis % count for axis in given["dims"]])


def _picked(low: Lowering, given: Arguments, axis: int, key: Any) -> Value:
    count = len(given.shape_of("self"))
    keys = [None] * (axis % count) + [key]
    return low.light(Pick, low.wire(given["self"]), keys=tuple(keys))


def _select(low: Lowering, given: Arguments) -> Value:
    value = given["self"]
    if isinstance(value, Stacked) and given["dim"] == 0:
        return value.values[given["index"]]
    return _picked(low, given, given["dim"], given["index"])


def _slice(low: Lowering, given: Arguments) -> Value:
    value, key = given["self"], (given["start"], given["end"], given["step"])
    if not all(isinstance(one, int | None) for one in key):
        raise low.refused("a slice's bounds follow from the batch", "take bounds that are numbers")
    start, end, step = key
    end = None if end is None or end > 1 << 60 else end
    if isinstance(value, Stacked) and given["dim"] == 0:
        return Stacked(value.values[start:end:step], value.hidden)
    if (start or 0, end, step) == (0, None, 1):
        return value
    return _picked(low, given, given["dim"], (start or None, end, None if step == 1 else step))


def _split(low: Lowering, given: Arguments) -> Value:
    stops = np.cumsum(given["split_sizes"]).tolist()
    if given.shape_of("self")[given["dim"]] is None:
        raise low.refused("the batch is cut into parts", "cut another axis")
    cuts = zip([0, *stops], stops, strict=False)
    return [_picked(low, given, given["dim"], (start, stop, None)) for start, stop in cuts]


def _cat(low: Lowering, given: Arguments) -> Value:
    values, operations = given["tensors"], given.operation.args[0]
    axes, axis = len(given.shape), given["dim"]
    widths: list[int | None] = [shape_of(one)[axis] for one in operations]
    if None in widths:
        raise low.refused("items of a batch are put below each other", "concatenate another axis")
    return low.joined([low.wire(one) for one in values], widths, axis % axes, axes)


def _stack(low: Lowering, given: Arguments) -> Value:
    axis = given["dim"] % len(given.shape)
    shape = extents((*given.shape[:axis], 1, *given.shape[axis + 1 :]))
    return low.stacked([low.wire(one) for one in given["tensors"]], shape, axis)


def _scalar(value: Any) -> float | None:
    """The number that an operand is; None of one with more or other numbers."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    is_one = isinstance(value, np.ndarray) and value.size == 1
    return float(cast("np.ndarray[Any, np.dtype[Any]]", value).item()) if is_one else None


def _plus(sign: int, low: Lowering, given: Arguments) -> Value:
    """X ± y · alpha, of two payloads or of one and a number."""
    factor = sign * float(given["alpha"])
    operands: list[Any] = [given["self"], given["other"]]
    first, second = map(_scalar, operands)
    if second is not None:
        shift = factor * second
        return low.light(Affine, low.wire(operands[0]), shift=shift) if shift else operands[0]
    if first is not None:
        if (first, factor) == (0, 1):
            return operands[1]  # as Python's `sum` begins
        return low.light(Affine, low.wire(operands[1]), factor=factor, shift=first)
    dtype = str(given.operation.meta["val"].dtype).removeprefix("torch.")
    operands = [one.astype(dtype) if hasattr(one, "astype") else one for one in operands]
    wires = [low.wire(one) for one in operands]
    if factor == -1 and given.shape_of("self") == given.shape_of("other"):
        return low.light(Difference, *wires)
    if factor != 1:
        wires[1] = low.light(Affine, wires[1], factor=factor)
    return low.light(Sum, *wires)


def _affine(low: Lowering, given: Arguments) -> Value:
    """A number − x, or −x."""
    shift, factor = float(given["other"] or 0), -float(given["alpha"] or 1)
    return low.light(Affine, low.wire(given["self"]), factor=factor, shift=shift)


def _times(low: Lowering, given: Arguments) -> Value:
    x, y = given["self"], given["other"]
    for one, other in ((x, y), (y, x)):
        if (number := _scalar(other)) is not None:
            return low.light(Affine, low.wire(one), factor=number)
    if given.shape_of("self") != given.shape_of("other"):
        raise low.refused(
            "two tensors of different shapes are multiplied",
            "have the layers before give both one shape, or expand the smaller to it",
        )
    return low.light(Product, low.wire(x), low.wire(y))


def _over(low: Lowering, given: Arguments) -> Value:
    number = _scalar(given["other"])
    if not number:
        raise low.refused("a tensor is divided by another", "divide by a number")
    return low.light(Affine, low.wire(given["self"]), factor=1 / number)


def _power(low: Lowering, given: Arguments) -> Value:
    if given["exponent"] not in (2, 3, 4):
        raise low.refused("a power is not 2, 3 or 4", "take x * x")
    wire, count = low.wire(given["self"]), int(given["exponent"])
    return low.light(Product, *[wire] * count, count=count)


def _mean(low: Lowering, given: Arguments, *, is_sum: bool = False) -> Value:
    """Over axes one by one; a sum is as many times as large."""
    shape = given.shape_of("self")
    axes = {axis % len(shape) for axis in given["dim"] or range(len(shape))}
    lengths, wire = [shape[axis] for axis in axes], low.wire(given["self"])
    if None in lengths:
        raise low.refused(f"a {'sum' if is_sum else 'mean'} is over the batch", REMEDIES["mean"])
    for axis in sorted(axes, reverse=True):
        wire = low.light(Mean, wire, axis=axis)
    if is_sum:
        wire = low.light(Affine, wire, factor=float(np.prod(cast("list[int]", lengths))))
    return _reshaped(low, given, wire) if given["keepdim"] else wire


def _largest(low: Lowering, given: Arguments) -> Value:
    shape = given.shape_of("self")
    axes = [axis % len(shape) for axis in np.atleast_1d(given["dim"]).tolist()]
    if len(axes) != 1 or shape[axes[0]] is None:
        raise low.refused("a maximum is over several axes or the batch", "take one axis")
    wire = low.light(Max, low.wire(given["self"]), axis=axes[0])
    if not given["keepdim"]:
        return wire
    shape = tuple(1 if axis == axes[0] else extent for axis, extent in enumerate(shape))
    return low.light(Reshape, wire, shape=extents(shape))


def _largest_and_place(low: Lowering, given: Arguments) -> Value:
    """Values and, for which there is no node, places."""
    return _largest(low, given), None


def _expand(low: Lowering, given: Arguments) -> Value:
    """As a sum with zeros of the whole shape."""
    value = given["self"]
    if given.shape_of("self") == given.shape:
        return value
    if given.shape.count(None) != 1 or isinstance(value, np.ndarray):
        raise low.refused(
            "a tensor is expanded that holds no parameter",
            "add it without expand: what has fewer rows is added to each",
        )
    return low.light(Sum, low.wire(Zeros(given.shape)), low.wire(value))


def _attention(low: Lowering, given: Arguments) -> Value:
    mask, queries, keys = given["attn_mask"], given.shape_of("query"), given.shape_of("key")
    options: dict[str, Any] = {}
    if given["is_causal"] or _is_causal(mask, queries[-2], keys[-2]):
        options["is_causal"] = True
    elif mask is not None:
        raise low.refused(
            "attention has a mask that is not the causal one",
            "pass is_causal=True, or batches of one length and no mask",
        )
    if given["scale"] is not None:
        options["scale"] = float(given["scale"])
    if given["dropout_p"]:
        options |= {"dropout": float(given["dropout_p"]), "seed": SEED}
    wires = [low.wire(given[one]) for one in ("query", "key", "value")]
    return low.light(Attention, *wires, **options)


def _is_causal(mask: Any, queries: Any, keys: Any) -> bool:
    """Whether a fixed mask hides exactly the keys after each query."""
    if not isinstance(mask, np.ndarray):
        return False
    given = cast("np.ndarray[Any, np.dtype[Any]]", mask)
    if given.shape[-2:] != (queries, keys):
        return False
    seen = np.tri(queries, keys, dtype=bool)
    return bool((given == (seen if given.dtype == bool else np.where(seen, 0.0, -np.inf))).all())


def _zeros(low: Lowering, given: Arguments) -> Value:
    return Zeros(given.shape)


_SAME: Final = ("alias", "clone", "contiguous", "lift_fresh_copy")
_VIEWS: Final = (
    "flatten.using_ints", "reshape.default", "squeeze.default", "squeeze.dim", "squeeze.dims",
    "unflatten.int", "unsqueeze.default", "view.default", "_unsafe_view.default",
)  # fmt: skip
_ZEROS: Final = ("new_zeros.default", "zeros.default", "zeros_like.default")

RULES: Final[dict[str, Rule]] = {
    "_to_copy.default": _cast,
    **{f"{name}.default": _same for name in _SAME},
    **dict.fromkeys(_VIEWS, _reshape),
    **dict.fromkeys(_ZEROS, _zeros),
    "adaptive_avg_pool1d.default": partial(_to_one_pixel, Mean),
    "adaptive_avg_pool2d.default": partial(_to_one_pixel, Mean),
    "add.Tensor": partial(_plus, 1),
    "amax.default": _largest,
    "broadcast_tensors.default": broadcast,
    "cat.default": _cat,
    "conv1d.default": _convolution,
    "conv2d.default": _convolution,
    "convolution.default": _convolution,
    "cross_entropy_loss.default": cross_entropy,
    "div.Tensor": _over,
    "dropout.default": _dropout,
    "embedding.default": _embedding,
    "expand.default": _expand,
    "gru.input": partial(layers, False),
    "gru_cell.default": partial(cell, False),
    "layer_norm.default": _layer_norm,
    "linear.default": _linear,
    "log_softmax.int": log_softmax,
    "lstm.input": partial(layers, True),
    "lstm_cell.default": partial(cell, True),
    "matmul.default": _matmul,
    "max.dim": _largest_and_place,
    "max_pool1d.default": _max_pool,
    "max_pool2d.default": _max_pool,
    "mean.dim": _mean,
    "mm.default": _matmul,
    "mse_loss.default": squared_error,
    "mul.Tensor": _times,
    "native_dropout.default": _native_dropout,
    "neg.default": _affine,
    "nll_loss_nd.default": cross_entropy,
    "permute.default": _permute,
    "pow.Tensor_Scalar": _power,
    "relu.default": partial(_of_first, ReLU),
    "rsub.Scalar": _affine,
    "scaled_dot_product_attention.default": _attention,
    "select.int": _select,
    "sigmoid.default": partial(_of_first, Sigmoid),
    "slice.Tensor": _slice,
    "split_with_sizes.default": _split,
    "stack.default": _stack,
    "sub.Tensor": partial(_plus, -1),
    "sum.dim_IntList": partial(_mean, is_sum=True),
    "tanh.default": partial(_of_first, Tanh),
    "to.dtype": _cast,
    "transpose.int": _transpose,
}
"""By the operators' names, without "aten."; PyTorch decomposes what is not in it."""
