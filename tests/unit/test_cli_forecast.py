"""`ampsim forecast`: a table, a verdict, a folder, and one JSON object."""

import json
from pathlib import Path

import pytest

import ampsim

SMALL = ("--instances", "200", "--set", "hidden=8", "--max-epochs", "1")
ALONE = ("--jobs", "1")  # no process more
KEYS = [
    "schedule", "max_active_keys", "min_update_interval", "replicas", "workers", "train_per_s",
    "valid_per_s", "epochs_to_target", "time_to_target_s", "time_to_target_low_s",
    "time_to_target_high_s", "utilisation", "staleness_mean", "staleness_max", "messages",
    "makespan_s",
]  # fmt: skip
COUNTS = ["max_active_keys", "replicas", "workers", "staleness_max", "messages"]


@pytest.mark.slow
@pytest.mark.usefixtures("unpainted")
def test_table_verdict_and_folder_are_on_standard_output(call, tmp_path):
    ended = call("forecast", *SMALL, "--quick")
    assert ended.code == 0
    for said in (
        "sequential", "pipeline", "amp", "No schedule reached 97 %", "wrote forecast-rnn",
        "that ranks nothing", "the paper's own is: ampsim forecast rnn",
    ):  # fmt: skip
        assert said in ended.out
    for name in ("sequential", "pipeline", "amp"):  # in whatever order they end
        assert f"ampsim: {name}, epoch 1 done, accuracy " in ended.err
    names = {path.name for path in (tmp_path / "forecast-rnn").iterdir()}
    assert names >= {"manifest.toml", "forecast.csv", "forecast.md", "index.html", "gantt.png"}


@pytest.mark.slow
def test_json_alone_is_on_standard_output(once):
    ended = once(
        "forecast", *SMALL, "--json", "-", "--quiet", "--repeats", "2", "--seed", "3", *ALONE
    )
    assert (ended.code, ended.err) == (0, "")
    content = json.loads(ended.out, parse_constant=pytest.fail)
    assert list(content) == ["ampsim", "model", "cluster", "seed", "verdict", "rows", "epochs"]
    assert content["ampsim"] == ampsim.__version__
    assert (content["model"], content["cluster"], content["seed"]) == ("rnn", "16 x tflops-1", 3)
    assert [row["schedule"] for row in content["rows"]] == ["sequential", "pipeline", "amp"]
    for row in content["rows"]:
        assert list(row)[: len(KEYS)] == KEYS
        assert all(type(row[key]) is int for key in COUNTS)
        assert row["time_to_target_s"] is None
        assert type(row["train_per_s"]) is float
    assert [row["min_update_interval"] for row in content["rows"]] == [None] * 3  # by node
    assert [row["max_active_keys"] for row in content["rows"]] == [1, 8, 8]


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_options_reach_the_forecast(call):
    words = ["--schedule", "amp", "--max-active-keys", "3", "--min-update-interval", "2"]
    words += ["--workers", "5", "--set", "replicas=2", "--target", "0.01", "--mode", "numeric"]
    words += ["--latency-s", "1e-6", "--bandwidth-bytes-per-s", "1e9", "--device", "cpu-core"]
    ended = call("forecast", *SMALL, *words, "--out", "there", "--json", "sub/row.json", "--quiet")
    assert (ended.code, ended.err) == (0, "")
    (row,) = json.loads(Path("sub/row.json").read_text())["rows"]
    told = ("max_active_keys", "min_update_interval", "replicas", "workers", "epochs_to_target")
    assert [row[key] for key in told] == [3, 2, 2, 5, 1]
    assert type(row["epochs_to_target"]) is int
    assert "reaches 1 %" in ended.out
    assert (Path("there") / "forecast.md").is_file()


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_cluster_file_decides_the_workers(call):
    Path("two.toml").write_text('[[device]]\nname = "tflops-1"\ncount = 2\n')
    words = ("--device", "two.toml", "--schedule", "sequential", "--json", "-", "--quiet")
    content = json.loads(call("forecast", *SMALL, *words).out)
    assert (content["cluster"], content["rows"][0]["workers"]) == ("two", 2)


