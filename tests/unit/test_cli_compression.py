"""Compression on the command line, in a kept run and in a recipe."""

from __future__ import annotations

import json

import pytest

import ampsim
from ampsim.errors import AmpsimError
from ampsim.recipes.recipe import read_recipe
from ampsim.recipes.rows import make_rows

MODEL = ("mlp", "--set", "data=synthetic", "--set", "hidden=8", "--set", "batch=20")
ON = ("--instances", "240", "--workers", "4", "--bandwidth-bytes-per-s", "1e9")


def simulated(solver: ampsim.SyncSGD | ampsim.AsyncSGD) -> ampsim.Result:
    model = ampsim.load_model("mlp", data="synthetic", hidden=8, batch=20)
    cluster = ampsim.load_cluster("tflops-1", workers=4, bandwidth_bytes_per_s=1e9)
    return ampsim.simulate(model, cluster, solver, instances=240, mode="sleep")


def test_a_forecast_sends_the_share_under_every_solver_that_can(once):
    words = ("--schedule", "sync-sgd,async-sgd,local-sgd", "--ranks", "3", "--compression", "0.1")
    ended = once("forecast", *MODEL, *ON, *words, "--mode", "sleep", "--json", "-", "--quiet")
    assert ended.code == 0, ended.err
    one, other, _local = json.loads(ended.out)["rows"]
    sync, asynchronous = (kind(3, compression=0.1) for kind in (ampsim.SyncSGD, ampsim.AsyncSGD))
    assert one["makespan_s"] == simulated(sync).makespan_s
    assert other["makespan_s"] == simulated(asynchronous).makespan_s
    assert one["makespan_s"] != simulated(ampsim.SyncSGD(3)).makespan_s


def test_where_weights_are_sent_it_is_noted_that_it_has_no_effect(once):
    words = ("--schedule", "local-sgd", "--compression", "0.1", "--mode", "sleep", "--quiet")
    ended = once("forecast", *MODEL, *ON, *words)
    assert ended.err == "ampsim: note: --compression has no effect on local-sgd\n"


def test_a_kept_run_says_the_share_and_has_the_same_exchanges(once):
    words = ("--schedule", "sync-sgd", "--ranks", "4", "--compression", "0.01", "--epochs", "1")
    ended = once("run", *MODEL, *ON, *words, "--out", "run")
    assert ended.code == 0, ended.err
    loaded = ampsim.load_run("run")
    assert loaded.manifest["schedule"]["compression"] == 0.01
    found = simulated(ampsim.SyncSGD(4, compression=0.01))
    assert loaded.collectives.equals(found.collectives)


def recipe(folder, lines: str) -> list[object]:
    (folder / "recipe.toml").write_text(
        'title = "Shares"\nmodel = "mlp"\nset = { data = "synthetic" }\nworkers = 5\n'
        "instances = 240\nseeds = [0]\ntarget = 0.5\nmax_epochs = 1\nfigures = []\n\n"
        f"[[schedules]]\n{lines}\n"
    )
    return [row.schedule for row in make_rows(read_recipe(folder)).rows]


def test_a_recipe_makes_a_row_of_a_share(tmp_path):
    found = recipe(tmp_path, 'name = "async-sgd"\nranks = 2\ncompression = 0.01')
    assert found == [ampsim.AsyncSGD(2, compression=0.01)]


def test_a_recipe_names_a_share_where_weights_are_sent(tmp_path):
    with pytest.raises(AmpsimError, match="compression") as caught:
        recipe(tmp_path, 'name = "local-sgd"\nranks = 2\ncompression = 0.1')
    assert "\n" not in str(caught.value)
