"""Rules for LSTM and GRU: layers, directions and steps become loops over cells.

`nn.LSTM` and `nn.GRU` are one operation each in an exported program. Here each layer and direction
is a cell in a loop of its own, so that the second layer reads a step as soon as the first has
written it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ampsim.interop.loops import LoopSteps, after, each, stack, unstack
from ampsim.interop.lowering import (
    EXAMPLE_ROWS,
    Arguments,
    HalfState,
    Learned,
    Lowering,
    Stacked,
    Value,
    Zeros,
    short,
)
from ampsim.interop.plan import Ref, Spec
from ampsim.interop.weights import Laid, Layout
from ampsim.nodes import Columns, Concat, Dropout, GRUCell, LSTMCell, Permute, Pick

PARAMETERS = 4
"""Of a cell: weights of input and state, and the biases of both."""


def _cell(
    low: Lowering, parameters: list[Any], name: str, *, is_lstm: bool
) -> tuple[Spec, Layout, int]:
    """A cell with PyTorch's four parameters: what makes it, and how these lie."""
    if len(parameters) != PARAMETERS or not all(isinstance(one, Learned) for one in parameters):
        raise low.refused(
            "a recurrent layer has no biases, or a projection", "take bias=True and proj_size=0"
        )
    input_weight, state_weight, *biases = (one.name for one in parameters)
    d_in, hidden = parameters[0].values.shape[1], parameters[1].values.shape[1]
    options: dict[str, Any] = {"d_in": d_in, "hidden": hidden}
    if is_lstm:
        options["has_two_biases"] = True
        layout = {
            "weight": Laid("lstm", (input_weight, state_weight)),
            "bias": Laid("lstm-bias", (biases[0],)),
            "bias_state": Laid("lstm-bias", (biases[1],)),
        }
        return Spec(LSTMCell, name, options), layout, hidden
    layout = {
        "weight_input": Laid("transposed", (input_weight,)),
        "bias_input": Laid("reshaped", (biases[0],)),
        "weight_state": Laid("transposed", (state_weight,)),
        "bias_state": Laid("reshaped", (biases[1],)),
    }
    return Spec(GRUCell, name, options), layout, hidden


def _owner(parameter: str) -> str:
    """The module that a parameter such as "reader.weight_ih_l0" belongs to."""
    return parameter.rpartition(".")[0] or "recurrent"


def _joined(low: Lowering, state: list[Value], hidden: int) -> Ref:
    """The state [h | c] of an LSTM."""
    h, c = state
    if isinstance(h, HalfState) and isinstance(c, HalfState):
        is_whole = h.state == c.state and (h.is_cell, c.is_cell) == (False, True)
        if is_whole:
            return h.state
    if isinstance(h, Zeros) and isinstance(c, Zeros):
        return low.wire(Zeros((None, 2 * hidden)))
    return low.light(Concat, low.wire(h), low.wire(c), named="state", widths=(hidden, hidden))


def cell(is_lstm: bool, low: Lowering, given: Arguments) -> Value:
    """One step: h of a GRU, (h, c) of an LSTM."""
    parameters = [given[one] for one in ("w_ih", "w_hh", "b_ih", "b_hh")]
    name = _owner(getattr(parameters[0], "name", ""))
    spec, layout, hidden = _cell(low, parameters, name, is_lstm=is_lstm)
    begun = _joined if is_lstm else _begun
    made = low.learning(spec, layout, low.wire(given["input"]), begun(low, given["hx"], hidden))
    return [HalfState(made, hidden, one) for one in (False, True)] if is_lstm else made


def _begun(low: Lowering, h: Value, hidden: int) -> Ref:
    return low.wire(Zeros((None, hidden)) if isinstance(h, Zeros) else h)


