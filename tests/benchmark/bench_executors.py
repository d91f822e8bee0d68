"""How much sooner two Dask workers make a forecast than one.

    python tests/benchmark/bench_executors.py

Prints seconds of a forecast of twelve runs of a second each on one worker and on two, in turn, and
the ratio. Two are to take at most 0.6 of one's time, on two cores that nobody else uses. Of shorter
runs one sees how long a worker's first process takes to start.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from distributed import Client

import ampsim

sys.path.insert(0, str(Path(__file__).parents[1]))
from dask_processes import DaskProcesses

ROUNDS = 3


def seconds(client) -> float:
    """How long the forecast takes."""
    start_s = time.perf_counter()
    ampsim.forecast(
        ampsim.load_model("rnn"), "tflops-1", ["sequential", "pipeline", "amp"], repeats=4,
        max_epochs=3, instances=8000, placement="paper", executor=client,
    )  # fmt: skip
    return time.perf_counter() - start_s


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        ratios = []
        for _ in range(ROUNDS):
            took = []
            for workers in (1, 2):
                cluster = DaskProcesses(Path(name))
                cluster.start(workers)
                try:
                    with Client(scheduler_file=str(cluster.file)) as client:
                        client.wait_for_workers(workers)
                        client.run(warm)
                        took.append(seconds(client))
                finally:
                    cluster.stop()
            ratios.append(took[1] / took[0])
            print(f"one worker {took[0]:.1f} s, two {took[1]:.1f} s: {ratios[-1]:.2f}")
    print(f"median {statistics.median(ratios):.2f}; at most 0.6 is wanted")


def warm():
    """Import what a run needs."""
    ampsim.forecast("rnn", "tflops-1", ["amp"], max_epochs=1, instances=20)


if __name__ == "__main__":
    main()
