"""Schedules by name, and a forecast as JSON."""

import dataclasses
import itertools
import json
import math
import re
from typing import get_args, get_type_hints

import pandas as pd
import pytest

import ampsim
from ampsim.cli.methods import OPTIONS, SEVERAL
from ampsim.cli.options import Tuning
from ampsim.errors import AmpsimError, OptionError, UnknownNameError
from ampsim.forecasting import Forecast
from ampsim.forecasting.forecast import KEYS, to_json
from ampsim.model_parallel import SCHEDULES
from ampsim.recipes.recipe import ScheduleEntry
from ampsim.study.schedule_names import (
    METHODS,
    labels_of,
    option_types,
    schedules_of,
    without_effect,
)


@pytest.mark.parametrize("name", METHODS)
def test_every_schedule_is_made_by_its_name(name):
    (made,) = schedules_of(f" {name.upper()} ")
    assert made.name == name


def test_options_go_to_the_schedules_that_take_them():
    made = schedules_of("sequential,pipeline,amp", max_active_keys=3, min_update_interval=5)
    assert made == [ampsim.Sequential(), ampsim.Pipeline(3), ampsim.Amp(3, 5)]
    assert without_effect(made, ["max_active_keys", "min_update_interval"]) == []
    assert without_effect(made[:1], ["max_active_keys"]) == ["max_active_keys"]


def test_a_name_may_say_how_many_are_in_flight_or_how_many_ranks_there_are():
    made = schedules_of("pipeline:4,amp:8,amp:2,local-sgd:2/amp:3", min_update_interval=5)
    assert made[:3] == [ampsim.Pipeline(4), ampsim.Amp(8, 5), ampsim.Amp(2, 5)]
    assert made[3] == ampsim.LocalSGD(2, inner="amp:3")


@pytest.mark.parametrize(
    ("names", "options", "said"),
    [
        ("amp:4", {"max_active_keys": 2}, "amp:4 says max_active_keys itself, got 2 besides"),
        ("amp:x", {}, "schedules must be a schedule's name, or such a name and its max_active"),
        ("sequential:2", {}, "schedules must be a schedule's name, or such a name and its max"),
        ("apm:4", {}, "no schedule named 'apm:4'; did you mean 'amp'"),
        ("dataflow:2", {}, "no schedule that has such a number named 'dataflow'; known: 1f1b"),
        ("amp:4,amp:4", {}, "schedules must differ, got amp:4 twice"),
    ],
)
def test_a_number_that_makes_no_sense_is_one_line(names, options, said):
    with pytest.raises(AmpsimError, match=re.escape(said)):
        schedules_of(names, **options)


def test_unknown_names_are_refused_with_a_suggestion():
    with pytest.raises(UnknownNameError, match=r"no schedule named 'amb'; did you mean 'amp'\?"):
        schedules_of("amb")


@pytest.mark.parametrize("names", ["", "amp,", ",amp"])
def test_empty_names_are_refused(names):
    with pytest.raises(OptionError, match="must be names separated by single commas, got"):
        schedules_of(names)


def test_a_name_that_comes_twice_is_refused():
    with pytest.raises(OptionError, match="schedules must differ, got amp twice"):
        schedules_of("amp,sequential,amp")


def test_options_of_any_schedule_are_passed_by_their_names():
    made = schedules_of("amp,amp-budget,pipedream", staleness_budget=2.5, vertical_sync=True)
    assert made == [
        ampsim.Amp(),
        ampsim.AmpBudget(staleness_budget=2.5),
        ampsim.PipeDream(vertical_sync=True),
    ]
    made = schedules_of("amp,amp-budget", remedy="weight-prediction")
    assert [schedule.weights.remedy for schedule in made] == ["weight-prediction"] * 2
    assert without_effect(made, ["vertical_sync", "remedy"]) == ["vertical_sync"]


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_list_makes_a_schedule_of_each_value_where_the_schedule_reads_it(name):
    lists = {"max_active_keys": [4, 2], "min_update_interval": [8, 9, 10]}
    taken = [
        key for key in lists if key in {one.name for one in dataclasses.fields(SCHEDULES[name])}
    ]
    made = schedules_of(name, **lists)
    wanted = sorted(itertools.product(*(lists[key] for key in taken)))
    assert sorted(tuple(getattr(one, key) for key in taken) for one in made) == wanted
    assert len(set(labels_of(made))) == len(made)


