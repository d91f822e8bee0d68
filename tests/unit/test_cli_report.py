"""`ampsim report` lists, makes and checks; a mistake is one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest


@pytest.fixture
def recipe(call, tmp_path, small_recipe) -> Path:
    """The recipe `mine` in the folder `reports/` here."""
    folder = tmp_path / "reports" / "mine"
    folder.mkdir(parents=True)
    (folder / "recipe.toml").write_text(small_recipe)
    return folder


def test_recipes_are_listed_by_name_and_title(call, recipe):
    for words in ([], ["--list"], ["--list", "mine"]):
        assert call("report", *words) == (0, "mine  A test\n", "")


@pytest.mark.slow
def test_a_report_is_made_checked_and_found_stale(call, recipe, small_recipe):
    assert call("report", "--check").code == 1
    ended = call("report", "mine")
    assert (ended.code, ended.err) == (0, "ampsim: sequential, epoch 1 done\n")
    assert ended.out == "wrote reports/mine/report.md with its figures, tables and manifest\n"
    assert call("report", "--check", "--quiet") == (0, "mine: follows\n", "")
    before = {path: path.stat().st_mtime_ns for path in recipe.rglob("*")}
    rerun = call("report", "mine", "--check", "--rerun")
    assert rerun == (0, "mine: follows\n", "ampsim: sequential, epoch 1 done\n")
    assert {path: path.stat().st_mtime_ns for path in recipe.rglob("*")} == before
    kept = "ampsim: mine: sequential, seed 0: kept from before\n"
    assert call("report", "mine").err == kept
    (recipe / "recipe.toml").write_text(small_recipe.replace("A test", "Another"))
    stale = call("report", "--check")
    assert (stale.code, stale.err) == (1, "")
    assert stale.out == "mine: does not follow: the recipe has changed\n"
    rerun = call("report", "mine", "--check", "--rerun", "--quiet")
    said = "report.md is not what its runs give: line 1 has '# A test' in place of '# Another'"
    assert rerun == (1, f"mine: does not follow: {said} (the recipe has changed)\n", "")


@pytest.mark.slow
def test_a_report_is_redrawn_without_its_runs(call, recipe):
    call("report", "mine", "--quiet")
    shutil.rmtree(recipe / ".runs")
    (recipe / "throughput.png").unlink()
    before = (recipe / "report.md").read_text()
    redrawn = (0, "redrew reports/mine/report.md with its figures and tables\n", "")
    for names in ([], ["mine"]):
        assert call("report", *names, "--redraw") == redrawn
    assert (recipe / "report.md").read_text() == before
    assert call("report", "--check").out == "mine: follows\n"
    ended = call("report", "mine", "--redraw", "--json", "-")
    (row,) = json.loads(ended.out)["reports"]
    assert (row["state"], row["faults"]) == ("redrawn", [])
    (recipe / "report.md").write_text("mine")
    ended = call("report", "mine", "--redraw")
    assert (ended.code, ended.out) == (2, "")
    assert "report.md: is not replaced, for it is not known as written" in ended.err


@pytest.mark.slow
def test_a_report_that_cannot_be_redrawn_is_told_and_the_next_is_redrawn(
    call, recipe, small_recipe
):
    other = recipe.parent / "another"
    other.mkdir()
    (other / "recipe.toml").write_text(small_recipe)
    call("report", "mine", "--quiet")
    said = "ampsim: another: is not redrawn: it was never made: there is no manifest.toml\n"
    redrawn = "redrew reports/mine/report.md with its figures and tables\n"
    assert call("report", "--redraw") == (2, redrawn, said)
    (recipe / "outlines.json").unlink()
    said = "ampsim: mine: is not redrawn: outlines.json is missing\n"
    assert call("report", "mine", "--redraw") == (2, "", said)
    assert call("report", "mine", "--check").out == (
        "mine: does not follow: outlines.json is missing\n"
    )


@pytest.mark.slow
def test_out_leaves_the_recipes_folder_alone(call, recipe):
    assert call("report", "reports/mine", "--out", "there", "--quiet").code == 0
    assert [path.name for path in recipe.iterdir()] == ["recipe.toml"]
    assert (Path("there") / "mine" / "report.md").is_file()
    assert call("report", "mine", "--check", "--out", "there").out == "mine: follows\n"
    redrawn = call("report", "mine", "--redraw", "--out", "there").out
    assert redrawn == "redrew there/mine/report.md with its figures and tables\n"


@pytest.mark.slow
def test_ctrl_c_says_what_is_kept(call, recipe, monkeypatch):
    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("ampsim.runs.task.Task.run", stop)
    ended = call("report", "mine")
    said = "ampsim: mine: interrupted: what was kept of 1 runs is as it was; run again to go on\n"
    assert ended == (130, "", said)
    said = "ampsim: mine: interrupted; the runs of a check are not kept\n"
    assert call("report", "mine", "--check", "--rerun") == (130, "", said)


@pytest.mark.slow
def test_runs_that_failed_are_told_after_the_report_was_written(call, recipe, small_recipe):
    content = small_recipe.replace('mode = "sleep"\n', "").replace(
        "hidden = 4,", "hidden = 4, learning_rate = 1e30,"
    )
    (recipe / "recipe.toml").write_text(content)
    ended = call("report", "mine", "--quiet")
    assert ended.code == 2
    assert ended.err.startswith("ampsim: mine: sequential: ")
    assert (recipe / "report.md").is_file()


def test_a_folder_here_is_a_report_by_its_name_alone_and_a_report_of_that_name_goes_before(
    call, mistake, recipe, tmp_path, small_recipe
):
    """As of `ampsim search` and `check`; what is wrong with its recipe is told."""
    for name in ("own", "mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "recipe.toml").write_text(small_recipe.replace("title", "titel"))
    assert "own/recipe.toml: unknown key 'titel'; did you mean 'title'?" in mistake("report", "own")
    (tmp_path / "own" / "recipe.toml").write_text(small_recipe)
    assert "A test" in call("report", "own", "--list").out
    assert "A test" in call("report", "mine", "--list").out


def test_mistakes_are_one_line_each(mistake, recipe, monkeypatch, small_recipe):
    assert "no recipe named 'mien'; did you mean 'mine'?" in mistake("report", "mien")
    assert "no recipe in 'x/y'; expected a folder with recipe.toml" in mistake("report", "x/y")
    assert "--rerun belongs to --check; add it" in mistake("report", "mine", "--rerun")
    said = "--redraw writes and --check does not; leave one of them out"
    assert said in mistake("report", "mine", "--redraw", "--check")
    (recipe / "recipe.toml").write_text(small_recipe.replace("title", "titel"))
    said = "reports/mine/recipe.toml: unknown key 'titel'; did you mean 'title'?"
    for words in (["mine"], [], ["--check"]):
        assert said in mistake("report", *words)
    assert said in mistake("check", "reports/mine/recipe.toml")
    (recipe / "recipe.toml").write_text(
        small_recipe.replace('"rnn"', '"mlp"').replace("replicas", "layers")
    )
    monkeypatch.setenv("AMPSIM_DATA", "nowhere")
    said = "mnist: no train-images-idx3-ubyte (plain, .gz or .xz) in nowhere/mnist; its source"
    assert said in mistake("report", "mine")


def test_a_recipe_is_checked_like_any_file_of_the_users(call, recipe):
    ended = call("check", "reports/mine/recipe.toml")
    assert ended.out == ("ok: reports/mine/recipe.toml: recipe of rnn on 16 x tflops-1, 1 runs\n")
