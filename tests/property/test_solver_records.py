"""What runs of solvers hold in memory, and what they record of messages under way at the end."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import pytest
from solver_cases import Link, cluster, model, solver

import ampsim
from ampsim.data_parallel import COLLECTIVES, SOLVERS
from ampsim.errors import OutOfMemoryError
from ampsim.hardware import Cluster, Device
from ampsim.hardware.topology import Ports
from ampsim.runs.run import from_plain, run_of, to_plain
from ampsim.study.simulation import Simulation
from ampsim.trace.kinds import record_of

SPEEDS = [1e9, 2e9, 0.6e9, 1.3e9]


@pytest.mark.slow
def test_ranks_that_agree_hold_their_weights_once():
    """A rank more is a gradient more until ranks meet, not weights and a gradient."""

    def peak_bytes(ranks: int) -> int:
        made = ampsim.load_model("mlp", data="synthetic", batch=1, hidden=300)
        hosts = ampsim.load_cluster("tflops-1", workers=ranks)
        tracemalloc.start()
        ampsim.simulate(made, hosts, ampsim.SyncSGD(ranks=ranks), instances=2 * ranks)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    copy = 4 * (784 * 300 + 2 * 300 * 300 + 10 * 300 + 3 * 300 + 10)
    assert peak_bytes(8) - peak_bytes(2) < (6 + 3) * copy


@pytest.mark.parametrize("name", ["async-easgd", "ea-wild", "async-sgd"])
def test_a_run_that_is_cut_while_one_message_overtakes_another_has_a_critical_path(name):
    """Fair shares record transfers in the order of sending, and a cut leaves some under way."""
    hosts = cluster([*SPEEDS, 1e9, 2e9]).model_copy(
        update={"ports": Ports(ingress_bytes_per_s=2e9, egress_bytes_per_s=2e9)}
    )
    for rows in range(30, 37):
        chosen = solver(name, ranks=5)
        result = ampsim.simulate(model(rows, 1, layers=2), hosts, chosen, mode="sleep", epochs=2)
        assert result.critical_path["end_s"].iloc[-1] == result.makespan_s
        causes = [record_of(int(cause)) for cause in result.spans["cause"]]
        numbers = [number for table, number in causes if table == "transfer"]
        assert max(numbers) < len(result.transfers)


def with_period(name: str, period: int) -> ampsim.Result:
    """Seven batches for three ranks of unlike speeds, with weights exchanged every so many."""
    hosts, chosen = cluster(SPEEDS), solver(name, ranks=3, period=period)
    return ampsim.simulate(model(21, 3), hosts, chosen)


PERIODIC = [name for name in SOLVERS if "period" in SOLVERS[name].__dataclass_fields__]


@pytest.mark.parametrize("name", PERIODIC)
def test_ranks_whose_period_is_longer_than_the_run_are_said_to_have_met_nobody(name):
    result = with_period(name, 50)
    assert result.exchanges.empty
    assert result.never_met == (
        "ranks never exchanged, as the run ended before a period of 50 steps; take a shorter period"
    )
    assert from_plain(to_plain(run_of(result))).never_met == result.never_met


@pytest.mark.parametrize("name", SOLVERS)
def test_of_ranks_that_exchanged_nothing_is_said(name):
    assert with_period(name, 1).never_met == ""


AVERAGING = [name for name, one in SOLVERS.items() if one.sends == "weights"]
ENDS = [
    *((name, ampsim.Sequential(), 2) for name in SOLVERS),
    *((name, ampsim.LocalSGD(ranks=2), period) for name in AVERAGING for period in (1, 5)),
]


@pytest.mark.parametrize(("name", "inner", "period"), ENDS)
def test_a_run_ends_when_its_last_exchange_has(name, inner, period):
    """Six batches for three ranks: two rounds. What comes next is on its way from the host.

    Groups that meet every fifth time end with what each of them reduces by itself.
    """
    link = Link(latency_s=1e-6, bandwidth_bytes_per_s=1e7)
    chosen = solver(name, ranks=3, period=period, inner=inner)
    hosts = cluster([1e9] * 7).model_copy(update={"link": link})
    result = ampsim.simulate(model(18, 3), hosts, chosen, epochs=2)
    end_s = result.epochs["time_s"].iloc[-1]
    assert end_s - link.latency_s * (1 + 1e-9) <= result.makespan_s <= end_s
    assert not result.waits["end_s"].max() > result.makespan_s
    assert result.critical_path["end_s"].iloc[-1] == result.makespan_s


def test_of_the_first_exchanges_alone_nobody_knows_a_share_of_the_whole():
    hosts = Cluster(name="test", devices=(Device(name="one", flop_per_s=1e9),) * 3)
    made = ampsim.load_model("mlp", data="synthetic", hidden=16, batch=10)
    shares = []
    for kept in (None, 5):
        run = Simulation(made, hosts, ampsim.AsyncSGD(2), instances=200, spans_kept=kept)
        run.run_epoch()
        shares.append(run.result().wait_share)
    assert 0 <= shares[0] <= 1 and math.isnan(shares[1])


def test_ranks_of_a_run_that_fails_in_an_exchange_wait_for_a_part_of_it():
    """The last step has ended long before the server's answer comes, for which there is no room."""
    link = Link(latency_s=1e-6, bandwidth_bytes_per_s=1e8)
    small = Device(name="small", flop_per_s=1e9, memory_bytes=150_000)
    hosts = Cluster(name="test", devices=(small,) * 5, link=link)
    made = ampsim.load_model("mlp", data="synthetic", hidden=16, batch=10)
    chosen = ampsim.EAWild(ranks=1, inner="sync-sgd:3")
    with pytest.raises(OutOfMemoryError) as caught:
        ampsim.simulate(made, hosts, chosen, instances=200, placement="paper", mode="sleep")
    partial = caught.value.partial
    assert partial.waits["end_s"].max() > 2 * partial.makespan_s
    assert 0 <= partial.wait_share <= 1


