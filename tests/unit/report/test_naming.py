"""Names of files made of users' names, and names that are cut."""

from __future__ import annotations

import json
import re
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from ampsim.recipes.recipe import Cell
from ampsim.report.gantt.boxes import rows_for
from ampsim.report.gantt.chart import gantt
from ampsim.report.gantt.view import gantt_view
from ampsim.report.perfetto.trace import Trace, write_perfetto
from ampsim.report.plot import bars
from ampsim.report.plot.convergence import convergence
from ampsim.report.plot.grid import grid_costs
from ampsim.report.plot.plane import plane
from ampsim.report.style import DIRECTIONS
from ampsim.report.table import answer_cells, column_cells, notes
from ampsim.report.verdict import verdict
from ampsim.report.words import slug, told_apart


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("amp", "amp"), ("1F1B", "1f1b"), ("../../x", "x"), ("..", "unnamed"), ("", "unnamed"),
        ("é à", "e-a"), ("日本", "unnamed"), ("a/b\\c:d", "a-b-c-d"), (".hidden", "hidden"),
    ],
)  # fmt: skip
def test_a_slug_is_safe_and_close_to_the_name(name, safe):
    assert slug(name) == safe


def test_a_slug_is_short():
    assert len(slug("x" * 300)) <= 60


ALIKE = [f"{'a' * 40}{letter}{'z' * 40}" for letter in "xyz"]
"""Unlike in the middle alone, where names that are too long are cut."""


def test_names_that_are_cut_are_told_apart_within_their_length():
    for longest in (18, 24, 32, 48):
        shown = told_apart(ALIKE * 2, longest)
        assert list(shown) == ALIKE
        assert len({*shown.values()}) == 3
        assert all(len(one) <= longest for one in shown.values())
    assert told_apart(["b", "a", "b"]) == {"b": "b", "a": "a"}


def written(figure: Figure) -> list[str]:
    """All texts of a figure."""
    figure.draw_without_rendering()
    found: list[Any] = figure.findobj(Text)
    return [one.get_text() for one in found]


def test_rows_whose_names_are_cut_alike_are_told_apart_in_tables_and_sentences(make_table):
    """The same "aaa…zzz" stood thrice."""
    table = make_table(schedule=ALIKE, bound_by=["worker"] * 3, worker_share=[0.9, 0.8, 0.7])
    assert len({*column_cells(table, ["repeats"])[0][1:]}) == 3
    assert len({line[0] for line in answer_cells(table, 0.97)[1:]}) == 3
    assert len({line.partition(":")[0] for line in notes(table)}) == 3
    tied = table.assign(standing="tie", time_ratio_low=1.0, time_ratio_high=1.01)
    assert len({*re.findall(r"a+…z+(?: \(\d\))? (?=\(\d)", verdict(tied, 0.97))}) == 3


def test_rows_whose_names_are_cut_alike_are_told_apart_in_figures(
    figure_1, make_table, make_epochs, make_staleness
):
    table = make_table(schedule=ALIKE, bound_by=["worker"] * 3, worker_share=[0.9, 0.8, 0.7])
    memory = pd.DataFrame(
        {"worker": [0], "time_s": [1.0], "bytes": [3]} | dict.fromkeys(bars.CATEGORIES, 1)
    )
    shares = pd.DataFrame({"worker": [0]} | dict.fromkeys(DIRECTIONS, 0.1))
    nodes = dict(zip(("linear-1", "linear-2", "linear-3"), ALIKE, strict=True))
    for figure in (
        bars.throughput(table),
        bars.bounds(table),
        bars.throughput_over_mak(pd.concat([table, table.assign(max_active_keys=16)])),
        bars.memory_over_time(dict.fromkeys(ALIKE, memory)),
        bars.utilisation(dict.fromkeys(ALIKE, shares)),
        bars.staleness_histogram(dict.fromkeys(ALIKE, make_staleness("amp"))),
        bars.staleness_histogram({"amp": make_staleness("amp").replace(nodes)}),
        plane(table, 1000),
        convergence({name: [make_epochs("amp", 0)] for name in ALIKE}, target=0.97),
        gantt(dict(zip(ALIKE, figure_1.values(), strict=True)), workers=3),
    ):
        named = {re.sub(r"^\(\w\) ", "", one) for one in written(figure) if "a…z" in one}
        assert len(named) == 3, named
    view = gantt_view(dict(zip(ALIKE, figure_1.values(), strict=True)), workers=3)
    assert len({one["name"] for one in view.data["schedules"]}) == 3
    assert len({one.name for one in view.panels}) == 3


def test_devices_whose_names_are_cut_alike_are_told_apart(figure_1):
    rows = rows_for([figure_1["amp"]], (0.0, 1.0), 3, ALIKE)
    assert len({*rows.devices}) == len({name for name, *_ in rows.groups}) == 3


def test_nodes_whose_names_are_cut_alike_have_each_their_own_counter(figure_1, tmp_path):
    """As parameters deep in a network of PyTorch: versions of all of them were one counter."""
    spans = figure_1["amp"]
    spans["node"] = spans["node"].astype(str).replace({f"linear-{k}": ALIKE[k] for k in range(3)})
    own = spans[spans["direction"] == "update"]
    updates = own[["node"]].assign(time_s=own["end_s"], staleness=0.0, staleness_max=0)
    trace = Trace("amp", 3, lambda: [spans], lambda: [updates], pd.DataFrame({"time_s": []}))
    write_perfetto([trace], tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    for node in ALIKE:
        counted = [e["args"]["updates"] for e in events if e["name"] == f"version {node}"]
        assert counted == list(range(1, 1 + sum(own["node"] == node)))
        assert any(event["name"] == f"{node} forward" for event in events)
    assert gantt_view({"amp": spans}, workers=3).data["nodes"] == ALIKE


def test_cluster_files_of_one_name_in_two_folders_are_two_columns():
    """Both columns of a report's grid were called "gpu"."""
    cells = [Cell(0, "amp", cluster) for cluster in ("a/gpu.toml", "b/gpu.toml")]
    costs, *_ = grid_costs(pd.DataFrame({"train_per_s": [1.0, 2.0]}), cells)
    assert list(costs.values.columns) == ["gpu", "gpu (2)"]
