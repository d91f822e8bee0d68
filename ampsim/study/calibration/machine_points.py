"""What single operations take on this machine: products, light operations, a message.

Operations are timed call by call, in turns that resemble a step of a model: a light operation
before a product; a product, then each light operation once, on payloads that were not the last in
the cache and with results that are kept for a while. The same call over and over would find its
code and data nearer, and a light operation would take half as long. Short calls are timed by a
clock on the wall, of which the median drops those that another process broke into; long ones in
processor time of one thread. A point is the lower quartile of its rounds, for what other processes
do to the caches only adds to it. What an operation does is counted as its node counts it.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from ampsim.ir import Direction, Work
from ampsim.nodes import Concat, Product, ReLU, Sigmoid, Sum, Tanh
from ampsim.study.process_settings import single_threaded

OnPoint: TypeAlias = Callable[[str], None]
Kind: TypeAlias = Literal["product", "light", "step"]

MATRICES: Final = (
    (784, 784), (784, 10), (256, 128), (128, 10), (600, 1500), (300, 900), (300, 5),
    (100, 300), (100, 100), (178, 200), (84, 256), (100, 32),
)  # fmt: skip
"""Weight matrices of the shipped models."""

ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 100)
"""Rows of their payloads: a word or branch, a molecule's bonds, a sentence, a bucket."""

PAYLOADS: Final = (
    (1, 300), (1, 1200), (1, 50), (1, 192), (18, 100), (25, 200), (100, 10), (100, 128), (100, 784),
)  # fmt: skip
"""Payloads of light operations in the shipped models."""

STACKED: Final = 16
"""Messages whose pairs make one product for the weight's gradient, where their rows are few
(chosen: the branches of a tree, the words of a sentence)."""

LARGE_ROWS: Final = 32
"""Rows from which on a message makes that product alone, as in `ampsim.nodes`."""

STEPS: Final = 100
"""Messages of one call (chosen: one of them is about as short as a clock's step)."""

ROUNDS: Final = 9
CALLS: Final = 15
"""Calls of an operation in a round, of which it is the median (chosen: a round takes a second)."""

LONG_S: Final = 1e-4
"""Seconds of a call from which on it is timed in processor time, whose clock takes half a
microsecond (chosen: a hundred times as long)."""

CLOCK_S: Final = 1e-9
"""Least that a call is said to take, a step of the clock."""

PAYLOADS_HELD: Final = 8
"""Payloads that an operation meets in turn, and how many passes its results are kept for (chosen:
those of a cell's steps lie in the second cache, not in the first)."""


@dataclass(frozen=True, slots=True)
class MachinePoint:
    """What one operation takes.

    Args:
        kind: of operation.
        what: its name.
        shape: rows, columns and, of a product, columns of the result.
        work: of one call, as a device counts it.
        seconds: of one call, the lower quartile of the rounds.
        spread: the middle half of the rounds over that.
    """

    kind: Kind
    what: str
    shape: tuple[int, ...]
    work: Work
    seconds: float
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class _Case:
    """A point to be measured; a call makes so many steps of it. Its argument counts passes."""

    kind: Kind
    what: str
    shape: tuple[int, ...]
    work: Work
    call: Callable[[int], object]
    steps: int = 1


