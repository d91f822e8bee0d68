"""A report that other kernels of linear algebra made is compared where rounding plays no part."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from ampsim.recipes import checking
from ampsim.recipes.beside import witnesses_to_text
from ampsim.recipes.checking import check_again, check_report
from ampsim.recipes.recipe import read_recipe
from ampsim.recipes.redrawing import files_of, read_manifest, read_results, redraw_report
from ampsim.runs.witness import witness_from_plain

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def folder(tmp_path, small_recipe) -> Path:
    (tmp_path / "recipe.toml").write_text(small_recipe.replace("sleep", "numeric"))
    return tmp_path


def faults(folder: Path) -> tuple[str, ...]:
    return check_report(read_recipe(folder), folder).faults


@pytest.mark.slow
def test_other_kernels_of_linear_algebra_leave_out_what_was_learned(
    folder, make_report, monkeypatch
):
    """Rounding moves what is learned, so that only like is compared with like; timing always is."""
    findings = make_report(folder)
    recipe = read_recipe(folder)
    manifest = folder / "manifest.toml"
    made_with = f'linear_algebra = "{findings.manifest["linear_algebra"]}"'
    assert made_with in manifest.read_text()
    relabel(folder, made_with, 'linear_algebra = "another"')

    table = findings.table
    learned = replace(findings, table=table.assign(makespan_s=1.0))
    verdict = check_again(recipe, folder, learned)
    assert verdict.follows
    assert any("made with another, and here is" in note for note in verdict.notes)
    timed = replace(findings, table=table.assign(train_per_s=1.0))
    assert len(check_again(recipe, folder, timed).faults) == 1

    monkeypatch.setattr(checking, "source_digest", lambda: "other")
    witness = folder / "witness.json"
    text = witness.read_text()
    witness.write_text(bend(text, 1 + 1e-4))
    change_hash(manifest, text, witness.read_text())
    assert check_report(recipe, folder).follows
    relabel(folder, 'linear_algebra = "another"', made_with)
    assert "loss of epoch 1 was" in faults(folder)[0]
    relabel(folder, made_with, 'linear_algebra = "another"')
    change_hash(manifest, witness.read_text(), bend(text, 1.05))
    witness.write_text(bend(text, 1.05))
    assert "loss of epoch 1 was" in faults(folder)[0]


def relabel(folder: Path, before: str, after: str) -> None:
    """Let a report say that other kernels made it, on its page, too."""
    manifest, recipe = folder / "manifest.toml", read_recipe(folder)
    manifest.write_text(manifest.read_text().replace(before, after))
    files = files_of(read_manifest(folder))
    redraw_report(read_results(recipe, folder), folder, files)


def bend(witnesses: str, factor: float) -> str:
    """The text of witnesses with other losses."""
    content = json.loads(witnesses)
    for row in content["rows"].values():
        row["numbers"]["loss of epoch 1"] *= factor
    return witnesses_to_text(
        {label: witness_from_plain(one) for label, one in content["rows"].items()}
    )


def change_hash(manifest: Path, before: str, after: str) -> None:
    """Let a manifest name the hash of another text."""
    old, new = (hashlib.sha256(one.encode()).hexdigest() for one in (before, after))
    assert old in manifest.read_text()
    manifest.write_text(manifest.read_text().replace(old, new))


def test_where_nothing_was_learned_kernels_do_not_matter(tmp_path, small_recipe, make_report):
    (tmp_path / "recipe.toml").write_text(small_recipe)
    findings, manifest = make_report(tmp_path), tmp_path / "manifest.toml"
    made_with = findings.manifest["linear_algebra"]
    manifest.write_text(manifest.read_text().replace(made_with, "another"))
    table = findings.table.assign(makespan_s=1.0)
    again = replace(findings, table=table)
    fault, *_ = check_again(read_recipe(tmp_path), tmp_path, again).faults
    assert "report.csv is not what its runs give: makespan_s of sequential is " in fault
