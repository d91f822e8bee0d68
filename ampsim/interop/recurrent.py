"""Rules for LSTM and GRU: layers, directions and steps become loops over cells.

`nn.LSTM` and `nn.GRU` are one operation each in an exported program. Here each layer and direction
is a cell in a loop of its own, so that the second layer reads a step as soon as the first has
written it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ampsim.interop.loops import LoopSteps
from ampsim.interop.lowering import (
    EXAMPLE_ROWS,
    Arguments,
    Laid,
    Layout,
    Learned,
    Lowering,
    Spread,
    Stacked,
    Value,
    short,
)
from ampsim.interop.plan import Ref, Spec
from ampsim.nodes import Columns, Concat, Dropout, GRUCell, LSTMCell, Permute, Pick

PARAMETERS = 4
"""Of a cell: weights of input and state, and the biases of both."""


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
        return self.spec.kind is LSTMCell

    def start(self, low: Lowering, state: list[Value]) -> Ref:
        """The wire of the first state: h, or the [h | c] of an LSTM."""
        if not self.is_lstm:
            return low.wire(state[0])
        if all(isinstance(one, Spread) for one in state):
            return low.wire(Spread(np.concatenate([one.values for one in state], -1)))
        (of_h, from_h), (of_c, from_c) = (low.origin(one, Columns) for one in state)
        if from_h and from_h == from_c and (of_h["start"], of_c["start"]) == (0, self.hidden):
            return from_h[0]
        wires, widths = map(low.wire, state), (self.hidden, self.hidden)
        return low.light(Concat, *wires, named="state", widths=widths)

    def halves(self, low: Lowering, state: Ref) -> list[Ref]:
        """H, and c of an LSTM."""
        if not self.is_lstm:
            return [state]
        cuts = zip("hc", (0, self.hidden), (self.hidden, 2 * self.hidden), strict=True)
        width = 2 * self.hidden
        return [
            low.light(Columns, state, named=name, width=width, start=start, stop=stop)
            for name, start, stop in cuts
        ]


def _cell(low: Lowering, parameters: list[Any], ending: str, *, is_lstm: bool) -> _Cell:
    if len(parameters) != PARAMETERS or not all(isinstance(one, Learned) for one in parameters):
        raise low.refused(
            "a recurrent layer has no biases, or a projection", "take bias=True and proj_size=0"
        )
    names = [one.name for one in parameters]
    d_in, hidden = parameters[0].values.shape[1], parameters[1].values.shape[1]
    options: dict[str, Any] = {"d_in": d_in, "hidden": hidden}
    if is_lstm:
        options["has_two_biases"] = True
        layout = {
            "weight": Laid((names[0], names[1]), _by_gate),
            "bias": Laid((names[2],), _by_gate),
            "bias_state": Laid((names[3],), _by_gate),
        }
    else:
        layout = {
            "weight_input": Laid((names[0],), np.transpose),
            "bias_input": Laid((names[2],)),
            "weight_state": Laid((names[1],), np.transpose),
            "bias_state": Laid((names[3],)),
        }
    name = f"{names[0].rpartition('.')[0] or 'recurrent'}{ending}"
    return _Cell(Spec(LSTMCell if is_lstm else GRUCell, name, options), layout, hidden)


def cell(given: Arguments) -> Value:
    """One step: h of a GRU, (h, c) of an LSTM."""
    low, is_lstm = given.low, short(given.operation) == "lstm_cell"
    parameters = [given[one] for one in ("w_ih", "w_hh", "b_ih", "b_hh")]
    made = _cell(low, parameters, "", is_lstm=is_lstm)
    start = made.start(low, given["hx"] if is_lstm else [given["hx"]])
    after = low.learning(made.spec, made.layout, given.wire("input"), start)
    return made.halves(low, after) if is_lstm else after


class _Loop(NamedTuple):
    """A loop over a cell: its states at all steps, and at the one that it ends with."""

    cell: _Cell
    name: str
    steps: LoopSteps
    states: Ref
    last: Ref

    def h(self, low: Lowering, states: Ref) -> Ref:
        """H of states, which are [h | c] in an LSTM."""
        hidden = self.cell.hidden
        if not self.cell.is_lstm:
            return states
        options = {"width": 2 * hidden, "start": 0, "stop": hidden}
        return low.call(Spec(Columns, low.free(f"{self.name}.h"), options), states)


def layers(given: Arguments) -> Value:
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
    name = low.free(f"{given['params'][0].name.rpartition('.')[0] or 'recurrent'}.sequence")
    read = given.wire("input")
    if given["batch_first"]:
        read = low.light(Permute, read, axes=(1, 0, 2))
    read = low.call(name, read, ways[0], part="unstack")
    loops: list[_Loop] = []
    for layer in range(given["num_layers"]):
        if layer:
            below = loops[-len(ways) :]
            read = _beside(low, below, [one.h(low, one.states) for one in below])
            if given["dropout"] and given["train"]:
                read = low.light(Dropout, read, rate=float(given["dropout"]), seed=0)
        loops += [
            _loop(given, read, way, layer, layer * len(ways) + i) for i, way in enumerate(ways)
        ]
    ended = [low.call(one.name, one.last, one.steps, part="after") for one in loops]
    parts = [one.cell.halves(low, wire) for one, wire in zip(loops, ended, strict=True)]
    last = [Stacked(each, loops[0].cell.hidden) for each in zip(*parts, strict=True)]
    return _outputs(given, loops[-len(ways) :]), *last


def _loop(given: Arguments, read: Ref, steps: LoopSteps, layer: int, number: int) -> _Loop:
    """A layer in one direction, the loop of that number."""
    low, is_lstm = given.low, short(given.operation) == "lstm"
    size = len(given["params"]) // (given["num_layers"] * (1 + given["bidirectional"]))
    parameters = given["params"][number * size : (number + 1) * size]
    ending = f".l{layer}{'.reverse' if steps.is_reversed else ''}"
    made = _cell(low, parameters, ending, is_lstm=is_lstm)
    begun = [_start(low, one, number) for one in (given["hx"] if is_lstm else [given["hx"]])]
    start = made.start(low, begun)
    again, last = low.learning(made.spec, made.layout, read, start, steps=steps)
    name = made.spec.name
    return _Loop(made, name, steps, low.call(name, again, last, part="each"), last)


def _start(low: Lowering, first: Value, number: int) -> Value:
    """The state that a layer and direction starts with, of those of all."""
    if isinstance(first, Spread):
        return first.picked(number)
    if isinstance(first, Stacked):
        return first.values[number]
    return low.light(Pick, low.wire(first), keys=(number,))


def _beside(low: Lowering, loops: list[_Loop], parts: list[Ref]) -> Ref:
    """What both directions of a layer give, side by side."""
    return low.joined(parts, [one.cell.hidden for one in loops], -1, 2)


def _outputs(given: Arguments, loops: list[_Loop]) -> Ref:
    """The last layer's h at all steps, both directions beside each other."""
    low = given.low
    parts = [one.h(low, low.call(one.name, one.states, one.steps, part="stack")) for one in loops]
    joined = _beside(low, loops, parts)
    return low.light(Permute, joined, axes=(1, 0, 2)) if given["batch_first"] else joined
