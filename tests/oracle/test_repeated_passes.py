"""A pass that is taken from tape is the pass that would have been run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from covering import pairwise
from short_runs import CHAINS, schedule_of, small_model

import ampsim
from ampsim.clock import SimClock
from ampsim.hardware import Cluster, Device, Event, Failures, Link, Ports
from ampsim.model_parallel import SCHEDULES, repeat
from ampsim.runs import task as tasks
from ampsim.runs.task import RunPlan, Task
from ampsim.study.simulation import RunOptions, Simulation

DRAIN = [name for name, kind in SCHEDULES.items() if kind().admission.drains]
LINKS: dict[str, dict[str, Any]] = {
    "free": {},
    "latency": {"link": Link(latency_s=3.3e-7)},
    "bandwidth": {"link": Link(latency_s=1e-8, bandwidth_bytes_per_s=1.7e9)},
}
DEVICES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "overheads": {"step_overhead_s": 1.1e-9, "memory_bandwidth_bytes_per_s": 1e11},
    "issued": {"dispatch_s": 2.3e-9},
    "memory": {"memory_bytes": 1_000_000},
}
JITTER = Device(name="odd", flop_per_s=1e12, jitter_cv=0.2)
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "within": {"validate_every": 130},
    "off the clock": {"times_validation": False},
    "few kept": {"spans_kept": 50},
    "balanced": {"placement": "balanced"},
}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "one rate": {},
    "warm-up": {"warmup_epochs": 3},
    "polynomial": {"rate_policy": "polynomial:4"},
    "steps": {"rate_policy": "multistep:1.5", "optimizer": "adam"},
    "two stages": {"optimizer": "two-stage", "warmup_epochs": 2},
}
"""Rates that change within an epoch, and updates that cost more from an epoch on."""
TABLES = ("epochs", "validations", "spans", "transfers", "updates", "critical_path")


def cluster_of(links: str, device: str = "as it is", **more: Any) -> Cluster:
    one = Device(name="one", flop_per_s=0.97e12, **DEVICES[device])
    return Cluster(name="some", devices=(one,) * 4, **{**LINKS[links], **more})


def run_of(model: Any, cluster: Cluster, schedule: Any, **options: Any) -> tuple[Any, int]:
    """The result of four epochs, and how many passes were repeated."""
    options = {"learning": "apart", "seed": 3, "instances": 150, **options}
    run: Any = Simulation(model, cluster, schedule, **options)
    for _epoch in range(4):
        run.run_epoch()
    return run.result(), getattr(run._training._method._passes, "repeated", 0)


def assert_same(found: Any, expected: Any) -> None:
    """What was learned to the bit, times to their last digit."""
    assert found.learning_digest == expected.learning_digest
    for name, value in expected.model.parameters().items():
        assert np.array_equal(value, found.model.parameters()[name])
    for table in TABLES:
        one, other = getattr(found, table), getattr(expected, table)
        assert len(one) == len(other)
        for column in other:
            if column.endswith("_s"):
                np.testing.assert_allclose(one[column], other[column], rtol=1e-12, atol=1e-18)
            else:
                assert one[column].equals(other[column]), (table, column)
    for number in ("makespan_s", "train_per_s", "utilisation", "staleness_mean"):
        assert getattr(found, number) == pytest.approx(getattr(expected, number), rel=1e-12)
    assert np.array_equal(found.peak_bytes, expected.peak_bytes)
    assert fullest(found) == fullest(expected)


def fullest(result: Any) -> dict[tuple[int, int], int]:
    """The most that lay in each memory in each epoch."""
    memory = result.memory
    epoch = np.searchsorted(result.epochs["time_s"], memory["time_s"])
    assert not (memory.groupby("worker")["time_s"].diff() < -1e-18).any()
    return memory["bytes"].groupby([memory["worker"], epoch]).max().to_dict()


@pytest.mark.parametrize(
    "case", pairwise(DRAIN, CHAINS, LINKS, DEVICES, OPTIONS, OPTIMIZERS), ids="-".join
)
def test_a_repeated_pass_is_the_pass(case):
    model = ampsim.load_model(case[1], **SMALL[case[1]], **OPTIMIZERS[case[5]])
    options = OPTIONS[case[4]]
    what = model, cluster_of(case[2], case[3]), schedule_of(case[0])
    expected, none = run_of(*what, **options)
    found, repeated = run_of(*what, **options, repeats_passes=True)
    least = 3 if "times_validation" in options else 6
    assert none == 0
    assert (repeated == 0) if case[5] == "two stages" else (repeated >= least)
    assert_same(found, expected)
    if "bandwidth_bytes_per_s" not in str(LINKS[case[2]]):  # whose time is no whole tick
        assert found.epochs.equals(expected.epochs)


SMALL: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": 8, "data": "synthetic", "batch": 20},
    "lenet": {"filters": 2, "more_filters": 3, "hidden": 8, "data": "synthetic", "batch": 30},
}
VARY: dict[str, tuple[str, str, Cluster]] = {
    "does not drain": ("mlp", "amp", cluster_of("latency")),
    "fixed turns": ("mlp", "pipedream", cluster_of("latency")),
    "jitter": ("mlp", "pipeline", Cluster(name="odd", devices=(JITTER,) * 4)),
    "jitter of the host": (
        "mlp", "pipeline",
        cluster_of("latency", host=JITTER.model_copy(update={"step_overhead_s": 1e-6})),
    ),
    "an event": (
        "mlp", "pipeline",
        cluster_of("free", events=(Event(kind="pause", worker=0, from_s=1e-8, until_s=1e-7),)),
    ),
    "failures": (
        "mlp", "gpipe",
        cluster_of("free", failures=Failures(mean_time_between_s=1e-5, mean_time_to_repair_s=1e-7)),
    ),
    "shared links": (
        "mlp", "pipeline", cluster_of("bandwidth", ports=Ports(egress_bytes_per_s=1.3e9)),
    ),
    "no chain": ("rnn", "pipeline", cluster_of("latency")),
    "rows of a table": ("tree_lstm", "sequential", cluster_of("latency")),
}  # fmt: skip


@pytest.mark.parametrize("case", VARY)
def test_where_a_pass_may_be_another_each_is_run(case):
    name, schedule, cluster = VARY[case]
    model = small_model(name)
    options: dict[str, Any] = {"repeats_passes": True, "instances": None}  # it has few
    _result, repeated = run_of(model, cluster, schedule_of(schedule), **options)
    assert repeated == 0


def test_batches_of_other_shapes_are_run():
    """An epoch whose batches grow is another one, and the first of each size is run."""
    model = ampsim.load_model("mlp", hidden=8, data="synthetic", batch=20, warmup_epochs=2)
    what = model, cluster_of("latency"), ampsim.Pipeline(3)
    expected, _none = run_of(*what)
    found, repeated = run_of(*what, repeats_passes=True)
    assert 0 < repeated < 7
    assert_same(found, expected)


@pytest.mark.parametrize("is_wrong", [False, True])
def test_a_run_that_repeats_is_compared_with_a_live_one_by_what_it_learned(
    is_wrong, tmp_path, monkeypatch
):
    monkeypatch.setattr(tasks, "CHECKED_OF", 1)
    model = ampsim.load_model("mlp", **SMALL["mlp"])
    plan = RunPlan(model, cluster_of("latency"), RunOptions(epochs=3, instances=390))
    task = Task(plan, ampsim.Pipeline(3), 3, "row", 1, 1).learning_in(tmp_path)
    first, _why = task.run(None)
    if is_wrong:
        later = repeat.Later
        monkeypatch.setattr(repeat, "Later", lambda seconds, *more: later(seconds + 1e-6, *more))
        skip = SimClock.skip
        monkeypatch.setattr(SimClock, "skip", lambda self, ticks: skip(self, ticks + 10**12))
        with pytest.raises(ampsim.errors.SimulationError, match="is not what the run learns"):
            task.run(None)
        return
    again, _why = task.run(None)
    assert again.digest == first.digest
    assert_same(again, Task(plan, task.schedule, 3, "row", 1, 1).run(None)[0])
