"""Commands on a model file of one's own: what it prints, how few data it has, where it goes."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ampsim
from ampsim import flow
from ampsim.errors import DivergenceError
from ampsim.forecasting.budget import least_seeds
from ampsim.model_parallel.job import data_told
from ampsim.report.verdict import verdict

OWN = '''
"""Two layers."""
from dataclasses import dataclass

import numpy as np

import ampsim
from ampsim.data import ArrayDataset, pump_arrays
from ampsim.ir import Graph
from ampsim.nodes import Linear, ReLU, SoftmaxCrossEntropy
from ampsim.optim import sgd


@dataclass(frozen=True)
class Config:
    hidden: int = 4


def rows(count, seed):
    points = np.random.default_rng(seed).normal(size=(count, 3)).astype("float32")
    return points, (points[:, 0] > 0).astype("int64")


def graph_of(config):
    graph = Graph("own")
    points, labels = graph.controller(points=("rows", 3), labels=("rows",))
    hidden = graph.add(ReLU("relu"), graph.add(Linear("first", 3, config.hidden), points))
    logits = graph.add(Linear("last", config.hidden, 2), hidden)
    graph.end(SoftmaxCrossEntropy("loss"), logits, labels)
    return graph


def build(config):
    train, valid = rows(40, 0), rows(20, 1)
    data = ArrayDataset(train=train, valid=valid, batch=10)
    return ampsim.Model(
        "own", config, lambda: graph_of(config), data.for_run, pump_arrays, sgd(0.5), target=0.9
    )
'''


@pytest.fixture
def own(call):
    """`own("run", old, new)` writes the model with `new` for `old`, and runs a command on it."""

    def run(command: str, old: str, new: str, *words: str):
        assert old in OWN
        Path("own.py").write_text(OWN.replace(old, new), encoding="utf-8")
        return call(command, "own.py", *words)

    return run


def test_what_a_model_prints_stands_beside_the_json_object(own):
    for where in ("    train, valid", '    graph = Graph("own")'):
        words = ("--workers", "2", "--quiet", "--json", "-")
        ended = own("run", where, f'    print("mine")\n{where}', *words)
        assert json.loads(ended.out)["model"] == "own"
        assert (ended.code, set(ended.err.splitlines())) == (0, {"mine"})


def test_a_chart_of_fewer_items_than_usual_shows_all(own):
    ended = own("gantt", "", "", "--workers", "2", "--schedule", "amp", "--out", "chart.json")
    assert (ended.code, ended.err) == (0, "")
    assert Path("chart.json").is_file()
    more = own("gantt", "", "", "--instances", "41", "--out", "chart.json")
    assert more.code == 2
    assert "must be at most 40, all that there are, got 41" in more.err
    assert own("gantt", "", "", "--instances", "0", "--out", "chart.json").code == 2


@pytest.mark.parametrize("where", ["import numpy as np", "    train, valid"])
def test_a_model_file_may_change_the_folder(own, where):
    indent = where[: len(where) - len(where.lstrip())]
    away = f'{indent}import os\n{indent}os.chdir("..")\n{where}'
    ended = own("check", where, away)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("ok: own.py: model own")


@pytest.mark.parametrize(("split", "seed"), [("training", 0), ("validation", 1)])
def test_data_that_are_not_finite_are_told_as_such(own, split, seed):
    where = "    return points, (points"
    spoiled = f"    if seed == {seed}:\n        points[5, 2] = np.nan\n{where}"
    ended = own("run", where, spoiled, "--workers", "2", "--quiet")
    assert ended.code == 2
    told = rf"became nan .* s; batch \d of the {split} data has nan in a float32 array of shape "
    assert re.search(told + r"\(10, 3\): mend the data, for no learning rate helps", ended.err)
    assert "lower" not in ended.err


@pytest.mark.parametrize(("split", "seed"), [("training", 0), ("validation", 1)])
@pytest.mark.parametrize("wrong", ["nan", "-inf"])
def test_data_that_are_not_finite_are_told_before_anything_runs(own, split, seed, wrong):
    where = "    return points, (points"
    spoiled = f'    if seed == {seed}:\n        points[5, 2] = float("{wrong}")\n{where}'
    ended = own("check", where, spoiled)
    assert (ended.code, ended.out) == (2, "")
    told = (
        rf"^ampsim: own.py: batch \d of the {split} data has {wrong} in a float32 array of shape "
    )
    assert re.search(told + r"\(10, 3\): mend the data\n$", ended.err)


@pytest.mark.parametrize(
    ("where", "wrong", "told"),
    [("", "", ""), ("sgd(0.5)", "sgd(1e30)", "own.py: "), ("def build", "def make", "own.py: ")],
)
def test_each_line_of_a_check_names_its_file_once(own, where, wrong, told):
    said = own("check", where, wrong).err
    assert said.count("own.py") == bool(told)
    assert said.startswith("ampsim: " + told if told else "")


def test_data_without_a_row_to_validate_on_get_a_note(own):
    ended = own("check", "rows(20, 1)", "rows(0, 1)")
    assert (ended.code, ended.err) == (
        0,
        "ampsim: note: own.py: no data to validate on, so that no target is reached; "
        "give some as valid\n",
    )
    assert own("check", "", "").err == ""


def test_what_a_program_is_fed_is_looked_at_too():
    def told_of(batches):
        build: Any = None  # nobody builds it
        program = flow.Program(build, lambda batch: {"points": batch, "count": 3})
        with data_told(None, lambda: program, lambda split: batches):
            raise DivergenceError("the loss became inf; try a lower learning rate")

    with pytest.raises(
        DivergenceError, match=r"^the loss became inf; batch 1 of the training data"
    ):
        told_of([np.ones(2), np.array([1.0, np.inf])])
    with pytest.raises(DivergenceError, match="try a lower learning rate"):
        told_of([np.ones(2), np.arange(2)])


def test_weights_that_diverge_while_a_model_is_checked_have_no_time(own):
    ended = own("check", "sgd(0.5)", "sgd(1e30)")
    assert ended.code == 2
    assert re.search(
        r"stopped being finite in update \d with gradients of instance \d; try", ended.err
    )


@pytest.mark.slow
def test_a_forecast_whose_every_run_fails_ends_at_the_least_that_would_rank(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN.replace('astype("int64")', 'astype("int64") + 5'), encoding="utf-8")
    cluster = ampsim.load_cluster("tflops-1", workers=2)
    found = ampsim.forecast(path, cluster, "sequential,amp", budget_s=8)
    assert all("labels must be whole numbers from 0 to 1" in str(one.failure) for one in found.runs)
    assert len(found.runs) == 2 * least_seeds(2)
    assert len(found.trials) < 75  # as the settings that a row begins with are halved, and no more
    said = "No run of any row finished an epoch, so there is nothing to compare."
    assert verdict(found.table, found.target, found.metric, found.manifest) == said
