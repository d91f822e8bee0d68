"""What every trace obeys where the host takes time and devices have lanes, under each schedule."""

from __future__ import annotations

from functools import cache
from itertools import cycle, permutations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from covering import pairwise, together
from short_runs import schedule_of

from ampsim import simulate
from ampsim.hardware import HOST, Cluster, Device, Link, MemoryRemedy, Ports, Route
from ampsim.model_parallel import SCHEDULES, Settled
from ampsim.study import Simulation
from ampsim.trace import LANES
from ampsim.trace.kinds import record_of

STAGES = 4
COSTS = ((4, 6, 1), (3, 5, 2), (5, 8, 1), (2, 3, 1))
OFFLOAD = MemoryRemedy(remedy="offload")
COPIES = {"copy_bandwidth_bytes_per_s": 16.0, "copy_latency_s": 0.25}
HOST_DEVICE = Device(name="host", flop_per_s=1.0, message_overhead_s=0.4, step_overhead_s=0.2)

KINDS: dict[str, Any] = {
    "host": ({}, {"host": HOST_DEVICE}),
    "messages": ({"message_overhead_s": 0.3}, {}),
    "dispatch": ({"dispatch_s": 1.7}, {}),
    "offload": (COPIES, {"memory": OFFLOAD}),
    "above": (COPIES, {"memory": MemoryRemedy(remedy="offload", above_bytes=210)}),
    "all": (
        {**COPIES, "message_overhead_s": 0.3, "dispatch_s": 1.7, "jitter_cv": 0.4},
        {"memory": OFFLOAD, "host": HOST_DEVICE},
    ),
}
"""What devices name, and what the cluster does."""

WAYS: dict[str, Any] = {
    "free": {"link": Link()},
    "slow": {"link": Link(latency_s=0.5, bandwidth_bytes_per_s=64.0)},
    "unlike": {
        "ports": Ports(egress_bytes_per_s=96.0, ingress_bytes_per_s=80.0),
        "links": tuple(
            Route(source=one, target=other, link=Link(latency_s=0.7 + 0.2 * one - 0.1 * other))
            for one, other in permutations((HOST, *range(STAGES)), 2)
        ),
    },
}  # fmt: skip
"""On "unlike" ways devices are namesakes, and stages and loss are not where they are by default."""
USUAL: Any = ({}, {})
MOVED = {"stage-1": 2, "stage-2": 0, "stage-3": 3, "stage-4": 1, "loss": 2}


def cluster_of(kind: str, way: str, workers: int = STAGES) -> Cluster:
    device, cluster = KINDS.get(kind, USUAL)
    slower = 0.25 if way == "unlike" else 0.0
    devices = tuple(
        Device(name="test", flop_per_s=1.0 / (1.0 + slower * worker), **device)
        for worker in range(workers)
    )
    return Cluster(name="test", devices=devices, **WAYS[way], **cluster)


def placement_of(way: str) -> Settled | None:
    return Settled(MOVED, {"name": "moved"}) if way == "unlike" else None


@pytest.fixture(scope="module")
def train(chain):
    """`train(schedule, kind, way, mode)` trains a chain for two epochs."""

    @cache
    def made(schedule: str, kind: str, way: str = "slow", mode: Any = "sleep") -> Any:
        model = chain(COSTS, instances=6, valid=2, rows=3).model()
        counts = True if mode == "numeric" else None
        what = model, cluster_of(kind, way), schedule_of(schedule)
        how: Any = {"mode": mode, "counts_memory": counts, "placement": placement_of(way)}
        simulation = Simulation(*what, **how)
        simulation.run_epoch()
        simulation.run_epoch()
        return simulation

    return made


@pytest.fixture(scope="module")
def run(train):
    """`run(schedule, kind, way, mode)` is what that training gave."""
    return cache(lambda *how: train(*how).result())


every = together("schedule, kind, way", pairwise(SCHEDULES, KINDS, WAYS))
"""Every schedule with every kind, and either with every way."""


def computed(spans: pd.DataFrame) -> pd.DataFrame:
    """What workers compute."""
    own = spans[spans["worker"] >= 0]
    return own[own["lane"] == "compute"] if "lane" in own else own


@every
def test_a_run_does_all_its_work(run, schedule, kind, way):
    """The same steps at the same nodes, and as many gradients in updates, at other times."""
    result, usual = (run(schedule, one, way) for one in (kind, "usual"))
    for columns in (["node", "direction"], ["worker", "instance"]):
        counts, as_usual = (
            spans[spans["direction"] != "update"].groupby(columns, observed=True).size()
            for spans in (computed(result.spans), usual.spans)
        )
        pd.testing.assert_series_equal(counts, as_usual)
    gradients = result.updates.groupby("node", observed=True)["gradient_count"].sum()
    assert (gradients == 2 * 6).all()
    assert result.messages == len(computed(result.spans))


