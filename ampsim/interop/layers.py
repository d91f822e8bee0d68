"""Rules for layers: with weights, over images, attention, and LSTM and GRU, which become loops.

`nn.LSTM` and `nn.GRU` are one operation each in an exported program. Here each layer and direction
is a cell in a loop of its own, so that the second layer reads a step as soon as the first has
written it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

import numpy as np

from ampsim import nodes
from ampsim.interop.loops import LoopSteps
from ampsim.interop.lowering import (
    EXAMPLE_ROWS,
    Arguments,
    Lowering,
    Repeated,
    Stacked,
    Value,
    node_name,
    short,
)
from ampsim.interop.parameters import Layout, Learned
from ampsim.interop.plan import Ref, Spec

SEED: Final = 0  # of masks; each node has its own, by its name
PARAMETERS: Final = 4  # of a cell: weights of input and state, and the biases of both


def _layer(given: Arguments, wire: Ref, kind: Any, **options: Any) -> Ref:
    """A node with an operation's weight, and bias, if it has one."""
    layout: Layout = {}
    for part in ("weight", "bias"):
        value = given[part]
        if isinstance(value, Learned):
            layout[part] = value.places
        elif value is not None:
            raise given.refused(
                f"{part} of this {short(given.operation)} is no parameter of the module",
                "keep it in an nn.Parameter, without calculating with it as weight_norm does; what "
                "is not to learn is done in the data",
            )
    if kind in (nodes.Linear, nodes.Conv2d, nodes.LayerNorm) and "bias" not in layout:
        options["has_bias"] = False
    if kind is nodes.Linear:
        layout["weight"] = layout["weight"].T
    name = node_name(given["weight"].name)
    return given.low.learning(Spec(kind, name, options), layout, wire)


def linear(given: Arguments) -> Value:
    """nn.Linear, whose weight is (out, in); a weight that does not learn is a buffer."""
    low, weight, bias = given.low, given["weight"], given["bias"]
    if isinstance(given["weight"], np.ndarray):
        made = low.light(nodes.MatrixProduct, given.wire("input"), low.wire(weight.T))
        return made if bias is None else low.light(nodes.Sum, made, low.wire(bias))
    d_out, d_in = given.shape_of("weight")
    if isinstance(bias, Learned) and bias.places.size != d_out:
        raise given.refused("a bias is one number for all columns", "give it one for each")
    return _layer(given, given.wire("input"), nodes.Linear, d_in=d_in, d_out=d_out)


def matmul(given: Arguments) -> Value:
    """Multiply a payload by a parameter, (in, out) or (in,), or two payloads."""
    low, weight = given.low, given[given.second]
    first, second = given.shape_of(), given.shape_of(given.second)
    if isinstance(weight, Learned) and len(second) < 3:
        d_in, d_out = (*weight.places.shape, 1)[:2]
        options: dict[str, Any] = {"d_in": d_in, "d_out": d_out, "has_bias": False}
        spec = Spec(nodes.Linear, node_name(weight.name), options)
        made = low.learning(spec, {"weight": weight.places}, given.wire())
        return made if len(second) == 2 else given.reshaped(made)
    if len(second) < 2 or second[:-2] not in ((), first[:-2]):
        raise low.refused(
            "a product of matrices has other axes before these in its second operand",
            "expand both to the same, such as (rows, heads, steps, width), or take nn.Linear",
        )
    return low.light(nodes.MatrixProduct, given.wire(), given.wire(given.second), named="product")


def embedding(given: Arguments) -> Value:
    """nn.Embedding, with or without padding."""
    if given["scale_grad_by_freq"] or given["sparse"]:
        raise given.refused(
            "an embedding scales gradients by frequency, or has sparse ones", "leave both False"
        )
    vocabulary, width = given.shape_of("weight")
    options: dict[str, Any] = {"vocabulary": vocabulary, "width": width}
    if given["padding_idx"] >= 0:
        options["padding"] = given["padding_idx"]
    return _layer(given, given.wire("indices"), nodes.Embedding, **options)


