"""A recipe that explores: its map, kept, drawn again, checked, and what it refuses."""

from __future__ import annotations

import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import ampsim
from ampsim.errors import FileFormatError
from ampsim.exploring.axes import Setup, setup_at
from ampsim.exploring.explore import evidence_from_plain
from ampsim.files import sha256_of
from ampsim.recipes import checking
from ampsim.recipes.checking import check_again, check_report
from ampsim.recipes.explored import map_tables, run_exploration
from ampsim.recipes.recipe import read_recipe
from ampsim.recipes.redrawing import files_of, read_manifest, read_results, redraw_report
from ampsim.recipes.rows import make_rows, space_of
from ampsim.recipes.running import InterruptedReport, RecipeOptions
from ampsim.runs.task import Row
from ampsim.study.learning_rates import Scaling

HEAD = """
title = "A test"
model = "rnn"
set = { hidden = 4, replicas = 2, batch = 20 }
workers = 3
latency_s = 1e-6
seeds = [1, 2]
instances = 200
target = 0.09
max_epochs = 3

[explore]
"""
OVER = 'over = { latency_s = "1e-7..1e-5:log", flop_per_s = [1e11, 1e13] }\npoints = 2\n'
ROWS = """
[[schedules]]
name = "pipeline"
max_active_keys = 4

[[schedules]]
name = "amp"
label = "ours"
max_active_keys = 4
set = { learning_rate = 0.01 }
"""
GOOD = HEAD + OVER + ROWS


@pytest.fixture(scope="module")
def made(report_of) -> Path:
    """A report of a map; not to be written to."""
    return report_of(GOOD)


@pytest.fixture
def own(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / made.name))


@pytest.fixture(scope="module")
def tiny() -> dict[tuple[str, int], Any]:
    """Tiny runs of the rows of `made`, by label and seed; nobody changes them."""
    return {}


@pytest.fixture
def tiny_once(tiny, monkeypatch) -> None:
    """Checks of copies of `made` share the tiny runs of its rows, which all of them would make."""
    run = checking.tiny_run

    def known(row: Row, goal: Any, seed: int) -> Any:
        if (row.label, seed) not in tiny:
            tiny[row.label, seed] = run(row, goal, seed)
        return tiny[row.label, seed]

    monkeypatch.setattr(checking, "tiny_run", known)


@pytest.mark.slow
def test_a_trained_cell_is_what_a_forecast_of_the_row_gives_with_its_own_options(made):
    table = pd.read_csv(made / "report.csv")
    assert len(table) == 8
    learned = table[table["basis"] == "learned"]
    rows: list[tuple[str, Any, dict[str, Any], Scaling | None]] = [
        ("pipeline", ampsim.Pipeline(4), {}, None),
        ("ours", ampsim.Amp(4), {"learning_rate": 0.01}, "none"),
    ]
    for label, method, own, rule in rows:
        row = learned[learned["schedule"] == label].iloc[0]
        model = ampsim.load_model("rnn", hidden=4, replicas=2, batch=20, **own)
        start = Setup(model, ampsim.load_cluster("tflops-1", workers=3), (method,))
        at = setup_at(start, {key: row[key] for key in ("latency_s", "device.flop_per_s")})
        known = ampsim.forecast(
            *at, target=0.09, max_epochs=3, repeats=2, instances=200, seed=1, placement="paper",
            scale_rate=rule,
        )  # fmt: skip
        time_s = known.table["time_to_target_s"].iloc[0]
        assert math.isfinite(time_s)
        assert row["time_to_target_s"] == pytest.approx(time_s, rel=1e-12)


@pytest.mark.parametrize(("own", "factor"), [("", 2.0), ("set = { learning_rate = 0.003 }", 1.0)])
def test_rows_take_rates_by_rule_as_in_explore_or_their_own_at_every_point(tmp_path, own, factor):
    """The rule is the root of the four gradients that an update averages, for Adam."""
    text = GOOD.replace('name = "pipeline"', f'name = "pipeline"\n{own}')
    (tmp_path / "recipe.toml").write_text(text, encoding="utf-8")
    space = space_of(read_recipe(tmp_path))
    rows = [space.rows_at(point)[0] for point in space.points]
    assert [row.plan.rate.factor for row in rows if isinstance(row, Row)] == [factor] * 4


