"""A search of a space of few points, all of which are listed, tries each once."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

import ampsim
from ampsim.exploring.axes import Setup
from ampsim.runs import RunCache

pytest.importorskip("optuna", reason="optuna is not installed")

HOW: dict[str, Any] = {
    "over": {"workers": [1, 2, 3], "max_active_keys": [1, 2]}, "minimise": "epoch_s,peak_bytes",
    "instances": 100, "in_flight": 4, "seed": 2,
}  # fmt: skip
POINTS = 2 * 3 * 2 + 3
"""The option is of two schedules of three."""


@pytest.fixture(scope="module")
def setup() -> Setup:
    model = ampsim.load_model("rnn", hidden=4, replicas=1, batch=20)
    schedules = (ampsim.Pipeline(2), ampsim.Amp(2), ampsim.Sequential())
    return Setup(model, ampsim.load_cluster("tflops-1", workers=2), schedules)


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_each_point_is_tried_once(setup, sampler):
    """Points came again: of 9 in 9 trials 6 were tried, and one left out was on the front."""
    for trials in (POINTS, 2 * POINTS):
        made = ampsim.search(*setup, **HOW, trials=trials, sampler=sampler)
        assert len(made.table) == len(made.table.drop_duplicates([*made.keys])) == POINTS


@pytest.mark.parametrize("before", [3, POINTS - 1])
def test_each_point_is_tried_after_a_search_of_fewer(setup, before, tmp_path):
    some = ampsim.search(*setup, **HOW, trials=before, keeping=RunCache(tmp_path))
    every = ampsim.search(*setup, **HOW, trials=POINTS, keeping=RunCache(tmp_path))
    keys = [*every.keys]
    again = some.table.duplicated(keys).sum()  # proposed while not all could be tried
    assert len(every.table) == POINTS + again
    assert len(every.table.drop_duplicates(keys)) == POINTS
    pd.testing.assert_frame_equal(every.table.head(before)[keys], some.table[keys])
    same = ampsim.search(*setup, **HOW, trials=POINTS, keeping=RunCache(tmp_path))
    pd.testing.assert_frame_equal(same.table, every.table)


def test_points_of_another_search_are_among_them(setup, tmp_path):
    """They come first; no point comes once more because it was given."""
    ampsim.search(*setup, **HOW, trials=6, keeping=RunCache(tmp_path))
    how = {**HOW, "minimise": "epoch_s"}
    made = ampsim.search(*setup, **how, trials=POINTS, keeping=RunCache(tmp_path))
    assert len(made.table) == len(made.table.drop_duplicates([*made.keys])) == POINTS


def test_of_more_points_than_trials_as_many_as_trials_are_tried(setup):
    made = ampsim.search(*setup, **HOW, trials=POINTS - 1)
    assert len(made.table) == POINTS - 1
