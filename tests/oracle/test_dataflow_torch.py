"""Gradients of in-graph control flow are those of PyTorch, for every construct, to 1e-10."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ampsim import flow
from ampsim.dataflow.plan import needed
from ampsim.hardware import Cluster, Device, Link

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(0)
X, W, V = RNG.normal(size=(3, 4)), RNG.normal(size=(4, 4)) / 2, RNG.normal(size=(4,))
FLOATS = {"x": X, "w": W, "v": V}


class Flow:
    """The operators, as programs of the graph have them."""

    tanh, sigmoid, relu, exp, log, sum = (
        flow.tanh, flow.sigmoid, flow.relu, flow.exp, flow.log, flow.sum,
    )  # fmt: skip
    matmul, cond, where, square = flow.matmul, flow.cond, flow.where, flow.square
    scan, foldl, foldr, map_fn = flow.scan, flow.foldl, flow.foldr, flow.map_fn
    concat = staticmethod(lambda a, b: flow.concat([a, b]))
    cut = staticmethod(lambda a, i, j: flow.cut(a, i, j))
    rows = staticmethod(lambda a, n: flow.cut(a, 0, n, axis=0))
    zeros = staticmethod(lambda: flow.zeros(()))
    loop = staticmethod(
        lambda predicate, body, inits, shapes=None: flow.while_loop(
            predicate, body, inits, shapes=shapes
        )
    )
    pick = flow.pick
    transpose = flow.transpose
    stop = flow.stop_gradient
    array, unstacked = flow.TensorArray, staticmethod(lambda x: flow.TensorArray().unstack(x))


class Rows:
    """An array of tensors as a dictionary; a write gives another one."""

    def __init__(self, _size: int | None = None, rows: dict[int, Any] | None = None) -> None:
        self.rows = rows or {}

    def read(self, place: int) -> Any:
        return self.rows[place]

    def write(self, place: int, row: Any) -> Rows:
        return Rows(None, {**self.rows, place: row})

    def stack(self) -> Any:
        return torch.stack([self.rows[place] for place in sorted(self.rows)])


def _loop(predicate: Any, body: Any, inits: Any, shapes: Any = None) -> Any:
    state = inits
    while predicate(*state):
        state = body(*state)
    return state


def _scan(fn: Any, elems: Any, init: Any) -> Any:
    a, given = init, []
    for row in elems:
        a = fn(a, row)
        given.append(a)
    return torch.stack(given) if given else torch.zeros((0, *init.shape), dtype=torch.float64)


def _fold(fn: Any, elems: Any, init: Any) -> Any:
    for row in elems:
        init = fn(init, row)
    return init


class Torch:
    """The same, of PyTorch."""

    tanh, sigmoid, relu, exp, log, sum = (
        torch.tanh, torch.sigmoid, torch.relu, torch.exp, torch.log, torch.sum,
    )  # fmt: skip
    matmul, where, square = torch.matmul, torch.where, torch.square
    cond = staticmethod(lambda p, true, false: true() if p else false())
    loop = staticmethod(_loop)
    scan, foldl = staticmethod(_scan), staticmethod(_fold)
    foldr = staticmethod(lambda fn, elems, init: _fold(fn, elems.flip(0), init))
    map_fn = staticmethod(
        lambda fn, elems: torch.stack([fn(row) for row in elems]) if len(elems) else elems * 0.0
    )
    concat = staticmethod(lambda a, b: torch.cat([a, b], dim=1))
    cut = staticmethod(lambda a, i, j: a[:, i:j])
    rows = staticmethod(lambda a, n: a[:n])
    zeros = staticmethod(lambda: torch.zeros((), dtype=torch.float64))
    pick = staticmethod(lambda x, i: x[i])
    transpose = staticmethod(torch.t)
    stop = staticmethod(lambda x: x.detach())
    array, unstacked = Rows, staticmethod(lambda x: Rows(None, dict(enumerate(x))))


def arithmetic(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    y = (x + v) * v - x / (2.0 + v * v)
    return f.sum(f.tanh(y) * f.sigmoid(-y) + f.relu(y) + f.exp(y * 0.1) + f.log(y * y + 1.0))


def matrices(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    joined = f.concat(f.matmul(x, w), f.square(x))
    return f.sum(f.cut(joined, 2, 6) * f.transpose(f.transpose(f.cut(x, 0, 4))))


def cond_sides(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    first = f.cond(n > 2, lambda: f.tanh(f.matmul(x, w)), lambda: x * v)
    second = f.cond(n > 3, lambda: f.tanh(first) * 2.0, lambda: first * first)
    return f.sum(second)


def cond_nested(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    def outer() -> Any:
        y = f.tanh(x * v)
        return f.cond(n > 3, lambda: y * y, lambda: f.exp(y) * x)

    return f.sum(f.cond(n > 1, outer, lambda: f.matmul(x, w)))


def power(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    _, y = f.loop(lambda i, y: i < n, lambda i, y: (i + 1, f.matmul(y, w)), (0, x))
    return f.sum(f.square(y))


def recurrent(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    def body(i: Any, h: Any, total: Any) -> Any:
        h = f.tanh(f.matmul(h, w) + v)
        return i + 1, h, total + f.sum(h * x)

    _, h, total = f.loop(lambda i, h, t: i < n, body, (0, x, f.zeros()))
    return total + f.sum(h)


def cond_in_loop(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    def body(i: Any, y: Any) -> Any:
        z = f.cond(i % 3 > 0, lambda: f.tanh(f.matmul(y, w)), lambda: f.sigmoid(y) * v * y)
        return i + 1, f.cond(i % 2 > 0, lambda: f.exp(z * 0.1), lambda: z)

    return f.sum(f.loop(lambda i, y: i < n, body, (0, x))[1])


def data_dependent(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    _, y = f.loop(
        lambda i, y: f.sum(f.square(y)) > 0.5, lambda i, y: (i + 1, y * f.sigmoid(v)), (0, x)
    )
    return f.sum(y * x)


def nested(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    def body(i: Any, y: Any) -> Any:
        _, z = f.loop(lambda j, z: j < i, lambda j, z: (j + 1, f.tanh(f.matmul(z, w)) * y), (0, y))
        return i + 1, z + v * z

    return f.sum(f.loop(lambda i, y: i < n, body, (0, x))[1])


def nested_in_cond_in_loop(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    def body(i: Any, y: Any) -> Any:
        def inner() -> Any:
            def within(j: Any, z: Any) -> Any:
                return j + 1, f.cond(j % 2 > 0, lambda: f.tanh(z) * y, lambda: f.sigmoid(z * v))

            return f.loop(lambda j, z: j < i + 1, within, (0, y * v))[1]

        return i + 1, f.cond(i % 2 > 0, inner, lambda: y * 1.5 * v)

    return f.sum(f.loop(lambda i, y: i < n, body, (0, x))[1])


def untaken_loop(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    def loop() -> Any:
        return f.loop(lambda i, y: i < 3, lambda i, y: (i + 1, f.matmul(y, w)), (0, x))[1]

    return f.sum(f.cond(n < 0, loop, lambda: x * v))


def unused_exit(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    def body(i: Any, a: Any, b: Any) -> Any:
        return i + 1, f.tanh(a) + b, b * v

    return f.sum(f.loop(lambda i, a, b: i < n, body, (0, x, x * 0.5))[1])


def independent_of_itself(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    def body(i: Any, a: Any, b: Any) -> Any:
        return i + 1, f.tanh(b * v), b + a

    _, a, b = f.loop(lambda i, a, b: i < n, body, (0, x, x * 2.0))
    return f.sum(a * b)


def constant_given_on(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    def body(i: Any, a: Any, b: Any) -> Any:
        return i + 1, x, f.tanh(b + a)

    return f.sum(f.loop(lambda i, a, b: i < n, body, (0, x * v, x))[2])


def swapped(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    def body(i: Any, a: Any, b: Any) -> Any:
        return i + 1, b, a * v

    _, a, b = f.loop(lambda i, a, b: i < n, body, (0, x, f.tanh(x)))
    return f.sum(a) + 2.0 * f.sum(b)


def changing_shape(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    def body(i: Any, y: Any) -> Any:
        return i + 1, f.concat(f.tanh(y), x * v)

    shapes = [(), (3, None)]
    return f.sum(f.square(f.loop(lambda i, y: i < n, body, (0, x), shapes)[1]))


def scanned(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    return f.sum(f.square(f.scan(lambda a, e: f.tanh(a * v + e), x, v)))


def folded(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    left = f.foldl(lambda a, e: f.tanh(a * v + e), x, v)
    right = f.foldr(lambda a, e: f.sigmoid(a + e * v), x, v)
    return f.sum(left * right)


def mapped(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    return f.sum(f.map_fn(lambda e: f.tanh(e * v) * e, x) * x)


def deciding(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    """A predicate with a branch and a loop in it."""

    def goes_on(i: Any, y: Any) -> Any:
        _, many = f.loop(lambda j, m: j < 3, lambda j, m: (j + 1, m + j), (0, i))
        return f.cond(i > 1, lambda: many < n + 4, lambda: f.sum(f.square(y)) > 0.01)

    _, y = f.loop(goes_on, lambda i, y: (i + 1, f.tanh(f.matmul(y, w)) * v), (0, x))
    return f.sum(f.square(y))


def short(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    """Scans and folds of no row and of one row, and a row that is read twice."""
    none, one = f.rows(x, 0), f.rows(x, 1)
    step = lambda a, e: f.tanh(a * v + e)  # noqa: E731  # as users write it
    sums = [f.sum(f.scan(step, rows, v)) for rows in (none, one)]
    folds = [f.sum(fold(step, rows, v)) for rows in (none, one) for fold in (f.foldl, f.foldr)]
    mapped = [f.map_fn(lambda e: f.exp(e) * e, rows) * rows for rows in (none, one)]
    twice = f.sum(mapped[0]) + f.sum(mapped[1])
    return sums[0] + sums[1] + folds[0] + folds[1] * 2.0 + folds[2] + folds[3] * 3.0 + twice


def read_twice(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    """A place of an array is read outside, in a loop, in each of its iterations, and stacked."""
    rows = f.unstacked(f.tanh(x))

    def body(i: Any, y: Any) -> Any:
        return i + 1, f.tanh(y * rows.read(i % 3)) + rows.read(1) * v

    y = f.loop(lambda i, y: i < n, body, (0, rows.read(0) * rows.read(0)))[1]
    return f.sum(y) + f.sum(f.square(rows.stack()))


def written_and_read_backward(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    """A loop writes an array, a branch in another one reads it from its end, some places twice."""

    def write(i: Any, a: Any, y: Any) -> Any:
        y = f.tanh(y * v)
        return i + 1, a.write(i, y), y

    _, rows, _ = f.loop(lambda i, a, y: i < 4, write, (0, f.array(4), f.pick(x, 0)))

    def read(i: Any, y: Any) -> Any:
        return i + 1, f.cond(i % 2 > 0, lambda: y * rows.read(3 - i % 4),
                             lambda: y + rows.read(i % 3) * v)  # fmt: skip

    return f.sum(f.loop(lambda i, y: i < n, read, (0, f.pick(w, 2)))[1]) + f.sum(rows.stack())


def array_in_inner_loops(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    """Each iteration has an array of its own, which an inner loop of another length fills."""

    def body(i: Any, y: Any) -> Any:
        def fill(j: Any, a: Any, z: Any) -> Any:
            z = f.sigmoid(z * v)
            return j + 1, a.write(j, z), z

        _, rows, z = f.loop(lambda j, a, z: j < i + 1, fill, (0, f.array(i + 1), y))
        return i + 1, f.tanh(rows.read(0) * rows.read(i)) + z * y

    return f.sum(f.loop(lambda i, y: i < n, body, (0, f.pick(x, 1)))[1])


def read_in_part(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    """Rows with another behind them, of which one alone is read, in each trip of a loop."""
    late = f.tanh(f.tanh(x))
    rows = f.unstacked(late).write(3, f.pick(w, 0))
    y = f.loop(lambda i, y: i < n, lambda i, y: (i + 1, y + rows.read(1)), (0, v))[1]
    return f.sum(y * v) + f.sum(x)


def read_in_a_branch(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    """One branch reads an array, both write to it, and nobody reads what they have written."""
    rows = f.array(3).write(0, f.tanh(f.tanh(x))).write(1, x)

    def body(i: Any, y: Any) -> Any:
        own = f.array(2).write(0, f.tanh(f.tanh(y)))
        z, _ = f.cond(
            i % 2 > 0, lambda: (rows.read(0) * y, own.write(1, x)), lambda: (y, own.write(1, y))
        )
        return i + 1, z + y * v

    return f.sum(f.loop(lambda i, y: i < n, body, (0, x))[1])


def scan_in_loop(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    def body(i: Any, y: Any) -> Any:
        return i + 1, f.scan(lambda a, e: f.tanh(a * v + e), y, v)

    return f.sum(f.loop(lambda i, y: i < n, body, (0, x), [(), (None, 4)])[1])


def picked(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    def body(i: Any, y: Any) -> Any:
        return i + 1, f.tanh(y * f.pick(x, i % 3)) + f.pick(w, 1)

    return f.sum(f.loop(lambda i, y: i < n, body, (0, v))[1])


def stopped(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    def body(i: Any, y: Any) -> Any:
        return i + 1, y * f.stop(y) * v

    return f.sum(f.loop(lambda i, y: i < n, body, (0, f.tanh(x)))[1])


def overtaking(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    """A later iteration has its inner loop behind it before an earlier one has."""

    def body(i: Any, y: Any) -> Any:
        inner = lambda j, z: (j + 1, f.tanh(z) * 1.1)  # noqa: E731  # as users write it
        _, z = f.loop(lambda j, z: j < (n - i) * 2, inner, (i, x))
        return i + 1, y + f.sum(f.square(z) * v)

    return f.loop(lambda i, y: i < n, body, (0, f.sum(x)))[1]


def chosen(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    return f.sum(f.where(x > 0, x * v, f.tanh(x)))


PROGRAMS: dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (
        arithmetic, matrices, cond_sides, cond_nested, power, recurrent, cond_in_loop,
        data_dependent, nested, nested_in_cond_in_loop, untaken_loop, unused_exit,
        independent_of_itself, constant_given_on, swapped, changing_shape, scanned, folded, mapped,
        scan_in_loop, overtaking, picked, stopped, chosen, short, deciding, read_twice,
        written_and_read_backward, array_in_inner_loops, read_in_part, read_in_a_branch,
    )
}  # fmt: skip


def of_torch(program: Callable[..., Any], n: int) -> list[np.ndarray]:
    tensors = [torch.tensor(one, requires_grad=True) for one in FLOATS.values()]
    y = program(Torch, *tensors, n)
    found = torch.autograd.grad(y, tensors, allow_unused=True)
    zeros = (np.zeros(one.shape) for one in tensors)
    return [
        y.detach().numpy(),
        *(zero if one is None else one.numpy() for one, zero in zip(found, zeros, strict=True)),
    ]


def of_flow(program: Callable[..., Any], n: int, **options: Any) -> flow.FlowResult:
    with flow.FlowGraph():
        tensors = [flow.input(name, one.shape) for name, one in FLOATS.items()]
        y = program(Flow, *tensors, flow.input("n", (), "int64"))
        asked = [y, *flow.gradients(y, tensors)]
    feeds: dict[str, Any] = {**FLOATS, "n": n}
    fed = {name: one for name, one in feeds.items() if is_needed(asked, name)}
    return flow.run(asked, fed, **options)


def is_needed(asked: list[flow.Tensor], name: str) -> bool:
    return name in {node.name for node in needed(asked)}


@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize("program", PROGRAMS)
def test_values_and_gradients_equal_automatic_differentiation(program, n):
    expected = of_torch(PROGRAMS[program], n)
    for got, wanted in zip(of_flow(PROGRAMS[program], n).values, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("memory_bytes", [None, 10**6])
@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("program", [read_in_part, read_in_a_branch])
def test_a_gradient_waits_for_what_an_array_is_still_to_hold(program, n, memory_bytes):
    """What is written comes from another worker, later than the gradients of what is not read."""
    device = Device(name="slow", flop_per_s=1e9, memory_bytes=memory_bytes)
    cluster = Cluster(name="two", devices=(device,) * 2, link=Link(latency_s=1.0))
    told = {"cluster": cluster, "placement": {"tanh-2": 1}}
    for got, wanted in zip(of_flow(program, n, **told).values, of_torch(program, n), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-10)


def test_what_leads_nowhere_has_no_gradient_computed():
    """A branch gives on what a product made; nobody uses that, and its gradients are no work."""
    with flow.FlowGraph():
        x, n = flow.input("x", (20, 20)), flow.input("n", (), "int64")
        product = flow.matmul(x, x)
        y, _ = flow.cond(n > 2, lambda: (x * 2.0, product), lambda: (x, product + product))
        asked = [flow.sum(y), *flow.gradients(flow.sum(y), [x])]
    result = flow.run(asked, {"x": np.ones((20, 20)), "n": 3})
    assert result.spans["flop"].sum() == 0
    assert (result.values[1] == 2).all()


UNUSED = {("untaken_loop", 5), ("cond_sides", 2), ("power", 0), ("nested", 1)}
"""Programs, and n with which w is read in a branch that is not taken, or in a loop of no trips."""


@pytest.mark.parametrize("window", [1, 32])
@pytest.mark.parametrize(("program", "n"), sorted(UNUSED))
def test_what_is_read_where_nothing_runs_has_a_gradient_of_exactly_zero(program, n, window):
    """No rounding is left, and no number of a dead step."""
    _value, of_x, of_w, _of_v = of_flow(PROGRAMS[program], n, parallel_iterations=window).values
    assert of_w.shape == W.shape
    assert not of_w.any()
    assert of_x.any()


@pytest.mark.parametrize("n", [0, 3])
@pytest.mark.parametrize("program", sorted(PROGRAMS.keys() - {"stopped"}))
def test_gradients_are_slopes(program, n):
    """Of differences of values along a line; `stop_gradient` gives others, on purpose."""
    rng = np.random.default_rng(n)
    line = {name: rng.normal(size=one.shape) for name, one in FLOATS.items()}
    step = 1e-5
    with flow.FlowGraph():
        tensors = [flow.input(name, one.shape) for name, one in FLOATS.items()]
        y = PROGRAMS[program](Flow, *tensors, flow.input("n", (), "int64"))
        slopes = flow.gradients(y, tensors)

    def run(asked: list[flow.Tensor], moved: float) -> list[Any]:
        feeds = {name: one + moved * line[name] for name, one in FLOATS.items()}
        fed = {name: one for name, one in {**feeds, "n": n}.items() if is_needed(asked, name)}
        return flow.run(asked, fed).values

    rise = float(run([y], step)[0] - run([y], -step)[0]) / (2 * step)
    found = zip(run(slopes, 0.0), FLOATS, strict=True)
    along = sum(float((slope * line[name]).sum()) for slope, name in found)
    assert along == pytest.approx(rise, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_window_and_running_ahead_change_no_bit(program):
    whole = of_flow(PROGRAMS[program], 4).values
    for options in ({"parallel_iterations": 1}, {"parallel_iterations": 2, "run_ahead": False}):
        other = of_flow(PROGRAMS[program], 4, **options).values
        assert all(np.array_equal(one, two) for one, two in zip(whole, other, strict=True))


@pytest.mark.parametrize("program", sorted(PROGRAMS.keys() - {"data_dependent", "deciding"}))
def test_sleep_has_the_spans_the_memory_and_the_shapes_of_numeric(program):
    """Bytes are charged and counted, of lengths that change from an iteration to the next, too."""
    device = Device(
        name="test", flop_per_s=1e9, memory_bandwidth_bytes_per_s=1e8, memory_bytes=10**6
    )
    cluster = Cluster(name="test", devices=(device,))
    numeric, asleep = (
        of_flow(PROGRAMS[program], 4, cluster=cluster, mode=mode) for mode in ("numeric", "sleep")
    )
    for table in ("spans", "memory", "frames", "evaluations"):
        assert getattr(numeric, table).equals(getattr(asleep, table)), table
    assert [one.shape for one in asleep.values] == [one.shape for one in numeric.values]


def test_a_training_loop_in_the_graph_takes_the_steps_of_one_outside():
    """Gradients are built inside of a body, of a loop inside of it, and by a branch."""

    def loss_of(f: Any, w: Any) -> Any:
        start = torch.tensor(X) if f is Torch else X
        _, h = f.loop(lambda i, h: i < 3, lambda i, h: (i + 1, f.tanh(f.matmul(h, w))), (0, start))
        return f.sum(f.square(h))

    with flow.FlowGraph():
        w = flow.input("w", (4, 4))

        def body(step: flow.Tensor, w: flow.Tensor) -> tuple[flow.Tensor, ...]:
            (slope,) = flow.gradients(loss_of(Flow, w), [w])
            back = flow.cond(step % 2 < 1, lambda: flow.gradients(loss_of(Flow, w), [w])[0],
                             lambda: slope)  # fmt: skip
            return step + 1, w - back * 0.05

        _, trained = flow.while_loop(lambda step, w: step < 4, body, (0, w))
    value = torch.tensor(W)
    for _ in range(4):
        value.requires_grad_(True)
        (slope,) = torch.autograd.grad(loss_of(Torch, value), value)
        value = (value - slope * 0.05).detach()
    found = flow.run(trained, {"w": W}).values[0]
    np.testing.assert_allclose(found, value.numpy(), rtol=1e-10, atol=1e-10)


def test_several_gradients_of_one_loop_stand_beside_each_other():
    with flow.FlowGraph():
        x, w, v = (flow.input(name, one.shape) for name, one in FLOATS.items())
        y = recurrent(Flow, x, w, v, flow.constant(4))
        first, second = flow.gradients(y, [w]), flow.gradients(y * 2.0, [w, v])
    one = flow.run([*first, *second], FLOATS).values
    alone = flow.run(first, FLOATS).values
    assert np.array_equal(one[0], alone[0])
    np.testing.assert_allclose(one[1], 2.0 * one[0], rtol=1e-12)


@pytest.mark.parametrize("program", ["power", "cond_in_loop", "nested", "scanned", "chosen"])
def test_single_precision_stays_single(program):
    with flow.FlowGraph():
        tensors = [flow.input(name, one.shape, "float32") for name, one in FLOATS.items()]
        y = PROGRAMS[program](Flow, *tensors, flow.constant(3))
        asked = [y, *flow.gradients(y, tensors)]
    feeds = {name: one for name, one in FLOATS.items() if is_needed(asked, name)}
    found = flow.run(asked, feeds).values
    assert {one.dtype for one in (*asked, *found)} == {np.dtype("float32")}
    for got, wanted in zip(found, of_torch(PROGRAMS[program], 3), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=1e-4)


def mixed_loop(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    return f.loop(lambda i, y: i < n, lambda i, y: (i + 1, f.tanh(y * w) + f.sum(v * x)), (0, w))[1]


def mixed_branch(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    return f.cond(n > 2, lambda: f.sum(f.tanh(x * v) * v), lambda: f.sum(f.matmul(w, w)))


def mixed_rows(f: Any, x: Any, w: Any, v: Any, n: Any) -> Any:
    return f.map_fn(lambda row: row * row, x) * v


@pytest.mark.parametrize("n", [0, 3])
@pytest.mark.parametrize("program", [mixed_loop, mixed_branch, mixed_rows])
def test_a_gradient_has_the_type_of_its_tensor_where_precisions_meet(program, n):
    """That of a single one beside a double one was double, and no loop and no branch took it."""
    types = {"x": "float32", "w": "float64", "v": "float64"}
    with flow.FlowGraph():
        tensors = [flow.input(name, one.shape, types[name]) for name, one in FLOATS.items()]
        y = program(Flow, *tensors, flow.constant(n))
        asked = [y, *flow.gradients(y, tensors)]
    feeds = {name: one for name, one in FLOATS.items() if is_needed(asked, name)}
    found = flow.run(asked, feeds).values
    leaves = [
        torch.tensor(one, dtype=getattr(torch, types[name]), requires_grad=True)
        for name, one in FLOATS.items()
    ]
    value = program(Torch, *leaves, n)
    value.sum().backward()
    slopes = [torch.zeros_like(one) if one.grad is None else one.grad for one in leaves]
    for tensor, got, wanted in zip(asked, found, [value.detach(), *slopes], strict=True):
        assert tensor.dtype == got.dtype == wanted.numpy().dtype
        np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-6, atol=1e-7)
