"""What links carry stands in a trace for Perfetto, under every schedule."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ampsim.model_parallel import SCHEDULES
from ampsim.report.perfetto.trace import Trace, write_perfetto


def halves(frame: pd.DataFrame) -> list[pd.DataFrame]:
    return [frame[: len(frame) // 2], frame[len(frame) // 2 :]]


def events_of(results: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    traces = [
        Trace(
            name, one.workers, lambda one=one: halves(one.spans), lambda one=one: [one.updates],
            one.epochs, transfers=lambda one=one: halves(one.transfers),
        )
        for name, one in results.items()
    ]  # fmt: skip
    write_perfetto(traces, path)
    return json.loads(path.read_text("ascii"))["traceEvents"]


def sent_in(events: list[dict[str, Any]], pid: int) -> list[dict[str, Any]]:
    return [one for one in events if one["pid"] == pid and one.get("cat") == "transfer"]


def names_in(events: list[dict[str, Any]], what: str) -> dict[Any, str]:
    place = {"process_name": "pid", "thread_name": "tid"}[what]
    return {one[place]: one["args"]["name"] for one in events if one["name"] == what}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_transfer_that_was_kept_is_a_slice_on_the_track_of_its_link(
    schedule, result_of, check_rules, tmp_path
):
    result = result_of(schedule)
    events = events_of({schedule: result}, tmp_path / "run.json")
    check_rules(events)
    processes, tracks = names_in(events, "process_name"), names_in(events, "thread_name")
    pid = next(pid for pid, name in processes.items() if name == f"{schedule}: links")
    found, sent = sent_in(events, pid), result.transfers
    assert len(sent) and {one["ph"] for one in found} <= {"X", "i"}
    ends = [[one["args"][key] for key in ("source", "target", "bytes")] for one in found]
    assert ends == sent[["source", "target", "bytes"]].to_numpy().tolist()
    assert sent["node"].tolist() == sent["target"].tolist()
    assert np.allclose([one["ts"] for one in found], sent["start_s"] * 1e6, atol=1e-3)
    lengths_us = (sent["end_s"] - sent["start_s"]) * 1e6
    assert np.allclose([one.get("dur", 0.0) for one in found], lengths_us, atol=2e-3)
    worker = dict(zip(result.spans["node"], result.spans["worker"], strict=True))
    for one in found:
        words = tracks[one["tid"]].split(", lane ")[0].split(" → ")
        for key, place in zip(("source", "target"), words, strict=True):
            node = one["args"][key]
            expected = f"worker {worker[node]}" if node in worker else "host"
            assert place.split(" (")[0] == expected and (node in worker or node == "controller")


def test_a_link_has_no_more_lanes_than_messages_on_it_at_once(result_of, tmp_path):
    events = events_of({"amp": result_of("amp", 1e-4)}, tmp_path / "run.json")
    lanes, moments = Counter(), defaultdict(list)
    tracks = names_in(events, "thread_name")
    for tid in {one["tid"] for one in sent_in(events, 2)}:
        lanes[tracks[tid].split(", lane ")[0]] += 1
    for one in sent_in(events, 2):
        link = moments[tracks[one["tid"]].split(", lane ")[0]]
        start_ns, length_ns = int(one["ts"] * 1000.0), int(one.get("dur", 0.0) * 1000.0)
        link += [(start_ns, 1), (start_ns + length_ns, -1)] if length_ns else []
    most = {
        link: int(np.cumsum([step for _, step in sorted(m)]).max()) for link, m in moments.items()
    }
    assert lanes == most and max(lanes.values()) > 1


def test_schedules_beside_each_other_share_no_track_and_links_follow_their_schedule(
    result_of, check_rules, tmp_path
):
    results = {name: result_of(name) for name in ("sequential", "amp")}
    events = events_of(results, tmp_path / "run.json")
    check_rules(events)
    order = {
        one["pid"]: one["args"]["sort_index"]
        for one in events
        if one["name"] == "process_sort_index"
    }
    names = names_in(events, "process_name")
    said = [names[pid] for pid in sorted(order, key=order.__getitem__)]
    assert said == ["sequential", "sequential: links", "amp", "amp: links"]
    tracks = {(one["pid"], one["tid"]) for one in events if "tid" in one}
    assert len({tid for _, tid in tracks}) == len(tracks)


def test_a_worker_that_served_nothing_yet_has_no_nodes_and_names_do_no_harm(
    result_of, check_rules, tmp_path
):
    result = result_of("amp")
    row = ("<b>", "controller", 8, 1e-6, 2e-6, 99, -1)
    names = ["source", "target", "bytes", "start_s", "end_s", "source_worker", "target_worker"]
    sent = pd.DataFrame([row], columns=names)
    trace = Trace(
        "amp", 4, lambda: [result.spans], lambda: [result.updates], result.epochs,
        transfers=lambda: [sent],
    )  # fmt: skip
    write_perfetto([trace], tmp_path / "run.json")
    assert "<" not in (tmp_path / "run.json").read_text("ascii")
    events = json.loads((tmp_path / "run.json").read_text("ascii"))["traceEvents"]
    check_rules(events)
    assert names_in(events, "thread_name")[sent_in(events, 2)[0]["tid"]] == "worker 99 → host"