def norm(kind: Any, given: Arguments) -> Value:
    """nn.LayerNorm or nn.RMSNorm over the last axis."""
    if given["weight"] is None or len(given["normalized_shape"]) != 1:
        raise given.refused(
            f"a {kind.__name__} has no weight, or is over several axes",
            f"take nn.{kind.__name__}(width) with a weight",
        )
    (columns,), epsilon = given["normalized_shape"], given["eps"]
    options = {"epsilon": float(np.finfo(given.dtype).eps) if epsilon is None else epsilon}
    return _layer(given, given.wire("input"), kind, columns=columns, **options)


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


def _on_images(given: Arguments, make: Callable[[Ref], Ref]) -> Ref:
    """Add a node of images; sequences (rows, channels, steps) are images of one row."""
    shape = given.shape_of()
    if len(shape) == 4:
        return make(given.wire())
    if len(shape) != 3 or None in shape[1:]:
        raise given.refused(f"{short(given.operation)} has no batch", "give it a first axis of 1")
    made = make(given.light(nodes.Reshape, given.wire(), shape=(-1, shape[1], 1, shape[2])))
    return given.reshaped(made)


def convolution(given: Arguments) -> Value:
    """nn.Conv1d and nn.Conv2d."""
    if any(one != 1 for one in given["dilation"]) or given["groups"] != 1 or given["transposed"]:
        raise given.refused(
            "a convolution has dilation or groups, or is transposed",
            "take nn.Conv2d with dilation=1 and groups=1",
        )
    filters, channels, *kernel = cast("tuple[int, ...]", given.shape_of("weight"))
    options: dict[str, Any] = {"channels": channels, "filters": filters}
    options |= _windows(given, kernel, is_pool=False)
    return _on_images(given, lambda wire: _layer(given, wire, nodes.Conv2d, **options))


def max_pool(given: Arguments) -> Value:
    """nn.MaxPool1d and nn.MaxPool2d."""
    if any(one != 1 for one in given["dilation"]) or given["ceil_mode"]:
        raise given.refused("a pool has dilation or ceil_mode", "leave both as they are")
    options = _windows(given, given["kernel_size"], is_pool=True)
    return _on_images(given, lambda wire: given.light(nodes.MaxPool, wire, **options))


def attention(given: Arguments) -> Value:
    """scaled_dot_product_attention; a causal mask needs no input."""
    low, mask = given.low, given["attn_mask"]
    if given["enable_gqa"]:
        raise given.refused("attention has enable_gqa", "expand keys and values to all heads")
    queries, keys = given.shape_of("query"), given.shape_of("key")
    wires, options = [given.wire(one) for one in ("query", "key", "value")], dict[str, Any]()
    if given["is_causal"] or _is_causal(mask, queries[-2], keys[-2]):
        options["is_causal"] = True
    elif mask is not None:
        wires.append(low.wire(mask))
        if given.dtype_of("attn_mask") == "bool":
            ends = map(given.number_wire, (0.0, -np.inf))
            wires[3] = low.light(nodes.Where, wires[3], *ends)
        options["is_masked"] = True
    if given["scale"] is not None:
        options["scale"] = float(given["scale"])
    if given["dropout_p"]:
        options |= {"dropout": float(given["dropout_p"]), "seed": SEED}
    return low.light(nodes.Attention, *wires, **options)


def _is_causal(mask: Any, queries: Any, keys: Any) -> bool:
    """Tell whether a fixed mask hides exactly the keys after each query."""
    given = cast("np.ndarray[Any, np.dtype[Any]]", mask)
    if not isinstance(mask, np.ndarray) or given.shape[-2:] != (queries, keys):
        return False
    seen = np.tri(queries, keys, dtype=bool)
    return bool((given == (seen if given.dtype == bool else np.where(seen, 0.0, -np.inf))).all())


