"""One interface of what makes runs: the same numbers, sentences and endings whatever it is.

Real schedulers and workers of Dask on the loopback; those tests that kill the scheduler come last.
"""

import concurrent.futures
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from dask_processes import DaskProcesses, blas_threads, hold, tasks_there, under_way, wanted_by_two

import ampsim
from ampsim.errors import OptionError
from ampsim.runs import Keeping, executor
from ampsim.runs.jobs import Listeners, opened, run_all
from ampsim.runs.task import RunPlan, Task
from ampsim.study.simulation import RunOptions

distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.thorough,
    pytest.mark.skipif(sys.platform == "win32", reason="processes are killed as elsewhere"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # sockets of what was killed
]

MODEL = """
import os, time
from dataclasses import dataclass, replace
import ampsim

@dataclass(frozen=True)
class Config:
    bad: int = -1
    how: str = "exit"
    mark: str = ""
    wait_s: float = 0.0

def build(config):
    given = ampsim.load_model("rnn", hidden=8)

    def make_data(seed, count):
        if config.mark:
            with open(config.mark, "a") as file:
                file.write(f"{seed}\\n")
        time.sleep(config.wait_s)
        if seed == config.bad:
            if config.how == "exit":
                os._exit(3)
            if config.how == "eat":
                eaten = []
                while True:
                    eaten.append(bytearray(b"x" * 20_000_000))
                    time.sleep(0.02)
            while True:
                time.sleep(0.1)
        return given.make_data(seed, count)

    return replace(given, make_data=make_data)
"""

SCHEDULES = [ampsim.Sequential(), ampsim.Pipeline(3), ampsim.Amp(3)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    processes = DaskProcesses(tmp_path_factory.mktemp("dask"))
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
    if kind == "local":
        yield 2
    elif kind == "dask":
        yield cluster.executor
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
    assert all(one.share <= 1 for one in wholes)


def test_threads_that_a_worker_s_environment_asks_for_changed_no_bit(client):
    """Half of the runs above were made by a worker that was told to take four."""
    assert sorted(client.run(blas_threads).values()) == ["1", "4"]


SENTENCES = {
    (
        "local",
        "exit",
    ): r"its process ended by itself, with exit code 3; does the model call",
    ("dask", "exit"): r"its Dask worker died 2 times; does the model call os._exit, or did memory",
    ("dask", "eat"): r"its Dask worker died 2 times; .* memory run out \(it may take 600 MB\)",
}


@pytest.mark.parametrize(("kind", "how"), SENTENCES)
def test_a_run_that_kills_its_process_is_one_sentence_and_the_others_finish(
    kind, how, cluster, path, alone
):
    said = []
    settings = {"bad": 1, "how": how}
    with named(kind, cluster) as which:
        made = forecast(path, SCHEDULES[2:], settings=settings, executor=which, on_run=said.append)
    [sentence] = made.lost
    assert re.match(rf"amp, seed 1: {SENTENCES[kind, how]}", sentence)
    assert [run.seed for run in made.runs] == [0, 2, 3]
    assert sorted(run.seed for run in said) == [0, 2, 3]
    assert all(run.spans.equals(alone_run(alone, run).spans) for run in made.runs)


def alone_run(alone, run):
    [one] = [one for one in alone.runs if (one.label, one.seed) == (run.label, run.seed)]
    return one


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
    mine = executor.about()
    for place, said in enumerate(("ampsim", "NumPy", "kernels of matrix products")):
        other = (*mine[:place], "another", *mine[place + 1 :])
        monkeypatch.setattr(executor, "about", lambda other=other: other)
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
        (0, r"jobs must be a whole number >= 1, got 0"),
    ],
)
def test_what_is_no_executor_is_told_in_a_line(path, which, said, monkeypatch):
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    with pytest.raises(OptionError, match=said):
        forecast(path, executor=which)


SLOW = {"wait_s": 0.3}
OPTIONS = {
    "max_epochs": 2, "instances": 60, "repeats": 4, "placement": "paper", "target": 0.99,
}  # fmt: skip

CLIENT = """
import ampsim
from pathlib import Path
from ampsim.runs import Keeping

schedules = [ampsim.Sequential(), ampsim.Pipeline(3), ampsim.Amp(3)][{first}:]
made = ampsim.forecast(
    ampsim.load_model({path!r}, **{settings!r}), "tflops-1", schedules, **{options!r},
    executor={executor!r}, keeping=Keeping(Path({out!r})), on_progress=lambda _progress: None,
)
print(made.interrupted, *made.failures)
"""


