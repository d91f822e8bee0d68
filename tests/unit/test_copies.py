"""The columns `ranks`, `servers` and `cc_ratio`: in tables, JSON, and reports made and redrawn."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pandas as pd
import pytest

import ampsim
from ampsim.forecasting.forecast import cc_ratio, to_json
from ampsim.recipes.checking import check_report
from ampsim.recipes.recipe import read_recipe
from ampsim.recipes.redrawing import read_results
from ampsim.recipes.results import Results
from ampsim.report.table import column_cells
from ampsim.text import to_toml

COLUMNS = ["ranks", "servers", "cc_ratio"]


def made(model: Any, schedules: Any, **options: Any) -> ampsim.Forecast:
    cluster = ampsim.load_cluster("tflops-1", workers=6)
    return ampsim.forecast(model, cluster, schedules, mode="sleep", instances=200, **options)


def perceptron(**options: Any) -> ampsim.Model:
    return ampsim.load_model("mlp", data="synthetic", hidden=7, **options)


def test_a_forecast_says_last_how_many_copies_and_servers_each_row_has():
    solvers = [
        ampsim.Sequential(),
        ampsim.SyncSGD(),
        ampsim.AsyncSGD(servers=2),
        ampsim.LocalSGD(ranks=2, workers_per_rank=3),
    ]
    found = made(perceptron(), solvers)
    assert list(found.table.columns)[-3:] == COLUMNS
    assert found.table["ranks"].tolist() == [1, 6, 4, 2]
    assert found.table["servers"].tolist() == [0, 0, 2, 0]
    row = json.loads(to_json(found, seed=0))["rows"][2]
    assert list(row)[-3:] == COLUMNS
    assert (row["ranks"], row["servers"]) == (4, 2)
    assert type(row["ranks"]) is type(row["servers"]) is int


def test_the_cc_ratio_is_forward_operations_of_an_image_over_parameters():
    sizes = [(784, 7), (7, 7), (7, 7), (7, 10)]
    products = sum(2 * rows * columns for rows, columns in sizes)
    parameters = sum(rows * columns + columns for rows, columns in sizes)
    (found,) = made(perceptron(), [ampsim.Sequential()]).table["cc_ratio"]
    assert found == pytest.approx(products / parameters, rel=0.01)


def test_an_item_goes_through_one_replica_so_that_a_cc_ratio_hangs_on_no_other():
    one, other = (cc_ratio(ampsim.load_model("rnn", replicas=count)) for count in (1, 4))
    assert one is not None and one > 1
    assert other == pytest.approx(one, rel=1e-12)


@pytest.mark.parametrize("name", ["ggnn", "tree_lstm"])
def test_every_product_of_a_cell_by_gate_has_parameters_of_its_own(name):
    """They draw their first weights from one stream, as replicas do."""
    cells = ("fused", "composed", "by-gate")
    found = {cc_ratio(ampsim.load_model(name, data="synthetic", cell=cell)) for cell in cells}
    assert len(found) == 1
    assert None not in found


def test_without_its_data_a_model_has_no_cc_ratio_and_json_says_null():
    class Gone:
        def __call__(self, seed: int, count: int | None) -> Any:
            if count is None:
                raise RuntimeError("not all of it is here")
            return ampsim.ArrayDataset(([[0.0]] * 9, [0] * 9), ([[0.0]] * 2, [0] * 2), batch=3)

    whole = perceptron()
    data = Gone()
    model = ampsim.Model("m", None, graph, data, ampsim.data.pump_arrays, whole.optimizer)
    found = made(model, [ampsim.Sequential()])
    assert pd.isna(found.table["cc_ratio"].iloc[0])
    assert json.loads(to_json(found, seed=0))["rows"][0]["cc_ratio"] is None


def graph() -> Any:
    from ampsim.ir import Graph
    from ampsim.nodes import Linear, SoftmaxCrossEntropy

    made = Graph("g")
    wire, label = made.controller(x=("rows", 1), label=("rows",))
    made.end(SoftmaxCrossEntropy("loss"), made.add(Linear("linear-1", 1, 2), wire), label)
    return made


def test_all_columns_have_ranks_and_servers():
    unlike = made(perceptron(), [ampsim.Sequential(), ampsim.AsyncSGD(ranks=3)]).table
    _headings, ranks, servers = column_cells(unlike, ["ranks", "servers"])
    assert ranks[1:] == ["1", "3"] and servers[1:] == ["0", "1"]
    other = pd.DataFrame([*unlike.to_dict("records"), {"schedule": "x", "cc_ratio": 55.227}])
    assert column_cells(other, ["cc_ratio"])[1][3] == "55.2"


RECIPE = """
title = "Copies"
model = "mlp"
set = { data = "synthetic", hidden = 7 }
workers = 4
instances = 200
mode = "sleep"
seeds = [0]
epochs = 1
figures = []

