"""Messages a second in `sleep` mode with the trace on, against bare and plain SimPy; and memory.

    python tests/benchmark/bench_messages.py [--rounds 7] [--millions 3]

The three are measured in turns in one process: ampsim's whole engine on the list-reduction RNN; a
bare SimPy process that only resumes; and what a user would write in SimPy without ampsim, a
Resource and a Timeout for each task.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import simpy

import ampsim
from ampsim.study import Simulation

TASKS = 100_000


def rnn(spans_kept: int | None = None) -> Simulation:
    """The RNN of four replicas under AMP on 16 devices, in mode sleep."""
    model = ampsim.load_model("rnn", replicas=4)
    cluster = ampsim.load_cluster("tflops-1", workers=16)
    schedule = ampsim.Amp(max_active_keys=8)
    return Simulation(model, cluster, schedule, mode="sleep", spans_kept=spans_kept)


def messages_per_s() -> float:
    """One epoch through the whole engine."""
    simulation = rnn()
    start = time.perf_counter()
    simulation._training.train(simulation._batches("train"))
    seconds = time.perf_counter() - start
    return simulation.result().messages / seconds


def bare_simpy_per_s() -> float:
    """Resumptions of a process that does nothing else."""
    environment = simpy.Environment()

    def resume() -> Generator[Any, Any, None]:
        for _ in range(TASKS):
            yield environment.timeout(1)

    environment.process(resume())
    return TASKS / _seconds(environment.run)


def plain_simpy_per_s() -> float:
    """Tasks that each ask for a worker, hold it for a while and release it."""
    environment = simpy.Environment()
    workers = [simpy.Resource(environment) for _ in range(16)]

    def task(worker: simpy.Resource) -> Generator[Any, Any, None]:
        with worker.request() as turn:
            yield turn
            yield environment.timeout(1)

    for number in range(TASKS):
        environment.process(task(workers[number % 16]))
    return TASKS / _seconds(environment.run)


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def memory_bytes() -> int:
    """Bytes resident now where the system tells, else at most so far."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def memory_by_million(spans_kept: int | None, millions: int) -> list[tuple[int, float]]:
    """(messages, MB above the start) after each further million messages."""
    simulation = rnn(spans_kept)
    gc.collect()
    start, rows = memory_bytes(), []
    for million in range(1, millions + 1):
        while simulation.result().messages < million * 1_000_000:
            simulation.run_epoch()
        gc.collect()
        rows.append((simulation.result().messages, (memory_bytes() - start) / 1e6))
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--millions", type=int, default=3)
    options = parser.parse_args()
    measured = {"ampsim, sleep": messages_per_s, "bare SimPy": bare_simpy_per_s}
    measured["plain SimPy tasks"] = plain_simpy_per_s
    rates: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(options.rounds):
        for name, measure in measured.items():
            rates[name].append(measure())
    for name, values in rates.items():
        low, middle, high = min(values), statistics.median(values), max(values)
        print(f"{name:18} {middle:12,.0f} a second   ({low:,.0f} to {high:,.0f})")
    for spans_kept, what in ((None, "whole trace kept"), (20_000, "20,000 records kept")):
        for messages, megabytes in memory_by_million(spans_kept, options.millions):
            print(f"{what:20} {messages:11,} messages  {megabytes:8.1f} MB above the start")


if __name__ == "__main__":
    main()
