"""Waiting times at a load of 0.95 over runs long enough to know them within 1 %; too long for CI.

    python tests/benchmark/bench_queueing.py [--millions 600]

The recursions are those of `test_queueing.py`, which holds processors to them customer by customer.
Prints the mean over that of theory, and its standard error; it takes some
minutes. Its figures stand in the docstrings there.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "validation"))

from test_queueing import (  # pyright: ignore[reportMissingImports]  # beside the tests
    SERVICES,
    Draw,
    erlang_c,
    lindley,
    long_run_of_several,
)

LOAD = 0.95
CHUNK = 20_000
"""Customers at a time: their arrays stay in a processor's cache."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=int, default=600)
    options = parser.parse_args()
    for queue, (service, second_moment) in SERVICES.items():
        random = np.random.default_rng([76, round(100 * LOAD)])
        means_s = batches_of(random, service, LOAD, options.millions)
        tell(queue, means_s, LOAD * second_moment / (2 * (1 - LOAD)))
    for servers in (2, 4):
        expected_s = erlang_c(servers, LOAD) / (servers * (1 - LOAD))
        tell(f"M/M/{servers}", long_run_of_several(servers, LOAD), expected_s)


def batches_of(random: np.random.Generator, service: Draw, load: float, count: int) -> np.ndarray:
    """Mean waiting times of batches of a million, each going on where the last ended."""
    last_s, means_s = 0.0, np.zeros((count, 1_000_000 // CHUNK))
    for chunk in np.ndindex(means_s.shape):
        gaps_s, services_s = random.exponential(1 / load, CHUNK + 1), service(random, CHUNK + 1)
        waits_s = lindley(gaps_s, services_s, last_s)
        last_s = float(waits_s[-1])
        means_s[chunk] = waits_s.mean()
    return means_s.mean(axis=1)


def tell(queue: str, means_s: np.ndarray, expected_s: float) -> None:
    """Print the mean of the batches and its standard error, over the mean of theory."""
    error = means_s.std(ddof=1) / math.sqrt(len(means_s)) / expected_s
    print(f"{queue}: {means_s.mean() / expected_s:.4f}, standard error {error:.4f}", flush=True)


if __name__ == "__main__":
    main()
