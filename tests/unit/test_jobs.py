"""Several runs at a time: what they give, what they tell, and what ends them."""

import concurrent.futures
import contextlib
import importlib
import json
import multiprocessing
import os
import pickle
import queue
import re
import signal
import subprocess
import sys
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from program_models import PROGRAMS_ONLY

import ampsim
from ampsim import Amp, Pipeline, Sequential, forecast
from ampsim.assets import names
from ampsim.cli import main
from ampsim.errors import ExecutorError, Failure, OptionError, SimulationError
from ampsim.forecasting.forecast import to_json
from ampsim.hardware import Cluster, Device, Event
from ampsim.report.page.text import beside_answer
from ampsim.report.verdict import verdict
from ampsim.runs import executor as executors
from ampsim.runs import jobs, local_slots
from ampsim.runs.run import run_of
from ampsim.runs.task import RunPlan, Task
from ampsim.study import loading
from ampsim.study.loading import bytes_of, option_names
from ampsim.study.simulation import RunOptions
from ampsim.text import to_toml

HEAVY = ((10, 20, 5),) * 2
ALL = [Sequential(), Pipeline(3), Amp(3)]
METHODS = [one for one in ("fork", "spawn") if one in multiprocessing.get_all_start_methods()]

forks = pytest.mark.skipif("fork" not in METHODS, reason="this system cannot fork")


@pytest.fixture
def model(chain):
    return replace(chain(HEAVY, instances=6, valid=3, rows=4).model(), target=0.99)


@pytest.fixture
def cluster(make_cluster):
    return make_cluster(2)


class Ending:
    """A pump that ends its process, in some way, on the way to an instance."""

    def __init__(self, pump, at, end):
        self.pump, self.at, self.end = pump, at, end

    def __call__(self, instance, batch):
        if instance == self.at:
            self.end()
        return self.pump(instance, batch)


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def assert_same(one, two):
    assert [(r.schedule, r.repeat, r.seed) for r in two.runs] == [
        (r.schedule, r.repeat, r.seed) for r in one.runs
    ]
    assert [r.result.digest for r in two.runs] == [r.result.digest for r in one.runs]
    assert two.table.equals(one.table)
    assert two.manifest == one.manifest
    for before, after in zip(one.runs, two.runs, strict=True):
        assert after.result.schedule is before.result.schedule
        models = [one.result.model for one in (before, after)]
        np.testing.assert_equal(*(one.parameters() for one in models))
        assert len({one.optimizer.rate(0) for one in models}) == 1
        assert after.spans.equals(before.spans)
        assert after.learning_digest == before.learning_digest
        assert after.result.learning_digest == before.result.learning_digest
        assert after.staleness.equals(before.staleness)


@forks
def test_two_at_a_time_give_what_one_after_the_other_gives(model, cluster):
    one, two = (forecast(model, cluster, ALL, max_epochs=2, repeats=2, jobs=n) for n in (1, 2))
    assert_same(one, two)


def task_of(name):
    offers = "data" in option_names(name)
    model = ampsim.load_model(name, **({"data": "synthetic"} if offers else {}))
    cluster = ampsim.load_cluster("tflops-1", workers=4)
    if name in PROGRAMS_ONLY:
        plan = RunPlan(model, cluster, RunOptions(instances=10))
        return Task(plan, ampsim.Dataflow(), 0, name, 1, 1)
    plan = RunPlan(model, cluster, RunOptions(mode="sleep", instances=10))
    return Task(plan, Amp(3), 0, name, 1, 1)


@pytest.mark.slow
def test_every_model_runs_in_a_process_that_starts_with_nothing():
    tasks = [task_of(name) for name in names("models")]
    program = (
        "import pickle, sys\n"
        "(tasks,) = pickle.load(sys.stdin.buffer)\n"
        "print([task.run(None)[0].digest for task in tasks])"
    )
    content = bytes_of((tasks,))
    there = subprocess.run([sys.executable, "-c", program], input=content, capture_output=True)
    assert there.stdout.decode().strip() == str([task.run(None)[0].digest for task in tasks])


