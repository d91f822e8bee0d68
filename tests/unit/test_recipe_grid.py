"""Rows over a grid of hardware, and what is said of a grid or map that makes no sense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ampsim.errors import FileFormatError
from ampsim.recipes.checking import check_report
from ampsim.recipes.recipe import read_recipe
from ampsim.recipes.redrawing import read_manifest
from ampsim.recipes.rows import make_rows

HEAD = """
title = "A test"
model = "mlp"
set = { hidden = 4, data = "synthetic" }
mode = "sleep"
instances = 300
epochs = 1
workers = 2
figures = ["heat-map", "grid-cost"]
"""
GRID = """
[grid]
workers = [2, 4]
latency_s = [1e-6, 8e-6]
"""
MAP = """
[heat_map]
across = "latency_s"
down = "workers"
ours = ["amp"]
"""
ROWS = """
[[schedules]]
name = "amp"

[[schedules]]
name = "1f1b"
workers = 4
max_active_keys = 4

[[schedules]]
name = "pipeline"
label = "alone"
max_active_keys = 4
workers = 3
latency_s = 0.0
"""
GOOD = HEAD + GRID + MAP + ROWS


@pytest.fixture
def write(tmp_path):
    """`write(GOOD)` puts a recipe into a folder and gives the folder."""

    def put(content: str) -> Path:
        (tmp_path / "recipe.toml").write_text(content)
        return tmp_path

    return put


def refusal(folder: Path) -> str:
    with pytest.raises(FileFormatError) as caught:
        make_rows(read_recipe(folder))
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    return text.removeprefix(f"{folder / 'recipe.toml'}: ")


def test_rows_are_multiplied_by_what_they_do_not_name_themselves(write):
    recipe = read_recipe(write(GOOD))
    rows = make_rows(recipe).rows
    clusters = [(row.plan.cluster.workers, row.plan.cluster.link.latency_s) for row in rows]
    assert clusters == [(2, 1e-6), (2, 8e-6), (4, 1e-6), (4, 8e-6), (4, 1e-6), (4, 8e-6), (3, 0.0)]
    assert [row.label for row in rows] == [
        "amp, 2 workers, 1.00 µs",
        "amp, 2 workers, 8.00 µs",
        "amp, 4 workers, 1.00 µs",
        "amp, 4 workers, 8.00 µs",
        "1f1b, 1.00 µs",
        "1f1b, 8.00 µs",
        "alone",
    ]
    assert [cell.index for cell in recipe.cells] == [0, 0, 0, 0, 1, 1, 2]
    assert [cell.is_whole for cell in recipe.cells] == [True] * 4 + [False] * 3
    assert recipe.cells[4].point == {"latency_s": 1e-6, "workers": 4}


def test_a_row_may_name_all_of_its_hardware(write):
    own = 'cluster = "tflops-10"\nbandwidth_bytes_per_s = 1e9\ntopology = "ring"\nworkers = 5'
    content = HEAD + ROWS.replace("workers = 3", own)
    cluster: Any = make_rows(read_recipe(write(content))).rows[2].plan.cluster
    assert (cluster.devices[0].name, cluster.workers, len(cluster.network.edges)) == (
        "tflops-10", 5, 5,
    )  # fmt: skip
    assert cluster.link.bandwidth_bytes_per_s == 1e9


def test_the_topology_of_a_recipe_is_that_of_all_rows(write):
    content = HEAD.replace("workers = 2", 'workers = 4\ntopology = "star"') + ROWS
    rows: Any = make_rows(read_recipe(write(content))).rows
    assert [row.plan.cluster.topology.kind for row in rows] == ["star"] * 3


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (GRID, "\n[grid]\n", "grid must have a list for one of cluster, workers, latency_s, band"),
        ("[2, 4]", "[2]", "grid.workers must be a list of at least one, got [2]"),
        ("[2, 4]", "[2, 0]", "grid.workers[1] must be >= 1, got 0"),
        ("[2, 4]", "[2, 2]", "grid.workers must differ in three digits, got [2, 2]"),
        ("8e-6]", "1.0001e-6]", "grid.latency_s must differ in three digits, got [1e-06, 1.0001e"),
        ("8e-6]", "-1.0]", "schedules[0] at 2 workers, -1.00 s: cluster: latency_s must be >= 0"),
        ("latency_s = [1", "latncy_s = [1", "unknown key 'latncy_s' in grid; did you mean 'late"),
        (
            "workers = [2, 4]",
            "workers = [2, 4]\ncluster = ['tflops-1', 'tflops-2']",
            "heat_map has no place for grid.cluster; make it across, down or panels",
        ),
        (
            "latency_s = [1e-6, 8e-6]",
            f"latency_s = {[one * 1e-6 for one in range(1, 999)]}",
            "grid must give at most 2000 rows, got 2995; give fewer values",
        ),
        ('down = "workers"', 'down = "topology"', "heat_map.down: no list of the grid named 'topo"),
        ('down = "workers"', 'down = "speed"', "heat_map.down must be 'cluster', 'workers', "),
        (
            'down = "workers"',
            'down = "latency_s"',
            "heat_map: across, down and panels must differ, got latency_s, latency_s",
        ),
        ('ours = ["amp"]', 'ours = ["apm"]', "heat_map.ours[0]: no row named 'apm'; did you mean"),
        ('ours = ["amp"]', "ours = []", "heat_map.ours must be a list of at least one, got []"),
        (
            'ours = ["amp"]',
            'ours = ["amp", "1f1b", "alone"]',
            "heat_map.ours must leave a row to compare with",
        ),
        (GRID, "", "heat_map needs a grid, whose keys are its axes; add [grid]"),
        ("[2, 4]", '["two", 4]', "grid.workers[0] must be a whole number, got 'two'"),
        ("workers = 3", "workers = 0", "schedules[2].workers must be >= 1, got 0"),
        (
            "workers = 3",
            'topology = "rnig"',
            "schedules[2] at 2 workers, 0 s: cluster: no topology named",
        ),
        (
            'name = "amp"\n',
            'name = "amp"\nlabel = "1f1b"\n',
            "heat_map.ours[0]: no row named 'amp'",
        ),
    ],
)
def test_a_grid_or_map_that_makes_no_sense_is_refused(before, after, said, write):
    assert before in GOOD
    assert refusal(write(GOOD.replace(before, after, 1))).startswith(said)


def test_a_report_over_a_grid_is_written_follows_and_is_drawn_again(write, make_report):
    folder = write(GOOD)
    findings = make_report(folder)
    assert findings.table["workers"].tolist() == [2, 2, 4, 4, 4, 4, 3]
    page = (folder / "report.md").read_text(encoding="utf-8")
    assert "2, 3 or 4 workers, 1 repeat of each schedule." in page
    assert "## Point by point" in page
    assert (folder / "heat-map.png").is_file()
    manifest = read_manifest(folder)
    assert manifest["schedules"][6]["cluster"]["workers"] == 3
    assert check_report(read_recipe(folder), folder).faults == ()
