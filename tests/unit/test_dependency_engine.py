"""The dependency engine as its users meet it: order, time, waits, failures, refusals."""

from __future__ import annotations

import gc
import itertools
from typing import Any

import numpy as np
import pytest

import ampsim
from ampsim.clock import WallClock
from ampsim.dependency import POLICIES, Arrays, Expression, fullc_forward
from ampsim.dependency.array import summed
from ampsim.dependency.operation import Operation
from ampsim.errors import OptionError, OutOfMemoryError, SimulationError
from ampsim.hardware import Cluster, Device, Event, Link

SECOND = ampsim.Work(flop=1)


def cluster(workers: int = 1, link: Link | None = None, **device: Any) -> Cluster:
    """Devices of one FLOP a second."""
    one = Device(name="d", flop_per_s=1.0, **device)
    return Cluster(name="c", devices=(one,) * workers, link=link or Link())


def seconds(count: float) -> Any:
    return ampsim.Work(flop=count)  # pyright: ignore[reportArgumentType]  # a fraction of a FLOP


@pytest.fixture
def engine() -> Any:
    return ampsim.DependencyEngine(cluster(2, Link(latency_s=1.0)))


def seeds_example(engine: Any) -> dict[str, int]:
    """B = A + 1; C = A + 2; A = C * 2; D = A + 3, of a second each."""
    values = {"A": 2}
    a, b, c, d = (engine.new_variable(name) for name in "ABCD")

    def push(name: str, reads: Any, mutates: Any, function: Any) -> None:
        engine.push(function, reads, mutates, work=SECOND, name=name)

    push("B = A + 1", [a], [b], lambda: values.update(B=values["A"] + 1))
    push("C = A + 2", [a], [c], lambda: values.update(C=values["A"] + 2))
    push("A = C * 2", [c], [a], lambda: values.update(A=values["C"] * 2))
    push("D = A + 3", [a], [d], lambda: values.update(D=values["A"] + 3))
    return values


def test_the_seeds_four_lines_run_as_its_text_says():
    engine = ampsim.DependencyEngine(cluster(), ampsim.PerDevice(threads=4))
    values = seeds_example(engine)
    assert values == {"A": 2}  # nothing runs at a push
    engine.wait_for_all()
    assert values == {"A": 8, "B": 3, "C": 4, "D": 11}
    result = engine.result
    assert result.operations["start_s"].tolist() == [0, 0, 1, 2]
    assert result.queues_at(0.0).splitlines() == [
        "A | (B = A + 1*) (C = A + 2*) [A = C * 2] (D = A + 3)",
        "B | [B = A + 1*]",
        "C | [C = A + 2*] (A = C * 2)",
        "D | [D = A + 3]",
    ]
    assert result.queues_at(2.0).splitlines() == ["A | (D = A + 3*)", "D | [D = A + 3*]"]
    assert result.queues_at(3.0) == "no operation waits or runs"
    waits = result.operations[["waited_for", "variable"]].to_numpy().tolist()
    assert waits == [[-1, ""], [-1, ""], [1, "C"], [2, "A"]]


def test_an_operation_tells_what_it_stood_behind():
    engine = ampsim.DependencyEngine(cluster())
    for _ in range(3):
        engine.push(None, work=SECOND)
    engine.wait_for_all()
    assert engine.result.operations["behind"].tolist() == [-1, 0, 1]


def test_an_operation_stands_behind_none_that_ended_when_it_could_start():
    """What made it ready had its thread, or its issue took as long; what takes no time has none."""
    chained = ampsim.DependencyEngine(cluster())
    a = chained.new_variable("a")
    for work in (SECOND, SECOND):
        chained.push(None, [], [a], work=work)
    issued = ampsim.DependencyEngine(cluster(dispatch_s=1.0))
    for work in (SECOND, SECOND, seconds(2), SECOND):
        issued.push(None, work=work)
    moment = ampsim.DependencyEngine(cluster())
    a = moment.new_variable("a")
    moment.push(None, [], [a], work=SECOND)
    moment.push(None, [], [a])
    moment.push(None, work=SECOND)
    expected = ((chained, [-1, -1]), (issued, [-1, -1, -1, 2]), (moment, [-1, -1, 0]))
    for engine, behind in expected:
        engine.wait_for_all()
        assert engine.result.operations["behind"].tolist() == behind