@pytest.mark.parametrize("name", SOLVERS)
def test_the_time_of_a_node_is_told_for_each_worker_that_has_a_copy(name):
    hosts, chosen = cluster([1e9] * 9), solver(name, ranks=8, period=2)
    result = ampsim.simulate(model(400, 5, layers=2), hosts, chosen)
    table, spans = result.time_by_node, result.spans
    by_worker = table.groupby("worker")["share"].sum()
    used = result.utilisation_by_worker.set_index("worker").sum(axis=1)
    assert by_worker.to_numpy() == pytest.approx(used[used > 0].to_numpy(), rel=1e-9)
    spans = spans.assign(busy_s=spans["end_s"] - spans["start_s"])
    key = ["node", "worker", "direction"]
    busy_s = spans[spans["busy_s"] > 0].groupby(key, observed=True)["busy_s"].agg(["size", "sum"])
    found = table.set_index(key).loc[busy_s.index]
    assert len(table) == len(busy_s)
    assert found["steps"].tolist() == busy_s["size"].tolist()
    assert found["busy_s"].to_numpy() == pytest.approx(busy_s["sum"].to_numpy(), rel=1e-9)


def test_a_rank_that_was_too_slow_to_exchange_is_named_with_its_period():
    hosts = cluster([1e9, 1e6, 1e9, 1e10])
    result = ampsim.simulate(model(21, 3), hosts, ampsim.AsyncEASGD(ranks=3, period=2))
    assert set(result.exchanges["rank"]) == {0, 2}
    assert result.never_met.startswith("rank 1 never exchanged, as the run ended before a period")
    amp = ampsim.LocalSGD(ranks=2, inner=ampsim.Amp(2), period=50)
    assert ampsim.simulate(model(21, 3), hosts, amp).never_met == ""  # they meet as an epoch ends


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("name", ["sync-sgd", "local-sgd", "sync-easgd"])
def test_ranks_without_a_batch_in_the_last_round_wait_for_it_as_others_do(name, collective):
    """What a round gives may come to them after the run's end, which is that of the last batch."""
    how: dict[str, Any] = {"ranks": 4, "collective": collective}
    how |= {"ranks_per_group": 2} if collective == "hierarchical" else {}
    how |= {"period": 1} if name == "local-sgd" else {}
    chosen = SOLVERS[name](**how)
    hosts = cluster([1e9] * 4, link=Link(latency_s=1e-5, bandwidth_bytes_per_s=1e8))
    result = ampsim.simulate(model(12, 4), hosts, chosen, mode="sleep")
    rows = result.exchanges.sort_values("rank")
    assert rows["rank"].tolist() == [0, 1, 2, 3]
    assert rows["ready_s"].iloc[3] == 0.0 < rows["ready_s"].iloc[0] == rows["start_s"].iloc[3]
    assert rows["end_s"].max() <= result.makespan_s
    assert result.wait_share == pytest.approx(rows["stalled_s"].sum() / (4 * result.makespan_s))
    assert result.never_met == ""


def test_a_schedule_has_nobody_to_meet():
    assert ampsim.simulate(model(21, 3), cluster(SPEEDS), ampsim.Amp(2)).never_met == ""


def test_tables_say_which_ranks_met_nobody():
    rows = ampsim.forecast(
        model(21, 3), cluster([1e9] * 4), [ampsim.Sequential(), ampsim.LocalSGD(period=50)],
        max_epochs=2, target=1e-9,
    ).table  # fmt: skip
    assert "exchanged" not in rows["note"].iloc[0]
    assert "; ranks never exchanged, as the run ended before" in rows["note"].iloc[1]