def test_a_page_says_that_rates_are_by_rule_but_for_rows_that_set_their_own(made):
    said = (
        "own, as the recipe says. Else nothing is tuned: learning rates are the model's own, raised"
    )
    assert said in (made / "report.md").read_text()


@pytest.mark.usefixtures("tiny_once")
def test_a_map_follows_and_is_drawn_again_from_what_was_kept(own):
    recipe, before = read_recipe(own), {path.name: path.read_bytes() for path in own.glob("[!.]*")}
    assert check_report(recipe, own).faults == ()
    for name in ("report.md", "report.csv", "index.html"):
        (own / name).unlink()
    redraw_report(read_results(recipe, own), own, files_of(read_manifest(own)))
    assert {path.name: path.read_bytes() for path in own.glob("[!.]*")} == before


@pytest.mark.usefixtures("tiny_once")
def test_with_other_kernels_what_timing_decides_is_compared(own):
    recipe, path = read_recipe(own), own / "manifest.toml"
    path.write_text(re.sub("linear_algebra = .*", 'linear_algebra = "elsewhere"', path.read_text()))
    again: Any = read_results(recipe, own)
    redraw_report(again, own, files_of(read_manifest(own)))
    verdict = check_again(recipe, own, again)
    assert verdict.faults == ()
    assert any("what it learned is not compared" in one for one in verdict.notes)
    slower = again.found.table.assign(train_per_s=again.found.table["train_per_s"] * 0.9)
    other = replace(again, found=replace(again.found, table=slower))
    (first, *_others) = check_again(recipe, own, other).faults
    assert first.startswith("report.csv: train_per_s of pipeline was ")


@pytest.mark.usefixtures("tiny_once")
@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("outlines.json", '"first_seed":1', '"first_seed":2', "outlines.json"),
        ("outlines.json", '"epoch_s":0.', '"epoch_s":1.', "report.csv is not what outlines.json"),
        ("witness.json", '"sha256":"', '"sha256":"0', "behaves otherwise"),
        ("report.csv", "learned", "shared", "report.csv is not what outlines.json draws to"),
        ("index.html", "A slice", "The slice", "index.html is not what outlines.json draws to"),
    ],
)
def test_what_was_edited_does_not_follow(own, name, old, new, said):
    text, manifest = (own / name).read_text(), own / "manifest.toml"
    assert old in text
    digest = sha256_of(own / name)
    (own / name).write_text(text.replace(old, new, 1))
    manifest.write_text(manifest.read_text().replace(digest, sha256_of(own / name)))
    faults = check_report(read_recipe(own), own).faults
    assert any(said in one for one in faults), faults


def test_a_row_at_an_end_that_behaves_otherwise_is_named(own):
    recipe = own / "recipe.toml"
    recipe.write_text(GOOD.replace("0.01", "0.02"))
    manifest = own / "manifest.toml"
    was = read_manifest(own)["recipe"]
    now = read_recipe(own)
    text = manifest.read_text().replace(was["sha256"], now.sha256)
    manifest.write_text(text.replace(was["asked_sha256"], now.asked_sha256))
    faults = check_report(now, own).faults
    assert any(one.startswith("ours, latency_s = 1e-07, device.flop") for one in faults), faults


