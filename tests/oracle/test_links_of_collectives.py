"""How busy the links of a collective are, whether it is one event or its messages."""

from __future__ import annotations

from itertools import permutations
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


@pytest.mark.parametrize("is_event", [True, False])
@pytest.mark.parametrize("collective", ["ring", "tree", "star"])
@pytest.mark.parametrize(
    ("kind", "options", "rounds"),
    [
        (ampsim.SyncSGD, {}, 3),
        (ampsim.SyncSGD, {"backup_ranks": 1}, 4),
        *((one, {"period": 1}, 3) for one in (ampsim.LocalSGD, ampsim.DiLoCo, ampsim.SyncEASGD)),
    ],
)
def test_a_collective_that_comes_last_to_a_rank_without_a_batch_is_recorded(
    kind, options, rounds, collective, is_event
):
    """Seven batches are rounds of three, or of the first two; the way to the last is the longest.

    Where ways are alike, those without a batch are on the second level of a tree, or a star.
    """
    last = 1 if is_event else 9
    ways = {(s, t): last if t == 2 else 1 for s, t in permutations(range(3), 2)}
    links = (
        Route(source=s, target=t, link=Link(latency_s=way * 1e-7)) for (s, t), way in ways.items()
    )
    fast = DEVICE.model_copy(update={"flop_per_s": 1e12})
    cluster = Cluster(name="test", devices=(fast,) * 3, links=tuple(links))
    solver: Any = kind(3, collective=collective, **options)
    found = ampsim.simulate(MODEL, cluster, solver, mode="sleep", instances=140)
    assert set(found.collectives["is_event"]) == {is_event}
    assert len(found.collectives) == len(found.exchanges) / 3 == rounds
    assert found.collectives["end_s"].max() <= found.makespan_s
    assert found.exchanges["end_s"].max() <= found.makespan_s
