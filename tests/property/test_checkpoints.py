"""Checkpoints and stops that lose weights, under each listed schedule and model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from short_runs import MODELS, PAIRS, schedule_of, small_model

import ampsim
from ampsim.data_parallel import SOLVERS
from ampsim.errors import OptionError
from ampsim.hardware import (
    Checkpoints,
    Cluster,
    Device,
    Event,
    Failures,
    Link,
    MemoryRemedy,
    Messages,
    Ports,
    Topology,
)
from ampsim.study.simulation import RunOptions, Simulation

WORKERS = 4
FEW = ("mlp", "tree_lstm")


def cluster(weights: str, cv: float = 0.3, every_s: float = 1e-6, **takes: Any) -> Cluster:
    """Devices that fail more than once within a short run, of some microseconds."""
    failures = Failures(
        mean_time_between_s=1e-6,
        mean_time_to_repair_s=2e-7,
        worker=(1, 2, 3),
        weights=weights,  # pyright: ignore[reportArgumentType]  # one of its two words
    )
    event = Event(kind="stop", worker=0, from_s=4e-7, until_s=5e-7, weights=failures.weights)
    is_kept = weights == "kept"
    return Cluster(
        name="flaky",
        devices=(Device(name="test", flop_per_s=1e12, jitter_cv=cv, memory_bytes=10**9),) * WORKERS,
        link=Link(latency_s=1e-7),
        events=(event,),
        failures=failures,
        checkpoints=None if is_kept else Checkpoints(every_s=every_s, **takes),
    )


def run(schedule: str, model: str, on: Cluster, mode: Any = "sleep") -> Any:
    made = schedule_of(schedule)
    return ampsim.simulate(small_model(model), on, made, epochs=1, mode=mode, seed=4)


@pytest.mark.parametrize(("schedule", "model"), PAIRS)
def test_what_a_stop_takes_changes_no_time(schedule, model):
    """Free checkpoints: all is where it was, to the bit, and updates are lost nevertheless."""
    kept, lost = (
        run(schedule, model, cluster(what, every_s=1e-4)) for what in ("kept", "checkpoint")
    )
    assert lost.digest == kept.digest
    assert lost.updates.equals(kept.updates)
    assert lost.peak_bytes.equals(kept.peak_bytes)
    both = ["worker", "kind", "start_s", "end_s"]
    assert lost.outages[both].equals(kept.outages[both])
    assert "updates_lost" not in kept.outages
    assert (lost.outages["updates_lost"] >= 0).all()
    assert 0 < lost.outages["updates_lost"].sum() <= len(lost.updates)
    was_up = lost.outages["checkpoint_s"] <= lost.outages["start_s"]
    assert was_up[lost.outages["checkpoint_s"].notna()].all()


@pytest.mark.parametrize("model", MODELS)
def test_shapes_tell_the_same_times_and_losses_as_numbers(model):
    """With checkpoints that take time; AMP takes every model."""
    on = cluster("checkpoint", takes_s=1e-8, bandwidth_bytes_per_s=1e13)
    sleep, numeric = (run("amp", model, on, mode) for mode in ("sleep", "numeric"))
    for table in ("spans", "transfers", "updates", "admissions"):
        assert sleep.recorder.frame(table).equals(numeric.recorder.frame(table))
    assert sleep.outages.equals(numeric.outages)
    assert (sleep.outages["kind"] == "checkpoint").any()
    usual = run("amp", model, cluster("kept"), "numeric")
    before, after = usual.model.parameters(), numeric.model.parameters()
    assert all(np.isfinite(values).all() for values in after.values())
    assert any((before[name] != values).any() for name, values in after.items())


@pytest.mark.parametrize(("schedule", "model"), [one for one in PAIRS if one[1] in FEW])
def test_a_checkpoint_occupies_its_device_and_the_path_stays_whole(schedule, model):
    result = run(schedule, model, cluster("checkpoint", takes_s=5e-8))
    table = result.outages
    checkpoints = table[table["kind"] == "checkpoint"]
    assert len(checkpoints)
    spans = result.spans[result.spans["end_s"] > result.spans["start_s"]]
    for one in checkpoints.itertuples():
        own = spans[spans["worker"] == one.worker]
        overlap_s = np.minimum(own["end_s"], one.end_s) - np.maximum(own["start_s"], one.start_s)
        assert (overlap_s < 1e-15).all()
        down = table[(table["worker"] == one.worker) & (table["kind"] == "stop")]
        assert not ((down["start_s"] < one.end_s) & (one.start_s < down["end_s"])).any()
        assert one.end_s - one.start_s == pytest.approx(5e-8)
    path = result.critical_path
    assert path["start_s"].iloc[0] == 0
    assert path["end_s"].iloc[-1] == result.makespan_s
    assert path["start_s"].tolist()[1:] == path["end_s"].tolist()[:-1]


def averaged(learning: Any, weights: Any, mode: Any = "numeric", **takes: Any) -> Any:
    """An epoch with replicas, and a stop of all devices in its validation."""
    stop = Event(kind="stop", worker="all", from_s=4.55e-4, until_s=4.551e-4, weights=weights)
    on = Cluster(
        name="stopped",
        devices=(Device(name="test", flop_per_s=1e9),) * 6,
        events=(stop,),
        checkpoints=Checkpoints(every_s=1e-6, **takes),
    )
    options = RunOptions(mode=mode, learning=learning, placement="paper")
    schedule = ampsim.Amp(2, min_update_interval=1)
    simulation = Simulation(small_model("rnn"), on, schedule, options)
    simulation.run_epoch()
    return simulation.result()


def test_a_checkpoint_after_replicas_were_averaged_has_their_mean():
    """Of the second replica the last update was long before, and then a checkpoint."""
    result = averaged("live", "checkpoint")
    (train_s,) = result.epochs["train_s"]
    assert (result.updates["time_s"] <= train_s).all()
    stops = result.outages[result.outages["kind"] == "stop"]
    assert (stops["start_s"] > train_s + 1e-5).all()
    assert (stops["updates_lost"] == 0).all()
    ours = result.model.parameters()
    for name in ("weight", "bias"):
        assert np.array_equal(ours[f"linear-1.0.{name}"], ours[f"linear-1.1.{name}"])


def test_a_checkpoint_of_a_mean_takes_time_whoever_learns():
    runs = [
        averaged(learning, "kept", mode, takes_s=1e-7)
        for learning, mode in (("live", "numeric"), ("live", "sleep"), ("apart", "numeric"))
    ]
    live = runs[0]
    (train_s,) = live.epochs["train_s"]
    late = live.outages[
        (live.outages["kind"] == "checkpoint") & (live.outages["start_s"] > train_s)
    ]
    replicas = [live.origin["placement"]["workers"][f"linear-1.{one}"] for one in (0, 1)]
    assert set(replicas) <= set(late["worker"])
    for other in runs[1:]:
        assert other.spans.equals(live.spans)
        assert other.outages.equals(live.outages)


def test_checkpoints_are_due_at_multiples_and_left_out_where_nothing_was_updated(chain):
    """Steps of 4, 6 and 1 seconds on one device; at 8 s there has been no update."""
    model = chain(((4, 6, 1),), instances=4).model()
    device = Device(name="test", flop_per_s=1.0)
    checkpoints = Checkpoints(every_s=8.0, takes_s=1.0)
    on = Cluster(name="one", devices=(device,), checkpoints=checkpoints)
    result = ampsim.simulate(model, on, ampsim.Sequential(), mode="sleep")
    rows = result.outages[["start_s", "end_s"]].to_numpy().tolist()
    expected, begins = by_hand([4.0, 6.0, 1.0], 4, 8.0, 1.0)
    np.testing.assert_allclose(rows, expected, rtol=1e-12)
    np.testing.assert_allclose(result.updates["time_s"], begins, rtol=1e-12)


def by_hand(steps: list[float], instances: int, every: float, takes: float) -> Any:
    """Rows of checkpoints, and when updates begin, of steps one after the other."""
    now, due, has_changed = 0.0, every, False
    rows: list[list[float]] = []
    updates: list[float] = []
    for place in range(instances * len(steps)):
        if has_changed and due <= now:
            rows.append([now, now + takes])
            now, has_changed = now + takes, False
        while due <= (rows[-1][0] if rows else 0.0) or (not has_changed and due <= now):
            due += every
        seconds = steps[place % len(steps)]
        if seconds == steps[-1]:
            updates.append(now)
            has_changed = True
        now += seconds
    return rows, updates


def test_a_stop_of_a_device_without_parameters_changes_no_weights():
    model = ampsim.load_model("mlp", data="synthetic", hidden=8, layers=2)
    found = []
    for weights in ("kept", "checkpoint"):
        stop = Event(kind="stop", worker=2, from_s=1e-5, until_s=2e-5, weights=weights)
        devices = (Device(name="test", flop_per_s=1e12),) * 3
        kept = None if weights == "kept" else Checkpoints(every_s=1e-6, takes_s=0.0)
        on = Cluster(name="three", devices=devices, events=(stop,), checkpoints=kept)
        result = ampsim.simulate(model, on, ampsim.Amp(3), instances=600)
        learning = result.spans[result.spans["direction"] == "update"]
        assert 2 not in set(learning["worker"])
        found.append(result)
    kept, lost = found
    assert lost.digest == kept.digest
    for name, values in kept.model.parameters().items():
        np.testing.assert_array_equal(lost.model.parameters()[name], values)
    assert lost.outages["checkpoint_s"].isna().all()
    assert (lost.outages["updates_lost"] == 0).all()


def test_what_charges_for_messages_foretells_its_steps():
    """Overheads of messages, the dispatch lane and light steps that cost, with embeddings."""
    device = Device(
        name="real", flop_per_s=1e12, memory_bandwidth_bytes_per_s=1e11, step_overhead_s=1e-8,
        message_overhead_s=3e-8, dispatch_s=2e-8,
    )  # fmt: skip
    traces = []
    for weights in ("kept", "checkpoint"):
        flaky = cluster(weights)
        assert flaky.failures is not None
        failures = Failures(
            mean_time_between_s=3e-5, mean_time_to_repair_s=2e-6, weights=flaky.failures.weights
        )
        on = Cluster(
            name="real", devices=(device,) * WORKERS, failures=failures,
            checkpoints=flaky.checkpoints,
        )  # fmt: skip
        traces.append([run("amp", model, on) for model in MODELS])
    for kept, lost in zip(*traces, strict=True):
        assert lost.digest == kept.digest
        assert lost.outages["checkpoint_s"].notna().any()


RATE = {"flop_per_s": 1e12, "copy_bandwidth_bytes_per_s": 1e11}
OTHERS: dict[str, dict[str, Any]] = {
    "activations that leave": {"memory": MemoryRemedy(remedy="offload")},
    "activations computed again": {"memory": MemoryRemedy(remedy="recompute")},
    "messages that are lost": {
        "messages": Messages(loss_probability=0.1, retry_after_s=1e-7, delay_cv=0.3)
    },
    "edges and ports": {
        "topology": Topology(kind="ring", latency_s=1e-7, bandwidth_bytes_per_s=1e10),
        "ports": Ports(egress_bytes_per_s=5e9),
    },
    "a host that takes time": {
        "host": Device(name="host", flop_per_s=1e9, step_overhead_s=5e-8, jitter_cv=0.5)
    },
    "devices that are slow": {
        "events": (Event(kind="slow", worker="all", from_s=1e-6, until_s=3e-6, factor=2.5),)
    },
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("model", ["mlp", "lstm_mnist"])
def test_what_else_a_cluster_says_goes_with_stops_that_lose_weights(other, model):
    """GPipe takes every remedy; the times are those of stops that keep them."""
    results: list[Any] = []
    for weights in ("kept", "checkpoint"):
        flaky = cluster(weights, every_s=1e-4)
        devices = (Device(name="copies", **RATE),) * WORKERS
        parts = {"failures": flaky.failures, "checkpoints": flaky.checkpoints, **OTHERS[other]}
        on = Cluster(name="all", devices=devices, **parts)
        results.append(run("gpipe", model, on))
    kept, lost = results
    assert lost.digest == kept.digest
    assert lost.outages["updates_lost"].sum() > 0


@pytest.mark.parametrize("solver", SOLVERS)
def test_solvers_refuse_checkpoints_in_a_line(solver):
    made = SOLVERS[solver](ranks=2)
    expected = (
        f"^{made.name}: cluster flaky has checkpoints, .*; leave them out, or take a schedule$"
    )
    with pytest.raises(OptionError, match=expected):
        ampsim.simulate(small_model("mlp"), cluster("checkpoint"), made, mode="sleep")


def test_merged_messages_and_dependency_engines_refuse_checkpoints_in_a_line():
    with pytest.raises(OptionError, match=r"^max_group = 4 merges messages, but cluster flaky has"):
        ampsim.simulate(
            small_model("rnn"), cluster("checkpoint"), ampsim.Amp(4, max_group=4), mode="sleep"
        )
    with pytest.raises(OptionError, match=r"^checkpoints are of a model's weights; a dep"):
        ampsim.DependencyEngine(cluster("checkpoint", cv=0.0))


@pytest.mark.parametrize("seed", range(3))
def test_nothing_begins_as_a_device_stops_in_the_middle_of_a_checkpoint(seed):
    """The clock counts ticks: a stop that ends a checkpoint was some of a tick away, and up."""
    model, amp = small_model("dynamic_lstm"), schedule_of("amp")
    devices = (Device(name="test", flop_per_s=1e11),) * WORKERS
    steady = Cluster(name="c", devices=devices, link=Link(latency_s=1e-7))
    whole_s = ampsim.simulate(model, steady, amp, epochs=2, mode="sleep").makespan_s
    failures = Failures(
        weights="checkpoint", mean_time_between_s=whole_s / 12, mean_time_to_repair_s=whole_s / 60
    )
    copies = Checkpoints(every_s=whole_s / 40, takes_s=whole_s / 60)
    flaky = steady.model_copy(update={"failures": failures, "checkpoints": copies})
    result = ampsim.simulate(model, flaky, amp, epochs=2, mode="sleep", seed=seed)
    stops = result.outages[result.outages["kind"] == "stop"]
    assert len(stops) > 20
    for worker, stop_s in stops[["worker", "start_s"]].itertuples(index=False):
        begun_s = result.spans.loc[result.spans["worker"] == worker, "start_s"]
        assert not (abs(begun_s - stop_s) < 2e-18).any()
