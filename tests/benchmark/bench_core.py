"""What one core of this machine reaches with NumPy: the numbers of `cpu-core`.

    python tests/benchmark/bench_core.py [--rounds 101]

* Overhead: a step of a node on payloads of one element, over the operations that it counts.
* Rows: products of k rows with weight matrices of this project's models that stay in cache, the
  forward one and that for the input's gradient, less the overhead; the median over all of them.
* Cache: a product of one row as bytes of its matrix over time, less the overhead, with one matrix
  again and again and with so many in turn that none stays; and additions of three arrays, 12 bytes
  an element, by their size together.

Times are processor time, medians of rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from ampsim.ir import Direction
from ampsim.nodes import GRUCell, Linear, LSTMCell, Sigmoid, Tanh

KIB, MIB = 2**10, 2**20
MATRICES = ((100, 100), (256, 128), (100, 300), (300, 504), (336, 840))
ROWS = (1, 2, 4, 8, 16, 32, 64, 100, 128)
SIZES = (192 * KIB, 768 * KIB, 1536 * KIB, 3 * MIB, 6 * MIB, 24 * MIB, 96 * MIB)
OUT_OF_CACHE = 1536 * MIB
NODES = {
    "LSTMCell": (lambda: LSTMCell("n", 1, 1), (1, 2)),
    "GRUCell": (lambda: GRUCell("n", 1, 1), (1, 1)),
    "Linear": (lambda: Linear("n", 1, 1), (1,)),
    "Sigmoid": (lambda: Sigmoid("n"), (1,)),
    "Tanh": (lambda: Tanh("n"), (1,)),
}


def filled(*shape: int) -> np.ndarray:
    """An array of small numbers in single precision."""
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def seconds(step: Callable[[], object], rounds: int, calls: int) -> float:
    """Median seconds of one call, over `rounds` runs of `calls`."""
    taken: list[float] = []
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(calls):
            step()
        taken.append((time.process_time() - start) / calls)
    return statistics.median(taken)


def overheads(rounds: int) -> Iterator[tuple[str, float]]:
    """Seconds for each operation of a forward and of a backward step of one element, by node."""
    for name, (make, widths) in NODES.items():
        node = make()
        if node.is_parameterized:
            node.adopt(filled(node.parameter_count))
        payloads = [filled(1, width) for width in widths]

        def forward(node=node, payloads=payloads):
            for port, payload in enumerate(payloads):
                sends = node.forward(port, (0,), payload)
            return sends

        gradient = forward()[0][2]

        def both(node=node, forward=forward, gradient=gradient):
            forward()
            node.backward(0, (0,), gradient)

        both_s = seconds(both, rounds, 200)
        if node.is_parameterized:
            node.take_gradient()
        node.is_training = False
        forward_s = seconds(forward, rounds, 200)
        ahead, back = (node.work(d, (1, 1)) for d in (Direction.FORWARD, Direction.BACKWARD))
        yield f"{name} forward", forward_s / ahead.operations
        yield f"{name} backward", (both_s - forward_s) / back.operations


def products(rows: int, rounds: int, overhead_s: float) -> list[float]:
    """FLOP per second of products of `rows` rows with cached matrices, both ways."""
    found: list[float] = []
    for d_in, d_out in MATRICES:
        weight, flop = filled(d_in, d_out), 2 * rows * d_in * d_out
        calls = max(5, int(2e-3 / (flop / 5e10 + 1e-6)))
        for matrix in (weight, weight.T):
            left = filled(rows, len(matrix))
            out = np.empty((rows, matrix.shape[1]), np.float32)
            step_s = seconds(lambda a=left, b=matrix, c=out: np.matmul(a, b, out=c), rounds, calls)
            found.append(flop / (step_s - overhead_s))
    return found


def product_of_one_row(d_in: int, d_out: int, rounds: int, *, is_cached: bool) -> float:
    """Seconds of a product of one row with a matrix of many, or always of the same."""
    count = 1 if is_cached else max(2, OUT_OF_CACHE // (4 * d_in * d_out))
    weights = [np.full((d_in, d_out), 0.01, np.float32) for _ in range(count)]
    row, out = filled(1, d_in), np.empty((1, d_out), np.float32)
    turn = iter(weights * (1 + rounds * 20 // count))
    return seconds(lambda: np.matmul(row, next(turn), out=out), rounds, 20)


def addition(total_bytes: int, rounds: int) -> float:
    """Seconds of an addition whose three arrays take `total_bytes` together."""
    a, b, c = (np.full(total_bytes // 12, value, np.float32) for value in (1, 2, 3))
    return seconds(lambda: np.add(a, b, out=c), rounds, max(1, 20 * MIB // total_bytes))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=101)
    rounds = parser.parse_args().rounds
    found = dict(overheads(rounds))
    for name, overhead_s in found.items():
        print(f"{name:18} {overhead_s * 1e6:.2f} us an operation", flush=True)
    overhead_s = statistics.median(found.values())
    print(f"median {overhead_s * 1e6:.2f} us")
    for rows in ROWS:
        rates = [rate / 1e9 for rate in products(rows, rounds, overhead_s)]
        told = f"{min(rates):.0f} to {max(rates):.0f}"
        print(f"{rows:4} rows: {statistics.median(rates):.0f} GFLOP/s ({told})", flush=True)
    for d_in, d_out in MATRICES:
        size = 4 * d_in * d_out
        for is_cached in (True, False):
            taken_s = product_of_one_row(d_in, d_out, rounds, is_cached=is_cached)
            where, rate = "kept" if is_cached else "in turn", size / (taken_s - overhead_s) / 1e9
            print(f"{d_in} x {d_out} {where}: {taken_s * 1e6:.1f} us, {rate:.1f} GB/s", flush=True)
    for size in SIZES:
        print(f"add {size // KIB} KiB: {size / addition(size, rounds) / 1e9:.1f} GB/s", flush=True)


if __name__ == "__main__":
    main()
