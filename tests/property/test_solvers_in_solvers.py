"""Every listed solver inside every other: it holds what single solvers hold, or is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from covering import among, together
from solver_cases import (
    Link,
    cluster,
    model,
    require_one_step_at_a_time,
    require_whole_path,
    solver,
)

import ampsim
from ampsim.clock import WallClock
from ampsim.data_parallel import SOLVERS, name_of
from ampsim.errors import AmpsimError
from ampsim.forecasting.forecast import counts_of
from ampsim.hardware import Cluster
from ampsim.hardware.topology import Ports
from ampsim.study.learning_rates import averaged
from ampsim.study.schedule_names import labels_of, schedules_of

SLOW = Link(latency_s=1e-8, bandwidth_bytes_per_s=1e10)
SPEEDS = [1e9, 2e9, 0.6e9, 1.3e9, 1e9]
PORTS = Ports(ingress_bytes_per_s=1e10, egress_bytes_per_s=1e10)
CLUSTERS: dict[str, Callable[[], Cluster]] = {
    "slow": lambda: cluster(SPEEDS, link=SLOW),
    "jitter": lambda: cluster(SPEEDS, link=SLOW, jitter_cv=0.3),
    "ports": lambda: cluster(SPEEDS, jitter_cv=0.2).model_copy(update={"ports": PORTS}),
}
AGREE = [name for name, one in SOLVERS.items() if one.meets == "all" and not one.is_elastic]
"""Those whose ranks hold the same weights when they have met."""


def may_hold(outer: str, inner: str) -> bool:
    sends = SOLVERS[outer].sends, SOLVERS[inner].sends
    return inner in AGREE and sends != ("gradient", "weights")


EVERY = list(itertools.product(SOLVERS, SOLVERS))
PAIRS = [pair for pair in EVERY if may_hold(*pair)]
OVER = [f"{outer} over {inner}" for outer, inner in PAIRS]


def nested(outer: str, name: str, groups: str = "fixed", **options: Any) -> Any:
    inner = solver(name, ranks=2, period=3, **options)
    return solver(outer, ranks=2, period=2, inner=inner, groups=groups)


def test_the_solvers_of_which_ranks_agree_are_these():
    assert AGREE == ["sync-sgd", "local-sgd", "diloco"]


GROUPED = [*((on, "fixed") for on in CLUSTERS), ("jitter", "random")]


@pytest.mark.parametrize(
    ("outer", "inner", "on", "groups"),
    [(*two, *of) for *two, of in among([(*pair, of) for pair in PAIRS for of in GROUPED])],
)
def test_a_pair_counts_each_item_once_and_has_a_path_and_the_same_trace_asleep(
    outer, inner, on, groups
):
    made, chosen = model(41, 3, layers=2), nested(outer, inner, groups=groups)
    numeric, sleep = (
        ampsim.simulate(made, CLUSTERS[on](), chosen, epochs=2, mode=mode, counts_memory=True)
        for mode in ("numeric", "sleep")
    )
    assert numeric.epochs["instances"].tolist() == [41, 41]
    assert numeric.epochs["time_s"].is_monotonic_increasing
    for table in ("spans", "transfers", "updates", "admissions", "collectives", "memory"):
        assert getattr(numeric, table).equals(getattr(sleep, table)), table
    columns = numeric.exchanges.columns.drop("distance")
    assert numeric.exchanges[columns].equals(sleep.exchanges[columns])
    require_whole_path(numeric)
    require_one_step_at_a_time(numeric)
    require_idle_waits(numeric)
    held = 8 * (3 * 3 + 3 + 3 * 2 + 2)
    copies = 4 + chosen.server_count
    assert (numeric.peak_memory.set_index("worker")["weights"].iloc[:copies] == held).all()
    assert 0 < numeric.wait_share < 1
    if on == "ports":
        for side in ("source_worker", "target_worker"):
            done = numeric.transfers[numeric.transfers["end_s"] <= numeric.makespan_s]
            carried = done.groupby(side)["bytes"].sum()
            limit = 1e10 * numeric.makespan_s * (1 + 1e-9)
            assert (carried[carried.index >= 0] <= limit).all()


def require_idle_waits(result: ampsim.Result) -> None:
    """A worker that waits computes nothing meanwhile."""
    spans, waits = result.spans, result.waits
    spans = spans[spans["end_s"] > spans["start_s"]]
    for worker in waits["worker"].unique():
        own, idle = (
            one.loc[one["worker"] == worker, ["start_s", "end_s"]].to_numpy()
            for one in (spans, waits)
        )
        during = (own[:, 1, None] > idle[:, 0] + 1e-15) & (own[:, 0, None] < idle[:, 1] - 1e-15)
        assert not during.any()


@together(
    "outer, inner, rows", among([(*pair, rows) for pair in PAIRS for rows in (1, 2, 5, 8, 9)])
)
def test_a_pair_ends_however_few_batches_there_are(outer, inner, rows):
    result = ampsim.simulate(model(rows, 1), CLUSTERS["slow"](), nested(outer, inner), epochs=3)
    assert result.epochs["instances"].tolist() == [rows] * 3


@pytest.mark.parametrize(("outer", "inner"), PAIRS, ids=OVER)
def test_the_wall_clock_tells_the_same_story_of_a_pair(outer, inner):
    made, hosts = model(12, 2), cluster([60e3, 50e3, 42e3, 33e3, 41e3])
    chosen = nested(outer, inner)
    clock = WallClock(stretch=1.0)
    try:
        wall = ampsim.simulate(made, hosts, chosen, clock=clock)
    finally:
        clock.close()
    assert wall.digest == ampsim.simulate(made, hosts, chosen).digest


@pytest.mark.parametrize("inner", ["local-sgd", "diloco"])
@pytest.mark.parametrize("outer", [name for name, one in SOLVERS.items() if one.sends == "weights"])
def test_a_schedule_that_never_drains_may_be_inside_groups_of_what_sends_weights(outer, inner):
    chosen = nested(outer, inner, inner=ampsim.Amp(3), workers_per_rank=2)
    assert chosen.workers_per_rank == 2
    hosts = cluster([*SPEEDS, 1e9, 1.5e9, 1e9, 2e9], link=SLOW, jitter_cv=0.2)
    numeric, sleep = (
        ampsim.simulate(model(50, 2, layers=3), hosts, chosen, epochs=2, mode=mode)
        for mode in ("numeric", "sleep")
    )
    assert numeric.spans.equals(sleep.spans)
    assert numeric.epochs["instances"].tolist() == [50, 50]
    busy = numeric.utilisation_by_worker.set_index("worker").sum(axis=1)
    assert (busy.iloc[:8] > 0).all()


@together("outer, inner", [pair for pair in EVERY if pair not in PAIRS])
def test_a_pair_that_cannot_be_is_refused_in_one_line_that_says_what_can(outer, inner):
    words = "never agree on their weights" if inner not in AGREE else "leave no gradient to send"
    match = rf"^inner of {outer}: ranks of {inner} .*{words}; take SyncSGD\(ranks=4\)"
    with pytest.raises(AmpsimError, match=match) as caught:
        solver(outer, inner=solver(inner, ranks=2))
    assert "\n" not in str(caught.value)


a_class: Any = ampsim.SyncSGD
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no size": (
        lambda: ampsim.EAWild(inner=ampsim.SyncSGD()),
        "inner of ea-wild: sync-sgd must say how many ranks a group has; take ranks=4",
    ),
    "a class": (
        lambda: ampsim.EAWild(inner=a_class),
        "inner must be a Schedule, a Solver or text, got the class SyncSGD",
    ),
    "overlap outside": (
        lambda: ampsim.SyncSGD(overlap=True, inner=ampsim.SyncSGD(2)),
        "take overlap inside alone",
    ),
    "backup ranks inside": (
        lambda: ampsim.EAWild(inner=ampsim.SyncSGD(4, backup_ranks=1)),
        "inner of ea-wild: .*leave backup_ranks out",
    ),
    "backup ranks outside": (
        lambda: ampsim.SyncSGD(4, backup_ranks=1, inner=ampsim.SyncSGD(2)),
        "inner of sync-sgd: .*leave backup_ranks out",
    ),
    "workers twice": (
        lambda: ampsim.EAWild(inner=ampsim.SyncSGD(2, workers_per_rank=2), workers_per_rank=4),
        "workers_per_rank is of each copy, here and inside; say it once, got 4 and 2",
    ),
    "too few workers": (
        lambda: ampsim.EAWild(2, inner=ampsim.SyncSGD(2, workers_per_rank=2)).ranks_on(8),
        r"ea-wild: ranks and servers must fit the cluster, got 2 x 2 x 2 \+ 1 on 8 workers",
    ),
    "no room for one group": (
        lambda: ampsim.SyncSGD(inner=ampsim.SyncSGD(4)).ranks_on(3),
        r"got 1 x 4 x 1 \+ 0 on 3 workers; take fewer ranks or more workers",
    ),
    "a rest": (
        lambda: ampsim.EAWild(inner=ampsim.SyncSGD(4)).ranks_on(8),
        "ea-wild: groups of 4 workers must divide those of all ranks, got 7; take 5 or 9 workers, "
        "or say ranks=1",
    ),
    "a group of groups that does not divide": (
        lambda: ampsim.SyncSGD(
            2, inner=ampsim.SyncSGD(6, collective="hierarchical", ranks_per_group=4)
        ),
        "ranks_per_group must divide the ranks, got 4 of 6",
    ),
    "a name without a number": (
        lambda: ampsim.EAWild(inner="sync-sgd"),
        "sync-sgd must say how many ranks a group has; take ranks=4, or inner='sync-sgd:4'",
    ),
    "a name with nothing": (lambda: ampsim.EAWild(inner="sync-sgd:"), "as amp:8, got 'sync-sgd:'"),
    "a number of none": (
        lambda: ampsim.EAWild(inner="sync-sgd:0"),
        "ranks must be a whole number >= 1, got 0",
    ),
    "a schedule with an inside": (
        lambda: ampsim.EAWild(inner="amp:4/sync-sgd:2"),
        "as sync-sgd:4 or sync-sgd:4/amp:8",
    ),
    "an unknown name inside": (
        lambda: ampsim.EAWild(inner="sync-sgd:4/pipelin"),
        "no inner schedule named 'pipelin'; did you mean 'pipeline'",
    ),
    "what cannot be inside that": (
        lambda: ampsim.EAWild(inner="sync-sgd:4/amp:8"),
        "inner of sync-sgd: amp never drains",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_group_that_cannot_be_is_refused_in_one_line(name):
    make, match = WRONG[name]
    with pytest.raises(AmpsimError, match=match) as caught:
        make()
    assert "\n" not in str(caught.value)


NAMES: dict[str, Any] = {
    "sync-sgd:4": ampsim.SyncSGD(4),
    "local-sgd:2/amp:8": ampsim.LocalSGD(2, inner=ampsim.Amp(8)),
    "sync-sgd:2/sync-sgd:4/pipeline:3": ampsim.SyncSGD(
        2, inner=ampsim.SyncSGD(4, inner=ampsim.Pipeline(3))
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_solver_inside_may_be_named_and_says_its_name(name):
    assert ampsim.EAWild(inner=name) == ampsim.EAWild(inner=NAMES[name])
    assert name_of(NAMES[name]) == name


def test_names_of_groups_reach_solvers_by_name_and_labels():
    both: list[Any] = schedules_of("ea-wild,easgd", inner="sync-sgd:2", ranks=3)
    assert [one.inner for one in both] == [ampsim.SyncSGD(2)] * 2
    assert [one.copies for one in both] == [6, 6]
    labels = labels_of([ampsim.EAWild(inner="sync-sgd:2/pipeline:4"), ampsim.EAWild()])
    assert labels == ["ea-wild, inner sync-sgd:2/pipeline:4", "ea-wild, inner sequential"]


def test_workers_of_each_copy_may_be_said_here_or_inside():
    one = ampsim.EAWild(2, inner=ampsim.SyncSGD(2), workers_per_rank=3)
    two = ampsim.EAWild(2, inner=ampsim.SyncSGD(2, workers_per_rank=3))
    assert one == two
    assert one.ranks_on(13) == 2
    assert ampsim.EAWild(inner=ampsim.SyncSGD(2), workers_per_rank=3).ranks_on(19) == 3


@pytest.mark.parametrize(
    ("chosen", "copies", "in_one_step", "in_flight"),
    [
        (ampsim.EAWild(3, inner="sync-sgd:4"), 12, 4, 12),
        (ampsim.AsyncSGD(3, inner="sync-sgd:4/pipeline:2"), 12, 8, 24),
        (ampsim.SyncSGD(3, inner="sync-sgd:2/sync-sgd:2"), 12, 12, 12),
        (ampsim.SyncEASGD(2, inner="local-sgd:4"), 8, 1, 8),
        (ampsim.LocalSGD(2, inner="diloco:2/sync-sgd:4"), 16, 4, 16),
    ],
)
def test_what_tables_say_of_groups_counts_their_copies(chosen, copies, in_one_step, in_flight):
    assert chosen.copies == copies
    assert averaged(chosen) == in_one_step
    assert chosen.admission.in_flight_max == in_flight
    assert counts_of(chosen, 99) == {"ranks": copies, "servers": chosen.server_count}