def _by_gate(*weights: np.ndarray) -> np.ndarray:
    """Weights below each other, with the gates o, i, f, g of PyTorch's i, f, g, o."""
    cut = [one.reshape(4, -1, *one.shape[1:]) for one in weights]
    turned = [np.roll(one, 1, axis=0).reshape(-1, *one.shape[2:]).T for one in cut]
    return np.concatenate(turned)


class _Cell(NamedTuple):
    """A cell with PyTorch's four parameters: what makes it, how these lie, its width."""

    spec: Spec
    layout: Layout
    hidden: int

    @property
    def is_lstm(self) -> bool:
        return self.spec.kind is nodes.LSTMCell

    def start(self, low: Lowering, state: list[Value]) -> Ref:
        """The wire of the first state: h, or the [h | c] of an LSTM."""
        if not self.is_lstm:
            return low.wire(state[0])
        if all(isinstance(one, Repeated) for one in state):
            both = np.concatenate([one.values for one in state], -1)
            return low.wire(replace(state[0], values=both))
        (of_h, from_h), (of_c, from_c) = (low.origin(one, nodes.Columns) for one in state)
        if from_h and from_h == from_c and (of_h["start"], of_c["start"]) == (0, self.hidden):
            return from_h[0]
        wires, widths = map(low.wire, state), (self.hidden, self.hidden)
        return low.light(nodes.Concat, *wires, named="state", widths=widths)

    def halves(self, low: Lowering, state: Ref) -> list[Ref]:
        """H, and c of an LSTM."""
        if not self.is_lstm:
            return [state]
        cuts = zip("hc", (0, self.hidden), (self.hidden, 2 * self.hidden), strict=True)
        width = 2 * self.hidden
        return [
            low.light(nodes.Columns, state, named=name, width=width, start=start, stop=stop)
            for name, start, stop in cuts
        ]


def _cell(low: Lowering, parameters: list[Any], name: str, *, is_lstm: bool) -> _Cell:
    if len(parameters) != PARAMETERS or not all(isinstance(one, Learned) for one in parameters):
        raise low.refused(
            "a recurrent layer has no biases, or a projection", "take bias=True and proj_size=0"
        )
    w_x, w_h, b_x, b_h = cast("list[Learned]", parameters)
    options: dict[str, Any] = {"d_in": w_x.places.shape[1], "hidden": w_h.places.shape[1]}
    if is_lstm:
        options["has_two_biases"] = True
        of = {"weight": (w_x, w_h), "bias": (b_x,), "bias_state": (b_h,)}
        layout = {part: _by_gate(*(one.places for one in them)) for part, them in of.items()}
    else:
        layout = {"bias_input": b_x.places, "bias_state": b_h.places}
        layout |= {"weight_input": w_x.places.T, "weight_state": w_h.places.T}
    spec = Spec(nodes.LSTMCell if is_lstm else nodes.GRUCell, name, options)
    return _Cell(spec, layout, options["hidden"])


def _recurrent_name(given: Arguments) -> str:
    """Name the layer as it is told, or by the path of its first parameter."""
    first = given["w_ih"] or given["params"][0]
    return given["name"] or getattr(first, "name", "").rpartition(".")[0] or "recurrent"


def cell(given: Arguments) -> Value:
    """One step: h of a GRU, (h, c) of an LSTM."""
    low, is_lstm = given.low, short(given.operation) == "lstm_cell"
    parameters = [given[one] for one in ("w_ih", "w_hh", "b_ih", "b_hh")]
    made = _cell(low, parameters, _recurrent_name(given), is_lstm=is_lstm)
    start = made.start(low, given["hx"] if is_lstm else [given["hx"]])
    after = low.learning(made.spec, made.layout, given.wire("input"), start)
    return made.halves(low, after) if is_lstm else after


