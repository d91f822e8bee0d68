"""Whatever makes numbers does so on one thread of the linear algebra library."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import (  # pyright: ignore[reportMissingTypeStubs]  # has none
    threadpool_limits,
)

import ampsim
from ampsim.assets import names
from ampsim.hardware import Cluster
from ampsim.model_parallel.placements import PLACEMENTS
from ampsim.study.checking import try_out
from ampsim.study.model import Model

WIDE: dict[str, dict[str, Any]] = {
    "act_rnn": {"hidden": 256},
    "bilstm_tagger": {"data": "synthetic", "hidden": 160, "word_width": 256},
    "dynamic_lstm": {"hidden": 96, "layers": 2},
    "dqn": {"hidden": 456, "batch": 64, "learn_from": 1},
    "ggnn": {"data": "synthetic", "hidden": 320, "steps": 2},
    "lenet": {"data": "synthetic"},
    "lstm_mnist": {"data": "synthetic"},
    "mlp": {"data": "synthetic", "hidden": 456},
    "moe_rnn": {"hidden": 256, "width": 256},
    "rnn": {"hidden": 456, "replicas": 2},
    "tree_lstm": {"data": "synthetic", "hidden": 320},
}
"""Options at which the library, left alone, would share products or factorisations among threads
(OpenBLAS does so from 2^18 multiplications on)."""

DIGESTS = """
import hashlib, json, sys
import ampsim
from ampsim.runs.witness import leading
found = {}
for name, options in json.loads(sys.argv[1]).items():
    model = leading(ampsim.load_model(name, dtype="float64", **options), 10**9, 2)
    first = b"".join(array.tobytes() for array in model.parameters().values())
    cluster = ampsim.load_cluster("tflops-1", workers=4)
    instances = {"mlp": 200, "rnn": 200, "lenet": 128, "lstm_mnist": 512}.get(name, 4)
    schedule = ampsim.Dataflow() if model.is_program_only else ampsim.Amp(max_active_keys=4)
    result = ampsim.simulate(model, cluster, schedule, instances=instances)
    found[name] = [hashlib.sha256(first).hexdigest(), result.digest]
print(json.dumps(found))
"""

MODEL = '''
"""A chain that refuses to work unless the linear algebra library is held to one thread."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_info

import ampsim
from ampsim.ir import Graph
from ampsim.nodes import Linear, SquaredError


def require_one_thread():
    threads = [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]
    assert threads and set(threads) == {1}, threads


require_one_thread()


@dataclass(frozen=True)
class Config:
    width: int = 2


class One(NamedTuple):
    instance: int


class Batch(NamedTuple):
    values: np.ndarray

    @property
    def rows(self):
        return len(self.values)


class Data:
    name = "ones"
    origin = "generated"

    def __init__(self, width):
        require_one_thread()
        self.width = width

    def count(self, split):
        return 4

    def batch_count(self, split):
        return 2

    def batches(self, split, epoch, seed):
        require_one_thread()
        return self.each()

    def each(self):
        for _ in range(2):
            require_one_thread()
            yield Batch(np.ones((2, self.width), np.float32))


def start(generator):
    require_one_thread()
    return generator.standard_normal((2, 2))


def pump(instance, batch):
    require_one_thread()
    return [(0, One(instance), batch.values), (1, One(instance), batch.values)]


def scale(data):
    require_one_thread()
    return 1.0


def make_graph():
    require_one_thread()
    graph = Graph("chain")
    x, y = graph.controller(x=("rows", 2), y=("rows", 2))
    output = graph.add(Linear("first", 2, 2, start=start), x)
    graph.end(SquaredError("loss"), output, y)
    return graph


def build(config):
    require_one_thread()
    return ampsim.Model(
        name="chain",
        config=config,
        make_graph=make_graph,
        make_data=lambda seed, count: Data(config.width),
        pump=pump,
        optimizer=ampsim.optim.sgd(0.1),
        metric="error",
        error_scale=scale,
    )
'''

USES: dict[str, Callable[[Model, Cluster], object]] = {
    "parameters": lambda model, cluster: model.parameters(),
    "set_parameters": lambda model, cluster: model.set_parameters(model.parameters()),
    "graph": lambda model, cluster: model.graph(3),
    "try_out": lambda model, cluster: try_out(model),
    "forecast": lambda model, cluster: ampsim.forecast(
        model, cluster, [ampsim.Sequential(), ampsim.Amp()], target=1e-9, max_epochs=1
    ),
    "sleep": lambda model, cluster: ampsim.simulate(model, cluster, ampsim.Amp(), mode="sleep"),
    **{
        f"simulate, placement {name}": lambda model, cluster, name=name: ampsim.simulate(
            model, cluster, ampsim.Amp(), placement=name, epochs=2
        )
        for name in PLACEMENTS
    },
}


@pytest.mark.parametrize("use", USES)
def test_a_models_own_code_runs_on_one_thread_wherever_it_is_called(
    use: str, tmp_path: Path
) -> None:
    """The file asks in each of its functions, so that a new caller is checked too."""
    file = tmp_path / "chain.py"
    file.write_text(MODEL)
    with threadpool_limits(limits=2, user_api="blas"):
        model = ampsim.load_model(file)
        USES[use](model, ampsim.load_cluster("tflops-1", workers=2))


def test_every_shipped_model_has_a_wide_variant_here() -> None:
    """But for one that has no numbers."""
    assert sorted([*WIDE, "profile"]) == names("models")


@pytest.mark.slow
def test_runs_of_every_shipped_model_have_equal_bits_with_one_thread_and_with_two() -> None:
    """First weights, trace and last weights, in processes that may use one and two threads."""
    assert _digests(threads=1) == _digests(threads=2)


def _digests(threads: int) -> dict[str, list[str]]:
    libraries = ("BLIS_NUM", "MKL_NUM", "OMP_NUM", "OPENBLAS_NUM", "VECLIB_MAXIMUM")
    limits = {f"{library}_THREADS": str(threads) for library in libraries}
    done = subprocess.run(
        [sys.executable, "-c", DIGESTS, json.dumps(WIDE)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **limits},
        timeout=300,
    )
    return json.loads(done.stdout)
