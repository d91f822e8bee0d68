"""The digest of what is learned tells models of no file apart, by whatever they differ in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ampsim
from ampsim.data import ArrayDataset, pump_arrays
from ampsim.ir import Graph, Node
from ampsim.nodes import (
    Affine,
    Cond,
    Dropout,
    Linear,
    Phi,
    Pick,
    Pointwise,
    ReLU,
    SoftmaxCrossEntropy,
)
from ampsim.optim import Optimizer, momentum, multistep, sgd, two_stage, warmup
from ampsim.study import Simulation


class Leaky(ReLU):
    """A node of one's own that has an option."""

    def __init__(self, slope: float) -> None:
        super().__init__("leaky")
        self.slope = slope

    def value(self, x: np.ndarray) -> np.ndarray:
        return np.where(x > 0, x, x * self.slope)


def shifted(slope: float) -> ReLU:
    """Another node of the same name."""
    plain = Leaky

    class Shifted(plain):
        def value(self, x: np.ndarray) -> np.ndarray:
            return super().value(x) + 0.5

    Shifted.__name__, Shifted.__qualname__ = plain.__name__, plain.__qualname__
    return Shifted(slope)


def dark(instance: int, batch: Any) -> Any:
    """Another pump: each second image is dark."""
    (port, state, image), *rest = pump_arrays(instance, batch)
    return [(port, state, image * np.float32((instance + 1) % 2)), *rest]


def model_of(
    *,
    leaky: Callable[[float], Node] = Leaky,
    slope: float = 0.1,
    dropped: float = 0.2,
    picked: int = 0,
    factor: float = 2.0,
    divisor: int = 2,
    is_crossed: bool = False,
    pump: Callable[[int, Any], Any] = pump_arrays,
    optimizer: Optimizer = sgd(0.1),  # noqa: B008 - it is frozen
    shown: int = 0,
) -> ampsim.Model:
    """A small network, built here, without a file; its options change no weight."""
    chance = np.random.default_rng(0)
    points, labels = chance.standard_normal((40, 2, 4)), (chance.integers(0, 2, 40) + shown) % 2
    data = ArrayDataset((points, labels), (points[:8], labels[:8]), batch=4)

    def graph() -> Graph:
        made = Graph("own")
        image, label = made.controller(image=("rows", 2, 4), label=("rows",))
        row = made.add(Pick("pick", [None, picked]), image)
        query = lambda state: "ab"[state[0] // divisor % 2]  # noqa: E731 - as in a notebook
        ways = made.branch(Cond("way", query, ["a", "b"]), row)
        parts = [Affine("one", factor=factor), Affine("other", factor=0.5)]
        ways = tuple(reversed(ways)) if is_crossed else ways
        ends = [made.add(part, way) for part, way in zip(parts, ways, strict=True)]
        row = made.add(Phi("both", ["a", "b"]), *ends)
        row = made.add(leaky(slope), made.add(Linear("first", 4, 3), row))
        row = made.add(Dropout("dropout", dropped, 0), row)
        made.end(SoftmaxCrossEntropy("loss"), made.add(Linear("second", 3, 2), row), label)
        return made

    return ampsim.Model("own", None, graph, data.for_run, pump, optimizer)


def result_of(**options: Any) -> Any:
    cluster = ampsim.load_cluster("tflops-1", workers=2)
    return ampsim.simulate(model_of(**options), cluster, ampsim.Amp(2))


CHANGES: dict[str, dict[str, Any]] = {
    "a number that a node keeps": {"slope": 0.3},
    "a place": {"picked": 1},
    "a rate of masks": {"dropped": 0.4},
    "a factor": {"factor": 4.0},
    "a number around a function": {"divisor": 3},
    "code of a node of the same name": {"leaky": shifted},
    "a function of NumPy": {"leaky": lambda _slope: Pointwise("leaky", "sin")},
    "another function of NumPy": {"leaky": lambda _slope: Pointwise("leaky", "abs")},
    "edges": {"is_crossed": True},
    "what brings batches in": {"pump": dark},
    "data": {"shown": 1},
    "an optimizer": {"optimizer": momentum(0.1, 0.5)},
    "a number of an optimizer": {"optimizer": momentum(0.1, 0.6)},
    "a rate within epochs": {"optimizer": sgd(warmup(0.1, 0.5))},
    "a slower rate within epochs": {"optimizer": sgd(warmup(0.1, 1.0))},
    "a step within an epoch": {"optimizer": sgd(multistep(0.1, [0.3]))},
    "a step one batch later": {"optimizer": sgd(multistep(0.1, [0.31]))},
    "a second stage": {"optimizer": two_stage(0.1, epochs=0.3)},
    "a later second stage": {"optimizer": two_stage(0.1, epochs=0.6)},
}


def test_models_that_differ_in_an_option_alone_have_digests_of_their_own():
    results = {name: result_of(**change) for name, change in {"none": {}, **CHANGES}.items()}
    digests = {name: one.learning_digest for name, one in results.items()}
    learned = {
        b"".join(part.tobytes() for part in one.model.parameters().values())
        for one in results.values()
    }
    assert len(set(digests.values())) == len(digests), digests
    assert len(learned) == len(digests), "each learns something else"


class FirstAlike(ArrayDataset):
    """The first batch is the same with every seed."""

    def batches(self, split: Any, *, epoch: int, seed: int) -> Any:
        first, *_rest = super().batches(split, epoch=epoch, seed=0)
        return iter([first, *list(super().batches(split, epoch=epoch, seed=seed))[1:]])


def test_the_seed_is_in_the_digest_also_where_weights_are_given_and_the_first_batch_is_alike():
    model = model_of()
    data = model.make_data(0, None)
    assert isinstance(data, ArrayDataset)
    alike = FirstAlike(data.train, data.valid, batch=4)
    given = replace(model, make_data=lambda _seed, _count: alike).set_parameters(model.parameters())
    cluster = ampsim.load_cluster("tflops-1", workers=2)
    runs = [ampsim.simulate(given, cluster, ampsim.Pipeline(2), seed=seed) for seed in (1, 2)]
    assert len({one.learning_digest for one in runs}) == 2
    assert len({one.model.parameters()["second.weight"].tobytes() for one in runs}) == 2


def test_a_validation_is_found_of_its_instances_as_a_number_may_choose_a_branch(
    tmp_path,
):
    """Off the clock they are numbered by themselves."""
    cluster = ampsim.load_cluster("tflops-1", workers=2)
    for times_validation in (True, False):
        loss = dict[str, float]()
        for learning in ("live", "apart"):
            run = Simulation(
                model_of(), cluster, ampsim.Amp(2), learning=learning, learnings=tmp_path,
                times_validation=times_validation,
            )  # fmt: skip
            run.run_epoch()
            loss[learning] = run.result().epochs["valid_loss"].iloc[0]
        assert loss["apart"] == loss["live"]


@pytest.mark.slow
def test_a_model_that_is_built_again_has_the_same_digest_also_in_another_process():
    digest = result_of().learning_digest
    assert result_of().learning_digest == digest
    program = "import test_learning_subject as t; print(t.result_of().learning_digest)"
    here = str(Path(__file__).parent)
    path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH", "")]))
    ended = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "5"}, cwd=here,
    )  # fmt: skip
    assert ended.stdout.strip() == digest
