"""The client of a Dask cluster, whose scheduler and workers only say what they are told to."""

import asyncio
import concurrent.futures
from dataclasses import replace
from types import SimpleNamespace

import pytest

from ampsim import Sequential
from ampsim.errors import ExecutorError, OptionError
from ampsim.runs import dask_client
from ampsim.runs.dask_client import DaskClient, connected
from ampsim.runs.executor import Died
from ampsim.runs.run import run_of
from ampsim.runs.task import RunPlan, Task
from ampsim.study.simulation import RunOptions

pytest.importorskip("distributed", reason="Dask is not installed")


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
        scheduler=SimpleNamespace(address="tcp://here"), run=lambda *_, **__: said,
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
        client.submit(key, task, run_of, False)
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
        processing=lambda: {one: ["ampsim-run-key"] for one in known} | {"other": ["other"]},
        scheduler_info=lambda **_: {"workers": known},
        restart_workers=lambda workers, **_: said.append(("restart", *workers)),
    )  # fmt: skip
    made = DaskClient(client, is_own=False)
    client.run = run
    asked = made.submit("key", task, run_of, False)
    monkeypatch.setattr(dask_client, "SECONDS_TO_STOP", 0.2)
    made.stop(["key"])
    assert said == [("cancel",), ("kill", "nannied", "alone"), ("restart", "alone")]
    assert asked.cancelled()


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
    distributed = pytest.importorskip("distributed")
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
    dask = pytest.importorskip("distributed")
    worker = SimpleNamespace(address="tcp://there", memory_limit=0)
    status, error = ended
    error = error or dask.KilledWorker("one", worker, 3)
    client = dask_client_of({}, submit=lambda *_, **__: DaskFuture(status, error))
    made = DaskClient(client, is_own=False).submit("key", task, run_of, False)
    with pytest.raises(kind, match=said):
        made.result(timeout=60)
