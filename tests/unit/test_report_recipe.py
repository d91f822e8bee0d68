"""Recipes run, resumed, written up and checked."""

from __future__ import annotations

import shutil
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from unpainted import no_paint

from ampsim.errors import FileFormatError
from ampsim.recipes import checking, running
from ampsim.recipes.checking import check_again, check_report
from ampsim.recipes.recipe import Published, read_recipe
from ampsim.recipes.redrawing import read_manifest
from ampsim.recipes.results import compare, line_names
from ampsim.recipes.running import InterruptedReport, RecipeOptions, run_recipe
from ampsim.study import provenance
from ampsim.study.provenance import meaning_of, source_digest

RECIPE = """
title = "A *small* test"
text = "Some **words**."
model = "rnn"
set = { hidden = 4, replicas = 1 }
instances = 100
epochs = 1
target = 0.97
seeds = [0, 1]
figures = ["throughput", "convergence"]

[[schedules]]
name = "amp"
label = "amp, mak 1"
max_active_keys = 1

[[schedules]]
name = "amp"
label = "amp, mak 4"
max_active_keys = 4

[[published]]
schedule = "amp, mak 1"
quantity = "train_per_s"
value = 13_000
source = "AMPNet, Table 2"

[[published]]
schedule = "amp, mak 4"
quantity = "train_per_s"
value = 16_000
source = "AMPNet, Table 2"
"""


def refuse(progress) -> None:
    pytest.fail(f"a run that is kept was made again: {progress}")


def faults(folder: Path) -> tuple[str, ...]:
    return check_report(read_recipe(folder), folder).faults


