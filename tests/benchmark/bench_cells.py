"""What one message costs at a cell, beside PyTorch's eager cells, and why gradients wait as pairs.

Times are processor time of one thread. In each round every contender runs its steps, and the
median over rounds is printed; rounds alternate, so that a busy machine disturbs all alike.

A cell's ``forward`` and ``backward`` are the node's steps as a worker calls them, ``update`` is
`take_gradient` divided by the messages that it sums. PyTorch's is one forward and one backward call
of the module on the same rows, gradients accumulating in `.grad`, as its users write it.

    python tests/benchmark/bench_cells.py --hidden 168 --rows 1 --rounds 7
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when NumPy is imported

import numpy as np

from ampsim.ir import Direction, ParameterizedNode, Partition
from ampsim.nodes import BranchLSTM, GRUCell, LeafLSTM, Linear, LSTMCell
from ampsim.nodes.distribute import sum_rows


class State(NamedTuple):
    instance: int


class Times(NamedTuple):
    """Microseconds per message."""

    forward: float
    backward: float
    update: float

    @property
    def total(self) -> float:
        return sum(self)


def us_per_call(action: Callable[[], Any], calls: int) -> float:
    """Microseconds of processor time, mean over `calls`."""
    start = time.process_time()
    for _ in range(calls):
        action()
    return (time.process_time() - start) / calls * 1e6


def measured(node: ParameterizedNode, payloads: list[np.ndarray], messages: int) -> Times:
    """One round: `messages` forward steps, as many backward steps, and one update."""
    states = [State(i) for i in range(messages)]
    start = time.process_time()
    for state in states:
        for port, payload in enumerate(payloads):
            sends = node.forward(port, state, payload)
    gradient = np.ones_like(sends[0][2])
    middle = time.process_time()
    for state in states:
        node.backward(0, state, gradient)
    end = time.process_time()
    node.take_gradient()
    return Times(
        (middle - start) / messages * 1e6,
        (end - middle) / messages * 1e6,
        (time.process_time() - end) / messages * 1e6,
    )


def cases(hidden: int, rows: int) -> dict[str, tuple[ParameterizedNode, list[np.ndarray]]]:
    """The cells, with payloads for their inputs, in single precision."""
    random = np.random.default_rng(0)

    def values(width: int) -> np.ndarray:
        return random.standard_normal((rows, width)).astype(np.float32)

    x, h, state = values(hidden), values(hidden), values(2 * hidden)
    made: dict[str, tuple[ParameterizedNode, list[np.ndarray]]] = {
        "Linear": (Linear("linear", hidden, hidden), [x]),
        "LeafLSTM": (LeafLSTM("leaf", hidden, hidden), [x]),
        "BranchLSTM": (BranchLSTM("branch", hidden), [state, state]),
        "LSTMCell": (LSTMCell("lstm", hidden, hidden), [x, state]),
        "GRUCell": (GRUCell("gru", hidden, hidden), [x, h]),
    }
    for node, _payloads in made.values():
        node.adopt(node.initialise(random).astype(np.float32))
    return made


def torch_cells(hidden: int, rows: int) -> dict[str, Callable[[], None]]:
    """One forward and backward call of PyTorch's cells on equal rows; none without PyTorch."""
    try:
        import torch
    except ImportError:
        return {}
    torch.set_num_threads(1)
    x = torch.randn(rows, hidden, requires_grad=True)
    h = torch.randn(rows, hidden, requires_grad=True)
    c = torch.randn(rows, hidden, requires_grad=True)
    ones = torch.ones(rows, hidden)
    lstm, gru = torch.nn.LSTMCell(hidden, hidden), torch.nn.GRUCell(hidden, hidden)

    def run_lstm() -> None:
        after = lstm(x, (h, c))
        torch.autograd.backward(after, (ones, ones))

    def run_gru() -> None:
        gru(x, h).backward(ones)

    return {"LSTMCell": run_lstm, "GRUCell": run_gru}


def product_us(node: Any, hidden: int, rows: int, calls: int) -> float:
    """The forward matrix product alone, which no cell can do without."""
    flop = node.work(Direction.FORWARD, (rows, hidden)).flop
    d_in, d_out = node.d_in, node.d_out
    assert flop == 2 * rows * d_in * d_out
    x = np.ones((rows, d_in), np.float32)
    w = np.ones((d_in, d_out), np.float32)
    return us_per_call(lambda: x @ w, calls)


