"""Intervals of a device's numbers reach a report as they reach a forecast."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import ampsim
from ampsim.forecasting.intervals import COLUMNS, Spread
from ampsim.metric import Goal
from ampsim.recipes.beside import OUTLINES_FILE, read_outlines
from ampsim.recipes.recipe import read_recipe
from ampsim.recipes.redrawing import read_manifest, read_results
from ampsim.recipes.results import Results
from ampsim.recipes.running import run_recipe
from ampsim.runs.rows import row_of

OPTIONS = {"data": "synthetic", "hidden": 16, "batch": 20, "layers": 2}
HEAD = """
title = "A test"
model = "mlp"
set = { data = "synthetic", hidden = 16, batch = 20, layers = 2 }
cluster = "./fitted.toml"
workers = 2
instances = 200
max_epochs = 4
target = 0.11
seeds = [3, 4]
figures = []
"""
PAIR = """
[[schedules]]
name = "sequential"

[[schedules]]
name = "amp"
max_active_keys = 2
"""
PLACED_PAIR = PAIR.replace("\nname =", '\nplacement = "paper"\nname =')
SOLVER = """
[[schedules]]
name = "local-sgd"
ranks = 2
period = 3
latency_s = 4e-5
"""
LINKED = """
[[schedules]]
name = "pipeline"
max_active_keys = 2
latency_s = 1e-5
"""
FLOP_ENDS = "low = 8e8\nhigh = 1.6e9"
STEP_ENDS = "low = 1e-5\nhigh = 5e-5"
SOURCE = """
[sources.{key}]
kind = "fitted"
text = "a test"
{ends}
"""


def device(
    flop_ends: str = "", step_ends: str = "", *, flop: float = 1e9, step: float | None = 2e-5
) -> str:
    """A device file of two numbers, or of its FLOP rate alone."""
    numbers, sources = f"flop_per_s = {flop}\n", SOURCE.format(key="flop_per_s", ends=flop_ends)
    if step is not None:
        numbers += f"step_overhead_s = {step}\n"
        sources += SOURCE.format(key="step_overhead_s", ends=step_ends)
    return numbers + sources


BOTH = device(FLOP_ENDS, STEP_ENDS)
FLOP_ONLY = device(FLOP_ENDS, step=None)


def put(folder: Path, recipe: str, fitted: str = BOTH) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "recipe.toml").write_text(recipe)
    (folder / "fitted.toml").write_text(fitted)
    return folder


def records(table: pd.DataFrame) -> dict[Any, Any]:
    return {row["schedule"]: row for row in table.to_dict("records")}


@pytest.fixture(scope="module")
def report(report_of) -> Path:
    """The report of two schedules, with its kept runs; not to be written to."""
    return report_of(HEAD + PLACED_PAIR, {"fitted.toml": BOTH})


def forecast(folder: Path, schedules, **more) -> ampsim.Forecast:
    fitted = folder / "fitted.toml"
    workers = None if "count =" in fitted.read_text() else 2
    cluster = ampsim.load_cluster(fitted, workers=workers, **more)
    return ampsim.forecast(
        ampsim.load_model("mlp", **OPTIONS), cluster, schedules, target=0.11, max_epochs=4,
        instances=200, repeats=2, seed=3, scale_rate="none", placement="paper",
    )  # fmt: skip


def test_a_recipes_intervals_are_those_of_a_forecast_to_the_digit(report):
    made = forecast(report, [ampsim.Sequential(), ampsim.Amp(2)])
    results = read_results(read_recipe(report), report)
    assert isinstance(results, Results)
    table = results.table
    names = [*COLUMNS, "time_to_target_s", "time_to_target_low_s", "time_to_target_high_s", "note"]
    assert made.table[list(COLUMNS)].notna().all(axis=None)
    for name in names:
        assert table[name].tolist() == made.table[name].tolist(), name
    assert read_manifest(report)["assumptions"] == made.manifest["assumptions"]


def test_devices_of_one_name_whose_intervals_share_an_end_have_each_their_own(tmp_path):
    for folder, ends, flop in (("one", (5e8, 1e9), 7e8), ("two", (1e9, 2e9), 1.5e9)):
        (tmp_path / folder).mkdir()
        low, high = ends
        text = device(f"low = {low}\nhigh = {high}", flop=flop, step=None)
        (tmp_path / folder / "mine.toml").write_text(text)
    names = '"one/mine.toml"', '"two/mine.toml"'
    both = ", ".join(f"{{ file = {name}, count = 1 }}" for name in names)
    folder = put(tmp_path, HEAD.replace("workers = 2\n", "") + PAIR, f"device = [{both}]\n[link]\n")
    found = run_recipe(read_recipe(folder), folder).table
    made = forecast(folder, [ampsim.Sequential(), ampsim.Amp(2)]).table
    for name in COLUMNS:
        assert found[name].tolist() == made[name].tolist(), name


def test_under_a_solver_they_are_those_of_a_forecast_and_of_whole_runs(tmp_path):
    """Ranks meet every third batch over links that take as long as two steps."""
    folder = put(tmp_path, HEAD + SOLVER)
    (row,) = run_recipe(read_recipe(folder), folder).table.to_dict("records")
    solver = ampsim.LocalSGD(ranks=2, period=3)
    (again,) = forecast(folder, [solver], latency_s=4e-5).table.to_dict("records")
    assert [row[name] for name in COLUMNS] == [again[name] for name in COLUMNS]
    rates = {}
    for flop, step in ((1e9, 2e-5), (8e8, 2e-5), (1.6e9, 2e-5), (1e9, 1e-5), (1e9, 5e-5)):
        (tmp_path / "at.toml").write_text(device(flop=flop, step=step))
        cluster = ampsim.load_cluster(tmp_path / "at.toml", workers=2, latency_s=4e-5)
        model = ampsim.load_model("mlp", **OPTIONS)
        run = ampsim.simulate(model, cluster, solver, mode="sleep", instances=2000)
        rates[flop, step] = math.log(run.train_per_s)
    base = rates[1e9, 2e-5]
    below = math.hypot(base - rates[8e8, 2e-5], base - rates[1e9, 5e-5])
    above = math.hypot(rates[1.6e9, 2e-5] - base, rates[1e9, 1e-5] - base)
    assert row["train_per_s_low"] == pytest.approx(row["train_per_s"] / math.exp(below), rel=0.01)
    assert row["train_per_s_high"] == pytest.approx(row["train_per_s"] * math.exp(above), rel=0.01)
    more = row["time_to_target_device_high_s"] / row["time_to_target_s"]
    assert more == pytest.approx(math.exp(below), rel=0.01)


def test_where_a_flop_rate_is_all_a_row_takes_its_time_scales_exactly(tmp_path):
    """Rate times low / value and high / value; the time the other way round."""
    folder = put(tmp_path, HEAD.replace("[3, 4]", "[0, 1, 2, 3, 4]") + PAIR + LINKED, FLOP_ONLY)
    found = run_recipe(read_recipe(folder), folder)
    goal = Goal(found.metric, found.target)
    labels = list(records(found.table))
    runs = {label: [run for run in found.runs if run.schedule == label] for label in labels}
    before = {label: row_of(label, goal, of) for label, of in runs.items()}
    assert [one for one in before if before[one]["time_to_target_s"] is not None]
    for label, row in records(found.table).items():
        rate, time_s = row["train_per_s"], row["time_to_target_s"]
        if label == "pipeline":  # its link takes time, too
            assert rate * 0.8 < row["train_per_s_low"] < rate
            continue
        assert row["train_per_s_low"] == pytest.approx(rate * 0.8, rel=1e-9)
        assert row["train_per_s_high"] == pytest.approx(rate * 1.6, rel=1e-9)
        if not math.isfinite(time_s):
            continue
        assert row["time_to_target_device_low_s"] == pytest.approx(time_s / 1.6, rel=1e-9)
        assert row["time_to_target_device_high_s"] == pytest.approx(time_s / 0.8, rel=1e-9)
        low, high = (before[label][f"time_to_target_{end}_s"] for end in ("low", "high"))
        below = math.hypot(math.log(time_s / low), math.log(1.6))
        above = math.hypot(math.log(high / time_s), math.log(1 / 0.8))
        assert row["time_to_target_low_s"] == pytest.approx(time_s * math.exp(-below))
        assert row["time_to_target_high_s"] == pytest.approx(time_s * math.exp(above))


def test_a_row_of_mode_sleep_has_throughputs_alone_and_their_order_is_looked_at(tmp_path):
    """Of two devices in which an overhead alone differs, that with the smaller one is faster."""
    asleep = HEAD.replace("max_epochs = 4\ntarget = 0.11", 'epochs = 1\nmode = "sleep"')
    elsewhere = """
