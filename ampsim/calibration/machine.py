"""Numbers of this machine, fitted to operations that are timed on it.

Operations are timed call by call, in turns that resemble a step of a model: a light operation
before a product; a product, then each light operation once, on payloads that were not the last in
the cache and with results that are kept for a while. The same call over and over would find its
code and data nearer, and a light operation would take half as long. Short calls are timed by a
clock on the wall, of which the median drops those that another process broke into; long ones in
processor time of one thread. A point is the lower quartile of its rounds, for what other processes
do to the caches only adds to it. What an operation does is counted as its node counts it.

A product takes its overhead and FLOP times the seconds of one, which are interpolated between the
points of a grid as `ampsim.hardware.surface` does. The logarithms of these are found by Gauss and
Newton's method: the sum of squared logarithms of fitted over measured seconds is least. Where no
product decides a value, it lies on the straight line through its neighbours.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from ampsim.calibration.least_squares import MOVE_MAX, SingularFit, Solution, least_squares
from ampsim.errors import OptionError
from ampsim.hardware import Device, occupancy_s
from ampsim.hardware.efficiency import element_parts, row_parts
from ampsim.ir import Direction, Work
from ampsim.nodes import Concat, Linear, Product, ReLU, Sigmoid, Sum, Tanh
from ampsim.nodes.linear import LARGE_ROWS, OPERATIONS_OF_SUM
from ampsim.optim import Optimizer, adam, sgd
from ampsim.study.process_settings import single_threaded

OnPoint: TypeAlias = Callable[[str], None]
Kind: TypeAlias = Literal["product", "light", "update", "step"]

MATRICES: Final = (
    (784, 784), (784, 10), (256, 128), (128, 10), (600, 1500), (300, 900), (300, 5),
    (100, 300), (100, 100), (178, 200), (84, 256), (100, 32),
)  # fmt: skip
"""Weight matrices of the shipped models."""

ROWS: Final = (1, 2, 6, 10, 18, 34, 66, 100)
"""Rows of their payloads: a word or branch, a molecule's bonds, a sentence, a bucket. Most are two
more than a multiple of four: OpenBLAS takes four rows at a time, and is with these as fast as in
the mean over four counts of rows on end (measured; multiples are 10 to 30 % faster)."""

PAYLOADS: Final = (
    (1, 300), (1, 1200), (1, 50), (1, 192), (18, 100), (25, 200), (100, 10), (100, 128), (100, 784),
)  # fmt: skip
"""Payloads of light operations in the shipped models."""

BEYOND: Final = (1568, 784)
"""A matrix larger than the shipped models', whose update with Adam passes over 20 MB (chosen: more
than the second cache of a core has, and than its share of a third)."""

UPDATED_MIN: Final = 20_000
"""Least elements of a matrix whose updates are timed; chosen: with fewer the calls themselves take
most of the time, which then says little of a bandwidth."""

STACKED: Final = 16
"""Messages whose pairs make one product for the weight's gradient, where their rows are few
(chosen: the branches of a tree, the words of a sentence)."""

RATE: Final = 1e-3
"""Of the optimizers (chosen: it changes no time)."""

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

WEIGHTS_HELD: Final = 3
"""Matrices that a product meets in turn (chosen: a model has three to eight, and an update of one
brings its own arrays before the next)."""

PAYLOADS_HELD: Final = 8
"""Payloads that an operation meets in turn, and how many passes its results are kept for (chosen:
those of a cell's steps lie in the second cache, not in the first)."""


@dataclass(frozen=True, slots=True)
class MachinePoint:
    """The time of one operation."""

    kind: Kind
    what: str  # its name
    shape: tuple[int, ...]  # rows, columns and, of a product, the result's; of an update the matrix
    work: Work  # of one call, as a device counts it
    seconds: float = math.nan  # of one call, the lower quartile of the rounds
    spread: float = 0.0  # the middle half of the rounds over that


@dataclass(frozen=True, slots=True)
class _Case:
    """A point to be measured; a call makes so many steps of it. Its argument counts passes."""

    point: MachinePoint
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
    updated = [one for one in (*matrices, BEYOND) if math.prod(one) >= UPDATED_MIN]
    turns = [
        *(turn for matrix in matrices for turn in _layer(rows, *matrix)),
        *(_light(shape) for shape in payloads),
        *(_update(*shape, step) for shape in updated for step in (sgd(RATE), adam(RATE))),
        _Turn([_step()]),
    ]
    taken: list[list[float]] = []
    with single_threaded():
        for place in range(rounds):
            if on_point is not None:
                on_point(f"round {place + 1} of {rounds}")
            taken.append([seconds for turn in turns for seconds in _timed(turn)])
    cases = [case for turn in turns for case in turn.cases]
    ends = np.quantile(taken, [0.25, 0.75], axis=0).tolist()
    return [
        replace(case.point, seconds=low / case.steps, spread=(high - low) / low)
        for case, low, high in zip(cases, *ends, strict=True)
    ]


def _timed(turn: _Turn) -> list[float]:
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
    call(0)
    start = time.process_time()
    call(0)
    return time.process_time if time.process_time() - start > LONG_S else time.perf_counter


def _own_s(clock: Callable[[], float]) -> float:
    """Measure how much of what a clock shows is two readings of it."""
    return statistics.median(-(clock() - clock()) for _ in range(51))


def _filled(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _layer(rows: Sequence[int], d_in: int, d_out: int) -> list[_Turn]:
    """The products of a layer; its weights and their gradients are not the last in the cache."""
    weights, sums = np.array([[_filled(d_in, d_out)] * WEIGHTS_HELD] * 2)
    return [turn for k in rows for turn in _products(k, weights, sums)]


def _products(k: int, weights: np.ndarray, sums: np.ndarray) -> list[_Turn]:
    """The products of a layer's forward step, and those of its backward step.

    These are the input's gradient, and the message's share of the weight's (Appendix C). Before
    each, a light operation on payloads of the result's size, as there are in a cell.
    """
    (_held, d_in, d_out), steps = weights.shape, 1 if k >= LARGE_ROWS else STACKED
    x, g = _filled(k * steps, d_in), _filled(k * steps, d_out)
    one_x, one_g = x[:k], g[:k]

    def forward(number: int) -> np.ndarray:
        return one_x @ weights[number % WEIGHTS_HELD]

    def backward(number: int) -> None:
        w = weights[number % WEIGHTS_HELD].T
        for _ in range(steps):
            _ = one_g @ w
        np.matmul(x.T, g, out=sums[number % WEIGHTS_HELD])

    shape, flop = (k, d_in, d_out), 2 * k * d_in * d_out
    moved = 4 * (k * d_in + k * d_out + d_in * d_out)
    there, back = Work(flop, moved, 1), Work(2 * flop, 2 * moved, 2)
    cases = [
        _Case(MachinePoint("product", "forward", shape, there), forward),
        _Case(MachinePoint("product", "backward", shape, back), backward, steps),
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
        cases.append((node.name, node.work(there, shape), lambda x, _y, of=node.value: of(x)))
        cases.append((f"{node.name} back", node.work(back, shape), node.pulled_back))
    before, weight = _filled(rows, width), _filled(width, width)
    pairs = list(zip(xs, ys[::-1], strict=True))
    timed = [
        _Case(
            MachinePoint("light", what, shape, work),
            lambda number, call=call: call(*pairs[number % PAYLOADS_HELD]),
        )
        for what, work, call in cases
    ]
    return _Turn(timed, lambda: before @ weight)


def _update(d_in: int, d_out: int, optimizer: Optimizer) -> _Turn:
    """A step of an optimizer, in place, after the product that gives Xᵀ G."""
    node = Linear("linear", d_in, d_out, has_bias=False)
    node.adopt(_filled(d_in * d_out))
    node.step_by(optimizer.arrays, optimizer.calls)
    x, g = _filled(STACKED, d_in), _filled(STACKED, d_out)
    gradient, held = np.zeros_like(node.theta), [optimizer.init(node.theta)]
    work = node.work(Direction.UPDATE, None)
    work = replace(work, operations=work.operations - OPERATIONS_OF_SUM)

    def call(_number: int) -> None:
        _theta, held[0] = optimizer.update(gradient, held[0], node.theta, RATE, in_place=True)

    case = _Case(MachinePoint("update", optimizer.name, (d_in, d_out), work), call)
    return _Turn([case], lambda: np.matmul(x.T, g, out=gradient.reshape(d_in, d_out)))


def _step() -> _Case:
    """Make the case of a message without its operations: take it, keep what it brought."""
    x = _filled(1, 1)
    messages: deque[tuple[int, tuple[int, int], np.ndarray]] = deque()
    saved: dict[tuple[int, int], np.ndarray] = {}

    def call(_number: int) -> None:
        for _ in range(STEPS):
            messages.append((0, (0, 1), x))
            _node, state, payload = messages.popleft()
            saved[state] = payload
            saved.pop(state)

    return _Case(MachinePoint("step", "message", (), Work(operations=0)), call, STEPS)


ROW_PLACES: Final = (2, 18)
"""Rows of the grid, beside the least and the most that were measured. Chosen: one row is a product
with a vector, which libraries do in another way; from 32 on they differ little."""

ELEMENT_PLACES: Final = (3_000, 30_000, 300_000)
"""Elements of the grid, beside the least and the most (chosen: a decade apart)."""

STIFFNESS: Final = 0.1
"""Weight of a bend of the surface beside that of a product (chosen: small; a test shows that it
does not move a surface that products decide)."""

COMPUTE_MIN: Final = 0.05
"""Least part of a product's time that is taken for arithmetic (chosen: keeps its rate finite)."""
ITERATIONS: Final = 50


def rate_grid(points: Sequence[MachinePoint], overhead_s: float) -> list[tuple[int, int, float]]:
    """Fit rates to products: (rows, elements, FLOP per second), rows ascending, elements within."""
    shapes = [(one.shape[0], one.shape[1] * one.shape[2]) for one in points]
    rows = _places([one for one, _ in shapes], ROW_PLACES)
    elements = _places([one for _, one in shapes], ELEMENT_PLACES)
    parts = np.array([_spread(shape, rows, elements) for shape in shapes])
    told = [(one.work.flop, one.seconds, one.work.operations * overhead_s) for one in points]
    flop, seconds, overhead_s_of = np.array(told, float).T
    bends = STIFFNESS * _bends(np.log(rows), np.log(elements))
    rates = flop / np.maximum(seconds - overhead_s_of, COMPUTE_MIN * seconds)
    logs = np.full(parts.shape[1], -math.log(float(np.median(rates))))
    for _ in range(ITERATIONS):
        compute_s = flop[:, None] * parts * np.exp(logs)
        fitted_s = overhead_s_of + compute_s.sum(axis=1)
        slopes = np.vstack([compute_s / fitted_s[:, None], bends])
        residuals = np.r_[np.log(fitted_s / seconds), bends @ logs]
        step = np.array(np.linalg.lstsq(slopes, -residuals, rcond=None)[0], float)
        logs += np.clip(step, -MOVE_MAX, MOVE_MAX)
    rated: list[float] = np.exp(-logs).tolist()
    places = product(rows, elements)
    return [(*place, rate) for place, rate in zip(places, rated, strict=True)]


def _spread(shape: tuple[int, int], rows: list[int], elements: list[int]) -> np.ndarray:
    """The parts of a product's time that the points of the grid decide, flat."""
    by_rows = dict(row_parts(set(rows), shape[0]))
    by_elements = dict(element_parts(set(elements), shape[1]))
    parts = [by_rows.get(one, 0.0) for one in rows], [by_elements.get(one, 0.0) for one in elements]
    return np.outer(*parts).reshape(-1)


def _places(counts: Sequence[int], inner: Sequence[int]) -> list[int]:
    """Give the places of `inner` between the least count and the most, and these two."""
    low, high = min(counts), max(counts)
    return sorted({low, high, *(place for place in inner if low < place < high)})


def _bends(rows: np.ndarray, elements: np.ndarray) -> np.ndarray:
    """A row for each three neighbours on the grid: how far the middle is off the line."""
    found: list[np.ndarray] = []
    for axis, places in enumerate((rows, elements)):
        for middle in range(1, len(places) - 1):
            low, at, high = places[middle - 1 : middle + 2]
            part = (at - low) / (high - low)
            for beside in range((elements, rows)[axis].size):
                bend = np.zeros((rows.size, elements.size))
                view = bend if axis == 0 else bend.T
                view[middle - 1 : middle + 2, beside] = (1 - part, -1.0, part)
                found.append(bend.reshape(-1))
    return np.array(found).reshape(-1, rows.size * elements.size)


PASSED: Final[tuple[str, ...]] = (
    "operation_overhead_s",
    "pass_bandwidth_bytes_per_s",
    "functions_per_s",
)
"""The numbers that light operations decide."""

IN_A_CELL: Final = {"product": 9, "sum": 3, "tanh": 2, "tanh back": 2}
"""How often a step of an LSTM makes a light operation, there and back.

It makes the others once, and a ReLU never, which counts once too, as in a perceptron. Fitted alike,
a ReLU's derivative alone, which takes three times as long as a product of its size, would make
every call 5 % dearer.
"""

POINTS_MIN: Final[dict[Kind, int]] = {"product": 8, "light": 4, "update": 2, "step": 1}
"""Least points of each kind: more than the numbers that they decide, and products of both ways."""

WAYS: Final = ("forward", "backward")

REACH_MAX: Final = 1e6
"""Of an interval, a factor; chosen: points that leave more open say nothing of the number."""


@dataclass(frozen=True, slots=True)
class MachineFit:
    """The fitted numbers, and how far each point lies from them."""

    numbers: dict[str, Any]  # of a device, by its keys
    points: tuple[MachinePoint, ...]  # what was measured
    residuals: tuple[float, ...]  # fitted over measured seconds, less 1, of each
    factors: dict[str, float]  # by which the intervals of numbers reach below and above

    def of(self, kind: Kind, what: str | None = None) -> list[float]:
        """Residuals of the points of one kind; of one operation of it where that is named."""
        pairs = zip(self.points, self.residuals, strict=True)
        mine = [(point.what, residual) for point, residual in pairs if point.kind == kind]
        return [residual for name, residual in mine if what in (None, name)]


def fit_machine(points: Sequence[MachinePoint]) -> MachineFit:
    """Fit a device to measured points.

    Light operations decide an overhead, a bandwidth and a rate of functions, t = operations · o +
    bytes / b + functions / f, by least squares of logarithms, each with the weight that it has in a
    cell (`IN_A_CELL`). Products, less their overhead, decide the fractions of the FLOP rate over
    rows and elements (`rate_grid`), forward and backward; the rate is that of the fastest. Updates
    decide a cache.

    Raises:
        OptionError: there are too few points of a kind, or they tell no number apart.
    """
    by_kind: dict[Kind, list[MachinePoint]] = {
        kind: [one for one in points if one.kind == kind] for kind in POINTS_MIN
    }
    for kind, least in POINTS_MIN.items():
        if len(by_kind[kind]) < least:
            raise OptionError(
                f"a machine's device takes at least {least} points of kind {kind}, got "
                f"{len(by_kind[kind])}; measure more shapes"
            )
    passed, factors = _passes(by_kind["light"])
    numbers: dict[str, Any] = {
        **_rates(by_kind["product"], passed["operation_overhead_s"]),
        **passed,
        "step_overhead_s": by_kind["step"][0].seconds,
    }
    device = Device(name="machine", **numbers)
    cache, factors["cache_bandwidth_bytes_per_s"] = _cache(device, by_kind["update"])
    numbers |= cache
    device = device.model_copy(update=cache)
    residuals = [predicted_s(device, one) / one.seconds - 1 for one in points]
    return MachineFit(numbers, tuple(points), tuple(residuals), factors)


def predicted_s(device: Device, point: MachinePoint) -> float:
    """Seconds of a point on a device, without what a step takes beside its operations."""
    if point.kind == "step":
        return device.step_overhead_s
    is_product, is_update = point.kind == "product", point.kind == "update"
    seconds = occupancy_s(
        device,
        point.work,
        is_light=point.kind == "light",
        rows=point.shape[0] if is_product else None,
        matrix_elements=math.prod(point.shape[1:]) if is_product else None,
        is_backward=point.what == "backward",
        updated_bytes=point.work.bytes // 2 if is_update else None,  # each is read and written
    )
    return seconds - device.step_overhead_s


def _passes(points: Sequence[MachinePoint]) -> tuple[dict[str, float], dict[str, float]]:
    """The numbers `PASSED`, and the ends of a 95 % interval as a factor on each."""
    works = [one.work for one in points]
    operations, functions = (
        np.array([getattr(one, name) for one in works], float)
        for name in ("operations", "functions")
    )
    moved = np.array([one.pass_bytes or one.bytes for one in works], float)
    logs = np.array([math.log(one.seconds) for one in points])
    weights = np.array([IN_A_CELL.get(one.what, 1) for one in points], float)

    def residuals(at: Sequence[float]) -> np.ndarray:
        overhead, bandwidth, rate = map(math.exp, at)
        fitted_s = operations * overhead + moved / bandwidth + functions / rate
        return np.sqrt(weights) * (np.log(fitted_s) - logs)

    start = (math.log(1e-6), math.log(1e10), math.log(1e9))
    bounds = ((-23.0, 0.0), (10.0, 40.0), (10.0, 40.0))
    try:
        found = least_squares(residuals, start, bounds, weights=weights.tolist())
    except SingularFit:
        raise OptionError(
            "the light operations do not tell overhead, bandwidth and functions from each other; "
            "measure payloads of more sizes"
        ) from None
    values: dict[str, float] = dict(zip(PASSED, map(math.exp, found.at), strict=True))
    return values, dict(zip(PASSED, map(_reach, found.margins), strict=True))


def _cache(device: Device, points: Sequence[MachinePoint]) -> tuple[dict[str, Any], float]:
    """Room and bandwidth of a cache for updates, and the factor of the bandwidth's interval.

    The room is what one of the updates passes over: that with which the fit is best.
    """
    logs = np.array([math.log(one.seconds) for one in points])
    slow = device.pass_bandwidth_bytes_per_s
    assert slow is not None, "fitted to the light operations"

    def solution(room: int) -> Solution:
        def residuals(at: Sequence[float]) -> np.ndarray:
            keys = {"cache_bytes": room, "cache_bandwidth_bytes_per_s": math.exp(at[0])}
            tried = device.model_copy(update=keys)
            return np.log([predicted_s(tried, one) for one in points]) - logs

        low = math.log(slow)
        return least_squares(residuals, (low + 1,), ((low, low + 10),))

    try:
        found = {room: solution(room) for room in sorted({one.work.bytes // 2 for one in points})}
    except SingularFit:
        raise OptionError(
            "the updates do not tell the bandwidth of a cache; measure when less runs beside it"
        ) from None
    room, best = min(found.items(), key=lambda one: sum(r * r for r in one[1].residuals))
    bandwidth = max(math.exp(best.at[0]), slow)
    numbers = {"cache_bytes": room, "cache_bandwidth_bytes_per_s": bandwidth}
    return numbers, _reach(best.margins[0])


def _reach(margin: float) -> float:
    """The factor by which the interval of a number reaches below and above."""
    return math.exp(margin) if margin < math.log(REACH_MAX) else REACH_MAX


def _rates(points: Sequence[MachinePoint], overhead_s: float) -> dict[str, Any]:
    """The highest FLOP rate of a product, and its fractions forward and backward.

    Raises:
        OptionError: all products are of one way.
    """
    fastest = max(one.work.flop / one.seconds for one in points)
    fractions: dict[str, list[tuple[int, int, float]]] = {}
    for way in WAYS:
        products = [one for one in points if one.what == way]
        if not products:
            raise OptionError(f"a machine's device takes products {way}, got none; measure some")
        fractions[f"{way}_efficiency"] = [
            (rows, elements, float(f"{min(rate / fastest, 1.0):.4g}"))
            for rows, elements, rate in rate_grid(products, overhead_s)
        ]
    return {"flop_per_s": fastest, **fractions}