OF_ONE_S_OWN = """
from dataclasses import dataclass, replace
from functools import cache
import ampsim

@dataclass(frozen=True)
class Config:
    hidden: int = 8

@cache
def scale(data):
    return 2.0

class Pump:
    def __init__(self, pump):
        self.pump = pump

    def __call__(self, instance, batch):
        return self.pump(instance, batch)

def build(config):
    given = ampsim.load_model("rnn", hidden=config.hidden)
    return replace(given, pump=Pump(given.pump), make_data=lambda *given_: given.make_data(*given_))
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_file_of_one_s_own_runs_as_it_was_when_it_was_loaded_and_prints_to_no_output(
    tmp_path, method, monkeypatch, capfd
):
    """What a model prints in a process is kept from the output as at home."""
    monkeypatch.setattr(local_slots, "START_METHOD", method)
    path = tmp_path / "mine.py"
    path.write_text(
        OF_ONE_S_OWN.replace("return self.pump", "print('mine')\n        return self.pump")
    )
    model, cluster = ampsim.load_model(path), ampsim.load_cluster("tflops-1", workers=4)
    path.write_text("raise SystemExit")  # an editor has saved what is half done
    asked = partial(forecast, model, cluster, [Sequential(), Amp()], max_epochs=1, instances=40)
    one = asked(jobs=1)
    capfd.readouterr()
    with contextlib.redirect_stdout(sys.stderr):  # as for --json -
        two = asked(jobs=2)
    out, err = capfd.readouterr()
    assert (out, "mine" in err) == ("", True)
    assert_same(one, two)


def test_threads_that_take_a_model_at_once_take_the_whole_file(tmp_path, monkeypatch):
    """Threads of a worker, or of a user's own executor; there the file is loaded already."""
    path = tmp_path / "mine.py"
    types = "\nassert Config.__annotations__ == {'hidden': int}\n"  # as of this file alone
    path.write_text("import time\ntime.sleep(0.05)\n" + OF_ONE_S_OWN + types)
    model = ampsim.load_model(path)
    content = bytes_of(model)
    with ThreadPoolExecutor(4) as pool:
        here = list(pool.map(pickle.loads, [content] * 4))
        assert {type(one.config) for one in here} == {type(model.config)}
        monkeypatch.setattr(loading, "_SOURCES", {})
        monkeypatch.delitem(sys.modules, type(model.config).__module__)
        there = list(pool.map(pickle.loads, [content] * 4))
    (kind,) = {type(one.config) for one in there}
    assert kind is not type(model.config)
    assert kind.__name__ == "Config"


def test_a_model_is_sent_with_its_own_file_and_no_other_that_was_loaded(tmp_path):
    """What another imports may not be there."""
    paths = [tmp_path / name for name in ("mine.py", "other.py")]
    for path in paths:
        path.write_text(f"# {path.name}\n{OF_ONE_S_OWN}")
    contents = [bytes_of(model) for model in map(ampsim.load_model, paths)]
    told = [[f"# {path.name}".encode() in content for path in paths] for content in contents]
    assert told == [[True, False], [False, True]]


def test_other_modules_than_those_that_a_model_was_loaded_with_are_refused_elsewhere(
    tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "of_mine.py").write_text("RATE = 1\n")
    path = tmp_path / "mine.py"
    path.write_text(f"import of_mine\n{OF_ONE_S_OWN}")
    model, cluster = ampsim.load_model(path), ampsim.load_cluster("tflops-1")
    task = Task(RunPlan(model, cluster, RunOptions(instances=4)), Amp(), 0, "amp", 1, 1)
    content = executors.packed_for_elsewhere(task, run_of)
    assert isinstance(executors.answer_elsewhere(content), tuple)
    (tmp_path / "of_mine.py").write_text("RATE = 2\n")
    importlib.reload(sys.modules["of_mine"])
    said = r"modules that mine\.py imports must be the same everywhere, .*; copy them there"
    answer = executors.answer_elsewhere(content)
    assert isinstance(answer, OptionError)
    assert re.fullmatch(said, str(answer))
    del sys.modules["of_mine"]


def test_what_cannot_be_sent_to_another_process_is_told(model, cluster, monkeypatch):
    monkeypatch.setattr(local_slots, "START_METHOD", "spawn")
    mine = replace(model, make_data=partial(model.make_data, threading.Lock()))
    said = r"^jobs must be 1 here, for model \w+ cannot be sent to another process: TypeError: .*"
    with pytest.raises(OptionError, match=said):
        forecast(mine, cluster, ALL, max_epochs=1, jobs=2)


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


def fail_at_home(*_):
    raise ZeroDivisionError("of our own")


@forks
def test_a_fault_of_ampsim_in_a_process_has_its_traceback(model, cluster, monkeypatch):
    monkeypatch.setattr("ampsim.runs.task.Task.run", fail_at_home)
    with pytest.raises(RuntimeError, match=r"(?s)in fail_at_home\n.*ZeroDivisionError: of our own"):
        forecast(model, cluster, ALL, max_epochs=1, jobs=2)
    assert not multiprocessing.active_children()


