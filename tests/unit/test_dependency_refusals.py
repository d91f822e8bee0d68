"""Mistakes in programs on the dependency engine are refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ampsim
from ampsim.dependency import Arrays, CaseStudy, Expression, Random, Workspace, fullc_backward
from ampsim.errors import OptionError, SimulationError
from ampsim.hardware import Cluster, Device

SECOND = ampsim.Work(flop=1)
MASKED = np.ma.masked_array([1.0, 2.0], [True, False])


def cluster() -> Cluster:
    """Two devices of one FLOP a second."""
    return Cluster(name="c", devices=(Device(name="d", flop_per_s=1.0),) * 2)


@pytest.fixture
def engine() -> Any:
    return ampsim.DependencyEngine(cluster())


REFUSED: dict[str, Any] = {
    "variable 'A' is in reads and in mutates; keep it in mutates": lambda e, a: e.push(
        None, [a], [a]
    ),
    "variable 'A' is twice in reads; keep one": lambda e, a: e.push(None, [a, a]),
    "variable 'A' is twice in mutates; keep one": lambda e, a: e.push(None, [], [a, a]),
    "mutates: variable 'A' was deleted; push before delete_variable": lambda e, a: (
        e.delete_variable(a), e.push(None, [], [a])
    ),
    "variable 'A' was deleted; push before": lambda e, a: (
        e.delete_variable(a), e.delete_variable(a)
    ),
    "reads: variable 'A' was deleted": lambda e, a: (e.delete_variable(a), e.wait_for(a)),
    "reads: variable 'B' is of another engine": lambda e, a: e.push(
        None, [ampsim.DependencyEngine(cluster()).new_variable("B")]
    ),
    r"reads must be a list of variables, got Variable\('A'\); write \[A\]": lambda e, a: e.push(
        None, a
    ),
    r"mutates\[1\] must be a variable of this engine \(new_variable\), got 'B'": lambda e, a: (
        e.push(None, [], [a, "B"])
    ),
    "reads must be a list of variables, got 3": lambda e, a: e.push(None, 3),
    "function must be a function without arguments or None, got 7": lambda e, a: e.push(7),
    "on must be 'host' or a worker from 0 to 1, got 2": lambda e, a: e.push(None, on=2),
    "on must be 'host' or a worker from 0 to 1, got True": lambda e, a: e.push(None, on=True),
    "on must be 'host' or a worker from 0 to 1, got 'gpu0'": lambda e, a: e.push(None, on="gpu0"),
    "work must be an ampsim.Work or None, got 3": lambda e, a: e.push(None, work=3),
    "work: flop must be a number from 0 to 1e\\+18, got -1": lambda e, a: e.push(
        None, work=ampsim.Work(flop=-1)
    ),
    "work: bytes must be a number from 0 to 1e\\+18, got nan": lambda e, a: e.push(
        None, work=ampsim.Work(bytes=float("nan"))  # pyright: ignore[reportArgumentType]  # the test
    ),
    "rows must be a number >= 1 or None, got 0": lambda e, a: e.push(None, work=SECOND, rows=0),
    "is_backward must be True or False, got 'no'": lambda e, a: e.push(
        None, work=SECOND, is_backward="no"
    ),
    "priority must be a finite number, got 'high'": lambda e, a: e.push(None, priority="high"),
    "priority must be a finite number, got nan": lambda e, a: e.push(None, priority=float("nan")),
    "name must be a text of one line or None, got 3": lambda e, a: e.push(None, name=3),
    "source and target must be two places, got 1 twice": lambda e, a: e.push_copy(
        None, source=1, target=1, size_bytes=1
    ),
    "target must be 'host' or a worker from 0 to 1, got 9": lambda e, a: e.push_copy(
        None, source=1, target=9, size_bytes=1
    ),
    "size_bytes must be a whole number from 0 to 1e\\+18, got -1": lambda e, a: e.push_copy(
        None, source=1, target=0, size_bytes=-1
    ),
    "1 operations have not ended; call wait_for_all": lambda e, a: (e.push(None), e.result),
    "time_s must be a finite number, got 'now'": lambda e, a: e.result.queues_at("now"),
    "place must be 'host' or a worker from 0 to 1, got 'disk'": lambda e, a: (
        Arrays(e).new("a")[0].__getitem__("disk")  # pyright: ignore  # the test
    ),
    r"a\[gpu0\] is read before anything was assigned to it": lambda e, a: (
        Arrays(e).new("a")[0][0].size_bytes
    ),
    r"a\[gpu0\] must be given an expression, an array or numbers, got 3": lambda e, a: (
        Arrays(e).new("a")[0].__setitem__(0, 3)  # pyright: ignore  # the test
    ),
    r"a\[gpu0\] has shape \(2,\), got \(3,\); give a new name": lambda e, a: assigned(
        e, np.zeros(2), np.zeros(3)
    ),
    r"a\[gpu0\] has 8 bytes an element, got 1; give a new name": lambda e, a: assigned(
        e, np.zeros(2), np.zeros(2, bool)
    ),
    r"a\[gpu0\] must have a number at every place, got a masked array with 1": (
        lambda e, a: assigned(e, MASKED)
    ),
    r"a\[gpu0\] must be given numbers, got <U1": lambda e, a: assigned(e, np.array(["a"])),
    r"a\[gpu0\]: rows must be whole numbers start:stop .* got slice\(0, 1, None\) of shape \(\)": (
        lambda e, a: assigned(e, np.array(1.0))[0:1]
    ),
    r"a\[gpu0\]: rows must be whole numbers start:stop .* got slice\('b', None, None\) of": (
        lambda e, a: assigned(e, np.zeros(2))["b":]
    ),
    "has had no forward step": lambda e, a: two_gradients(e),
    "dtype must be one of float16, float32, float64, got": lambda e, a: Arrays(e, dtype="big"),
    "is_numeric must be True or False, got 'no'": lambda e, a: Arrays(e, is_numeric="no"),  # pyright: ignore[reportArgumentType]  # the test
    "name must be a text of one line or None, got 4": lambda e, a: Arrays(e).new(4),  # pyright: ignore[reportArgumentType]  # the test
    "copies must be a whole number >= 1, got 0": lambda e, a: Workspace(e, copies=0),
    "on must be 'host' or a worker": lambda e, a: Workspace(e, place=7),
    "batch must divide among 2 GPUs, got 3": lambda e, a: CaseStudy(batch=3),
    "widths must be two whole numbers": lambda e, a: CaseStudy(widths=[3]),
    "the engine must have 3 workers": lambda e, a: CaseStudy(gpus=3, batch=3).run(e),
    "threads must be a whole number >= 1, got 0": lambda e, a: ampsim.PerDevice(threads=0),
    "threads must be a whole number": lambda e, a: ampsim.Pooled(threads=1.5),  # pyright: ignore[reportArgumentType]  # the test
    "push_s must be at most 1,000,000,000, got": lambda e, a: ampsim.DependencyEngine(
        cluster(), push_s=1e308
    ),
    "push_s must be a number >= 0, got -1.0": lambda e, a: ampsim.DependencyEngine(
        cluster(), push_s=-1.0
    ),
    "policy must be": lambda e, a: ampsim.DependencyEngine(cluster(), "naive"),  # pyright: ignore[reportArgumentType]  # the test
}  # fmt: skip


def assigned(engine: Any, *numbers: np.ndarray) -> Any:
    (a,) = Arrays(engine).new("a")
    for one in numbers:
        a[0] = one
    return a[0]


def two_gradients(engine: Any) -> None:
    a, b = Arrays(engine).new("a", "b")
    a[0] = b[0] = np.zeros((2, 2))
    fullc_backward(a[0], b[0])


@pytest.mark.parametrize("text", REFUSED)
def test_a_mistake_is_refused_in_one_line(engine, text):
    with pytest.raises(OptionError, match=text) as raised:
        REFUSED[text](engine, engine.new_variable("A"))
    assert "\n" not in str(raised.value)


def yields() -> Any:
    yield 1


async def waits() -> None: ...


async def both() -> Any:
    yield 1


class Waits:
    async def __call__(self) -> None: ...

    async def method(self) -> None: ...


SUSPENDED: list[Any] = [
    yields, waits, both, Waits(), Waits().method, partial(yields), partial(partial(waits)),
]  # fmt: skip
PUSHES: dict[str, Callable[[Any, Any, Any], None]] = {
    "push": lambda engine, a, function: engine.push(function, mutates=[a]),
    "push_copy": lambda engine, a, function: engine.push_copy(
        function, mutates=[a], source=0, target=1, size_bytes=1
    ),
    "delete_variable": lambda engine, a, function: engine.delete_variable(a, function),
    "draw": lambda engine, a, function: Random(engine).draw(
        partial(function) if function in SUSPENDED else lambda _generator: function(), [a]
    ),
}
"""Each way in which a function gets into an engine."""


def test_what_is_no_policy_is_told_one():
    with pytest.raises(
        OptionError, match=r"^policy must be a policy such as ampsim\.PerDevice\(\)"
    ):
        ampsim.DependencyEngine("tflops-1", policy="naive")  # pyright: ignore[reportArgumentType]  # what is refused


@pytest.mark.parametrize("way", PUSHES)
@pytest.mark.parametrize("function", SUSPENDED)
def test_what_would_not_run_when_it_is_called_is_refused(engine, way, function):
    with pytest.raises(OptionError, match=r"^function must run to its end .* push each of its"):
        PUSHES[way](engine, engine.new_variable("A"), function)


@pytest.mark.parametrize("way", PUSHES)
@pytest.mark.parametrize("function", [yields, waits, both])
def test_what_a_function_returns_must_have_run(engine, way, function):
    PUSHES[way](engine, engine.new_variable("A"), lambda: function())
    kind = {yields: "generator", waits: "coroutine", both: "async_generator"}[function]
    with pytest.raises(
        SimulationError, match=rf"A\) failed at 0 s: it returned a {kind}, of which"
    ):
        engine.wait_for_all()


WRITERS: dict[str, Callable[[np.ndarray], Any]] = {
    "item": lambda x: x.__setitem__(0, 5.0),
    "operator": lambda x: x.__iadd__(1.0),
    "out": lambda x: np.add(x, 1.0, out=x),
    "sort": lambda x: x.sort(),
    "fill": lambda x: x.fill(0.0),
    "view": lambda x: x.reshape(-1)[:1].__setitem__(0, 5.0),
}


@pytest.mark.parametrize("way", WRITERS)
@pytest.mark.parametrize("is_part", [False, True])
def test_a_function_cannot_write_to_what_it_reads(engine, way, is_part):
    a, b = Arrays(engine).new("a", "b")
    a[0] = np.arange(4.0)
    read = a[0][0:4] if is_part else a[0]
    b[0] = Expression("write", (read,), WRITERS[way], (4,))
    text = (
        r"^b\[gpu0\] write \(reads a\[gpu0\]; mutates b\[gpu0\]\) failed .* it writes to what it "
    )
    with pytest.raises(
        SimulationError, match=text + r"reads \(a\[gpu0\]\); return another"
    ) as told:
        engine.wait_for_all()
    assert "\n" not in str(told.value)
    assert Path(__file__).name in str(told.value)
    assert a[0].numpy().tolist() == [0.0, 1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="read-only"):
        WRITERS[way](a[0].value)


def test_an_array_that_came_from_another_shares_no_numbers_that_can_be_written(engine):
    """Where an operation returns what it read, both names have the numbers, and neither writes."""
    a, b = Arrays(engine).new("a", "b")
    given = np.arange(4.0)
    a[0] = given
    b[0] = Expression("same", (a[0],), lambda x: x, (4,))
    a[0] -= b[0]
    given[:] = 7.0
    assert b[0].numpy().tolist() == [0.0, 1.0, 2.0, 3.0]
    assert a[0].numpy().tolist() == [0.0] * 4
    a[0].numpy()[:] = 7.0


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: x[:1], r"has shape \(4,\), its function gave \(1"),
        (lambda x: np.ma.masked_less(x, 1.0), "must have a number at every place, got a masked"),
        (lambda x: x > 0, r"has 8 bytes an element, its operation gave bool; give numbers that"),
    ],
)
def test_a_function_gives_numbers_of_the_shape_and_size_that_it_says(engine, function, text):
    a, b = Arrays(engine).new("a", "b")
    a[0] = np.arange(4.0)
    b[0] = Expression("first", (a[0],), function, (4,))
    with pytest.raises(
        SimulationError, match=rf"^b\[gpu0\] first \(.*\) failed at 0 s: b\[gpu0\] {text}"
    ):
        engine.wait_for_all()


def test_rows_of_an_array_are_not_deleted_without_the_others(engine):
    """Nothing could use the array any more, and its memory was never given back."""
    (a,) = Arrays(engine).new("a")
    a["host"] = np.arange(4.0)
    with pytest.raises(OptionError, match=r"^a\[cpu\]: rows can be read only; delete the whole"):
        a[:2].delete()


def test_a_refused_push_leaves_nothing_behind(engine):
    a = engine.new_variable("A")
    with pytest.raises(OptionError):
        engine.push(None, [a], [a])
    engine.push(None, mutates=[a], work=SECOND)
    engine.wait_for_all()
    assert len(engine.result.operations) == 1
