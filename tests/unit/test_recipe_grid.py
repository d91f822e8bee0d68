"""Rows on several clusters, and what is said of a grid that makes no sense."""

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
figures = ["grid-cost"]
"""
SLOW = """
name = "slow"
flop_per_s = 1e11
sources.flop_per_s = { kind = "assumed", text = "a test" }
"""
GRID = """
[grid]
cluster = ["tflops-1", "./slow.toml"]
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
cluster = "tflops-10"
"""
GOOD = HEAD + GRID + ROWS


@pytest.fixture
def write(tmp_path):
    """`write(GOOD)` puts a recipe into a folder and gives the folder."""

    def put(content: str) -> Path:
        (tmp_path / "recipe.toml").write_text(content)
        (tmp_path / "slow.toml").write_text(SLOW)
        return tmp_path

    return put


def refusal(folder: Path) -> str:
    with pytest.raises(FileFormatError) as caught:
        make_rows(read_recipe(folder))
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    return text.removeprefix(f"{folder / 'recipe.toml'}: ")


def test_every_row_that_names_no_cluster_is_run_on_each(write):
    recipe = read_recipe(write(GOOD))
    rows = make_rows(recipe).rows
    clusters = [(row.plan.cluster.workers, row.plan.cluster.devices[0].name) for row in rows]
    assert clusters == [
        (2, "tflops-1"), (2, "slow"), (4, "tflops-1"), (4, "slow"), (3, "tflops-10"),
    ]  # fmt: skip
    assert [row.label for row in rows] == [
        "amp, tflops-1", "amp, slow", "1f1b, tflops-1", "1f1b, slow", "alone",
    ]  # fmt: skip
    assert [cell.index for cell in recipe.cells] == [0, 0, 1, 1, 2]
    assert [cell.cluster for cell in recipe.cells] == ["tflops-1", "./slow.toml"] * 2 + [None]


def test_a_row_may_name_all_of_its_hardware(write):
    own = 'bandwidth_bytes_per_s = 1e9\ntopology = "ring"\nworkers = 5'
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
        (GRID, "\n[grid]\n", "missing key 'grid.cluster'; add it to grid"),
        ('"tflops-1", "./slow.toml"', '"tflops-1"', "grid.cluster must be a list of at least one"),
        ('"./slow.toml"', '"tflops-1"', "schedules[0] at tflops-1: label 'amp, tflops-1' comes tw"),
        ('"./slow.toml"', '"tflops"', "schedules[0] at tflops: cluster: no "),
        ("cluster = [", "workers = [2, 4]\ncluster = [", "unknown key 'workers' in grid"),
        ("workers = 3", "workers = 0", "schedules[2].workers must be >= 1, got 0"),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused(before, after, said, write):
    assert before in GOOD
    assert refusal(write(GOOD.replace(before, after, 1))).startswith(said)


def test_a_report_on_several_clusters_is_written_follows_and_is_drawn_again(write, make_report):
    folder = write(GOOD)
    findings = make_report(folder)
    assert findings.table["workers"].tolist() == [2, 2, 4, 4, 3]
    page = (folder / "report.md").read_text(encoding="utf-8")
    assert (
        "mlp on tflops-1, slow and tflops-10: 2, 3 or 4 workers, 1 repeat of each schedule." in page
    )
    assert "## Training throughput" in page
    assert (folder / "grid-cost.png").is_file()
    manifest = read_manifest(folder)
    assert manifest["schedules"][4]["cluster"]["workers"] == 3
    assert check_report(read_recipe(folder), folder).faults == ()
