"""One interface of what makes runs: the same numbers, sentences and endings whatever it is.

Real schedulers and workers of Dask on the loopback; those tests that kill the scheduler come last.
"""

import concurrent.futures
import contextlib
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from dask_processes import DaskProcesses, blas_threads, hold, tasks_there, under_way, wanted_by_two

import ampsim
from ampsim.errors import ExecutorError, OptionError
from ampsim.runs import RunCache
from ampsim.runs import executor as executors
from ampsim.runs.jobs import Listeners, opened, run_all
from ampsim.runs.task import RunPlan, Task
from ampsim.study.simulation import RunOptions

distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.thorough,
    pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc, and limits memory"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # sockets of what was killed
]

MODEL = """
import os, resource, time
from dataclasses import dataclass, replace
import ampsim

@dataclass(frozen=True)
class Config:
    exits: int = -1
    times: int = 99
    eats: int = -1
    hangs: int = -1
    while_there: str = ""
    is_limited: bool = False
    mark: str = ""

def build(config):
    given = ampsim.load_model("rnn", hidden=8)

    def make_data(seed, count):
        if config.mark:
            with open(config.mark, "a") as file:
                file.write(f"{seed}\\n")
        if os.path.exists(config.while_there):
            misbehave(seed)
        return given.make_data(seed, count)

    def tries(seed):
        with open(config.mark) as file:
            return file.read().split().count(str(seed))

    def misbehave(seed):
        if seed == config.exits and (not config.mark or tries(seed) <= config.times):
            os._exit(3)
        if seed == config.eats:
            if config.is_limited:
                pages = int(open("/proc/self/statm").read().split()[0])
                most_bytes = pages * resource.getpagesize() + 3 * 10**8
                resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
            eaten = []
            while True:
                eaten.append(bytearray(b"x" * 20_000_000))
                time.sleep(0.02)
        while seed == config.hangs:
            os.utime(config.while_there)  # it is still at work
            time.sleep(0.1)

    return replace(given, make_data=make_data)
"""

