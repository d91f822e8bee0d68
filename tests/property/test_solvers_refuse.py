"""What no solver can do is refused in one line that says what was expected and what to take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from solver_cases import cluster, model

import ampsim
from ampsim.data_parallel import SOLVERS
from ampsim.errors import AmpsimError


def refused(make: Callable[[], Any], match: str) -> None:
    with pytest.raises(AmpsimError, match=match) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [ampsim.Dataflow, ampsim.Unrolled, ampsim.OutOfGraph])
@pytest.mark.parametrize("name", SOLVERS)
def test_no_schedule_of_programs_is_inside(name, kind):
    """Copies ran as under Sequential, and its options went unheeded."""
    solver: Any = SOLVERS[name]
    refused(lambda: solver(inner=kind()), f"inner of {name}: {kind.name} runs a program, and .*; ")


def test_what_cannot_be_is_refused_in_one_line():
    made, hosts = model(9, 3), cluster([1e9] * 3)
    refused(
        lambda: ampsim.simulate(made, hosts, ampsim.AsyncSGD(servers=3)),
        "async-sgd: servers must leave workers for ranks, got servers=3 on 3 workers",
    )
    refused(
        lambda: ampsim.simulate(made, hosts, ampsim.AsyncSGD(servers=2)),
        "each server needs a node that learns, got servers=2 and 1 node",
    )
    refused(
        lambda: ampsim.simulate(made, hosts, ampsim.SyncSGD(ranks=4)),
        r"sync-sgd: ranks and servers must fit the cluster, got 4 x 1 \+ 0 on 3 workers",
    )
    refused(lambda: ampsim.SyncSGD(inner=ampsim.Amp(4)), "inner of sync-sgd: amp never drains")
    refused(lambda: ampsim.SyncSGD(inner=ampsim.GPipe(4)), "gpipe holds gradients")
    refused(lambda: ampsim.SyncSGD(inner=ampsim.OneFOneB(4)), "1f1b has turns")
    refused(lambda: ampsim.SyncSGD(collective="bus"), "no collective named 'bus'")
    refused(
        lambda: ampsim.SyncSGD(ranks=6, collective="hierarchical", ranks_per_group=4),
        "ranks_per_group must divide the ranks, got 4 of 6",
    )
    refused(lambda: ampsim.SyncSGD(collective="hierarchical"), "needs ranks_per_group")
    refused(lambda: ampsim.SyncSGD(ranks_per_group=2), "'ring' has no groups")
    refused(
        lambda: ampsim.SyncSGD(ranks=6, collective="halving-doubling"),
        "needs a power of two of ranks, got 6; take 4 ranks",
    )
    refused(lambda: ampsim.EASGD(period=0), "period must be a whole number >= 1, got 0")
    refused(lambda: ampsim.SyncSGD(ranks=0), "ranks must be a whole number >= 1, got 0")
    refused(lambda: ampsim.EAWild(moving_rate=2.0), "moving_rate must be a number from 0 to 1")
    refused(lambda: ampsim.SyncEASGD(moving_rate=-0.1), "moving_rate must be a number from 0 to 1")
    refused(lambda: ampsim.SSP(staleness_bound=-1), "staleness_bound must be a whole number")
    refused(lambda: ampsim.AsyncSGD(momentum=1.0), "momentum must be a number >= 0 and < 1")
    refused(lambda: ampsim.DiLoCo(outer_rate=0.0), "outer_rate must be a number > 0")
    refused(lambda: ampsim.DiLoCo(outer_momentum=1.0), "outer_momentum must be a number >= 0")
    adam = model(9, 3, optimizer="adam")
    refused(
        lambda: ampsim.simulate(adam, hosts, ampsim.AsyncSGD(momentum=0.9)),
        r"momentum=0\.9 needs a model whose optimizer is sgd, got adam",
    )


@pytest.mark.parametrize("name", SOLVERS)
def test_a_period_and_ranks_of_nothing_are_refused_in_one_line(name):
    kind: Any = SOLVERS[name]
    for option in {"period", "ranks", "workers_per_rank", "servers"} & set(
        kind.__dataclass_fields__
    ):
        refused(lambda option=option: kind(**{option: 0}), f"{option} must be a whole number >= 1")


def test_a_solver_that_reads_values_is_refused_in_sleep_mode():
    class Nosy(ampsim.SyncSGD):
        reads_values = True

    made, hosts = model(9, 3), cluster([1e9] * 3)
    refused(
        lambda: ampsim.simulate(made, hosts, Nosy(), mode="sleep"),
        "mode 'sleep' has no numbers, but sync-sgd decides by them; use mode 'numeric'",
    )
    for solver in (Nosy(3), ampsim.LocalSGD(1, inner=Nosy(3))):
        assert (ampsim.simulate(made, hosts, solver).peak_bytes > 0).all()


def test_models_of_which_ranks_cannot_share_weights_are_refused():
    rnn = ampsim.load_model("rnn", hidden=4, replicas=2)
    refused(
        lambda: ampsim.simulate(rnn, "tflops-1", ampsim.SyncSGD(ranks=2), instances=100),
        "ranks are copies already, but nodes",
    )
    tree = ampsim.load_model("tree_lstm", hidden=4, embedding=3, words=40, data="synthetic")
    refused(
        lambda: ampsim.simulate(tree, "tflops-1", ampsim.SyncSGD(ranks=2), instances=4),
        "updates rows of its table in place",
    )


def test_a_rank_that_its_device_has_no_memory_for_is_told():
    hosts = cluster([1e9] * 3)
    devices = tuple(one.model_copy(update={"memory_bytes": 100}) for one in hosts.devices)
    small = hosts.model_copy(update={"devices": devices})
    refused(
        lambda: ampsim.simulate(model(9, 3, layers=2), small, ampsim.SyncSGD(ranks=2)),
        "is out of memory at 0 s",
    )
