"""Random programs on random devices: the same bits, the same firings, nothing left behind."""

from __future__ import annotations

import random
from typing import Any

import pytest
from dataflow_programs import Built, interpret, programs
from hypothesis import given, settings
from hypothesis import strategies as st

from ampsim import flow
from ampsim.dataflow.plan import needed
from ampsim.hardware import Cluster, Device, Link

FEEDS: dict[str, Any] = {"a": 0.75, "b": -0.5, "k": 3}
WITHOUT_PLACE = ("constant", "enter", "enter-constant", "next-iteration")
OPTIONS = st.fixed_dictionaries(
    {
        "parallel_iterations": st.integers(0, 3),
        "run_ahead": st.booleans(),
        "broadcast_dead": st.booleans(),
    }
)
MADE_BY_CUTS = ("send", "recv", "constant", "enter-constant")


def built(block: Any) -> list[flow.Tensor]:
    """A program, and the gradients of what it gives."""
    with flow.FlowGraph():
        inputs = tuple(flow.input(name, (), "float64") for name in "ab")
        state = interpret(block, [(*inputs, flow.input("k", (), "int64"))], Built())
        asked = [flow.identity(one) for one in state]
        return asked + flow.gradients(asked[0] + asked[1] * 2.0, inputs)


def feeds_of(asked: list[flow.Tensor]) -> dict[str, Any]:
    names = {node.name for node in needed(asked)}
    return {name: value for name, value in FEEDS.items() if name in names}


@st.composite
def clusters(draw: Any) -> Cluster:
    times = st.sampled_from([0.0, 1e-9, 3e-8])
    overhead = draw(st.sampled_from(["dispatch_s", "operation_overhead_s"]))
    told = {"flop_per_s": 1e9, "memory_bytes": draw(st.sampled_from([None, 10**6]))}
    devices = tuple(
        Device(name=f"d{number}", **told, **{overhead: draw(times)})
        for number in range(draw(st.integers(2, 4)))
    )
    link = Link(latency_s=draw(times), bandwidth_bytes_per_s=draw(st.sampled_from([None, 1e8])))
    return Cluster(name="drawn", devices=devices, link=link)


def placed(asked: list[flow.Tensor], workers: int, seed: int) -> dict[str, int]:
    """Every operator that has a place, anywhere."""
    places = random.Random(seed)
    found: dict[str, int] = {}
    for node in needed(asked):
        if node.operator.name not in WITHOUT_PLACE:
            found[node.name] = places.randrange(workers)
    return found


def firings(result: flow.FlowResult) -> dict[str, tuple[int, int]]:
    """How often each operator of the program ran, live and dead."""
    rows = result.evaluations
    rows = rows[~rows["operator"].isin(MADE_BY_CUTS) & ~rows["node"].str.contains(" of ")]
    sums = rows.groupby("node")[["live", "dead"]].sum()
    return {str(name): (int(row["live"]), int(row["dead"])) for name, row in sums.iterrows()}


@pytest.mark.slow(5)
@settings(max_examples=150, deadline=None)
@given(block=programs(), cluster=clusters(), seed=st.integers(0, 99), options=OPTIONS)
def test_any_placement_gives_the_same_bits(block, cluster, seed, options):
    asked = built(block)
    feeds = feeds_of(asked)
    alone = flow.run(asked, feeds)
    placement = placed(asked, cluster.workers, seed)
    result = flow.run(asked, feeds, cluster=cluster, placement=placement, **options)
    assert [float(one) for one in result.values] == [float(one) for one in alone.values]
    assert firings(result) == firings(alone)
    counts = result.evaluations.groupby("operator")[["live", "dead"]].sum().sum(axis=1)
    assert counts.get("send", 0) == counts.get("recv", 0)
    if not options["broadcast_dead"]:
        assert counts.get("send", 0) == sum(result.sent.values())
        dead = result.evaluations.query("operator == 'send'")["dead"].sum()
        assert dead == result.sent["dead"]
    path = result.critical_path
    assert float((path["end_s"] - path["start_s"]).sum()) == pytest.approx(result.makespan_s)
