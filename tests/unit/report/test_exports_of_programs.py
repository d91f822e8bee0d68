"""What is exported of a program's run says what its spans and transfers say, lane by lane."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest

import ampsim
from ampsim.hardware import Cluster, Device, Link
from ampsim.report.perfetto.kineto import write_kineto
from ampsim.report.perfetto.trace import Trace, write_perfetto

DEVICE = Device(
    name="test", flop_per_s=1e10, memory_bandwidth_bytes_per_s=1e10, dispatch_s=2e-6,
    memory_bytes=10**6, copy_bandwidth_bytes_per_s=1e9, copy_latency_s=1e-6,
)  # fmt: skip
CLUSTER = Cluster(
    name="test", devices=(DEVICE,) * 2, link=Link(latency_s=3e-6, bandwidth_bytes_per_s=1e9)
)
LSTM = ampsim.load_model("dynamic_lstm", hidden=16, batch=40, length=6, layers=2, devices=2)
RUNS: dict[str, tuple[Any, Any, set[str]]] = {
    "a loop over devices that swap": (
        LSTM, ampsim.Dataflow(swap_memory=True, swap_threshold=0.1),
        {"compute", "dispatch", "copy-out", "copy-in"},
    ),
    "a client": (
        ampsim.load_model("rnn", hidden=4), ampsim.OutOfGraph(round_trip_s=1e-5),
        {"compute", "dispatch"},
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=RUNS)
def run(request) -> Any:
    model, schedule, lanes = RUNS[request.param]
    result = ampsim.simulate(model, CLUSTER, schedule, mode="sleep", instances=80)
    assert set(result.spans["lane"]) == lanes
    assert len(result.transfers) > 10
    return result


def trace_of(result: Any) -> Trace:
    tables = (lambda: [result.spans], lambda: [result.updates], result.epochs)
    return Trace("dataflow", 2, *tables, transfers=lambda: [result.transfers])


def named(worker: int) -> str:
    return "host" if worker < 0 else f"worker {worker}"


def test_perfetto_has_each_span_in_its_lane_and_each_message_on_its_link(run, tmp_path):
    write_perfetto([trace_of(run)], tmp_path / "run.json")
    events = json.loads((tmp_path / "run.json").read_text("ascii"))["traceEvents"]
    names = {one["tid"]: one["args"]["name"] for one in events if one["name"] == "thread_name"}
    found = Counter(
        (
            " → ".join(end.split(" (")[0] for end in names[one["tid"]].split(" → ")),
            one["args"]["bytes"] if one["cat"] == "transfer" else one["name"],
            round(one["ts"] * 1000), round((one["ts"] + one.get("dur", 0)) * 1000),
        )
        for one in events
        if one["ph"] in "Xi"
    )  # fmt: skip
    nanoseconds = lambda row: (round(row.start_s * 1e9), round(row.end_s * 1e9))  # noqa: E731  # short
    expected = Counter(
        (
            named(row.worker) + (f": {row.lane}" if row.lane != "compute" else ""),
            f"{row.node} {row.direction}", *nanoseconds(row),
        )
        for row in run.spans.itertuples()
    ) + Counter(
        (f"{named(row.source_worker)} → {named(row.target_worker)}", row.bytes, *nanoseconds(row))
        for row in run.transfers.itertuples()
    )  # fmt: skip
    assert found == expected


def test_profiles_have_kernels_copies_and_messages_as_such_and_dispatches_as_none(run, tmp_path):
    _count, unit_s = write_kineto(trace_of(run), tmp_path)
    spans, sent = run.spans, run.transfers
    spans = spans.assign(
        units=np.rint(spans["end_s"] / unit_s) - np.rint(spans["start_s"] / unit_s)
    )
    for worker in range(2):
        rows = json.loads((tmp_path / f"worker-{worker}.json").read_text())["traceEvents"]
        kernels = [one for one in rows if one["cat"] == "kernel"][1:-1]
        own = spans[(spans["worker"] == worker) & (spans["end_s"] > spans["start_s"])]
        for kind, lanes in (("Memcpy", ["copy-out", "copy-in"]), ("", ["compute"])):
            those = own[own["lane"].isin(lanes)]
            names = those["direction"].astype(str) + " " + those["node"].astype(str)
            assert Counter(
                (one["name"], one["dur"]) for one in kernels if is_of(kind, one)
            ) == Counter(
                zip((f"{kind} {name}".strip() for name in names), those["units"], strict=True)
            )
        from_here = sent[(sent["source_worker"] == worker) & (sent["end_s"] > sent["start_s"])]
        assert sum(one["name"].startswith("nccl") for one in kernels) == len(from_here)
        calls = [one["dur"] for one in rows if one["cat"] == "cpu_op"]
        assert calls == own[own["lane"] == "dispatch"]["units"].tolist()


def is_of(kind: str, kernel: dict[str, Any]) -> bool:
    first = kernel["name"].split()[0]
    return first == kind if kind else first in ("forward", "backward", "update")


def test_tables_of_utilisation_are_seconds_of_spans_over_the_makespan(run):
    spans = run.spans
    assert run.makespan_s == spans["end_s"].max()
    share = (spans["end_s"] - spans["start_s"]) / run.makespan_s
    for row in run.utilisation_by_worker.to_dict("records"):
        for way in ("update", "backward", "forward"):
            is_own = (spans["worker"] == row["worker"]) & (spans["direction"] == way)
            told = share[is_own & (spans["lane"] == "compute")].sum()
            assert row[way] == pytest.approx(told, rel=1e-9)
    lanes = run.utilisation_by_lane.set_index(["worker", "lane"])["share"]
    expected = share.groupby([spans["worker"], spans["lane"].astype(str)]).sum()
    expected = expected[expected.index.get_level_values("lane") != "compute"]
    assert lanes.to_dict() == pytest.approx(expected.to_dict(), rel=1e-9)
