"""The client of a Dask cluster, whose scheduler and workers only say what they are told to."""

import asyncio
import concurrent.futures
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ampsim import Sequential
from ampsim.errors import ExecutorError, OptionError
from ampsim.runs import dask_client
from ampsim.runs.dask_client import DaskClient, connected
from ampsim.runs.executor import Died, packed_for_elsewhere
from ampsim.runs.run import run_of
from ampsim.runs.task import RunPlan, Task
from ampsim.study.simulation import RunOptions

distributed = pytest.importorskip("distributed", reason="Dask is not installed")


@pytest.fixture
def task(chain, make_cluster):
    model = replace(chain(((10, 20, 5),) * 2, instances=6, valid=3, rows=4).model(), target=0.99)
    return Task(RunPlan(model, make_cluster(2), RunOptions()), Sequential(), 0, "one", 1, 1)


class DaskFuture:
    """A `distributed.Future` that has ended, in some way."""

    key = ""

    def __init__(self, status, error):
        self.status, self.error = status, error

    def add_done_callback(self, callback):
        callback(self)

    def exception(self):
        return self.error

    def result(self):
        raise self.error

    def retry(self):
        raise OSError("nobody is there")


def dask_client_of(said, **more):
    """A `distributed.Client` whose workers say this of themselves."""
    return SimpleNamespace(
        scheduler=SimpleNamespace(address="tcp://here", processing=None), run=lambda *_, **__: said,
        subscribe_topic=lambda *_: None, close=lambda: None, **more,
    )  # fmt: skip


def test_a_worker_that_dies_when_asked_what_it_is_refuses_nobody_and_one_without_ampsim_does():
    DaskClient(dask_client_of({"tcp://one": OSError("Stream is closed")}), is_own=True)
    without = dask_client_of({"tcp://one": ModuleNotFoundError("No module named 'ampsim'")})
    with pytest.raises(OptionError, match=r"at tcp://here must have .* got ModuleNotFoundError"):
        DaskClient(without, is_own=True)


def test_a_scheduler_is_told_to_make_what_was_asked_for_first_first(task):
    """Of Dask the higher priority goes first. A run is called by its key, and by nothing else."""
    asked = []

    def submit(*_given, **how):
        asked.append((how["key"], how["priority"]))
        return SimpleNamespace(add_done_callback=lambda _callback: None)

    client = DaskClient(dask_client_of({}, submit=submit), is_own=False)
    for key in "cab":
        client.submit(key, task, run_of)
    by_priority = sorted(asked, key=lambda one: -one[1])
    assert [key for key, _priority in by_priority] == [f"ampsim-run-{key}" for key in "cab"]
    assert len({priority for _key, priority in asked}) == 3


def test_workers_that_heed_nothing_are_killed_by_their_nannies_and_others_end_for_good(
    task, monkeypatch
):
    """Of the three that are at the run, one lets go of it by itself; Dask asks nannies that are."""
    known = {one: {"nanny": one != "alone"} for one in ("heeds", "nannied", "alone")}
    said = []

    def run(asked, *_, workers=(), nanny=False, **__):
        said.extend([(asked.__name__, *workers)] if nanny else [])
        return {one: one != "heeds" for one in workers}

    client = dask_client_of(
        {}, submit=lambda *_, **__: SimpleNamespace(add_done_callback=lambda _: None),
        status="running", cancel=lambda _asked: said.append(("cancel",)),
        sync=lambda _asked, **_: {one: ["ampsim-run-key"] for one in known} | {"other": ["other"]},
        scheduler_info=lambda **_: {"workers": known},
        restart_workers=lambda workers, **_: said.append(("restart", *workers)),
    )  # fmt: skip
    made = DaskClient(client, is_own=False)
    client.run = run
    asked = made.submit("key", task, run_of)
    monkeypatch.setattr(dask_client, "SECONDS_TO_STOP", 0.2)
    made.stop({"key": asked})
    assert said == [("cancel",), ("kill", "nannied", "alone"), ("restart", "alone")]
    assert asked.cancelled()


def test_a_scheduler_that_is_gone_and_not_missed_yet_is_not_waited_for(task):
    """Dask waits for one as long as it waits when it connects, ten seconds."""
    waits, said = [], []

    def sync(_asked, *, callback_timeout, **_):
        waits.append(callback_timeout)
        raise TimeoutError

    client = dask_client_of(
        {}, submit=lambda *_, **__: SimpleNamespace(add_done_callback=lambda _: None),
        status="running", cancel=lambda _asked: said.append("cancel"), sync=sync,
    )  # fmt: skip
    made = DaskClient(client, is_own=False)
    asked = made.submit("key", task, run_of)
    made.stop({"key": asked})
    assert waits == [dask_client.SECONDS_TO_STOP]
    assert asked.cancelled() and not said


