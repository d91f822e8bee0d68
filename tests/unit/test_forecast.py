"""Forecasts: options, rows, failures that stay alone, and Ctrl-C."""

import csv
import math
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from pandas.api.types import is_numeric_dtype

import ampsim
from ampsim import (
    EASGD,
    Amp,
    InterleavedOneFOneB,
    PipeDream,
    PipeDream2BW,
    Pipeline,
    Sequential,
    SyncSGD,
    forecast,
    simulate,
)
from ampsim.errors import OptionError, SimulationError
from ampsim.forecasting.forecast import row_values
from ampsim.metric import ACCURACY, Goal
from ampsim.optim import sgd
from ampsim.report.frames import row_labels
from ampsim.report.table import bound_line, to_csv
from ampsim.report.verdict import verdict
from ampsim.runs.rows import TEXTS, row_of, table_of

HEAVY = ((10, 20, 5),) * 2
ALL = [Sequential(), Pipeline(3), Amp(3)]


@pytest.fixture
def model(chain):
    return replace(chain(HEAVY, instances=6, valid=3, rows=4).model(), target=0.99)


@pytest.fixture
def cluster(make_cluster):
    return make_cluster(2)


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("target", 1.5, "target must be an accuracy above 0 and at most 1, got 1.5"),
        ("max_epochs", 0, "max_epochs must be a whole number >= 1, got 0"),
        ("repeats", 0, "repeats must be a whole number >= 1, got 0"),
        ("instances", 0, "instances must be a whole number >= 1, got 0"),
        ("seed", -2, "seed must be a whole number >= 0, got -2; try seed=0"),
        ("mode", "fast", "no mode named 'fast'; known: numeric, sleep"),
    ],
)
def test_an_impossible_option_is_refused(model, cluster, option, value, text):
    with pytest.raises(OptionError, match=f"^{re.escape(text)}"):
        forecast(model, cluster, ALL, **{option: value})


def test_a_forecast_of_no_schedule_is_refused(model, cluster):
    text = "^schedules must name at least one schedule, got none$"
    with pytest.raises(OptionError, match=text):
        forecast(model, cluster, [])


def test_one_schedule_without_a_list_is_refused(model, cluster):
    text = r"^schedules must be a list such as \[ampsim.Sequential\(\), ampsim.Amp\(\)\], got "
    with pytest.raises(OptionError, match=text):
        forecast(model, cluster, ampsim.Amp())  # pyright: ignore  # the mistake


@pytest.mark.parametrize("mode", ["numeric", "sleep"])
@pytest.mark.parametrize(
    ("last", "text"),
    [
        (PipeDream(), "pipedream gives each stage a worker of its own, got 3 stages on 2 workers"),
        (PipeDream2BW(2), "pipedream-2bw gives each stage a worker of its own, got 3 stages on 2"),
        (InterleavedOneFOneB(), "1f1b-interleaved deals stages out in turn, equally many to each"),
        (Amp(min_update_interval={"x": 1}), "min_update_interval: no node that learns named 'x'"),
    ],
)
def test_a_schedule_that_does_not_fit_is_refused_before_anything_runs(chain, last, text, mode):
    told = []
    model = chain(((10, 20, 5),) * 3).model()

    def no_data(seed, count):
        raise AssertionError("data were read")

    with pytest.raises(OptionError, match=f"^{re.escape(text)}"):
        forecast(
            replace(model, make_data=no_data),
            ampsim.load_cluster("tflops-1", workers=2),
            [Sequential(), Amp(3), last],
            mode=mode,
            on_progress=told.append,
        )
    assert told == []


def test_a_placement_decides_whether_a_schedule_fits(chain, make_cluster, tmp_path):
    """On two workers of three, where the file puts two stages on one."""
    place = tmp_path / "p.toml"
    names = [node.name for node in chain(HEAVY).model().graph().nodes[1:]]
    place.write_text("".join(f"{name} = 2\n" for name in names))
    text = "^pipedream gives each stage a worker of its own, got 2 stages on 3 workers"
    with pytest.raises(OptionError, match=text):
        forecast(chain(HEAVY).model(), make_cluster(3), [Amp(), PipeDream()], placement=place)
    made = forecast(
        chain(HEAVY).model(),
        make_cluster(3),
        [Amp(), PipeDream()],
        placement="balanced",  # which asks for data
        max_epochs=1,
    )
    assert made.table["schedule"].tolist() == ["amp", "pipedream"]


def test_a_row_says_what_its_runs_say(model, cluster):
    made = forecast(model, cluster, ALL, max_epochs=2, repeats=3, seed=4)
    assert made.table["schedule"].tolist() == ["sequential", "pipeline", "amp"]
    assert [(run.repeat, run.seed) for run in made.runs] == [(1, 4), (2, 5), (3, 6)] * 3
    assert made.manifest["seeds"] == [4, 5, 6]
    row, runs = made.table.iloc[2], made.runs[6:]
    for name in ("train_per_s", "valid_per_s", "utilisation", "staleness_mean", "makespan_s"):
        assert row[name] == pytest.approx(np.median([getattr(r.result, name) for r in runs]))
    assert row["staleness_max"] == max(run.result.staleness_max or 0 for run in runs)
    assert (row["max_active_keys"], row["min_update_interval"], row["workers"]) == (3, 1, 2)
    assert row["best_accuracy"] == max(run.epochs["accuracy"].max() for run in runs)