@every
def test_no_two_spans_of_a_lane_overlap_and_time_never_falls(run, schedule, kind, way):
    spans = run(schedule, kind, way).spans
    assert (np.diff(spans["end_s"]) >= 0).all()
    lanes = spans["lane"] if "lane" in spans else pd.Series("compute", spans.index)
    assert set(lanes) <= set(LANES)
    for _lane, own in spans.groupby([spans["worker"], lanes.astype(str)]):
        starts_s, ends_s = own["start_s"].to_numpy(), own["end_s"].to_numpy()
        assert (starts_s[1:] >= ends_s[:-1]).all()


@every
def test_the_critical_path_is_the_makespan_without_a_gap(run, schedule, kind, way):
    result = run(schedule, kind, way)
    path, spans = result.critical_path, result.spans
    assert path["start_s"].iloc[0] == 0
    assert path["end_s"].iloc[-1] == result.makespan_s == spans["end_s"].max()
    assert path["start_s"].tolist()[1:] == path["end_s"].tolist()[:-1]
    keys = ["start_s", "end_s", "node", "direction", "worker", "instance"]
    known = set(spans[keys].astype(object).itertuples(index=False, name=None))
    steps = path[path["kind"].isin(["compute", "dispatch", "copy"])]
    assert set(steps[keys].astype(object).itertuples(index=False, name=None)) <= known
    assert result.critical_path_parts["seconds"].sum() == pytest.approx(result.makespan_s)


@every
def test_a_cause_stands_earlier_and_has_ended_when_its_step_begins(run, schedule, kind, way):
    result = run(schedule, kind, way)
    spans, transfers, admissions = result.spans, result.transfers, result.admissions
    ends = {
        "span": spans["end_s"].to_numpy(),
        "transfer": transfers["end_s"].to_numpy(),
        "admission": admissions["time_s"].to_numpy(),
    }
    tables = ((spans, "start_s"), (transfers, "sent_s"), (admissions, "time_s"))
    for table, column in tables:
        for cause, start_s in zip(table["cause"], table[column], strict=True):
            what, number = record_of(cause)
            assert what == "start" or ends[what][number] <= start_s + 1e-12


@every
def test_without_numbers_the_trace_is_the_same(run, schedule, kind, way):
    """The critical path of both, and every table, to the bit."""
    sleep, numeric = (run(schedule, kind, way, mode) for mode in ("sleep", "numeric"))
    for table in ("spans", "transfers", "admissions", "updates", "stashes", "critical_path"):
        assert getattr(sleep, table).equals(getattr(numeric, table)), table


@every
def test_what_is_left_in_memory_after_an_epoch_is_what_learning_needs(train, schedule, kind, way):
    for mode in ("sleep", "numeric"):
        engine = train(schedule, kind, way, mode)._training._method._engine
        for memory in engine.memories:
            assert not memory.held(4)
            assert not memory.held(5)
        for placed in engine.placed_nodes:
            assert not getattr(placed.footprint, "_copies", None)
        assert engine.memories or (mode == "sleep" and "memory" not in KINDS[kind][1])


ALIKE = list(zip(SCHEDULES, cycle(kind for kind in KINDS if kind != "all"), strict=False))


@pytest.mark.parametrize(("schedule", "kind"), ALIKE)
def test_which_worker_is_which_decides_nothing(chain, schedule, kind):
    """Devices, links and nodes go to other numbers together, where nothing is drawn by these."""
    model, given = chain(COSTS, instances=6, valid=2, rows=3).model(), cluster_of(kind, "unlike")
    to = {HOST: HOST, 3: 0, 2: 1, 0: 2, 1: 3}
    links = tuple(
        Route(source=to[one.source], target=to[one.target], link=one.link) for one in given.links
    )
    devices = tuple(given.devices[worker] for worker in (3, 2, 0, 1))
    moved = given.model_copy(update={"devices": devices, "links": links})
    found: list[Any] = []
    for cluster, places in ((given, MOVED), (moved, {node: to[at] for node, at in MOVED.items()})):
        how: Any = {"placement": Settled(places, {"name": "moved"}), "counts_memory": True}
        found.append(simulate(model, cluster, schedule_of(schedule), mode="sleep", **how))
    one, other = found
    assert (one.makespan_s, one.learning_digest) == (other.makespan_s, other.learning_digest)
    for name in ("spans", "transfers", "memory"):
        table, rows = (getattr(each, name).drop(columns="cause", errors="ignore") for each in found)
        moves = {key: table[key].map(to) for key in table if key.endswith("worker")}
        expected, got = (
            sorted(map(str, each.itertuples(index=False))) for each in (table.assign(**moves), rows)
        )
        assert expected == got, name
