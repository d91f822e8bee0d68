"""Buckets of layers, and collectives beside the backward pass, against their closed form.

Of a chain of L layers with backward times b_l, whose gradients a collective adds up in c_l seconds:
the gradient of layer l is there at r_l = f + b_L + ... + b_l, and its collective has ended at
e_l = max(e_(l+1), r_l) + c_l. Nothing here asks the code for a time.
"""

from __future__ import annotations

from typing import Any

import pytest
from covering import pairwise
from solver_cases import Link, cluster, model, require_whole_path, weights
from test_solvers_times import formula_s, unlike

import ampsim
from ampsim.data_parallel import COLLECTIVES
from ampsim.errors import AmpsimError
from ampsim.hardware.topology import Ports

ROWS = 60
WIDTHS = [(3, 3), (3, 3), (3, 3), (3, 2)]
BYTES = [8 * (inputs + 1) * outputs for inputs, outputs in WIDTHS]
LINK = Link(latency_s=1e-6, bandwidth_bytes_per_s=1e8)  # those of `formula_s`


def ready_s(flop_per_s: float) -> tuple[list[float], float]:
    """When a rank has each layer's gradient, and when its backward pass is over (Appendix C)."""
    products = [2 * ROWS * inputs * outputs / flop_per_s for inputs, outputs in WIDTHS]
    now_s = sum(products)
    ready = [0.0] * len(WIDTHS)
    for layer in reversed(range(len(WIDTHS))):
        now_s += products[layer] * (1 if layer == 0 else 2)
        ready[layer] = now_s
    return ready, now_s


def cut(limit: int | None) -> list[list[int]]:
    """The layers of each bucket, the last layer first."""
    if limit is None:
        return [[3, 2, 1, 0]]
    buckets: list[list[int]] = [[]]
    for layer in (3, 2, 1, 0):
        if sum(BYTES[one] for one in buckets[-1]) >= max(limit, 1):
            buckets.append([])
        buckets[-1].append(layer)
    return buckets


def expected_s(speeds: list[float], name: str, limit: int | None, *, overlap: bool) -> float:
    """When all ranks have the sum of the last bucket, in the first step."""
    per_rank = [ready_s(speed) for speed in speeds]
    over_s, end_s = max(end for _ready, end in per_rank), 0.0
    for bucket in cut(limit):
        there_s = max(ready[layer] for ready, _end in per_rank for layer in bucket)
        start_s = max(end_s, there_s if overlap else over_s)
        end_s = start_s + formula_s(name, len(speeds), 2, sum(BYTES[one] for one in bucket))
    return max(end_s, over_s)


def first_step(speeds: list[float], name: str, as_messages: bool, **options: Any) -> ampsim.Result:
    hosts = cluster(speeds, link=LINK)
    if name == "hierarchical":
        options["ranks_per_group"] = 2
    chosen = ampsim.SyncSGD(ranks=len(speeds), collective=name, **options)
    made = model(ROWS * len(speeds), ROWS, layers=4)
    return ampsim.simulate(made, unlike(hosts) if as_messages else hosts, chosen, mode="sleep")


@pytest.mark.parametrize(
    ("name", "limit", "overlap", "as_messages", "speeds"),
    pairwise(
        ["ring", "tree", "hierarchical"],
        [None, 0, 90, 150, 10**6],
        [False, True],
        [False, True],
        [[1e9, 1e9], [1e8, 3e8], [2e8, 1e8, 5e8, 4e8]],
    ),
)
def test_the_end_of_a_step_follows_the_recursion(name, limit, overlap, as_messages, speeds):
    found = first_step(speeds, name, as_messages, bucket_bytes=limit, overlap=overlap)
    expected = expected_s(speeds, name, limit, overlap=overlap)
    assert found.exchanges["end_s"].max() == pytest.approx(expected, rel=1e-9)
    sizes = [sum(BYTES[layer] for layer in bucket) for bucket in cut(limit)]
    assert found.collectives["bytes"].tolist() == sizes