def test_an_operation_stands_behind_none_that_ended_before_it_could_start():
    """It waits for a pool's thread, or for its device to be up: nothing had its own thread."""
    pooled = ampsim.DependencyEngine(cluster(2), ampsim.Pooled(1))
    for place in (1, 0, 1):
        pooled.push(None, work=SECOND, on=place)
    pause = Event(worker=0, kind="pause", from_s=2.0, until_s=4.0)
    where = Cluster(name="c", devices=cluster().devices, events=(pause,))
    paused = ampsim.DependencyEngine(where)
    for _ in range(2):
        paused.push(None, work=SECOND)
        paused.wait_for_all()
    paused.push(None, work=SECOND)
    for engine in (pooled, paused):
        engine.wait_for_all()
        table = engine.result.operations
        known = table[table["behind"] >= 0]
        ends_s = table["end_s"].to_numpy()[known["behind"]].tolist()
        assert ends_s == known["start_s"].tolist()
    assert table["start_s"].iloc[-1] == 4.0


def test_of_two_that_wait_the_one_with_more_priority_starts_first():
    engine = ampsim.DependencyEngine(cluster())
    for priority in (0, 1, 5, 5):
        engine.push(None, work=SECOND, priority=priority)
    engine.wait_for_all()
    assert engine.result.operations["start_s"].tolist() == [3, 2, 0, 1]


@pytest.mark.parametrize("has_host_too", [False, True])
def test_a_device_goes_to_the_most_urgent_whoever_gets_a_thread_at_the_same_instant(has_host_too):
    """What the pool gave to the host in between let the device take what was less urgent."""
    host = Device(name="h", flop_per_s=1.0)
    engine = ampsim.DependencyEngine(cluster(), ampsim.Pooled(4), host=host)
    first, second = engine.new_variable(), engine.new_variable()
    engine.push(None, [first, second], on=0, work=SECOND, name="first")
    engine.push(None, on=0, work=SECOND, priority=-1, name="patient")
    if has_host_too:
        engine.push(None, mutates=[first], on="host", work=SECOND, priority=1, name="host")
    engine.push(None, mutates=[second], on=0, work=SECOND, name="urgent")
    engine.wait_for_all()
    table = engine.result.operations.set_index("name")
    assert table.loc["urgent", "start_s"] == 1.0
    assert table.loc["patient", "start_s"] == 2.0


def test_a_wait_lets_no_more_time_pass_than_it_must(engine):
    a, b = engine.new_variable("A"), engine.new_variable("B")
    engine.push(None, mutates=[a], work=SECOND)
    engine.push(None, mutates=[b], work=seconds(5), on=1)
    engine.wait_for(a)
    assert engine.now_s == 1
    engine.push(None, reads=[a], work=SECOND, name="later")
    engine.wait_for_all()
    table = engine.result.operations.set_index("name")
    assert table.loc["later", "pushed_s"] == 1
    assert engine.now_s == 5
    assert engine.result.critical_path["end_s"].iloc[-1] == 5


@pytest.mark.parametrize("stretch", [None, 0.001])
@pytest.mark.parametrize("place", [0, 1])
def test_a_wait_returns_before_any_worker_takes_up_more(place, stretch):
    """Only the worker whose operation had ended left its next turn to what is more urgent."""
    clock = None if stretch is None else WallClock(stretch=stretch)
    engine = ampsim.DependencyEngine(cluster(3), clock=clock)
    a = engine.new_variable("A")
    engine.push(None, mutates=[a], on=place, work=SECOND)
    for priority in (0, 1):
        for worker in range(3):
            name = f"{priority} on {worker}"
            engine.push(None, [a], on=worker, work=SECOND, priority=priority, name=name)
        engine.wait_for(a)
    engine.wait_for_all()
    starts = engine.result.operations.set_index("name")["start_s"]
    assert [starts[f"1 on {worker}"] for worker in range(3)] == [1.0] * 3
    if clock is not None:
        clock.close()