@pytest.fixture(scope="module")
def made(tmp_path_factory, make_report) -> tuple[Path, Any]:
    """The report of `RECIPE`, unpainted, with its kept runs, and what they gave; to be copied."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "recipe.toml").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        no_paint(patch)
        return folder, make_report(folder)


@pytest.fixture
def report(made, folder) -> Path:
    """A copy of it, where the user is."""
    return Path(shutil.copytree(made[0], folder, dirs_exist_ok=True))


@pytest.mark.slow
def test_a_report_is_page_tables_figures_and_a_manifest_of_their_hashes(made, folder, make_report):
    shutil.copytree(made[0] / ".runs", folder / ".runs")
    findings = make_report(folder)
    names = {path.name for path in folder.iterdir()}
    pictures = {"throughput.png", "convergence.png"}
    others = {
        "recipe.toml",
        "report.md",
        "report.csv",
        "epochs.csv",
        "published.csv",
        "manifest.toml",
        "witness.json",
        "outlines.json",
        ".runs",
    }
    assert names == pictures | others
    manifest = tomllib.loads((folder / "manifest.toml").read_text())
    assert set(manifest["files"]) == names - {"recipe.toml", "manifest.toml", ".runs"}
    assert manifest["command"] == ["ampsim", "report", folder.name]
    assert (manifest["seeds"], manifest["code"]) == ([0, 1], source_digest())
    assert manifest["recipe"]["sha256"] == read_recipe(folder).sha256
    page = (folder / "report.md").read_text()
    assert page.startswith("# A \\*small\\* test\n\nSome **words**.\n\n**amp, mak 4 trains ")
    for said in ("| 1.2× |", "AMPNet, Table 2", "![", "16 workers, target 97 %", "2 repeats"):
        assert said in page
    assert findings.table["repeats"].tolist() == [2, 2]
    assert (folder / ".runs" / ".gitignore").read_text() == "*\n"
    assert check_report(read_recipe(folder), folder).follows


@pytest.mark.slow
def test_a_report_that_was_interrupted_goes_on_where_it_was(folder, made):
    def stop(progress):
        if (progress.schedule, progress.repeat) == ("amp, mak 1", 2):
            raise KeyboardInterrupt

    recipe = read_recipe(folder)
    with pytest.raises(InterruptedReport, match=r"^interrupted: 1 of 4 runs are kept; run again"):
        run_recipe(recipe, folder, RecipeOptions(on_progress=stop))
    said: list[str] = []
    told = []
    resumed = run_recipe(recipe, folder, RecipeOptions(on_progress=told.append, say=said.append))
    assert said == ["amp, mak 1, seed 0: kept from before"]
    assert {(one.schedule, one.repeat) for one in told} == {
        ("amp, mak 1", 2), ("amp, mak 4", 1), ("amp, mak 4", 2),
    }  # fmt: skip
    said.clear()
    kept = run_recipe(recipe, folder, RecipeOptions(on_progress=refuse, say=said.append))
    assert len(said) == 4
    for other in (kept, made[1]):
        pd.testing.assert_frame_equal(resumed.table, other.table)
        for run, again in zip(resumed.runs, other.runs, strict=True):
            for name in ("epochs", "spans", "staleness"):
                pd.testing.assert_frame_equal(getattr(run, name), getattr(again, name))


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_kept_run_that_is_damaged_or_decided_by_something_else_is_run_again(report, make_report):
    for path in (report / ".runs").glob("*/numbers.json"):
        path.write_text(path.read_text()[:-20])
    said: list[str] = []
    make_report(report, say=said.append)
    assert len(said) == 4
    refused = "its kept run is not taken, it is run again: numbers.json is not as it was written"
    assert said[0] == f"amp, mak 1, seed 0: {refused}"
    said.clear()
    (report / "recipe.toml").write_text(RECIPE.replace("[0, 1]", "[0]").replace("= 4\n", "= 5\n"))
    make_report(report, say=said.append)
    assert said == ["amp, mak 1, seed 0: kept from before"]


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_report_follows_no_more_when_what_it_rests_on_has_changed(
    folder, monkeypatch, make_report, request
):
    assert faults(folder) == ("it was never made: there is no manifest.toml",)
    request.getfixturevalue("report")
    assert faults(folder) == ()
    (folder / "recipe.toml").write_text(RECIPE + "\n# a word\n")
    assert faults(folder) == ("the recipe has changed",)
    (folder / "recipe.toml").write_text(RECIPE)
    page = (folder / "report.md").read_text()
    (folder / "report.md").write_text(page.replace("words", "lies"))
    (folder / "report.csv").unlink()
    assert set(faults(folder)) == {"report.md is not as it was written", "report.csv is missing"}
    (folder / "report.md").unlink()  # else it is refused, for it was changed
    make_report(folder)
    manifest = (folder / "manifest.toml").read_text()
    mine = read_manifest(folder)
    for old, fault in [
        (mine["recipe"]["sha256"], "the recipe has changed"),
        (mine["cluster"]["sha256"], "the device or cluster file of tflops-1 has changed"),
    ]:
        (folder / "manifest.toml").write_text(manifest.replace(old, "0" * 64))
        assert faults(folder) == (fault,)
    (folder / "manifest.toml").write_text(manifest)
    monkeypatch.setattr(checking, "source_digest", lambda: "0" * 64)
    monkeypatch.setattr(running, "source_digest", lambda: "0" * 64)
    recipe = read_recipe(folder)
    verdict = check_again(recipe, folder, run_recipe(recipe, folder))
    assert (verdict.faults, verdict.notes) == ((), ("ampsim's code has changed",))


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_report_says_on_how_many_learnings_it_rests_but_of_versions_that_did_not(folder):
    """Rows of mode sleep learn nothing, though they share an order."""
    draining = RECIPE.partition("[[published]]")[0].replace("keys = 1", "keys = 4")
    draining = draining.replace('"amp"', '"pipeline"', 1).replace('"amp"', '"gpipe"', 1)
    asleep = '[[schedules]]\nname = "{}"\nmax_active_keys = 4\nmode = "sleep"\n'
    draining += asleep.format("pipeline") + asleep.format("gpipe")
    (folder / "recipe.toml").write_text(draining)
    recipe = read_recipe(folder)
    findings = run_recipe(recipe, folder)
    without = tuple(replace(one, learning_digest="") for one in findings.runs)
    for runs, has_digests in ((findings.runs, True), (without, False)):
        replace(findings, runs=runs).save(folder)
        said = "4 runs rest on 2 learnings" in (folder / "report.md").read_text()
        assert said == has_digests
        assert ("learning_digest" in (folder / "outlines.json").read_text()) == has_digests
        assert check_again(recipe, folder, findings).follows
        assert check_report(recipe, folder).follows


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_numbers_that_differ_are_named(made, report):
    folder, findings = report, made[1]
    recipe = read_recipe(folder)
    assert check_again(recipe, folder, findings).follows
    changed = findings.table.assign(
        train_per_s=findings.table["train_per_s"] * 1.001,
        makespan_s=findings.table["makespan_s"] * 1.001,
    )
    again = replace(findings, table=changed)
    said = check_again(recipe, folder, again).faults
    assert said[0].startswith("report.csv is not what its runs give: train_per_s of amp, mak 1 is ")
    assert any(one.startswith("report.md is not what its runs give: line ") for one in said)
    fewer = replace(findings, table=findings.table.iloc[:1])
    (fault, *_) = check_again(recipe, folder, fewer).faults
    assert fault == "report.csv is not what its runs give: line 3 has '\"amp, mak ' in place of ''"
    (folder / "report.csv").write_text("mine")
    assert check_again(recipe, folder, findings).faults == ("report.csv is not as it was written",)


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_figure_that_the_recipe_no_longer_names_is_removed(report, make_report):
    assert (report / "throughput.png").exists()
    (report / "mine.png").write_bytes(b"mine")
    (report / "recipe.toml").write_text(RECIPE.replace('"throughput", ', ""))
    make_report(report)
    assert not (report / "throughput.png").exists()
    assert (report / "mine.png").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_row_in_mode_sleep_is_throughput_only(report, make_report):
    folder = report
    first = 'label = "amp, mak 1"\n'
    (folder / "recipe.toml").write_text(RECIPE.replace(first, f'{first}mode = "sleep"\n'))
    findings = make_report(folder)
    assert findings.table["note"].iloc[0] == "throughput only: one epoch without numbers"
    assert "97 % not reached in 2 of 2 runs" in findings.table["note"].iloc[1]
    page = (folder / "report.md").read_text()
    verdict = page.split("\n\n")[2]
    assert "mak 1" not in verdict
    assert "It did not reach 97 %" in verdict
    assert list(findings.table["standing"].fillna("")) == ["not compared", ""]
    assert "\n| **" not in page  # no row is called


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_nobody_is_first_before_a_row_in_mode_sleep(folder, make_report):
    """It was not trained: that it has no time to the target says nothing of its schedule."""
    last = 'label = "amp, mak 4"\n'
    recipe = RECIPE.replace("[0, 1]", "[0, 1, 2, 3, 4]").replace("target = 0.97", "target = 0.05")
    (folder / "recipe.toml").write_text(recipe.replace(last, f'{last}mode = "sleep"\n'))
    table = make_report(folder).table
    assert list(table["repeats_reached"]) == [5, 0]
    assert list(table["standing"].fillna("")) == ["", "not compared"]
    assert table["order_flip_probability"].isna().all()
    cells = (folder / "report.md").read_text().split("| schedule |")[1]
    assert "| first |" not in cells and "| missed |" not in cells and "| unranked |" in cells


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_run_that_fails_is_kept_with_its_reason(folder, make_report):
    bad = RECIPE.replace("hidden = 4,", "hidden = 4, learning_rate = 1e30,").replace("0, 1", "0")
    (folder / "recipe.toml").write_text(bad)
    failures = make_report(folder).failures
    assert len(failures) == 2
    assert all(line.startswith("amp, mak ") for line in failures)
    assert (
        run_recipe(read_recipe(folder), folder, RecipeOptions(on_progress=refuse)).failures
        == failures
    )


def test_published_numbers_stand_beside_simulated_ones_with_their_ratios():
    table = pd.DataFrame(
        {"schedule": ["a", "b", "c"], "train_per_s": [10.0, 30.0, None], "best_error": [2.0, 1, 4]}
    )
    numbers = [("a", "train_per_s", 5.0), ("b", "train_per_s", 10.0), ("c", "train_per_s", 20.0)]
    numbers.append(("b", "best_error", 4.0))
    keys = ("schedule", "quantity", "value")
    published = [
        Published.model_validate(dict(zip(keys, one, strict=True)) | {"source": "P"})
        for one in numbers
    ]
    found = compare(table, published)
    assert found["simulated_per_published"].tolist()[:2] == [2.0, 3.0]
    assert found["published_ratio"].tolist() == [1.0, 2.0, 4.0, 1.0]
    assert found["simulated_ratio"].tolist()[:2] == [1.0, 3.0]
    assert found["simulated"].isna().tolist() == [False, False, True, False]
    assert compare(table, []).empty


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "^it was never made: there is no manifest.toml$"),
        ("a = ", r"^manifest\.toml cannot be read: Invalid value"),
        ("a = " + "[" * 20_000, r"^manifest\.toml cannot be read: "),
        ('kind = "run"', r"^manifest\.toml is not that of a report of this version$"),
    ],
)
def test_what_is_no_manifest_of_a_report_is_told(tmp_path, content, said):
    if content is not None:
        (tmp_path / "manifest.toml").write_text(content)
    with pytest.raises(FileFormatError, match=said):
        read_manifest(tmp_path)


def test_comments_docstrings_and_layout_do_not_change_what_code_means():
    plain = "def f(a: int = 1) -> str:\n    return f'{a}'\n"
    told = '"""Module."""\n\n\ndef f(\n    a: int = 1,  # one\n) -> str:\n    """Doc."""\n'
    told += '    return f"{a}"'
    assert meaning_of(plain) == meaning_of(told)
    assert meaning_of(plain) != meaning_of(plain.replace("= 1", "= 2"))
    assert meaning_of("'text'") == meaning_of("")


def test_lines_of_a_recipe_tell_options_that_no_column_shows(folder):
    entry = 'label = "amp, mak 4"\n'
    assert entry in RECIPE
    more = f'{entry}remedy = "weight-prediction"\nset = {{ decay = 0.5, replicas = 1 }}\n'
    (folder / "recipe.toml").write_text(RECIPE.replace(entry, more))
    file = read_recipe(folder).file
    assert line_names(file) == ["amp", "amp, remedy weight-prediction, decay 0.5"]


@pytest.mark.parametrize("kept", [None, "", "of another kind", "no folder"])
def test_the_hash_of_the_code_is_kept_and_read_again_where_it_is_whole(monkeypatch, tmp_path, kept):
    folder = tmp_path / "ampsim"
    monkeypatch.setattr(provenance, "cache_folder", lambda: folder)
    digest = source_digest.__wrapped__
    place = folder / "code" / provenance.code_digest()
    if kept == "no folder":
        folder.write_text("a file", encoding="utf-8")
    elif kept is not None:
        place.parent.mkdir(parents=True)
        place.write_text(kept, encoding="utf-8")
    monkeypatch.setattr(provenance, "meaning_of", lambda source: "as before" if source else "")
    found = digest()
    monkeypatch.setattr(provenance, "meaning_of", lambda _source: "otherwise")
    assert (digest() == found) is (kept != "no folder")
