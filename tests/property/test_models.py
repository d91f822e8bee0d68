"""Every shipped model runs on a fresh machine, in both modes alike, and leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest
from program_models import PROGRAMS_ONLY

from ampsim import Amp, Pipeline, Sequential, load_cluster, load_model, simulate
from ampsim.assets import names
from ampsim.runs.witness import leading

TAGGER: dict[str, Any] = {"data": "synthetic", "hidden": 4}
SMALL: dict[str, dict[str, Any]] = {
    "rnn": {"hidden": 6, "replicas": 2},
    "mlp": {"hidden": 8, "data": "synthetic"},
    "dynamic_lstm": {"hidden": 4, "layers": 3},
    "lenet": {"filters": 2, "more_filters": 3, "hidden": 8, "data": "synthetic"},
    "lstm_mnist": {"hidden": 4, "data": "synthetic"},
    "profile": {"network": "cifar10-full", "batch": 100},
    "tree_lstm": {"hidden": 4, "embedding": 3, "data": "synthetic"},
    "tree_lstm, composed": {"hidden": 4, "embedding": 3, "data": "synthetic", "cell": "composed"},
    "tree_lstm, by-gate": {"hidden": 4, "embedding": 3, "data": "synthetic", "cell": "by-gate"},
    "ggnn": {"hidden": 12, "data": "synthetic"},
    "ggnn, composed": {"hidden": 12, "data": "synthetic", "cell": "composed"},
    "ggnn, by-gate": {"hidden": 12, "data": "synthetic", "cell": "by-gate"},
    "bilstm_tagger": TAGGER,
    "bilstm_tagger, composed": TAGGER | {"cell": "composed"},
    "bilstm_tagger, by-gate": TAGGER | {"cell": "by-gate"},
}
INSTANCES = {
    "rnn": 300, "mlp": 300, "lenet": 300, "lstm_mnist": 600, "dynamic_lstm": 300, "profile": 300,
}  # fmt: skip
SHAPES_ALONE = {"profile"}
"""Models that mode "numeric" refuses."""

TABLES = ("spans", "transfers", "updates")


def test_every_shipped_model_is_listed():
    assert sorted({name.split(",")[0] for name in SMALL} | PROGRAMS_ONLY) == names("models")
    for name in names("models"):
        assert load_model(name).is_program_only == (name in PROGRAMS_ONLY)


SCHEDULES = (Sequential(), Pipeline(3), Amp(4))
PAIRS = [
    (name, schedule)
    for place, name in enumerate(sorted(SMALL.keys() - SHAPES_ALONE))
    for schedule in (SCHEDULES if "," not in name else SCHEDULES[place % 3 :][:1])
]
"""Each model under each schedule; with cells in another form under one."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "schedule"), PAIRS, ids=[f"{name}-{schedule.name}" for name, schedule in PAIRS]
)
def test_numeric_and_sleep_give_one_trace_and_caches_are_empty(name, schedule):
    """`simulate` itself checks after each pass that every cache is empty."""
    model = leading(load_model(name.split(",")[0], **SMALL[name]), 10**9, 4)
    cluster = load_cluster("cpu-core", workers=4, latency_s=1e-6)
    traces = [
        simulate(model, cluster, schedule, mode=mode, instances=INSTANCES.get(name, 6)).recorder
        for mode in ("numeric", "sleep")
    ]
    for table in TABLES:
        numeric, sleep = (trace.columns(table) for trace in traces)
        for column in numeric:
            assert (numeric[column] == sleep[column]).all(), (table, column)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SMALL))
def test_no_node_updates_itself_more_often_than_once_an_instance_in_the_mean(name):
    """Under AMP as the model prefers it: a node in a loop meets an instance once a step."""
    model = leading(load_model(name.split(",")[0], **SMALL[name]), 10**9, 1)
    cluster = load_cluster("tflops-1", workers=4)
    count = 2_000 if name in INSTANCES else 10
    result = simulate(model, cluster, Amp(4), mode="sleep", instances=count)
    train = result.spans[result.spans.instance >= 0]
    updates = result.updates.groupby("node").size().to_dict()
    backward = train[train.direction == "backward"]
    instances = backward.groupby("node").instance.nunique().to_dict()
    assert set(updates) == {node.name for node in model.graph().parameterized}
    for node, made in updates.items():
        assert made <= 1.1 * instances[node] + 1, (node, made, instances[node])