[[schedules]]
name = "async-sgd"

[[schedules]]
name = "sync-sgd"
label = "wide"
set = { hidden = 70 }
"""


def test_a_report_has_the_columns_and_has_them_when_it_is_redrawn(tmp_path, make_report):
    (tmp_path / "recipe.toml").write_text(RECIPE)
    table = make_report(tmp_path).table
    assert list(table.columns)[-3:] == COLUMNS
    assert table["ranks"].tolist() == [3, 4]
    assert table["servers"].tolist() == [1, 0]
    assert table["cc_ratio"].nunique() == 2
    results = read_results(read_recipe(tmp_path), tmp_path)
    assert isinstance(results, Results)
    again = results.table
    assert again[COLUMNS].equals(table[COLUMNS])
    assert "| cc\\_ratio |" in (tmp_path / "report.md").read_text()


def test_a_check_counts_copies_and_works_again(tmp_path, make_report):
    """No run tells of them: a report had the CC ratio of a rule that is no more, and followed."""
    (tmp_path / "recipe.toml").write_text(RECIPE)
    make_report(tmp_path)
    recipe, manifest = read_recipe(tmp_path), tmp_path / "manifest.toml"
    assert not check_report(recipe, tmp_path).faults
    manifest.write_text(re.sub(r"(cc_ratio = )(.*)", r"\g<1>2\2", manifest.read_text(), count=1))
    faults = check_report(recipe, tmp_path).faults
    assert any(re.match(r"cc_ratio of async-sgd was 2(.*), and is \1", one) for one in faults)
    manifest.write_text(re.sub(r"cc_ratio = .*", 'cc_ratio = "much"', manifest.read_text()))
    faults = check_report(recipe, tmp_path).faults
    assert any(one.startswith("cc_ratio of async-sgd was 'much', and is ") for one in faults)


def test_what_a_page_says_of_a_solver_is_in_the_order_in_which_its_manifest_is_read(
    tmp_path, make_report
):
    """TOML has `inner` of a row, a table, behind the row's options."""
    (tmp_path / "recipe.toml").write_text(RECIPE)
    rows = make_report(tmp_path).manifest["schedules"]
    again = read_results(read_recipe(tmp_path), tmp_path).manifest["schedules"]
    assert [list(row) for row in rows] == [list(row) for row in again]
    assert all("inner" in row for row in rows)


def test_a_report_that_was_made_without_the_columns_is_redrawn_without_them(tmp_path, make_report):
    (tmp_path / "recipe.toml").write_text(RECIPE)
    columns = list(make_report(tmp_path).table.columns)
    manifest = tomllib.loads((tmp_path / "manifest.toml").read_text())
    for row in manifest["schedules"]:
        del row["copies"]
    (tmp_path / "manifest.toml").write_text(to_toml(manifest))
    results = read_results(read_recipe(tmp_path), tmp_path)
    assert isinstance(results, Results)
    again = results.table
    assert list(again.columns) == columns[:-3]


@pytest.mark.parametrize("jobs", [1, 2])
def test_ranks_that_nobody_named_are_in_flight_whichever_process_ran_them(jobs):
    found = made(perceptron(), ["sync-sgd", "async-sgd"], jobs=jobs).table
    assert found["max_active_keys"].tolist() == found["ranks"].tolist() == [6, 5]