def compare_cells(hidden: int, rows: int, messages: int, rounds: int) -> None:
    made, rivals = cases(hidden, rows), torch_cells(hidden, rows)
    times: dict[str, list[Times]] = {name: [] for name in made}
    products: dict[str, list[float]] = {name: [] for name in made}
    theirs: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(rounds):
        for name, (node, payloads) in made.items():
            times[name].append(measured(node, payloads, messages))
            products[name].append(product_us(node, hidden, rows, messages))
            if name in rivals:
                theirs[name].append(us_per_call(rivals[name], messages))
    print(f"hidden {hidden}, rows {rows}: µs per message, median of {rounds} rounds of {messages}")
    print(
        f"{'':12}{'product':>9}{'forward':>9}{'backward':>9}{'update':>9}{'total':>9}{'torch':>9}"
    )
    for name, rows_of in times.items():
        columns = [statistics.median(products[name])]
        columns += [statistics.median(column) for column in zip(*rows_of, strict=True)]
        columns += [statistics.median(one.total for one in rows_of)]
        rival = f"{statistics.median(theirs[name]):9.1f}" if name in theirs else ""
        print(f"{name:12}" + "".join(f"{one:9.1f}" for one in columns) + rival)


def compare_accumulation(hidden: int, messages: int, rounds: int) -> None:
    """One XᵀG for all messages against an outer product for each."""
    random = np.random.default_rng(0)
    xs = random.standard_normal((messages, 1, 2 * hidden)).astype(np.float32)
    gs = random.standard_normal((messages, 1, 5 * hidden)).astype(np.float32)
    total = np.zeros((2 * hidden, 5 * hidden), np.float32)

    def outer() -> None:
        for x, g in zip(xs, gs, strict=True):
            np.add(total, x.T @ g, out=total)

    def once() -> None:
        np.matmul(np.concatenate(list(xs)).T, np.concatenate(list(gs)), out=total)

    outers = statistics.median(us_per_call(outer, 1) for _ in range(rounds)) / messages
    onces = statistics.median(us_per_call(once, 1) for _ in range(rounds)) / messages
    print(f"gradient of {messages} messages of 1 row: {outers:.1f} µs each, {onces:.1f} as pairs")


def compare_sums(rounds: int) -> None:
    """`sum_rows` against `np.add.at`, for atoms and bonds, and for whole batches of them."""
    random = np.random.default_rng(0)
    for size, rows in ((9, 18), (18, 38), (29, 60), (100, 200), (400, 800), (2000, 4000)):
        control = Partition((random.integers(0, size, rows),), size)
        values = random.standard_normal((rows, 100)).astype(np.float32)

        def add_at(control: Partition = control, values: np.ndarray = values) -> None:
            np.add.at(np.zeros((control.size, 100), np.float32), control.rows, values)

        def ours(control: Partition = control, values: np.ndarray = values) -> None:
            sum_rows(control, values)

        calls = max(1, 20_000 // rows)
        mine = statistics.median(us_per_call(ours, calls) for _ in range(rounds))
        other = statistics.median(us_per_call(add_at, calls) for _ in range(rounds))
        print(f"sum of {rows} rows into {size}: {mine:.1f} µs, np.add.at {other:.1f}")


def compare_transposed(rounds: int) -> None:
    """g Wᵀ with a copy of Wᵀ against a view, and what the copy costs, once per update."""
    random = np.random.default_rng(0)
    for d_in, d_out in ((100, 100), (100, 300), (300, 504)):
        view = random.standard_normal((d_in, d_out)).astype(np.float32).T
        copy = view.copy()
        made = statistics.median(us_per_call(view.copy, 50) for _ in range(rounds))
        print(
            f"copy of a transpose of {d_in} x {d_out}: {made:.1f} µs; products with copy and view:"
        )
        for rows in (1, 8, 18, 100):
            gradient = random.standard_normal((rows, d_out)).astype(np.float32)
            ours, other = (
                statistics.median(
                    us_per_call(partial(np.matmul, gradient, one), 50) for _ in range(rounds)
                )
                for one in (copy, view)
            )
            print(f"    {rows:4} rows: {ours:.1f}, {other:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hidden", type=int, default=168, help="width of the hidden state")
    parser.add_argument("--rows", type=int, default=1, help="rows of a message")
    parser.add_argument("--messages", type=int, default=50, help="messages between updates")
    parser.add_argument("--rounds", type=int, default=15, help="how often each is measured")
    options = parser.parse_args()
    compare_cells(options.hidden, options.rows, options.messages, options.rounds)
    compare_accumulation(options.hidden, options.messages, options.rounds)
    compare_sums(options.rounds)
    compare_transposed(options.rounds)


if __name__ == "__main__":
    main()
