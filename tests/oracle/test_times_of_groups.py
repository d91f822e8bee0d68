"""How long a group's step takes, what crosses which link, and what lies in memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from solver_cases import Link, cluster, model, require_whole_path, solver

import ampsim
from ampsim.data_parallel import SOLVERS
from ampsim.hardware import Cluster, Ports
from ampsim.hardware.topology import Route

NEAR_S, NEAR, FAR_S, FAR = 1e-6, 1e9, 5e-6, 1e8
BYTES = 8 * 8  # of a linear node of 3 x 2 weights and 2 biases in float64
Sync = ampsim.SyncSGD


def two_levels(groups: int, each: int, others: int = 0, *, unlike: bool = False) -> Cluster:
    """Workers with short links within a group, and long ones to all others.

    `unlike` makes half of the links longer by next to nothing, so that every collective goes as
    messages.
    """
    count = groups * each + others
    routes: list[Route] = []
    for source in range(count):
        for target in range(count):
            if source == target:
                continue
            is_near = max(source, target) < groups * each and source // each == target // each
            latency_s, rate = (NEAR_S, NEAR) if is_near else (FAR_S, FAR)
            if unlike and source < target:
                latency_s *= 1 + 1e-13
            link = Link(latency_s=latency_s, bandwidth_bytes_per_s=rate)
            routes.append(Route(source=source, target=target, link=link))
    plain = cluster([1e9] * count)
    return plain.model_copy(update={"links": tuple(routes)})


def compute_s(result: ampsim.Result) -> tuple[float, float]:
    """Seconds of a copy's gradient and of its update."""
    spans = result.spans.assign(lasting=result.spans["end_s"] - result.spans["start_s"])
    kinds = spans[spans["worker"] == 0].groupby("direction", observed=True)["lasting"].max()
    return float(kinds["forward"] + kinds["backward"]), float(kinds["update"])


def ring_s(ranks: int, latency_s: float, rate: float) -> float:
    return 2 * (ranks - 1) * (latency_s + BYTES / (ranks * rate))


def tree_down_s(ranks: int, latency_s: float, rate: float) -> float:
    return math.log2(ranks) * (latency_s + BYTES / rate)


@pytest.mark.parametrize("unlike", [False, True], ids=["one event", "messages"])
@pytest.mark.parametrize(("groups", "each"), [(2, 2), (4, 2), (2, 4), (4, 4)])
def test_a_step_of_groups_of_sync_sgd_takes_what_the_closed_form_says(groups, each, unlike):
    """C + ring of the group + ring of the groups' first ranks + tree down + update."""
    hosts = two_levels(groups, each, unlike=unlike)
    made = model(groups * each * 5, 1)
    result = ampsim.simulate(made, hosts, Sync(groups, inner=Sync(each)), mode="sleep")
    gradient_s, update_s = compute_s(result)
    expected = gradient_s + ring_s(each, NEAR_S, NEAR) + ring_s(groups, FAR_S, FAR) + update_s
    expected += tree_down_s(each, NEAR_S, NEAR)
    assert result.makespan_s == pytest.approx(5 * expected, rel=1e-9)
    assert (result.collectives["is_event"] == (not unlike)).all()


@pytest.mark.parametrize(("groups", "each"), [(2, 2), (2, 4), (4, 4)])
def test_the_hierarchical_collective_saves_the_way_down_inside(groups, each):
    """On links that are all alike, where both go by trees within groups and a ring between them."""
    ranks = groups * each
    hosts = cluster([1e9] * ranks, link=Link(latency_s=NEAR_S, bandwidth_bytes_per_s=NEAR))
    nested, flat = (
        ampsim.simulate(model(ranks, 1), hosts, one, mode="sleep").makespan_s
        for one in (
            Sync(groups, inner=Sync(each, collective="tree")),
            Sync(ranks, collective="hierarchical", ranks_per_group=each),
        )
    )
    assert nested - flat == pytest.approx(tree_down_s(each, NEAR_S, NEAR), rel=1e-9)


