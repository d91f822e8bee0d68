"""Groups of copies drawn from the seed: who is together, and that nothing else changes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from solver_cases import Link, cluster, model, solver, weights

import ampsim
from ampsim.data_parallel import SOLVERS
from ampsim.data_parallel.inside import blocks_of
from ampsim.errors import AmpsimError
from ampsim.runs.folder import run_to_keep, write_run
from ampsim.study.simulation import RunOptions

SLOW = Link(latency_s=1e-7, bandwidth_bytes_per_s=1e8)
SPEEDS = [1e9, 2.3e9, 0.4e9, 1.7e9, 5e8, 1.1e9, 0.9e9, 3e9]
SERVER = 1.3e9
Sync = ampsim.SyncSGD


def members(result: ampsim.Result, groups: int, each: int) -> list[list[int]]:
    """The workers of each group, in the order of its ranks, as collectives inside have them.

    Copies of equal rank take batches one after the other, so that the first instances tell.
    """
    spans = result.spans
    first = spans[spans["instance"] >= 0].groupby("instance")["worker"].first()
    workers = first.iloc[: groups * each].tolist()
    return [workers[at : at + each] for at in range(0, groups * each, each)]


@pytest.mark.parametrize("name", SOLVERS)
def test_random_groups_are_fixed_groups_of_devices_in_another_order(name):
    """Every time and weight, to the bit, on a cluster whose devices are exchanged by hand."""
    made = model(80, 2, layers=2)
    chosen = solver(name, ranks=4, period=2, inner=Sync(2), groups="random")
    servers = [SERVER] * chosen.server_count
    drawn = ampsim.simulate(made, cluster([*SPEEDS, *servers], link=SLOW), chosen, seed=3, epochs=2)
    order = list(itertools.chain(*members(drawn, 4, 2)))
    assert sorted(order) == list(range(8))
    assert order != list(range(8))
    exchanged = cluster([*(SPEEDS[one] for one in order), *servers], link=SLOW)
    fixed = solver(name, ranks=4, period=2, inner=Sync(2))
    by_hand = ampsim.simulate(made, exchanged, fixed, seed=3, epochs=2)
    assert weights(drawn).tobytes() == weights(by_hand).tobytes()
    assert drawn.exchanges.equals(by_hand.exchanges)
    assert drawn.collectives.equals(by_hand.collectives)
    assert drawn.epochs.equals(by_hand.epochs)
    places = dict(enumerate(order))
    for table in ("spans", "waits"):
        own, other = (getattr(one, table) for one in (drawn, by_hand))
        moved = other["worker"].map(lambda place: places.get(place, place)).astype(np.int32)
        other = other.assign(worker=moved)
        keys = ["start_s", "end_s", "worker"]
        columns = [one for one in own.columns if one not in ("cause", "index")]
        own, other = (one.sort_values(keys)[columns].reset_index(drop=True) for one in (own, other))
        assert own.equals(other), table


def test_any_two_copies_are_together_as_often_as_any_other_two():
    """Of 16 in groups of 4, three of fifteen times: within four standard errors, 3,000 seeds."""
    seeds, groups, each = 3000, 4, 4
    copies = groups * each
    together = np.zeros((copies, copies), int)
    for seed in range(seeds):
        blocks = np.array(blocks_of([(groups, "random")], copies, seed)).reshape(groups, each)
        for group in blocks:
            together[np.ix_(group, group)] += 1
    share = together[~np.eye(copies, dtype=bool)] / seeds
    chance = (each - 1) / (copies - 1)
    assert np.abs(share - chance).max() < 4 * np.sqrt(chance * (1 - chance) / seeds)


def test_groups_inside_groups_are_drawn_within_these():
    for seed in range(50):
        blocks = np.array(blocks_of([(2, "fixed"), (4, "random")], 16, seed)).reshape(2, 8)
        assert [sorted(one) for one in blocks.tolist()] == [list(range(8)), list(range(8, 16))]
    drawn = {tuple(blocks_of([(2, "random"), (2, "fixed")], 8, seed)) for seed in range(50)}
    assert len(drawn) > 40


def test_groups_of_unlike_devices_go_at_the_pace_of_their_slowest():
    """Half of sixteen devices are four times slower: fixed groups keep them apart.

    The closed form: links and the server are free, so that a round of a group takes what the work
    of one copy, which is the same for all, takes on its slowest device.
    """
    speeds = [1e9] * 8 + [0.25e9] * 8
    made, hosts = model(6400, 1), cluster([*speeds, 1e15])
    work: list[float] = []
    slowest: dict[str, list[float]] = {}
    for how in ("fixed", "random"):
        chosen = ampsim.EAWild(ranks=4, inner=Sync(4), groups=how)
        found = ampsim.simulate(made, hosts, chosen, seed=5, mode="sleep")
        slowest[how] = [min(speeds[one] for one in group) for group in members(found, 4, 4)]
        for first, speed in zip((0, 4, 8, 12), slowest[how], strict=True):
            begun = found.exchanges.query(f"rank == {first} and server >= 0")["start_s"]
            assert len(begun) > 100
            work.append(float(np.median(np.diff(begun))) * speed)
    assert slowest["fixed"] == [1e9, 1e9, 0.25e9, 0.25e9]
    assert sorted(slowest["random"]) == [0.25e9] * 4  # with this seed no group is all fast
    assert work == pytest.approx([work[0]] * 8, rel=1e-6)


def test_a_run_that_is_kept_knows_who_waited(tmp_path):
    made = model(41, 3, layers=2)
    chosen = ampsim.EASGD(ranks=2, inner=Sync(2), groups="random", workers_per_rank=2)
    hosts = cluster([*SPEEDS, SERVER], link=SLOW, jitter_cv=0.2)
    outcome = run_to_keep(made, hosts, chosen, RunOptions(seed=4))
    result = outcome.result
    write_run(outcome, tmp_path / "run")
    loaded = ampsim.load_run(tmp_path / "run")
    assert len(result.waits) > 10
    assert loaded.waits.equals(result.waits)
    assert set(result.waits["worker"]) == set(range(8))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"groups": "random"},
            "groups='random' needs ranks that are groups, got sequential inside",
        ),
        (
            {"groups": "drawn", "inner": Sync(2)},
            "no groups named 'drawn'; did you mean 'random'? known: fixed, random",
        ),
        ({"groups": 2, "inner": Sync(2)}, "groups must be"),
    ],
)
def test_what_groups_may_be_is_said(options: dict[str, Any], said):
    with pytest.raises(AmpsimError) as caught:
        ampsim.EAWild(ranks=2, **options)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