def test_columns_of_a_table_hold_numbers_unless_they_are_known_as_text(model, cluster):
    table = forecast(model, cluster, ALL, max_epochs=1).table
    assert {name for name in table if not is_numeric_dtype(table[name])} == set(TEXTS)


def test_a_row_says_what_bounds_its_first_run(model, cluster):
    made = forecast(model, cluster, ALL, max_epochs=2, repeats=2)
    for (_index, row), run in zip(made.table.iterrows(), made.runs[::2], strict=True):
        bounds = run.result.bounds
        shares = {name: getattr(bounds, f"{name}_share") for name in ("worker", "path", "link")}
        assert {name: row[f"{name}_share"] for name in shares} == shares
        named = (row["bound_largest"], row["admission_share"])
        assert named == (bounds.bound_by, bounds.admission_share)
    assert made.table["bound_by"].tolist()[0] == "critical path"


@pytest.mark.parametrize(
    ("largest", "shares", "said"),
    [
        ("worker 3", (0.5, 0.1, 0.0, 0.2), "worker 3"),
        ("critical path", (0.1, 0.49, 0.0, 0.2), "no single thing"),
        (None, (math.nan,) * 4, None),
    ],
)
def test_below_a_half_no_single_thing_bounds_a_row_wherever_it_is_written(
    model, cluster, largest, shares, said
):
    names = ("worker_share", "path_share", "link_share", "admission_share")
    made = forecast(model, cluster, [Amp(3)], max_epochs=1)
    known = replace(made.runs[0], bound_by=largest, **dict(zip(names, shares, strict=True)))
    table = table_of([row_of("amp", Goal(ACCURACY, None), [known])])
    row = row_values(table.to_dict("records")[0])
    assert (row["bound_by"], row["bound_largest"]) == (said, largest)
    cells = next(csv.DictReader(to_csv(table).splitlines()))
    assert (cells["bound_by"], cells["bound_largest"]) == (said or "", largest or "")
    assert ("no single thing" in bound_line(row)) == (said == "no single thing")
    named = known.bound_at if largest == "worker 3" else largest or ""  # a worker by its nodes
    assert named in bound_line(row)


def test_a_run_of_a_forecast_is_a_run_of_its_own(model, cluster):
    made = forecast(model, cluster, [Amp(3)], max_epochs=2, seed=4)
    alone = simulate(model, cluster, Amp(3), epochs=2, seed=4)
    assert made.runs[0].result.digest == alone.digest
    assert made.runs[0].spans.equals(alone.spans)
    assert made.runs[0].staleness.equals(alone.staleness)


def test_a_target_not_reached_is_unknown_with_a_sentence(model, cluster):
    made = forecast(model, cluster, [Sequential()], max_epochs=2, repeats=2)
    row = made.table.iloc[0]
    assert np.isnan(row["time_to_target_s"])
    assert row["repeats_reached"] == 0
    best = 100 * row["best_accuracy"]
    assert row["note"] == f"99 % not reached in 2 of 2 runs within 2 epochs; best {best:.1f} %"


def test_a_target_reached_is_told_by_both_methods(model, cluster):
    made = forecast(model, cluster, [Sequential()], target=1e-9)
    row, epochs = made.table.iloc[0], made.runs[0].epochs
    assert (row["epochs_to_target"], row["note"], row["repeats_reached"]) == (1, "", 1)
    assert row["time_to_target_s"] == epochs["time_s"].iloc[0]
    assert row["time_to_target_formula_s"] == pytest.approx(row["time_to_target_s"])
    assert np.isnan(row["time_to_target_low_s"])


def test_sleep_runs_one_epoch_and_knows_no_accuracy(model, cluster):
    made = forecast(model, cluster, ALL, mode="sleep")
    assert [len(run.epochs) for run in made.runs] == [1, 1, 1]
    assert made.table["best_accuracy"].isna().all()
    assert made.table["note"].tolist() == ["", "", ""]


def test_a_run_that_fails_ends_alone_and_its_row_says_so(chain, cluster):
    model = replace(chain(HEAVY, instances=6).model(), optimizer=sgd(1e100))
    made = forecast(model, cluster, [Pipeline(6), Amp(1)], max_epochs=1)
    assert [run.failure is None for run in made.runs] == [True, False]
    notes = made.table["note"].tolist()
    assert notes[0] == ""
    assert re.match(
        r"1 of 1 runs failed: weights of stage-\d \(Stage\) stopped being fin", notes[1]
    )
    assert made.failures == [f"amp: {made.runs[1].failure}"]
    assert made.table["train_per_s"].isna().tolist() == [False, True]
    assert made.interrupted is None