def test_a_wait_does_not_wait_for_what_reads(engine):
    a = engine.new_variable("A")
    engine.push(None, reads=[a], work=seconds(7))
    engine.wait_for(a)
    assert engine.now_s == 0


def test_what_a_function_pushes_is_pushed_when_its_operation_ends(engine):
    a, seen = engine.new_variable("A"), []

    def inner() -> None:
        seen.append(("inner", engine.now_s))

    def outer() -> None:
        seen.append(("outer", engine.now_s))
        engine.push(inner, mutates=[a], work=SECOND, name="inner")

    engine.push(outer, mutates=[a], work=seconds(2), name="outer")
    engine.push(lambda: seen.append(("last", engine.now_s)), mutates=[a], work=SECOND, name="last")
    engine.wait_for_all()
    assert seen == [("outer", 0), ("last", 2), ("inner", 3)]
    assert engine.result.operations["name"].tolist() == ["outer", "last", "inner"]
    assert engine.result.operations["pushed_s"].tolist() == [0, 0, 2]


def test_a_function_that_waits_is_told_so_and_nothing_hangs(engine):
    engine.push(engine.wait_for_all, name="waits")
    with pytest.raises(
        SimulationError, match=r"waits waits inside the function .* wait for itself"
    ):
        engine.wait_for_all()


def failing(engine: Any) -> tuple[Any, Any, Any]:
    """A fails, B depends on it, C does not."""
    a, b, c = (engine.new_variable(name) for name in "ABC")

    def fails() -> None:
        raise ValueError("no such thing")

    engine.push(None, mutates=[a], work=SECOND)
    engine.push(fails, reads=[c], mutates=[a], work=SECOND, name="the one")
    engine.push(lambda: pytest.fail("it ran"), reads=[a], mutates=[b], work=SECOND, name="after")
    engine.push(None, reads=[c], work=SECOND, name="beside")
    return a, b, c


def test_a_failure_surfaces_at_the_wait_and_names_operation_variables_and_time(engine):
    a, b, c = failing(engine)
    engine.wait_for(c)
    text = (
        r"^the one \(reads C; mutates A\) failed at 2 s: ValueError: no such thing \(.*line \d+\)$"
    )
    for variable in (b, a, a):  # as often as one asks
        with pytest.raises(SimulationError, match=text):
            engine.wait_for(variable)
    engine.wait_for_all()  # it has been told
    told = engine.result.operations.set_index("name").loc[["the one", "after", "beside"]]
    assert told["state"].tolist() == ["failed", "skipped", "done"]
    assert (told["flop"] > 0).tolist() == [False, False, True]  # nor took its device any time


def test_wait_for_all_tells_of_a_failure_once(engine):
    failing(engine)
    with pytest.raises(SimulationError, match="the one"):
        engine.wait_for_all()
    engine.wait_for_all()


def test_what_failed_takes_no_time_and_deletions_run_all_the_same(engine):
    a, b, _c = failing(engine)
    gone = []
    engine.delete_variable(a, lambda: gone.append("A"))
    engine.delete_variable(b, lambda: gone.append("B"))
    with pytest.raises(SimulationError):
        engine.wait_for_all()
    assert gone == ["A", "B"]
    table = engine.result.operations.set_index("name")
    assert table.loc["the one", "end_s"] == table.loc["the one", "start_s"]


def test_a_copy_that_fails_sends_nothing():
    """What is counted of operations is what their devices and links were occupied for."""
    engine = ampsim.DependencyEngine(cluster(link=Link(latency_s=1.0)))

    def fail() -> None:
        raise ValueError("no such thing")

    for function in (None, fail):
        engine.push_copy(function, source=0, target="host", size_bytes=8)
    with pytest.raises(SimulationError, match="no such thing"):
        engine.wait_for_all()
    assert engine.result.operations["bytes"].tolist() == [8, 0]
    assert engine.result.transfers["bytes"].tolist() == [8]


