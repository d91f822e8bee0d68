"""What single operations take on this machine: products, light operations, updates, a message.

Processor seconds of one thread, which other processes disturb less than a clock on the wall.
Rounds go over all points in turn, so that a slow moment touches each of them once; a point is the
median of its rounds. What an operation does is counted as its node counts it.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from ampsim.ir import Direction, Work
from ampsim.nodes import Concat, Product, ReLU, Sigmoid, Sum, Tanh
from ampsim.optim import Optimizer, adam, sgd
from ampsim.study.process_settings import single_threaded

OnPoint: TypeAlias = Callable[[str], None]
Kind: TypeAlias = Literal["product", "light", "update", "step"]

MATRICES: Final = (
    (784, 784), (784, 10), (256, 128), (128, 10), (600, 1500), (300, 900), (300, 5),
    (100, 300), (100, 100), (178, 200), (84, 256), (100, 32),
)  # fmt: skip
"""Weight matrices of the shipped models."""

ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 100)
"""Rows of their payloads: a word or branch, a molecule's bonds, a sentence, a bucket."""

PAYLOADS: Final = ((1, 300), (1, 1500), (18, 100), (25, 200), (100, 10), (100, 128), (100, 784))
"""Payloads of light operations in the shipped models."""

STACKED: Final = 16
"""Messages whose pairs make one product for the weight's gradient, where their rows are few
(chosen: the branches of a tree, the words of a sentence)."""

LARGE_ROWS: Final = 32
"""Rows from which on a message makes that product alone, as in `ampsim.nodes`."""

PASSES: Final = {"sgd": (2, 5, 0), "adam": (10, 24, 1)}
"""Of an update by each optimizer: operations, arrays that they read and write, roots of one."""

ROUNDS: Final = 9
ROUND_S: Final = 2e-3
"""Seconds of a point in a round at least (chosen: a thousand times the clock's resolution)."""


@dataclass(frozen=True, slots=True)
class MachinePoint:
    """What one operation takes.

    Args:
        kind: of operation.
        what: its name.
        shape: rows, columns and, of a product, columns of the result.
        work: of one call, as a device counts it.
        seconds: of one call, the median of the rounds.
        spread: the middle half of the rounds over the median.
    """

    kind: Kind
    what: str
    shape: tuple[int, ...]
    work: Work
    seconds: float
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class _Case:
    """A point to be measured; a call makes so many steps of it."""

    kind: Kind
    what: str
    shape: tuple[int, ...]
    work: Work
    call: Callable[[], object]
    steps: int = 1


def measure(
    *,
    rounds: int = ROUNDS,
    matrices: Sequence[tuple[int, int]] = MATRICES,
    rows: Sequence[int] = ROWS,
    payloads: Sequence[tuple[int, int]] = PAYLOADS,
    on_point: OnPoint | None = None,
) -> list[MachinePoint]:
    """Measure every point, in single precision and one thread.

    Args:
        rounds: of which each point is the median.
        matrices: weights of the products, (d_in, d_out).
        rows: of the products' payloads.
        payloads: of light operations, (rows, columns).
        on_point: told what is measured.
    """
    cases = [
        *(case for matrix in matrices for k in rows for case in _products(k, *matrix)),
        *(case for shape in payloads for case in _light(shape)),
        *(case for matrix in matrices for case in _updates(*matrix)),
        _step(),
    ]
    taken: list[list[float]] = [[] for _ in cases]
    with single_threaded():
        calls = [_calls(case) for case in cases]
        for turn in range(rounds):
            if on_point is not None:
                on_point(f"round {turn + 1} of {rounds}")
            for times, case, count in zip(taken, cases, calls, strict=True):
                times.append(_seconds(case.call, count))
    return [_point(case, times) for case, times in zip(cases, taken, strict=True)]


