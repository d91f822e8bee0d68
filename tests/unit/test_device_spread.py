"""Intervals of a device's fitted numbers reach what a forecast says of throughput and time."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import ampsim
from ampsim.errors import FileFormatError
from ampsim.forecasting.intervals import (
    Spread,
    Throughputs,
    combined,
    ends_of,
    from_plain,
    to_plain,
    widened,
)
from ampsim.forecasting.making import entries_of, leading_of
from ampsim.hardware import Checkpoints, Cluster, Event
from ampsim.hardware.events import Messages
from ampsim.runs.task import RunPlan
from ampsim.study.simulation import RunOptions

MODEL = {"data": "synthetic", "hidden": 16, "batch": 20, "layers": 2}
FLOP_PER_S, STEP_S = 1e9, 2e-5
TRAIN_FLOP = 20 * (784 * 16 * 4 + 16 * 10 * 6) + 784 * 16 + 16 * 10
"""Of a batch: forward, gradients and update; the first layer sends no gradient to its input."""

STEPS = 4 + 3
"""Messages of a batch but updates: forward of four nodes, backward of all but the loss, whose
forward step starts the backward pass."""

FILE = """
flop_per_s = {flop_per_s}
step_overhead_s = {step_s}

[sources.flop_per_s]
kind = "fitted"
text = "a test"
{flop_ends}