@dataclass(frozen=True, slots=True)
class _Turn:
    """Cases that are called one after the other, pass by pass, and a call before each pass."""

    cases: Sequence[_Case]
    before: Callable[[], object] | None = None


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
        rounds: of which each point is the lower quartile.
        matrices: weights of the products, (d_in, d_out).
        rows: of the products' payloads.
        payloads: of light operations, (rows, columns).
        on_point: told what is measured.
    """
    turns = [
        *(turn for matrix in matrices for k in rows for turn in _products(k, *matrix)),
        *(_light(shape) for shape in payloads),
        _Turn([_step()]),
    ]
    taken: list[list[list[float]]] = [[[] for _ in turn.cases] for turn in turns]
    with single_threaded():
        for place in range(rounds):
            if on_point is not None:
                on_point(f"round {place + 1} of {rounds}")
            for times, turn in zip(taken, turns, strict=True):
                for own, seconds in zip(times, _timed(turn), strict=True):
                    own.append(seconds)
    return [
        _point(case, own)
        for times, turn in zip(taken, turns, strict=True)
        for case, own in zip(turn.cases, times, strict=True)
    ]


def _point(case: _Case, times: list[float]) -> MachinePoint:
    low, high = (float(one) for one in np.quantile(times, [0.25, 0.75]))
    seconds, spread = low / case.steps, (high - low) / low
    return MachinePoint(case.kind, case.what, case.shape, case.work, seconds, spread)


def _timed(turn: _Turn) -> list[float]:
    """Median seconds of a call of each case."""
    calls = [case.call for case in turn.cases]
    clocks = [_clock(call) for call in calls]
    taken: list[list[float]] = [[] for _ in calls]
    kept: deque[object] = deque(maxlen=PAYLOADS_HELD * len(calls))
    for number in range(1 + CALLS):
        if turn.before is not None:
            turn.before()
        for call, clock, times in zip(calls, clocks, taken, strict=True):
            start = clock()
            result = call(number)
            times.append(clock() - start)
            kept.append(result)
    shortest = {clock: _own_s(clock) for clock in {*clocks}}
    return [
        max(statistics.median(times[1:]) - shortest[clock], CLOCK_S)
        for times, clock in zip(taken, clocks, strict=True)
    ]


def _clock(call: Callable[[int], object]) -> Callable[[], float]:
    """The clock for calls that take as long."""
    call(0)
    start = time.process_time()
    call(0)
    return time.process_time if time.process_time() - start > LONG_S else time.perf_counter


def _own_s(clock: Callable[[], float]) -> float:
    """What reading a clock twice takes of what it shows."""
    return statistics.median(-(clock() - clock()) for _ in range(51))


def _filled(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _products(k: int, d_in: int, d_out: int) -> list[_Turn]:
    """The products of a layer's forward step, and those of its backward step.

    These are the input's gradient, and the message's share of the weight's (Appendix C). Before
    each, a light operation on payloads of the result's size, as there are in a cell.
    """
    steps = 1 if k >= LARGE_ROWS else STACKED
    x, w, g = _filled(k * steps, d_in), _filled(d_in, d_out), _filled(k * steps, d_out)
    one_x, one_g, to_weight = x[:k], g[:k], np.empty_like(w)

    def backward(_number: int) -> None:
        for _ in range(steps):
            _ = one_g @ w.T
        np.matmul(x.T, g, out=to_weight)

    shape, flop = (k, d_in, d_out), 2 * k * d_in * d_out
    moved = 4 * (k * d_in + k * d_out + d_in * d_out)
    cases = [
        _Case("product", "forward", shape, Work(flop, moved, 1), lambda _number: one_x @ w),
        _Case("product", "backward", shape, Work(2 * flop, 2 * moved, 2), backward, steps),
    ]
    return [_Turn([case], lambda: np.tanh(one_g)) for case in cases]


def _light(shape: tuple[int, int]) -> _Turn:
    """Light operations on a payload, forward and backward, after a product that gives it."""
    rows, width = shape
    xs, ys = (np.array([_filled(*shape) for _ in range(PAYLOADS_HELD)]) for _ in range(2))
    there, back = Direction.FORWARD, Direction.BACKWARD
    joined = Concat("concat", (width, width)).work(there, shape)
    cases: list[tuple[str, Work, Callable[[np.ndarray, np.ndarray], object]]] = [
        ("sum", Sum("sum").work(there, shape), np.add),
        ("product", Product("product").work(there, shape), np.multiply),
        ("concat", joined, lambda x, y: np.concatenate([x, y], axis=1)),
    ]
    for node in (ReLU("relu"), Tanh("tanh"), Sigmoid("sigmoid")):
        cases.append((node.name, node.work(there, shape), _unary(node.value)))
        cases.append((f"{node.name} back", node.work(back, shape), node.pulled_back))
    before, weight = _filled(rows, width), _filled(width, width)
    return _Turn(
        [_Case("light", what, shape, work, _on_turns(call, xs, ys)) for what, work, call in cases],
        lambda: before @ weight,
    )


def _unary(
    function: Callable[[np.ndarray], object],
) -> Callable[[np.ndarray, np.ndarray], object]:
    def call(x: np.ndarray, _y: np.ndarray) -> object:
        return function(x)

    return call


def _on_turns(
    function: Callable[..., object], xs: np.ndarray, ys: np.ndarray
) -> Callable[[int], object]:
    """Apply a function to another pair of payloads in each pass."""
    pairs = list(zip(xs, ys[::-1], strict=True))
    return lambda number: function(*pairs[number % PAYLOADS_HELD])


def _step() -> _Case:
    """What a loop does for a message beside its operations: take it, keep what it brought."""
    x = _filled(1, 1)
    messages: deque[tuple[int, tuple[int, int], np.ndarray]] = deque()
    saved: dict[tuple[int, int], np.ndarray] = {}

    def call(_number: int) -> None:
        for _ in range(STEPS):
            messages.append((0, (0, 1), x))
            _node, state, payload = messages.popleft()
            saved[state] = payload
            saved.pop(state)

    return _Case("step", "message", (), Work(operations=0), call, STEPS)
