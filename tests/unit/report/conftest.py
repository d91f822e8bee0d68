"""Hand-made finished results: a layered network, list-scheduled as in the paper's Figure 1."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ampsim.forecasting import Forecast
from ampsim.metric import ACCURACY
from ampsim.runs.run import Run

STEP_S = {"forward": 1.0e-6, "backward": 2.0e-6, "update": 0.5e-6}
PRIORITY = {"update": 0, "backward": 1, "forward": 2}


@dataclass
class Chain:
    """`layers` equal layers on as many workers, further workers with free steps only."""

    layers: int
    workers: int
    mode: str
    in_flight: int
    instances: int
    queue: list[tuple[float, int, int, str, int, int]] = field(default_factory=list)
    free_at_s: list[float] = field(default_factory=list)
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    updates: list[int] = field(default_factory=list)
    seen: dict[tuple[int, int], int] = field(default_factory=dict)
    pumped: int = 0
    done: int = 0

    def run(self) -> pd.DataFrame:
        self.free_at_s, self.updates = [0.0] * self.layers, [0] * self.layers
        self.pump(0.0, self.in_flight)
        while self.queue:
            # the best message among those whose worker is free first
            start = [max(item[0], self.free_at_s[item[5]]) for item in self.queue]
            best = min(
                range(len(self.queue)),
                key=lambda i: (start[i], PRIORITY[self.queue[i][3]], self.queue[i][1:]),
            )
            item = self.queue.pop(best)
            heapq.heapify(self.queue)
            self.serve(start[best], item[3], item[4], item[5])
        columns = [
            "worker", "node", "direction", "instance", "start_s", "end_s", "flop", "bytes",
            "staleness",
        ]  # fmt: skip
        frame = pd.DataFrame(self.rows, columns=columns).sort_values("start_s", kind="stable")
        for name in ("node", "direction"):
            frame[name] = frame[name].astype("category")
        return frame.reset_index(drop=True)

    def serve(self, start_s: float, direction: str, instance: int, layer: int) -> None:
        end_s = start_s + STEP_S[direction]
        self.free_at_s[layer] = end_s
        staleness = -1
        if direction == "forward":
            self.seen[layer, instance] = self.updates[layer]
        elif direction == "backward":
            staleness = self.updates[layer] - self.seen.pop((layer, instance))
        else:
            self.updates[layer] += 1
        self.rows.append(
            (layer, f"linear-{layer}", direction, instance, start_s, end_s, 100, 8, staleness)
        )
        self.follow(end_s, direction, instance, layer)

    def follow(self, end_s: float, direction: str, instance: int, layer: int) -> None:
        if direction == "forward":
            spare = self.workers - self.layers
            if spare > 1:  # the last worker never does anything
                light = self.layers + (layer + instance) % (spare - 1)
                self.rows.append((light, "relu", "forward", instance, end_s, end_s, 0, 8, -1))
            last = layer + 1 == self.layers
            self.send(end_s, "backward" if last else "forward", instance, layer + (not last))
        elif direction == "backward":
            if self.mode != "pipeline":
                self.send(end_s, "update", instance, layer)
            if layer > 0:
                self.send(end_s, "backward", instance, layer - 1)
            else:
                self.finish(end_s, instance)

    def finish(self, end_s: float, instance: int) -> None:
        self.done += 1
        if self.mode == "amp":
            self.pump(end_s, 1)
        elif self.done % self.in_flight == 0 or self.done == self.instances:
            if self.mode == "pipeline":
                for layer in range(self.layers):
                    self.send(end_s, "update", -1, layer)
            self.pump(end_s + STEP_S["update"], self.in_flight)

    def pump(self, time_s: float, count: int) -> None:
        for _ in range(min(count, self.instances - self.pumped)):
            self.send(time_s, "forward", self.pumped, 0)
            self.pumped += 1

    def send(self, time_s: float, direction: str, instance: int, layer: int) -> None:
        entry = (time_s, PRIORITY[direction], instance, direction, instance, layer)
        heapq.heappush(self.queue, entry)


def chain(layers: int = 3, workers: int = 3, instances: int = 12) -> dict[str, pd.DataFrame]:
    """Spans of the three schedules of Figure 1 by name."""
    flights = {"sequential": 1, "pipeline": 4, "amp": layers + 1}
    return {
        mode: Chain(layers, workers, mode, in_flight, instances).run()
        for mode, in_flight in flights.items()
    }


def learning(schedule: str, repeat: int, *, reached: bool = True) -> pd.DataFrame:
    """Epochs of a run that rises to 97 % and stops there."""
    epoch_s = {"sequential": 0.2, "pipeline": 0.08, "amp": 0.05}[schedule]
    length = {"sequential": 7, "pipeline": 11, "amp": 8}[schedule] + repeat
    noise = np.random.default_rng([repeat, length]).normal(0, 0.008, length)
    accuracy = 1 - 0.72 * np.exp(-np.arange(length) / length * 3.2) + noise
    accuracy = np.minimum(accuracy, 0.965)
    accuracy[-1] = 0.972 if reached else 0.95
    epoch = np.arange(1, length + 1)
    return pd.DataFrame(
        {
            "epoch": epoch,
            "time_s": epoch * epoch_s,
            "loss": 2 * np.exp(-epoch / 4),
            "accuracy": accuracy,
            "instances": 100_000,
            "train_accuracy": accuracy,
            "valid_loss": 2 * np.exp(-epoch / 4),
            "valid_instances": 10_000,
            "train_s": epoch_s * 0.95,
            "valid_s": epoch_s * 0.05,
        }
    )


def staleness_counts(schedule: str) -> pd.DataFrame:
    """Gradients of four nodes by staleness: none but 0 in the synchronous schedules."""
    rows: list[tuple[str, int, int]] = []
    for index, node in enumerate(("embedding", "linear-1", "linear-2", "linear-3")):
        if schedule != "amp":
            rows.append((node, 0, 1000))
            continue
        weights = np.exp(-((np.arange(9) - 1.2 * (3 - index)) ** 2) / 3)
        rows += [(node, value, int(1000 * weight)) for value, weight in enumerate(weights)]
    return pd.DataFrame(rows, columns=["node", "staleness", "count"])


def shares(workers: int) -> pd.DataFrame:
    """Workers that are the busier the later, in thirds of update, backward and forward."""
    part = np.arange(workers) / workers / 3
    columns = {"worker": np.arange(workers), "update": part, "backward": part, "forward": part}
    return pd.DataFrame(columns)


def table_of(**changes: Any) -> pd.DataFrame:
    """A forecast's table of three schedules; `changes` replace whole columns."""
    nan = float("nan")
    columns: dict[str, Any] = {
        "schedule": ["sequential", "pipeline", "amp"],
        "max_active_keys": [1, 8, 8],
        "min_update_interval": [1, 1, 1],
        "replicas": [4, 4, 4],
        "workers": [16, 16, 16],
        "train_per_s": [508_000.0, 1_290_000.0, 2_080_000.0],
        "valid_per_s": [1_520_000.0, 5_800_000.0, 5_900_000.0],
        "epochs_to_target": [7.0, 11.0, 8.0],
        "time_to_target_s": [1.39, 0.88, 0.41],
        "time_to_target_low_s": [1.39, 0.8, 0.38],
        "time_to_target_high_s": [1.6, 0.96, 0.51],
        "utilisation": [0.0625, 0.21, 0.43],
        "staleness_mean": [0.0, 0.0, 2.3],
        "staleness_max": [0, 0, 8],
        "messages": [1_200_000, 1_200_000, 1_200_000],
        "makespan_s": [1.4, 0.9, 0.43],
        "time_to_target_formula_s": [1.42, 0.9, 0.42],
        "best_accuracy": [0.972, 0.972, 0.972],
        "best_error": [nan, nan, nan],
        "repeats_reached": [3, 3, 3],
        "repeats": [3, 3, 3],
        "bound_by": [None, None, None],
        "worker_share": [nan, nan, nan],
        "path_share": [nan, nan, nan],
        "link_share": [nan, nan, nan],
        "admission_share": [nan, nan, nan],
        "note": ["", "", ""],
    }
    assert set(changes) <= set(columns), nan
    return pd.DataFrame(columns | changes)