def test_on_free_links_a_group_costs_nothing_but_its_slowest_rank():
    hosts = cluster([1e9, 0.25e9, 2e9, 0.5e9])
    one = ampsim.simulate(model(20, 1), hosts, Sync(2, inner=Sync(2)), mode="sleep")
    two = ampsim.simulate(model(20, 1), hosts, Sync(4), mode="sleep")
    assert one.makespan_s == two.makespan_s
    fast_s = sum(compute_s(one))
    assert one.makespan_s == pytest.approx(5 * 4 * fast_s, rel=1e-12)


@pytest.mark.parametrize(("sharing", "out"), [("first-come", 3), ("fair", 4)])
def test_a_first_rank_sends_the_sum_on_to_other_groups_before_its_own_has_it(sharing, out):
    """Data, C, star within, 3 in, 3 out, 1 down, update; a port has one of each after the other.

    In fair shares the root's own way down is a fourth beside the three that go out.
    """
    ports = Ports(egress_bytes_per_s=NEAR, ingress_bytes_per_s=NEAR)
    hosts = cluster([1e9] * 8, ports=ports, sharing=sharing)
    chosen = Sync(4, collective="star", inner=Sync(2, collective="star"))
    result = ampsim.simulate(model(8 * 5, 1), hosts, chosen, mode="sleep")
    gradient_s, update_s = compute_s(result)
    data_s = (3 + 2) * 8 / NEAR  # which the forward step does not outlast
    expected = data_s + gradient_s / 2 + (2 + 3 + out + 1) * BYTES / NEAR + update_s
    assert result.makespan_s == pytest.approx(5 * expected, rel=1e-9)


@pytest.mark.parametrize("period", [1, 3])
def test_groups_under_local_sgd_meet_others_once_a_period(period):
    """H (C + ring of the group + update) + ring of the groups + tree down."""
    groups, each = 2, 4
    made = model(groups * each * period * 2, 1)
    chosen = ampsim.LocalSGD(groups, period=period, inner=Sync(each))
    result = ampsim.simulate(made, two_levels(groups, each), chosen, mode="sleep")
    gradient_s, update_s = compute_s(result)
    local_s = gradient_s + ring_s(each, NEAR_S, NEAR) + update_s
    meeting_s = ring_s(groups, FAR_S, FAR) + tree_down_s(each, NEAR_S, NEAR)
    assert result.makespan_s == pytest.approx(2 * (period * local_s + meeting_s), rel=1e-9)


@pytest.mark.parametrize("name", ["local-sgd", "diloco", "sync-easgd", "easgd", "ea-wild"])
def test_a_run_that_ends_with_the_mean_of_a_group_lasts_until_the_group_has_it(name):
    """Within a period of the solver around, a group's step of local-sgd is all: C + update + ring.

    The host is NEAR_S away: a batch goes there and back, and so does an update.
    """
    groups, each = 2, 4
    inner = ampsim.LocalSGD(each, period=1)
    chosen = solver(name, ranks=groups, period=2, inner=inner)
    hosts = two_levels(groups, each, chosen.server_count)
    hosts = hosts.model_copy(update={"link": Link(latency_s=NEAR_S)})
    result = ampsim.simulate(model(groups * each, 1), hosts, chosen, mode="sleep")
    step_s = 4 * NEAR_S + sum(compute_s(result)) + ring_s(each, NEAR_S, NEAR)
    assert result.makespan_s == pytest.approx(step_s, rel=1e-9)
    assert result.makespan_s == result.epochs["time_s"].iloc[-1]
    require_whole_path(result)


