"""Several runs at a time: what they give, what they tell, and what ends them."""

import os
import re
import signal
from dataclasses import replace

import numpy as np
import pytest

import ampsim
from ampsim import Amp, Pipeline, Sequential, forecast
from ampsim.errors import OptionError, SimulationError
from ampsim.study import jobs

HEAVY = ((10, 20, 5),) * 2
ALL = [Sequential(), Pipeline(3), Amp(3)]

forks = pytest.mark.skipif(not jobs.can_fork(), reason="this system cannot fork")


@pytest.fixture
def model(chain):
    return replace(chain(HEAVY, instances=6, valid=3, rows=4).model(), target=0.99)


@pytest.fixture
def cluster(make_cluster):
    return make_cluster(2)


class Silent:
    """A pump that ends its process on the way to an instance."""

    def __init__(self, pump, at):
        self.pump, self.at = pump, at

    def __call__(self, instance, batch):
        if instance == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.pump(instance, batch)


@forks
def test_two_at_a_time_give_what_one_after_the_other_gives(model, cluster):
    one, two = (forecast(model, cluster, ALL, max_epochs=2, repeats=2, jobs=n) for n in (1, 2))
    assert [(r.schedule, r.repeat, r.seed) for r in two.runs] == [
        (r.schedule, r.repeat, r.seed) for r in one.runs
    ]
    assert [r.result.digest for r in two.runs] == [r.result.digest for r in one.runs]
    assert two.table.equals(one.table)
    assert two.manifest == one.manifest
    for before, after in zip(one.runs, two.runs, strict=True):
        assert after.result.schedule is before.result.schedule
        np.testing.assert_equal(after.result.model.parameters(), before.result.model.parameters())
        assert after.spans.equals(before.spans)
        assert after.staleness.equals(before.staleness)


@forks
def test_progress_of_all_runs_is_told_at_home(model, cluster):
    told = []
    forecast(model, cluster, ALL, max_epochs=2, jobs=3, on_progress=told.append)
    ends = sorted((one.schedule, one.epoch) for one in told if one.is_epoch_end)
    assert ends == [(name, epoch) for name in ("amp", "pipeline", "sequential") for epoch in (1, 2)]
    assert all(one.items == one.items_total == 36 for one in told if one.is_epoch_end)


@forks
def test_a_mistake_in_a_process_is_raised_at_home(model, cluster):
    schedules = [Sequential(), Amp(2, {"stage-9": 3})]
    with pytest.raises(OptionError, match="no node that learns named 'stage-9'"):
        forecast(model, cluster, schedules, max_epochs=1, jobs=2)


@forks
def test_a_process_that_dies_is_told(model, cluster):
    silent = replace(model, pump=Silent(model.pump, 2))
    said = (
        r"^\w+, seed 0: its process ended without a result \(exit code -9\); "
        "perhaps memory ran out: try fewer jobs$"
    )
    with pytest.raises(SimulationError, match=said):
        forecast(silent, cluster, ALL, max_epochs=1, jobs=2)


@forks
def test_ctrl_c_keeps_what_finished_and_leaves_no_process(model, cluster):
    def stop(progress):
        if progress.schedule == "pipeline":
            raise KeyboardInterrupt

    slow = [Sequential(), Pipeline(3)]
    made = forecast(model, cluster, slow, max_epochs=2, repeats=2, jobs=2, on_progress=stop)
    assert [(run.schedule, run.repeat) for run in made.runs][:1] in ([("sequential", 1)], [])
    assert made.interrupted is not None
    assert "pipeline" in made.interrupted
    assert not jobs.multiprocessing.active_children()


@forks
def test_a_run_that_diverges_ends_alone_in_its_process(chain, cluster):
    model = replace(chain(HEAVY, instances=6).model(), optimizer=ampsim.optim.sgd(1e100))
    made = forecast(model, cluster, [Pipeline(6), Amp(1)], max_epochs=1, jobs=2)
    assert [run.failure is None for run in made.runs] == [True, False]


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "2"])
def test_jobs_must_be_a_count(model, cluster, wrong):
    said = re.escape(f"jobs must be a whole number >= 1, got {wrong!r}")
    with pytest.raises(OptionError, match=f"^{said}$"):
        forecast(model, cluster, ALL, jobs=wrong)


def test_where_there_is_no_fork_only_one_job_is_taken(monkeypatch):
    monkeypatch.setattr(jobs, "can_fork", lambda: False)
    assert jobs.jobs_here() == 1
    assert jobs.require_jobs(1) == 1
    said = "^jobs must be 1 on this system, which cannot fork, got 2$"
    with pytest.raises(OptionError, match=said):
        jobs.require_jobs(2)


def test_as_many_as_cores(monkeypatch):
    if not hasattr(os, "sched_getaffinity"):
        pytest.skip("this system does not say which cores a process may use")
    monkeypatch.setattr(jobs, "can_fork", lambda: True)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2})
    assert jobs.jobs_here() == 3
