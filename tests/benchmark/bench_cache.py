"""What one core of this machine reaches from its caches: the numbers of `cpu-core`'s cache.

    python tests/benchmark/bench_cache.py [--rounds 401]

First the bandwidth of `numpy.add` over three arrays, 12 bytes an element, by their size together:
it falls where they leave a cache. Then products of one row with a weight matrix, as a cell's step
makes them: bytes of the matrix over the time, with the matrix read again and again (it stays in a
cache) and with enough matrices in turn that none stays.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

KIB, MIB = 2**10, 2**20
SIZES = (24 * KIB, 192 * KIB, 768 * KIB, 1536 * KIB, 3 * MIB, 6 * MIB, 24 * MIB, 96 * MIB)
MATRICES = ((100, 300), (300, 504), (336, 840), (784, 784))  # of this project's models
OUT_OF_CACHE = 1536 * MIB


def seconds(step: Callable[[], object], rounds: int, calls: int) -> tuple[float, float]:
    """Return (median, least) seconds of one call, over `rounds` runs of `calls`."""
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            step()
        taken.append((time.perf_counter() - start) / calls)
    return statistics.median(taken), min(taken)


def add(total_bytes: int, rounds: int) -> str:
    """Bandwidth of an addition whose three arrays take `total_bytes` together."""
    count = total_bytes // 12
    a, b, c = (np.full(count, value, np.float32) for value in (1, 2, 3))
    calls = max(1, 20 * MIB // total_bytes)
    middle, least = seconds(lambda: np.add(a, b, out=c), rounds, calls)
    told = f"{total_bytes / KIB:8.0f} KiB"
    return f"add     {told}: {total_bytes / middle / 1e9:6.1f} GB/s, {total_bytes / least / 1e9:6.1f} at best"


def product(d_in: int, d_out: int, rounds: int, *, is_cached: bool) -> str:
    """Bytes of a weight matrix over the time of one row's product with it."""
    size = 4 * d_in * d_out
    count = 1 if is_cached else max(2, OUT_OF_CACHE // size)
    weights = [np.full((d_in, d_out), 0.01, np.float32) for _ in range(count)]
    row, out = np.ones((1, d_in), np.float32), np.empty((1, d_out), np.float32)
    turn = iter(weights * (1 + rounds * 20 // count))
    step = (
        (lambda: np.matmul(row, weights[0], out=out))
        if is_cached
        else (lambda: np.matmul(row, next(turn), out=out))
    )
    middle, least = seconds(step, rounds, 20)
    where = "kept" if is_cached else "in turn"
    return (
        f"product {d_in} x {d_out}, {size / KIB:.0f} KiB {where}: {middle * 1e6:.1f} us, "
        f"{size / middle / 1e9:.1f} GB/s, {size / least / 1e9:.1f} at best"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=401)
    rounds = parser.parse_args().rounds
    for size in SIZES:
        print(add(size, rounds if size < 12 * MIB else max(3, rounds // 10)), flush=True)
    for d_in, d_out in MATRICES:
        print(product(d_in, d_out, rounds, is_cached=True), flush=True)
        print(product(d_in, d_out, max(3, rounds // 4), is_cached=False), flush=True)


if __name__ == "__main__":
    main()
