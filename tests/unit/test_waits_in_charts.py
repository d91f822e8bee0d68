"""Charts of solvers show when ranks wait, for whom, and what servers do meanwhile."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import ampsim
import ampsim.figures
from ampsim.data_parallel import SOLVERS
from ampsim.report.gantt.boxes import (
    OUTAGES,
    ChartRun,
    instances_of,
    looks_of,
    outages_in,
    outages_of,
)
from ampsim.report.gantt.view import gantt_view

OPTIONS = (
    *("--set", "data=synthetic", "--set", "hidden=8", "--set", "batch=20"),
    *("--instances", "240", "--workers", "5"),
)
LINKS = ("--latency-s", "2e-7", "--bandwidth-bytes-per-s", "1e12", "--ranks", "4")


@pytest.fixture(scope="module")
def runs():
    model = ampsim.load_model("mlp", data="synthetic", hidden=8, batch=20)
    links: Any = {"latency_s": 5e-6, "bandwidth_bytes_per_s": 1e12}
    cluster = ampsim.load_cluster("tflops-1", workers=9, **links)
    return {
        name: ampsim.simulate(
            model,
            cluster,
            kind(ranks=4, workers_per_rank=2, **often(kind)),
            instances=480,
            mode="sleep",
        )
        for name, kind in SOLVERS.items()
    }


def often(kind: Any) -> dict[str, Any]:
    """An exchange at each step."""
    return {"period": 1} if "period" in kind.__dataclass_fields__ else {}


@pytest.mark.parametrize("name", SOLVERS)
def test_each_worker_of_a_rank_waits_as_long_as_its_exchanges_stall(runs, name):
    result = runs[name]
    waits, exchanges = result.waits, result.exchanges
    lasting = waits["end_s"] - waits["start_s"]
    for rank, own in exchanges.groupby("rank"):
        for worker in (2 * rank, 2 * rank + 1):
            found = lasting[waits["worker"] == worker].sum()
            assert found == pytest.approx(own["stalled_s"].sum(), rel=1e-9)
    assert set(waits["kind"]) == {
        f"waits for {one}" for one in exchanges["waits_for"] if one != "nothing"
    }


@pytest.mark.parametrize("name", SOLVERS)
def test_a_worker_that_waits_computes_nothing(runs, name):
    result = runs[name]
    spans = result.spans[result.spans["end_s"] > result.spans["start_s"]]
    for wait in result.waits.to_dict("records"):
        own = spans[spans["worker"] == wait["worker"]]
        during = (own["end_s"] > wait["start_s"] + 1e-15) & (own["start_s"] < wait["end_s"] - 1e-15)
        assert not during.any()


@pytest.mark.parametrize("name", SOLVERS)
def test_pages_and_figures_hatch_the_waits_and_have_a_row_for_each_server(runs, name):
    result = runs[name]
    drawn = outages_of(result)
    view = gantt_view({name: ChartRun(result.spans, outages=drawn)}, workers=9)
    hides = SOLVERS[name].overlaps  # all of its exchanges beside the gradient, here
    assert bool(len(result.waits)) != hides
    assert view.outages == ({} if hides else {"waits": OUTAGES["waits"][0]})
    looks = {one[3] for one in view.data["schedules"][0]["outages"]}
    assert looks == (set() if hides else {"waits"})
    assert any("centre" in row for row in view.data["rows"]) == (SOLVERS[name].meets == "server")
    figure: Any = ampsim.figures.gantt(result)
    labels = [one.get_text() for one in figure.legends[0].get_texts()]
    assert (OUTAGES["waits"][0] in labels) != hides


def test_a_chart_shows_an_exchange_of_each_rank_unless_told(runs):
    drawn = ChartRun(runs["easgd"].spans, outages=outages_of(runs["easgd"]))
    assert instances_of([drawn]) == 2 * len(np.unique(runs["easgd"].waits["worker"]))
    assert instances_of([ChartRun(drawn.spans)]) == 4


def test_outages_and_waits_are_told_apart():
    model = ampsim.load_model("mlp", data="synthetic")
    frame = ampsim.simulate(model, "tflops-1", "sequential", instances=100, mode="sleep").waits
    assert not len(frame)
    assert looks_of([outages_in(None, (0.0, 1.0))]) == []


def test_a_trace_has_a_track_of_waits(call, tmp_path):
    out = tmp_path / "easgd.json"
    code, _out, error = call(
        "gantt", "mlp", *OPTIONS, *LINKS, "--schedule", "easgd", "--out", str(out)
    )
    assert code == 0, error
    events = json.loads(out.read_text())["traceEvents"]
    names = {one["name"] for one in events if one.get("cat") == "wait"}
    assert names == {"waits for turn", "waits for reply"}
    tracks = {one["args"]["name"] for one in events if one["name"] == "thread_name"}
    assert {f"worker {rank}: waits" for rank in range(4)} <= tracks


def test_a_run_that_was_kept_has_the_same_waits(call, tmp_path):
    folder = tmp_path / "run"
    code, _out, error = call(
        "run", "mlp", *OPTIONS, *LINKS, "--schedule", "easgd", "--epochs", "1", "--out", str(folder)
    )
    assert code == 0, error
    loaded = ampsim.load_run(folder)
    assert len(loaded.waits) and set(loaded.waits["worker"]) == {0, 1, 2, 3}
    code, _out, error = call("gantt", str(folder), "--out", str(tmp_path / "kept.html"))
    assert code == 0, error
    assert OUTAGES["waits"][0] in (tmp_path / "kept.html").read_text()