@forks
@pytest.mark.parametrize(
    ("end", "said"),
    [
        (killed, r"was killed \(SIGKILL\); perhaps memory ran out: try fewer jobs"),
        (partial(signal.raise_signal, signal.SIGUSR1), "died of SIGUSR1"),
        (
            partial(os._exit, 3),
            r"ended by itself, with exit code 3; does the model call os._exit\?",
        ),
    ],
)
def test_where_every_process_dies_the_first_is_told(model, cluster, end, said):
    silent = replace(model, pump=Ending(model.pump, 2, end))
    with pytest.raises(SimulationError, match=f"^sequential, seed 0: its process {said}$"):
        forecast(silent, cluster, ALL, max_epochs=1, jobs=2)
    assert not multiprocessing.active_children()


@pytest.mark.slow
@forks
def test_how_a_process_ended_is_known_whoever_counts_processes_meanwhile(monkeypatch):
    """The system tells one thread alone how a process ended."""
    monkeypatch.setattr(local_slots, "serve", lambda *_: killed())
    counted = threading.Event()

    def count():
        while not counted.is_set():
            multiprocessing.active_children()

    counters = [threading.Thread(target=count) for _ in range(2)]
    for counter in counters:
        counter.start()
    slots: Any = local_slots.LocalSlots(1)
    try:
        futures = [slots.submit(f"{at}", None, None) for at in range(40)]
        errors = [str(future.exception(timeout=60)) for future in futures]
    finally:
        counted.set()
        for counter in counters:
            counter.join()
        slots.close()
    assert {error.split(";")[0] for error in errors} == {"its process was killed (SIGKILL)"}


class Failing(queue.Queue):
    """A queue that takes no progress."""

    def put(self, news, **more):
        assert news[1] is None, "planted"
        super().put(news, **more)


@forks
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (("queue.SimpleQueue", Failing), "could not be taken: AssertionError: planted"),
        (("pebble.common.launch_thread", lambda *_: None), "its process ended by itself"),
    ],
)
def test_a_fault_of_whoever_listens_to_a_process_is_its_run_s_loss(
    model, cluster, monkeypatch, fault, said
):
    """Nobody waits for a run of which nothing will come, whatever fails on the way."""
    monkeypatch.setattr(*fault)
    with pytest.raises(SimulationError, match=rf"^sequential, seed 0: .*{said}"):
        forecast(model, cluster, ALL, max_epochs=1, jobs=2, on_progress=print)
    assert not multiprocessing.active_children()


def seed_of(result, _failure):
    return result.origin["seed"]


@forks
@pytest.mark.parametrize("slots", [1, 2])
def test_of_runs_that_are_known_by_the_same_one_is_made_and_all_are_handed_over(
    model, cluster, slots, tmp_path
):
    """Sixteen runs are asked for by eight keys: each is handed over under its own place."""

    def make_data(seed, count):
        with (tmp_path / "made").open("a") as made:
            made.write(f"{seed}\n")
        return model.make_data(seed, count)

    plan = RunPlan(replace(model, make_data=make_data), cluster, RunOptions())
    seeds = [*range(8), *range(7, -1, -1)]
    tasks = [Task(plan, ALL[0], seed, "one", 1, 1, f"key {seed}") for seed in seeds]
    handed, lost = [], []
    with jobs.opened(slots) as makes:
        listeners = jobs.Listeners(
            lambda *told: handed.append(told), lambda *told: lost.append(told)
        )
        jobs.run_all(tasks, makes, listeners, seed_of)
    assert not lost
    assert sorted(map(int, (tmp_path / "made").read_text().split())) == list(range(8))
    assert sorted(handed) == [*enumerate(seeds)]


def test_an_executor_that_was_shut_down_is_told_in_a_line(model, cluster):
    executor = concurrent.futures.ThreadPoolExecutor(1)
    executor.shutdown()
    why = r"RuntimeError\('cannot schedule new futures after shutdown'\)"
    said = f"^the executor takes no more: {why}; give another$"
    with pytest.raises(ExecutorError, match=said):
        ampsim.forecast(model, cluster, "sequential", instances=10, executor=executor)