def layers(is_lstm: bool, low: Lowering, given: Arguments) -> Value:
    """Outputs at all steps, and the last h, and c of an LSTM, of each layer and direction."""
    shape = given.shape_of("input")
    order = 1 if given["batch_first"] else -1
    rows, steps = shape[:2][::order] if len(shape) == 3 else (0, None)
    if rows not in (None, EXAMPLE_ROWS) or steps is None:
        raise low.refused(
            f"the batch is not where this {short(given.operation)} expects it",
            "pass batch_first=True for inputs of (rows, steps, columns)",
        )
    ways = [LoopSteps(steps), LoopSteps(steps, is_reversed=True)][: 1 + given["bidirectional"]]
    name = low.free(f"{_owner(given['params'][0].name)}.sequence")
    read = low.wire(given["input"])
    if given["batch_first"]:
        read = low.light(Permute, read, axes=(1, 0, 2))
    read = low.call(name, read, part=unstack, more=(ways[0],))
    loops: list[_Loop] = []
    for layer in range(given["num_layers"]):
        if layer:
            below = loops[-len(ways) :]
            read = _beside(low, below, [one.h(low, one.states) for one in below])
            if given["dropout"] and given["train"]:
                read = low.light(Dropout, read, rate=float(given["dropout"]), seed=0)
        for way in ways:
            loops.append(_loop(low, given, read, way, (layer, len(loops), is_lstm)))
    ended = [low.call(one.name, one.last, part=after, more=(one.steps,)) for one in loops]
    outputs = _outputs(low, given, loops[-len(ways) :])
    hidden = loops[0].hidden
    if not is_lstm:
        return outputs, Stacked(tuple(ended), hidden)
    halves = [[HalfState(one, hidden, is_cell) for one in ended] for is_cell in (False, True)]
    return outputs, *(Stacked(tuple(half), hidden) for half in halves)


class _Loop(NamedTuple):
    """A loop over a cell: its states at all steps, and at the one that it ends with."""

    name: str
    steps: LoopSteps
    states: Ref
    last: Ref
    hidden: int
    is_lstm: bool

    def h(self, low: Lowering, states: Ref) -> Ref:
        """H of states, which are [h | c] in an LSTM."""
        if not self.is_lstm:
            return states
        options = {"width": 2 * self.hidden, "start": 0, "stop": self.hidden}
        return low.call(Spec(Columns, low.free(f"{self.name}.h"), options), states)


def _loop(
    low: Lowering, given: Arguments, read: Ref, steps: LoopSteps, which: tuple[int, int, bool]
) -> _Loop:
    """A layer in one direction; `which` is the layer, the number of the loop, and the kind."""
    layer, number, is_lstm = which
    size = len(given["params"]) // (given["num_layers"] * (1 + given["bidirectional"]))
    parameters = given["params"][number * size : (number + 1) * size]
    name = f"{_owner(parameters[0].name)}.l{layer}{'.reverse' if steps.is_reversed else ''}"
    spec, layout, hidden = _cell(low, parameters, name, is_lstm=is_lstm)
    if is_lstm:
        start = _joined(low, [_start(low, one, number) for one in given["hx"]], hidden)
    else:
        start = _begun(low, _start(low, given["hx"], number), hidden)
    again, last = low.looping(spec, layout, read, start, steps=steps)
    states = low.call(name, again, last, part=each)
    return _Loop(name, steps, states, last, hidden, is_lstm)


def _start(low: Lowering, first: Value, number: int) -> Value:
    """The state that a layer and direction starts with, of those of all."""
    if isinstance(first, Zeros):
        return Zeros(first.shape[-2:])
    if isinstance(first, Stacked):
        return first.values[number]
    return low.light(Pick, low.wire(first), keys=(number,))


def _beside(low: Lowering, loops: list[_Loop], parts: list[Ref]) -> Ref:
    """What both directions of a layer give, side by side."""
    if len(parts) == 1:
        return parts[0]
    return low.light(Concat, *parts, widths=(loops[0].hidden,) * len(parts))


def _outputs(low: Lowering, given: Arguments, loops: list[_Loop]) -> Ref:
    """The last layer's h at all steps, both directions beside each other."""
    parts = [
        one.h(low, low.call(one.name, one.states, part=stack, more=(one.steps,))) for one in loops
    ]
    joined = _beside(low, loops, parts)
    return low.light(Permute, joined, axes=(1, 0, 2)) if given["batch_first"] else joined