def test_witnesses_are_of_the_ends_and_of_each_value_that_is_a_name(tmp_path):
    source = 'sources.flop_per_s = { kind = "assumed", text = "a test" }'
    (tmp_path / "slow.toml").write_text(f'name = "slow"\nflop_per_s = 1e11\n{source}\n')
    over = 'over = { cluster = ["tflops-1", "./slow.toml", "tflops-10"], workers = [2, 3, 4] }\n'
    (tmp_path / "recipe.toml").write_text(HEAD + over + ROWS)
    rows: Any = make_rows(read_recipe(tmp_path)).rows
    assert [row.label for row in rows if row.label.startswith("ours")] == [
        f"ours, cluster = {name}, workers = {count}"
        for name in ("tflops-1", "./slow.toml", "tflops-10")
        for count in (2, 4)
    ]
    assert {row.plan.cluster.devices[0].flop_per_s for row in rows} == {1e11, 1e12, 1e13}
    assert {row.plan.model.config.learning_rate for row in rows} == {0.003, 0.01}


def test_the_tables_have_a_word_for_each_point(made):
    recipe = read_recipe(made)
    results: Any = read_results(recipe, made)
    text = "\n".join(map_tables(results.found))
    assert "|  | 100 ns | 10.0 µs |" in text
    assert text.count("×") + text.count("alone") + text.count("nobody") == 4


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (OVER, "", "missing key 'explore.over'; add it to explore"),
        ("1e-7..1e-5", "1e-5..1e-7", "explore.over: latency_s must be a range A..B from a number"),
        ("{ latency_s", "{ latncy_s", "explore.over: nothing named 'latncy_s' can vary; did you"),
        ("points = 2", "points = 1", "explore.points must be >= 2, got 1"),
        ("points = 2", "sure = 1.0", "explore.sure must be <= 0.999, got 1.0"),
        ("max_epochs = 3", "epochs = 3", "epochs has no effect beside explore"),
        ("target = 0.09", "target = 0.09\ntune = 4", "tune has no effect beside explore"),
        ("seeds = [1, 2]", "seeds = [1, 3]", "seeds must follow each other beside explore"),
        ('label = "ours"', 'label = "ours"\nworkers = 2', "schedules[1].workers has no effect"),
        ('label = "ours"', 'label = "ours"\nmode = "sleep"', "schedules[1].mode has no effect"),
        ("[explore]", '[grid]\ncluster = ["a", "b"]\n[explore]', "grid has no effect beside exp"),
    ],
)
def test_what_has_no_effect_or_makes_no_sense_is_one_line(tmp_path, before, after, said):
    assert before in GOOD
    (tmp_path / "recipe.toml").write_text(GOOD.replace(before, after, 1))
    with pytest.raises(FileFormatError) as caught:
        make_rows(read_recipe(tmp_path))
    assert str(caught.value).removeprefix(f"{tmp_path / 'recipe.toml'}: ").startswith(said)


