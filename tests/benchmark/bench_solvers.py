"""What solvers cost the simulator: time beside sequential instances, memory of many ranks, scale.

    python tests/benchmark/bench_solvers.py [--rounds 3] [--instances 20000]

* Time: the shipped perceptron under `SyncSGD` on 4 ranks, over the same number of instances one
  after the other; numeric, the least processor time of rounds in turn.
* Memory: the most that Python and NumPy hold at once under `SyncSGD` on 64 ranks, over 1 rank, in
  copies of the model; numeric, a batch of 1 for each rank.
* Scale: one step of 3,200 ranks in `sleep` mode with a closed-form collective, in processor time.
"""

from __future__ import annotations

import argparse
import os
import time
import tracemalloc
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import ampsim

RANKS, MANY, MOST = 4, 64, 3200


def model(batch: int, **more: Any) -> ampsim.Model:
    """The shipped perceptron on made-up images."""
    return ampsim.load_model("mlp", data="synthetic", batch=batch, **more)


def cluster(workers: int) -> Any:
    """Nodes with links that are alike."""
    return ampsim.load_cluster(
        "knl-7250", workers=workers, latency_s=5e-6, bandwidth_bytes_per_s=1e10
    )


def seconds(schedule: Any, workers: int, instances: int) -> float:
    """Processor time of a numeric run."""
    made, hosts = model(100), cluster(workers)
    start_s = time.process_time()
    ampsim.simulate(made, hosts, schedule, instances=instances, counts_memory=False)
    return time.process_time() - start_s


def peak_bytes(ranks: int) -> int:
    """The most that is held at once in a numeric run of two steps."""
    made, hosts = model(1), cluster(ranks)
    tracemalloc.start()
    ampsim.simulate(made, hosts, ampsim.SyncSGD(ranks=ranks), instances=2 * ranks)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--instances", type=int, default=20_000, help="images")
    given = parser.parse_args()
    plain_s = solver_s = float("inf")
    for _ in range(given.rounds):
        plain_s = min(plain_s, seconds(ampsim.Sequential(), 1, given.instances))
        solver_s = min(solver_s, seconds(ampsim.SyncSGD(ranks=RANKS), RANKS, given.instances))
    print(f"time of sync-sgd on {RANKS} ranks over sequential: {solver_s / plain_s:.2f}")
    copy = sum(values.nbytes for values in model(1).parameters().values())
    one, many = peak_bytes(1), peak_bytes(MANY)
    print(
        f"memory of {MANY} ranks over 1: {(many - one) / copy:.1f} times the weights; a rank has "
        "a gradient until they meet, and copies of weights would be as many again"
    )
    made, hosts = model(1), cluster(MOST)
    start_s = time.process_time()
    ampsim.simulate(made, hosts, ampsim.SyncSGD(ranks=MOST), instances=MOST, mode="sleep")
    print(f"one step of {MOST:,} ranks, timing alone: {time.process_time() - start_s:.1f} s")


if __name__ == "__main__":
    main()
