"""What each cluster costs each schedule, against a table made by hand."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from ampsim.recipes.recipe import Cell
from ampsim.report.plot.grid import costs_cells, costs_verdict, grid_cost, grid_costs

RATES = {"amp": (200.0, 150.0), "pipeline": (100.0, 50.0), "alone": (7.0,)}
TIMES = {"amp": (2.0, 3.0), "pipeline": (None, None), "alone": (1.0,)}


@pytest.fixture
def costs() -> Any:
    cells, records = [], []
    for label, rates in RATES.items():
        for place, rate in enumerate(rates):
            cluster = ("usual", "./one-slow.toml")[place] if label != "alone" else None
            cells.append(Cell(0, label, cluster))
            records.append({"train_per_s": rate, "time_to_target_s": TIMES[label][place]})
    return grid_costs(pd.DataFrame(records), cells)


def test_only_rows_on_every_cluster_and_schedules_with_a_number_are_shown(costs):
    rates, times = costs
    assert [*map(list, rates.values.axes)] == [["amp", "pipeline"], ["usual", "one-slow"]]
    assert rates.values.to_numpy().tolist() == [[200.0, 150.0], [100.0, 50.0]]
    assert (times.measure.column, list(times.values.index)) == ("time_to_target_s", ["amp"])
    assert [*rates.ratios["one-slow"], *times.ratios["one-slow"]] == [0.75, 0.5, 1.5]


def test_clusters_whose_long_names_are_cut_to_one_are_two_columns():
    names = [f"./sixteen-devices-{rate}-gbit-fair-sharing.toml" for rate in (10, 40)]
    table = pd.DataFrame({"train_per_s": [100.0, 400.0]})
    (found,) = grid_costs(table, [Cell(0, "amp", name) for name in names])
    assert len({*found.values.columns}) == 2
    assert costs_cells(found)[1] == ["amp", "100 /s", "400 /s (4.00×)"]
    assert costs_verdict([found]).startswith("Training throughput is 4.00 times")
    assert [text.get_text() for text in grid_cost([found]).axes[0].texts] == ["100 /s", "4.00×"]


def test_cells_have_the_value_and_the_ratio_to_the_first_point(costs):
    assert costs_cells(costs[0]) == [
        ["schedule", "usual", "one-slow"],
        ["amp", "200 /s", "150 /s (0.75×)"],
        ["pipeline", "100 /s", "50.0 /s (0.50×)"],
    ]


def test_the_verdict_names_the_smallest_and_the_largest_ratio_of_each_measure(costs):
    assert costs_verdict(costs) == (
        "Training throughput is 0.50 times (pipeline, one-slow) to 0.75 times (amp, one-slow) that "
        "of usual. Time to the target is 1.50 times (amp, one-slow) that of usual."
    )


def test_what_is_worse_is_orange_and_what_is_better_blue(costs):
    panels: Any = grid_cost(costs).axes
    texts = [text.get_text() for axes in panels for text in axes.texts]
    assert texts == ["200 /s", "0.75×", "100 /s", "0.50×", "2.00 s", "1.50×"]
    slow = panels[0].patches[1].get_facecolor()
    late = panels[1].patches[1].get_facecolor()
    assert slow[0] > slow[2] and late[0] > late[2]
    assert not math.isnan(sum(slow))


def test_a_value_whose_first_one_is_unknown_stands_there_itself():
    times = pd.DataFrame({"time_to_target_s": [None, 2.0]}, dtype=float)
    (found,) = grid_costs(times, [Cell(0, "amp", name) for name in ("usual", "fast")])
    assert costs_cells(found)[1] == ["amp", "–", "2.00 s"]
    assert [text.get_text() for text in grid_cost([found]).axes[0].texts] == ["–", "2.00 s"]


def test_a_small_ratio_is_not_called_nothing():
    rates = pd.DataFrame({"train_per_s": [1e6, 1234.0]})
    (found,) = grid_costs(rates, [Cell(0, "amp", name) for name in ("usual", "slow")])
    assert costs_cells(found)[1] == ["amp", "1.00 M/s", "1.23 k/s (0.0012×)"]
    assert costs_verdict([found]).startswith("Training throughput is 0.0012 times (amp, slow)")
    assert [text.get_text() for text in grid_cost([found]).axes[0].texts] == ["1.00 M/s", "0.0012×"]