def test_ctrl_c_keeps_what_finished_and_says_what_did_not(model, cluster):
    def stop(progress):
        if (progress.schedule, progress.repeat) == ("pipeline", 2):
            raise KeyboardInterrupt

    made = forecast(model, cluster, ALL, max_epochs=1, repeats=2, on_progress=stop)
    assert [(run.schedule, run.repeat) for run in made.runs] == [
        ("sequential", 1),
        ("sequential", 2),
        ("pipeline", 1),
    ]
    assert made.interrupted == "interrupted: 3 of 6 runs did not finish (pipeline, amp)"
    assert made.table["schedule"].tolist() == ["sequential", "pipeline"]
    assert made.table["repeats"].tolist() == [2, 1]


def test_ctrl_c_in_the_first_run_leaves_an_empty_table(model, cluster):
    def stop(progress):
        raise KeyboardInterrupt

    made = forecast(model, cluster, ALL, on_progress=stop)
    assert (made.runs, len(made.table)) == ((), 0)
    assert made.interrupted == (
        "interrupted: 3 of 3 runs did not finish (sequential, pipeline, amp)"
    )


def test_an_exception_of_on_progress_is_the_callers_own(model, cluster):
    def fails(progress):
        raise LookupError("mine")

    with pytest.raises(LookupError, match=r"^mine$"):
        forecast(model, cluster, ALL, on_progress=fails)


def test_a_look_at_seeds_that_give_nothing_takes_none_from_those_before(model, cluster):
    """Where no seed at all gives anything, there is no answer."""

    def ask(first_lost):
        def make_data(seed, count):
            if seed >= first_lost:
                raise OSError("no such list")
            return model.make_data(seed, count)

        mine = replace(model, make_data=make_data)
        return forecast(
            mine, cluster, ALL[:2], sure=0.9, target=0.2, max_epochs=2, max_repeats=13
        )  # fmt: skip

    made = ask(2)
    assert {*made.table["repeats"]} == {2}
    assert "too few seeds" in {*made.table["standing"]}
    assert len(made.lost) == 2 * 11
    with pytest.raises(SimulationError, match=r"^sequential, seed 0: make_data .* no such list"):
        ask(0)


def test_a_verdict_counts_the_seeds_that_all_rows_have(model, cluster):
    """A seed that each row lost is another, so that two fewer are compared than were asked for."""
    lost, asked = {(1, 1), (2, 2)}, Counter()

    def make_data(seed, count):
        asked[seed] += 1
        if (seed, asked[seed]) in lost:
            raise OSError("no such list")
        return model.make_data(seed, count)

    mine = replace(model, make_data=make_data)
    made = forecast(mine, cluster, ALL[:2], repeats=3, target=0.2, max_epochs=1)
    assert [run.seed for run in made.runs] == [0, 2, 0, 1]
    assert "1 seed is too few" in verdict(made.table, 0.2, manifest=made.manifest)
    assert " 1 seed ranks none of 2 rows" in verdict(made.table, None, manifest=made.manifest)


def test_progress_counts_every_item_of_every_epoch(model, cluster):
    told = []
    forecast(model, cluster, [Amp(3)], max_epochs=2, on_progress=told.append)
    assert [one.items for one in told if one.is_epoch_end] == [36, 36]
    assert {one.items_total for one in told} == {36}
    assert [one.epoch for one in told if one.is_epoch_end] == [1, 2]
    assert told[0].score is None
    assert (told[0].schedule, told[0].repeat, told[0].repeats) == ("amp", 1, 1)
    assert told[-1].score is not None


def test_two_schedules_of_one_kind_have_a_row_each(model, cluster):
    made = forecast(model, cluster, [Amp(1), Amp(3)], max_epochs=1)
    assert made.table["max_active_keys"].tolist() == [1, 3]
    assert made.table["messages"].tolist() == [run.result.messages for run in made.runs]
    assert "<table" in made._repr_html_()


@pytest.mark.parametrize(
    ("rows", "names", "labels"),
    [
        ([Amp(1), Amp(3)], ["amp", "amp"], ["amp, 1 in flight", "amp, 3 in flight"]),
        ([Amp(3), Amp(3, max_group=2)], *[["amp, max_group 1", "amp, max_group 2"]] * 2),
        (
            [SyncSGD(1, inner="pipeline:2"), SyncSGD(1)],
            *[["sync-sgd, inner pipeline:2", "sync-sgd, inner sequential"]] * 2,
        ),
        ([EASGD(1, period=1), EASGD(1, period=2)], *[["easgd, period 1", "easgd, period 2"]] * 2),
    ],
)
def test_rows_of_one_schedule_are_told_apart_wherever_they_are_named(
    chain, cluster, rows, names, labels
):
    model = replace(chain(HEAVY, instances=6).model(), optimizer=sgd(1e100))
    made = forecast(model, cluster, rows, max_epochs=1)
    assert made.table["schedule"].tolist() == names
    assert row_labels(made.table) == labels
    assert [one.partition(": ")[0] for one in made.failures] == labels
