"""Bytes of old weights, counted anew from spans and updates, under every schedule that keeps them.

A version lies in memory from the update that replaces it to the end of the last backward step of an
instance whose forward step read it, if it is read at all. The count knows the whole run, where the
schedule knows no future.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from covering import pairwise

import ampsim
from ampsim import load_model
from ampsim.errors import OutOfMemoryError
from ampsim.hardware import Cluster, Device, Link
from ampsim.machine import Memory
from ampsim.trace import MEMORY_CATEGORIES

STASHES = MEMORY_CATEGORIES.index("stashes")
SCHEDULES: dict[str, Any] = {
    "pipedream": ampsim.PipeDream(),
    "two in flight": ampsim.PipeDream(2),
    "vertical sync": ampsim.PipeDream(vertical_sync=True),
    "vertical sync, two in flight": ampsim.PipeDream(2, vertical_sync=True),
    "more than stages": ampsim.PipeDream(9, vertical_sync=True),
    "2bw of 4": ampsim.PipeDream2BW(4),
    "2bw of 5": ampsim.PipeDream2BW(5),
}
MODELS: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": 8, "data": "synthetic"},
    "lenet": {"filters": 2, "more_filters": 3, "hidden": 8, "data": "synthetic"},
}
SPEEDS = {
    "equal": (1.0, 1.0, 1.0, 1.0),
    "first is slow": (0.07, 1.0, 1.3, 1.9),
    "last is slow": (1.7, 1.0, 1.3, 0.09),
    "middle is slow": (1.7, 0.11, 0.2, 1.1),
    "drawn": (1.0, 30.0, 40.0, 30.0),
}


class Batches:
    """The first batches of another data set; two of them in validation."""

    def __init__(self, whole: Any, count: int) -> None:
        self._whole, self._counts = whole, {"train": count, "valid": 2}

    def batches(self, split: str, **options: int) -> Iterator[Any]:
        return itertools.islice(self._whole.batches(split, **options), self._counts[split])

    def count(self, split: str) -> int:
        return sum(batch.rows for batch in self.batches(split, epoch=0, seed=0))

    def batch_count(self, split: str) -> int:
        return self._counts[split]


def run(schedule: str, model: str, speeds: str, count: int, **more: Any) -> ampsim.Result:
    whole = load_model(model, **MODELS[model])
    data = Batches(whole.make_data(0, None), count)
    made = replace(whole, make_data=lambda _seed, _count: data)
    capacity, cv = more.pop("memory_bytes", None), 0.5 if speeds == "drawn" else 0.0
    devices = tuple(
        Device(name="test", flop_per_s=speed * 1e9, memory_bytes=capacity, jitter_cv=cv)
        for speed in SPEEDS[speeds]
    )
    cluster = Cluster(name="test", devices=devices, link=Link(latency_s=1.23e-7))
    options = {"epochs": 2, "mode": "sleep", "counts_memory": True, **more}
    return ampsim.simulate(made, cluster, SCHEDULES[schedule], **options)


def steps_of(result: ampsim.Result, direction: str) -> Any:
    """Times of the training steps of stages, by instance and node."""
    spans = result.spans
    nodes = list(result.updates["node"].unique())
    own = spans[(spans["direction"] == direction) & spans["node"].isin(nodes)]
    return own.set_index(["instance", "node"])[["start_s", "end_s"]]


def stages_of(result: ampsim.Result) -> list[str]:
    """Names of the nodes with weights, the first one first."""
    forward = steps_of(result, "forward").reset_index()
    first = forward[forward["instance"] == forward["instance"].min()]
    return list(first.sort_values("start_s")["node"])


def read_by(schedule: str, result: ampsim.Result) -> dict[tuple[int, str], int]:
    """The version that each instance reads at each stage, as the papers say."""
    chosen, stages = SCHEDULES[schedule], stages_of(result)
    forward, backward = steps_of(result, "forward"), steps_of(result, "backward")
    made_s = {
        node: np.sort(one["time_s"]) for node, one in result.updates.groupby("node", observed=True)
    }
    trained = sorted({instance for instance, _node in backward.index})
    passes = np.split(trained, np.flatnonzero(np.diff(trained) > 1) + 1)  # validation is between
    found: dict[tuple[int, str], int] = {}
    for instance, node in itertools.product(trained, stages):
        own = next(one for one in passes if instance in one)
        first, place = int(own[0]), instance - int(own[0])
        asked = first if isinstance(chosen, ampsim.PipeDream2BW) else instance
        where = stages[0] if getattr(chosen, "vertical_sync", False) else node
        start_s = forward.loc[(asked, where), "start_s"]
        version = int(np.searchsorted(made_s[where], start_s, side="right"))
        if isinstance(chosen, ampsim.PipeDream2BW):
            version += max(place // chosen.min_update_interval - 1, 0)
        found[instance, node] = version
    return found


def counted(schedule: str, result: ampsim.Result) -> dict[str, dict[float, list[int]]]:
    """For each stage, by moments at which that changes, how many old versions there are.

    What a step read goes as it ends, and then the update begins that replaces a version: a moment
    at which both happen has two numbers.
    """
    reads, backward = read_by(schedule, result), steps_of(result, "backward")
    found: dict[str, dict[float, list[int]]] = {}
    for node in stages_of(result):
        made_s = np.sort(result.updates["time_s"][result.updates["node"] == node])
        gone: dict[float, int] = {}
        kept: dict[float, int] = {}
        for version, replaced_s in enumerate(made_s):
            readers = [one for (one, where), v in reads.items() if where == node and v == version]
            last_s = max((backward.loc[(one, node), "end_s"] for one in readers), default=0.0)
            if last_s > replaced_s:
                kept[replaced_s] = kept.get(replaced_s, 0) + 1
                gone[last_s] = gone.get(last_s, 0) + 1
        held, found[node] = 0, {}
        for time_s in sorted({*gone, *kept}):
            found[node][time_s] = numbers = []
            for change in (-gone.get(time_s, 0), kept.get(time_s, 0)):
                held += change
                if change:
                    numbers.append(held)
    return found


def noted(result: ampsim.Result, size_bytes: dict[str, int]) -> dict[str, dict[float, list[int]]]:
    """The same as the run has it."""
    found: dict[str, dict[float, list[int]]] = {node: {} for node in stages_of(result)}
    for node, time_s, held in result.stashes.itertuples(index=False):
        assert held % size_bytes[node] == 0
        found[node].setdefault(time_s, []).append(held // size_bytes[node])
    return found


def bytes_of(model: str) -> dict[str, int]:
    nodes = load_model(model, **MODELS[model]).graph().parameterized
    return {node.name: node.theta.nbytes for node in nodes}


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[float, int, bool]]]:
    """For each memory, after each change: when, what lay in it but for old weights, and whether
    the change was of these."""
    seen: dict[str, list[tuple[float, int, bool]]] = {}

    def watching(change: Any) -> Any:
        def changed(self: Any, category: int, size_bytes: int) -> None:
            change(self, category, size_bytes)
            left = self.total_bytes - self.held(STASHES)
            row = (self._clock.now, left, category == STASHES)
            seen.setdefault(self._name, []).append(row)

        return changed

    monkeypatch.setattr(Memory, "take", watching(Memory.take))
    monkeypatch.setattr(Memory, "give", watching(Memory.give))
    return seen


def peak_of(
    others: list[tuple[float, int, bool]], counts: dict[float, list[int]], size_bytes: int
) -> int:
    """The most that lay in a memory, with old weights as they are counted here."""
    left = {time_s: list(numbers) for time_s, numbers in counts.items()}
    most = held = 0
    for time_s, rest, is_of_old in others:
        if is_of_old:
            held = left[time_s].pop(0)
        most = max(most, rest + held * size_bytes)
    assert not any(left.values())
    return most


@pytest.mark.parametrize(
    ("schedule", "model", "speeds", "count"), pairwise(SCHEDULES, MODELS, SPEEDS, [1, 4, 11])
)
def test_old_weights_lie_in_memory_from_their_replacement_to_their_last_reader(
    schedule, model, speeds, count, others
):
    result, size_bytes = run(schedule, model, speeds, count), bytes_of(model)
    expected = counted(schedule, result)
    assert noted(result, size_bytes) == expected
    where = result.spans.drop_duplicates("node").set_index("node")["worker"]
    for node, counts in expected.items():
        most = max(itertools.chain.from_iterable(counts.values()), default=0)
        assert result.stashed_bytes_max[node] == most * size_bytes[node]
        worker = int(where[node])
        total = peak_of(others[f"worker {worker} (test)"], counts, size_bytes[node])
        assert result.peak_bytes[worker] == total


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_no_old_weights_are_left_when_an_epoch_has_been_trained(schedule):
    result = run(schedule, "mlp", "first is slow", 7)
    trained_s = (result.epochs["time_s"] - result.epochs["valid_s"]).to_numpy()
    for _node, rows in result.stashes.groupby("node", observed=True):
        for end_s in trained_s:
            assert rows["bytes"][rows["time_s"] <= end_s].iloc[-1] == 0


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_device_that_holds_training_holds_validation(schedule):
    """The capacity is that of the peak of training alone, and of validation without old weights."""
    most = int(run(schedule, "mlp", "equal", 7).peak_bytes.max())
    fits = run(schedule, "mlp", "equal", 7, memory_bytes=most, epochs=3)
    assert int(fits.peak_bytes.max()) == most
    with pytest.raises(OutOfMemoryError):
        run(schedule, "mlp", "equal", 7, memory_bytes=most - 1)
