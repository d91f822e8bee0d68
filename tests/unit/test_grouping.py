"""A worker may merge messages that wait for one node: the numbers stay, the time is one step's."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ampsim import Amp, load_cluster, load_model, simulate
from ampsim.data import ListReduction
from ampsim.hardware import Cluster, Device
from ampsim.ir import Direction, Graph, Work
from ampsim.model_parallel import assembly
from ampsim.model_parallel.grouping import GroupingWorker
from ampsim.nodes import Linear, SoftmaxCrossEntropy
from ampsim.runs.witness import leading

CURVE = ((1, 0.1), (100, 0.9))
DEVICE = Device(
    name="d",
    flop_per_s=2.0,
    operation_overhead_s=3.0,
    memory_bandwidth_bytes_per_s=5.0,
    efficiency=CURVE,
)
LEARN_LATE = 10**9


def steps(spans: Any, node: str, direction: str) -> Any:
    return spans[(spans["node"] == node) & (spans["direction"] == direction)]


def one_layer(chain: Any, layer: Any, **options: Any) -> Any:
    """A model of one layer of two columns, and a loss."""

    def graph() -> Graph:
        made = Graph("g")
        values, label = made.controller(values=("rows", 2), label=("rows",))
        made.end(SoftmaxCrossEntropy("loss"), made.add(layer(), values), label)
        return made

    return replace(chain(((1, 1, 1),), **options).model(), make_graph=graph)


def small(name: str, **more: Any) -> Any:
    """A shipped model with few weights, and few instances to validate with."""
    options: dict[str, Any] = {"hidden": 8, **more}
    if name == "rnn":
        model = load_model("rnn", **options)
        data = ListReduction.generate(0, 240, 40, batch=4)
        return replace(model, make_data=lambda _seed, _count: data)
    sizes = {"tree_lstm": {"embedding": 3, "words": 40}, "ggnn": {"hidden": 12}}
    return leading(load_model(name, data="synthetic", **options | sizes[name]), LEARN_LATE, 4)


def grouped(name: str, device: str = "p100", **options: Any) -> Any:
    count = None if name == "rnn" else 8
    cluster = load_cluster(device, workers=5)
    schedule = Amp(**{"max_active_keys": 8, **options})
    return simulate(small(name), cluster, schedule, instances=count)


# --- what it costs -----------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize(("messages", "rows"), [(2, 1), (5, 3), (8, 40)])
def test_n_messages_of_k_rows_take_the_time_of_one_step_of_n_times_k_rows(
    chain, direction, messages, rows
):
    """Overheads + max(FLOP / (rate · efficiency at n·k), bytes / bandwidth), written out."""
    model = one_layer(chain, lambda: Linear("l", 2, 2), instances=messages, rows=rows)
    cluster = Cluster(name="c", devices=(DEVICE,))
    schedule = Amp(messages, LEARN_LATE, max_group=messages)
    found = steps(simulate(model, cluster, schedule).spans, "l", direction)
    k = messages * rows
    fraction = 0.9 if k >= 100 else 0.1 + 0.8 * math.log(k) / math.log(100)
    weights = 6 if direction == "forward" else 0  # the first layer sends no gradient back
    flop, moved = 2 * k * 2 * 2, (k * (2 + 2) + weights) * 8
    # a product and the bias, issued once for all messages; back, its share of the update's product
    operations = 2 if direction == "forward" else 1
    expected_s = operations * 3.0 + max(flop / (2.0 * fraction), moved / 5.0)
    assert len(found) == messages and found["end_s"].max() - found["start_s"].min() == (
        pytest.approx(expected_s, rel=1e-12)
    )
    assert (found["flop"].sum(), found["bytes"].sum()) == (flop, moved)


def test_members_stand_side_by_side_each_with_its_share(chain, make_cluster):
    """Stages of a fixed price, whatever the rows: four members share one step of 10 s."""
    model = chain(((10, 20, 0),), instances=4).model()
    found = simulate(model, make_cluster(1), Amp(4, LEARN_LATE, max_group=4)).spans
    forward = steps(found, "stage-1", "forward")
    assert forward["start_s"].tolist() == [0.0, 2.5, 5.0, 7.5]
    assert forward["end_s"].tolist() == [2.5, 5.0, 7.5, 10.0]
    assert forward["flop"].tolist() == [2, 3, 2, 3]
    assert steps(found, "loss", "forward")["start_s"].unique().tolist() == [0.0, 10.0], (
        "labels come at once, what the group sends when it ends"
    )
    backward = steps(found, "stage-1", "backward")
    assert backward["start_s"].tolist() == pytest.approx([10.0, 15.0, 20.0, 25.0], rel=1e-15)


class WithoutPrice(Linear):
    """A layer whose steps overhead alone makes last."""

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        return Work()


def test_members_without_flop_have_equal_shares(chain):
    model = one_layer(chain, lambda: WithoutPrice("l", 2, 2), instances=3)
    cluster = Cluster(name="c", devices=(Device(name="d", flop_per_s=1, operation_overhead_s=3),))
    found = steps(simulate(model, cluster, Amp(3, max_group=3)).spans, "l", "forward")
    assert (found["end_s"] - found["start_s"]).tolist() == [1.0, 1.0, 1.0]


def test_payloads_of_unlike_rows_are_merged_and_share_by_their_own_flop(chain, make_cluster):
    """Rows 1 and 3 of a layer of 2 x 2: one product of 4 rows, a quarter of it the first's."""
    model = one_layer(chain, lambda: Linear("l", 2, 2), instances=2)

    def pump(instance: int, batch: Any) -> Any:
        state = type("One", (tuple,), {})((instance,))
        rows = 1 + 2 * instance
        return [(0, state, np.ones((rows, 2))), (1, state, np.zeros(rows, int))]

    result = simulate(replace(model, pump=pump), make_cluster(1), Amp(2, LEARN_LATE, max_group=2))
    found = steps(result.spans, "l", "forward")
    assert found["flop"].tolist() == [8, 24]
    assert found["end_s"].tolist() == [8.0, 32.0]
    assert found["bytes"].sum() == (4 * (2 + 2) + 6) * 8