def begun(path, cluster, out, settings=SLOW, first=0):
    """A forecast of another process, once some of its runs are kept."""
    program = CLIENT.format(
        path=str(path), settings=settings, options=OPTIONS, executor=cluster.executor, out=str(out),
        first=first,
    )  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    until(lambda: len(kept(out)) >= 2 or process.poll() is not None, 60)
    assert process.poll() is None, process.communicate()
    return process


def until(holds, seconds):
    """Wait for something, at most so many seconds."""
    until_s = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until_s, "it does not come about"
        time.sleep(0.02)


def kept(out):
    return {one.parent.name: one.stat().st_mtime_ns for one in out.glob(".runs/*/numbers.json")}


def assert_resumed(path, which, out, alone):
    """The same forecast takes what is kept as it is, makes the rest, and gives the same table."""
    before, said = kept(out), []
    made = forecast(path, settings=SLOW, executor=which, keeping=Keeping(out, say=said.append))
    assert sum("kept from before" in line for line in said) == len(before) >= 2
    assert {name: kept(out)[name] for name in before} == before
    assert made.table.equals(alone.table)


def test_a_worker_and_a_nanny_that_are_killed_lose_nothing_and_nothing_is_made_twice(
    cluster, client, path, tmp_path
):
    process = begun(path, cluster, tmp_path, {"wait_s": 1.0})
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
    time.sleep(1)
    cluster.kill(cluster.workers.pop())
    assert process.communicate(timeout=90) == ("None\n", "")
    assert len(kept(tmp_path)) == 12
    cluster.add_worker(OPENBLAS_NUM_THREADS="4")
    client.wait_for_workers(2, timeout=60)


def is_idle(client):
    return not any(client.run(under_way).values())


def test_ctrl_c_ends_the_runs_on_the_workers_and_keeps_what_finished(
    cluster, client, path, tmp_path, alone
):
    process = begun(path, cluster, tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    until(lambda: is_idle(client), 20)
    said = process.communicate(timeout=60)[0]
    assert re.match(r"interrupted: \d+ of 12 runs did not finish \((sequential, )?", said)
    assert_resumed(path, client, tmp_path, alone)


def test_a_run_that_never_ends_is_ended_by_ctrl_c_and_the_others_are_kept(
    cluster, client, path, tmp_path
):
    process = begun(path, cluster, tmp_path, {"bad": 3, "how": "hang"}, 2)
    until(lambda: len(kept(tmp_path)) == 3, 60)
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=60)[0]
    assert said.startswith("interrupted: 1 of 4 runs did not finish (amp)")
    client.wait_for_workers(2, timeout=60)
    until(lambda: is_idle(client), 10)


def test_a_client_that_is_killed_leaves_nothing_on_the_scheduler_and_the_next_goes_on(
    cluster, client, path, tmp_path, alone
):
    process = begun(path, cluster, tmp_path)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    until(lambda: not client.run_on_scheduler(tasks_there) and is_idle(client), 10)
    assert_resumed(path, client, tmp_path, alone)


def test_a_scheduler_that_is_killed_is_told_and_a_new_one_goes_on(cluster, path, tmp_path, alone):
    words = [sys.executable, "-P", "-m", "ampsim", "forecast", str(path), "--set", "wait_s=0.3"]
    words += ["--max-epochs", "2", "--instances", "60", "--repeats", "4", "--target", "0.99"]
    words += ["--executor", cluster.executor, "--out", str(tmp_path), "--quiet"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    until(lambda: len(kept(tmp_path)) >= 2, 60)
    cluster.kill(cluster.scheduler)
    said = process.communicate(timeout=25)[1]  # sooner than Dask itself gives up, after 30 s
    assert process.returncode == 2
    gone = r"ampsim: the Dask scheduler at tcp://\S+ is gone; start it, and run again to go on\n"
    assert re.fullmatch(gone, said)
    before = kept(tmp_path)
    assert len(before) >= 2
    cluster.stop()
    cluster.start()
    words[words.index(cluster.executor)] = f"dask:{cluster.file}"
    ended = subprocess.run([*words[:-1]], capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("kept from before") == len(before)
