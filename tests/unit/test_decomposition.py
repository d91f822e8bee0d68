"""Why a row is sooner at the target: three factors, whose product is the quotient of the times."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import ampsim
from ampsim.metric import ACCURACY, Goal
from ampsim.runs.rows import COLUMNS, factor_columns, way_of
from ampsim.runs.run import Run

ROWS = [ampsim.Sequential(), ampsim.Pipeline(2), ampsim.Amp(4)]


@pytest.fixture(scope="module", params=[None, 60])
def made(request):
    model = ampsim.load_model("mlp", data="synthetic", hidden=32, batch=20, learning_rate=0.05)
    cluster = ampsim.load_cluster("tflops-1", workers=4)
    return ampsim.forecast(
        model, cluster, ROWS, target=0.4, max_epochs=6, instances=200, repeats=2,
        validate_every=request.param,
    )  # fmt: skip


def test_the_factors_multiply_to_the_speed_up_and_that_is_the_quotient_of_the_times(made):
    table = made.table
    product = table[list(COLUMNS[1:])].prod(axis=1)
    assert product.to_numpy() == pytest.approx(table["speed_up"].to_numpy(), rel=1e-12)
    times = table["time_to_target_s"].to_numpy()
    assert not np.isnan(times).any()
    assert table["speed_up"].to_numpy() == pytest.approx(times[0] / times, rel=1e-12)
    assert table[list(COLUMNS)].iloc[0].tolist() == pytest.approx([1, 1, 1, 1])


def test_each_factor_is_what_the_spans_say(made):
    """Throughput is counted again from the spans of training up to the target, not from epochs."""
    goal = Goal(ACCURACY, 0.4)
    for run in made.runs:
        way = way_of(goal, [run])
        assert way is not None
        result = run.result
        looks = result.validations
        reached = looks[looks["accuracy"] >= 0.4].iloc[0]
        done = looks[looks["time_s"] <= reached["time_s"]]
        spent = 0.0
        for look in done.itertuples():
            start_s = look.time_s - look.valid_s
            spent += look.valid_s
            assert start_s > 0
        assert way.time_s == reached["time_s"]
        assert way.train_s == pytest.approx(way.time_s - spent)
        backward = result.spans[(result.spans["direction"] == "backward")]
        finished = backward[backward["end_s"] <= way.time_s]["instance"].nunique()
        assert way.items == finished * 20


def test_rows_whose_epochs_are_of_other_sizes_are_taken_apart_by_items():
    """Twice the items an epoch, and half the epochs: as many items, at half the throughput."""
    goal, of = Goal(ACCURACY, 0.4), {"valid_s": 1.0, "accuracy": [0.1, 0.2, 0.3, 0.4]}
    table = {"epoch": [1, 2, 3, 4], "time_s": [2, 4, 6, 8], "instances": 100, **of}
    four = Run(epochs=pd.DataFrame(table))
    table |= {"time_s": [5, 10, 15, 20], "instances": 200, "accuracy": [0.1, 0.4, 0.4, 0.4]}
    two = Run(epochs=pd.DataFrame(table))
    _first, found = factor_columns([way_of(goal, [one]) for one in (four, two)])
    assert [found[name] for name in COLUMNS] == pytest.approx([8 / 10, 4 / 8, 1.0, 0.8 / 0.5])


def test_a_row_that_does_not_arrive_has_no_factors():
    assert factor_columns([None, None]) == [dict.fromkeys(COLUMNS)] * 2
    assert factor_columns([]) == []


def test_the_median_run_decides(made):
    goal = Goal(ACCURACY, 0.4)
    runs = [run for run in made.runs if run.schedule == "amp"]
    ways = [way_of(goal, [one]) for one in runs]
    both = way_of(goal, runs)
    assert both is not None
    assert both.time_s == pytest.approx(sum(one.time_s for one in ways if one) / 2)
    never = Goal(ACCURACY, 1.01)
    assert way_of(never, runs) is None
    assert math.isclose(both.share * both.time_s, both.train_s)
