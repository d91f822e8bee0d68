"""Outages in results, and the joules and dollars of a run."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ampsim
from ampsim.data_parallel import SOLVERS
from ampsim.forecasting.forecast import to_json
from ampsim.hardware import Checkpoints, Cluster, Device, Event, Failures, Link, Messages
from ampsim.metric import ACCURACY, Goal
from ampsim.runs import LoadedRun
from ampsim.runs.folder import run_to_keep, write_run
from ampsim.runs.rows import arrival, row_of
from ampsim.runs.run import from_plain, run_of, to_plain
from ampsim.study.outages import held_up_s
from ampsim.study.simulation import RunOptions

POWER = {"idle_power_w": 10.0, "busy_power_w": 70.0}
PRICE = {"price_usd_per_h": 7200.0}
PAUSE = Event(kind="pause", worker=0, from_s=3.0, until_s=13.5)
SERVED: list[Any] = [one for one in SOLVERS.values() if one.meets == "server"]
SERVED += [partial(one, elastic="worker") for one in SERVED if one.is_elastic]
DOWN = Event(kind="pause", worker=4, from_s=1e-3, until_s=5e-3)


def cluster_of(first: dict[str, Any], second: dict[str, Any], **varies: Any) -> Cluster:
    """Two workers, each with what it says of power and price."""
    devices = tuple(Device(name="test", flop_per_s=1.0, **own) for own in (first, second))
    return Cluster(name="two", devices=devices, **varies)


@pytest.fixture(scope="module")
def model(chain):
    return chain(((4, 6, 1), (3, 5, 2)), instances=4, valid=1).model()


def run(model: Any, cluster: Cluster) -> ampsim.Result:
    return ampsim.simulate(model, cluster, ampsim.Sequential(), mode="sleep")


def test_energy_is_idle_power_all_the_time_and_the_rest_while_busy(model):
    result = run(model, cluster_of(POWER, {"idle_power_w": 1.0, "busy_power_w": 2.0}))
    spans = result.spans
    busy_s = (spans["end_s"] - spans["start_s"]).groupby(spans["worker"]).sum()
    idle_j = (10.0 + 1.0) * result.makespan_s
    assert result.energy_j == pytest.approx(idle_j + 60.0 * busy_s[0] + 1.0 * busy_s[1])


def test_a_step_that_a_pause_holds_up_takes_idle_power_meanwhile(model):
    usual = run(model, cluster_of(POWER, POWER))
    paused = run(model, cluster_of(POWER, POWER, events=(PAUSE,)))
    assert paused.makespan_s == pytest.approx(usual.makespan_s + 10.5)
    assert paused.energy_j == pytest.approx(usual.energy_j + 2 * 10.0 * 10.5)


def test_a_cost_is_the_price_times_the_makespan(model):
    result = run(model, cluster_of(PRICE, {"price_usd_per_h": 3600.0}))
    assert result.cost_usd == pytest.approx(3.0 * result.makespan_s)


@pytest.mark.parametrize("known", [{}, POWER, PRICE])
def test_what_one_device_does_not_say_is_unknown_for_all(model, known):
    result = run(model, cluster_of({**POWER, **PRICE}, known))
    assert math.isnan(result.energy_j) == ("idle_power_w" not in known)
    assert math.isnan(result.cost_usd) == ("price_usd_per_h" not in known)


def with_checkpoints(model: Any, seed: int = 0, cv: float = 0.0, **varies: Any) -> ampsim.Result:
    """One device that is always busy, with a checkpoint of 3 s due every 20 s."""
    device, kept = (
        Device(name="test", flop_per_s=1.0, jitter_cv=cv),
        Checkpoints(every_s=20, takes_s=3),
    )
    on = Cluster(name="one", devices=(device,), checkpoints=kept, **varies)
    return ampsim.simulate(model, on, ampsim.Sequential(), mode="sleep", seed=seed)


def lossy(from_s: float, until_s: float) -> Event:
    return Event(kind="stop", worker=0, from_s=from_s, until_s=until_s, weights="checkpoint")


def test_a_checkpoint_in_whose_middle_the_device_stops_is_over_with_the_stop(model):
    start_s, end_s = with_checkpoints(model).outages[["start_s", "end_s"]].iloc[0]
    assert end_s == start_s + 3
    stopped = with_checkpoints(model, events=(lossy(start_s + 1, start_s + 7),))
    assert start_s not in set(stopped.outages.query("kind == 'checkpoint'")["start_s"])
    later = stopped.spans.query("start_s >= @start_s and end_s > start_s")
    assert later["start_s"].min() == pytest.approx(start_s + 7)


@pytest.mark.parametrize("seed", range(4))
def test_jitter_leaves_a_checkpoint_as_long_as_it_is(model, seed):
    """A stop right after it goes back to it, and one right before its end to what was before."""
    end_s = with_checkpoints(model, seed, 0.5).outages["end_s"].iloc[0]
    for from_s, kept_s in ((end_s + 1e-6, end_s), (end_s - 1e-6, 0.0)):
        stopped = with_checkpoints(model, seed, 0.5, events=(lossy(from_s, from_s + 5),))
        (found,) = stopped.outages.query("kind == 'stop'")["checkpoint_s"]
        assert found == kept_s


def test_a_lost_message_is_sent_again_so_long_after_it_should_have_arrived(chain):
    model = chain(((4, 6, 1), (3, 5, 2)), instances=300, valid=1).model()
    losses = Messages(loss_probability=0.2, retry_after_s=0.7071)
    link = Link(latency_s=0.25, bandwidth_bytes_per_s=1e6)
    sent = run(model, cluster_of({}, {}, link=link, messages=losses)).transfers
    due_s = np.sort(sent["end_s"] + 0.7071)
    within = np.searchsorted(due_s, sent["sent_s"] + 1e-9) - np.searchsorted(
        due_s, sent["sent_s"] - 1e-9
    )
    is_again = within > 0
    assert is_again.mean() == pytest.approx(0.2, abs=4 * math.sqrt(0.2 * 0.8 / len(sent)))


SWAPS = {"memory_bytes": 80_000, "copy_bandwidth_bytes_per_s": 2.0**33}


@pytest.mark.parametrize("dispatch_s", [0.0, 2.0**-19])
@pytest.mark.parametrize(
    ("program", "more"),
    [
        (ampsim.Dataflow(), {}),
        (ampsim.Unrolled(), {}),
        (ampsim.Dataflow(), {"memory_bytes": 10**6}),
        (ampsim.Dataflow(swap_memory=True, swap_threshold=0.3), SWAPS),
    ],
)
def test_an_outage_holds_up_all_lanes_of_a_programs_device(program, more, dispatch_s):
    """A pause makes a run so much longer, and where all is half as fast it takes twice as long."""
    device = Device(name="d", flop_per_s=2.0**30, dispatch_s=dispatch_s, **more)
    steady = Cluster(name="one", devices=(device,))
    pause = Event(kind="pause", worker=0, from_s=2.0**-12, until_s=2.0**-11)
    slow = Event(kind="slow", worker=0, factor=2.0, from_s=0.0, until_s=1e3)
    network = ampsim.load_model("rnn", hidden=8, batch=100, replicas=1)
    whole_s, paused_s, slowed_s = (
        ampsim.simulate(
            network, steady.model_copy(update={"events": events}), program, mode="sleep",
            instances=400,
        ).makespan_s
        for events in ((), (pause,), (slow,))
    )  # fmt: skip
    assert paused_s == pytest.approx(whole_s + 2.0**-12, rel=1e-9)
    assert slowed_s == pytest.approx(2 * whole_s, rel=1e-9)


@pytest.mark.parametrize("kind", SERVED)
def test_a_server_that_is_down_sends_nothing(kind):
    """It answered whoever need not wait for a merge, so that ranks went on for another step."""
    solver = kind(ranks=3, servers=2)
    device, link = Device(name="d", flop_per_s=1e9), Link(latency_s=1e-6)
    steady = Cluster(name="c", devices=(device,) * 5, link=link)
    network = ampsim.load_model("mlp", hidden=8, data="synthetic", batch=10)
    whole_s, paused = (
        ampsim.simulate(network, of, solver, mode="sleep", instances=300)
        for of in (steady, steady.model_copy(update={"events": (DOWN,)}))
    )
    answers = paused.transfers[paused.transfers["source_worker"] == 4]
    assert ((answers["sent_s"] <= DOWN.from_s) | (answers["sent_s"] >= DOWN.until_s)).all()
    assert (answers["sent_s"] >= DOWN.until_s).sum() > 5
    longer_s = paused.makespan_s - whole_s.makespan_s
    assert 0.85 < longer_s / (DOWN.until_s - DOWN.from_s) <= 1


def test_time_held_up_counts_overlapping_outages_once():
    spans = pd.DataFrame({"worker": [0, 0, 1], "start_s": [0.0, 5.0, 0.0], "end_s": [4.0, 9, 9]})
    outages = pd.DataFrame(
        {
            "worker": [0, 0, 0, 1, 0],
            "kind": ["pause", "stop", "slow", "slow", "stop"],
            "start_s": [1.0, 2.0, 0.0, 0.0, 3.5],
            "end_s": [3.0, 2.5, 9.0, 9.0, 6.0],
        }
    )
    np.testing.assert_allclose(held_up_s([spans], outages, 2), [2.0 + 0.5 + 1.0, 0.0])


def test_a_row_has_joules_and_dollars_to_the_target_in_proportion_to_its_time(model):
    forecast = ampsim.forecast(
        model, cluster_of({**POWER, **PRICE}, {**POWER, **PRICE}), "sequential", target=0.01,
        max_epochs=3,
    )  # fmt: skip
    row = forecast.table.iloc[0]
    result = forecast.runs[0].result
    share = row["time_to_target_s"] / row["makespan_s"]
    assert 0 < share <= 1
    assert row["energy_j"] == result.energy_j
    assert row["energy_to_target_j"] == pytest.approx(result.energy_j * share)
    assert row["cost_to_target_usd"] == pytest.approx(result.cost_usd * share)
    assert "energy_to_target_j" in ampsim_table(forecast)


def test_joules_to_the_target_are_the_median_of_what_each_seed_took(model):
    """And not the median of joules times that of times, which may be of different seeds."""
    forecast = ampsim.forecast(
        model, cluster_of(POWER, PRICE), "sequential", target=0.01, max_epochs=1
    )
    run, goal = forecast.runs[0], Goal(ACCURACY, 0.01)
    _, time_s = arrival(goal, run)
    took = ((1.0, 1.0), (2.0, 4.0), (9.0, 3.0))
    runs = [replace(run, energy_j=joules, makespan_s=until_s) for joules, until_s in took]
    assert row_of("x", goal, runs)["energy_to_target_j"] == time_s
    missed = replace(run, epochs=run.epochs.assign(accuracy=0.0), energy_j=math.nan)
    assert row_of("x", goal, [*runs, missed, missed])["energy_to_target_j"] == 3 * time_s
    assert row_of("x", goal, [*runs, *[missed] * 3])["energy_to_target_j"] is None


def test_rows_of_devices_that_say_nothing_have_the_keys_with_null(model):
    forecast = ampsim.forecast(model, cluster_of({}, {}), "sequential", max_epochs=1)
    (row,) = json.loads(to_json(forecast, seed=0))["rows"]
    keys = ("energy_j", "energy_to_target_j", "cost_usd", "cost_to_target_usd")
    assert [row[key] for key in keys] == [None] * 4
    assert "energy_j" not in ampsim_table(forecast)
    assert "cost_usd" not in ampsim_table(forecast)


def ampsim_table(forecast: ampsim.Forecast) -> str:
    from ampsim.report.table import columns_folded

    return "\n".join(" ".join(line) for line in columns_folded(forecast.table))


def test_a_result_lists_the_outages_that_began_before_its_end(model):
    late = Event(kind="slow", worker=1, from_s=1e6, until_s=2e6, factor=2.0)
    result = run(model, cluster_of({}, {}, events=(late, PAUSE)))
    assert result.outages.to_dict("records") == [
        {"worker": 0, "kind": "pause", "start_s": 3.0, "end_s": 13.5}
    ]
    assert list(run(model, cluster_of({}, {})).outages.columns) == list(result.outages.columns)


@pytest.fixture
def keep(model, tmp_path):
    """`keep(**varies)` keeps a run in a folder, and reads it back."""

    def make(**varies: Any) -> tuple[Any, LoadedRun]:
        cluster = cluster_of(POWER, {**POWER, **PRICE}, **varies)
        outcome = run_to_keep(model, cluster, ampsim.Sequential(), RunOptions(mode="sleep"))
        write_run(outcome, tmp_path / "kept")
        return outcome.result, ampsim.load_run(tmp_path / "kept")

    return make


def test_a_kept_run_has_its_outages_and_energy(keep):
    failures = Failures(mean_time_between_s=20.0, mean_time_to_repair_s=2.0)
    result, loaded = keep(events=(PAUSE,), failures=failures)
    assert len(result.outages) > 3
    pd.testing.assert_frame_equal(loaded.outages, result.outages, check_dtype=False)
    assert loaded.energy_j == pytest.approx(result.energy_j, rel=1e-12)
    assert math.isnan(loaded.cost_usd)


LOSING = {
    "events": (Event(kind="stop", worker=0, from_s=40.0, until_s=50.0, weights="checkpoint"),),
    "checkpoints": Checkpoints(every_s=30.0, takes_s=0.5),
}


def test_what_a_stop_took_is_kept_with_a_run_and_in_its_outline(keep, model):
    result, loaded = keep(**LOSING)
    pd.testing.assert_frame_equal(loaded.outages, result.outages, check_dtype=False)
    (stop,) = result.outages[result.outages["kind"] == "stop"].to_dict("records")
    assert stop["updates_lost"] > 0
    assert stop["checkpoint_s"] < 40.0
    assert loaded.energy_j == pytest.approx(result.energy_j, rel=1e-12)
    again = from_plain(json.loads(json.dumps(to_plain(run_of(result)))))
    pd.testing.assert_frame_equal(again.outages, result.outages, check_dtype=False)
    for one in ampsim.forecast(
        model, cluster_of({}, {}, **LOSING), "sequential", max_epochs=1, repeats=2, jobs=2
    ).runs:
        pd.testing.assert_frame_equal(one.result.outages, result.outages, check_dtype=False)


def test_charts_mark_updates_that_were_lost_and_checkpoints(model):
    from ampsim import figures

    result = run(model, cluster_of({}, {}, **LOSING))
    figure = figures.gantt(result)
    said = {text.get_text() for text in figure.legends[0].get_texts()}
    assert {"device down, updates lost", "checkpoint"} <= said
    assert "device down" not in said


def test_a_folder_of_a_run_without_outages_has_no_table_of_them_and_loads(keep):
    _result, loaded = keep()
    assert not (Path(loaded.folder) / "outages.parquet").exists()
    assert list(loaded.outages.columns) == ["worker", "kind", "start_s", "end_s"]
    assert len(loaded.outages) == 0


def test_an_outline_carries_what_is_known_and_earlier_outlines_can_be_read(model):
    for varies in ({}, {"events": (PAUSE,)}):
        outline = run_of(run(model, cluster_of(POWER if varies else {}, POWER, **varies)))
        plain = json.loads(json.dumps(to_plain(outline)))
        assert ("energy_j" in plain["numbers"]) == ("outages" in plain["tables"]) == bool(varies)
        again = from_plain(plain)
        np.testing.assert_equal(again.energy_j, outline.energy_j)
        assert again.outages["kind"].tolist() == outline.outages["kind"].tolist()


def test_charts_hatch_outages_and_name_them_in_the_legend(model):
    from ampsim import figures

    slow = Event(kind="slow", worker=1, from_s=1.0, until_s=20.0, factor=2.0)
    for events, names in (((PAUSE, slow), {"device down", "device slow"}), ((), set[str]())):
        figure = figures.gantt(run(model, cluster_of({}, {}, events=events)))
        said = {text.get_text() for text in figure.legends[0].get_texts()}
        assert {one for one in said if one.startswith("device")} == names
        drawn = {one.get_label() for one in figure.axes[0].collections}
        assert {one for one in drawn if str(one).startswith("device")} == names
