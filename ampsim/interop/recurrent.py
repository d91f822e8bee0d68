"""Rules for LSTM and GRU: layers, directions and steps become loops over cells.

`nn.LSTM` and `nn.GRU` are one operation each in an exported program. Here each layer and direction
is a cell in a loop of its own, so that the second layer reads a step as soon as the first has
written it. Loops that nothing reads are not made.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ampsim.interop.loops import LoopSteps, after, each, stack, unstack
from ampsim.interop.lowering import (
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
from ampsim.interop.weights import NodeLayout
from ampsim.nodes import Columns, Concat, Dropout, GRUCell, LSTMCell, Permute, Pick

PARAMETERS = 4
"""Of a cell: weights of input and state, and the biases of both."""


def _cell(
    low: Lowering, parameters: list[Any], name: str, *, is_lstm: bool
) -> tuple[Spec, NodeLayout, int]:
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
            "weight": ("lstm", (input_weight, state_weight)),
            "bias": ("lstm-bias", (biases[0],)),
            "bias_state": ("lstm-bias", (biases[1],)),
        }
        return Spec(LSTMCell, name, options), NodeLayout(layout), hidden
    layout = {
        "weight_input": ("transposed", (input_weight,)),
        "bias_input": ("reshaped", (biases[0],)),
        "weight_state": ("transposed", (state_weight,)),
        "bias_state": ("reshaped", (biases[1],)),
    }
    return Spec(GRUCell, name, options), NodeLayout(layout), hidden


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


def lstm_cell(low: Lowering, given: Arguments) -> Value:
    """One step of an LSTM: (h, c)."""
    parameters = [given[one] for one in ("w_ih", "w_hh", "b_ih", "b_hh")]
    name = _owner(getattr(parameters[0], "name", ""))
    spec, layout, hidden = _cell(low, parameters, name, is_lstm=True)
    state = _joined(low, given["hx"], hidden)
    made = low.learning(spec, layout, low.wire(given["input"]), state)
    return HalfState(made, hidden, False), HalfState(made, hidden, True)


def gru_cell(low: Lowering, given: Arguments) -> Value:
    """One step of a GRU: h."""
    parameters = [given[one] for one in ("w_ih", "w_hh", "b_ih", "b_hh")]
    name = _owner(getattr(parameters[0], "name", ""))
    spec, layout, hidden = _cell(low, parameters, name, is_lstm=False)
    return low.learning(spec, layout, low.wire(given["input"]), _begun(low, given["hx"], hidden))


def _begun(low: Lowering, h: Value, hidden: int) -> Ref:
    return low.wire(Zeros((None, hidden)) if isinstance(h, Zeros) else h)


def lstm(low: Lowering, given: Arguments) -> Value:
    """Outputs at all steps, and the last h and c of each layer and direction."""
    return _Layers(low, given, is_lstm=True).values()


def gru(low: Lowering, given: Arguments) -> Value:
    """Outputs at all steps, and the last h of each layer and direction."""
    return _Layers(low, given, is_lstm=False).values()


class _Layers:
    """The loops of one recurrent operation, each made when it is first asked for."""

    def __init__(self, low: Lowering, given: Arguments, *, is_lstm: bool) -> None:
        self._low, self._given, self._is_lstm = low, given, is_lstm
        self._ways = 2 if given["bidirectional"] else 1
        self._count = given["num_layers"] * self._ways
        shape = given.shape_of("input")
        steps = shape[1 if given["batch_first"] else 0] if len(shape) == 3 else None
        if steps is None:
            raise low.refused(
                f"the batch is not where this {short(given.operation)} expects it",
                "pass batch_first=True for inputs of (rows, steps, columns)",
            )
        self._steps = [LoopSteps(steps, is_reversed=bool(way)) for way in range(self._ways)]
        self._made: dict[Any, Any] = {}
        self._name = low.free(f"{_owner(given['params'][0].name)}.sequence")

    def values(self) -> Value:
        """What the operation gives; each is made when it is asked for."""
        last = [partial(self._once, self._last, number) for number in range(self._count)]
        if not self._is_lstm:
            return partial(self._once, self._outputs), Stacked(tuple(last))
        cells = [partial(self._once, self._last_cell, number) for number in range(self._count)]
        return partial(self._once, self._outputs), Stacked(tuple(last)), Stacked(tuple(cells))

    def _once(self, make: Callable[..., Any], *numbers: int) -> Any:
        key = (make.__name__, *numbers)
        if key not in self._made:
            self._made[key] = make(*numbers)
        return self._made[key]

    def _read(self, layer: int) -> Ref:
        """What a layer reads at each step."""
        low, given = self._low, self._given
        if layer == 0:
            wire = low.wire(given["input"])
            if given["batch_first"]:
                wire = low.light(Permute, wire, axes=(1, 0, 2))
            return low.call(self._name, wire, part=unstack, more=(self._steps[0],))
        below = range((layer - 1) * self._ways, layer * self._ways)
        parts = [self._h(self._once(self._each, number), number) for number in below]
        joined = self._beside(parts)
        if given["dropout"] and given["train"]:
            return low.light(Dropout, joined, rate=float(given["dropout"]), seed=0)
        return joined

    def _beside(self, parts: list[Ref]) -> Ref:
        if len(parts) == 1:
            return parts[0]
        return self._low.light(Concat, *parts, widths=(self._hidden,) * len(parts))

    @property
    def _hidden(self) -> int:
        return self._given["params"][1].values.shape[1]

    def _loop(self, number: int) -> tuple[Ref, Ref, str]:
        low, given = self._low, self._given
        layer, way = divmod(number, self._ways)
        size = len(given["params"]) // self._count
        parameters = given["params"][number * size : (number + 1) * size]
        name = f"{_owner(parameters[0].name)}.l{layer}{'.reverse' if way else ''}"
        spec, layout, hidden = _cell(low, parameters, name, is_lstm=self._is_lstm)
        if self._is_lstm:
            first = [self._start(one, number) for one in given["hx"]]
            start = _joined(low, first, hidden)
        else:
            start = _begun(low, self._start(given["hx"], number), hidden)
        read = self._once(self._read, layer)
        return *low.looping(spec, layout, read, start, steps=self._steps[way]), name

    def _start(self, first: Value, number: int) -> Value:
        """The state that a layer and direction starts with, of those of all."""
        if isinstance(first, Zeros):
            return first
        if isinstance(first, Stacked):
            value: Any = first.values[number]
            return value() if callable(value) else value
        return self._low.light(Pick, self._low.wire(first), keys=(number,))

    def _each(self, number: int) -> Ref:
        again, last, name = self._once(self._loop, number)
        return self._low.call(name, again, last, part=each)

    def _h(self, state: Ref, number: int) -> Ref:
        """H of a state, which is [h | c] in an LSTM."""
        if not self._is_lstm:
            return state
        _again, _last, name = self._once(self._loop, number)
        options = {"width": 2 * self._hidden, "start": 0, "stop": self._hidden}
        return self._low.call(Spec(Columns, self._low.free(f"{name}.h"), options), state)

    def _ended(self, number: int) -> Ref:
        way = number % self._ways
        _again, last, name = self._once(self._loop, number)
        return self._low.call(name, last, part=after, more=(self._steps[way],))

    def _last(self, number: int) -> Value:
        ended = self._once(self._ended, number)
        return HalfState(ended, self._hidden, False) if self._is_lstm else ended

    def _last_cell(self, number: int) -> Value:
        return HalfState(self._once(self._ended, number), self._hidden, True)

    def _outputs(self) -> Ref:
        low = self._low
        parts: list[Ref] = []
        for number in range(self._count - self._ways, self._count):
            _again, _last, name = self._once(self._loop, number)
            way = self._steps[number % self._ways]
            stacked = low.call(name, self._once(self._each, number), part=stack, more=(way,))
            parts.append(self._h(stacked, number))
        joined = self._beside(parts)
        if self._given["batch_first"]:
            return low.light(Permute, joined, axes=(1, 0, 2))
        return joined
