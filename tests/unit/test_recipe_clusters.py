"""A row of a report may have a cluster of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from ampsim.recipes.checking import check_report
from ampsim.recipes.recipe import read_recipe
from ampsim.recipes.redrawing import read_manifest

SLOW = """
flop_per_s = 5e11
jitter_cv = 0.1
sources.flop_per_s = { kind = "assumed", text = "half of the other's" }
sources.jitter_cv = { kind = "assumed", text = "to be seen in the trace" }
"""
ROW = '\n[[schedules]]\nname = "sequential"\nlabel = "slow"\ncluster = "./slow.toml"\n'


@pytest.fixture
def folder(tmp_path, small_recipe) -> Path:
    (tmp_path / "slow.toml").write_text(SLOW)
    (tmp_path / "recipe.toml").write_text(small_recipe + ROW)
    return tmp_path


def faults(folder: Path) -> tuple[str, ...]:
    return check_report(read_recipe(folder), folder).faults


def test_a_row_runs_on_its_own_cluster_and_the_manifest_says_so(folder, make_report):
    findings = make_report(folder)
    plain, slow = findings.table["train_per_s"]
    assert slow == pytest.approx(plain / 2, rel=0.1)
    manifest = read_manifest(folder)
    own, other = (row.get("cluster", {}).get("name") for row in manifest["schedules"][::-1])
    assert (own, other) == ("16 x slow", None)
    charged = {(one["of"], one["what"]) for one in manifest["costs"]}
    assert {("tflops-1", "flop_per_s = 1e+12"), ("slow", "jitter_cv = 0.1")} <= charged
    assert len(charged) == len(manifest["costs"])
    assert faults(folder) == ()
    (folder / "slow.toml").write_text(SLOW.replace("5e11", "6e11"))
    assert faults(folder) == ("the device or cluster file of ./slow.toml has changed",)
    (folder / "slow.toml").unlink()
    (fault,) = faults(folder)
    assert "schedules[1]: cluster: no " in fault


def test_a_page_does_not_name_a_cluster_on_which_no_row_runs(folder, make_report):
    (folder / "slow.toml").write_text('[[device]]\nname = "tflops-10"\ncount = 3\n')
    told = (folder / "recipe.toml").read_text()
    first, _, second = told.partition("[[schedules]]")
    (folder / "recipe.toml").write_text(first + '[[schedules]]\ncluster = "./slow.toml"' + second)
    assert make_report(folder).table["workers"].tolist() == [3, 3]
    page = (folder / "report.md").read_text(encoding="utf-8")
    assert " on slow: 3 workers, 1 repeat of each schedule." in page
    assert {one["of"] for one in read_manifest(folder)["costs"]} == {"tflops-10", "links", "host"}
    assert faults(folder) == ()


def test_a_row_may_have_as_many_workers_as_it_likes(folder, make_report):
    (folder / "slow.toml").write_text('[[device]]\nname = "tflops-1"\ncount = 3\n')
    assert make_report(folder).table["workers"].tolist() == [16, 3]
    page = (folder / "report.md").read_text(encoding="utf-8")
    assert "3 or 16 workers, 1 repeat of each schedule." in page