@pytest.mark.parametrize("speed", [1e7, 3e7, 1e8, 1e9])
def test_exposed_communication_is_at_least_what_the_backward_pass_cannot_hide(speed):
    found = first_step([speed, speed], "ring", False, bucket_bytes=0, overlap=True)
    ready, over_s = ready_s(speed)
    exposed_s = found.exchanges["stalled_s"].max()
    total_s = sum(formula_s("ring", 2, 2, size) for size in BYTES)
    assert exposed_s >= max(0.0, total_s - (over_s - ready[3])) - 1e-15
    assert exposed_s >= formula_s("ring", 2, 2, BYTES[0]) - 1e-15
    assert exposed_s <= total_s + 1e-15


@pytest.mark.parametrize(
    ("limit", "overlap", "name"), pairwise([None, 0, 90], [False, True], COLLECTIVES)
)
def test_neither_buckets_nor_overlap_change_a_bit_of_the_weights(limit, overlap, name):
    made, hosts = model(50, 3, layers=4, optimizer="adam"), cluster([1e8, 3e8, 2e8, 1e8], link=LINK)
    options: dict[str, Any] = {"ranks_per_group": 2} if name == "hierarchical" else {}
    plain = ampsim.simulate(made, hosts, ampsim.SyncSGD(), epochs=2)
    chosen = ampsim.SyncSGD(collective=name, bucket_bytes=limit, overlap=overlap, **options)
    found = ampsim.simulate(made, hosts, chosen, epochs=2)
    assert weights(found).tobytes() == weights(plain).tobytes()
    require_whole_path(found)


@pytest.mark.parametrize("kind", [ampsim.SyncEASGD, ampsim.LocalSGD, ampsim.DiLoCo])
def test_buckets_of_weights_go_one_after_the_other(kind):
    made, hosts = model(24, 3, layers=4), cluster([1e9, 1e9], link=LINK)
    found = ampsim.simulate(made, hosts, kind(period=2, bucket_bytes=0), mode="sleep")
    first = found.collectives.iloc[:4]
    assert first["bytes"].tolist() == BYTES[::-1]
    ends = pytest.approx(first["end_s"].tolist()[:-1], rel=1e-12)
    assert first["start_s"].tolist()[1:] == ends
    total_s = sum(formula_s("ring", 2, 2, size) for size in BYTES)
    lasting_s = first["end_s"].iloc[-1] - first["start_s"].iloc[0]
    assert lasting_s == pytest.approx(total_s, rel=1e-9)


@pytest.mark.parametrize("batches", [1, 2, 3, 4, 7])
def test_short_rounds_end_under_jitter_ports_and_pipelines(batches):
    hosts = cluster([1e9] * 6, link=LINK, jitter_cv=0.4)
    ports = Ports(ingress_bytes_per_s=1e8, egress_bytes_per_s=1e8)
    chosen = ampsim.SyncSGD(
        ranks=3, workers_per_rank=2, inner=ampsim.Pipeline(2), overlap=True, bucket_bytes=0
    )
    for one in (hosts, hosts.model_copy(update={"ports": ports})):
        made = model(3 * batches, 3, layers=4)
        numeric, sleep = (
            ampsim.simulate(made, one, chosen, epochs=2, mode=mode, counts_memory=True)
            for mode in ("numeric", "sleep")
        )
        assert numeric.epochs["instances"].tolist() == [3 * batches] * 2
        assert numeric.transfers.equals(sleep.transfers)
        assert numeric.critical_path["end_s"].iloc[-1] == numeric.makespan_s


def test_a_rank_that_comes_last_and_without_a_batch_offers_the_last_layer_first():
    chosen = ampsim.SyncSGD(overlap=True, bucket_bytes=0)
    slow_updates = cluster([1e9, 1e6], link=LINK)
    found = ampsim.simulate(model(3, 1, layers=4), slow_updates, chosen, mode="sleep")
    assert found.collectives["bytes"].tolist() == 2 * BYTES[::-1]


def test_overlap_needs_a_chain_and_sizes_are_counts():
    loop = ampsim.load_model("rnn", hidden=4)
    with pytest.raises(AmpsimError, match="sync-sgd with overlap needs a chain") as caught:
        ampsim.simulate(loop, "tflops-1", ampsim.SyncSGD(ranks=2, overlap=True), instances=100)
    assert str(caught.value).endswith("leave overlap out") and "\n" not in str(caught.value)
    with pytest.raises(AmpsimError, match="bucket_bytes must be a whole number >= 1, got -1"):
        ampsim.SyncSGD(bucket_bytes=-1)
