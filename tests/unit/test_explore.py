"""A map of hardware: exact where it says so, kept, gone on with, and told on the command line."""

from __future__ import annotations

import inspect
import itertools
import json
import re
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ampsim
from ampsim.cli import questions as command
from ampsim.cli.option_table import REPEATS
from ampsim.errors import OptionError
from ampsim.exploring import explore as library
from ampsim.exploring import making
from ampsim.exploring.axes import Setup, place_words, setup_at
from ampsim.exploring.cells import Estimate, LeftOut, call
from ampsim.exploring.explore import sentences_of
from ampsim.exploring.predicting import Guess
from ampsim.exploring.whatif import AS_FIRST
from ampsim.hardware import Cluster, Device, Event, Link, Messages
from ampsim.recipes.explored import map_tables
from ampsim.runs import RunCache
from ampsim.runs.store import TIMINGS

OVER: dict[str, Any] = {"latency_s": "1e-7..1e-5:log", "device.flop_per_s": [1e11, 1e13]}
HOW: dict[str, Any] = {
    "points": 3, "instances": 400, "target": 0.12, "max_epochs": 6, "repeats": 2, "seed": 1,
}  # fmt: skip
METHODS = (ampsim.Pipeline(4), ampsim.Amp(4))


@pytest.fixture(scope="module")
def setup() -> Setup:
    model = ampsim.load_model("rnn", hidden=4, replicas=2, batch=20)
    return Setup(model, ampsim.load_cluster("tflops-1", workers=3), METHODS)


@pytest.fixture(scope="module")
def whole(setup: Setup) -> ampsim.Exploration:
    """A map that went on until all is known, or nearly so."""
    return ampsim.explore(*setup, over=OVER, **HOW, sure=0.999)


def at(setup: Setup, row: dict[str, Any]) -> Setup:
    return setup_at(setup, {key: row[key] for key in OVER})


def forecast_of(setup: Setup, row: dict[str, Any]) -> dict[str, Any]:
    """What a forecast says of a cell."""
    model, cluster, methods = at(setup, row)
    method = next(one for one in methods if one.name == row["schedule"])
    options = {key: HOW[key] for key in ("instances", "target", "max_epochs", "repeats", "seed")}
    made = ampsim.forecast(model, cluster, [method], **options, placement="paper")
    (found,) = made.table.to_dict("records")
    return {str(key): value for key, value in found.items()}


@pytest.mark.slow
def test_a_trained_cell_is_what_a_forecast_of_it_gives(setup, whole):
    learned = whole.table[whole.table["basis"] == "learned"].to_dict("records")
    assert {row["schedule"] for row in learned} == {"pipeline", "amp"}
    for row in learned[:3]:
        own = forecast_of(setup, row)
        for key, name in (("time_to_target_s", "time_to_target_s"), ("low", "time_to_target_low_s"),
                          ("high", "time_to_target_high_s")):  # fmt: skip
            assert row[key] == pytest.approx(own[name], rel=1e-12, nan_ok=True)


def test_a_cell_that_learns_the_same_takes_what_its_own_runs_take(setup, whole):
    shared = whole.table[whole.table["basis"] == "shared"].groupby("schedule").tail(2)
    assert set(shared["schedule"]) == {"pipeline", "amp"}
    for row in shared.to_dict("records"):
        time_s = forecast_of(setup, row)["time_to_target_s"]
        # epochs are the same; the later ones have the same batches in another order
        assert row["time_to_target_s"] == pytest.approx(time_s, rel=0.01, nan_ok=True)


def test_every_cell_is_timed_as_a_run_that_learns(setup, whole):
    for row in whole.table.to_dict("records"):
        model, cluster, methods = at(setup, row)
        method = next(one for one in methods if one.name == row["schedule"])
        ran = ampsim.simulate(model, cluster, method, seed=1, instances=400)
        assert row["epoch_s"] == ran.epochs["time_s"].iloc[0]


def test_a_pipeline_is_trained_once(whole):
    of = whole.table[whole.table["schedule"] == "pipeline"]
    assert list(of["basis"]).count("learned") == 1
    assert set(of["basis"]) == {"learned", "shared"}
    assert of["learning"].nunique() == 1


PAUSE = {"events": (Event(kind="pause", worker="all", from_s=1e-3, until_s=6e-2),)}
LOSSES = {"messages": Messages(loss_probability=1e-3, retry_after_s=6e-2)}


