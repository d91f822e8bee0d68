"""How busy the links of a collective are, whether it is one event or its messages."""

from __future__ import annotations

from typing import Any

import pytest

import ampsim
from ampsim.data_parallel import COLLECTIVES
from ampsim.hardware import Cluster, Device, Link, Route
from ampsim.study import Result

RANKS = 8
MODEL = ampsim.load_model("mlp", hidden=8, data="synthetic", batch=20, valid_images=40)
DEVICE = Device(name="varies", flop_per_s=1e9, jitter_cv=0.3)  # so that another rank is last
SOLVERS: dict[str, ampsim.SyncSGD | ampsim.LocalSGD] = {
    **{name: ampsim.SyncSGD(collective=name) for name in COLLECTIVES if name != "hierarchical"},
    "hierarchical": ampsim.SyncSGD(collective="hierarchical", ranks_per_group=4),
    "all-gather": ampsim.SyncSGD(compression=0.1),
    "buckets": ampsim.SyncSGD(bucket_bytes=2000),
    "local": ampsim.LocalSGD(period=3, collective="tree"),
}


def run(solver: Any, apart: float = 0.0) -> Result:
    """A run in which one link is so much faster than the others, for links alike need no messages.

    The host's are free, so that no other link is busier than those of ranks.
    """
    pairs = [(one, other) for one in range(RANKS) for other in range(RANKS) if one != other]
    links = tuple(
        Route(
            source=one,
            target=other,
            link=Link(
                latency_s=1e-6 * (1 + apart * ((one, other) == (0, 1))), bandwidth_bytes_per_s=1e8
            ),
        )
        for one, other in pairs
    )
    cluster = Cluster(name="alike", devices=(DEVICE,) * RANKS, links=links)
    return ampsim.simulate(MODEL, cluster, solver, mode="sleep", instances=1600, seed=1)


@pytest.mark.parametrize("name", SOLVERS)
def test_links_of_a_collective_are_as_busy_as_by_its_messages(name):
    event, messages = run(SOLVERS[name]), run(SOLVERS[name], apart=1e-9)
    assert event.collectives["is_event"].all()
    assert not messages.collectives["is_event"].any()
    assert event.makespan_s == pytest.approx(messages.makespan_s, rel=1e-6)
    assert event.bounds.link_share > 0.05
    assert event.bounds.link_share == pytest.approx(messages.bounds.link_share, rel=1e-6)


def test_a_link_of_a_ring_carries_all_but_a_part_of_the_vector_twice():
    result = run(ampsim.SyncSGD())
    size_bytes = result.collectives["bytes"].to_numpy()
    carried = (2 * (RANKS - 1) / RANKS * size_bytes / 1e8).sum()
    assert result.bounds.link_share == pytest.approx(carried / result.makespan_s, rel=1e-3)