def test_groups_take_turns_at_a_server_as_single_ranks_do():
    """X = P / max(C + R, P S): where the lock binds, a turn takes S = 2 a + 2 n / B + merge.

    The lock is passed on when the answer is at the first rank of a group: to hand it out in the
    group holds up nobody else.
    """
    groups, each, rounds = 3, 4, 40
    made = model(groups * each * rounds, 1)
    result = ampsim.simulate(
        made, two_levels(groups, each, others=1), ampsim.EASGD(groups, inner=Sync(each)),
        mode="sleep",
    )  # fmt: skip
    merges = result.spans[result.spans["node"] == "centre"]
    merge_s = float((merges["end_s"] - merges["start_s"]).iloc[0])
    starts = merges["start_s"].to_numpy()[groups:]
    turn_s = 2 * FAR_S + 2 * BYTES / FAR + merge_s
    assert np.diff(starts) == pytest.approx(turn_s, rel=1e-9)


def test_one_group_at_a_server_takes_its_ring_the_way_there_and_back_and_the_tree():
    """C + ring + a + n / B + merge + a + n / B + tree down: async-sgd steps at the server."""
    each, steps = 4, 6
    hosts = two_levels(1, each, others=1)
    made = model(each * steps, 1)
    result = ampsim.simulate(made, hosts, ampsim.AsyncSGD(1, inner=Sync(each)), mode="sleep")
    spans = result.spans.assign(lasting=result.spans["end_s"] - result.spans["start_s"])
    merges = spans[spans["node"] == "centre"]
    first = spans[spans["worker"] == 0].groupby("direction", observed=True)["lasting"].max()
    step_s = float(first["forward"] + first["backward"]) + ring_s(each, NEAR_S, NEAR)
    step_s += 2 * (FAR_S + BYTES / FAR) + merges["lasting"].iloc[0]
    step_s += tree_down_s(each, NEAR_S, NEAR)
    assert np.diff(merges["start_s"]) == pytest.approx(step_s, rel=1e-9)


def test_an_exchange_of_a_group_beside_its_gradient_waits_for_the_group_s_own_links():
    """EA-wild: the centre goes down the tree on links that the group's ring wants, too.

    The answer is there before the gradient: the tree goes first, and the ring right after it.
    """
    each = 2
    hosts = two_levels(1, each, others=1)
    chosen = ampsim.EAWild(1, inner=Sync(each))
    slow = hosts.model_copy(
        update={
            "devices": tuple(
                one.model_copy(update={"flop_per_s": 2e6 if index < each else 1e9})
                for index, one in enumerate(hosts.devices)
            )
        }
    )
    result = ampsim.simulate(model(each * 3, 1), slow, chosen, mode="sleep")
    collectives = result.collectives
    tree, ring = collectives.iloc[0], collectives.iloc[1]
    assert tree["end_s"] - tree["start_s"] == pytest.approx(tree_down_s(each, NEAR_S, NEAR))
    assert ring["end_s"] - ring["start_s"] == pytest.approx(ring_s(each, NEAR_S, NEAR))
    assert tree["start_s"] == pytest.approx(2 * (FAR_S + BYTES / FAR), rel=1e-9)
    assert (collectives["start_s"].to_numpy()[1:] >= collectives["end_s"].to_numpy()[:-1]).all()


@pytest.mark.parametrize(("groups", "each"), [(2, 2), (2, 4), (4, 2)])
def test_what_crosses_a_link_within_and_between_groups_is_what_the_algorithms_say(groups, each):
    """Rings send 2 (P - 1) / P n per rank, trees (P - 1) n; first ranks alone reach others."""
    made, hosts = model(groups * each, 1), two_levels(groups, each, unlike=True)
    result = ampsim.simulate(made, hosts, Sync(groups, inner=Sync(each)), mode="sleep")
    sent = result.transfers
    sent = sent[(sent["source_worker"] >= 0) & (sent["target_worker"] >= 0)]
    is_near = sent["source_worker"] // each == sent["target_worker"] // each
    within = groups * (2 * (each - 1) * BYTES + (each - 1) * BYTES)
    assert sent[is_near]["bytes"].sum() == within
    between = sent[~is_near]
    assert between["bytes"].sum() == 2 * (groups - 1) * BYTES
    assert set(between["source_worker"]) == {group * each for group in range(groups)}