class _Loop(NamedTuple):
    """A loop over a cell: its states at all steps, and at the one that it ends with."""

    cell: _Cell
    steps: LoopSteps
    states: Ref
    last: Ref

    def h(self, low: Lowering, states: Ref) -> Ref:
        """H of states, which are [h | c] in an LSTM."""
        hidden = self.cell.hidden
        if not self.cell.is_lstm:
            return states
        options = {"width": 2 * hidden, "start": 0, "stop": hidden}
        return low.call(Spec(nodes.Columns, low.free(f"{self.cell.spec.name}.h"), options), states)


def recurrent(given: Arguments) -> Value:
    """Outputs at all steps, and the last h, and c of an LSTM, of each layer and direction."""
    low, shape = given.low, given.shape_of("input")
    order = 1 if given["batch_first"] else -1
    rows, steps = shape[:2][::order] if len(shape) == 3 else (0, None)
    if rows not in (None, EXAMPLE_ROWS) or steps is None:
        raise low.refused(
            f"the batch is not where this {short(given.operation)} expects it",
            "pass batch_first=True for inputs of (rows, steps, columns)",
        )
    ways = [LoopSteps(steps), LoopSteps(steps, is_reversed=True)][: 1 + given["bidirectional"]]
    name = low.free(f"{_recurrent_name(given)}.sequence")
    axes = (1, 0, 2) if given["batch_first"] else (0, 1, 2)
    read = low.call(name, low.permuted(given.wire("input"), axes), ways[0], part="unstack")
    loops: list[_Loop] = []
    for layer in range(given["num_layers"]):
        if layer:
            below = loops[-len(ways) :]
            read = _beside(low, below, [one.states for one in below])
            if given["dropout"] and given["train"]:
                read = low.light(nodes.Dropout, read, rate=float(given["dropout"]), seed=SEED)
        loops += [_loop(given, read, way, len(loops) + i) for i, way in enumerate(ways)]
    ended = [low.call(one.cell.spec.name, one.last, one.steps, part="after") for one in loops]
    parts = [one.cell.halves(low, wire) for one, wire in zip(loops, ended, strict=True)]
    last = [Stacked(each, loops[0].cell.hidden) for each in zip(*parts, strict=True)]
    top = loops[-len(ways) :]
    stacked = (low.call(one.cell.spec.name, one.states, one.steps, part="stack") for one in top)
    return low.permuted(_beside(low, top, stacked), axes), *last


def _loop(given: Arguments, read: Ref, steps: LoopSteps, number: int) -> _Loop:
    """A layer in one direction, the loop of that number."""
    low, is_lstm, ways = given.low, short(given.operation) == "lstm", 1 + given["bidirectional"]
    size = len(given["params"]) // (given["num_layers"] * ways)
    parameters = given["params"][number * size : (number + 1) * size]
    name = f"{_recurrent_name(given)}.l{number // ways}"
    made = _cell(low, parameters, name + ".reverse" * steps.is_reversed, is_lstm=is_lstm)
    begun = [_start(low, one, number) for one in (given["hx"] if is_lstm else [given["hx"]])]
    again, last = low.learning(made.spec, made.layout, read, made.start(low, begun), steps=steps)
    return _Loop(made, steps, low.call(made.spec.name, again, last, part="each"), last)


def _start(low: Lowering, first: Value, number: int) -> Value:
    """The state that a layer and direction starts with, of those of all."""
    if isinstance(first, Repeated):
        return Repeated(first.values[number], first.axis - 1, first.times)
    if isinstance(first, Stacked):
        return first.values[number]
    return low.light(nodes.Pick, low.wire(first), keys=(number,))


def _beside(low: Lowering, loops: list[_Loop], states: Iterable[Ref]) -> Ref:
    """H of both directions of a layer, side by side."""
    parts = [one.h(low, each) for one, each in zip(loops, states, strict=True)]
    return low.joined(parts, [one.cell.hidden for one in loops], -1, 2)
