"""Networks whose control flow is of the graph's own, against PyTorch: values, gradients, steps.

Yu et al. (2018), Section 2.2: LSTMs of several layers over sequences of any length, Adaptive
Computation Time, whose inner loop decides how long it thinks (Graves, 2016), and experts that a
gate chooses at each step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from ampsim import flow
from ampsim.errors import GraphError
from ampsim.optim import sgd

torch: Any = pytest.importorskip("torch")

ROWS, WIDTH, HIDDEN, MOST = 3, 4, 5, 5
TRUST = 0.99
"""Of halting: an inner loop ends when what it has spent exceeds it."""

RATE, STEPS = 0.05, 4


class Case(NamedTuple):
    """A network: its weights, its loss as a program and as PyTorch has it."""

    shapes: dict[str, tuple[int, ...]]
    program: Callable[..., Any]
    reference: Callable[..., Any]


def lstm_shapes(layers: int) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for layer in range(layers):
        width = HIDDEN if layer else WIDTH
        found[f"lstm-{layer}.weight"] = (width + HIDDEN, 4 * HIDDEN)
        found[f"lstm-{layer}.bias"] = (4 * HIDDEN,)
    return found


def dynamic_lstm(layers: int) -> Case:
    """All layers in one loop, the outputs of the last one in an array."""

    def program(p: Any, xs: Any, start: Any) -> Any:
        rows, length = flow.TensorArray().unstack(xs), flow.length(xs)

        def body(i: Any, states: Any, given: Any) -> Any:
            x, after = rows.read(i), []
            for layer, state in enumerate(states):
                after.append(flow.lstm(f"lstm-{layer}", x, state))
                x = after[-1][0]
            return i + 1, after, given.write(i, x)

        states = [(start, start) for _ in range(layers)]
        inits = (0, states, flow.TensorArray(length, element_shape=(None, HIDDEN)))
        _, _, given = flow.while_loop(lambda i, _states, _given: i < length, body, inits)
        return flow.sum(flow.square(given.stack()))

    def reference(p: Any, xs: Any, start: Any) -> Any:
        states, total = [(start, start)] * layers, 0.0
        for x in xs:
            after = []
            for layer, (h, c) in enumerate(states):
                gates = torch.cat([x, h], 1) @ p[f"lstm-{layer}.weight"] + p[f"lstm-{layer}.bias"]
                o, i, f, g = gates.split(HIDDEN, 1)
                c = torch.sigmoid(i) * torch.tanh(g) + torch.sigmoid(f) * c
                x = torch.sigmoid(o) * torch.tanh(c)
                after.append((x, c))
            states, total = after, total + (x * x).sum()
        return total

    return Case(lstm_shapes(layers), program, reference)


ACT_SHAPES: dict[str, tuple[int, ...]] = {
    "cell.weight": (WIDTH + HIDDEN, HIDDEN), "cell.bias": (HIDDEN,),
    "halt.weight": (HIDDEN, 1), "halt.bias": (1,),
}  # fmt: skip


def act_program(p: Any, xs: Any, start: Any) -> Any:
    """At each step the cell thinks until it has spent its trust; the states' mean goes on."""
    rows, length = flow.TensorArray().unstack(xs), flow.length(xs)

    def is_thinking(n: Any, s: Any, mean: Any, spent: Any, rest: Any) -> Any:
        return flow.logical_and(spent < TRUST, n < MOST)

    def body(t: Any, s: Any, ponder: Any) -> Any:
        x = rows.read(t)

        def think(n: Any, s: Any, mean: Any, spent: Any, rest: Any) -> Any:
            s = flow.tanh(flow.linear("cell", flow.concat([x, s]), HIDDEN))
            halt = flow.sum(flow.sigmoid(flow.linear("halt", s, 1))) * (1.0 / ROWS)
            is_last = flow.logical_or(spent + halt > TRUST, flow.equal(n, MOST - 1))
            share = flow.cond(is_last, lambda: 1.0 - spent, lambda: halt)
            return n + 1, s, mean + s * share, spent + share, rest + (1.0 - spent)

        nothing = s * 0.0
        inits = (0, s, nothing, flow.sum(nothing), flow.sum(nothing))
        n, _, mean, _, rest = flow.while_loop(is_thinking, think, inits)
        return t + 1, mean, ponder + rest + flow.cast(n, "float64")

    zero = flow.sum(start) * 0.0
    inits = (0, start, zero)
    _, s, ponder = flow.while_loop(lambda t, _s, _ponder: t < length, body, inits)
    return flow.sum(flow.square(s)) + ponder * 0.1


def act_reference(p: Any, xs: Any, start: Any) -> Any:
    s, ponder, thoughts = start, 0.0, []
    for x in xs:
        mean, spent, rest, n = torch.zeros_like(s), torch.zeros(()).double(), 0.0, 0
        while spent < TRUST and n < MOST:
            s = torch.tanh(torch.cat([x, s], 1) @ p["cell.weight"] + p["cell.bias"])
            halt = torch.sigmoid(s @ p["halt.weight"] + p["halt.bias"]).sum() / ROWS
            share = 1.0 - spent if spent + halt > TRUST or n == MOST - 1 else halt
            mean, rest, spent, n = mean + s * share, rest + (1.0 - spent), spent + share, n + 1
        s, ponder = mean, ponder + rest + n
        thoughts.append(n)
    SEEN.append(thoughts)
    return (s * s).sum() + ponder * 0.1