@pytest.mark.slow(4)
def test_the_command_makes_checks_and_runs_a_map_again(call, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    line = GOOD.replace(", flop_per_s = [1e11, 1e13]", "")
    (folder / "recipe.toml").write_text(line)
    assert call("report", str(folder), "--quiet", "-j", "2").code == 0
    assert call("report", str(folder), "--check").out == "mine: follows\n"
    again = call("report", str(folder), "--check", "--rerun", "--quiet", "-j", "1")
    assert again.out == "mine: follows\n"
    assert "4 cells" in call("check", str(folder / "recipe.toml")).out


def test_what_is_kept_does_not_hang_on_which_run_ended_first(made):
    """Of runs that are made beside each other any may."""
    content = json.loads((made / "outlines.json").read_text())

    def turned(one: Any) -> Any:
        if isinstance(one, dict):
            names = sorted(one, reverse=True) if all(map(str.isdecimal, one)) else one
            return {key: turned(one[key]) for key in names}
        return [*map(turned, one)] if isinstance(one, list) else one

    kept = [json.dumps(evidence_from_plain(one).plain()) for one in (content, turned(content))]
    assert kept[0] == kept[1]
    assert kept[0][1:-1] in json.dumps(content)


UNFIT = """
title = "A test"
model = "mlp"
set = { hidden = 8, data = "synthetic", batch = 20, valid_images = 40 }
workers = 2
instances = 100
target = 0.05
max_epochs = 2
explore = { over = { topology = ["torus:2x2", "ring"], workers = [2, 4] } }
schedules = [{ name = "1f1b" }, { name = "sequential" }]
"""


def test_cells_that_do_not_fit_say_so_and_the_others_are_asked(call, tmp_path):
    """A torus of four has four workers, and 1F1B wants one for each of the model's four stages."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "recipe.toml").write_text(UNFIT)
    assert call("report", str(folder), "--quiet", "-j", "1").code == 0
    assert call("report", str(folder), "--check").out == "mine: follows\n"
    table, page = pd.read_csv(folder / "report.csv"), (folder / "report.md").read_text()
    unfit = table[table["basis"] == "unfit"]
    cells = ["topology", "workers", "schedule"]
    assert set(unfit[cells].itertuples(index=False, name=None)) == {
        ("torus:2x2", 2, "sequential"), ("torus:2x2", 2, "1f1b"), ("ring", 2, "1f1b"),
    }  # fmt: skip
    assert unfit["note"].str.contains("extents of shape|1f1b gives each stage a worker").all()
    assert set(table["basis"]) <= {"unfit", "learned", "shared"}
    assert "3 of 8 cells do not fit; the first, 1f1b, topology = torus:2x2, workers = 2: " in page
    assert "| sequential alone (open) |" in page
    assert page.count("| none fits |") == 1
    witnesses = (folder / "witness.json").read_text()
    assert witnesses.count("sequential, topology") == 3
    assert witnesses.count("1f1b, topology") == 2


def test_a_map_over_names_says_what_is_charged_on_these_alone(report_of):
    over = 'device = ["a100", "p100"], workers = [2, 4]'
    folder = report_of(UNFIT.replace('topology = ["torus:2x2", "ring"], workers = [2, 4]', over))
    charged = {one["of"] for one in read_manifest(folder)["costs"]}
    assert charged == {"a100", "p100", "links", "host"}  # and not the base's, on which no row runs
    assert check_report(read_recipe(folder), folder).faults == ()


def test_a_map_says_of_a_faster_placement_what_explore_says(report_of):
    text = HEAD.replace("workers = 3", 'cluster = "gflops-100:2,tflops-1:2"')
    text = text.replace("hidden = 4", "hidden = 64").replace("max_epochs = 3", "max_epochs = 1")
    folder = report_of(f"{text}over = {{ latency_s = [1e-7, 1e-6] }}\n{ROWS}")
    assert "On 2 x gflops-100, 2 x tflops-1, devices differ: " in (folder / "report.md").read_text()


def test_a_map_that_is_interrupted_says_how_many_cells_are_kept(tmp_path):
    def stop(progress):
        raise KeyboardInterrupt

    (tmp_path / "recipe.toml").write_text(UNFIT)
    options = RecipeOptions(on_progress=stop)
    with pytest.raises(InterruptedReport, match=r"^interrupted: 0 of 8 cells are kept; run again"):
        run_exploration(read_recipe(tmp_path), tmp_path, options)


def test_where_no_cell_fits_it_is_one_line(mistake, tmp_path):
    text = UNFIT.replace("[2, 4]", "[1, 2]").replace("sequential", "zb-h1")
    (tmp_path / "recipe.toml").write_text(text.replace('topology = ["torus:2x2", "ring"], ', ""))
    said = "explore.over: no row fits at any point; the first: 1f1b gives each"
    assert said in mistake("report", str(tmp_path), "--quiet")


def test_a_row_that_fits_only_between_the_ends_has_a_witness_there(tmp_path):
    text = UNFIT.replace("[2, 4]", "[2, 4, 8]").replace('"torus:2x2", "ring"', '"torus:2x2"')
    (tmp_path / "recipe.toml").write_text(text)
    labels = [row.label for row in make_rows(read_recipe(tmp_path)).rows]
    where = "topology = torus:2x2, workers = 4"
    assert labels == [f"1f1b, {where}", f"sequential, {where}"]