class Breaking(concurrent.futures.Executor):
    """An executor whose tasks end in some way."""

    def __init__(self, error):
        self.error = error

    def submit(self, *_, **__):
        future = concurrent.futures.Future()
        if isinstance(self.error, OSError):
            raise self.error
        if isinstance(self.error, str):
            future.set_result(self.error)
        elif self.error is None:
            future.cancel()
            future.set_running_or_notify_cancel()
        else:
            future.set_exception(self.error)
        return future


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (concurrent.futures.BrokenExecutor("gone"), "BrokenExecutor: gone"),
        (TypeError("cannot be sent"), "TypeError: cannot be sent"),
        (None, "CancelledError: "),
        ("done", "ValueError: .* to unpack .*"),
    ],
)
def test_an_executor_that_breaks_is_told_in_a_line(model, cluster, error, said):
    with pytest.raises(ExecutorError, match=f"^sequential, seed 0: the executor broke: {said}$"):
        forecast(model, cluster, ALL, max_epochs=1, executor=Breaking(error))


def test_an_executor_that_reaches_nobody_is_told_in_a_line(model, cluster):
    said = r"^the executor takes no more: OSError\('no sbatch'\); give another$"
    with pytest.raises(ExecutorError, match=said):
        forecast(model, cluster, ALL, max_epochs=1, executor=Breaking(OSError("no sbatch")))


def test_an_executor_that_gives_no_future_is_told_in_a_line(model, cluster, monkeypatch):
    monkeypatch.setattr(Breaking, "submit", lambda *_: None)
    said = r"^executor must give a concurrent.futures.Future from submit, got None; have its submit"
    with pytest.raises(OptionError, match=said):
        forecast(model, cluster, ALL, max_epochs=1, executor=Breaking(None))


def test_an_executor_that_cannot_end_a_run_takes_no_limit(model, cluster):
    with pytest.raises(OptionError, match=r"^run_limit_s must be None for .* got 5; leave it out,"):
        forecast(model, cluster, ALL, executor=Breaking(None), run_limit_s=5.0)


@forks
@pytest.mark.parametrize("count", [1, 2])
def test_a_run_over_its_limit_is_ended_alone_however_many_run_at_a_time(model, cluster, count):
    mine = replace(model, make_data=lambda seed, count: pause_at(seed, model, count))
    made = forecast(
        mine, cluster, [Sequential()], max_epochs=1, repeats=3, jobs=count, run_limit_s=3.0
    )
    assert made.lost == ("sequential, seed 1: took longer than the limit of 3.00 s, and was ended",)
    assert [run.seed for run in made.runs] == [0, 2]
    assert (
        json.loads(to_json(made, seed=0))["lost_runs"] == made.manifest["lost_runs"] == [*made.lost]
    )
    told = f"Runs that gave nothing: 1; the first, {made.lost[0]}"
    assert told in beside_answer(made)  # as page and terminal have it
    assert tomllib.loads(to_toml(made.manifest))["lost_runs"] == [*made.lost]


def pause_at(seed, model, count):
    if seed == 1:
        signal.pause()
    return model.make_data(seed, count)


@forks
@pytest.mark.parametrize("count", [1, 2])
def test_a_run_that_memory_does_not_suffice_for_is_one_sentence(model, cluster, count, monkeypatch):
    run = Task.run

    def fail_of_amp(task, on_progress):
        if task.schedule.name == "amp":
            raise MemoryError("Unable to allocate 7 TiB")
        return run(task, on_progress)

    monkeypatch.setattr(Task, "run", fail_of_amp)
    made = forecast(model, cluster, ALL, max_epochs=1, jobs=count)
    said = "amp, seed 0: memory ran out; try fewer jobs: MemoryError('Unable to allocate 7 TiB')"
    assert [*made.lost] == [said]
    assert [run.schedule for run in made.runs] == ["sequential", "pipeline"]
    told = verdict(made.table, made.target, made.metric, made.manifest)
    assert told.endswith(". There is no run of amp.")  # as a page and JSON have it, too


@pytest.mark.slow
@forks
def test_a_process_that_is_killed_takes_nothing_with_it_but_its_run(model, cluster, tmp_path):
    mark = tmp_path / "killed"

    def kill_once():
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            return
        killed()

    mine = replace(model, pump=Ending(model.pump, 2, kill_once))
    made = forecast(mine, cluster, ALL[:2], max_epochs=1, repeats=2, jobs=2)
    assert len(made.runs) == 3
    [said] = made.lost
    assert said in made.failures
    assert "was killed (SIGKILL)" in said
    alone = forecast(model, cluster, ALL[:2], max_epochs=1, repeats=2)
    digests = {(run.schedule, run.seed): run.result.digest for run in alone.runs}
    for run in made.runs:
        assert run.result.digest == digests[run.schedule, run.seed]


