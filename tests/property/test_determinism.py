"""Same model, cluster, schedule and seed: same bits, in any process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import ampsim
from ampsim import load_cluster, load_model, simulate
from ampsim.clock import SimClock
from ampsim.data import ListReduction, Mnist
from ampsim.model_parallel import SCHEDULES, needs_chain

ROOT = Path(__file__).resolve().parents[2]


def lists(seed: int, _count: int | None) -> ListReduction:
    return ListReduction.generate(seed, 120, 30, batch=10)


def images(seed: int, _count: int | None) -> Mnist:
    return Mnist.synthetic(seed, train_count=120, valid_count=30, batch=10)


def model_for(kind: Any) -> Any:
    """The RNN, which loops; layers in a row for schedules that know only those."""
    if needs_chain(kind()):
        options: dict[str, Any] = {"hidden": 8, "layers": 4, "data": "synthetic"}
        return replace(load_model("mlp", **options), make_data=images)
    return replace(load_model("rnn", hidden=8, replicas=3), make_data=lists)


TUNED: dict[str, Any] = {"staleness_budget": 1.0}  # else as many would be in flight as under amp


def digest(name: str, seed: int = 0, latency_s: float = 1e-8, **options: Any) -> str:
    kind: Any = SCHEDULES[name]
    takes = [field.name for field in fields(kind)]
    tuned = {"max_active_keys": 6, **TUNED, **options}
    schedule: Any = kind(**{key: value for key, value in tuned.items() if key in takes})
    cluster = load_cluster("tflops-1", workers=7, latency_s=latency_s)
    return simulate(model_for(kind), cluster, schedule, epochs=2, seed=seed).digest


@cache
def first_digest(name: str) -> str:
    """Of a run with no option, made once in this process, with which others are compared."""
    return digest(name)


def digests() -> dict[str, str]:
    return {name: digest(name) for name in SCHEDULES}


def in_another_process(hash_seed: str, folder: Path) -> dict[str, str]:
    environment = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": os.pathsep.join([str(Path(ampsim.__file__).parents[1]), *sys.path]),
    }
    code = (
        "import json, runpy; "
        f"print(json.dumps(runpy.run_path({str(Path(__file__))!r})['digests']()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow  # another interpreter starts and imports everything
def test_two_processes_with_different_hash_seeds_give_the_same_digests(tmp_path):
    here = {name: first_digest(name) for name in SCHEDULES}
    assert len(set(here.values())) == len(SCHEDULES) - 1  # 1f1b, also interleaved: a stage a worker
    other = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "4242"  # else this one's is random
    assert in_another_process(other, tmp_path) == here


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_run_repeats_itself_to_the_last_bit_and_another_seed_does_not(name):
    found = digest(name, seed=1)
    assert found == digest(name, seed=1)
    assert found != first_digest(name)


@pytest.mark.parametrize("name", ["amp", "amp-budget"])
def test_a_remedy_changes_the_run_and_leaves_it_deterministic(name):
    found = digest(name, remedy="weight-prediction")
    assert found == digest(name, remedy="weight-prediction")
    assert found != first_digest(name)


@pytest.mark.parametrize("name", SCHEDULES)
def test_digest_tells_apart_what_differs_only_in_time(name):
    assert first_digest(name) != digest(name, latency_s=1.1e-8)


def test_runs_share_nothing():
    """A model, a cluster and a schedule may serve any number of runs, interleaved as one likes."""
    alone = {name: first_digest(name) for name in SCHEDULES}
    backwards = {name: digest(name) for name in reversed(list(SCHEDULES))}
    assert backwards == alone


class NeverSettled(SimClock):
    """A clock under which a worker always fires a signal and awaits it."""

    @property
    def is_settled(self) -> bool:
        return False


@pytest.mark.parametrize("latency_s", [0.0, 1e-8])
@pytest.mark.parametrize("device", ["tflops-1", "p100"])
@pytest.mark.parametrize("name", ["rnn", "tree_lstm"])
def test_going_on_without_a_signal_changes_no_record(name, device, latency_s):
    options: dict[str, Any] = {"hidden": 8}
    if name == "tree_lstm":
        options |= {"embedding": 3, "words": 40, "data": "synthetic"}
    model = load_model(name, **options)
    cluster = load_cluster(device, workers=7, latency_s=latency_s)
    schedule = ampsim.Amp(max_active_keys=8)
    count = 3000 if name == "rnn" else 6
    runs = [
        simulate(model, cluster, schedule, mode="sleep", instances=count, clock=clock)
        for clock in (SimClock(), NeverSettled())
    ]
    assert runs[0].digest == runs[1].digest
    assert runs[0].messages > 500
