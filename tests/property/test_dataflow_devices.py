"""Random programs on random devices: the same bits, the same firings, nothing left behind."""

from __future__ import annotations

from typing import Any

import pytest
from dataflow_programs import built, feeds_of, placed, programs
from hypothesis import given, settings
from hypothesis import strategies as st

from ampsim import flow
from ampsim.dataflow.plan import needed
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


def crossings(nodes: list[Any], where: dict[str, int]) -> dict[tuple[Any, int, bool], str]:
    """Each (tensor, worker that reads it, whether as a signal) with two workers, and its Send.

    A worker that is sent something of a loop is sent the predicate of that loop, too.
    """
    found = dict[tuple[Any, int, bool], str]()

    def want(tensor: Any, worker: int, *, is_signal: bool) -> None:
        while tensor.node.operator.name == "enter-constant":  # one on each worker that reads it
            for one in tensor.node.controls:
                want(one, worker, is_signal=True)
            (tensor,) = tensor.node.inputs
        key, name = (tensor, worker, is_signal), tensor.node.name
        if tensor.node.operator.name == "constant" or where[name] == worker or key in found:
            return
        name += f":{tensor.output}" * bool(tensor.output) + " as a signal" * is_signal
        found[key] = f"send {name} to {worker}"
        loop = tensor.context.loop
        while loop is not None:
            want(loop.predicate, worker, is_signal=False)
            loop = loop.outer.loop

    for node in nodes:
        for one in node.inputs:
            want(one, where[node.name], is_signal=False)
        for one in node.controls:
            want(one, where[node.name], is_signal=True)
    return {
        (tensor, worker, is_signal): name
        for (tensor, worker, is_signal), name in found.items()
        if not is_signal or (tensor, worker, False) not in found
    }


def messages(asked: list[flow.Tensor], result: flow.FlowResult) -> dict[str, int]:
    """How often each Send is to run: each time that its tensor is made."""
    nodes = [one for one in needed(asked) if "constant" not in one.operator.name]
    table = result.evaluations
    where = dict(zip(table["node"], table["worker"], strict=True))
    made = dict(zip(table["node"], table["live"] + table["dead"], strict=True))
    frames = {
        one.attributes["loop"]: made[one.name] for one in nodes if one.operator.name == "enter"
    }
    made |= {  # once a loop, and not once an iteration
        one.name: frames[one.attributes["loop"]] for one in nodes if one.operator.name == "exit"
    }
    return {name: made[tensor.node.name] for (tensor, *_), name in crossings(nodes, where).items()}


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
    sends = result.evaluations.query("operator == 'send'").set_index("node")
    assert (sends["live"] + sends["dead"]).to_dict() == messages(asked, result)
    if not options["broadcast_dead"]:
        assert counts.get("send", 0) == sum(result.sent.values())
        dead = result.evaluations.query("operator == 'send'")["dead"].sum()
        assert dead == result.sent["dead"]
    path = result.critical_path
    assert float((path["end_s"] - path["start_s"]).sum()) == pytest.approx(result.makespan_s)
