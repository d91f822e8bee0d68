"""Profiles of workers: what is in them, and that HTA's breakdown of them is our utilisation."""

import importlib.util
import json
import os
import subprocess
import sys

import pandas as pd
import pytest
from typer.testing import CliRunner

import ampsim
from ampsim.cli.entry import app
from ampsim.errors import OptionError
from ampsim.report.perfetto.kineto import write_kineto
from ampsim.report.perfetto.trace import Trace

WORKERS = 3
HTA_PYTHON = os.environ.get("HTA_PYTHON") or (
    sys.executable if importlib.util.find_spec("hta") else ""
)
"""A Python that has HolisticTraceAnalysis or traceinsight."""

BREAKDOWN = """
import sys, json
from hta.trace_analysis import TraceAnalysis
found = TraceAnalysis(trace_dir=sys.argv[1])
table = found.get_temporal_breakdown(visualize=False)
overlap = found.get_comm_comp_overlap(visualize=False).set_index("rank")
print("FOUND", json.dumps({int(r): [float(c) / float(k), float(i) / float(k),
    float(overlap["comp_comm_overlap_pctg"][r]) / 100] for r, c, i, k in zip(table["rank"],
    table["compute_time(us)"], table["idle_time(us)"], table["kernel_time(us)"])}))
"""


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A run whose messages take time on links, kept in a folder."""
    folder = tmp_path_factory.mktemp("kineto") / "run"
    words = ["run", "mlp", "--set", "data=synthetic", "--set", "hidden=16", "--device", "p100"]
    words += ["--workers", str(WORKERS), "--latency-s", "1e-6", "--instances", "600"]
    done = CliRunner().invoke(app, [*words, "--epochs", "1", "--out", str(folder), "--quiet"])
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture(scope="module")
def profiles(kept):
    folder = kept.parent / "run.kineto"
    folder.mkdir()
    (folder / "worker-7.json").write_text("of an earlier run")
    done = CliRunner().invoke(app, ["gantt", str(kept), "--out", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


def busy(run):
    """The part of the run in which each worker computes, as the run tells it."""
    shares = run.utilisation_by_worker.set_index("worker")
    return shares.sum(axis=1).to_dict()


def united(*tables):
    """Seconds in which a row of any of these tables is under way."""
    rows = sorted(row for one in tables for row in zip(one["start_s"], one["end_s"], strict=True))
    covered_s = last_s = 0.0
    for start_s, end_s in rows:
        covered_s += max(0.0, end_s - max(start_s, last_s))
        last_s = max(last_s, end_s)
    return covered_s


def parts(run):
    """Of each worker: shares of the run that it computes, idles; of sending while it computes."""
    found = {}
    for worker, share in busy(run).items():
        spans = run.spans[run.spans["worker"] == worker]
        sent = run.transfers[run.transfers["source_worker"] == worker]
        sent = sent[sent["start_s"] < run.makespan_s].assign(
            end_s=sent["end_s"].clip(upper=run.makespan_s)
        )
        computed_s, sent_s, both_s = united(spans), united(sent), united(spans, sent)
        found[worker] = [
            share,
            1 - both_s / run.makespan_s,
            (computed_s + sent_s - both_s) / sent_s,
        ]
    return found


@pytest.mark.slow
def test_each_worker_has_a_file_with_its_kernels_and_transfers(kept, profiles):
    run = ampsim.load_run(kept)
    names = sorted(path.name for path in profiles.iterdir())
    assert names == [f"worker-{worker}.json" for worker in range(WORKERS)]
    expected = busy(run)
    for worker, name in enumerate(names):
        text = (profiles / name).read_text()
        assert f'"rank": {worker}' in text  # with the space, which HTA's pattern needs
        events = json.loads(text)["traceEvents"]
        kernels = [one for one in events if one["cat"] == "kernel"]
        launches = [one for one in events if one["cat"] == "cuda_runtime"]
        assert [one["args"]["correlation"] for one in kernels] == [
            one["args"]["correlation"] for one in launches
        ]
        computed = [one for one in kernels if one["args"]["stream"] == 0][1:-1]
        whole = kernels[-1]["ts"] + kernels[-1]["dur"]
        assert sum(one["dur"] for one in computed) / whole == pytest.approx(
            expected[worker], abs=1e-3
        )
        sent = [one for one in kernels if one["name"].startswith("nccl")]
        transfers = run.transfers
        lasting = transfers["end_s"].clip(upper=run.makespan_s) > transfers["start_s"]
        own = transfers[lasting & (transfers["source_worker"] == worker)]
        assert len(sent) == len(own) > 0
        ends = {f"worker {one}" if one >= 0 else "the host" for one in own["target_worker"]}
        assert {one["name"].partition(" to ")[2] for one in sent} == ends


def test_a_transfer_that_outlasts_the_last_step_makes_no_profile_longer(tmp_path):
    model = ampsim.load_model("mlp", data="synthetic", hidden=8, batch=50)
    cluster = ampsim.load_cluster("gflops-100", workers=2, latency_s=1e-4)
    run = ampsim.simulate(model, cluster, ampsim.DiLoCo(), instances=200, mode="sleep")
    sent = run.transfers
    after = sent["end_s"].max() - run.makespan_s
    assert after > 0.05 * run.makespan_s  # else the profile would tell nothing

    trace = Trace(
        "diloco",
        run.workers,
        spans=lambda: [run.spans],
        updates=lambda: [run.updates],
        epochs=run.epochs,
        transfers=lambda: [sent],
    )
    _count, unit_s = write_kineto(trace, tmp_path)
    for worker, share in busy(run).items():
        events = json.loads((tmp_path / f"worker-{worker}.json").read_text())["traceEvents"]
        kernels = [one for one in events if one["cat"] == "kernel"]
        end = max(one["ts"] + one["dur"] for one in kernels)
        computed = sum(one["dur"] for one in kernels if one["args"]["stream"] == 0) - 2
        assert end * unit_s == pytest.approx(run.makespan_s, rel=1e-6)
        assert computed / end == pytest.approx(share, rel=1e-2)


@pytest.mark.skipif(not HTA_PYTHON, reason="needs HolisticTraceAnalysis, or HTA_PYTHON with it")
def test_hta_finds_our_utilisation_idle_time_and_overlap(kept, profiles):
    words = [HTA_PYTHON, "-P", "-W", "ignore", "-c", BREAKDOWN, str(profiles)]
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=clean)
    (line,) = [one for one in done.stdout.splitlines() if one.startswith("FOUND")]
    found = {int(key): value for key, value in json.loads(line.removeprefix("FOUND")).items()}
    expected = parts(ampsim.load_run(kept))
    assert found.keys() == expected.keys()
    for worker, shares in expected.items():
        assert found[worker] == pytest.approx(shares, abs=1e-3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--schedule", "amp,gpipe"], "holds one schedule, got 2; name one with --schedule"),
        (["--schedule", "amp", "--window", "0:1us"], "a trace (.kineto) holds the whole run"),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path, words, said):
    source = ["gantt", "mlp", "--set", "data=synthetic", "--set", "hidden=4", "--instances", "100"]
    done = CliRunner().invoke(app, [*source, *words, "--out", str(tmp_path / "a.kineto")])
    assert said in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_a_run_in_which_nothing_takes_time_has_no_profile(tmp_path):
    trace = Trace("amp", 1, tuple, tuple, pd.DataFrame())
    with pytest.raises(OptionError, match="no step of amp takes time on this cluster"):
        write_kineto(trace, tmp_path)
