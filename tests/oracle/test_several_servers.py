"""A push to several servers is recorded once: by its first merge, its last, and its oldest read."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from solver_cases import Link, cluster, model, solver

import ampsim
from ampsim.data_parallel import SOLVERS
from ampsim.hardware import Cluster

SERVED = [name for name, kind in SOLVERS.items() if "servers" in kind.__dataclass_fields__]
LINK = Link(latency_s=2e-8, bandwidth_bytes_per_s=1e10)

OF_GRADIENTS = [one for one in SERVED if SOLVERS[one].sends == "gradient"]


def crossed() -> Cluster:
    """One rank is near the first server, and another near the second, which is slow."""
    hosts = cluster([1e9, 1.1e9, 0.9e9, 1e9, 2e8], link=LINK, jitter_cv=0.3)
    far = Link(latency_s=6e-8, bandwidth_bytes_per_s=1e10)
    pairs = {(0, 4), (4, 0), (1, 3), (3, 1)}
    links = [
        one.model_copy(update={"link": far}) if (one.source, one.target) in pairs else one
        for one in hosts.links
    ]
    return hosts.model_copy(update={"links": tuple(links)})


HOSTS = {
    "crossed": crossed(),
    "alike": cluster([1e9, 1.7e9, 0.6e9, 1e9, 1e9], link=LINK, jitter_cv=0.3),
    "first slow": cluster([1e9, 1.7e9, 0.6e9, 1e8, 1e9], link=LINK, jitter_cv=0.3),
    "last slow": cluster([1e9, 1.7e9, 0.6e9, 1e9, 1e8], link=LINK, jitter_cv=0.3),
}
"""Three ranks, then two servers."""


def trained(name: str, hosts: str) -> ampsim.Result:
    return ampsim.simulate(
        model(60, 2, layers=3),
        HOSTS[hosts],
        solver(name, ranks=3, servers=2),
        epochs=2,
    )


def pushes_of(result: ampsim.Result) -> pd.DataFrame:
    """Of each push whose merges at both servers are in the trace: start, end and staleness."""
    merges = result.spans[result.spans["node"] == "centre"]
    made = merges.groupby("instance").agg(
        count=("start_s", "size"),
        workers=("worker", "nunique"),
        start_s=("start_s", "min"),
        end_s=("end_s", "max"),
        staleness=("staleness", "max"),
    )
    return made[(made["count"] == made["count"].max()) & (made["workers"] == 2)]


def whole(result: ampsim.Result) -> pd.DataFrame:
    """Exchanges but for those of which the end of the run has cut a merge: one for each rank."""
    exchanges, pushes = result.exchanges, pushes_of(result)
    is_whole = exchanges["merge_end_s"].isin(pushes["end_s"])
    is_cut = ~(is_whole & exchanges["merge_start_s"].isin(pushes["start_s"]))
    assert (exchanges.loc[is_cut, "merge_end_s"] == result.epochs["time_s"].iloc[-1]).all()
    assert exchanges.loc[is_cut, "rank"].is_unique
    return exchanges[~is_cut]


@pytest.mark.parametrize("hosts", HOSTS)
@pytest.mark.parametrize("name", SERVED)
def test_every_push_that_is_merged_has_an_exchange_from_its_first_merge_to_its_last(name, hosts):
    result = trained(name, hosts)
    pushes, exchanges = pushes_of(result), whole(result)
    assert len(pushes) > 50
    for column in ("start_s", "end_s"):
        assert np.array_equal(
            np.sort(exchanges[f"merge_{column}"].to_numpy()), np.sort(pushes[column].to_numpy())
        )


@pytest.mark.parametrize("name", OF_GRADIENTS)
def test_an_exchange_notes_the_most_staleness_of_any_server(name):
    """Pushes come to the servers in another order, and the slow server ends each of them last."""
    result = trained(name, "crossed")
    pushes = pushes_of(result).set_index("end_s")["staleness"].sort_index()
    found = whole(result).set_index("merge_end_s")["staleness"].sort_index()
    assert found.index.is_unique
    assert found.tolist() == pushes.tolist()
    merges = result.spans[result.spans["node"] == "centre"].sort_values("end_s", kind="stable")
    by_push = merges.groupby("instance")["staleness"]
    if name != "ssp":  # it answers when all servers have merged
        assert (by_push.last() < by_push.max()).any()


@pytest.mark.parametrize("name", OF_GRADIENTS)
def test_a_push_whose_answer_is_still_to_come_when_the_run_ends_has_held_nobody_up(name):
    result = trained(name, "alike")
    exchanges = result.exchanges
    unanswered = exchanges[exchanges["end_s"] == result.makespan_s]
    assert len(unanswered) >= 1
    assert (unanswered["stalled_s"] == 0).all()
    assert set(unanswered["waits_for"]) == {"nothing"}
    assert unanswered["merge_end_s"].max() == result.makespan_s
    assert exchanges["end_s"].max() == result.makespan_s


LOCKING = [name for name in SERVED if SOLVERS[name].locks == "update"]


def lock_or_reply(result: ampsim.Result, end_s: float, since_s: float, rank: int) -> str:
    """What a rank waited for, by the merge whose answer came last, or of a bound the last merge."""
    sent, merges = result.transfers, result.spans[result.spans["node"] == "centre"]
    sent = sent[(sent["source"] == "centre") & (sent["sent_s"] >= since_s)]
    instance = merges.loc[merges["end_s"] == end_s, "instance"].iloc[0]
    found: list[tuple[float, str]] = []
    for worker, start, end in merges.loc[
        merges["instance"] == instance, ["worker", "start_s", "end_s"]
    ].itertuples(index=False):
        at, to = sent["source_worker"], sent["target_worker"]
        came_s = sent.loc[(at == rank) & (to == worker), "end_s"].iloc[0]
        is_back = (at == worker) & (to == rank) & (sent["sent_s"] >= end)
        back_s = end if result.schedule.name == "ssp" else sent.loc[is_back, "end_s"].iloc[0]
        found.append((back_s, "lock" if start > came_s + 1e-15 else "reply"))
    return max(found)[1]


@pytest.mark.parametrize("hosts", ["first slow", "last slow"])
@pytest.mark.parametrize("name", LOCKING)
def test_a_rank_waits_for_a_lock_where_the_answer_that_came_last_did(name, hosts):
    """It was asked of the server that all of a push came to first, whichever was the slow one."""
    result = trained(name, hosts)
    exchanges = whole(result)
    waiting = exchanges[exchanges["waits_for"].isin(["lock", "reply"])].head(12)
    columns = ["merge_end_s", "start_s", "rank"]
    rows = waiting[columns].itertuples(index=False)
    assert waiting["waits_for"].tolist() == [lock_or_reply(result, *row) for row in rows]
    assert len(waiting) == 12
