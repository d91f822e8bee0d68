"""A stop that takes weights back to a checkpoint: the loops that anybody could write, in NumPy.

One knows nothing of the engine: it has a clock of its own. The other takes from the engine when
each step began, and nothing else.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest

import ampsim
from ampsim.hardware import Checkpoints, Cluster, Device, Event, Link
from ampsim.optim import adam, momentum, sgd
from ampsim.study.model import parameters_of

LAYERS, HIDDEN, PIXELS, CLASSES, BATCH, ITEMS, SEED = 3, 6, 784, 10, 12, 96, 5
RATE = 0.1
SIZES = {1: (PIXELS, HIDDEN), 2: (HIDDEN, HIDDEN), 3: (HIDDEN, CLASSES)}
FLOP_PER_S = {1: 64.0, 2: 1.0, 3: 1.0}
FORWARD = {layer: 2.0 * BATCH * n * m / FLOP_PER_S[layer] for layer, (n, m) in SIZES.items()}
BACKWARD = {layer: FORWARD[layer] * (1 if layer == 1 else 2) for layer in SIZES}
UPDATE = {layer: n * m / FLOP_PER_S[layer] for layer, (n, m) in SIZES.items()}
WHOLE = sum(FORWARD.values()) + sum(BACKWARD.values()) + max(UPDATE.values())
"""Seconds of one instance: its updates, of all layers at once, come last."""


def sgd_step(theta: Any, gradient: Any, state: Any) -> tuple[Any, Any]:
    return theta - RATE * gradient, state


def momentum_step(theta: Any, gradient: Any, state: Any) -> tuple[Any, Any]:
    velocity = gradient if state is None else 0.9 * state + gradient
    return theta - RATE * velocity, velocity


def adam_step(theta: Any, gradient: Any, state: Any) -> tuple[Any, Any]:
    count, mean, square = (0, 0.0, 0.0) if state is None else state
    count += 1
    mean = 0.9 * mean + (1 - 0.9) * gradient
    square = 0.999 * square + (1 - 0.999) * gradient**2
    corrected = np.sqrt(square / (1 - 0.999**count)) + 1e-8
    return theta - RATE * (mean / (1 - 0.9**count)) / corrected, (count, mean, square)


METHODS = {
    "sgd": (sgd(RATE), sgd_step),
    "momentum": (momentum(RATE), momentum_step),
    "adam": (adam(RATE), adam_step),
}


@cache
def model(method: str = "sgd") -> Any:
    from dataclasses import replace

    made = ampsim.load_model(
        "mlp", data="synthetic", hidden=HIDDEN, layers=LAYERS, batch=BATCH, dtype="float64"
    )
    return replace(made, optimizer=METHODS[method][0])


def stop(from_s: float, until_s: float, worker: Any = 1) -> Event:
    return Event(kind="stop", worker=worker, from_s=from_s, until_s=until_s, weights="checkpoint")


def cluster(every_s: float, *stops: Event, latency_s: float = 0.0, **takes: float) -> Cluster:
    return Cluster(
        name="three",
        devices=tuple(Device(name="slow", flop_per_s=rate) for rate in FLOP_PER_S.values()),
        link=Link(latency_s=latency_s),
        events=stops,
        checkpoints=Checkpoints(every_s=every_s, **takes),
    )


@dataclass
class Layer:
    """A fully connected layer and its optimizer, on a worker of its own.

    Weight prediction has learned (the smoothed step, how late gradients are).
    """

    weight: Any
    bias: Any
    step: Any
    state: Any = (None, None)
    learned: Any = (None, 0.0)
    updates: int = 0
    free_s: float = 0.0
    kept: Any = field(default=None)
    lost: list[Any] = field(default_factory=list)

    def keep(self, at_s: float) -> None:
        self.kept = copy.deepcopy((self.weight, self.bias, self.state, self.learned, at_s))
        self.updates = 0

    def go_back(self, stop_s: float) -> None:
        self.weight, self.bias, self.state, self.learned, at_s = copy.deepcopy(self.kept)
        self.lost.append((stop_s, at_s, self.updates))
        self.updates = 0

    def apply(self, d_weight: Any, d_bias: Any) -> None:
        self.weight, of_weight = self.step(self.weight, d_weight, self.state[0])
        self.bias, of_bias = self.step(self.bias, d_bias, self.state[1])
        self.state, self.updates = (of_weight, of_bias), self.updates + 1


def layers_of(method: str) -> dict[int, Layer]:
    first = parameters_of(model(method).graph(SEED))
    step = METHODS[method][1]
    made = {
        number: Layer(first[f"linear-{number}.weight"], first[f"linear-{number}.bias"], step)
        for number in SIZES
    }
    for layer in made.values():
        layer.keep(0.0)
    return made


def loss_gradient(logits: Any, labels: Any) -> Any:
    shifted = logits - logits.max(axis=1, keepdims=True)
    probability = np.exp(shifted)
    probability /= probability.sum(axis=1)[:, None]
    probability[np.arange(len(labels)), labels] -= 1
    return probability / len(labels)


def gradients(x: Any, g: Any) -> tuple[Any, Any]:
    return x.T @ g, np.ones(len(g)) @ g


def through(g: Any, weight: Any) -> Any:
    return g @ np.ascontiguousarray(weight.T)


class Clocked:
    """Layers one after the other, each on a device that does one thing at a time and may stop.

    Args:
        stops: (from, until) of the device of layer 2, in order.
        every_s: between checkpoints, which are free.
    """

    def __init__(self, method: str, stops: list[tuple[float, float]], every_s: float) -> None:
        self.layers = layers_of(method)
        self.stops = list(stops)
        self.every_s = every_s
        self.due_s = dict.fromkeys(SIZES, every_s)

    def before(self, number: int, now_s: float) -> float:
        """Take the checkpoints and losses until a step that could begin now; when it does."""
        layer = self.layers[number]
        now_s = max(now_s, layer.free_s)
        while True:
            begins = [one for one in self.stops if number == 2 and one[0] <= now_s]
            at_s = max(self.due_s[number], layer.free_s)
            if layer.updates and at_s <= now_s and not (begins and begins[0][0] <= at_s):
                layer.keep(at_s)
                self.due_s[number] = self.every_s * (np.floor(at_s / self.every_s) + 1)
            elif begins:
                (from_s, until_s) = self.stops.pop(0)
                layer.go_back(from_s)
                layer.free_s = until_s
                now_s = max(now_s, until_s)
            else:
                if not layer.updates:
                    self.due_s[number] = self.every_s * (np.floor(now_s / self.every_s) + 1)
                return now_s

    def during(self, number: int, start_s: float, seconds: float) -> float:
        """When a step ends that is done again after each stop in its middle."""
        layer = self.layers[number]
        while number == 2 and self.stops and start_s < self.stops[0][0] < start_s + seconds:
            from_s, start_s = self.stops.pop(0)
            layer.go_back(from_s)
        layer.free_s = start_s + seconds
        return layer.free_s

    def train(self, batches: Any) -> float:
        """One instance in flight; the end of the last step."""
        now_s = 0.0
        for batch in batches:
            inputs, found, x = {}, {}, batch.images
            for number, layer in self.layers.items():
                now_s = self.before(number, now_s)
                now_s = self.during(number, now_s, FORWARD[number])
                inputs[number] = x
                x = x @ layer.weight + layer.bias
                x = np.maximum(x, 0) if number < LAYERS else x
            g = loss_gradient(x, batch.labels)
            for number in reversed(SIZES):
                layer = self.layers[number]
                now_s = self.before(number, now_s)
                now_s = self.during(number, now_s, BACKWARD[number])
                found[number] = gradients(inputs[number], g)
                if number > 1:
                    g = through(g, layer.weight) * (inputs[number] > 0)
            ends_s: list[float] = []
            for number, layer in self.layers.items():
                start_s = self.before(number, now_s)
                ends_s.append(self.during(number, start_s, UPDATE[number]))
                layer.apply(*found[number])
            now_s = max(ends_s)
        return now_s

    def finish(self, end_s: float) -> None:
        for number in SIZES:
            self.before(number, np.nextafter(end_s, 0.0))


def batches_of(method: str = "sgd") -> Any:
    data = model(method).make_data(SEED, ITEMS)
    return list(data.batches("train", epoch=0, seed=SEED))


STOPS = {
    "between two steps of the device": [(1.1 * WHOLE + FORWARD[1], 1.2 * WHOLE + FORWARD[1])],
    "in the middle of a forward step": [
        (3 * WHOLE + FORWARD[1] + 0.4 * FORWARD[2], 3 * WHOLE + FORWARD[1] + 900.0)
    ],
    "in the middle of a backward step": [
        (2 * WHOLE + sum(FORWARD.values()) + BACKWARD[3] + 50.0, 3.9 * WHOLE)
    ],
    "in the middle of an update": [(3 * WHOLE - max(UPDATE.values()) + 3.0, 3.2 * WHOLE)],
    "twice": [(2.05 * WHOLE, 2.6 * WHOLE), (5 * WHOLE, 5.001 * WHOLE)],
    "twice in one step": [
        (3 * WHOLE + FORWARD[1] + 100.0, 3 * WHOLE + FORWARD[1] + 200.0),
        (3 * WHOLE + FORWARD[1] + 250.0, 3 * WHOLE + FORWARD[1] + 1250.0),
    ],
}


@pytest.mark.parametrize("every", [0.3, 1.7, 4.3, 1000.0])
@pytest.mark.parametrize("when", STOPS)
def test_weights_are_those_of_a_loop_that_restores_a_copy(when, every):
    """One instance in flight, bit for bit; with a checkpoint far away, from the first weights."""
    check_against_loop("sgd", STOPS[when], every * WHOLE)


@pytest.mark.parametrize("method", METHODS)
def test_the_state_of_an_optimizer_goes_back_with_the_weights(method):
    check_against_loop(method, STOPS["twice"], 0.7 * WHOLE)


def check_against_loop(method: str, stops: list[tuple[float, float]], every_s: float) -> None:
    events = [stop(*one) for one in stops]
    result = ampsim.simulate(
        model(method), cluster(every_s, *events), ampsim.Sequential(), instances=ITEMS,
        seed=SEED, placement="paper",
    )  # fmt: skip
    assert result.spans.groupby("node", observed=True)["worker"].first()["linear-2"] == 1
    loop = Clocked(method, stops, every_s)
    trained_s = loop.train(batches_of(method))
    assert result.epochs["train_s"].iloc[0] == pytest.approx(trained_s, rel=1e-12)
    loop.finish(result.makespan_s)
    rows = result.outages[result.outages["kind"] == "stop"]
    found: list[Any] = list(
        rows[["start_s", "checkpoint_s", "updates_lost"]].itertuples(index=False)
    )
    assert [(a, pytest.approx(b), c) for a, b, c in loop.layers[2].lost] == found
    assert every_s < 4 * WHOLE or sum(one.updates_lost for one in found)
    exact = method != "adam"  # whose loop rounds in another order
    for number, layer in loop.layers.items():
        for part in ("weight", "bias"):
            learned = result.model.parameters()[f"linear-{number}.{part}"]
            own = getattr(layer, part)
            if exact:
                np.testing.assert_array_equal(learned, own)
            else:
                np.testing.assert_allclose(learned, own, rtol=1e-9, atol=1e-12)


@dataclass
class Version:
    """What a forward step of an instance read, and what its gradient may need."""

    number: int
    x: Any


class Replay(Clocked):
    """Steps in the order in which the engine began them, in its times, and with rules of our own.

    Args:
        stashes: versions that steps read: "latest", "pipedream" or "2bw".
        group: gradients of an update.
        averages: whether their mean is applied, not their sum.
        predicts: whether forward steps read predicted weights.
    """

    def __init__(self, stops: Any, every_s: float, **rules: Any) -> None:
        super().__init__("momentum", stops, every_s)
        self.rules = {"stashes": "latest", "averages": False, "predicts": False, **rules}
        self.batches = batches_of("momentum")
        self.read: dict[Any, Version] = {}
        self.payload: dict[Any, Any] = {(1, i): one.images for i, one in enumerate(self.batches)}
        self.pending: dict[int, list[Any]] = {number: [] for number in SIZES}
        self.number = dict.fromkeys(SIZES, 0)
        self.versions: dict[Any, Any] = {}

    def serve(self, span: Any) -> None:
        number = int(span.node.removeprefix("linear-"))
        layer = self.layers[number]
        before = len(layer.lost)
        cost = {"forward": FORWARD, "backward": BACKWARD, "update": UPDATE}[span.direction]
        times = 3 if self.rules["predicts"] and span.direction == "update" else 1
        start_s = self.before(number, span.start_s)
        assert start_s == pytest.approx(span.start_s)
        end_s = self.during(number, span.start_s, times * cost[number])
        assert end_s == pytest.approx(span.end_s)
        if len(layer.lost) > before:
            for key in [key for key in self.versions if key[0] == number]:
                self.versions[key] = (layer.weight, layer.bias)
        getattr(self, span.direction)(number, layer, span.instance)

    def forward(self, number: int, layer: Layer, instance: int) -> None:
        latest, x = self.number[number], self.payload[number, instance]
        self.versions[number, latest] = (layer.weight, layer.bias)
        reads = latest
        if self.rules["stashes"] == "2bw":
            reads = max(instance // self.rules["group"] - 1, 0)
        weight, bias = self.versions[number, reads]
        step, staleness = layer.learned
        if self.rules["predicts"] and step is not None and staleness:
            weight, bias = weight - staleness * step[0], bias - staleness * step[1]
        self.read[number, instance] = Version(reads, x)
        y = x @ weight + bias
        if number < LAYERS:
            self.payload[number + 1, instance] = np.maximum(y, 0)
        else:
            gradient = loss_gradient(y, self.batches[instance].labels)
            self.payload[-number, instance] = gradient

    def backward(self, number: int, layer: Layer, instance: int) -> None:
        g, read = self.payload[-number, instance], self.read[number, instance]
        weight = layer.weight
        if self.rules["stashes"] != "latest" and read.number != self.number[number]:
            weight = self.versions[number, read.number][0]
        self.pending[number].append((*gradients(read.x, g), self.number[number] - read.number))
        if number > 1:
            self.payload[1 - number, instance] = through(g, weight) * (read.x > 0)

    def update(self, number: int, layer: Layer, instance: int) -> None:
        found, self.pending[number] = self.pending[number], []
        d_weight, d_bias = (sum(one[i] for one in found) for i in (0, 1))
        if self.rules["averages"]:
            d_weight, d_bias = d_weight / len(found), d_bias / len(found)
        before = layer.weight, layer.bias
        layer.apply(d_weight, d_bias)
        self.number[number] += 1
        moved = [0.1 * (a - b) for a, b in zip(before, (layer.weight, layer.bias), strict=True)]
        step, _staleness = layer.learned
        if step is not None:
            moved = [0.9 * old + new for old, new in zip(step, moved, strict=True)]
        layer.learned = (moved, sum(one[2] for one in found) / len(found))


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "amp": (ampsim.Amp(3, min_update_interval=1), {}),
    "amp, several gradients an update": (ampsim.Amp(4, min_update_interval=3), {}),
    "amp, predicted": (
        ampsim.Amp(3, min_update_interval=1, remedy="weight-prediction"),
        {"predicts": True},
    ),
    "1f1b": (ampsim.OneFOneB(4), {"averages": True}),
    "gpipe": (ampsim.GPipe(3), {"averages": True}),
    "pipedream": (ampsim.PipeDream(), {"stashes": "pipedream"}),
    "2bw": (ampsim.PipeDream2BW(3), {"stashes": "2bw", "group": 3, "averages": True}),
}
"""Schedules, and what their papers say that a step reads and an update applies."""


@pytest.mark.parametrize("every", [0.61, 1000.0])
@pytest.mark.parametrize("from_s", [1.3, 2.27, 3.4321])
@pytest.mark.parametrize("name", CASES)
def test_each_schedule_computes_what_a_replay_of_its_steps_does(name, from_s, every):
    """Which step meets which weights, by our own rules; one that is done again by the new ones."""
    schedule, rules = CASES[name]
    stops = [(from_s * WHOLE, (from_s + 0.4) * WHOLE), (4.2 * WHOLE, 4.21 * WHOLE)]
    result = ampsim.simulate(
        model("momentum"), cluster(every * WHOLE, *[stop(*one) for one in stops]), schedule,
        instances=ITEMS, seed=SEED, placement="paper",
    )  # fmt: skip
    replay = Replay(stops, every * WHOLE, **rules)
    trained_s = result.epochs["train_s"].iloc[0]
    spans = result.spans[result.spans["node"].isin([f"linear-{n}" for n in SIZES])]
    for span in spans[spans["start_s"] < trained_s - 0.5].sort_values("start_s").itertuples():
        replay.serve(span)
    replay.finish(result.makespan_s)
    rows = result.outages[result.outages["kind"] == "stop"]
    found = list(rows[["start_s", "checkpoint_s", "updates_lost"]].itertuples(index=False))
    assert [(a, pytest.approx(b), c) for a, b, c in replay.layers[2].lost] == found
    for number, layer in replay.layers.items():
        learned = result.model.parameters()[f"linear-{number}.weight"]
        np.testing.assert_allclose(learned, layer.weight, rtol=1e-9, atol=1e-12)


def test_a_stop_in_the_last_moment_of_a_run_takes_weights_back_for_whoever_reads_them():
    """No step of the device comes after it."""
    usual = ampsim.simulate(
        model(), cluster(1e6, stop(1e8, 1e8 + 1)), ampsim.Sequential(), instances=ITEMS, seed=SEED
    )
    assert not len(usual.outages)
    late = stop(usual.makespan_s - 0.5 * FORWARD[3], 1e8)
    result = ampsim.simulate(
        model(), cluster(1e6, late), ampsim.Sequential(), instances=ITEMS, seed=SEED
    )
    assert result.makespan_s == usual.makespan_s
    first = parameters_of(model().graph(SEED))
    (row,) = result.outages.to_dict("records")
    assert row["updates_lost"] == ITEMS // BATCH
    for name, values in result.model.parameters().items():
        before = first if name.startswith("linear-2") else usual.model.parameters()
        np.testing.assert_array_equal(values, before[name])
