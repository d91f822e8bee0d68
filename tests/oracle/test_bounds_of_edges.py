"""What bounds a run where messages share edges and ports, counted by hand from its transfers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import ampsim
from ampsim.hardware import Cluster, Device, Ports, Topology

DEVICE = Device(name="d", flop_per_s=1e12)
RATE = 1e6  # bytes a second: so narrow that it bounds


def run(sharing: str | None = None, **network: object) -> ampsim.Result:
    cluster = Cluster(name="c", devices=(DEVICE,) * 5, sharing=sharing, **network)  # pyright: ignore[reportArgumentType]  # as a file has them
    model = ampsim.load_model("rnn", hidden=8, replicas=4)
    return ampsim.simulate(
        model, cluster, ampsim.Amp(max_active_keys=4), mode="sleep", instances=2000
    )


def over_the_ring(result: ampsim.Result) -> dict[tuple[int, int], float]:
    """Seconds of each directed edge of a ring of five, whose shortest ways are unique."""
    used: Counter[tuple[int, int]] = Counter()
    for source, target, size in result.transfers[
        ["source_worker", "target_worker", "bytes"]
    ].values:
        if min(source, target) >= 0:
            step = 1 if (target - source) % 5 <= 2 else -1
            here = int(source)
            while here != target:
                there = (here + step) % 5
                used[here, there] += int(size)
                here = there
    return {edge: size / RATE for edge, size in used.items()}


def test_the_busiest_edge_of_a_ring_bounds_a_run_by_the_bytes_that_cross_it():
    result = run(topology=Topology(kind="ring", bandwidth_bytes_per_s=RATE))
    used_s = over_the_ring(result)
    (source, target), most_s = max(used_s.items(), key=lambda one: one[1])
    assert sorted(used_s.values())[-2] < most_s  # it is one edge
    assert result.bounds.bound_by == f"edge {source} to {target}"
    assert result.bounds.link_share == pytest.approx(most_s / result.makespan_s, rel=1e-9)
    assert result.bounds.link_share > 0.5


@pytest.mark.parametrize("port", ["egress", "ingress"])
def test_a_narrow_port_of_a_star_bounds_a_run(port):
    wide = Topology(kind="star", bandwidth_bytes_per_s=1e3 * RATE)
    ports = Ports.model_validate({f"{port}_bytes_per_s": RATE})
    result = run(topology=wide, ports=ports)
    end = "source_worker" if port == "egress" else "target_worker"
    used_s = result.transfers.groupby(end)["bytes"].sum() / RATE
    used_s = used_s[used_s.index >= 0]
    assert result.bounds.bound_by == f"{port} port of worker {used_s.idxmax()}"
    share = used_s.max() / result.makespan_s
    assert result.bounds.link_share == pytest.approx(share, rel=1e-9)


def test_first_come_an_edge_is_taken_as_long_as_messages_hold_it():
    """A message holds a wide edge as long as its narrowest takes: here they are alike."""
    result = run("first-come", topology=Topology(kind="ring", bandwidth_bytes_per_s=RATE))
    used_s = over_the_ring(result)
    (source, target), most_s = max(used_s.items(), key=lambda one: one[1])
    assert result.bounds.link_share == pytest.approx(most_s / result.makespan_s, rel=1e-9)
    assert result.bounds.bound_by in (f"edge {source} to {target}", "critical path")


def test_edges_that_are_never_narrow_bound_nothing():
    result = run(topology=Topology(kind="ring", latency_s=1e-6))
    assert result.bounds.link_share == 0.0


def test_a_link_for_each_pair_is_told_by_its_pair():
    cluster = ampsim.load_cluster("tflops-1", workers=5, bandwidth_bytes_per_s=RATE)
    model = ampsim.load_model("rnn", hidden=8, replicas=4)
    result = ampsim.simulate(
        model, cluster, ampsim.Amp(max_active_keys=4), mode="sleep", instances=2000
    )
    used_s = result.transfers.groupby(["source_worker", "target_worker"])["bytes"].sum() / RATE
    share = used_s.max() / result.makespan_s
    assert result.bounds.link_share == pytest.approx(share, rel=1e-9)
    pair: Any = used_s.idxmax()
    source, target = pair
    names = {-1: "host"}
    told = f"link {names.get(source, source)} to {names.get(target, target)}"
    assert result.bounds.bound_by == told