MOE_SHAPES: dict[str, tuple[int, ...]] = {
    "cell.weight": (WIDTH + HIDDEN, HIDDEN), "cell.bias": (HIDDEN,),
    **{f"gate-{one}.weight": (HIDDEN, 1) for one in range(2)},
    **{f"gate-{one}.bias": (1,) for one in range(2)},
    **{f"expert-{one}.weight": (HIDDEN, HIDDEN) for one in range(4)},
    **{f"expert-{one}.bias": (HIDDEN,) for one in range(4)},
}  # fmt: skip


def moe_program(p: Any, xs: Any, start: Any) -> Any:
    """Two gates choose one of four experts at each step; what it says counts by their certainty."""
    rows, length = flow.TensorArray().unstack(xs), flow.length(xs)

    def body(t: Any, h: Any) -> Any:
        h = flow.tanh(flow.linear("cell", flow.concat([rows.read(t), h]), HIDDEN))
        gates = [flow.sigmoid(flow.sum(flow.linear(f"gate-{one}", h, 1))) for one in range(2)]

        def expert(number: int) -> Any:
            first, second = (
                one if side else 1.0 - one
                for one, side in zip(gates, (number & 2, number & 1), strict=True)
            )
            said = flow.tanh(flow.linear(f"expert-{number}", h, HIDDEN))
            return said * (first * second)

        def half(first: int) -> Any:
            return flow.cond(gates[1] > 0.5, lambda: expert(first + 1), lambda: expert(first))

        return t + 1, h + flow.cond(gates[0] > 0.5, lambda: half(2), lambda: half(0))

    _, h = flow.while_loop(lambda t, _h: t < length, body, (0, start))
    return flow.sum(flow.square(h))


def moe_reference(p: Any, xs: Any, start: Any) -> Any:
    h, chosen = start, []
    for x in xs:
        h = torch.tanh(torch.cat([x, h], 1) @ p["cell.weight"] + p["cell.bias"])
        gates = [
            torch.sigmoid((h @ p[f"gate-{one}.weight"] + p[f"gate-{one}.bias"]).sum())
            for one in range(2)
        ]
        sides = [bool(one > 0.5) for one in gates]
        number = 2 * sides[0] + sides[1]
        first, second = (one if side else 1.0 - one for one, side in zip(gates, sides, strict=True))
        said = torch.tanh(h @ p[f"expert-{number}.weight"] + p[f"expert-{number}.bias"])
        h = h + said * (first * second)
        chosen.append(number)
    SEEN.append(chosen)
    return (h * h).sum()


SEEN: list[list[int]] = []
"""What the references decided, step by step."""

CASES = {
    "dynamic_lstm, 1 layer": dynamic_lstm(1),
    "dynamic_lstm, 8 layers": dynamic_lstm(8),
    "act_rnn": Case(ACT_SHAPES, act_program, act_reference),
    "moe_rnn": Case(MOE_SHAPES, moe_program, moe_reference),
}


@pytest.mark.parametrize("window", [1, 3, 32])
@pytest.mark.parametrize("name", CASES)
def test_values_gradients_and_steps_equal_those_of_torch(name, window):
    case = CASES[name]
    rng = np.random.default_rng(11)
    values = {key: rng.normal(size=shape) * 0.7 for key, shape in case.shapes.items()}
    p = {key: torch.tensor(value, requires_grad=True) for key, value in values.items()}
    with flow.FlowGraph() as graph:
        xs = flow.input("xs", (None, ROWS, WIDTH))
        start = flow.input("start", (ROWS, HIDDEN))
        loss = case.program(None, xs, start)
        held = {key: flow.variable(key, shape=shape) for key, shape in case.shapes.items()}
        slopes = flow.gradients(loss, list(held.values()))
        step = flow.minimize(loss, sgd(RATE))
    flow.set_variables(graph, values)
    SEEN.clear()
    for length in (6, 1, 4, 9)[:STEPS]:
        feeds = {"xs": rng.normal(size=(length, ROWS, WIDTH)), "start": rng.normal(size=(ROWS, 5))}
        expected = case.reference(p, *(torch.tensor(one) for one in feeds.values()))
        for one in p.values():
            one.grad = None
        expected.backward()
        result = flow.run([loss, *slopes, step], feeds, parallel_iterations=window)
        value, *found = result.values[:-1]
        assert value == pytest.approx(float(expected.detach()), rel=1e-12)
        for key, slope in zip(held, found, strict=True):
            wanted = p[key].grad
            wanted = np.zeros(slope.shape) if wanted is None else wanted.numpy()
            assert np.abs(slope - wanted).max() <= 1e-10 * max(np.abs(wanted).max(), 1), key
        with torch.no_grad():
            for one in p.values():
                if one.grad is not None:
                    one -= RATE * one.grad
    for key, one in p.items():
        assert np.abs(flow.variables(graph)[key] - one.detach().numpy()).max() <= 1e-10


@pytest.mark.parametrize("name", ["act_rnn", "moe_rnn"])
def test_decisions_are_of_the_data_and_differ(name):
    """Else the test above would be one of a fixed route."""
    case = CASES[name]
    rng = np.random.default_rng(11)
    p = {key: torch.tensor(rng.normal(size=shape) * 0.7) for key, shape in case.shapes.items()}
    SEEN.clear()
    for _ in range(4):
        xs, start = rng.normal(size=(9, ROWS, WIDTH)), rng.normal(size=(ROWS, HIDDEN))
        case.reference(p, torch.tensor(xs), torch.tensor(start))
    assert len({one for decided in SEEN for one in decided}) >= 3


def test_a_wider_state_than_is_known_is_refused():
    with flow.FlowGraph():
        x, h = flow.input("x", (None, 3)), flow.input("h", (None, None))
        with pytest.raises(GraphError, match=r"cell: h must be \(rows, hidden\)"):
            flow.lstm("cell", x, (h, h))