[[schedules]]
name = "sequential"
label = "another device"
cluster = "./plain.toml"
"""
    put(
        tmp_path,
        asleep + PAIR.partition('[[schedules]]\nname = "amp')[0] + elsewhere,
        device(step_ends=STEP_ENDS),
    )
    (tmp_path / "plain.toml").write_text(device(step=1.5e-5))
    found = run_recipe(read_recipe(tmp_path), tmp_path)
    rows = records(found.table)
    assert all(math.isnan(rows["sequential"][name] or math.nan) for name in COLUMNS[2:])
    assert rows["sequential"]["train_per_s_low"] < rows["sequential"]["train_per_s"]
    assert all(pd.isna(rows["another device"][name]) for name in COLUMNS)
    assert rows["another device"]["note"] == ""
    numbers, order = found.manifest["assumptions"]
    assert numbers.startswith(
        "1 number of the devices has a 95 % interval: step_overhead_s of fitted 1e-05 to 5e-05. "
        "Each row on such a device was run shortly in mode sleep at both ends, "
    )
    assert order == (
        "Ranks are of the numbers themselves. At these ends, sequential at step_overhead_s = "
        "1e-05 would be first."
    )


def test_a_row_that_cannot_sleep_says_why_its_interval_is_unknown(tmp_path):
    grows = """