def test_an_array_too_large_says_which_operation_wanted_it():
    engine = ampsim.DependencyEngine(cluster(memory_bytes=100))
    (a,) = Arrays(engine).new("a")
    a[0] = np.zeros(20)
    with pytest.raises(
        OutOfMemoryError, match=r"^a\[gpu0\] set \(reads nothing; mutates a\[gpu0\]\)"
    ):
        a[0].numpy()


def test_a_deletion_gives_back_what_copies_for_operations_elsewhere_took():
    """They stayed for ever, and a program that made arrays anew ran out of memory."""
    engine = ampsim.DependencyEngine(cluster(2, memory_bytes=240))
    arrays = Arrays(engine)
    for number in range(4):
        a, b = arrays.new(f"a{number}", f"b{number}")
        a[0] = np.arange(10.0)
        b[1] = summed(a[0], a[0])
        assert b[1].numpy().tolist() == np.arange(0.0, 20.0, 2.0).tolist()
        for one in (a[0], b[1]):
            one.delete()
    engine.wait_for_all()
    assert engine.result.peak_bytes.tolist() == [80, 160]
    assert [engine.memory(place).total_bytes for place in range(2)] == [0, 0]
    names = engine.result.operations["name"].tolist()
    assert names.count("a0[gpu0] to gpu1") == 1  # one copy, however often it is read


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_numbers_have_the_type_whose_bytes_are_counted(dtype):
    """Of arrays in single precision the numbers were double."""
    engine = ampsim.DependencyEngine(cluster(2))
    a, b, c, labels = Arrays(engine, dtype=dtype).new("a", "b", "c", "labels")
    third = np.array([1.0, 1 / 3])
    a[0], labels[0] = third, np.array([1, 0])
    b[0] = 0.1 * a[0]
    c[1] = a[0] + b[0]
    found = third.astype(dtype)
    assert c[1].numpy().dtype == dtype
    assert np.array_equal(c[1].value, found + 0.1 * found)
    assert labels[0].numpy().dtype.kind == "i"


@pytest.mark.parametrize("is_numeric", [True, False])
@pytest.mark.parametrize("dtype", ["int64", "int8", "bool", "complex128", "float64", "float16"])
def test_bytes_are_those_of_the_numbers_that_lie_there(dtype, is_numeric):
    """Whole numbers keep their type, and were counted as fractions of single precision."""
    engine = ampsim.DependencyEngine(cluster(3))
    a, b, c, d = Arrays(engine, dtype="float32", is_numeric=is_numeric).new(*"abcd")
    a[0] = np.ones(10, dtype)
    b[0] = a[0]
    a[1] = a[0]
    c[1] = a[0][2:5]
    d[2] = Expression("count", (a[0][:4],), lambda x: np.float64(x.sum().real), ())
    engine.wait_for_all()
    size = 4 if dtype.startswith("float") else np.dtype(dtype).itemsize
    if is_numeric:
        assert (b[0].value.itemsize, c[1].value.itemsize) == (size, size)
    assert engine.result.peak_bytes.tolist() == [20 * size, 13 * size, 4 * size + 4]
    assert engine.result.operations["bytes"].tolist() == [
        0, 2 * 10 * size, 10 * size, 3 * size, 4 * size, 0
    ]  # fmt: skip


def test_arithmetic_of_whole_numbers_and_fractions_moves_the_bytes_of_each():
    engine = ampsim.DependencyEngine(cluster(pass_bandwidth_bytes_per_s=1.0))
    a, b, c, d, e = Arrays(engine, dtype="float32").new(*"abcde")
    a[0], b[0], c[0] = np.ones((10, 3), np.int64), np.ones((3, 5)), np.ones((10, 3))
    d[0] = fullc_forward(a[0], b[0])
    e[0] = summed(a[0], c[0], a[0])
    engine.wait_for_all()
    moved = 10 * 3 * 8 + 3 * 5 * 4 + 10 * 5 * 4, 2 * 30 * 8 + 30 * 4 + 30 * 4
    table = engine.result.operations.iloc[-2:]
    assert table["bytes"].tolist() == [*moved]
    seconds = (table["end_s"] - table["start_s"]).tolist()
    assert seconds == pytest.approx([2 * 10 * 3 * 5, 2 * 30 + moved[1] + 2 * 30 * 4])


