"""Groups of ranks on the command line, in a kept run and in a recipe."""

from __future__ import annotations

import json
from typing import Literal

import pytest

import ampsim
from ampsim.recipes.recipe import read_recipe
from ampsim.recipes.rows import make_rows

MODEL = ("mlp", "--set", "data=synthetic", "--set", "hidden=8", "--set", "batch=20")
ON = ("--instances", "240", "--workers", "5", "--latency-s", "2e-7")
GROUPS = ("--schedule", "easgd", "--ranks", "2", "--inner", "sync-sgd:2")


def simulated(solver: ampsim.EASGD, mode: Literal["numeric", "sleep"]) -> ampsim.Result:
    model = ampsim.load_model("mlp", data="synthetic", hidden=8, batch=20)
    cluster = ampsim.load_cluster("tflops-1", workers=5, latency_s=2e-7)
    return ampsim.simulate(model, cluster, solver, instances=240, mode=mode)


def test_a_forecast_takes_groups_by_name(once):
    words = (*MODEL, *ON, *GROUPS, "--mode", "sleep", "--json", "-", "--quiet")
    (row,) = json.loads(once("forecast", *words).out)["rows"]
    solver = ampsim.EASGD(2, inner=ampsim.SyncSGD(2))
    found = simulated(solver, "sleep")
    assert row["makespan_s"] == found.makespan_s
    assert row["max_active_keys"] == found.max_active_keys == 4


def test_a_kept_run_of_groups_has_the_same_waits_and_says_what_was_inside(once):
    code, _out, error = once("run", *MODEL, *ON, *GROUPS, "--epochs", "1", "--out", "run")
    assert code == 0, error
    loaded = ampsim.load_run("run")
    solver = ampsim.EASGD(2, inner=ampsim.SyncSGD(2))
    assert loaded.waits.equals(simulated(solver, "numeric").waits)
    assert set(loaded.waits["worker"]) == {0, 1, 2, 3}
    inner = loaded.manifest["schedule"]["inner"]
    assert (inner["name"], inner["ranks"], inner["inner"]["name"]) == ("sync-sgd", 2, "sequential")


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ("sync-sgd:2", ampsim.SyncSGD(2)),
        ("local-sgd:2/amp:3", ampsim.LocalSGD(2, inner=ampsim.Amp(3))),
    ],
)
def test_a_recipe_takes_groups_by_name(tmp_path, inner, expected):
    (tmp_path / "recipe.toml").write_text(
        'title = "Groups"\nmodel = "mlp"\nset = { data = "synthetic" }\nworkers = 5\n'
        "instances = 240\nseeds = [0]\ntarget = 0.5\nmax_epochs = 1\nfigures = []\n\n"
        f'[[schedules]]\nname = "ea-wild"\nranks = 2\ninner = "{inner}"\n'
    )
    (row,) = make_rows(read_recipe(tmp_path)).rows
    assert row.schedule == ampsim.EAWild(2, inner=expected)


def test_a_group_that_cannot_be_is_one_line_and_exit_code_2(call):
    words = (*MODEL, *ON, "--schedule", "ea-wild", "--inner", "hogwild:2")
    ended = call("forecast", *words)
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert "inner of ea-wild: ranks of hogwild never agree on their weights" in ended.err