[[schedules]]
name = "sequential"
label = "growing"
set = { batch_warmup_epochs = 2 }
"""
    put(tmp_path, HEAD.replace("max_epochs = 4", "max_epochs = 1") + grows)
    found = run_recipe(read_recipe(tmp_path), tmp_path)
    (row,) = found.table.to_dict("records")
    assert all(row[name] is None for name in COLUMNS)
    assert found.manifest["assumptions"][1].startswith(
        "What these intervals do to growing is unknown: mode 'sleep' runs the first epoch alone"
    )
    assert read_spread(found.outlines, tmp_path, "growing").why


def read_spread(outlines: str, place: Path, label: str) -> Spread:
    (place / OUTLINES_FILE).write_text(outlines)
    return read_outlines(place).spreads[label]


def test_a_device_without_intervals_has_none_of_it(tmp_path, make_report):
    make_report(put(tmp_path, HEAD + PAIR, device()))
    table = pd.read_csv(tmp_path / "report.csv")
    assert not set(COLUMNS) & set(table)
    assert "assumptions" not in read_manifest(tmp_path)
    assert "at_ends" not in json.loads((tmp_path / OUTLINES_FILE).read_text())
    assert "95 %" not in (tmp_path / "report.md").read_text()


def test_a_tuned_row_is_spread_with_the_rate_that_it_runs_with(tmp_path):
    put(tmp_path, HEAD.replace("seeds", "tune = 2\nseeds") + PAIR, FLOP_ONLY)
    found = run_recipe(read_recipe(tmp_path), tmp_path)
    assert len(found.trials)
    for row in found.table.to_dict("records"):
        assert row["train_per_s_low"] == pytest.approx(row["train_per_s"] * 0.8, rel=1e-9)


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ("low = 1e-5", "low and high are the ends of one interval; give both, or neither"),
        ("low = 3e-5\nhigh = 4e-5", "step_overhead_s must lie from low to high, 3e-05 to 4e-05"),
    ],
)
def test_a_wrong_interval_of_a_recipes_device_is_one_line(tmp_path, mistake, ends, said):
    put(tmp_path, HEAD + PAIR, device(step_ends=ends))
    line = mistake("report", str(tmp_path))
    assert said in line
    assert "fitted.toml: sources.step_overhead_s" in line