@pytest.mark.parametrize("varies", [PAUSE, LOSSES])
def test_where_outages_come_each_cell_is_trained_as_epochs_differ(varies):
    """One epoch has the pause, or a loss, others have none: its ratio and its power are theirs."""
    upkeep = {"idle_power_w": 11.0, "busy_power_w": 297.0, "price_usd_per_h": 3.7}
    device = Device(name="a", flop_per_s=1e9, step_overhead_s=1e-6, **upkeep)
    cluster = Cluster(name="c", devices=(device,) * 2, **varies)
    model = ampsim.load_model("mlp", hidden=8, data="synthetic", batch=20, valid_images=100)
    how: dict[str, Any] = {"target": 0.2, "max_epochs": 8, "instances": 300, "repeats": 1}
    methods, over = [ampsim.Pipeline(2), ampsim.Sequential()], {"latency_s": [1e-6, 1e-4]}
    found = ampsim.explore(model, cluster, methods, over=over, **how)
    assert library.EPOCHS_VARY in found.sentences
    assert (
        set(found.table["basis"]) == {"learned"} and found.table["energy_to_target_j"].isna().all()
    )
    for row, method in zip(found.table.to_dict("records"), methods * 2, strict=True):
        there = cluster.model_copy(update={"link": Link(latency_s=row["latency_s"])})
        made = ampsim.forecast(model, there, [method], **how, placement="paper").table
        for column in ("time_to_target_s", "cost_to_target_usd"):
            assert row[column] == pytest.approx(made[column].iloc[0], rel=1e-9)


def test_where_stages_of_an_optimizer_take_unlike_times_each_cell_is_trained():
    """The first epoch has updates of gradient descent alone, and others pass over Adam's arrays."""
    options = {"optimizer": "two-stage", "warmup_epochs": 1, "learning_rate": 0.02, "batch": 10}
    model = ampsim.load_model("mlp", hidden=32, layers=3, data="synthetic", **options)
    how: dict[str, Any] = {"target": 0.9, "max_epochs": 6, "instances": 200, "repeats": 1}
    over, methods = {"memory_bandwidth_bytes_per_s": [3e9, 1e12]}, ["sequential", "pipeline:2"]
    device = Device(name="a", flop_per_s=1e11, memory_bandwidth_bytes_per_s=1e11)
    cluster = Cluster(name="c", devices=(device,))
    found = ampsim.explore(model, cluster, methods, over=over, **how)
    assert library.EPOCHS_VARY in found.sentences
    fast = device.model_copy(update={"memory_bandwidth_bytes_per_s": 1e12})
    there = cluster.model_copy(update={"devices": (fast,)})
    made = ampsim.forecast(model, there, methods, **how, placement="paper").table
    times = found.table["time_to_target_s"].iloc[2:]
    assert [*times] == pytest.approx([*made["time_to_target_s"]], rel=1e-9)
    assert made["epochs_to_target"].min() > 1
    free = cluster.model_copy(update={"devices": (Device(name="b", flop_per_s=1e11),)})
    kept = ampsim.explore(model, free, methods, over={"latency_s": [0.0, 1e-6]}, **how)
    assert library.EPOCHS_VARY not in kept.sentences


def test_where_ranks_meet_in_some_epochs_alone_power_is_unknown():
    """Of three steps each, the first epoch has no all-reduce, and the second has one."""
    upkeep = {"idle_power_w": 11.0, "busy_power_w": 297.0}
    cluster = Cluster(name="c", devices=(Device(name="a", flop_per_s=1e9, **upkeep),) * 2)
    model = ampsim.load_model("mlp", hidden=4, data="synthetic", batch=20, valid_images=20)
    how: dict[str, Any] = {"target": 0.01, "max_epochs": 2, "instances": 120, "repeats": 1}
    methods = [ampsim.SyncSGD(ranks=2), ampsim.LocalSGD(ranks=2, period=4)]
    found = ampsim.explore(model, cluster, methods, over={"latency_s": [1e-6]}, **how)
    assert library.EPOCHS_VARY in found.sentences
    assert found.table["time_to_target_s"].notna().all()
    assert found.table["energy_to_target_j"].isna().tolist() == [False, True]
    notes = found.table["note"].fillna("")
    assert notes.str.startswith("first epoch: ranks never exchanged").tolist() == [False, True]
    assert any(said.startswith("1 of 2 cells have ranks that nev") for said in found.sentences)


