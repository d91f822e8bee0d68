"""`sleep` mode keeps every decision and every time of `numeric` mode, to the last bit."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from covering import pairwise
from hypothesis import given, settings
from hypothesis import strategies as st

from ampsim import Sequential, load_cluster, load_model, simulate
from ampsim.data import ListReduction, Mnist
from ampsim.errors import OptionError
from ampsim.ir import Graph, Send
from ampsim.model_parallel import SCHEDULES, Settled, needs_chain
from ampsim.nodes import Linear, ReLU, SoftmaxCrossEntropy

TABLES = ("spans", "transfers", "updates")
KNOWN_IN_BOTH = ("epoch", "time_s", "instances", "valid_instances", "train_s", "valid_s")


def tiny_rnn(**options: Any) -> Any:
    def lists(seed: int, _count: int | None) -> ListReduction:
        return ListReduction.generate(seed, 30, 8, batch=4)

    return replace(load_model("rnn", hidden=4, **options), make_data=lists)


def tiny_chain(layers: int, dtype: str) -> Any:
    def images(seed: int, _count: int | None) -> Mnist:
        return Mnist.synthetic(seed, train_count=30, valid_count=8, batch=4, dtype=dtype)

    options: dict[str, Any] = {"hidden": 4, "layers": layers, "data": "synthetic"}
    return replace(load_model("mlp", dtype=dtype, **options), make_data=images)


def tiny(name: str, workers: int, replicas: int, dtype: str = "float32") -> Any:
    """The RNN, which loops; layers in a row for schedules that know only those."""
    if needs_chain(SCHEDULES[name]()):
        return tiny_chain(min(workers, 4), dtype)
    return tiny_rnn(replicas=replicas, dtype=dtype)


def schedule_of(name: str, in_flight: int) -> Any:
    kind: Any = SCHEDULES[name]
    takes = [field.name for field in fields(kind)]
    options = {"max_active_keys": in_flight, "staleness_budget": in_flight / 4}
    return kind(**{key: value for key, value in options.items() if key in takes})


def require_same_trace(model: Any, cluster: Any, schedule: Any, **options: Any) -> None:
    numeric, sleep = (
        simulate(model, cluster, schedule, mode=mode, **options) for mode in ("numeric", "sleep")
    )
    for table in TABLES:
        found, expected = sleep.recorder.columns(table), numeric.recorder.columns(table)
        assert len(expected["node" if table != "transfers" else "source"]) or table == "transfers"
        assert found.keys() == expected.keys()
        for column in expected:
            assert found[column].dtype == expected[column].dtype
            assert found[column].tobytes() == expected[column].tobytes(), (table, column)
    for column in KNOWN_IN_BOTH:
        found, expected = sleep.recorder.columns("epochs"), numeric.recorder.columns("epochs")
        assert found[column].tobytes() == expected[column].tobytes(), column
    assert sleep.epochs[["loss", "accuracy", "train_accuracy", "valid_loss"]].isna().all(axis=None)
    of_regressions = ["error", "train_error"]
    assert numeric.epochs.drop(columns=of_regressions).notna().all(axis=None)
    assert numeric.epochs[of_regressions].isna().all(axis=None)


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(sorted(SCHEDULES)),
    in_flight=st.integers(1, 9),
    replicas=st.integers(1, 3),
    workers=st.integers(1, 7),
    seed=st.integers(0, 99),
)
def test_numeric_and_sleep_give_the_same_trace(
    random_cluster, name, in_flight, replicas, *, workers, seed
):
    cluster = random_cluster(workers, seed=seed, latency_s_max=1e-7 * (seed % 3))
    schedule = schedule_of(name, in_flight)
    model = tiny(name, workers, replicas, ["float32", "float64"][seed % 2])
    require_same_trace(model, cluster, schedule, seed=seed)


CLUSTERS = {
    "free": load_cluster("tflops-1", workers=16),
    "slow links": load_cluster("tflops-1", workers=2, latency_s=1e-8, bandwidth_bytes_per_s=1e9),
    "roofline": load_cluster("cpu-core", workers=8, bandwidth_bytes_per_s=1e9),
    "efficiency": load_cluster("p100", workers=8),
}
"""In "roofline" light steps cost, too; in "efficiency" rows decide the rate."""


def moved(*args: Any) -> Settled:
    """Each node on the worker behind its usual one."""
    usual = simulate(*args, mode="sleep")
    hosts = usual.origin["placement"]["workers"].items()
    return Settled({node: (one + 1) % usual.workers for node, one in hosts}, {"name": "moved"})


@pytest.mark.parametrize(
    ("name", "replicas", "cluster", "seed", "is_moved"),
    pairwise(SCHEDULES, [1, 4], CLUSTERS, [0, 6], [False, True]),
)
def test_every_schedule_on_every_kind_of_cluster_gives_the_same_trace(
    name, replicas, cluster, *, seed, is_moved
):
    hardware, schedule = CLUSTERS[cluster], schedule_of(name, 5)
    model = tiny(name, hardware.workers, replicas)
    place = moved(model, hardware, schedule) if is_moved else "paper"
    require_same_trace(model, hardware, schedule, epochs=2, seed=seed, placement=place)


@pytest.mark.parametrize("name", ["amp", "amp-budget"])
@pytest.mark.parametrize("replicas", [1, 3])
def test_a_remedy_takes_the_same_time_in_both_modes(name, replicas):
    cluster = load_cluster("cpu-core", workers=5, latency_s=1e-8)
    kind: Any = SCHEDULES[name]
    schedule = kind(5, remedy="weight-prediction")
    require_same_trace(tiny(name, 5, replicas), cluster, schedule, epochs=2)


class ReLUThatLooks(ReLU):
    """Stands for a node which routes by what a payload holds."""

    reads_values = True


def looking_graph() -> Graph:
    graph = Graph("looking")
    values, label = graph.controller(values=("rows", 2), label=("rows",))
    looks = graph.add(ReLUThatLooks("looks"), graph.add(Linear("linear", 2, 2), values))
    graph.end(SoftmaxCrossEntropy("loss"), looks, label)
    return graph


def test_sleep_mode_refuses_a_node_that_decides_by_values_and_says_why(chain, make_cluster):
    def pump(instance: int, batch: Any) -> list[Send]:
        return [(0, (instance,), batch.values), (1, (instance,), batch.labels)]

    model = replace(chain((), instances=2).model(), make_graph=looking_graph, pump=pump)
    expected = (
        r"^mode 'sleep' has no numbers, but looks \(ReLUThatLooks\) decides by them; "
        r"use mode 'numeric'$"
    )
    with pytest.raises(OptionError, match=expected):
        simulate(model, make_cluster(2), Sequential(), mode="sleep")
    assert len(simulate(model, make_cluster(2), Sequential()).epochs) == 1
