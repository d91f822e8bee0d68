"""What single operations take on this machine: products, light operations, and a message's share.

Processor seconds of one thread, which other processes disturb less than a clock on the wall.
Rounds go over all points in turn, so that a slow moment touches each of them once; a point is the
median of its rounds.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from ampsim.study.process_settings import single_threaded

OnPoint: TypeAlias = Callable[[str], None]
Kind: TypeAlias = Literal["product", "light", "memory", "step"]

MATRICES: Final = (
    (784, 784), (784, 10), (256, 128), (128, 10), (600, 1500), (300, 900), (300, 5),
    (100, 300), (100, 100), (178, 200), (84, 256), (100, 32),
)  # fmt: skip
"""Weight matrices of the shipped models."""

ROWS: Final = (1, 4, 16, 32, 64, 100)
"""Rows of their payloads: a word or branch, a molecule's bonds, a sentence, a bucket."""

PAYLOADS: Final = ((1, 300), (1, 1500), (18, 100), (25, 200), (100, 10), (100, 128), (100, 784))
"""Payloads of light operations in the shipped models."""

LARGE_ELEMENTS: Final = 2**24
"""Of an array that no cache holds: 64 MiB."""

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
        flop: of one call.
        bytes: read and written, as a device counts them.
        operations: calls of NumPy.
        seconds: of one call, the median of the rounds.
        spread: the middle half of the rounds over the median.
    """

    kind: Kind
    what: str
    shape: tuple[int, ...]
    flop: int
    bytes: int
    operations: int
    seconds: float
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class _Case:
    kind: Kind
    what: str
    shape: tuple[int, ...]
    flop: int
    bytes: int
    operations: int
    call: Callable[[], object]


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
        _large(),
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
    return MachinePoint(
        case.kind,
        case.what,
        case.shape,
        case.flop,
        case.bytes,
        case.operations,
        middle,
        float(high - low) / middle,
    )


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
    """The three products of a layer (Appendix C): forward, and both gradients."""
    x, w, g = _filled(k, d_in), _filled(d_in, d_out), _filled(k, d_out)
    shape, flop = (k, d_in, d_out), 2 * k * d_in * d_out
    moved = 4 * (k * d_in + k * d_out + d_in * d_out)
    calls: dict[str, Callable[[], object]] = {
        "forward": lambda: x @ w,
        "input gradient": lambda: g @ w.T,
        "weight gradient": lambda: x.T @ g,
    }
    return [_Case("product", what, shape, flop, moved, 1, call) for what, call in calls.items()]


def _light(shape: tuple[int, int]) -> list[_Case]:
    """Light operations on a payload, with bytes and operations as the nodes count them."""
    x, y = _filled(*shape), _filled(*shape)
    size = 4 * x.size
    calls: dict[str, tuple[int, int, Callable[[], object]]] = {
        "relu": (2, 1, lambda: np.maximum(x, 0)),
        "tanh": (2, 1, lambda: np.tanh(x)),
        "sum": (3, 1, lambda: x + y),
        "product": (3, 1, lambda: x * y),
        "concat": (4, 1, lambda: np.concatenate([x, y], axis=1)),
        "sigmoid": (2, 4, lambda: _sigmoid(x)),
    }
    return [
        _Case("light", what, shape, 0, payloads * size, operations, call)
        for what, (payloads, operations, call) in calls.items()
    ]


def _sigmoid(x: np.ndarray) -> np.ndarray:
    y = np.multiply(x, -1)
    np.exp(y, out=y)
    y += 1
    return np.reciprocal(y, out=y)


def _large() -> _Case:
    """A sum of arrays that no cache holds."""
    x, y = _filled(LARGE_ELEMENTS), _filled(LARGE_ELEMENTS)
    return _Case(
        "memory", "sum", (LARGE_ELEMENTS,), 0, 12 * LARGE_ELEMENTS, 1, lambda: np.add(x, y, out=y)
    )


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

    return _Case("step", "message", (), 0, 0, 0, call)
