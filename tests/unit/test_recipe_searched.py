"""A recipe that searches: the same as its command, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from ampsim.errors import FileFormatError
from ampsim.exploring.search import sentences_of
from ampsim.files import sha256_of
from ampsim.recipes.recipe import read_recipe
from ampsim.recipes.rows import search_of

GOOD = """
title = "A test"
model = "rnn"
set = { hidden = 4, replicas = 2, batch = 20 }
workers = 3
seeds = [3, 4]
instances = 200
target = 0.05
max_epochs = 3

[search]
over = { latency_s = "1e-7..1e-5:log", max_active_keys = [2, 4] }
minimise = ["time_s", "epoch_s"]
subject_to = "peak_bytes <= 1e9"
trials = 4
in_flight = 2
sampler = "random"
prunes = false

[[schedules]]
name = "pipeline"

[[schedules]]
name = "amp"
"""
SAME = (
    "rnn", "--set", "hidden=4", "--set", "replicas=2", "--set", "batch=20", "--workers", "3",
    "--seed", "3", "--repeats", "2", "--instances", "200", "--target", "0.05", "--max-epochs", "3",
    "--for", "latency_s=1e-7..1e-5:log", "--for", "max_active_keys=2,4", "--schedule",
    "pipeline,amp", "--minimise", "time_s,epoch_s", "--subject-to", "peak_bytes <= 1e9",
    "--trials", "4", "--in-flight", "2", "--sampler", "random", "--no-prune",
)  # fmt: skip


FILES = ("index.html", "manifest.toml")


@pytest.fixture
def recipe(tmp_path) -> Path:
    (tmp_path / "recipe.toml").write_text(GOOD, encoding="utf-8")
    return tmp_path / "recipe.toml"


def test_it_finds_what_the_command_finds_with_all_of_it_as_options(call, recipe):
    pytest.importorskip("optuna", reason="optuna is not installed")
    how = ("-q", "--jobs", "1", "--json", "-")
    found, same, more = (
        json.loads(call("search", *words, *how, "--out", str(recipe.parent / out)).out)
        for out, words in (
            ("a", (str(recipe),)), ("b", SAME), ("c", (str(recipe.parent), "--trials", "2")),
        )
    )  # fmt: skip
    assert found == same
    page, manifest = ((recipe.parent / "a" / one).read_text("utf-8") for one in FILES)
    assert "<h1>A test</h1>" in page
    assert sha256_of(recipe) in manifest
    assert (len(found["rows"]), more["rows"]) == (4, found["rows"][:2])


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--seed", ("--seed", "0")), ("--for", ("--for", "latency_s=1,2")),
        ("--set", ("--set", "hidden=8")), ("--workers", ("--workers", "4")),
        ("--max-active-keys", ("--max-active-keys", "3")),
    ],
)  # fmt: skip
def test_an_option_of_what_it_says_is_refused_also_one_as_by_default(
    option, words, mistake, recipe
):
    pytest.importorskip("optuna", reason="optuna is not installed")
    said = mistake("search", str(recipe), *words)
    assert said.endswith(f"{option} has no effect beside {recipe}; say it there\n")


def test_it_is_checked_and_has_no_report(call, mistake, recipe):
    told = call("check", str(recipe)).out
    assert told == f"ok: {recipe}: recipe of rnn on 3 x tflops-1, a search of 4 trials\n"
    assert f"make it with `ampsim search {recipe.parent}`" in mistake("report", str(recipe.parent))


def test_reports_of_a_folder_that_has_one_are_checked_without_it(call, recipe, monkeypatch):
    (recipe.parent / "reports" / "sought").mkdir(parents=True)
    recipe.rename(recipe.parent / "reports" / "sought" / recipe.name)
    monkeypatch.chdir(recipe.parent)
    assert call("report", "--check").code == 0
    assert "sought" in call("report", "--list").out


WRONG = {
    "another key": ("trials = 4", "trial = 4", "unknown key 'trial' in search; did you mean"),
    "no number": ("trials = 4", 'trials = "4"', "search.trials must be a whole number"),
    "no axis": ("latency_s = ", "latencys = ", "search.over: nothing named 'latencys' can vary"),
    "no range": ("1e-7..1e-5", "1e-5..1e-7", "search.over: latency_s must be a range A..B"),
    "no column": ('"epoch_s"', '"wall_s"', "search: minimise: no column named 'wall_s'"),
    "no condition": ("peak_bytes <=", "peak_bytes ~", "search: subject_to must be"),
    "a map, too": (
        "[search]", "[explore]\nover = { workers = [1, 2] }\n[search]",
        "explore has no effect beside search",
    ),
    "words": ('model = "rnn"', 'model = "rnn"\ntext = "x"', "text has no effect beside search"),
    "own options": (
        'name = "amp"', 'name = "amp"\nset = { hidden = 8 }',
        r"schedules.1..set has no effect beside search",
    ),
    "seeds apart": ("[3, 4]", "[3, 5]", r"seeds must follow each other beside search"),
    "no search": ("[search]", "[explore]", "unknown key 'minimise' in explore"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_a_line(name, recipe):
    old, new, said = WRONG[name]
    assert GOOD.count(old) == 1
    recipe.write_text(GOOD.replace(old, new), encoding="utf-8")
    with pytest.raises(FileFormatError, match=said):
        search_of(read_recipe(recipe.parent))


def test_a_recipe_of_a_table_searches_nothing(recipe):
    table = GOOD[: GOOD.index("[search]")] + GOOD[GOOD.index("[[schedules]]") :]
    recipe.write_text(table, encoding="utf-8")
    with pytest.raises(FileFormatError, match="missing key 'search', a table with over"):
        search_of(read_recipe(recipe.parent))


@pytest.mark.parametrize(
    ("what", "is_learned"),
    [("time_to_target_s", True), ("epochs_to_target", True), ("epoch_s", False)],
)
def test_a_front_of_what_is_learned_says_that_its_seeds_chose_it(what, is_learned):
    """The best of 100 points by three seeds was lucky with these; time alone has no luck."""
    table = pd.DataFrame({"workers": [1, 2], "outcome": "complete", "note": ""})
    found: Any = SimpleNamespace(
        table=table, front=table.head(1), objectives=[what], keys=("workers",),
        hypervolume=0.0, hypervolume_random=None,
    )  # fmt: skip
    said = "The best were chosen by these very seeds: with others they take more, as a rule."
    assert (said in sentences_of(found)) == is_learned
    found.table = found.front  # of one point nothing was chosen
    assert said not in sentences_of(found)
