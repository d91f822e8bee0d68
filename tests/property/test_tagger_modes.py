"""The tagger: `sleep` mode keeps every time of `numeric` mode, and caches end empty."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ampsim import Amp, Sequential, load_cluster, load_model
from ampsim.data import WikiNer
from ampsim.study import Simulation

SIZES = {"word_width": 8, "character_width": 3, "hidden": 5, "tanh_units": 4}
SCHEDULES = (Sequential(), Amp(max_active_keys=8))
CLUSTERS = {
    "free": load_cluster("tflops-1", workers=16),
    "slow links": load_cluster("tflops-1", workers=3, latency_s=1e-8, bandwidth_bytes_per_s=1e9),
    "roofline": load_cluster("cpu-core", workers=12, bandwidth_bytes_per_s=1e9),
}


def data(seed: int, _count: int | None) -> WikiNer:
    """Sentences with rare words, and without."""
    found = WikiNer.synthetic(seed, train_count=16, valid_count=6)
    assert {bool(one.frequent.all()) for one in found.train} == {True, False}
    return found


def run(cluster: str, schedule: Any, mode: Any) -> Simulation:
    model = replace(load_model("bilstm_tagger", data="synthetic", **SIZES), make_data=data)
    simulation = Simulation(model, CLUSTERS[cluster], schedule, mode=mode)
    simulation.run_epoch()
    return simulation


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda one: one.name)
def test_numeric_and_sleep_give_the_same_trace(cluster, schedule):
    numeric, sleep = (run(cluster, schedule, mode) for mode in ("numeric", "sleep"))
    for table in ("spans", "transfers", "updates"):
        found, expected = (one.result().recorder.columns(table) for one in (sleep, numeric))
        for column in expected:
            assert found[column].tobytes() == expected[column].tobytes(), (table, column)


@pytest.mark.parametrize("mode", ["numeric", "sleep"])
def test_a_drained_epoch_leaves_every_cache_empty(mode):
    simulation = run("free", Amp(max_active_keys=8), mode)
    for node in simulation._graph.nodes:
        assert list(node.pending()) == [], node.name
        caches = {name: vars(node)[name] for name in ("_saved", "_control") if name in vars(node)}
        assert not any(caches.values()), (node.name, caches)