SCHEDULES = [ampsim.Sequential(), ampsim.Pipeline(3), ampsim.Amp(3)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    processes = DaskProcesses(tmp_path_factory.mktemp("dask"), allowed_failures=0)
    processes.start()
    yield processes
    processes.stop()


@pytest.fixture
def client(cluster):
    with distributed.Client(scheduler_file=str(cluster.file)) as found:
        found.wait_for_workers(2, timeout=60)
        yield found


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    file = tmp_path_factory.mktemp("model") / "mine.py"
    file.write_text(MODEL)
    return file


def forecast(path, schedules=SCHEDULES, repeats=4, *, settings=None, **options):
    model = ampsim.load_model(path, **(settings or {}))
    options = {**OPTIONS, "repeats": repeats, **options}
    return ampsim.forecast(model, "tflops-1", schedules, **options)


@pytest.fixture(scope="module")
def alone(path):
    return forecast(path)


def assert_same(one, two):
    assert two.table.equals(one.table)
    assert two.manifest == one.manifest
    assert [(run.label, run.seed) for run in two.runs] == [
        (run.label, run.seed) for run in one.runs
    ]
    for a, b in zip(one.runs, two.runs, strict=True):
        assert (b.label, b.seed) == (a.label, a.seed)
        assert b.learning_digest == a.learning_digest
        for name in ("spans", "epochs", "staleness", "path_parts", "memory", "transfers"):
            assert getattr(b, name).equals(getattr(a, name)), name


EXECUTORS = ["local", "dask", "client", "any"]


@contextlib.contextmanager
def named(kind, cluster):
    """What a user would hand over."""
    if kind in ("local", "dask"):
        yield {"local": 2, "dask": cluster.executor}[kind]
    elif kind == "client":
        with distributed.Client(scheduler_file=str(cluster.file)) as client:
            yield client
    else:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            yield pool


@pytest.mark.parametrize("kind", EXECUTORS)
def test_twelve_runs_are_the_same_to_the_bit(kind, cluster, path, alone):
    told = []
    with named(kind, cluster) as which:
        made = forecast(path, executor=which, on_progress=told.append)
    assert_same(alone, made)
    wholes = [one.whole for one in told if one.whole]
    assert kind == "any" or wholes[-1].finished == wholes[-1].runs == 12
    assert all(one.finished <= one.runs for one in wholes)


def test_threads_that_a_worker_s_environment_asks_for_changed_no_bit(client):
    """Half of the runs above were made by a worker that was told to take four."""
    assert sorted(client.run(blas_threads).values()) == ["1", "4"]


LIMIT_S = {"local": 6.0, "dask": 15.0}
"""A run takes a fraction of a second, and at first on a Dask worker some seconds."""

SENTENCES = {
    "local": [
        "its process ended by itself, with exit code 3; does the model call os._exit?",
        "make_data of model rnn failed: MemoryError",
        "took longer than the limit of 6.00 s, and was ended",
    ],
    "dask": [
        "its Dask worker died 3 times; does the model call os._exit, or did memory run out (it ",
        "its Dask worker died 3 times; does the model call os._exit, or did memory run out (it ",
        "took longer than the limit of 15.0 s, and was ended",
    ],
}


@pytest.mark.parametrize("kind", SENTENCES)
def test_a_run_that_exits_one_that_eats_memory_and_one_that_never_ends_are_a_sentence_each(
    kind, cluster, path, tmp_path
):
    """The others finish; when the cause is gone, the same command makes the three, and no more."""
    there, said = tmp_path / "there", []
    there.touch()
    settings = {"exits": 1, "eats": 2, "hangs": 3, "while_there": str(there)}
    mine = partial(
        forecast, path, SCHEDULES[2:], 5, settings={**settings, "is_limited": kind == "local"}
    )
    with named(kind, cluster) as which:
        asked = partial(mine, executor=which, run_limit_s=LIMIT_S[kind])
        made = asked(keeping=RunCache(tmp_path), on_run=said.append)
        assert len(made.lost) == 3
        for seed, sentence in enumerate(SENTENCES[kind], 1):
            assert made.lost[seed - 1].startswith(f"amp, seed {seed}: {sentence}")
        assert [run.seed for run in made.runs] == sorted(run.seed for run in said) == [0, 4]
        there.unlink()
        assert_resumed(asked, tmp_path, mine())


def test_one_death_of_a_worker_while_a_run_is_alone_may_be_chance(cluster, path, tmp_path):
    """As that of a machine that is taken away; here the run dies first among others, then alone."""
    mark = tmp_path / "tried"
    settings = {"exits": 1, "times": 2, "mark": str(mark), "while_there": str(mark)}
    made = forecast(path, SCHEDULES[2:], 3, settings=settings, executor=cluster.executor)
    assert not made.lost
    assert mark.read_text().split().count("1") == 3


def test_a_finished_run_lost_with_its_worker_and_again_with_the_next_is_no_run_that_kills(
    client, path, monkeypatch
):
    """Asked for what came of it, the scheduler answers that its workers have died."""
    died, result = [], distributed.Future.result

    def lost(future, *options):
        if future.key.startswith("ampsim-run-") and not died:
            died.append(future.key)
            raise distributed.KilledWorker(future.key, None, 0)
        return result(future, *options)

    monkeypatch.setattr(distributed.Future, "result", lost)
    made = forecast(path, SCHEDULES[2:], 3, executor=client)
    assert died
    assert not made.lost


def test_equal_runs_of_two_clients_are_made_once(cluster, client, path, tmp_path):
    """A hundred runs are asked for, by two clients, and fifty are made."""
    mark = tmp_path / "made"
    model = ampsim.load_model(path, mark=str(mark))
    plan = RunPlan(model, ampsim.load_cluster("tflops-1", workers=2), RunOptions(instances=4))
    key = f"{time.time_ns()}-"
    tasks = [Task(plan, SCHEDULES[0], seed, "one", 1, 1, f"{key}{seed}") for seed in range(50)]
    made: list[list[int]] = [[], []]

    def ask(which):
        keep = Listeners(lambda place, *_: made[which].append(place), print)
        with opened(cluster.executor) as makes:
            run_all(tasks, makes, keep)

    both = [threading.Thread(target=ask, args=[which]) for which in (0, 1)]
    held = [client.submit(hold, pure=False, workers=[worker]) for worker in client.nthreads()]
    for one in both:
        one.start()
    until(lambda: client.run_on_scheduler(wanted_by_two) == 50, 60)
    distributed.Event("go", client=client).set()
    for one in both:
        one.join(60)
    assert client.gather(held) == [True, True]
    assert [sorted(places) for places in made] == [list(range(50))] * 2
    assert sorted(map(int, mark.read_text().split())) == list(range(50))


def test_a_worker_that_joins_with_other_code_or_kernels_is_refused(cluster, path, monkeypatch):
    mine = executors.about()
    for place, said in enumerate(("ampsim", "Python", "NumPy", "kernels of matrix products")):
        other = (*mine[:place], "another", *mine[place + 1 :])
        monkeypatch.setattr(executors, "about", lambda other=other: other)
        with pytest.raises(OptionError, match=rf"^{said} must be the same everywhere, for others"):
            forecast(path, SCHEDULES[:1], 2, seed=1000 * (place + 1), executor=cluster.executor)
        monkeypatch.undo()


def test_workers_of_another_version_are_refused_before_anything_runs(cluster, path, tmp_path):
    package = Path(ampsim.__file__).parent
    shutil.copytree(package, tmp_path / "ampsim", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "ampsim" / "units.py").open("a") as file:
        file.write("\n# another version\n")
    worker = cluster.add_worker(PYTHONPATH=str(tmp_path))
    with distributed.Client(scheduler_file=str(cluster.file)) as client:
        client.wait_for_workers(3, timeout=60)
        try:
            with pytest.raises(OptionError, match=r"^ampsim must be the same .* on tcp://127\.0"):
                forecast(path, executor=cluster.executor)
        finally:
            cluster.kill(cluster.workers.pop())
        assert worker.returncode
        until_s = time.monotonic() + 10
        while len(client.nthreads()) > 2:
            assert time.monotonic() < until_s
            time.sleep(0.05)


@pytest.mark.parametrize(
    ("which", "said"),
    [
        ("dask", r"DASK_SCHEDULER_ADDRESS is not set; for example dask:scheduler.json"),
        ("dask:nowhere.json", r"expected an address .* there is no such file"),
        ("ray://one", r"executor must be a number of processes, .*, got 'ray://one'"),
        (1.5, r"executor must be a number of processes, .*, got 1.5"),
        (0, r"^executor must be a whole number >= 1, got 0"),
    ],
)
def test_what_is_no_executor_is_told_in_a_line(path, which, said, monkeypatch):
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    with pytest.raises(OptionError, match=said):
        forecast(path, executor=which)


OPTIONS = {
    "max_epochs": 2, "instances": 60, "repeats": 4, "placement": "paper", "target": 0.99,
}  # fmt: skip


def until(holds, seconds):
    """Wait for something, at most so many seconds."""
    until_s = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until_s, "it does not come about"
        time.sleep(0.02)


def kept(out):
    return {one.parent.name: one.stat().st_mtime_ns for one in out.glob(".runs/*/numbers.json")}


def assert_resumed(asked, out, alone):
    """The same forecast takes what is kept as it is, makes the rest, and gives the same table."""
    before, said = kept(out), []
    made = asked(keeping=RunCache(out, say=said.append))
    assert sum("kept from before" in line for line in said) == len(before) >= 2
    assert {name: kept(out)[name] for name in before} == before
    assert made.table.equals(alone.table)


class At:
    """What is done when so many runs have ended."""

    def __init__(self, **actions):
        self.actions, self.ended = actions, 0

    def __call__(self, run):
        self.ended += 1
        self.actions.get(f"after_{self.ended}", lambda: None)()


def test_a_worker_and_a_nanny_that_are_killed_lose_nothing_and_nothing_is_made_twice(
    cluster, client, path, tmp_path, alone
):
    def kill():
        """Both at once: what is killed when it is tried alone has killed its worker itself."""
        nanny = cluster.workers.pop()
        processes = client.run(os.getpid).values()
        os.kill(next(one for one in processes if os.getpgid(one) != nanny.pid), signal.SIGKILL)
        cluster.kill(nanny)
        cluster.add_worker(OPENBLAS_NUM_THREADS="4")

    told = At(after_2=kill)
    keeping = RunCache(tmp_path)
    made = forecast(path, executor=client, keeping=keeping, on_run=told)
    assert_same(alone, made)
    assert told.ended == len(kept(tmp_path)) == 12
    client.wait_for_workers(2, timeout=60)


def is_idle(client):
    """Whether no run is at work, here or on a worker."""
    return not multiprocessing.active_children() and not any(client.run(under_way).values())


def is_left(group):
    """Whether a process of a group is alive."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _parent, its_group = file.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                return True
    return False


@pytest.fixture(params=["local", "dask"])
def executor(request, cluster):
    return 2 if request.param == "local" else cluster.executor


def test_ctrl_c_ends_runs_and_those_that_never_end_and_keeps_what_finished(
    executor, client, path, tmp_path, alone
):
    there, interrupted_s = tmp_path / "there", []
    there.touch()

    def interrupt():
        interrupted_s.append(time.time())
        signal.raise_signal(signal.SIGINT)

    settings = {"hangs": 3, "while_there": str(there)}
    asked = partial(forecast, path, settings=settings, executor=executor)
    made = asked(keeping=RunCache(tmp_path), on_run=At(after_3=interrupt))
    told = r"interrupted: \d+ of 12 runs did not finish \((sequential, )?"
    assert re.match(told, made.interrupted or "")
    until(lambda: is_idle(client), 20)  # on a quiet machine one or two
    assert there.stat().st_mtime - interrupted_s[0] < 5
    assert len(kept(tmp_path)) == len(made.runs) >= 3
    there.unlink()
    client.wait_for_workers(2, timeout=60)
    assert_resumed(asked, tmp_path, alone)


CLIENT = """
import ampsim
from pathlib import Path
from ampsim.runs import RunCache

schedules = [ampsim.Sequential(), ampsim.Pipeline(3), ampsim.Amp(3)]
ampsim.forecast(
    ampsim.load_model({path!r}), "tflops-1", schedules, **{options!r}, executor={executor!r},
    keeping=RunCache(Path({out!r})), on_progress=lambda _progress: None,
)
"""


def test_a_client_that_is_killed_leaves_nothing_at_work_and_the_next_goes_on(
    executor, client, path, tmp_path, alone
):
    options = {"path": str(path), "out": str(tmp_path), "executor": executor, "options": OPTIONS}
    words = [sys.executable, "-P", "-c", CLIENT.format(**options)]
    process = subprocess.Popen(words, start_new_session=True)
    until(lambda: len(kept(tmp_path)) >= 2 or process.poll() is not None, 60)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    until(lambda: not client.run_on_scheduler(tasks_there) and is_idle(client), 10)
    until(lambda: not is_left(process.pid), 10)
    assert_resumed(partial(forecast, path, executor=executor), tmp_path, alone)


def test_a_scheduler_that_is_killed_is_told_and_a_new_one_goes_on(cluster, path, tmp_path, alone):
    """A run that never ends is under way then, whatever else has come back."""
    there, killed_s = tmp_path / "there", []
    there.touch()

    def kill():
        cluster.kill(cluster.scheduler)
        killed_s.append(time.monotonic())

    settings = {"hangs": 3, "while_there": str(there)}
    asked = partial(forecast, path, settings=settings, executor=cluster.executor)
    gone = r"^the Dask scheduler at tcp://\S+ is gone; start it, and run again to go on$"
    with pytest.raises(ExecutorError, match=gone):
        asked(keeping=RunCache(tmp_path), on_run=At(after_2=kill))
    assert time.monotonic() - killed_s[0] < 5  # Dask itself tries for 30 to reach it again
    cluster.stop()
    there.unlink()
    cluster.start(workers=1)
    assert_resumed(asked, tmp_path, alone)
