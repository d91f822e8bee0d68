"""Rings and trees of transfers on the fabric take exactly what closed forms of alpha and beta say.

alpha is the latency of an edge in seconds, beta the seconds of a byte: 1 / bandwidth.

Source: Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in
MPICH (2005), section 4.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ampsim.clock import SimClock
from ampsim.hardware import Cluster, Device, Level, Ports, Topology
from ampsim.machine import Fabric
from ampsim.trace import START, Recorder

ALPHA_S, BYTES_PER_S = 2e-6, 1e9  # both whole numbers of the clock's ticks, for any size below
SHARINGS = ["fair", "first-come"]


class Machine:
    """A fabric and a clock; transfers are sent from callbacks, as a collective would."""

    def __init__(self, workers: int, **keys: object) -> None:
        device = Device(name="d", flop_per_s=1.0)
        cluster = Cluster(name="c", devices=(device,) * workers, **keys)  # pyright: ignore[reportArgumentType]  # as given
        self.clock, self.recorder = SimClock(), Recorder(["a", "b"], workers)
        self.fabric = Fabric(cluster, self.clock, self.recorder, lambda: None)

    def send(self, source: int, target: int, size_bytes: int, then: Callable[[], None]) -> None:
        channel = self.fabric.channel(source, target)
        assert channel is not None
        channel.send(size_bytes, (0, 1), START, lambda _cause: then())

    def end_s(self) -> float:
        self.clock.run()
        ends = self.recorder.columns("transfers")["end_s"]
        assert self.clock.now == pytest.approx(ends.max(), rel=1e-14)
        return self.clock.now


def machine(workers: int, sharing: str, kind: str = "ring", **keys: object) -> Machine:
    cost = {"latency_s": ALPHA_S, "bandwidth_bytes_per_s": BYTES_PER_S, "duplex": "full"}
    topology = Topology.model_validate({"kind": kind, **cost, **keys})
    return Machine(workers, topology=topology, sharing=sharing)


def exactly(seconds: float) -> object:
    """To a tick of the clock."""
    return pytest.approx(seconds, rel=1e-14, abs=1e-18)


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("workers", [2, 3, 4, 8, 13])
def test_a_ring_all_reduce_takes_2_p_minus_1_steps_of_alpha_and_a_pth_of_the_bytes(
    workers, sharing
):
    """Reduce-scatter, then all-gather: 2 (p - 1) (alpha + n beta / p)."""
    chunk_bytes = 4000
    made = machine(workers, sharing)
    steps = 2 * (workers - 1)

    def pass_on(worker: int, step: int) -> None:
        target = (worker + 1) % workers
        made.send(
            worker,
            target,
            chunk_bytes,
            lambda: pass_on(target, step + 1) if step + 1 < steps else None,
        )

    for worker in range(workers):
        pass_on(worker, 0)
    assert made.end_s() == exactly(steps * (ALPHA_S + chunk_bytes / BYTES_PER_S))
    carried = made.recorder.columns("transfers")["bytes"].sum()
    assert carried == steps * workers * chunk_bytes


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
def test_a_tree_broadcast_takes_a_step_of_alpha_and_all_bytes_for_each_doubling(rounds, sharing):
    """Binomial tree on p = 2^r workers, each pair an edge: r (alpha + n beta)."""
    workers, size_bytes = 2**rounds, 50_000
    made = machine(workers, sharing, "fully-connected")
    reached: list[int] = []

    def hand_on(worker: int, level: int) -> None:
        reached.append(worker)
        if level < rounds:
            target = worker + 2**level
            made.send(worker, target, size_bytes, lambda: hand_on(target, level + 1))
            made.clock.call_later(
                ALPHA_S + size_bytes / BYTES_PER_S, lambda: hand_on(worker, level + 1)
            )

    hand_on(0, 0)
    assert made.end_s() == exactly(rounds * (ALPHA_S + size_bytes / BYTES_PER_S))
    assert set(reached) == set(range(workers))


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("hops", [1, 2, 3, 4])
def test_a_message_over_k_edges_takes_k_alpha_and_its_bytes_once(hops, sharing):
    made = machine(9, sharing)
    made.send(0, hops, 3000, lambda: None)
    assert made.end_s() == exactly(hops * ALPHA_S + 3000 / BYTES_PER_S)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_a_hierarchy_adds_the_latencies_of_its_levels_and_is_as_fast_as_the_slowest(sharing):
    levels = (
        Level(members=4, latency_s=1e-6, bandwidth_bytes_per_s=1e10),
        Level(members=2, latency_s=5e-6, bandwidth_bytes_per_s=1e9),
    )
    for target, expected_s in ((1, 2e-6 + 1e-6), (7, 2 * 6e-6 + 1e-5)):
        made = Machine(8, topology=Topology(kind="hierarchy", levels=levels), sharing=sharing)
        made.send(0, target, 10_000, lambda: None)
        assert made.end_s() == exactly(expected_s)


@pytest.mark.parametrize(("sharing", "first_s"), [("fair", 4e-6), ("first-come", 1e-6)])
def test_all_to_one_takes_the_bytes_of_all_through_one_port(sharing, first_s):
    """Shared fairly, all end together; otherwise one after the other. The last end is the same."""
    ports = Ports(ingress_bytes_per_s=BYTES_PER_S)
    made = Machine(5, ports=ports, sharing=sharing)
    for worker in range(1, 5):
        made.send(worker, 0, 1000, lambda: None)
    assert made.end_s() == exactly(4e-6)
    assert made.recorder.columns("transfers")["end_s"].min() == exactly(first_s)


@pytest.mark.parametrize(("duplex", "expected_s"), [("full", 1e-6), ("half", 2e-6)])
@pytest.mark.parametrize("sharing", SHARINGS)
def test_both_directions_of_an_edge_share_its_rate_only_if_it_is_half_duplex(
    duplex, expected_s, sharing
):
    made = machine(2, sharing, latency_s=0.0, duplex=duplex)
    made.send(0, 1, 1000, lambda: None)
    made.send(1, 0, 1000, lambda: None)
    assert made.end_s() == exactly(expected_s)