def test_an_array_for_which_there_was_no_room_lies_nowhere():
    engine = ampsim.DependencyEngine(cluster(memory_bytes=100))
    a, b, c, d = Arrays(engine).new("a", "b", "c", "d")
    a[0], b[0] = np.zeros(10), np.zeros(11)
    with pytest.raises(OutOfMemoryError, match="it needs 168 bytes of 100"):
        engine.wait_for_all()
    a[0].delete()
    c[0] = np.zeros(9)
    engine.wait_for_all()
    assert engine.result.peak_bytes.tolist() == [80]
    d[0] = np.zeros(4)
    with pytest.raises(OutOfMemoryError, match="it needs 104 bytes of 100"):
        engine.wait_for_all()
    assert engine.memory(0).total_bytes == 72


def test_ctrl_c_in_a_function_ends_the_engine(engine):
    def interrupt() -> None:
        raise KeyboardInterrupt

    engine.push(interrupt)
    with pytest.raises(KeyboardInterrupt):
        engine.wait_for_all()
    for call in (engine.wait_for_all, lambda: engine.push(None)):
        with pytest.raises(OptionError, match="this engine was interrupted; make a new one"):
            call()


def test_a_device_that_is_down_is_waited_for():
    events = (Event(worker=0, kind="pause", from_s=1.0, until_s=4.0),)
    where = Cluster(name="c", devices=cluster().devices, events=events)
    engine = ampsim.DependencyEngine(where)
    engine.push(None, work=seconds(3))
    engine.wait_for_all()
    assert engine.now_s == 6
    with pytest.raises(OptionError, match=r"worker 0, whose time varies .* one thread, got 2"):
        ampsim.DependencyEngine(where, ampsim.PerDevice(threads=2))


def test_an_engine_without_operations_has_an_empty_result(engine):
    engine.wait_for_all()
    result = engine.result
    assert (len(result.operations), len(result.critical_path), result.makespan_s) == (0, 0, 0)
    assert "0 operations" in repr(result)
    assert "<table" in result._repr_html_()


@pytest.mark.slow  # it really waits
@pytest.mark.parametrize("name", POLICIES)
def test_the_wall_clock_tells_the_story_of_the_virtual_one(name):
    stories = []
    for clock in (None, WallClock(stretch=0.01)):
        where = cluster(2, Link(latency_s=0.37, bandwidth_bytes_per_s=10.0))
        engine = ampsim.DependencyEngine(where, POLICIES[name](), push_s=0.11, clock=clock)
        order = push_some(engine)
        engine.wait_for_all()
        stories.append((order, engine.result.digest))
        if clock is not None:
            clock.close()
    assert stories[0] == stories[1]


def push_some(engine: Any) -> list[str]:
    """Eight operations and copies, and a wait between them; gives the order of their functions."""
    a, b = engine.new_variable("A"), engine.new_variable("B")
    order: list[str] = []
    lengths = itertools.cycle((1.3, 2.9, 1.7))
    for number in range(8):
        use = {"reads": [a], "mutates": [b]} if number % 3 else {"mutates": [a]}
        name = f"s{number}"
        if number % 4 == 3:
            engine.push_copy(
                lambda name=name: order.append(name), **use, source=0, target=1, size_bytes=7,
                name=name,
            )  # fmt: skip
        else:
            engine.push(
                lambda name=name: order.append(name), **use, on=number % 2,
                work=seconds(next(lengths)), name=name,
            )  # fmt: skip
        if number == 4:
            engine.wait_for(a)
    return order


