"""A scheduler and workers of Dask on the loopback, as processes that a test may kill."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ampsim

MEMORY = "600MB"
QUIET = {
    "DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD": "forkserver",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10s",
}
"""What Dask measures of itself takes as long, over a minute, as the runs of a test."""
PLACES = (str(Path(ampsim.__file__).parents[1]), str(Path(__file__).parent))


def under_way(dask_worker) -> list[str]:
    """The tasks that a worker is at, or was when they were cancelled."""
    tasks = dask_worker.state.tasks.items()
    return [str(key) for key, task in tasks if task.state in ("executing", "cancelled", "ready")]


def tasks_there(dask_scheduler) -> list[str]:
    """The runs that a scheduler knows of."""
    return [str(key) for key in dask_scheduler.tasks if str(key).startswith("ampsim-run-")]


def wanted_by_two(dask_scheduler) -> int:
    """How many runs two clients want."""
    tasks = dask_scheduler.tasks.items()
    return sum(str(key).startswith("ampsim-run-") and len(one.who_wants) == 2 for key, one in tasks)


def hold() -> bool:
    """Keep a worker until it is told to go."""
    from distributed import Event

    go: Any = Event("go")
    return go.wait(60)


def blas_threads() -> str | None:
    return os.environ.get("OPENBLAS_NUM_THREADS")


class DaskProcesses:
    """`dask scheduler` and `dask worker`, each the leader of a group of its own."""

    def __init__(self, folder: Path, *, allowed_failures: int = 1) -> None:
        self.folder, self.allowed_failures = folder, allowed_failures
        self.file = folder / "scheduler.json"
        self.workers: list[subprocess.Popen[bytes]] = []
        self.scheduler: subprocess.Popen[bytes] | None = None

    @property
    def executor(self) -> str:
        return f"dask:{self.file}"

    def start(self, workers: int = 2) -> None:
        self.file.unlink(missing_ok=True)
        place = ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(self.file)]
        self.scheduler = self._started(["scheduler", "--port", "0", *place])
        for number in range(workers):  # the last one is told to take four threads
            self.add_worker(OPENBLAS_NUM_THREADS="4" if number == workers - 1 else "1")
        until_s = time.monotonic() + 60
        while not self.file.is_file():
            assert time.monotonic() < until_s, "the scheduler does not start"
            time.sleep(0.05)

    def add_worker(self, **environment: str) -> subprocess.Popen[bytes]:
        words = ["worker", "--scheduler-file", str(self.file), "--host", "127.0.0.1"]
        words += ["--nworkers", "1", "--nthreads", "1", "--memory-limit", MEMORY, "--no-dashboard"]
        words += ["--local-directory", str(self.folder / f"worker-{len(self.workers)}")]
        self.workers.append(self._started(words, **environment))
        return self.workers[-1]

    def _started(self, words: list[str], **environment: str) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(PLACES)
        most = {
            **QUIET,
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(self.allowed_failures),
        }
        log = (self.folder / f"{words[0]}.log").open("ab")
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "dask", *words],
            env={**os.environ, **most, "PYTHONPATH": path, **environment}, stdin=subprocess.DEVNULL,
            stdout=log, stderr=log, start_new_session=True, cwd=self.folder,
        )  # fmt: skip

    def kill(self, process: subprocess.Popen[bytes] | None) -> None:
        """SIGKILL to a process and all that it started."""
        assert process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for process in (*self.workers, self.scheduler):
            if process is not None:
                self.kill(process)
        self.workers, self.scheduler = [], None
        for left in self.folder.glob("worker-*"):
            shutil.rmtree(left, ignore_errors=True)
