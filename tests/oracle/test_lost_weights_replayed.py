"""A stop that takes weights back to a checkpoint, under schedules with several instances in flight.

A replay takes from the engine when each step began, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from lost_weights import (
    BACKWARD,
    FORWARD,
    ITEMS,
    LAYERS,
    SEED,
    SIZES,
    UPDATE,
    WHOLE,
    Clocked,
    Layer,
    batches_of,
    cluster,
    gradients,
    loss_gradient,
    model,
    stop,
    through,
)

import ampsim


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