@pytest.mark.slow
def test_mode_sleep_knows_no_accuracy(once):
    words = ("--mode", "sleep", "--schedule", "amp", "--json", "-")
    ended = once("forecast", *SMALL, *words)
    (row,) = json.loads(ended.out)["rows"]
    assert row["best_accuracy"] is None
    assert row["train_per_s"] > 0
    assert ended.err == "ampsim: amp, epoch 1 done\n"


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_failed_schedule_is_one_line_and_the_rest_is_written(call, tmp_path):
    ended = call(
        "forecast", *SMALL, "--set", "learning_rate=1e30", "--quiet", "--repeats", "2", *ALONE
    )
    assert ended.code == 2
    lines = ended.err.splitlines()
    assert len(lines) == 6
    assert all("stopped being finite" in line or "the loss" in line for line in lines)
    assert lines[0].startswith("ampsim: sequential: ")
    assert (tmp_path / "forecast-rnn" / "forecast.md").is_file()


@pytest.mark.slow
def test_an_option_without_effect_is_noted(once):
    words = ("--schedule", "sequential", "--max-active-keys", "4", "--quiet")
    ended = once("forecast", *SMALL, *words)
    assert ended.code == 0
    assert ended.err == "ampsim: note: --max-active-keys has no effect on sequential\n"


def test_lists_make_a_row_of_each_value_that_a_schedule_reads(once):
    words = ("--instances", "200", "--set", "hidden=8", "--mode", "sleep", "--json", "-")
    words += ("--schedule", "sequential,pipeline,amp", "--max-active-keys", "2,4")
    ended = once("forecast", *words, "--min-update-interval", "1,9", "--jobs", "1")
    rows = json.loads(ended.out)["rows"]
    assert [(row["schedule"], row["max_active_keys"]) for row in rows] == [
        ("sequential", 1), ("pipeline", 2), ("pipeline", 4),
        ("amp", 2), ("amp", 2), ("amp", 4), ("amp", 4),
    ]  # fmt: skip
    assert [row["min_update_interval"] for row in rows[3:]] == [1, 9, 1, 9]
    said = [line for line in ended.err.splitlines() if ", epoch 1 done" in line]
    assert len(said) == len(set(said)) == len(rows)


def test_a_misspelt_column_is_one_line_before_anything_runs(call, tmp_path):
    code, out, error = call(
        "forecast", "mlp", "--columns", "utilizaton", "--out", str(tmp_path / "x")
    )
    assert (code, out) == (2, "")
    assert error.startswith("ampsim: no column named 'utilizaton'; did you mean 'utilisation'?")
    assert error.count("\n") == 1
    assert not (tmp_path / "x").exists()


@pytest.mark.usefixtures("undrawn")
def test_runs_that_fail_alike_are_one_line(call, tmp_path):
    (tmp_path / "raising.py").write_text(
        '''"""A loss that raises."""
from dataclasses import dataclass

import numpy as np

import ampsim
from ampsim.data import ArrayDataset, pump_arrays
from ampsim.ir import Graph
from ampsim.nodes import Linear, SoftmaxCrossEntropy
from ampsim.optim import sgd


@dataclass(frozen=True)
class Config:
    width: int = 2


def graph():
    made = Graph("raising")
    x, label = made.controller(x=("rows", 2), label=("rows",))
    made.end(SoftmaxCrossEntropy("loss"), made.add(Linear("linear", 2, 2), x), label)
    return made


def build(config):
    data = (np.ones((8, 2)), np.full(8, 7))
    data = ArrayDataset(data, data, batch=4)
    return ampsim.Model("raising", config, graph, data.for_run, pump_arrays, sgd(0.1), target=0.9)
''',
        encoding="utf-8",
    )
    words = ("raising.py", "--schedule", "sequential", "--repeats", "5", "--no-tune", "-q", *ALONE)
    ended = call("forecast", *words)
    assert ended.code == 2
    (line,) = ended.err.splitlines()
    assert line.startswith("ampsim: sequential: loss (SoftmaxCrossEntropy) failed ")
    assert line.endswith("from 0 to 1, one a row, got 7 (5 runs)")
