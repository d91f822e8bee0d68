"""Bandwidth in fair shares, against solvers and a simulation that share no code with the fabric."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest

from ampsim.clock import SimClock
from ampsim.hardware import Cluster, Device, Ports, Share, Way
from ampsim.machine import Fabric, max_min
from ampsim.machine.channel import Transfers
from ampsim.machine.fair_share import FairChannel, FairShares
from ampsim.machine.max_min import Capacity, Flow, shares_of
from ampsim.trace import START, Recorder

CASES = 500


class Case(NamedTuple):
    """Capacities in bytes per second, and which of them each flow crosses."""

    capacities: list[int]
    flows: list[list[int]]


def random_case(seed: int) -> Case:
    random = np.random.default_rng(seed)
    edges, flows = int(random.integers(1, 9)), int(random.integers(1, 13))
    few = random.random() < 0.3  # so that many are used up at the same rate
    capacities = random.integers(1, 4 if few else 1000, size=edges).tolist()
    crossed = [
        random.choice(edges, size=int(random.integers(1, edges + 1)), replace=False).tolist()
        for _ in range(flows)
    ]
    return Case(capacities, crossed)


def filled(capacities: list[int], flows: list[list[int]]) -> list[Fraction]:
    """Progressive filling as it is defined, in exact fractions: all grow until one edge is full."""
    rates = [Fraction(0)] * len(flows)
    growing = set(range(len(flows)))
    while growing:
        steps = []
        for edge, capacity in enumerate(capacities):
            own = [flow for flow in range(len(flows)) if edge in flows[flow]]
            count = len(growing.intersection(own))
            if count:
                steps.append((capacity - sum(rates[flow] for flow in own)) / Fraction(count))
        for flow in growing:
            rates[flow] += min(steps)
        full = {
            edge
            for edge, capacity in enumerate(capacities)
            if sum(rates[f] for f in range(len(flows)) if edge in flows[f]) == capacity
        }
        growing = {flow for flow in growing if not full.intersection(flows[flow])}
    return rates


def shares(case: Case) -> list[float]:
    capacities = [Capacity(float(one)) for one in case.capacities]
    flows = [Flow([capacities[edge] for edge in crossed]) for crossed in case.flows]
    for flow in flows:
        for capacity in flow.capacities:
            capacity.flows[flow] = None
    found = {flow: rate for flow, rate, _bottleneck in shares_of(capacities, 1)}
    return [found[flow] for flow in flows]


def test_shares_are_those_of_progressive_filling():
    for seed in range(CASES):
        case = random_case(seed)
        expected = [float(rate) for rate in filled(case.capacities, case.flows)]
        assert shares(case) == pytest.approx(expected, rel=1e-12), f"case {seed}"


def test_no_flow_can_have_more_without_another_that_has_no_more_having_less():
    """The definition of max-min fairness: each flow has a bottleneck."""
    for seed in range(CASES):
        case = random_case(seed)
        rates = shares(case)
        loads = [
            sum(rate for rate, crossed in zip(rates, case.flows, strict=True) if edge in crossed)
            for edge in range(len(case.capacities))
        ]
        assert all(load <= c * (1 + 1e-12) for load, c in zip(loads, case.capacities, strict=True))
        for rate, crossed in zip(rates, case.flows, strict=True):
            assert any(
                loads[edge] >= case.capacities[edge] * (1 - 1e-12)
                and all(
                    other <= rate * (1 + 1e-12)
                    for other, way in zip(rates, case.flows, strict=True)
                    if edge in way
                )
                for edge in crossed
            ), f"case {seed}"


def test_shares_of_two_flows_are_to_the_bit_those_of_the_general_way():
    """Two have a closed form of their own, since most divisions are between two."""
    seen = 0
    for seed in range(CASES):
        random = np.random.default_rng([seed, 2])
        rates = random.uniform(1, 3, size=5).tolist()
        capacities = [Capacity(rate) for rate in rates]
        crossed = [random.choice(5, size=3, replace=False).tolist() for _ in range(2)]
        flows = [Flow([capacities[edge] for edge in edges]) for edges in crossed]
        for flow in flows:
            for capacity in flow.capacities:
                capacity.flows[flow] = None
        shared, connected = max_min._connected(capacities, 1)
        if shared and len(connected) == 2:
            seen += 1
            closed = max_min._of_two(shared, *connected)
            assert closed == max_min._of_many(shared, connected, 1), f"case {seed}"
    assert seen > CASES / 2


class Sending(NamedTuple):
    """One message of a case: when it is sent, by which flow, and its bytes."""

    at_s: int
    flow: int
    size_bytes: int


def random_sendings(case: Case, seed: int) -> list[Sending]:
    random = np.random.default_rng([seed, 1])
    count = int(random.integers(1, 25))
    rows = zip(
        sorted(random.integers(0, 20, size=count).tolist()),
        random.integers(0, len(case.flows), size=count).tolist(),
        random.integers(0, 3000, size=count).tolist(),
        strict=True,
    )
    return [Sending(*row) for row in rows]


def simulated(case: Case, sendings: list[Sending]) -> list[Fraction]:
    """When the last byte of each message has left: in steps from event to event, exactly."""
    now, done = Fraction(0), dict[int, Fraction]()
    left = {number: Fraction(one.size_bytes) for number, one in enumerate(sendings)}
    while len(done) < len(sendings):
        waiting = [n for n in left if n not in done and sendings[n].at_s <= now]
        heads: dict[int, int] = {}
        for number in waiting:
            heads.setdefault(sendings[number].flow, number)
        empty = [number for number in heads.values() if left[number] == 0]
        if empty:
            done.update(dict.fromkeys(empty, now))
            continue
        rates = dict(
            zip(heads, filled(case.capacities, [case.flows[flow] for flow in heads]), strict=True)
        )
        ends = [left[number] / rates[flow] for flow, number in heads.items()]
        starts = [one.at_s - now for one in sendings if one.at_s > now]
        step = min([*ends, *starts])
        for flow, number in heads.items():
            left[number] -= rates[flow] * step
        now += step
    return [done[number] for number in range(len(sendings))]


def fabric_ends(case: Case, sendings: list[Sending], latency_s: float) -> Recorder:
    clock = SimClock()
    recorder = Recorder(["a", "b"], 2)
    fair = FairShares(clock, Transfers(recorder), lambda: None)
    channels = [
        FairChannel(
            fair,
            Way(latency_s, tuple(Share((edge,), float(case.capacities[edge])) for edge in crossed)),
            (number, 100 + number),
        )
        for number, crossed in enumerate(case.flows)
    ]
    arrived: list[int] = []
    for one in sendings:

        def send(one: Sending = one) -> None:
            channels[one.flow].send(one.size_bytes, (0, 1), START, arrived.append)

        clock.call_later(one.at_s, send)
    clock.run()
    assert len(arrived) == len(set(arrived)) == len(sendings)
    return recorder


@pytest.mark.slow
def test_transfers_end_when_an_independent_simulation_says():
    for seed in range(CASES):
        case = random_case(seed)
        sendings = random_sendings(case, seed)
        table = fabric_ends(case, sendings, latency_s=0.5).columns("transfers")
        expected = [float(end_s) for end_s in simulated(case, sendings)]
        assert table["held_s"].tolist() == pytest.approx(expected, rel=1e-12, abs=1e-15), seed
        assert table["end_s"].tolist() == pytest.approx([s + 0.5 for s in expected], rel=1e-12)
        assert table["sent_s"].tolist() == pytest.approx([one.at_s for one in sendings])


def test_messages_of_one_pair_never_overtake_each_other_and_no_byte_is_lost():
    for seed in range(CASES):
        case = random_case(seed)
        sendings = random_sendings(case, seed)
        table = fabric_ends(case, sendings, latency_s=0.0).columns("transfers")
        assert table["bytes"].tolist() == [one.size_bytes for one in sendings]
        for pair in set(table["source_worker"]):
            own = table["source_worker"] == pair
            assert (table["start_s"][own][1:] >= table["held_s"][own][:-1]).all()
            assert (np.diff(table["end_s"][own]) >= 0).all()
            assert (table["start_s"][own] >= table["sent_s"][own]).all()


def test_time_ends_with_the_last_arrival():
    """An alarm that a change made too late is taken back; it would let the next pass start late."""
    for seed in range(100):
        case = random_case(seed)
        sendings = random_sendings(case, seed)
        clock = SimClock()
        recorder = Recorder(["a", "b"], 2)
        fair = FairShares(clock, Transfers(recorder), lambda: None)
        channels = [
            FairChannel(
                fair, Way(0.0, tuple(Share((e,), case.capacities[e]) for e in crossed)), (0, 1)
            )
            for crossed in case.flows
        ]
        for one in sendings:
            channels[one.flow].send(one.size_bytes, (0, 1), START, lambda _cause: None)
        clock.run()
        assert clock.now == recorder.columns("transfers")["end_s"].max()


@pytest.mark.parametrize("sharing", ["fair", "first-come"])
def test_a_message_of_no_bytes_waits_for_those_before_it(sharing):
    device = Device(name="d", flop_per_s=1.0)
    cluster = Cluster(
        name="c", devices=(device,) * 2, ports=Ports(egress_bytes_per_s=10.0), sharing=sharing
    )
    clock, recorder = SimClock(), Recorder(["a", "b"], 2)
    channel = Fabric(cluster, clock, recorder, lambda: None).channel(0, 1)
    assert channel is not None
    arrived: list[tuple[int, float]] = []
    for number, size_bytes in enumerate((20, 0, 10, 0)):
        channel.send(size_bytes, (0, 1), START, lambda _c, n=number: arrived.append((n, clock.now)))
    clock.run()
    assert arrived == [(0, 2.0), (1, 2.0), (2, 3.0), (3, 3.0)]
