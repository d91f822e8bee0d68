"""Summing gradients by row of a table: `sums_by_row` against `np.add.at`, in turns.

python tests/benchmark/bench_embedding.py [--rounds 9]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ampsim.nodes.embedding import sums_by_row

CASES = ((14, 600, 128), (18_000, 20, 300), (18_000, 1_000, 300))


def add_at(indices: np.ndarray, gradients: np.ndarray) -> Any:
    """Sum in the way that NumPy offers."""
    rows, place = np.unique(indices, return_inverse=True)
    sums = np.zeros((len(rows), gradients.shape[1]), gradients.dtype)
    np.add.at(sums, place, gradients)
    return rows, sums


def microseconds(call: Callable[[], Any], times: int = 50) -> float:
    """Return the time of one call."""
    start = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - start) / times * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    for vocabulary, lookups, width in CASES:
        random = np.random.default_rng(0)
        indices = random.integers(0, vocabulary, lookups)
        gradients = random.standard_normal((lookups, width)).astype(np.float32)
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(microseconds(lambda: sums_by_row(indices, gradients)))  # noqa: B023  # now
            theirs.append(microseconds(lambda: add_at(indices, gradients)))  # noqa: B023  # now
        ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
        print(
            f"{lookups:5} lookups in {vocabulary:6} x {width}: {statistics.median(ours):7.1f} µs,"
            f" np.add.at {statistics.median(theirs):7.1f} µs, ratio {ratio:.2f}"
        )


if __name__ == "__main__":
    main()
