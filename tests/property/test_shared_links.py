"""What every run over shared edges and ports obeys, under each listed schedule."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import test_trace_invariants
from covering import together
from short_runs import ROUNDING_S, schedule_of, small_model

from ampsim import Amp, simulate
from ampsim.errors import SimulationError
from ampsim.hardware import HOST, Cluster, Device, HostPorts, Link, Ports, Topology
from ampsim.model_parallel import SCHEDULES, needs_chain
from ampsim.optim import sgd

WORKERS = 4
LATENCY_S, BYTES_PER_S = 1e-8, 1e9
COST: dict[str, Any] = {"latency_s": LATENCY_S, "bandwidth_bytes_per_s": BYTES_PER_S}
PORTS = Ports(
    egress_bytes_per_s=5e8,
    ingress_bytes_per_s=7e8,
    host=HostPorts(egress_bytes_per_s=1e9, ingress_bytes_per_s=1e9),
)
NETWORKS: dict[str, dict[str, Any]] = {
    "ring": {"topology": Topology(kind="ring", **COST), "link": Link(**COST)},
    "half ring": {"topology": Topology(kind="ring", duplex="half", **COST)},
    "star": {"topology": Topology(kind="star", **COST), "link": Link(**COST)},
    "torus": {"topology": Topology(kind="torus", shape=(2, 2), **COST)},
    "ports": {"ports": PORTS},
    "ports and links": {"ports": PORTS, "link": Link(**COST)},
    "ports and ring": {"ports": PORTS, "topology": Topology(kind="ring", **COST)},
}
SHARINGS = ("fair", "first-come")
RUNS = [
    (schedule, network, SHARINGS[(s + n) % 2])
    for s, schedule in enumerate(SCHEDULES)
    for n, network in enumerate(NETWORKS)
]


def cluster_of(network: str, sharing: Any, workers: int = WORKERS) -> Cluster:
    devices = (Device(name="test", flop_per_s=1e12),) * workers
    return Cluster(name="test", devices=devices, sharing=sharing, **NETWORKS[network])


@cache
def run_of(schedule: str, network: str, sharing: str, mode: Any = "sleep") -> Any:
    model = small_model("mlp" if needs_chain(SCHEDULES[schedule]()) else "rnn")
    cluster = cluster_of(network, sharing)
    return simulate(model, cluster, schedule_of(schedule), epochs=2, mode=mode)


@together("schedule, network, sharing", RUNS)
def test_spans_and_transfers_keep_their_order(schedule, network, sharing):
    result = run_of(schedule, network, sharing)
    for _worker, own in result.spans.groupby("worker"):
        assert (own["start_s"].to_numpy()[1:] >= own["end_s"].to_numpy()[:-1]).all()
    sent = result.transfers
    assert len(sent)
    assert (np.diff(sent["sent_s"]) >= 0).all(), "numbers are in the order of sending"
    for earlier, later in (("sent_s", "start_s"), ("start_s", "held_s"), ("held_s", "end_s")):
        assert (sent[later] >= sent[earlier] - ROUNDING_S).all()
    for _pair, own in sent.groupby(["source_worker", "target_worker"]):
        starts_s, held_s = own["start_s"].to_numpy(), own["held_s"].to_numpy()
        assert (starts_s[1:] >= held_s[:-1] - ROUNDING_S).all(), "two of one pair enter at once"
        assert (np.diff(own["end_s"]) >= -ROUNDING_S).all(), "one overtakes another"


@together("schedule, network, sharing", RUNS)
def test_the_critical_path_adds_up_to_the_makespan(schedule, network, sharing):
    result = run_of(schedule, network, sharing)
    path = result.critical_path
    assert path["start_s"].iloc[0] == 0
    assert path["end_s"].iloc[-1] == result.makespan_s
    assert (path["start_s"].to_numpy()[1:] == path["end_s"].to_numpy()[:-1]).all()
    lasting_s = (path["end_s"] - path["start_s"]).sum()
    assert lasting_s == pytest.approx(result.makespan_s, rel=1e-12)


@together("schedule, network, sharing", RUNS)
def test_a_cause_is_the_transfer_that_arrived(schedule, network, sharing):
    """A step whose cause is a transfer is one of its target, and begins no earlier than its end."""
    result = run_of(schedule, network, sharing)
    caused = result.spans[result.spans["cause"] <= -2]
    numbers = (-2 - caused["cause"].to_numpy()) // 2
    is_transfer = (-2 - caused["cause"].to_numpy()) % 2 == 0
    caused, numbers = caused[is_transfer], numbers[is_transfer]
    sent = result.transfers.iloc[numbers]
    assert len(caused) and len(set(numbers)) == len(numbers)
    assert caused["node"].astype(str).tolist() == sent["target"].astype(str).tolist()
    assert (caused["start_s"].to_numpy() >= sent["end_s"].to_numpy() - ROUNDING_S).all()


@together("schedule, network, sharing", RUNS)
def test_no_edge_or_port_carries_more_than_its_rate_while_it_is_used(schedule, network, sharing):
    sent, cluster = run_of(schedule, network, sharing).transfers, cluster_of(network, sharing)
    used: dict[Any, list[np.ndarray]] = {}
    for (source, target), own in sent.groupby(["source_worker", "target_worker"]):
        way, late_s = cluster.way_between(source, target), own["end_s"] - own["held_s"]
        allowed_s = max(1e-6 * way.latency_s, ROUNDING_S)
        assert np.abs(late_s.to_numpy() - way.latency_s).max() <= allowed_s
        for share in way.shares:
            used.setdefault(share, []).append(own[["start_s", "held_s", "bytes"]].to_numpy())
    assert used
    for share, tables in used.items():
        rows = np.concatenate(tables)
        starts_s, ends_s, sizes = rows[np.lexsort((rows[:, 1], rows[:, 0]))].T
        latest_s = np.maximum.accumulate(ends_s)
        gaps_s = np.maximum(0.0, starts_s[1:] - latest_s[:-1]).sum()
        busy_s = latest_s[-1] - starts_s[0] - gaps_s
        assert sizes.sum() <= share.bytes_per_s * (busy_s + ROUNDING_S) * (1 + 1e-9)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("sharing", SHARINGS)
def test_sleep_and_numeric_give_the_same_trace(schedule, sharing):
    network = "ports and ring"
    slept, computed = (run_of(schedule, network, sharing, mode) for mode in ("sleep", "numeric"))
    assert slept.makespan_s == computed.makespan_s
    for table in ("spans", "transfers", "admissions"):
        first, second = getattr(slept, table), getattr(computed, table)
        columns = [name for name in first.columns if name not in ("state", "flop", "bytes")]
        assert first[columns].equals(second[columns]), table


INVARIANTS = [name for name in vars(test_trace_invariants) if name.startswith("test_")]


RUN = test_trace_invariants.run


@cache
def traced(case: Any, network: str, sharing: str) -> Any:
    """A run of the RNN, made once for all that it obeys."""
    return RUN(case, lambda _workers, **_ways: cluster_of(network, sharing))


@together("name, network, sharing", product(INVARIANTS, NETWORKS, SHARINGS))
def test_invariants_of_the_rnn_hold(name, network, sharing, monkeypatch):
    """Each test of `test_trace_invariants.py`, on four workers."""
    case = test_trace_invariants.Case(
        schedule=Amp(max_active_keys=3, min_update_interval=3),
        workers=WORKERS,
        replicas=2,
        seed=2 * [*NETWORKS].index(network) + SHARINGS.index(sharing),
        latency_s_max=1e-4,
        mode="sleep",
        epochs=1,
    )
    more = {"interval": 3} if "interval" in name else {}
    test = getattr(test_trace_invariants, name).hypothesis.inner_test
    run = lambda case, _random_cluster: traced(case, network, sharing)  # noqa: E731  # as `run` is
    monkeypatch.setattr(test_trace_invariants, "run", run)
    test(None, case, **more)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_first_come_on_an_edge_for_each_pair_is_a_link_for_each_pair_to_the_bit(schedule):
    model = small_model("mlp" if needs_chain(SCHEDULES[schedule]()) else "rnn")
    devices = (Device(name="test", flop_per_s=1e12),) * WORKERS
    pairwise = Cluster(name="test", devices=devices, link=Link(**COST))
    edges = Cluster(
        name="test",
        devices=devices,
        link=Link(**COST),
        topology=Topology(kind="fully-connected", **COST),
        sharing="first-come",
    )
    first, second = (
        simulate(model, one, schedule_of(schedule), epochs=2, mode="sleep")
        for one in (pairwise, edges)
    )
    for table in ("spans", "transfers", "admissions", "updates"):
        assert getattr(first, table).equals(getattr(second, table)), table


@pytest.mark.parametrize("place", [HOST, 0, 3])
def test_a_way_within_one_place_is_free(place):
    assert cluster_of("ports and ring", "fair").way_between(place, place).is_free


@together("network, sharing, instance", product(NETWORKS, SHARINGS, [1, 3, 8]))
def test_a_run_that_fails_keeps_the_trace_so_far_and_its_causes(network, sharing, instance):
    """Transfers under way when the loss is no number have rows, so that causes lead somewhere."""
    model = small_model("rnn")

    def pump(number: int, batch: Any) -> Any:
        sent = list(model.pump(number, batch))
        if number < instance:
            return sent
        return [(port, state, spoiled(values)) for port, state, values in sent]

    def spoiled(values: Any) -> Any:
        is_float = isinstance(values, np.ndarray) and values.dtype.kind == "f"
        return values * np.nan if is_float else values

    bad = replace(model, pump=pump, optimizer=sgd(1e200))
    with pytest.raises(SimulationError) as caught:
        simulate(bad, cluster_of(network, sharing), Amp(4, min_update_interval=1), epochs=3)
    partial = caught.value.partial
    path = partial.critical_path
    lasting_s = (path["end_s"] - path["start_s"]).sum()
    assert lasting_s == pytest.approx(partial.makespan_s, rel=1e-12)
    assert (np.diff(partial.transfers["sent_s"]) >= 0).all()
    causes = partial.spans["cause"].to_numpy()
    numbers = (-2 - causes[(causes <= -2) & (causes % 2 == 0)]) // 2
    assert numbers.max() < len(partial.transfers)