@pytest.mark.parametrize("method", [ampsim.AsyncSGD, ampsim.SyncSGD])
def test_it_is_told_where_later_epochs_take_another_time_than_the_first(method, only):
    """A server has nothing to do when an epoch of three steps begins, unless there was another."""
    devices = (Device(name="a", flop_per_s=1e12),) * 3
    cluster = Cluster(name="c", devices=devices, link=Link(latency_s=1e-6))
    model = ampsim.load_model("mlp", hidden=4, data="synthetic", batch=20, valid_images=20)
    only(what="everything")
    how: dict[str, Any] = {"target": 0.99, "max_epochs": 2, "instances": 120, "repeats": 1}
    found = ampsim.explore(model, cluster, [method(), method(2)], over={"latency_s": [1e-6]}, **how)
    said = [one for one in found.sentences if one.startswith("Later epochs differ from the first")]
    assert len(said) == (method is ampsim.AsyncSGD)
    asked = ampsim.whatif(model, cluster, [method(2)], learn=0, **how)
    assert (AS_FIRST in asked.sentences) == (method is ampsim.AsyncSGD)


class Stopped:
    """Ctrl-C after so many epochs have ended."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, progress: Any) -> None:
        self.left -= progress.is_epoch_end
        if self.left < 0:
            raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize("after", [5, 15])
def test_a_map_that_was_stopped_goes_on_to_the_same_bytes(setup, whole, after, tmp_path):
    def explored(stop: Any) -> ampsim.Exploration:
        keeping = RunCache(tmp_path)
        return ampsim.explore(
            *setup, over=OVER, **HOW, sure=0.999, keeping=keeping, on_progress=stop
        )

    part = explored(Stopped(after))
    assert part.is_stopped
    assert re.match(r"interrupted: \d+ of 12 cells are t", part.interrupted or "")
    assert part.learnings < whole.learnings
    with (tmp_path / ".runs" / TIMINGS).open("a") as lines:
        lines.write('{"key": "cut of')
    later = explored(None)
    assert not later.is_stopped
    pd.testing.assert_frame_equal(later.table, whole.table, check_exact=True)
    assert later.to_json() == whole.to_json()
    again = explored(Stopped(0))  # nothing is left to be made
    assert again.interrupted is None


def test_a_budget_ends_it_and_says_so(setup, tmp_path, monkeypatch):
    ticks = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: float(next(ticks)))
    monkeypatch.setattr(making, "time", clock)
    keeping = RunCache(tmp_path)
    found = ampsim.explore(*setup, over=OVER, **HOW, budget_s=60, sure=0.999, keeping=keeping)
    assert found.interrupted is not None
    assert found.interrupted.startswith("the budget of 60.0 s was spent: ")
    assert not found.is_stopped


@pytest.mark.parametrize("is_cut", [False, True])
def test_where_one_method_alone_is_known_to_arrive_it_is_open_who_is_first(monkeypatch, is_cut):
    """Of the other no run gave anything, or Ctrl-C came first: nobody was said to arrive."""
    learn = making.PointRuns.learn

    def lose(runs: making.PointRuns, wanted: Any) -> Any:
        if "pipeline" not in wanted[0][0].label:
            return learn(runs, wanted)
        if is_cut:
            raise KeyboardInterrupt
        return ["its process died"] * len(wanted)

    monkeypatch.setattr(making.PointRuns, "learn", lose)
    model = ampsim.load_model("mlp", hidden=16, layers=2, data="synthetic", batch=20)
    how: dict[str, Any] = {"instances": 400, "target": 0.3, "max_epochs": 4, "repeats": 1}
    methods, over = [ampsim.Sequential(), ampsim.Pipeline(2)], {"latency_s": [1e-7, 1e-5]}
    found = ampsim.explore(model, "tflops-1", methods, over=over, **how)
    assert found.table["time_to_target_s"].notna().tolist() == [True, False] * 2
    said = "It is open who is first: of pipeline no time is known at any of 2 points."
    assert found.sentences[0] == said


def test_a_budget_ends_what_says_nothing_meanwhile(setup, monkeypatch):
    """Such as putting a million workers together, which took minutes."""
    monkeypatch.setattr(library, "rows_at", lambda *_asked: threading.Event().wait(60))
    with pytest.raises(OptionError, match=r"budget_s must be enough for a first point, got 0\.01"):
        ampsim.explore(*setup, over=OVER, **HOW, budget_s=0.01)


def test_a_budget_in_which_nothing_can_be_timed_is_a_mistake(setup):
    with pytest.raises(OptionError, match=r"budget_s must be enough for a first point, got 1e-09"):
        ampsim.explore(*setup, over=OVER, **HOW, budget_s=1e-9)


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no axis": ({"over": {}}, "over .--for. must name what varies, .* got nothing"),
    "a schedule": ({"over": {"schedule": "amp"}}, "and no schedule, got schedule; schedules are"),
    "too many": (
        {"over": {"latency_s": "0..1"}, "points": 4097},
        "points must be at most 4,096, got 4097",
    ),
    "too many together": (
        {"over": {"latency_s": "0..1", "workers": "1..64"}, "points": 1000},
        "at most 4096 points, got 64000",
    ),
    "no budget": ({"budget_s": 0.0}, "budget_s must be enough for a first point, got 0"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_told_in_a_line(setup, name):
    more, said = MISTAKES[name]
    with pytest.raises(OptionError, match=said):
        ampsim.explore(*setup, **{"over": OVER, **HOW, **more})


def test_one_schedule_is_nothing_to_compare(setup):
    with pytest.raises(OptionError, match="explore compares schedules, got one; name several"):
        ampsim.explore(setup.model, setup.cluster, "amp", over=OVER)


def test_the_command_writes_page_table_and_json(call, tmp_path):
    words = (
        "explore", "rnn", "--set", "hidden=4", "--set", "replicas=1", "--workers", "2",
        "--for", "latency_s=1e-7,1e-5", "--instances", "200", "--target", "0.11",
        "--max-epochs", "3", "--repeats", "1", "--out", str(tmp_path / "map"), "-q", "--json", "-",
    )  # fmt: skip
    ended = call(*words)
    assert ended.code == 0
    told = json.loads(ended.out)
    assert [(row["latency_s"], row["schedule"]) for row in told["rows"]] == [
        (latency_s, schedule) for latency_s in (1e-7, 1e-5) for schedule in ("pipeline", "amp")
    ]
    keys = {"time_to_target_s", "low", "high", "basis", "is_first", "doubt", "learning"}
    assert keys <= set(told["rows"][0])
    assert {row["basis"] for row in told["rows"]} <= {"learned", "shared", "predicted"}
    page = (tmp_path / "map" / "index.html").read_text("utf-8")
    data = json.loads(re.search(r'id="drawing-data">(.*?)</script>', page)[1])  # pyright: ignore[reportOptionalSubscript]  # the test fails
    assert [[cell[0] for cell in point] for point in data["points"]] == [
        [row["time_to_target_s"] for row in told["rows"][place : place + 2]] for place in (0, 2)
    ]
    csv = pd.read_csv(tmp_path / "map" / "explore.csv")
    assert list(csv["epoch_s"]) == [row["epoch_s"] for row in told["rows"]]


def test_a_page_says_what_the_bars_of_its_seeds_cover(whole):
    """Of three seeds they hold the median with 75 %, and were called 90 % intervals."""
    said = {
        1: "bars are 90 % intervals where predicted. A hollow",
        3: "bars are 90 % intervals where predicted, and hold the median with 75 % elsewhere. A",
        5: "bars are 90 % intervals. A hollow",
    }
    for repeats, words in said.items():
        assert words in replace(whole, evidence=replace(whole.evidence, repeats=repeats)).page()


def test_the_command_has_the_defaults_of_the_library():
    assert (command.POINTS, command.SURE) == (library.POINTS, library.SURE)
    functions = (ampsim.explore, ampsim.solve, ampsim.search, ampsim.whatif)
    repeats = [inspect.signature(one).parameters["repeats"].default for one in functions]
    said = "{} of explore, {} of solve, {} of search and whatif"
    assert said.format(*repeats[:3]) in REPEATS
    assert repeats[2] == repeats[3]


def test_the_command_tells_a_mistake_in_a_line(mistake):
    assert "--budget must be a time above 0 such as 60s, 30m or 2h, got '30x'" in mistake(
        "explore", "rnn", "--for", "latency_s=1e-7,1e-5", "--budget", "30x"
    )
    assert "axis must be KEY=A,B" in mistake("explore", "rnn", "--for", "latency_s")


def test_the_best_point_of_a_method_is_told_with_units(whole):
    headings, lines = whole.cells
    assert headings[2] == "where"
    found = [
        re.fullmatch(r"(100 ns|1.00 µs|10.0 µs), (100 G|10.0 T)FLOP/s", line[2]) for line in lines
    ]
    assert found and all(found)
    assert {line[3] for line in lines} <= {"first", "tie", "too few seeds", "predicted"}
    rows = [(row["schedule"], row["standing"]) for row in whole.rows if row["is_first"]]
    assert all((line[0], None if line[3] == "predicted" else line[3]) in rows for line in lines)


def known(times: list[float]) -> Estimate:
    return Estimate("learned", 1.0, Guess(0.0), dict(enumerate(times)), 99)


FAST = [1.0 + seed / 1000 for seed in range(8)]
STANDINGS = {
    ("first", "behind"): (known(FAST), known([2 * one for one in FAST])),
    ("tie", "tie"): (known(FAST), known([1.01 * one for one in FAST])),
    ("too few seeds", "too few seeds"): (known(FAST), known([0.5, 0.6, 0.7, 3, 3, 4, 5, 6])),
    (None, None): (known(FAST), Estimate("predicted", 1.0, Guess(5.0), None, 999)),
}


def test_where_seeds_that_all_have_name_another_best_it_is_open_who_is_first():
    """A method lost the seeds with which it is slow; those that are left speak for another."""
    slow = dict(enumerate([1.0, 1.0, 1.0, 1.0, 1.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0]))
    few = dict.fromkeys(range(5), 2.0)
    first = Estimate("learned", 1.0, Guess(0.0), slow, 99)
    called = call([first, Estimate("learned", 1.0, Guess(0.0), few, 99)])
    assert called.best == 1  # medians are 5 and 2
    assert called.ranking is not None
    assert called.ranking.best == 0  # with each of the five seeds that both have
    assert [called.standing(place) for place in (0, 1)] == ["too few seeds"] * 2
    assert called.doubt(11) == 0.5


def test_only_who_is_first_for_sure_is_said_to_be_first():
    rows: list[dict[str, Any]] = []
    for expected, estimates in STANDINGS.items():
        called = call(estimates)
        assert (called.standing(0), called.standing(1)) == expected
        rows += [
            {
                "schedule": name, "is_first": called.best == place, "basis": one.basis,
                "standing": called.standing(place), "note": None,
            }
            for place, (name, one) in enumerate(zip(("amp", "pipeline"), estimates, strict=True))
        ]  # fmt: skip
    said = sentences_of(pd.DataFrame(rows), 7, 0.0, LeftOut(), seeds=8)
    assert said[:4] == (
        "Of 4 points, amp is first at 1.",
        "Methods tie within 5 % at 1; ahead in the median: amp at 1.",
        "With 8 seeds it is open who is first at 1; ahead in the median: amp at 1.",
        "It is predicted who is ahead at 1; ahead in the median: amp at 1.",
    )
    said = sentences_of(pd.DataFrame(rows[2:]), 7, 0.0, LeftOut(), seeds=8)
    assert said[0] == "Of 3 points, nobody is first for sure at any."


def test_sentences_say_on_what_a_map_rests(whole):
    said = " ".join(whole.sentences)
    assert "Nothing is tuned" in said
    assert f"{whole.learnings} were trained" in said
    assert isinstance(whole.left_out, LeftOut)
    (entrant, *_others), seed = whole.evidence.methods, HOW["seed"]
    ratios = [of[seed + 1].epoch_s / of[seed].epoch_s for of in entrant.timed.values()]
    assert max(ratios + [1 / one for one in ratios]) > 1.01
    assert re.search(r"epochs by up to [\d.]+ %: .* of seed 1\.", said)


def test_what_is_saved_is_known_as_its_own(whole, tmp_path: Path):
    first = whole.save(tmp_path / "map")
    assert whole.save(tmp_path / "map") == first
    assert [one.name for one in first] == ["index.html", "explore.csv", "manifest.toml"]


@pytest.mark.parametrize("key", ["cluster", "device"])
def test_files_of_one_name_are_told_apart_wherever_a_map_names_them(whole, key):
    """On axes, in sentences and in tables both were "dev"."""
    files = [f"{place}/dev.toml" for place in range(len(whole.by_point))]
    names = ["dev", *(f"dev ({place + 1})" for place in range(1, len(files)))]
    table = whole.table.assign(**{key: np.repeat(files, len(whole.evidence.labels))})
    found = replace(whole, over={key: tuple(files)}, table=table)
    (told,) = found._data()["keys"]
    assert (told["ticks"], told["words"], told["values"]) == (names, names, files)
    assert {line[2] for line in found.cells[1]} <= {*names} - {"dev"}
    assert map_tables(found)[1].splitlines()[0].split(" | ")[1:-1] == names[:-1]
    assert place_words("", found.over) == ", ".join(names)
