"""What must hold of backup ranks wherever they run: on links, ports, stops, and in any network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from solver_cases import (
    Link,
    cluster,
    model,
    require_one_step_at_a_time,
    require_whole_path,
    weights,
)

import ampsim
from ampsim.clock import WallClock
from ampsim.errors import AmpsimError
from ampsim.hardware import Cluster, Event
from ampsim.hardware.topology import Ports

SLOW = Link(latency_s=1e-8, bandwidth_bytes_per_s=1e10)
SPEEDS = [1e9, 2e9, 0.6e9, 1.3e9]


def far_host() -> Cluster:
    """Batches come to ranks over links of their own, so that some are under way at the end."""
    return ampsim.load_cluster(
        "tflops-1", workers=4, latency_s=3e-7, bandwidth_bytes_per_s=1e10
    ).model_copy(update={"devices": cluster(SPEEDS, jitter_cv=0.3).devices})


def port_limited() -> Cluster:
    ports = Ports(ingress_bytes_per_s=1e10, egress_bytes_per_s=1e10)
    return cluster(SPEEDS, jitter_cv=0.3).model_copy(update={"ports": ports})


def stopped() -> Cluster:
    events = tuple(
        Event(kind=kind, worker=worker, from_s=1e-6 * worker, until_s=1e-6 * worker + 2e-6)
        for worker, kind in ((1, "stop"), (2, "pause"))
    )
    return cluster(SPEEDS, jitter_cv=0.3).model_copy(update={"events": events})


CLUSTERS: dict[str, Callable[[], Cluster]] = {
    "free": partial(cluster, SPEEDS),
    "slow": partial(cluster, SPEEDS, link=SLOW),
    "jitter": partial(cluster, SPEEDS, link=SLOW, jitter_cv=0.5),
    "ports": port_limited,
    "far host": far_host,
    "stopped": stopped,
    "late": partial(cluster, [1e9, 1e9, 1e9, 1e7], link=SLOW, jitter_cv=0.2),
}


def short(on: str, **options: Any) -> ampsim.Result:
    chosen = ampsim.SyncSGD(ranks=4, **{"backup_ranks": 1, **options.pop("solver", {})})
    made = options.pop("model", None) or model(41, 3, layers=2)
    return ampsim.simulate(made, CLUSTERS[on](), chosen, **{"epochs": 3, **options})


def require_whole(result: ampsim.Result, items: int) -> None:
    """Items are conserved, devices do one thing at a time, and time has no gap."""
    assert result.epochs["instances"].tolist() == [items] * len(result.epochs)
    require_whole_path(result)
    require_one_step_at_a_time(result)
    assert result.utilisation <= 1
    exchanges = result.exchanges
    assert (exchanges["stalled_s"] >= 0).all()
    assert (exchanges["ready_s"] <= exchanges["merge_start_s"]).all()
    assert (exchanges["merge_start_s"] <= exchanges["end_s"]).all()


@pytest.mark.parametrize("backups", [1, 3])
@pytest.mark.parametrize("on", CLUSTERS)
def test_each_item_counts_once_and_sleep_has_the_same_trace(on, backups):
    options: dict[str, Any] = {"solver": {"backup_ranks": backups}, "counts_memory": True}
    result = short(on, **options)
    require_whole(result, 41)
    sleep = short(on, mode="sleep", **options)
    for table in ("spans", "transfers", "updates", "admissions", "collectives"):
        assert getattr(result, table).equals(getattr(sleep, table)), table
    assert result.staleness_max == 0
    peak = result.peak_memory
    assert (peak["weights"] == 8 * (3 * 3 + 3 + 3 * 2 + 2)).all()


@pytest.mark.parametrize("collective", ["tree", "star"])
@pytest.mark.parametrize("bucket_bytes", [None, 0])
def test_no_collective_and_no_bucket_changes_whose_gradients_a_first_step_has(
    collective, bucket_bytes
):
    result = short("ports", solver={"collective": collective, "bucket_bytes": bucket_bytes})
    require_whole(result, 41)


@pytest.mark.parametrize("rows", [1, 2, 7, 12])
def test_every_epoch_ends_however_few_batches_there_are(rows):
    result = short("late", model=model(rows, 1), solver={"backup_ranks": 2})
    require_whole(result, rows)


NETWORKS: dict[str, dict[str, Any]] = {
    "rnn": {"hidden": 8, "replicas": 1},
    "lstm_mnist": {"data": "synthetic", "hidden": 4, "batch": 5},
    "dynamic_lstm": {"hidden": 4, "layers": 2, "batch": 5},
    "lenet": {"data": "synthetic", "batch": 4},
    "ggnn": {"data": "synthetic", "hidden": 12},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_pass_that_is_called_off_leaves_no_network_with_anything(name):
    """Loops, joins and branches: the rank itself checks that every cache is empty."""
    made = ampsim.load_model(name, **NETWORKS[name])
    usual = ampsim.load_cluster("tflops-1", workers=3)
    device = usual.devices[0].model_copy(update={"jitter_cv": 1.0})
    hosts = usual.model_copy(update={"devices": (device,) * 3})
    chosen = ampsim.SyncSGD(ranks=3, backup_ranks=1)
    count = 500 if name == "rnn" else 40
    result = ampsim.simulate(made, hosts, chosen, instances=count, counts_memory=True)
    assert result.epochs["instances"].tolist() == [count]
    assert len(result.admissions) > result.spans["instance"].nunique()  # some came twice
    require_whole(result, count)


def test_late_ranks_leave_as_much_in_memory_as_they_took():
    """What is left at the end of each step are weights, gradients and what is being computed."""
    result = short("jitter", counts_memory=True, solver={"backup_ranks": 3}, epochs=6)
    once = short("jitter", counts_memory=True, solver={"backup_ranks": 0}, epochs=1)
    for kind in ("messages", "activations", "bytes"):
        assert result.peak_memory[kind].max() <= once.peak_memory[kind].max(), kind


def test_several_batches_in_flight_are_called_off_together():
    result = short("jitter", solver={"inner": ampsim.Pipeline(2)})
    require_whole(result, 41)


@pytest.mark.parametrize("backups", [1, 2])
def test_the_wall_clock_cuts_short_at_the_same_instants(backups):
    made, hosts = model(12, 2), cluster([40e3, 30e3, 12e3])
    chosen = ampsim.SyncSGD(ranks=3, backup_ranks=backups)
    clock = WallClock(stretch=1.0)
    try:
        wall = ampsim.simulate(made, hosts, chosen, epochs=2, clock=clock)
    finally:
        clock.close()
    assert wall.digest == ampsim.simulate(made, hosts, chosen, epochs=2).digest


def test_without_backup_ranks_all_is_as_it_was():
    one = short("jitter", solver={"backup_ranks": 0})
    hosts = CLUSTERS["jitter"]()
    other = ampsim.simulate(model(41, 3, layers=2), hosts, ampsim.SyncSGD(ranks=4), epochs=3)
    assert one.digest == other.digest
    assert weights(one).tobytes() == weights(other).tobytes()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ranks": 4, "backup_ranks": 4}, "backup_ranks must be below the ranks, got 4 of 4; take"),
        ({"backup_ranks": 3}, "backup_ranks must be below the ranks, got 3 of 3; take fewer"),
        ({"backup_ranks": -1}, "backup_ranks must be a whole number >= 0, got -1"),
        ({"backup_ranks": 1, "overlap": True}, "overlap adds up gradients of which nobody knows"),
        ({"backup_ranks": 1, "workers_per_rank": 2}, "a rank is cancelled on one worker, not on"),
    ],
)
def test_backup_ranks_that_cannot_be_are_refused_in_one_line(options, said):
    with pytest.raises(AmpsimError) as caught:
        ampsim.simulate(model(9, 3), cluster([1e9] * 3), ampsim.SyncSGD(**options))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