def test_every_copy_holds_its_weights_and_the_centre_until_its_step():
    hosts = two_levels(2, 2, others=1)
    chosen = ampsim.EAWild(2, inner=Sync(2))
    result = ampsim.simulate(model(24, 1), hosts, chosen, counts_memory=True)
    peak: Any = result.peak_memory.set_index("worker")
    assert (peak["weights"] == BYTES).all()
    assert (peak["stashes"].iloc[:4] == BYTES).all()
    left = result.memory[result.memory["time_s"] == result.memory["time_s"].max()]
    assert (left["stashes"] <= BYTES).all()


def test_a_rank_of_a_group_waits_for_its_group_and_then_with_it():
    """Rank 1 is slow: rank 0 waits for it, and ranks 2 and 3 of the other group for both."""
    hosts = cluster([1e9, 0.25e9, 1e9, 1e9], link=Link(latency_s=NEAR_S))
    result = ampsim.simulate(model(4, 1), hosts, Sync(2, inner=Sync(2)), mode="sleep")
    ring, tree = 2 * NEAR_S, NEAR_S
    waits = result.waits.assign(lasting=result.waits["end_s"] - result.waits["start_s"])
    found = waits.groupby("worker")["lasting"].sum()
    fast_s, slow_s = compute_s(result)[0], 4 * compute_s(result)[0]
    exchange_s = ring + ring + tree
    for worker, own_s in enumerate([fast_s, slow_s, fast_s, fast_s]):
        assert found[worker] == pytest.approx(slow_s - own_s + exchange_s, rel=1e-9)
    assert result.wait_share == pytest.approx(found.sum() / (4 * result.makespan_s), rel=1e-12)


def test_one_group_that_meets_nobody_else_takes_what_its_ranks_take_alone():
    made, hosts = model(20, 1), two_levels(1, 4)
    for outer in (Sync, ampsim.LocalSGD):
        one = ampsim.simulate(made, hosts, outer(1, inner=Sync(4)), mode="sleep")
        two = ampsim.simulate(made, hosts, Sync(4), mode="sleep")
        assert one.makespan_s == two.makespan_s


@pytest.mark.parametrize("name", ["easgd", "ea-wild", "sync-easgd"])
def test_a_pull_is_charged_with_the_step_it_goes_with_or_alone_after_steps_inside(name):
    """Three FLOP a parameter; a group of local-sgd has made its steps before it exchanges.

    Without a server each rank pulls the centre, too.
    """
    step, pull = 3 * 2, 3 * (BYTES // 8)  # an update is charged for the 3 x 2 weights
    pull *= 2 if name == "sync-easgd" else 1
    for inner, expected in (
        (Sync(2), {step + pull}),
        (ampsim.LocalSGD(2, period=2), {step, pull}),
    ):
        chosen = SOLVERS[name](ranks=2, inner=inner)
        result = ampsim.simulate(model(32, 1), cluster([1e9] * 5), chosen, mode="sleep")
        spans = result.spans[(result.spans["worker"] < 4) & (result.spans["direction"] == "update")]
        assert set(spans["flop"]) == expected
        assert set(spans["worker"]) == {0, 1, 2, 3}


def test_batches_of_a_group_go_to_its_ranks_in_their_order():
    hosts = cluster([1e9] * 5)
    chosen = ampsim.EASGD(2, inner=ampsim.LocalSGD(2, period=3))
    spans = ampsim.simulate(model(12, 1), hosts, chosen, mode="sleep").spans
    taken = spans[spans["direction"] == "forward"].drop_duplicates(["worker", "instance"])
    taken = taken[(taken["worker"] >= 0) & (taken["instance"] < 12)]
    found = taken.groupby("worker")["instance"].apply(list).to_dict()
    assert found == {0: [0, 2, 4], 1: [1, 3, 5], 2: [6, 8, 10], 3: [7, 9, 11]}
