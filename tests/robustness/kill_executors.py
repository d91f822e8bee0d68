"""Workers, nannies, the scheduler and the client of a Dask cluster, killed at random.

    python tests/robustness/kill_executors.py --kills 30 --seed 0

A forecast is made on a cluster on the loopback. At a random moment one of its processes gets a
SIGKILL: a worker, a nanny with its worker, the scheduler with all, or the client. What was killed
is started again, and the same command goes on, until it ends without a kill. A fault is

* a finished run that is not kept any more, or was made again,
* a command that ends otherwise than with 0, with a line on a scheduler that is gone, or killed,
* a table at the end that is not that of a forecast that nobody killed,
* a run that is still on the scheduler ten seconds after its client.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from distributed import Client

sys.path.insert(0, str(Path(__file__).parents[1]))
from dask_processes import DaskProcesses, tasks_there

MODEL = ("rnn", "--set", "hidden=8", "--schedule", "sequential,pipeline,amp", "--repeats", "8")
FORECAST = [sys.executable, "-P", "-m", "ampsim", "forecast", *MODEL, "--instances", "600"]
FORECAST += ["--max-epochs", "2", "--placement", "paper", "--quiet"]
GONE = ("is gone; start it, and run again to go on", "no Dask scheduler answers there")
"""What is said of a scheduler that was killed; last, of one that a command had not reached yet."""


def main() -> int:
    """Kill, count, and tell each fault; 1 if there was one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # it leaves no cluster behind
    random_, faults = random.Random(chosen.seed), list[str]()
    with tempfile.TemporaryDirectory(prefix="ampsim-kill-") as name:
        folder = Path(name)
        started_s = time.monotonic()
        whole = table_of([*FORECAST, "--jobs", "2", "--out", str(folder / "whole")], folder)
        took_s = time.monotonic() - started_s
        cluster = DaskProcesses(folder)
        cluster.start()
        try:
            kills = 0
            while kills < chosen.kills:
                out = folder / f"out-{kills}"
                most = min(chosen.kills - kills, 6)
                kills += most
                faults += killed(cluster, out, [random_.uniform(1, took_s) for _ in range(most)])
                words = [*FORECAST, "--executor", cluster.executor, "--out", str(out)]
                if table_of(words, folder) != whole:
                    faults.append(f"{out.name}: another table")
                print(f"{kills} kills, {len(faults)} faults", flush=True)
        finally:
            cluster.stop()
    for fault in faults:
        print(f"FAULT {fault}")
    print(f"{chosen.kills} kills, {len(faults)} with a fault")
    return 1 if faults else 0


def table_of(words: list[str], folder: Path) -> str:
    """The object that a forecast writes, which must end well."""
    file = folder / "table.json"
    ended = subprocess.run([*words, "--json", str(file)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return file.read_text()


def killed(cluster: DaskProcesses, out: Path, moments: list[float]) -> list[str]:
    """Kill something at each moment, and tell what is wrong."""
    faults: list[str] = []
    before: dict[str, int] = {}
    for number, after_s in enumerate(moments):
        what = random.Random(f"{out.name} {number}").choice(list(KILLS))
        words = [*FORECAST, "--executor", cluster.executor, "--out", str(out)]
        started_s = time.time()
        process = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        time.sleep(after_s)
        KILLS[what](cluster, process)
        said = process.communicate(timeout=300)[1]
        is_told = any(one in said for one in GONE)
        is_fine = process.returncode in (0, -signal.SIGKILL) or is_told
        if not is_fine or len(said.splitlines()) > 1:
            faults.append(f"{what}: exit code {process.returncode}: {said[-400:]}")
        manifest = out / "manifest.toml"
        is_written = manifest.is_file() and manifest.stat().st_mtime >= started_s
        if process.returncode == 0 or is_written:  # what it kept is gone with it, or going
            before = {}
            continue
        now = kept(out)
        for name, time_ns in before.items():
            if now.get(name) != time_ns:
                faults.append(f"{what}: {name} was lost, or made again")
        before = now
    return faults


def kept(out: Path) -> dict[str, int]:
    return {one.parent.name: one.stat().st_mtime_ns for one in out.glob(".runs/*/numbers.json")}


def kill_worker(cluster: DaskProcesses, process: subprocess.Popen[str]) -> None:
    with Client(scheduler_file=str(cluster.file)) as client:
        workers: Any = client.run(os.getpid)
        for victim in list(workers.values())[:1]:
            os.kill(victim, signal.SIGKILL)


def kill_nanny(cluster: DaskProcesses, process: subprocess.Popen[str]) -> None:
    cluster.kill(cluster.workers.pop(0))
    cluster.add_worker()


def kill_scheduler(cluster: DaskProcesses, process: subprocess.Popen[str]) -> None:
    cluster.kill(cluster.scheduler)
    process.wait(60)
    cluster.stop()
    cluster.start()


def kill_client(cluster: DaskProcesses, process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    with Client(scheduler_file=str(cluster.file)) as client:
        until_s = time.monotonic() + 10
        while client.run_on_scheduler(tasks_there):
            assert time.monotonic() < until_s, "runs of a client that is gone are still there"
            time.sleep(0.05)


KILLS = {
    "worker": kill_worker,
    "nanny": kill_nanny,
    "scheduler": kill_scheduler,
    "client": kill_client,
}

if __name__ == "__main__":
    sys.exit(main())