class AtOneTask:
    """A Dask worker that is at one task, of which the scheduler lets go at the first news."""

    def __init__(self, state):
        self.logged, self.has_said = [], threading.Event()
        self.state = SimpleNamespace(tasks={"ampsim-run-key": SimpleNamespace(state="executing")})
        self._later = state

    def get_current_task(self):
        return "ampsim-run-key"

    def log_event(self, topic, content):
        self.logged.append((topic, content))
        self.has_said.set()
        if self._later is None:
            self.state.tasks.clear()
        else:
            self.state.tasks["ampsim-run-key"].state = self._later


@pytest.mark.parametrize("state", ["executing", "cancelled", "resumed", "released", None])
def test_a_run_that_nobody_wants_any_more_ends_when_it_tells_of_its_progress(
    task, state, monkeypatch
):
    """Dask does not stop what is cancelled; the worker's state of it is the flag."""
    worker = AtOneTask(state)
    monkeypatch.setattr(distributed, "get_worker", lambda: worker)
    answer: Any = dask_client.answer_on_worker(packed_for_elsewhere(task, run_of), None)
    if state == "executing":
        assert answer[0].learning_digest == task.run(None)[0].learning_digest
    else:
        assert "raise Stopped" in str(answer)
    assert {topic for topic, _content in worker.logged} == {dask_client.TOPIC}
    assert (len(worker.logged) > 1) == (state == "executing")


@pytest.mark.parametrize(("limit_s", "is_told"), [(0.05, True), (30.0, False), (None, False)])
def test_a_worker_that_is_at_a_run_for_too_long_says_so_and_no_other(limit_s, is_told, monkeypatch):
    worker = AtOneTask("executing")

    def made(_content, _tell):
        if is_told:
            worker.has_said.wait(10)
        return "made", None

    monkeypatch.setattr(distributed, "get_worker", lambda: worker)
    monkeypatch.setattr(dask_client, "answer_elsewhere", made)
    assert dask_client.answer_on_worker(b"", limit_s) == ("made", None)
    assert ((dask_client.OVERDUE, "key") in worker.logged) == is_told
    for one in threading.enumerate():
        if isinstance(one, threading.Timer):
            one.join(10)  # it was told to end
            assert not one.is_alive()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("dask", {"address": "tcp://of.environment:1"}),
        ("dask:tcp://one:2", {"address": "tcp://one:2"}),
        ("dask:scheduler.json", {"scheduler_file": "scheduler.json"}),
    ],
)
def test_a_text_names_a_scheduler_and_dask_alone_that_of_the_environment(
    text, named, monkeypatch, tmp_path
):
    asked = []

    def client(**how):
        asked.append({key: how[key] for key in how if key not in ("timeout", "name")})
        return dask_client_of({})

    monkeypatch.chdir(tmp_path)
    (tmp_path / "scheduler.json").touch()
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", "tcp://of.environment:1")
    monkeypatch.setattr(distributed, "Client", client)
    connected(text).close()
    assert asked == [named]


GONE = (ExecutorError, "the Dask scheduler at tcp://here is gone; start it, and run again to go on")


@pytest.mark.parametrize(
    ("ended", "kind", "said"),
    [
        (("finished", ZeroDivisionError("planted")), Died, "taken: ZeroDivisionError: planted"),
        (("lost", OSError("Stream is closed")), *GONE),
        (("cancelled", asyncio.CancelledError()), *GONE),
        (("cancelled", concurrent.futures.CancelledError()), *GONE),
        (("error", ValueError("of Dask")), Died, "it failed on a Dask worker: ValueError: of Dask"),
        (("error", None), *GONE),  # its worker was killed, and nobody is there who tries it alone
    ],
)
def test_whatever_becomes_of_a_task_of_dask_its_run_is_not_waited_for(task, ended, kind, said):
    worker = SimpleNamespace(address="tcp://there", memory_limit=0)
    status, error = ended
    error = error or distributed.KilledWorker("one", worker, 3)
    client = dask_client_of({}, submit=lambda *_, **__: DaskFuture(status, error))
    made = DaskClient(client, is_own=False).submit("key", task, run_of)
    with pytest.raises(kind, match=said):
        made.result(timeout=60)
