"""A perceptron on three devices of which one stops, trained by a loop in NumPy.

The loop shares no code with the engine, and has a clock of its own.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

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