def _point(case: _Case, times: list[float]) -> MachinePoint:
    middle = statistics.median(times)
    low, high = np.quantile(times, [0.25, 0.75])
    seconds, spread = middle / case.steps, float(high - low) / middle
    return MachinePoint(case.kind, case.what, case.shape, case.work, seconds, spread)


def _calls(case: _Case) -> int:
    """How many calls fill a round."""
    _seconds(case.call, 2)  # warm
    return max(1, round(ROUND_S / max(_seconds(case.call, 3), 1e-9)))


def _seconds(call: Callable[[], object], count: int) -> float:
    start = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - start) / count


def _filled(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _products(k: int, d_in: int, d_out: int) -> list[_Case]:
    """The products of a layer's forward step, and those of its backward step.

    These are the input's gradient, and the message's share of the weight's (Appendix C).
    """
    steps = 1 if k >= LARGE_ROWS else STACKED
    x, w, g = _filled(k * steps, d_in), _filled(d_in, d_out), _filled(k * steps, d_out)
    one_x, one_g, to_weight = x[:k], g[:k], np.empty_like(w)

    def backward() -> None:
        for _ in range(steps):
            one_g @ w.T
        np.matmul(x.T, g, out=to_weight)

    shape, flop = (k, d_in, d_out), 2 * k * d_in * d_out
    moved = 4 * (k * d_in + k * d_out + d_in * d_out)
    return [
        _Case("product", "forward", shape, Work(flop, moved, 1), lambda: one_x @ w),
        _Case("product", "backward", shape, Work(2 * flop, 2 * moved, 2), backward, steps),
    ]


def _light(shape: tuple[int, int]) -> list[_Case]:
    """Light operations on a payload, forward and backward."""
    x, y = _filled(*shape), _filled(*shape)
    there, back = Direction.FORWARD, Direction.BACKWARD
    cases: list[tuple[str, Work, Callable[[], object]]] = [
        ("sum", Sum("sum").work(there, shape), lambda: x + y),
        ("product", Product("product").work(there, shape), lambda: x * y),
        (
            "concat",
            Concat("concat", (shape[1], shape[1])).work(there, shape),
            lambda: np.concatenate([x, y], axis=1),
        ),
    ]
    for node in (ReLU("relu"), Tanh("tanh"), Sigmoid("sigmoid")):
        cases.append((node.name, node.work(there, shape), _call(node.value, x)))
        cases.append((f"{node.name} back", node.work(back, shape), _call(node.pulled_back, x, y)))
    return [_Case("light", what, shape, work, call) for what, work, call in cases]


def _call(function: Callable[..., object], *arguments: object) -> Callable[[], object]:
    return lambda: function(*arguments)


def _updates(d_in: int, d_out: int) -> list[_Case]:
    """An optimizer's step of a weight matrix."""
    return [_update(optimizer, d_in, d_out) for optimizer in (sgd(0.1), adam(1e-3))]


def _update(optimizer: Optimizer, d_in: int, d_out: int) -> _Case:
    theta, gradient = _filled(d_in * d_out), _filled(d_in * d_out)
    kept: list[Any] = [optimizer.init(theta)]
    operations, arrays, roots = PASSES[optimizer.name]

    def call() -> None:
        _theta, kept[0] = optimizer.update(gradient, kept[0], theta, 1e-3, in_place=True)

    size = theta.size
    work = Work(0, theta.nbytes, operations, 0, arrays * theta.nbytes, roots * size)
    return _Case("update", optimizer.name, (d_in, d_out), work, call)


def _step() -> _Case:
    """What a loop does for a message beside its operations: take it, keep what it brought."""
    x = _filled(1, 1)
    messages: deque[tuple[int, tuple[int, int], np.ndarray]] = deque()
    saved: dict[tuple[int, int], np.ndarray] = {}

    def call() -> None:
        messages.append((0, (0, 1), x))
        _node, state, payload = messages.popleft()
        saved[state] = payload
        saved.pop(state)

    return _Case("step", "message", (), Work(operations=0), call)
