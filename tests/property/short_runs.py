"""Short runs of every listed schedule on small shipped models, for tests of what all runs obey."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
from covering import among

from ampsim import load_model, simulate
from ampsim.hardware import HOST, Cluster, Device, Link
from ampsim.hardware.topology import Route
from ampsim.ir import Graph
from ampsim.model_parallel import SCHEDULES, needs_chain

MODELS: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": 8, "data": "synthetic"},
    "lenet": {"filters": 2, "more_filters": 3, "hidden": 8, "data": "synthetic"},
    "lstm_mnist": {"hidden": 4, "data": "synthetic"},
    "rnn": {"hidden": 4, "replicas": 2},
    "dynamic_lstm": {"hidden": 4, "layers": 2, "length": 6},
    "tree_lstm": {"hidden": 4, "embedding": 3, "data": "synthetic"},
    "ggnn": {"hidden": 12, "data": "synthetic"},
    "bilstm_tagger": {"data": "synthetic", "hidden": 5, "tanh_units": 4, "word_width": 8},
}
CHAINS = ("mlp", "lenet")
"""Models whose nodes with parameters are a chain of stages."""

CASES = [(schedule, model) for schedule in SCHEDULES for model in MODELS]
PAIRS = [
    (schedule, model)
    for schedule, model in CASES
    if model in CHAINS or not needs_chain(SCHEDULES[schedule]())
]
"""Each schedule with each model that it accepts."""


REFUSED = [pair for pair in CASES if pair not in PAIRS]

LINKS = {
    "free": (0.0, None),
    "latency": (1e-7, None),
    "both": (1e-7, 1e9),
}
"""(latency at most in seconds, bandwidth in bytes per second) of a run's links."""

RUNS = among([(*pair, links) for pair in PAIRS for links in LINKS])
"""Each pair; every schedule, and every model, meets every kind of links."""

STAGES = 4  # of the MLP as it is shipped
ROUNDING_S = 1e-15  # a tick is 1e-18 s; runs here last about 1e-5 s


DRAWN: dict[int, tuple[Any, dict[Any, list[Any]]]] = {}
"""The batches that were drawn of each data set, which is kept so that none has its number."""


@dataclass(frozen=True)
class Few:
    """The first batches of each split of another data set."""

    whole: Any
    counts: tuple[tuple[str, int], ...] = (("train", 5), ("valid", 2))

    def batches(self, split: str, *, epoch: int, seed: int) -> Iterator[Any]:
        return iter(self._first(split, epoch, seed))

    def count(self, split: str) -> int:
        return sum(batch.rows for batch in self._first(split, 0, 0))

    def batch_count(self, split: str) -> int:
        return len(self._first(split, 0, 0))

    def _first(self, split: str, epoch: int, seed: int) -> list[Any]:
        """Drawn once in a process: whole data sets cut all batches to give the first of them."""
        count = dict(self.counts)[split]
        drawn = DRAWN.setdefault(id(self.whole), (self.whole, {}))[1]
        key = split, count, epoch, seed
        if key not in drawn:
            drawn[key] = list(islice(self.whole.batches(split, epoch=epoch, seed=seed), count))
        return drawn[key]


@cache
def small_model(name: str) -> Any:
    """A shipped model that trains on five batches and validates on two."""
    whole = load_model(name, **MODELS[name])
    data = Few(whole.make_data(0, None))
    return replace(whole, make_data=lambda _seed, _count: data, error_scale=1.0)


def schedule_of(name: str, in_flight: int = 3) -> Any:
    """A schedule by its name, with so many in flight where it asks for a number."""
    kind: Any = SCHEDULES[name]
    options = {"max_active_keys": in_flight, "staleness_budget": 1.0}
    return kind(**{f.name: options[f.name] for f in fields(kind) if f.name in options})


@dataclass(frozen=True)
class Run:
    """A finished run, and what it was of."""

    schedule: Any
    cluster: Cluster
    graph: Graph
    result: Any

    @property
    def learning(self) -> list[str]:
        """Names of the nodes with parameters."""
        return [node.name for node in self.graph.parameterized]

    def is_training(self, times_s: Any) -> np.ndarray:
        """Whether each time is within a training pass, its end excluded."""
        epochs, at_s = self.result.epochs, np.asarray(times_s)
        starts_s = epochs["time_s"] - epochs["valid_s"] - epochs["train_s"]
        ends_s = epochs["time_s"] - epochs["valid_s"]
        passes = zip(starts_s - ROUNDING_S, ends_s - ROUNDING_S, strict=True)
        return np.logical_or.reduce([(at_s >= start) & (at_s < end) for start, end in passes])


@cache
def run_of(schedule: str, model: str, links: str, workers: int = STAGES) -> Run:
    """Two epochs in mode "sleep", which keeps every time and every decision."""
    given, cluster = small_model(model), cluster_of(workers, *LINKS[links])
    made = schedule_of(schedule)
    result = simulate(given, cluster, made, epochs=2, mode="sleep")
    return Run(made, cluster, given.graph(), result)


def cluster_of(workers: int, latency_s_max: float, bandwidth: float | None) -> Cluster:
    """Equal workers, and between each two, and the host, a latency of its own."""
    random = np.random.default_rng(workers)
    places = [HOST, *range(workers)]
    links = [
        Route(source=source, target=target, link=_link(random, latency_s_max, bandwidth))
        for source in places
        for target in places
        if source != target
    ]
    devices = (Device(name="test", flop_per_s=1e12),) * workers
    return Cluster(name="test", devices=devices, links=tuple(links))


def _link(random: np.random.Generator, latency_s_max: float, bandwidth: float | None) -> Link:
    latency_s = float(random.uniform(0.1, 1.0)) * latency_s_max
    return Link(latency_s=latency_s, bandwidth_bytes_per_s=bandwidth)