def test_no_two_schedules_have_the_same_label():
    every = [schedules_of(name)[0] for name in METHODS]
    assert labels_of(every) == list(METHODS)
    other = [ampsim.Amp(), ampsim.Amp(remedy="weight-prediction"), ampsim.Amp()]
    assert labels_of(other) == [
        "amp, remedy 'none'", "amp, remedy 'weight-prediction'", "amp, remedy 'none' (2)"
    ]  # fmt: skip


@pytest.mark.parametrize("values", [[], [2, 2]])
def test_a_list_that_is_empty_or_has_a_value_twice_is_refused(values):
    with pytest.raises(OptionError, match="max_active_keys must be a value, or several that diff"):
        schedules_of("amp", max_active_keys=values)


@pytest.mark.parametrize("option", option_types())
def test_every_option_of_a_schedule_reaches_the_command_line_and_recipes(option):
    (on_command_line,) = (one for one in dataclasses.fields(Tuning) if one.name == option)
    declared = get_args(get_type_hints(Tuning)[option])
    assert on_command_line.default is None
    assert declared == (
        str if OPTIONS[option].metavar == SEVERAL else option_types()[option],
        type(None),
    )
    taker = next(name for name, kind in METHODS.items() if option in kind.__dataclass_fields__)
    value = {int: 3, float: 0.5, str: "none", bool: True}[option_types()[option]]
    given = ScheduleEntry.model_validate({"name": taker, option: value})
    assert getattr(given, option) == value


def test_the_command_line_has_no_option_that_no_schedule_takes():
    assert {one.name for one in dataclasses.fields(Tuning)} == set(option_types())
    assert {"max_active_keys", "staleness_budget", "remedy"} <= set(option_types())


def test_an_option_that_makes_no_sense_is_refused_even_if_no_schedule_takes_it():
    with pytest.raises(OptionError, match="staleness_budget must be a number >= 0, got -1"):
        schedules_of("sequential", staleness_budget=-1)
    with pytest.raises(UnknownNameError, match="no remedy named 'x'"):
        schedules_of("sequential", remedy="x")


def test_counts_below_one_are_refused_even_if_no_schedule_takes_them():
    with pytest.raises(OptionError, match="min_update_interval must be a whole number >= 1, got 0"):
        schedules_of("sequential", min_update_interval=0)


def forecast_of(*rows: dict) -> Forecast:
    return Forecast(
        table=pd.DataFrame(rows), runs=(), target=0.97, model="m", cluster="c", workers=2,
        manifest={},
    )  # fmt: skip


def test_json_has_every_key_in_order_with_null_for_unknown():
    text = to_json(forecast_of({"schedule": "amp", "note": ""}), seed=3)
    content = json.loads(text)
    assert content["seed"] == 3
    (row,) = content["rows"]
    assert list(row) == [*KEYS, "note"]
    assert all(row[key] is None for key in KEYS[1:])


def test_json_keeps_whole_numbers_whole_and_halves_half():
    rows = (
        {"schedule": "a", "min_update_interval": None, "epochs_to_target": 7.5, "makespan_s": 1.0},
        {"schedule": "b", "min_update_interval": 4, "epochs_to_target": 7.0, "makespan_s": 2.0},
    )
    first, second = json.loads(to_json(forecast_of(*rows), seed=0))["rows"]
    assert (first["min_update_interval"], second["min_update_interval"]) == (None, 4)
    assert (first["epochs_to_target"], second["epochs_to_target"]) == (7.5, 7)
    assert type(second["min_update_interval"]) is type(second["epochs_to_target"]) is int
    assert type(second["makespan_s"]) is float


def test_json_never_says_nan_or_infinity():
    text = to_json(forecast_of({"schedule": "a", "makespan_s": math.inf, "x": math.nan}), seed=0)
    assert "NaN" not in text
    assert "Infinity" not in text
