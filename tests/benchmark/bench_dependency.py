"""Operations a second on the dependency engine, beside plain SimPy programs of the same shape.

    python tests/benchmark/bench_dependency.py [--operations 100000] [--rounds 5]

* engine: operations on random variables of which each reads two and mutates one, on four devices,
  pushed, tracked and run in virtual time.
* processes: as many SimPy processes that each sleep once and do nothing else: what SimPy itself
  takes, without variables, devices or records.
* resources: as many that request one of four SimPy resources, sleep and release it: devices, too,
  but still nothing is tracked or recorded.

Processor time, medians of rounds that take turns.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time
from collections.abc import Callable, Generator
from typing import Any

import simpy

import ampsim

DEVICES = 4
VARIABLES = 64


def engine(count: int) -> None:
    """Push and run so many operations."""
    cluster = ampsim.load_cluster("tflops-1", workers=DEVICES)
    running = ampsim.DependencyEngine(cluster)
    variables = [running.new_variable() for _ in range(VARIABLES)]
    work = [ampsim.Work(flop=10**9 * flop) for flop in range(1, 9)]
    chosen = random.Random(0)
    picks = [chosen.sample(range(VARIABLES), 3) for _ in range(1000)]

    def function() -> None:
        pass

    for number in range(count):
        one, other, third = picks[number % 1000]
        running.push(
            function,
            reads=[variables[one], variables[other]],
            mutates=[variables[third]],
            on=number % DEVICES,
            work=work[number % 8],
        )
    running.wait_for_all()


def processes(count: int) -> None:
    """As many processes that sleep once."""
    environment = simpy.Environment()

    def operation(seconds: float) -> Generator[Any]:
        yield environment.timeout(seconds)

    for number in range(count):
        environment.process(operation(1 + number % 8))
    environment.run()


def resources(count: int) -> None:
    """As many that take their turn on one of four resources."""
    environment = simpy.Environment()
    devices = [simpy.Resource(environment) for _ in range(DEVICES)]

    def operation(device: simpy.Resource, seconds: float) -> Generator[Any]:
        with device.request() as turn:
            yield turn
            yield environment.timeout(seconds)

    for number in range(count):
        environment.process(operation(devices[number % DEVICES], 1 + number % 8))
    environment.run()


def seconds(run: Callable[[int], None], count: int) -> float:
    """Processor time of one run."""
    gc.collect()
    start = time.process_time()
    run(count)
    return time.process_time() - start


def main() -> None:
    """Print operations a second of each, and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    runs = (engine, processes, resources)
    taken: dict[str, list[float]] = {run.__name__: [] for run in runs}
    for _ in range(chosen.rounds):
        for run in runs:
            taken[run.__name__].append(seconds(run, chosen.operations))
    rates = {name: chosen.operations / statistics.median(each) for name, each in taken.items()}
    for name, rate in rates.items():
        print(f"{name:10} {rate:10,.0f} operations/s")
    for name in ("processes", "resources"):
        print(f"engine / {name}: {rates['engine'] / rates[name]:.2f}")


if __name__ == "__main__":
    main()
