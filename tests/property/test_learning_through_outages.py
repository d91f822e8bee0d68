"""Learning goes on while devices vary, fail and lose messages: numbers change only as times do."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import ampsim
from ampsim.hardware import Cluster, Event, Messages

pytestmark = pytest.mark.slow  # a second for each run that learns

WORKERS, EPOCHS = 4, 2
SCHEDULES = {"amp": ampsim.Amp(4), "pipedream": ampsim.PipeDream(), "1f1b": ampsim.OneFOneB(4)}


@cache
def model() -> ampsim.Model:
    return ampsim.load_model("mlp", data="synthetic", hidden=32)


def cluster_of(jitter_cv: float = 0.0, **varies: Any) -> Cluster:
    usual = ampsim.load_cluster("tflops-1", workers=WORKERS, latency_s=2e-7)
    device = usual.devices[0].model_copy(update={"jitter_cv": jitter_cv})
    return usual.model_copy(update={"devices": (device,) * WORKERS, **varies})


@cache
def run(schedule: str, what: str) -> ampsim.Result:
    if what == "usual":
        cluster = cluster_of()
    elif what == "jitter":
        cluster = cluster_of(0.5)
    elif what == "lost":
        messages = Messages(loss_probability=0.05, retry_after_s=1e-6)
        cluster = cluster_of(messages=messages)
    else:
        usual_s = run(schedule, "usual").makespan_s
        event = Event(kind="stop", worker=1, from_s=0.3 * usual_s, until_s=0.4 * usual_s)
        cluster = cluster_of(events=(event,))
    return ampsim.simulate(
        model(), cluster, SCHEDULES[schedule], epochs=EPOCHS, instances=6000, seed=2
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("what", ["jitter", "stop", "lost"])
def test_a_run_finishes_and_learns_in_another_time(schedule, what):
    usual, varied = run(schedule, "usual"), run(schedule, what)
    assert len(varied.epochs) == EPOCHS
    assert varied.makespan_s != usual.makespan_s
    if what != "jitter":  # whose mean is 1: where one stage is the longest, it may win, too
        assert varied.makespan_s > usual.makespan_s
    accuracy, as_usual = (one.epochs["accuracy"].iloc[-1] for one in (varied, usual))
    assert accuracy == pytest.approx(as_usual, abs=0.05)
    assert varied.epochs["loss"].iloc[-1] < varied.epochs["loss"].iloc[0]


def test_a_stop_lasts_as_long_as_it_takes_and_the_step_in_its_middle_again():
    """Of a tenth of the run; a pipeline cannot go on without one of its stages."""
    usual, stopped = run("pipedream", "usual"), run("pipedream", "stop")
    lost_s = stopped.makespan_s - usual.makespan_s
    longest_s = (usual.spans["end_s"] - usual.spans["start_s"]).max()
    assert 0.05 * usual.makespan_s < lost_s < 0.1 * usual.makespan_s + 8 * longest_s
    (outage,) = stopped.outages.to_dict("records")
    assert (outage["worker"], outage["kind"]) == (1, "stop")


def test_asynchrony_shows_in_staleness_where_time_varies_and_a_barrier_hides_it():
    """The same gradients meet other weights under AMP; under 1F1B the same weights to the bit."""
    usual, jittered = run("amp", "usual"), run("amp", "jitter")
    assert jittered.staleness_mean != usual.staleness_mean
    assert jittered.spans["instance"].tolist() != usual.spans["instance"].tolist()
    for what in ("jitter", "stop", "lost"):
        before, after = run("1f1b", "usual"), run("1f1b", what)
        assert after.staleness_max == 0
        for name, values in before.model.parameters().items():
            np.testing.assert_array_equal(after.model.parameters()[name], values)
