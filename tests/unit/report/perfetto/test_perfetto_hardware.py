"""What befalls devices, and what lies in their memories, stands in a trace for Perfetto."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ampsim
from ampsim.hardware import Cluster, Device, Event
from ampsim.report.perfetto.events import outage_events
from ampsim.report.perfetto.trace import Trace, write_perfetto

EVENTS = (
    Event(kind="slow", worker=0, from_s=1e-6, until_s=9e-6, factor=2.0),
    Event(kind="slow", worker=0, from_s=4e-6, until_s=12e-6, factor=3.0),
    Event(kind="stop", worker=1, from_s=2e-6, until_s=3.5e-6),
    Event(kind="pause", worker=1, from_s=5e-6, until_s=1e9),
    Event(kind="pause", worker=0, from_s=9e8, until_s=1e9),
)
PAUSED_S = 40e-6


def trace_of(result: Any, path: Any) -> list[dict[str, Any]]:
    trace = Trace(
        "amp", result.workers, lambda: [result.spans], lambda: [result.updates], result.epochs,
        outages=result.outages, memory=result.memory,
    )  # fmt: skip
    write_perfetto([trace], path)
    return json.loads(path.read_text("ascii"))["traceEvents"]


def run(*events: Event) -> Any:
    device = Device(name="test", flop_per_s=1e12)
    cluster = Cluster(name="test", devices=(device,) * 2, events=events)
    model = ampsim.load_model("mlp", hidden=16, data="synthetic", batch=20)
    return ampsim.simulate(model, cluster, ampsim.Amp(4), instances=200)


@pytest.fixture(scope="module")
def usual() -> Any:
    return run()


def test_each_outage_is_a_slice_of_its_worker_and_slices_that_overlap_have_lanes(
    tmp_path, check_rules
):
    events = (*EVENTS[:3], EVENTS[3].model_copy(update={"until_s": PAUSED_S}), EVENTS[4])
    events = trace_of(run(*events), tmp_path / "run.json")
    check_rules(events)
    names = {one["tid"]: one["args"]["name"] for one in events if one["name"] == "thread_name"}
    found = [
        (names[one["tid"]], one["name"], one["ts"], one["dur"])
        for one in events
        if one.get("cat") == "outage"
    ]
    assert found == [
        ("worker 0: outages, lane 1", "slow", 1.0, 8.0),
        ("worker 1: outages", "stop", 2.0, 1.5),
        ("worker 0: outages, lane 2", "slow", 4.0, 8.0),
        ("worker 1: outages", "pause", 5.0, pytest.approx(35.0)),
    ]


def test_updates_that_were_lost_are_told_by_name():
    columns = {"worker": [0, 0], "kind": ["stop"] * 2, "start_s": [1.0, 3.0], "end_s": [2.0, 4.0]}
    table = pd.DataFrame({**columns, "checkpoint_s": [0.5, np.nan], "updates_lost": [7, 0]})
    lines = [line for part in outage_events(table, 1, iter(range(9)), 9.0) for line in part]
    names = [json.loads(line)["name"] for line in lines if json.loads(line)["ph"] == "X"]
    assert names == ["stop, 7 updates lost", "stop"]


def test_an_outage_that_outlasts_the_run_is_cut_at_its_end(usual, tmp_path, check_rules):
    end_s = float(usual.spans["end_s"].max())
    slow = Event(kind="slow", worker=0, from_s=end_s / 2, until_s=1e9, factor=2.0)
    result = run(slow)
    events = trace_of(result, tmp_path / "run.json")
    check_rules(events)
    (one,) = (one for one in events if one.get("cat") == "outage")
    last_us = float(result.spans["end_s"].max()) * 1e6
    assert one["ts"] + one["dur"] == pytest.approx(last_us, abs=2e-3)


def test_memory_is_a_counter_of_each_worker_by_category(usual, tmp_path, check_rules):
    events = trace_of(usual, tmp_path / "run.json")
    check_rules(events)
    found = defaultdict(list)
    for one in events:
        if one["ph"] == "C" and one["name"].startswith("memory of worker "):
            found[int(one["name"].rsplit(" ", 1)[1])].append((one["ts"], one["args"]))
    memory = usual.memory
    assert sorted(found) == sorted(set(memory["worker"]))
    for worker, counted in found.items():
        own = memory[memory["worker"] == worker]
        assert [sum(args.values()) for _, args in counted] == own["bytes"].tolist()
        assert np.allclose([ts for ts, _ in counted], own["time_s"] * 1e6, atol=1e-3)
        assert {"weights", "activations"} <= set(counted[0][1])


def test_a_run_in_which_nothing_befalls_anybody_has_no_such_tracks(usual, tmp_path):
    events = trace_of(usual, tmp_path / "run.json")
    assert not [one for one in events if one.get("cat") == "outage"]
    names = [one["args"]["name"] for one in events if one["name"] == "thread_name"]
    assert names == ["worker 0", "worker 1"]