[sources.step_overhead_s]
kind = "fitted"
text = "a test"
{step_ends}
"""


def device(place: Path, flop_ends: str = "", step_ends: str = "") -> str:
    path = place / "fitted.toml"
    path.write_text(
        FILE.format(flop_per_s=FLOP_PER_S, step_s=STEP_S, flop_ends=flop_ends, step_ends=step_ends)
    )
    return str(path)


def made(cluster, **more):
    model = ampsim.load_model("mlp", **MODEL)
    return ampsim.forecast(
        model, cluster, [ampsim.Sequential()], instances=200, target=None, max_epochs=1, **more
    )


def train_per_s(flop_per_s: float, step_s: float, updates: int) -> float:
    """Closed form: one node after the other on one worker, each step its overhead and its FLOP."""
    return 20 / ((STEPS + updates) * step_s + TRAIN_FLOP / flop_per_s)


@pytest.fixture
def updates(tmp_path) -> int:
    """Steps that an update takes, read off a run whose overhead alone costs time."""
    cluster = ampsim.load_cluster(device(tmp_path), workers=1)
    result = ampsim.simulate(
        ampsim.load_model("mlp", **MODEL), cluster, ampsim.Sequential(), instances=200
    )
    return int((result.spans["direction"] == "update").sum()) // 10


def test_one_nodes_throughput_is_that_of_the_closed_form_at_both_ends(tmp_path, updates):
    path = device(tmp_path, step_ends="low = 1e-5\nhigh = 4e-5")
    (row,) = made(ampsim.load_cluster(path, workers=1)).table.to_dict("records")
    rate = train_per_s(FLOP_PER_S, STEP_S, updates)
    assert row["train_per_s"] == pytest.approx(rate, rel=1e-9)
    assert row["train_per_s_low"] == pytest.approx(train_per_s(FLOP_PER_S, 4e-5, updates), rel=1e-9)
    assert row["train_per_s_high"] == pytest.approx(
        train_per_s(FLOP_PER_S, 1e-5, updates), rel=1e-9
    )


def test_two_numbers_spread_as_draws_of_the_closed_form_do(tmp_path, updates):
    """95 % of 200,000 draws of both numbers, log-normal, against the runs at four ends."""
    path = device(tmp_path, "low = 8e8\nhigh = 1.25e9", "low = 1.6e-5\nhigh = 2.5e-5")
    (row,) = made(ampsim.load_cluster(path, workers=1)).table.to_dict("records")
    generator, sigma = np.random.default_rng(0), math.log(1.25) / 1.959964
    flop = FLOP_PER_S * np.exp(sigma * generator.standard_normal(200_000))
    step = STEP_S * np.exp(sigma * generator.standard_normal(200_000))
    drawn = 20 / ((STEPS + updates) * step + TRAIN_FLOP / flop)
    low, high = np.quantile(drawn, (0.025, 0.975))
    assert row["train_per_s_low"] == pytest.approx(low, rel=0.01)
    assert row["train_per_s_high"] == pytest.approx(high, rel=0.01)


def test_the_interval_of_the_time_holds_seeds_and_device(tmp_path):
    """Root of the sum of squares of both, in logarithms; each alone is what is left of it."""
    row = {
        "note": "", "train_per_s": 100.0, "time_to_target_s": 8.0, "time_to_target_low_s": 6.0,
        "time_to_target_high_s": 9.0, "time_to_target_coverage": 0.94,
    }  # fmt: skip
    spread = Spread(
        (), (Throughputs(100.0, 200.0), Throughputs(50.0, 100.0), Throughputs(200.0, 400.0))
    )
    told = widened(row, spread, (1000.0, 500.0))
    assert (told["train_per_s_low"], told["train_per_s_high"]) == (50.0, 200.0)
    assert told["time_to_target_device_low_s"] == pytest.approx(4.0)
    assert told["time_to_target_device_high_s"] == pytest.approx(16.0)
    below = math.log(8 / told["time_to_target_low_s"])
    assert below**2 == pytest.approx(math.log(8 / 6) ** 2 + math.log(2) ** 2)
    above = math.log(told["time_to_target_high_s"] / 8)
    assert above**2 == pytest.approx(math.log(9 / 8) ** 2 + math.log(2) ** 2)
    assert "of the device alone, 95 %: training 50.0 /s to 200 /s" in told["note"]


def test_validation_and_training_count_as_much_as_each_takes():
    spread = Spread(
        (), (Throughputs(100.0, 100.0), Throughputs(100.0, 50.0), Throughputs(100.0, 100.0))
    )
    assert spread.time_ratios(300.0, 100.0) == pytest.approx([5 / 4, 1.0])


def test_numbers_that_err_on_one_side_only_spread_on_that_side():
    assert combined([0.5, 1.0, 1.0, 1.0]) == pytest.approx((0.5, 1.0))
    assert combined([0.5, 2.0, 2.0, 0.5]) == pytest.approx((0.5**2**0.5, 2**2**0.5))


def test_row_and_manifest_say_what_was_assumed_and_at_which_end_another_row_is_first(tmp_path):
    """Sequential training pays one message at a time, AMP several: overheads decide their order."""
    path = device(tmp_path, step_ends="low = 1e-7\nhigh = 4e-5")
    cluster = ampsim.load_cluster(path, workers=4)
    model = ampsim.load_model("mlp", **{**MODEL, "layers": 4})
    found = ampsim.forecast(
        model, cluster, "sequential,amp", instances=200, target=0.11, max_epochs=4,
        placement="paper",
    )  # fmt: skip
    said = " ".join(found.manifest["assumptions"])
    assert "step_overhead_s of fitted 1e-07 to 4e-05" in said
    assert "Ranks are of the numbers themselves." in said
    assert all("of the device alone, 95 %" in note for note in found.table["note"])


def test_at_an_end_no_row_is_first_that_is_not_compared(tmp_path):
    """No trial of amp or pipeline reaches the target; the seed that is told of does."""
    path = device(tmp_path, step_ends="low = 1e-7\nhigh = 1e-3")
    model = ampsim.load_model("mlp", **{**MODEL, "layers": 4})
    found = ampsim.forecast(
        model, ampsim.load_cluster(path, workers=4), "sequential,amp,pipeline", instances=200,
        target=0.2, max_epochs=2, tune=2, placement="paper", seed=2,
    )  # fmt: skip
    assert found.table["standing"].eq("not compared").tolist() == [False, True, True]
    assert found.table["time_to_target_s"].rank().tolist() == [3, 2, 1]
    assert "would be first" not in " ".join(found.manifest["assumptions"])


@pytest.mark.parametrize(("low", "high"), [(0.5, 2.0), (0.8, 2.0), (0.5, 1.25)])
def test_devices_of_one_name_have_each_their_own_ends(low, high, tmp_path):
    """As of two files of one name in two folders, which may have an end in common."""
    files = []
    first = f"low = {1e9 * low}\nhigh = {1e9 * high}"
    for name, ends in (("a", first), ("b", "low = 8e8\nhigh = 1.25e9")):
        (tmp_path / name).mkdir()
        files.append(device(tmp_path / name, ends))
    devices = tuple(ampsim.load_cluster(one, workers=1).devices[0] for one in files)
    cluster = Cluster(name="two", devices=devices)
    at = [[one.flop_per_s for one in end.on(cluster).devices] for end in ends_of(cluster)]
    assert at == [[1e9 * low, 1e9], [1e9 * high, 1e9], [1e9, 8e8], [1e9, 1.25e9]]
    spread = Spread(tuple(ends_of(cluster)), why="of no matter")
    assert from_plain(json.loads(json.dumps(to_plain(spread)))) == spread


def test_a_forecast_on_devices_without_intervals_has_none_of_it():
    found = made(ampsim.load_cluster("tflops-1", workers=2))
    assert "train_per_s_low" not in found.table
    assert "assumptions" not in found.manifest


@pytest.mark.parametrize(
    "varying",
    [
        {"events": (Event(kind="pause", worker=0, from_s=1e-3, until_s=6e-2),)},
        {"checkpoints": Checkpoints(every_s=5e-3, takes_s=1e-3)},  # a short run has none
        {"messages": Messages(delay_cv=0.1)},
    ],
)
def test_where_times_vary_it_is_unknown_what_ends_do_as_short_runs_have_others(tmp_path, varying):
    """A pause that is most of a short run hides what the device does in a long one."""
    cluster = ampsim.load_cluster(device(tmp_path, "low = 8e8\nhigh = 1.25e9"), workers=1)
    varied = cluster.model_copy(update=varying)
    rows = [made(one).table.iloc[0] for one in (cluster, varied)]
    assert [math.isnan(float(row["train_per_s_low"])) for row in rows] == [False, True]
    said = " ".join(made(varied).manifest["assumptions"])
    assert (
        "What these intervals do to sequential is unknown: times vary, so that short runs" in said
    )


def test_rows_of_which_it_is_unknown_are_told_from_their_namesakes(tmp_path):
    cluster = ampsim.load_cluster(device(tmp_path, step_ends="low = 1e-8\nhigh = 1e-3"), workers=2)
    cluster = cluster.model_copy(update={"checkpoints": Checkpoints(every_s=5e-3, takes_s=1e-3)})
    model = ampsim.load_model("mlp", **MODEL)
    made = ampsim.forecast(model, cluster, "amp:1,amp:2", instances=40, max_epochs=1)
    said = " ".join(made.manifest["assumptions"])
    assert "do to amp, 1 in flight, amp, 2 in flight is unknown" in said


def test_the_papers_core_has_the_intervals_of_its_fit():
    ends = ends_of(ampsim.load_cluster("ampnet-core", workers=2))
    assert [(one.key, one.value) for one in ends] == [
        ("flop_per_s", 2.051e10), ("flop_per_s", 2.427e10),
        ("step_overhead_s", 1.402e-5), ("step_overhead_s", 3.751e-5),
    ]  # fmt: skip


def test_under_solvers_a_time_is_spread_as_the_throughput_that_it_is_made_of(tmp_path):
    """Validation takes no time there, so that a time is items over throughput."""
    cluster = ampsim.load_cluster(device(tmp_path, step_ends="low = 1e-5\nhigh = 4e-5"), workers=3)
    model = ampsim.load_model("mlp", **MODEL)
    made = ampsim.forecast(
        model, cluster, "sync-sgd,local-sgd,sequential", instances=200, target=0.05, max_epochs=1
    )
    for row in made.table.to_dict("records"):
        rate, time_s = row["train_per_s"], row["time_to_target_s"]
        less, more = (row[f"time_to_target_device_{end}_s"] / time_s for end in ("low", "high"))
        assert less == pytest.approx(rate / row["train_per_s_high"], rel=1e-9)
        assert more == pytest.approx(rate / row["train_per_s_low"], rel=1e-9)
        assert less < 0.95 < 1.05 < more


def test_short_runs_are_as_long_as_two_exchanges_of_a_solver():
    cluster = ampsim.load_cluster("tflops-1", workers=4)
    plan = RunPlan(ampsim.load_model("rnn", hidden=4), cluster, RunOptions())
    inner = ampsim.LocalSGD(ranks=2, period=5, inner=ampsim.Pipeline(4))
    schedules = [ampsim.Sequential(), ampsim.Pipeline(32), ampsim.LocalSGD(period=50), inner]
    counts = [leading_of(row)[0] for row in entries_of(plan, schedules)]
    assert counts == [40, 64, 2 * 4 * 50, 2 * 2 * 5 * 4]


def test_a_number_of_the_host_is_spread_as_whole_runs_are(tmp_path):
    """The host serves each instance: what that takes is a number of its own device, alone."""
    device(tmp_path, flop_ends="low = 1e8\nhigh = 1e10", step_ends="low = 1e-5\nhigh = 4e-5")
    text = '[[device]]\nname = "tflops-1"\ncount = 2\n\n[host]\ndevice = "./fitted.toml"\n'
    (tmp_path / "hosted.toml").write_text(text)
    cluster = ampsim.load_cluster(tmp_path / "hosted.toml")
    low, high = ends_of(cluster)
    assert (low.device, low.key, low.value, high.value) == ("fitted", "step_overhead_s", 1e-5, 4e-5)
    (row,) = made(cluster).table.to_dict("records")
    for value, name in ((4e-5, "train_per_s_low"), (1e-5, "train_per_s_high")):
        fixed = (tmp_path / "fitted.toml").read_text().replace(str(STEP_S), str(value))
        (tmp_path / "fitted.toml").write_text(fixed.replace("low = 1e-5\nhigh = 4e-5", ""))
        other = ampsim.load_cluster(tmp_path / "hosted.toml")
        model = ampsim.load_model("mlp", **MODEL)
        run = ampsim.simulate(model, other, ampsim.Sequential(), instances=200)
        assert row[name] == pytest.approx(float(run.train_per_s), rel=1e-9)
        device(tmp_path, step_ends="low = 1e-5\nhigh = 4e-5")


def test_ctrl_c_in_short_runs_leaves_the_rows_and_says_so(tmp_path):
    cluster = ampsim.load_cluster(device(tmp_path, step_ends="low = 1e-5\nhigh = 4e-5"), workers=1)

    def interrupt(progress) -> None:
        if " at step_overhead_s of fitted" in progress.schedule:
            raise KeyboardInterrupt

    found = made(cluster, on_progress=interrupt)
    assert found.interrupted == "interrupted: short runs at the ends of intervals did not finish"
    assert found.table["train_per_s"].notna().all()
    assert found.table["train_per_s_low"].isna().all()
    said = " ".join(found.manifest["assumptions"])
    assert "What these intervals do to sequential is unknown: Ctrl-C came first." in said


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ("low = 1e-5", "low and high are the ends of one interval; give both, or neither"),
        ("low = 4e-5\nhigh = 1e-5", "low must be < high, got 4e-05 and 1e-05; exchange them"),
        ("low = 3e-5\nhigh = 4e-5", "step_overhead_s must lie from low to high, 3e-05 to 4e-05"),
        ("low = 0\nhigh = 4e-5", "low must be > 0, got 0"),
        ('low = "a"\nhigh = 4e-5', "low must be a number"),
    ],
)
def test_an_interval_that_is_none_is_refused_in_one_line(tmp_path, ends, said):
    with pytest.raises(FileFormatError) as caught:
        ampsim.load_cluster(device(tmp_path, step_ends=ends), workers=1)
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
