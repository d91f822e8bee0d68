"""Staleness and updates of every solver on a model with branches, replayed from the trace alone.

A node is read with the last answer before a rank's forward step, and its gradient is as stale as
its updates are many between that answer's leaving and its own merge. All that is read here are rows
of spans, transfers and updates.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from solver_cases import Item, cluster, model, solver, weights

import ampsim
from ampsim.data_parallel import SOLVERS
from ampsim.hardware import Link
from ampsim.ir import Cond, Graph, Phi
from ampsim.nodes import Linear, SquaredError
from ampsim.runs.folder import run_to_keep, write_run
from ampsim.runs.loaded_run import load_run
from ampsim.study.simulation import RunOptions

AT_SERVERS = ("async-sgd", "hogwild", "ssp")
IN_ROUNDS = ("sync-sgd", "sync-easgd", "local-sgd", "diloco")
LINEAR = "linear-{}"


def branching(ways: list[int]) -> ampsim.Model:
    """A layer for all batches, and behind it one for those of each way."""
    sides = [str(one) for one in range(max(ways) + 1)]

    def graph() -> Graph:
        made = Graph("ways")
        x, y = made.controller(x=("rows", 3), y=("rows", 2))
        x = made.add(Linear("trunk", 3, 3), x)
        cond = Cond("cond", lambda state: sides[ways[state.instance % len(ways)]], sides)
        wires = [
            made.add(Linear(LINEAR.format(side), 3, 2), wire)
            for side, wire in zip(sides, made.branch(cond, x), strict=True)
        ]
        made.end(SquaredError("loss"), made.add(Phi("phi", sides), *wires), y)
        return made

    given: Any = model(len(ways), 1)
    data = given.make_data(0, None)
    return replace(
        given,
        make_graph=graph,
        make_data=lambda _seed, _count: data,
        pump=lambda instance, one: [("x", Item(instance), one.x), ("y", Item(instance), one.y)],
    )


@dataclass(frozen=True)
class Case:
    """A run, what was drawn for it, and the rows of its trace."""

    result: ampsim.Result
    ways: list[int]
    ranks: int
    together: int  # instances that a rank takes at once
    epochs: int

    def nodes_of(self, instance: int) -> list[str]:
        """The nodes that learn of an instance."""
        return ["trunk", LINEAR.format(self.ways[instance % len(self.ways)])]

    def assignment(self, first: int) -> range:
        """The instances that a rank takes with this one; none are of another epoch."""
        end = (first // len(self.ways) + 1) * len(self.ways)
        return range(first, min(first + self.together, end))

    def gradients(self, instances: Any) -> Counter[str]:
        """How many gradients each node has of some instances."""
        return Counter(node for one in instances for node in self.nodes_of(one))

    def rows(self, table: str) -> Iterator[Any]:
        frame = getattr(self.result, table)
        columns = frame.astype({one: str for one in ("node", "direction") if one in frame})
        return columns.itertuples(index=False)

    def updates(self) -> list[Any]:
        return list(self.rows("updates"))


def case_of(name: str, seed: int, **more: Any) -> Case:
    """A run of random options."""
    random = np.random.default_rng([seed, len(name)])
    ways = random.integers(0, int(random.integers(1, 4)), int(random.integers(8, 20))).tolist()
    ranks, together, options = int(random.integers(1, 5)), 1, dict[str, Any]()
    servers = 0 if name in IN_ROUNDS else int(random.integers(1, max(ways) + 2))
    if random.random() < 0.4:
        together = 2
        options["inner"] = ampsim.Pipeline(2)
    if name in ("ssp", "async-sgd", "hogwild", "sync-sgd") and random.random() < 0.3:
        options["compression"] = 0.3
    drawn = {"ranks": ranks, "servers": servers or 1, "period": int(random.integers(1, 4)),
             "staleness_bound": int(random.integers(0, 3))}  # fmt: skip
    if name in ("easgd", "async-easgd", "ea-wild") and random.random() < 0.3 and name == "easgd":
        options["elastic"] = "worker"
    link = Link(latency_s=10 ** random.uniform(-8, -6), bandwidth_bytes_per_s=1e9)
    speeds = [*random.uniform(5e7, 3e8, ranks), *random.uniform(5e7, 1e9, servers)]
    hosts = cluster([float(one) for one in speeds], link=link, jitter_cv=0.3)
    epochs = int(random.integers(1, 4))
    options = {**drawn, **options, **more}
    result = ampsim.simulate(
        branching(ways), hosts, solver(name, **options), epochs=epochs, seed=seed, mode="sleep"
    )
    return Case(result, ways, ranks, together, epochs)


def merges_of(case: Case) -> dict[float, int]:
    """The first instance of each push with a gradient, by when a merge of it began."""
    merges = [one for one in case.rows("spans") if one.node == "centre" and one.staleness >= 0]
    by_start: dict[float, int] = {}
    for one in merges:
        assert by_start.setdefault(one.start_s, one.instance) == one.instance
    return by_start


def staleness_at_servers(case: Case) -> Iterator[tuple[Any, int]]:
    """Each update whose merge has ended, and its staleness."""
    spans, updates, merges = list(case.rows("spans")), case.updates(), merges_of(case)
    began: dict[int, tuple[int, float]] = {}  # rank and first step of an instance
    server_of: dict[str, int] = {}
    for one in spans:
        if 0 <= one.worker < case.ranks and one.direction == "forward" and one.node == "trunk":
            began[one.instance] = one.worker, one.start_s
    hosts = {(one.start_s, one.worker) for one in spans
             if one.node == "centre" and one.staleness >= 0}  # fmt: skip
    for update in updates:  # each node has one server, where all of its merges begin
        there = {worker for start_s, worker in hosts if start_s == update.time_s}
        if len(there) == 1:
            server_of[update.node] = there.pop()
    for node in {one.node for one in updates} - set(server_of):
        there = [
            {worker for start_s, worker in hosts if start_s == one.time_s}
            for one in updates
            if one.node == node and one.time_s in merges
        ]
        both = set.intersection(*there) if there else set()
        if len(both) == 1:
            server_of[node] = both.pop()
    answers: dict[tuple[int, int], list[Any]] = {}
    for one in case.rows("transfers"):
        answers.setdefault((one.source_worker, one.target_worker), []).append(one)
    made: Counter[str] = Counter()
    begun_s = {node: [one.time_s for one in updates if one.node == node] for node in server_of}
    for update in updates:
        earlier = made[update.node]
        made[update.node] += 1
        if update.time_s not in merges or update.node not in server_of:
            continue
        rank, read_s = began[merges[update.time_s]]
        left_s = [
            one.sent_s for one in answers.get((server_of[update.node], rank), ())
            if one.end_s <= read_s * (1 + 1e-12)
        ]  # fmt: skip
        known = bisect_left(begun_s[update.node], max(left_s)) if left_s else 0
        yield update, earlier - known


@pytest.mark.parametrize("seed", range(7))
@pytest.mark.parametrize("name", AT_SERVERS)
def test_each_gradient_at_a_server_is_as_stale_as_updates_of_its_node_are_many(name, seed):
    case = case_of(name, seed)
    result, updates = case.result, case.updates()
    found = list(staleness_at_servers(case))
    assert len(found) >= 0.9 * len(updates) - 2
    for update, staleness in found:
        assert update.staleness == update.staleness_max == staleness
    # each node's gradient counts alike, and each is counted
    assert result.staleness_mean == pytest.approx(np.mean([one.staleness for one in updates]))
    assert result.staleness_max == max(one.staleness for one in updates)
    assert result.staleness["count"].sum() == len(updates)
    # and there is an update for each gradient of a push, and no other
    pushed = Counter[tuple[str, int]]()
    for first in set(merges_of(case).values()):
        pushed.update(case.gradients(case.assignment(first)).items())
    known = [one for one in updates if one.time_s in merges_of(case)]
    assert Counter((one.node, one.gradient_count) for one in known) == pushed


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("name", "options"),
    [("async-sgd", {"servers": 1}), ("ssp", {"servers": 1}), ("hogwild", {"ranks": 1})],
)
def test_an_exchange_counts_merges_whichever_nodes_they_have_gradients_of(name, options, seed):
    """Where one server merges whole pushes, or one rank is all, an answer is of one version."""
    exchanges = case_of(name, seed, **options).result.exchanges
    assert not exchanges["is_mixed"].any()
    if name == "ssp":  # answers when a bound lets go, and others have merged by then
        return
    ranks = exchanges.sort_values("merge_start_s", kind="stable")["rank"].reset_index(drop=True)
    since = ranks.index - ranks.groupby(ranks).transform(lambda own: own.index.to_series().shift())
    by_merge = exchanges.sort_values("merge_start_s", kind="stable")["staleness"].tolist()
    assert by_merge == (since.fillna(ranks.index.to_series() + 1) - 1).tolist()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", [one for one in SOLVERS if one not in AT_SERVERS])
def test_what_steps_by_its_own_weights_is_not_stale_and_steps_once(name, seed):
    case = case_of(name, seed)
    result, updates = case.result, case.updates()
    assert result.staleness_mean == result.staleness_max == 0
    assert all(one.staleness == one.staleness_max == 0 for one in updates)
    whole = len(case.ways) * case.epochs
    firsts = [
        first
        for epoch in range(case.epochs)
        for first in range(epoch * len(case.ways), (epoch + 1) * len(case.ways), case.together)
    ]
    expected = Counter[tuple[str, int]]()
    of_round = case.ranks if name == "sync-sgd" else 1
    per_epoch = len(firsts) // case.epochs
    for start in range(0, len(firsts), per_epoch):
        of_epoch = firsts[start : start + per_epoch]
        for at in range(0, per_epoch, of_round):
            taken = [
                one for first in of_epoch[at : at + of_round] for one in case.assignment(first)
            ]
            expected.update(case.gradients(taken).items())
    steps = [one for one in updates if one.gradient_count]
    found = Counter((one.node, one.gradient_count) for one in steps)
    assert found >= expected  # where ranks go on, until the run ends
    if name == "sync-sgd":
        assert found == expected
        assert sum(one.gradient_count for one in steps) == 2 * whole
    ended = Counter[tuple[int, str]]()
    for one in case.rows("spans"):
        if one.direction == "backward" and one.node in set(result.updates["node"]):
            ended[one.instance, one.node] += 1
    assert set(ended.values()) == {1}
    assert sum(one.gradient_count for one in steps) <= len(ended)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["easgd", "async-easgd", "ea-wild", "local-sgd", "diloco"])
def test_inside_a_rank_that_never_drains_a_gradient_is_as_stale_as_under_amp(name, seed):
    case = case_of(name, seed, inner=ampsim.Amp(3), period=5)
    version: Counter[tuple[int, str]] = Counter()
    read: dict[tuple[int, str], int] = {}
    found: list[int] = []
    times = {(one.node, one.time_s) for one in case.updates() if one.gradient_count}
    for one in case.rows("spans"):  # those of a worker are in order
        place = one.worker, one.node
        if one.direction == "update" and (one.node, one.start_s) in times:
            version[place] += 1
        elif one.direction == "forward":
            read[one.instance, one.node] = version[place]
        elif one.staleness >= 0:
            found.append(version[place] - read[one.instance, one.node])
            assert found[-1] == one.staleness
    assert case.result.staleness_mean == pytest.approx(np.mean(found))
    assert case.result.staleness_max == max(found)


@pytest.mark.parametrize("name", AT_SERVERS)
def test_a_run_that_is_kept_has_the_same_staleness(name, tmp_path):
    made = branching([0, 2, 1, 1, 0, 2, 2, 0, 1])
    hosts = cluster([1e8, 2e8, 1.5e8, 1e8], link=Link(latency_s=1e-7), jitter_cv=0.3)
    outcome = run_to_keep(made, hosts, solver(name, ranks=3), RunOptions(epochs=2))
    write_run(outcome, tmp_path / "kept")
    result, kept = outcome.result, load_run(tmp_path / "kept")
    assert kept.staleness.equals(result.staleness)
    assert (kept.staleness_mean, kept.staleness_max) == (
        result.staleness_mean,
        result.staleness_max,
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", [one for one in SOLVERS if one not in IN_ROUNDS])
def test_each_merge_in_the_weights_has_an_exchange_also_where_the_run_cuts_it(name, seed):
    """The weights are those of the last merge that has begun; what it is of stands in the trace."""
    made, after = model(23, 2), list[np.ndarray]()
    kind: Any = SOLVERS[name]

    class Noted(kind):
        def merge(self, centre: Any, parcel: Any, pull: float, step: Any) -> Any:
            after.append(super().merge(centre, parcel, pull, step))
            return after[-1].copy()

    hosts = cluster([1e8, 2e8, 1.5e8, 2e7], link=Link(latency_s=1e-8), jitter_cv=0.3)
    result = ampsim.simulate(made, hosts, Noted(ranks=3), epochs=3, seed=seed)
    exchanges, end_s = result.exchanges, result.epochs["time_s"].iloc[-1]
    assert len(exchanges) == len(after)
    assert weights(result).tobytes() == after[-1].tobytes()
    assert (exchanges["merge_end_s"] <= end_s * (1 + 1e-12)).all()
    if not kind.is_elastic:
        return
    merges = result.spans[result.spans["node"] == "centre"]
    under_way = exchanges[~exchanges["merge_start_s"].isin(merges["start_s"])]
    assert len(under_way) == len(exchanges) - len(merges) <= 1
    assert (under_way["merge_end_s"] == end_s).all()