@forks
def test_ctrl_c_keeps_what_finished_and_leaves_no_process(model, cluster):
    def stop(progress):
        if progress.schedule == "pipeline":
            raise KeyboardInterrupt

    slow = [Sequential(), Pipeline(3)]
    made = forecast(model, cluster, slow, max_epochs=2, repeats=2, jobs=2, on_progress=stop)
    assert {run.schedule for run in made.runs} <= {"sequential"}
    assert made.interrupted is not None
    assert "pipeline" in made.interrupted
    assert not multiprocessing.active_children()


@forks
@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=forks)])
@pytest.mark.parametrize("bad", [0, 1])
def test_a_seed_without_data_loses_its_own_run_alone(model, cluster, jobs, bad):
    def make_data(seed, count):
        if seed == bad:
            raise ValueError("no such seed")
        return model.make_data(seed, count)

    both = [Sequential(), Amp(3)]
    found = forecast(
        replace(model, make_data=make_data), cluster, both, max_epochs=1, repeats=3, jobs=jobs
    )
    assert [(run.schedule, run.seed) for run in found.runs] == [
        (name, seed) for name in ("sequential", "amp") for seed in range(3) if seed != bad
    ]
    assert len(found.table) == 2
    assert len(found.lost) == 2
    for sentence, name in zip(found.lost, ("sequential", "amp"), strict=True):
        assert sentence.startswith(f"{name}, seed {bad}: make_data of model chain failed: ValueErr")
        assert isinstance(sentence, Failure)
        assert "Traceback" in sentence.traceback


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=forks)])
def test_where_no_seed_has_data_the_first_is_told(model, cluster, jobs):
    def make_data(seed, count):
        raise ValueError(f"no seed {seed}")

    with pytest.raises(SimulationError, match=r"sequential, seed 0: make_data .*no seed 0") as told:
        forecast(replace(model, make_data=make_data), cluster, [Sequential()], repeats=2, jobs=jobs)
    assert any("Traceback" in note for note in told.value.__notes__)


def test_a_run_that_diverges_ends_alone_in_its_process(chain, cluster):
    model = replace(chain(HEAVY, instances=6).model(), optimizer=ampsim.optim.sgd(1e100))
    made = forecast(model, cluster, [Pipeline(6), Amp(1)], max_epochs=1, jobs=2)
    assert [run.failure is None for run in made.runs] == [True, False]


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "2"])
def test_jobs_must_be_a_count(model, cluster, wrong):
    said = re.escape(f"jobs must be a whole number >= 1, got {wrong!r}")
    with pytest.raises(OptionError, match=f"^{said}$"):
        forecast(model, cluster, ALL, jobs=wrong)


def test_executor_may_be_a_whole_number_of_numpy(model, cluster):
    one, other = (
        forecast(model, cluster, ALL[:1], max_epochs=1, executor=count).table
        for count in (1, np.int64(1))
    )
    assert one.equals(other)


def test_dask_that_is_not_installed_is_told_in_a_line(model, cluster, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(OptionError, match=r"needs Dask, .* pip install 'ampsim\[dask\]'$"):
        forecast(model, cluster, ALL, executor="dask:scheduler.json")


def test_two_ways_to_say_what_makes_runs_are_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["forecast", "rnn", "--jobs", "2", "--executor", "dask"])
    assert ended.value.code == 2
    said = "ampsim: --jobs 2 and --executor dask say the same thing; leave one of them out\n"
    assert capsys.readouterr().err == said


def test_as_many_as_cores(monkeypatch):
    if not hasattr(os, "sched_getaffinity"):
        pytest.skip("this system does not say which cores a process may use")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2})
    assert jobs.jobs_here() == 3


@forks
def test_joules_and_outages_are_the_same_however_many_runs_are_made_at_a_time(model):
    """A process gives back its trace; what held up steps follows from cluster and seed."""
    device = Device(name="d", flop_per_s=1e7, idle_power_w=1.0, busy_power_w=10.0)
    pause = Event(kind="pause", worker=(0, 1), from_s=0.5e-6, until_s=9e-6)
    cluster = Cluster(name="c", devices=(device,) * 2, events=(pause,))
    alone, beside = (
        forecast(model, cluster, schedules=ALL, mode="sleep", repeats=1, jobs=jobs)
        for jobs in (1, 2)
    )
    device_s = alone.table["utilisation"] * alone.table["makespan_s"] * 2
    busy_j = 2 * alone.table["makespan_s"] + 9.0 * device_s  # as if nothing were held up
    assert (alone.table["energy_j"] < busy_j * (1 - 1e-6)).any()
    assert beside.table["energy_j"].tolist() == alone.table["energy_j"].tolist()
