"""A recipe that compares fairly: what a forecast is told by options, a recipe is told by keys."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import ampsim
from ampsim.errors import FileFormatError
from ampsim.forecasting.settings import trials_of
from ampsim.recipes.checking import check_report
from ampsim.recipes.recipe import read_recipe
from ampsim.recipes.redrawing import read_manifest, read_results, redraw_report
from ampsim.recipes.rows import make_rows
from ampsim.recipes.running import InterruptedReport, RecipeOptions, run_recipe
from ampsim.text import mapping

MODEL = {"data": "synthetic", "hidden": 32, "batch": 20, "valid_images": 60}
RECIPE = """
title = "Tuned"
model = "mlp"
set = { data = "synthetic", hidden = 32, batch = 20, valid_images = 60 }
workers = 4
instances = 200
seeds = [0, 1]
target = 0.5
max_epochs = 3
validate_every = 60
scale_rate = "linear"
tune = 3
figures = ["convergence"]

[[schedules]]
name = "sequential"

[[schedules]]
name = "pipeline"
max_active_keys = 4
"""
SCHEDULES = [ampsim.Sequential(), ampsim.Pipeline(4)]
COLUMNS = ("epochs_to_target", "time_to_target_s", "learning_rate", "learning_rate_rule")


@pytest.fixture(scope="module")
def report(report_of) -> Path:
    return report_of(RECIPE)


@pytest.fixture(scope="module")
def forecast():
    return ampsim.forecast(
        ampsim.load_model("mlp", **MODEL),
        ampsim.load_cluster("tflops-1", workers=4),
        SCHEDULES,
        target=0.5,
        max_epochs=3,
        repeats=2,
        instances=200,
        validate_every=60,
        scale_rate="linear",
        tune=3,
    )


@pytest.mark.slow
def test_a_recipe_tunes_and_validates_as_a_forecast_with_the_same_options(report, forecast):
    table, trials = pd.read_csv(report / "report.csv"), pd.read_csv(report / "trials.csv")
    assert len(trials) == 2 * trials_of(3)
    for name in COLUMNS:
        assert table[name].tolist() == pytest.approx(forecast.table[name].tolist(), nan_ok=True)
    for name in ("learning_rate", "seed", "time_to_target_s", "is_chosen"):
        made = forecast.trials[name].astype(float).tolist()
        assert trials[name].astype(float).tolist() == pytest.approx(made, nan_ok=True)
    assert not set(trials["seed"]) & set(pd.read_csv(report / "epochs.csv")["repeat"] - 1)
    looks = pd.read_csv(report / "validations.csv")
    assert looks["instances"].head(4).tolist() == [60, 120, 180, 200]


def test_a_row_keeps_a_rate_of_its_own_beside_a_rule(tmp_path):
    """As decision 15 says of any recipe; those of the recipe are scaled."""
    own = RECIPE.replace("tune = 3\n", "") + "set = { learning_rate = 0.02 }\n"
    (tmp_path / "recipe.toml").write_text(RECIPE.replace("hidden", "learning_rate = 0.02, hidden"))
    of_all = make_rows(read_recipe(tmp_path)).rows
    (tmp_path / "recipe.toml").write_text(own)
    rates = [
        [row.plan.rate.columns(row.plan.model)["learning_rate"] for row in rows]
        for rows in (of_all, make_rows(read_recipe(tmp_path)).rows)
    ]
    assert rates == [[0.02, 0.06], [0.1, 0.02]]


@pytest.mark.slow
def test_page_and_manifest_say_what_was_tried(report):
    page, manifest = (report / "report.md").read_text(), read_manifest(report)
    assert "## Learning rates that were tried" in page
    assert (manifest["tune"], manifest["scale_rate"]) == (3, "linear")
    assert manifest["validate_every"] == 60
    table = pd.read_csv(report / "report.csv")
    told = [mapping(one)["learning_rate"] for one in manifest["schedules"]]
    assert told == table["learning_rate"].tolist()


@pytest.mark.slow
def test_a_tuned_report_follows_and_is_redrawn_to_the_byte(report):
    recipe = read_recipe(report)
    assert check_report(recipe, report).faults == ()
    before = {path.name: path.read_bytes() for path in report.iterdir() if path.is_file()}
    hashes = dict(mapping(read_manifest(report)["files"]))
    redraw_report(read_results(recipe, report), report, hashes)
    assert {p.name: p.read_bytes() for p in report.iterdir() if p.is_file()} == before


@pytest.mark.slow
def test_trials_that_were_edited_are_not_drawn(report):
    trials = report / "trials.csv"
    kept = trials.read_text()
    try:
        trials.write_text(kept.replace("True", "False"))
        with pytest.raises(FileFormatError, match=r"trials\.csv is not as it was written"):
            read_results(read_recipe(report), report)
    finally:
        trials.write_text(kept)


@pytest.mark.slow
def test_tuning_that_was_interrupted_goes_on_where_it_was(folder):
    short = RECIPE.replace("[0, 1]", "[0]").replace("max_epochs = 3", "max_epochs = 1")
    (folder / "recipe.toml").write_text(short)
    made: list[str] = []

    def interrupt(progress) -> None:
        if progress.schedule not in made:
            made.append(progress.schedule)
        if len(made) == 4:
            raise KeyboardInterrupt

    with pytest.raises(InterruptedReport, match="run again to go on"):
        run_recipe(read_recipe(folder), folder, RecipeOptions(on_progress=interrupt))
    said: list[str] = []
    run_recipe(read_recipe(folder), folder, RecipeOptions(say=said.append))
    assert said == [
        f"sequential, rate {rate}, seed 1000000: kept from before" for rate in (0.1, 0.2, 0.05)
    ]


@pytest.mark.parametrize(
    ("seeds", "first"), [("[0, 1]", 0), ("[5, 2]", 5), ("[0, 1000001]", 1000001), ("[0, 9]", 0)]
)
def test_no_trial_has_the_seed_of_a_run_by_which_rows_are_compared(
    folder, monkeypatch, seeds, first
):
    """Trials begin a million after the first seed, and elsewhere only where a run has these."""
    (folder / "recipe.toml").write_text(RECIPE.replace("seeds = [0, 1]", f"seeds = {seeds}"))
    taken: list[int] = []

    def noted(_rows: Any, seed: int, *_more: Any) -> Any:
        taken.append(seed)
        raise KeyboardInterrupt

    monkeypatch.setattr("ampsim.recipes.running.Tuner", noted)
    with pytest.raises(InterruptedReport):
        run_recipe(read_recipe(folder), folder, RecipeOptions())
    assert taken == [first]


def best_of_three(folder: Path) -> Path:
    recipe = RECIPE.replace("tune = 3", "tune = 4\ntune_optimizer = true")
    recipe = recipe.replace("seeds = [0, 1]", "seeds = [0]").replace('["convergence"]', "[]")
    (folder / "recipe.toml").write_text(recipe)
    return folder


@pytest.mark.slow
def test_each_row_has_the_best_of_the_optimizers_that_its_model_knows(folder, make_report):
    """A run of it is that of the optimizer alone, and its witness is of that one."""
    make_report(best_of_three(folder))
    table, trials = (pd.read_csv(folder / f"{name}.csv") for name in ("report", "trials"))
    manifest, recipe = read_manifest(folder), read_recipe(folder)
    names = [mapping(one)["optimizer"] for one in manifest["schedules"]]
    assert set(names) - {"sgd"}
    for name, row in zip(names, table.to_dict("records"), strict=True):
        tried = trials[trials["schedule"] == row["schedule"]]
        assert set(tried["optimizer"]) == {"sgd", "momentum", "adam"}
        assert len(tried) == trials_of(4)
        best = tried[tried["is_chosen"]]
        assert set(best["optimizer"]) == {name}
        assert row["learning_rate"] == pytest.approx(best["learning_rate"].iloc[0])
    options = {**MODEL, "optimizer": names[0], "learning_rate": table["learning_rate"][0]}
    alone = ampsim.forecast(
        ampsim.load_model("mlp", **options), ampsim.load_cluster("tflops-1", workers=4),
        SCHEDULES[:1], target=0.5, max_epochs=3, instances=200, validate_every=60,
    )  # fmt: skip
    assert alone.table["time_to_target_s"][0] == table["time_to_target_s"][0]
    assert check_report(recipe, folder).faults == ()
    text, other = (folder / "manifest.toml").read_text(), {*names, "sgd"} - {names[0]}
    (folder / "manifest.toml").write_text(
        text.replace(f'optimizer = "{names[0]}"', f'optimizer = "{min(other)}"')
    )
    assert any("behaves otherwise" in one for one in check_report(recipe, folder).faults)


@pytest.mark.parametrize(("rule", "factor"), [("none", 1), ("linear", 3), ("sqrt", math.sqrt(3))])
def test_a_rule_scales_the_rows_that_average(folder, rule, factor):
    """Of four in flight by three, as many as come up to a validation."""
    (folder / "recipe.toml").write_text(RECIPE.replace('"linear"', f'"{rule}"'))
    rows = make_rows(read_recipe(folder)).rows
    assert [row.plan.rate.factor for row in rows] == [1, factor]
    assert {row.plan.options.validate_every for row in rows} == {60}


def test_without_these_keys_rows_run_as_before(folder):
    plain = [line for line in RECIPE.splitlines() if line.split(" =")[0] not in KEYS]
    (folder / "recipe.toml").write_text("\n".join(plain))
    for row in make_rows(read_recipe(folder)).rows:
        assert (row.plan.rate.factor, row.plan.options.validate_every) == (1, None)
        assert "rate_factor" not in row.decided_by and "validate_every" not in row.decided_by


KEYS = ("validate_every", "scale_rate", "tune")
KNOWING_SEVERAL = RECIPE[RECIPE.index("model =") : RECIPE.index("workers")]
KNOWING_ONE = 'model = "rnn"\ntune_optimizer = true\n'
MODE = 'name = "sequential"\nmode = "sleep"'


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("tune = 3", "tune = 0", "tune must be a whole number of learning rates from 2 to 64"),
        ("tune = 3", "tune_optimizer = true", "missing key 'tune', how many rates tune_optimizer"),
        ("tune = 3", "tune = 65", "tune must be a whole number of learning rates from 2 to 64"),
        ("tune = 3", "tune = 2.5", "tune must be a whole number, got 2.5"),
        ('"linear"', '"cubic"', "scale_rate must be 'none', 'linear' or 'sqrt', got 'cubic'"),
        ("validate_every = 60", "validate_every = 0", "validate_every must be >= 1, got 0"),
        (
            KNOWING_SEVERAL,
            KNOWING_ONE,
            "schedules[0]: tune_optimizer: rnn knows the optimizer adam al",
        ),
        (
            "tune = 3",
            "tune = 2\ntune_optimizer = true",
            "schedules[0]: tune_optimizer: tune must be >= 3, for a rate of each of sgd, momentum, "
            "adam, got 2; try 12",
        ),
        ('name = "sequential"', MODE, "tune needs what is learned, and mode 'sleep' of 'sequ"),
    ],
)
def test_what_cannot_be_compared_so_is_refused_in_one_line(folder, before, after, said):
    content = RECIPE.replace(before, after, 1)
    (folder / "recipe.toml").write_text(content)
    with pytest.raises(FileFormatError) as caught:
        make_rows(read_recipe(folder))
    assert f"recipe.toml: {said}" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.slow
def test_a_legend_has_the_tables_time_where_validation_is_within_an_epoch(forecast):
    from ampsim.units import format_seconds

    figure = ampsim.figures.convergence(forecast)
    (legend,) = figure.legends
    texts = " ".join(one.get_text().replace("\n", " ") for one in legend.get_texts())
    told = [one for one in forecast.table["time_to_target_s"] if not math.isnan(one)]
    assert told and all(format_seconds(one) in texts for one in told)


@pytest.mark.usefixtures("undrawn")
def test_run_validates_within_epochs_and_keeps_each_validation(call):
    import json

    words = ("run", "mlp", "--set", "data=synthetic", "--set", "hidden=8", "--workers", "4")
    ended = call(*words, "--instances", "500", "--validate-every", "200", "--quiet", "--json", "-")
    assert ended.code == 0
    told = json.loads(ended.out)["validations"]
    assert [one["instances"] for one in told] == [200, 400, 500]
    kept = pd.read_csv(Path("run-mlp") / "validations.csv")
    assert kept["time_s"].tolist() == [one["time_s"] for one in told]
    refused = call(*words, "--validate-every", "0", "--quiet")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "--validate-every must be a whole number >= 1, got 0" in refused.err