def forecast_of(spans: dict[str, pd.DataFrame], workers: int, **changes: Any) -> Forecast:
    """A finished forecast with three repeats of three schedules."""
    runs = tuple(
        Run(
            schedule=name,
            repeat=repeat,
            epochs=learning(name, repeat),
            spans=spans[name],
            staleness=staleness_counts(name),
            utilisation_by_worker=shares(workers),
        )
        for name in spans
        for repeat in range(3)
    )
    manifest = {
        "command": ["ampsim", "forecast", "rnn"],
        "seed": 0,
        "assumptions": ["Light operations are free.", "Links are instantaneous."],
        "costs": [
            {"of": "tflops-1", "what": "linear-1", "kind": "formula", "text": "Appendix C"},
            {"of": "tflops-1", "what": "relu", "kind": "assumed", "text": "free"},
        ],
        "model": {"name": "rnn", "config": {"hidden": 128}},
    }
    values: dict[str, Any] = {
        "table": table_of(workers=[workers] * 3),
        "target": 0.97,
        "metric": ACCURACY,
        "runs": runs,
        "workers": workers,
        "model": "rnn",
        "cluster": "16 × tflops-1",
        "manifest": manifest,
    }
    return Forecast(**(values | changes))


@pytest.fixture
def figure_1() -> dict[str, pd.DataFrame]:
    """Three layers on three workers under three schedules."""
    return chain()


@pytest.fixture(scope="session")
def make_chain() -> Callable[..., dict[str, pd.DataFrame]]:
    return chain


@pytest.fixture(scope="session")
def make_table() -> Callable[..., pd.DataFrame]:
    return table_of


@pytest.fixture(scope="session")
def make_epochs() -> Callable[..., pd.DataFrame]:
    return learning


@pytest.fixture(scope="session")
def make_staleness() -> Callable[[str], pd.DataFrame]:
    return staleness_counts


@pytest.fixture(scope="session")
def make_forecast() -> Callable[..., Forecast]:
    return forecast_of


def crowd_of(steps: int, workers: int) -> pd.DataFrame:
    """About `steps` spans of workers that are never idle for long, in the order of their ends."""
    random = np.random.default_rng(0)
    each = steps // workers
    frames: list[pd.DataFrame] = []
    for worker in range(workers):
        length_s = random.exponential(1e-6, each)
        start_s = np.cumsum(length_s + random.exponential(5e-7, each)) - length_s
        values = {
            "worker": worker,
            "node": f"linear-{worker}",
            "direction": np.array(["forward", "backward", "update"])[np.arange(each) % 3],
            "instance": np.arange(each) // 3,
            "start_s": start_s,
            "end_s": start_s + length_s,
            "flop": 1000,
            "bytes": 8,
            "staleness": -1,
        }
        frames.append(pd.DataFrame(values))
    return pd.concat(frames).sort_values("end_s", ignore_index=True)


@pytest.fixture(scope="session")
def make_crowd() -> Callable[[int, int], pd.DataFrame]:
    return crowd_of
