"""Random programs on random devices: the same bits, the same firings, nothing left behind."""

from __future__ import annotations

from typing import Any

import pytest
from dataflow_programs import built, feeds_of, placed, programs
from hypothesis import given, settings
from hypothesis import strategies as st

from ampsim import flow
from ampsim.hardware import Cluster, Device, Link

OPTIONS = st.fixed_dictionaries(
    {
        "parallel_iterations": st.integers(0, 3),
        "run_ahead": st.booleans(),
        "broadcast_dead": st.booleans(),
    }
)
MADE_BY_CUTS = ("send", "recv", "constant", "enter-constant")


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


def firings(result: flow.FlowResult) -> dict[str, tuple[int, int]]:
    """How often each operator of the program ran, live and dead."""
    rows = result.evaluations
    rows = rows[~rows["operator"].isin(MADE_BY_CUTS) & ~rows["node"].str.contains(" of ")]
    sums = rows.groupby("node")[["live", "dead"]].sum()
    return {str(name): (int(row["live"]), int(row["dead"])) for name, row in sums.iterrows()}


@pytest.mark.slow(5)
@settings(max_examples=100, deadline=None)
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
