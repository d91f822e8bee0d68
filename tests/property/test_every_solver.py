"""What every listed solver obeys: on free, slow and port-limited links, with and without jitter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from covering import pairwise
from solver_cases import (
    CASES,
    Link,
    cluster,
    model,
    require_one_step_at_a_time,
    require_whole_path,
    solver,
    stacked,
    weights,
)

import ampsim
from ampsim.clock import WallClock
from ampsim.data_parallel import SOLVERS
from ampsim.errors import AmpsimError
from ampsim.hardware import Cluster
from ampsim.hardware.topology import Ports
from ampsim.model_parallel import Settled

SLOW = Link(latency_s=1e-8, bandwidth_bytes_per_s=1e10)
SPEEDS = [1e9, 2e9, 0.6e9, 1.3e9]


def port_limited() -> Cluster:
    ports = Ports(ingress_bytes_per_s=1e10, egress_bytes_per_s=1e10)
    return cluster(SPEEDS).model_copy(update={"ports": ports})


CLUSTERS: dict[str, Callable[[], Cluster]] = {
    "free": lambda: cluster(SPEEDS),
    "slow": lambda: cluster(SPEEDS, link=SLOW),
    "ports": port_limited,
    "jitter": lambda: cluster(SPEEDS, link=SLOW, jitter_cv=0.3),
}


def short(name: str, on: str = "jitter", **options: Any) -> ampsim.Result:
    made = model(33, 3, layers=2)
    options = {"epochs": 2, "seed": len(on), **options}
    return ampsim.simulate(made, CLUSTERS[on](), solver(name, ranks=3, period=2), **options)


@cache
def learned(name: str, on: str = "jitter") -> ampsim.Result:
    """A short run with numbers, made once."""
    return short(name, on)


def of_groups(name: str) -> ampsim.Result:
    hosts = cluster([*SPEEDS, 0.9e9], link=SLOW, jitter_cv=0.3)
    chosen = solver(name, ranks=2, period=2, staleness_bound=0, inner=ampsim.SyncSGD(2))
    return ampsim.simulate(model(33, 3, layers=2), hosts, chosen, epochs=2)


def digests() -> dict[str, str]:
    alone = {name: short(name).digest for name in CASES}
    return {**alone, **{f"{name} over groups": of_groups(name).digest for name in SOLVERS}}


@pytest.mark.slow  # an interpreter starts and imports everything
def test_another_process_with_another_hash_seed_gives_the_same_digests(tmp_path):
    here = {name: learned(name).digest for name in CASES}
    here |= {f"{name} over groups": of_groups(name).digest for name in SOLVERS}
    assert len(set(here.values())) == len(CASES) + len(SOLVERS)
    paths = [str(Path(ampsim.__file__).parents[1]), str(Path(__file__).parents[1] / "oracle")]
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "4242",
        "PYTHONPATH": os.pathsep.join([*paths, *sys.path]),
    }
    code = f"import json, runpy; print(json.dumps(runpy.run_path({__file__!r})['digests']()))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == here


@pytest.mark.parametrize("on", CLUSTERS)
@pytest.mark.parametrize("name", CASES)
def test_the_critical_path_by_causes_is_the_makespan_without_gap(name, on):
    require_whole_path(learned(name, on))


@pytest.mark.parametrize("name", CASES)
def test_where_nobody_queues_the_critical_path_is_of_steps_and_messages_alone(name):
    """It leads through what the last rank computed, whose end its exchange has for a cause."""
    hosts = cluster([1e8, 1e9, 1e12], link=Link(latency_s=1e-7))
    result = ampsim.simulate(
        model(8, 2), hosts, solver(name, ranks=2, period=2), epochs=2, mode="sleep"
    )
    path = result.critical_path
    assert set(path["kind"][path["end_s"] > path["start_s"]]) <= {"compute", "transfer"}


@pytest.mark.parametrize("on", CLUSTERS)
@pytest.mark.parametrize("name", CASES)
def test_sleep_mode_has_the_trace_of_numeric_mode(name, on):
    numeric, sleep = learned(name, on), short(name, on, mode="sleep")
    for table in ("spans", "transfers", "updates", "admissions", "collectives"):
        one, other = getattr(numeric, table), getattr(sleep, table)
        assert one.equals(other), table
    columns = numeric.exchanges.columns.drop("distance")
    assert numeric.exchanges[columns].equals(sleep.exchanges[columns])


@pytest.mark.parametrize("on", CLUSTERS)
@pytest.mark.parametrize("name", CASES)
def test_steps_of_one_device_do_not_overlap_and_ports_carry_no_more_than_their_rate(name, on):
    result = learned(name, on)
    require_one_step_at_a_time(result)
    assert result.utilisation <= 1
    transfers = result.transfers
    assert (transfers["start_s"] >= transfers["sent_s"]).all()
    assert (transfers["end_s"] >= transfers["held_s"] - 1e-17).all()
    if on == "ports":
        for side in ("source_worker", "target_worker"):
            carried = (
                transfers[transfers["end_s"] <= result.makespan_s].groupby(side)["bytes"].sum()
            )
            assert (carried[carried.index >= 0] <= 1e10 * result.makespan_s * (1 + 1e-9)).all()


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9])
@pytest.mark.parametrize("name", CASES)
def test_every_epoch_ends_however_few_batches_there_are_and_counts_each_item_once(name, rows):
    result = ampsim.simulate(
        model(rows, 1), CLUSTERS["slow"](), solver(name, ranks=3, period=2), epochs=3
    )
    assert result.epochs["instances"].tolist() == [rows] * 3
    assert result.epochs["time_s"].is_monotonic_increasing


@pytest.mark.parametrize("name", ["async-sgd", "hogwild", "async-easgd", "ea-wild"])
def test_staleness_does_not_fall_at_the_end_of_an_epoch(name):
    made, count = model(33, 3), 11
    chosen = solver(name, ranks=3)
    result = ampsim.simulate(made, cluster([1e9] * 4), chosen, epochs=10)
    stale = result.exchanges.sort_values("start_s", kind="stable")["staleness"]
    assert len(stale) >= 9 * count
    assert stale.iloc[3:].min() >= 1


@pytest.mark.parametrize("name", CASES)
def test_every_solver_comes_near_the_least_squares(name):
    made = model(120, 4, rate=0.1)
    result = ampsim.simulate(
        made, CLUSTERS["free"](), solver(name, ranks=3, period=1, moving_rate=0.2), epochs=20
    )
    data: Any = made.make_data(0, None)
    full = np.hstack([data.x, np.ones((120, 1))])
    best = np.linalg.lstsq(full, data.y, rcond=None)[0]
    start, end = (stacked(one) for one in (made, result.model))
    assert np.linalg.norm(end - best) < 0.2 * np.linalg.norm(start - best)


@pytest.mark.parametrize("name", CASES)
def test_each_rank_and_server_has_its_weights_in_memory(name):
    result = short(name, "free", counts_memory=True)
    peak = result.peak_memory
    held = 8 * (3 * 3 + 3 + 3 * 2 + 2)
    hosts = 3 + solver(name).server_count
    found = peak.set_index("worker")["weights"]
    assert (found.iloc[:hosts] == held).all()
    assert (found.iloc[hosts:] == 0).all()


@pytest.mark.parametrize("name", CASES)
def test_the_wall_clock_tells_the_same_story_over_two_epochs(name):
    made, hosts = model(12, 2), cluster([40e3, 30e3, 22e3])
    clock = WallClock(stretch=1.0)
    try:
        wall = ampsim.simulate(made, hosts, solver(name, ranks=2, period=2), epochs=2, clock=clock)
    finally:
        clock.close()
    virtual = ampsim.simulate(made, hosts, solver(name, ranks=2, period=2), epochs=2)
    assert wall.digest == virtual.digest


@pytest.mark.parametrize("name", ["sync-sgd", "easgd", "local-sgd", "async-sgd"])
def test_ranks_of_two_workers_run_a_pipeline_inside(name):
    hosts = cluster([1e9] * 5, link=SLOW)
    chosen = solver(name, ranks=2, workers_per_rank=2, inner=ampsim.Pipeline(2))
    result = ampsim.simulate(model(36, 3, layers=2), hosts, chosen, epochs=2)
    busy = result.utilisation_by_worker.set_index("worker").sum(axis=1)
    assert (busy.iloc[:4] > 0).all()
    assert result.epochs["instances"].tolist() == [36, 36]


def test_a_pipeline_inside_sync_sgd_is_a_batch_of_all():
    hosts = cluster([1e9] * 4)
    chosen = ampsim.SyncSGD(ranks=2, workers_per_rank=2, inner=ampsim.Pipeline(2))
    found = ampsim.simulate(model(48, 3, layers=2), hosts, chosen, epochs=2)
    plain = ampsim.simulate(model(48, 12, layers=2), cluster([1e9]), ampsim.Sequential(), epochs=2)
    assert np.allclose(weights(found), weights(plain), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("name", [one for one, made in SOLVERS.items() if hasattr(made, "servers")])
def test_several_servers_share_the_weights_and_each_merges_what_came_to_it(name, servers):
    hosts = cluster([*SPEEDS, 1e9], link=SLOW)
    made = solver(name, ranks=3, servers=servers)
    result = ampsim.simulate(model(33, 3, layers=2), hosts, made, epochs=2, counts_memory=True)
    peak = result.peak_memory.set_index("worker")["weights"]
    assert peak.iloc[3 : 3 + servers].sum() == 8 * (3 * 3 + 3 + 3 * 2 + 2)
    assert (peak.iloc[3 : 3 + servers] > 0).all()
    path = result.critical_path
    assert path["end_s"].iloc[-1] == result.makespan_s
    assert (path["start_s"].iloc[1:].to_numpy() == path["end_s"].iloc[:-1].to_numpy()).all()


HOSTED = ("linear-1", "linear-2", "linear-3", "loss")
PLACES: dict[str, Any] = {
    "paper": "paper",
    "first second": Settled(dict(zip(HOSTED, (1, 0, 0, 1), strict=True)), {"name": "a"}),
    "second alone": Settled(dict.fromkeys(HOSTED, 1), {"name": "b"}),
}


@pytest.mark.parametrize(("name", "where", "seed"), pairwise(CASES, PLACES, [0, 3]))
def test_ranks_of_two_workers_share_ports_and_links_and_end(name, where, seed):
    ports = Ports(ingress_bytes_per_s=1e10, egress_bytes_per_s=1e10)
    hosts = cluster([*SPEEDS, 1e9, 1.5e9, 1e9], jitter_cv=0.2).model_copy(update={"ports": ports})
    chosen = solver(name, ranks=3, workers_per_rank=2, period=2)
    how: dict[str, Any] = {"epochs": 2, "placement": PLACES[where], "seed": seed}
    numeric, sleep = (
        ampsim.simulate(model(25, 2, layers=3), hosts, chosen, mode=mode, **how)
        for mode in ("numeric", "sleep")
    )
    assert numeric.spans.equals(sleep.spans)
    require_whole_path(numeric)
    assert numeric.epochs["instances"].tolist() == [25, 25]
    for side in ("source_worker", "target_worker"):
        ended = numeric.transfers[numeric.transfers["end_s"] <= numeric.makespan_s]
        carried = ended.groupby(side)["bytes"].sum()
        assert (carried[carried.index >= 0] <= 1e10 * numeric.makespan_s * (1 + 1e-9)).all()


def test_weights_that_diverge_are_told():
    made, hosts = model(60, 3, rate=1e6), cluster([1e9] * 3)
    with pytest.raises(AmpsimError, match="try a lower learning rate"):
        ampsim.simulate(made, hosts, ampsim.AsyncSGD(ranks=2), epochs=20)


def test_momentum_at_the_server_is_that_of_a_model_with_momentum():
    hosts = cluster([1e9, 2e9, 1e9])
    one = ampsim.simulate(model(33, 3), hosts, ampsim.AsyncSGD(ranks=2, momentum=0.9))
    two = ampsim.simulate(model(33, 3, optimizer="momentum"), hosts, ampsim.AsyncSGD(ranks=2))
    assert weights(one).tobytes() == weights(two).tobytes()