def test_a_wait_on_the_wall_clock_returns_when_its_variable_has_its_value():
    clock = WallClock(stretch=0.01)
    engine = ampsim.DependencyEngine(cluster(2), clock=clock)
    a, b = engine.new_variable(), engine.new_variable()
    engine.push(None, mutates=[a], work=SECOND)
    engine.push(None, mutates=[b], work=seconds(20), on=1)
    engine.wait_for(a)
    assert engine.now_s == 1
    engine.wait_for_all()
    assert engine.now_s == 20
    clock.close()


def test_an_operation_that_has_ended_is_kept_as_numbers_alone(engine):
    """No object of them is left: memory holds a row of each, and columns say what was pushed."""
    a, b = engine.new_variable("A"), engine.new_variable("B")
    for number in range(500):
        engine.push(None, [a], [b], work=SECOND, on=number % 2, name=f"step {number % 3}")
    engine.wait_for_all()
    gc.collect()
    left = [one for one in gc.get_objects() if issubclass(type(one), Operation)]
    assert len(left) < 50  # a thread may hold its last
    table = engine.result.operations
    assert table["name"].tolist() == [f"step {number % 3}" for number in range(500)]
    assert table["waited_for"].tolist() == list(range(-1, 499))
    assert engine.result.uses == (((a.number,), (b.number,)),) * 500


def test_operations_are_spans_and_copies_transfers_in_the_columns_of_any_run():
    gpu = ampsim.Device(name="gpu", flop_per_s=1e9, dispatch_s=1e-7)
    cluster = ampsim.Cluster(name="c", devices=(gpu,), link=Link(latency_s=1e-6))
    engine = ampsim.DependencyEngine(cluster, ampsim.PerDevice(threads=2), push_s=1e-8)
    a = engine.new_variable("A")
    for number in range(2):
        engine.push(None, mutates=[a], work=ampsim.Work(flop=100), name=f"step {number}")
    engine.push_copy(None, [a], source=0, target="host", size_bytes=20, name="copy")
    engine.push(None, work=ampsim.Work(flop=300), name="beside")
    engine.wait_for_all()
    result: Any = engine.result
    model = ampsim.load_model("mlp", data="synthetic")
    of_model = ampsim.simulate(model, "tflops-1", ampsim.Amp(), instances=2, mode="sleep")
    assert set(of_model.spans.columns) <= set(result.spans.columns)
    assert set(of_model.transfers.columns) <= set(result.transfers.columns)
    spans, table = result.spans, result.operations
    ran = spans[spans["operations"] == 1]
    for mine, theirs in (("node", "name"), ("worker", "place"), ("direction", "kind")):
        assert ran[mine].tolist() == table[theirs].tolist()
    assert (
        ran[["start_s", "end_s"]].to_numpy().tolist()
        == table[["start_s", "end_s"]].to_numpy().tolist()
    )
    assert ran["lane"].tolist() == ["compute", "compute 1", "copy-out", "compute"]
    causes = spans.loc[ran["cause"], "node"].tolist(), spans.loc[ran["cause"], "lane"].tolist()
    assert causes == (
        ["step 0", "step 1", "step 1", "beside"],
        ["dispatch", "dispatch", "compute 1", "dispatch"],
    )
    assert spans[spans["direction"] == "push"]["end_s"].tolist() == pytest.approx(
        [1e-8, 2e-8, 3e-8, 4e-8]
    )
    (sent,) = result.transfers.to_dict("records")
    assert (sent["node"], sent["source_worker"], sent["target_worker"]) == ("copy", 0, -1)
    assert spans.loc[sent["cause"], "node"] == "step 1"


@pytest.mark.parametrize("count", [np.float32(1e9), np.int64(10**9), np.int32(10**9)])
def test_work_in_numbers_of_numpy_takes_the_time_of_python_s(count):
    engine = ampsim.DependencyEngine(ampsim.load_cluster("tflops-1", workers=1))
    engine.push(None, on=0, work=ampsim.Work(flop=count))
    engine.wait_for_all()
    assert engine.result.makespan_s == 1e-3