@pytest.mark.parametrize("name", ["rnn", "tree_lstm", "ggnn"])
def test_flop_are_those_of_ungrouped_steps_and_weights_are_read_less_often(name):
    alone, merged = grouped(name), grouped(name, max_group=6)
    assert merged.group_size_mean > 1.3
    for direction in ("forward", "backward"):
        before, after = (
            run.spans[run.spans["direction"] == direction][["flop", "bytes"]].sum()
            for run in (alone, merged)
        )
        assert after["flop"] == before["flop"] and after["bytes"] < before["bytes"]
    assert merged.train_per_s > 1.2 * alone.train_per_s
    assert merged.valid_per_s > 1.2 * alone.valid_per_s, "validation merges too"


def test_what_is_counted_is_what_the_trace_shows():
    result = grouped("tree_lstm", max_group=4)
    sizes = result.group_sizes
    assert sizes["size"].between(1, 4).all() and sizes["count"].min() >= 1
    spans = result.spans
    served = spans[(spans["direction"] != "update") & (spans["end_s"] > spans["start_s"])]
    merged = sizes.assign(messages=sizes["size"] * sizes["count"]).groupby("node")["messages"].sum()
    assert merged.to_dict() == served.groupby("node", observed=True).size().to_dict()
    assert result.group_size_mean == pytest.approx(merged.sum() / sizes["count"].sum())
    table = result.time_by_node
    steps_of = table[table["direction"] != "update"].groupby("node")["steps"].sum()
    assert steps_of.to_dict() == sizes.groupby("node")["count"].sum().to_dict()
    alone = grouped("tree_lstm")
    assert alone.group_sizes.empty and math.isnan(alone.group_size_mean)


# --- what it computes --------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["tflops-1", "p100"])
@pytest.mark.parametrize("name", ["rnn", "tree_lstm", "ggnn"])
def test_groups_of_one_give_the_ungrouped_trace_to_the_last_bit(monkeypatch, name, device):
    alone = grouped(name, device)
    monkeypatch.setattr(assembly, "Worker", GroupingWorker)
    merged = grouped(name, device)
    assert merged.digest == alone.digest
    assert alone.group_sizes.empty and merged.group_sizes["size"].eq(1).all()


def test_where_nothing_waits_nothing_is_merged(make_cluster, chain):
    model = chain(((3, 6, 1), (2, 4, 1)), instances=5, valid=2).model()
    alone, merged = (simulate(model, make_cluster(2), Amp(1, max_group=group)) for group in (1, 8))
    assert merged.digest == alone.digest and merged.group_size_mean == 1.0


def test_one_layer_learns_the_same_bits_in_groups(chain, make_cluster):
    """Four in flight, an update after four: grouped or not, in the same order, at equal weights."""
    model = chain(((3, 6, 1),), instances=24, rows=2, update_interval=4).model()
    alone, merged = (
        simulate(model, make_cluster(1), Amp(4, max_group=group), epochs=2) for group in (1, 4)
    )
    assert merged.group_size_mean == 4.0
    for name, array in alone.model.parameters().items():
        assert (array == merged.model.parameters()[name]).all()
        assert (array != model.parameters()[name]).any()
    assert merged.epochs["loss"].tolist() == alone.epochs["loss"].tolist()
    assert merged.makespan_s < alone.makespan_s / 2


def test_an_update_falls_due_after_the_group(chain, make_cluster):
    model = chain(((3, 6, 1),), instances=8).model()
    result = simulate(model, make_cluster(1), Amp(4, 1, max_group=4))
    assert result.updates["gradient_count"].tolist() == [4, 4]
    backward = steps(result.spans, "stage-1", "backward")
    updates = steps(result.spans, "stage-1", "update")
    assert updates["start_s"].tolist() == backward["end_s"].iloc[3::4].tolist()


@pytest.mark.parametrize("name", ["rnn", "tree_lstm", "ggnn"])
def test_sleep_groups_as_numeric_does_and_a_run_repeats_itself(name):
    cluster = load_cluster("p100", workers=5, latency_s=1e-6)
    schedule = Amp(8, max_group=4, group_wait_s=2e-6)
    count = None if name == "rnn" else 8
    numeric, again, sleep = (
        simulate(small(name), cluster, schedule, instances=count, mode=mode)
        for mode in ("numeric", "numeric", "sleep")
    )
    assert numeric.digest == again.digest
    assert numeric.spans.equals(sleep.spans) and numeric.transfers.equals(sleep.transfers)
    assert numeric.group_sizes.equals(sleep.group_sizes)
    assert numeric.group_sizes["size"].max() > 1
