"""Memory and time of a trace for Perfetto with many spans, written to nowhere.

    python tests/benchmark/bench_perfetto.py [--millions 10] [--out FILE]

Spans are made up, chunk by chunk: 16 workers with one node each, an instance goes up and down
through all of them, and every eighth gradient is followed by an update.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from ampsim.report.perfetto.trace import Trace, write_perfetto

WORKERS = 16
CHUNK_ROWS = 1 << 16
STEP_S = 3.3e-6
EVERY = 8
NODES = pd.CategoricalDtype([f"linear-{index}" for index in range(WORKERS)])
STATES = pd.CategoricalDtype([f"step {index}, length 3" for index in range(3)])
DIRECTIONS = pd.CategoricalDtype(["update", "backward", "forward"])
WAY = np.array(  # worker, direction: up, down, and the updates of an eighth of the instances
    [(w, 2) for w in range(WORKERS)]
    + [(w, 1) for w in reversed(range(WORKERS))]
    + [(w, 0) for w in range(WORKERS) if w % EVERY == 0]
)


def spans(count: int) -> Iterator[pd.DataFrame]:
    """`count` spans in the order of their ends."""
    for start in range(0, count, CHUNK_ROWS):
        index = np.arange(start, min(start + CHUNK_ROWS, count))
        instance, place = np.divmod(index, len(WAY))
        worker, direction = WAY[place].T
        yield pd.DataFrame(
            {
                "worker": worker,
                "node": pd.Categorical.from_codes(worker.tolist(), dtype=NODES),
                "direction": pd.Categorical.from_codes(direction.tolist(), dtype=DIRECTIONS),
                "instance": instance,
                "start_s": index * STEP_S,
                "end_s": (index + 1) * STEP_S,
                "flop": 3_276_800,
                "bytes": 0,
                "state": pd.Categorical.from_codes((instance % 3).tolist(), dtype=STATES),
                "staleness": np.where(direction == 1, place % 5, -1),
            }
        )


def updates(count: int) -> Iterator[pd.DataFrame]:
    """The updates among those spans."""
    for chunk in spans(count):
        rows = chunk[chunk["direction"] == "update"]
        yield pd.DataFrame(
            {
                "node": rows["node"],
                "time_s": rows["start_s"],
                "gradient_count": 1,
                "staleness": 1.5,
                "staleness_max": 3,
            }
        )


def stashes(count: int) -> Iterator[pd.DataFrame]:
    """A change of what is stashed with each update."""
    for chunk in updates(count):
        sizes = {"bytes": np.arange(len(chunk)) % 3 * 65_536}
        yield pd.DataFrame({"node": chunk["node"], "time_s": chunk["time_s"], **sizes})


def peak_mb() -> float:
    """Most memory that this process has ever held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=float, default=10.0)
    parser.add_argument("--out", type=Path, default=Path(os.devnull))
    options = parser.parse_args()
    count = int(options.millions * 1e6)
    epochs = pd.DataFrame({"time_s": [count * STEP_S], "loss": [1.0], "valid_loss": [1.1]})
    trace = Trace(
        "amp", WORKERS,
        lambda: spans(count), lambda: updates(count), epochs, lambda: stashes(count),
    )  # fmt: skip
    before_mb, start = peak_mb(), time.perf_counter()
    write_perfetto([trace], options.out, title="made up")
    seconds = time.perf_counter() - start
    print(f"{count:,} spans in {seconds:.1f} s: {count / seconds:,.0f} a second")
    print(f"peak memory {peak_mb():.0f} MB, of which {before_mb:.0f} MB before the first span")


if __name__ == "__main__":
    main()
