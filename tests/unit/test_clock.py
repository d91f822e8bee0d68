"""Both clocks keep one contract, and say what went wrong in a coroutine of theirs."""

from functools import partial

import pytest

from ampsim.clock import SimClock, WallClock
from ampsim.errors import OptionError

LONG_S = 1e-3


@pytest.fixture(params=["virtual", "wall"])
def clock(request):
    if request.param == "virtual":
        yield SimClock()
        return
    clock = WallClock()
    yield clock
    clock.close()


def test_sleepers_wake_in_the_order_of_their_deadlines(clock):
    woken = []

    async def sleeper(name, delay_s):
        await clock.sleep(delay_s)
        woken.append((name, clock.now >= delay_s))

    for name, delay_s in [("c", 3 * LONG_S), ("a", LONG_S), ("b", 2 * LONG_S)]:
        clock.start(sleeper(name, delay_s), name)
    clock.run()
    assert woken == [("a", True), ("b", True), ("c", True)]


def test_equal_deadlines_wake_in_the_order_of_asking_whatever_passes_at_once(clock):
    """On the virtual clock a sleep is over at once where nothing happens before its end."""
    woken = []

    async def sleeper(name, parts):
        for part in parts:
            await clock.sleep(part * LONG_S)
        woken.append((name, clock.now))

    clock.start(sleeper("a", [3]), "a")
    clock.start(sleeper("b", [1, 1, 1]), "b")  # the last is asked for after a's
    clock.start(sleeper("c", [1, 2, 3]), "c")  # alone from 3 on
    clock.call_later(3 * LONG_S, lambda: woken.append(("later", clock.now)))
    clock.run()
    assert woken == [
        ("later", 3 * LONG_S), ("a", 3 * LONG_S), ("b", 3 * LONG_S), ("c", 6 * LONG_S),
    ]  # fmt: skip


def test_a_signal_wakes_its_waiter_once_the_instant_has_settled(clock):
    seen = []
    signal = clock.signal()

    async def waiter():
        await signal
        seen.append("woken")

    async def other():
        seen.append("fires")
        signal.fire()
        seen.append("goes on")

    clock.start(waiter(), "waiter")
    clock.start(other(), "other")
    clock.run()
    assert seen == ["fires", "goes on", "woken"]


def test_an_instant_is_settled_once_nothing_else_can_happen_in_it(clock):
    seen = []
    signal = clock.signal()

    async def waiter():
        await signal
        seen.append(("waiter", clock.is_settled))

    async def other():
        await clock.sleep(LONG_S)
        seen.append(("before firing", clock.is_settled))
        signal.fire()
        seen.append(("after firing", clock.is_settled))

    clock.start(waiter(), "waiter")
    clock.start(other(), "other")
    clock.call_later(2 * LONG_S, lambda: None)
    clock.run()
    assert seen == [("before firing", True), ("after firing", False), ("waiter", True)]


def test_within_an_instant_starts_come_first_then_timers_then_signals(clock):
    seen = []
    signals = [clock.signal() for _ in range(3)]

    async def waiter(place):
        await signals[place]
        seen.append(f"signal {place}")
        await clock.sleep(0.0)
        seen.append(f"after signal {place}")

    async def late():
        seen.append("started")

    async def first():
        await clock.sleep(LONG_S)
        for signal in signals[:2]:
            signal.fire()
        signals[2].fire_first()
        clock.call_later(0.0, lambda: seen.append("timer"))
        clock.start(late(), "late")

    for place in range(3):
        clock.start(waiter(place), f"waiter {place}")
    clock.start(first(), "first")
    clock.run()
    ends = [f"{word} {place}" for place in (2, 0, 1) for word in ("signal", "after signal")]
    assert seen == ["started", "timer", *ends]


def test_run_returns_while_somebody_awaits_a_signal_that_nobody_fires(clock):
    seen = []
    signal = clock.signal()

    async def waiter():
        await signal
        seen.append(1)

    clock.start(waiter(), "waiter")
    clock.run()
    assert seen == []
    signal.fire()
    clock.run()
    assert seen == [1]


def test_a_callback_comes_after_its_delay(clock):
    called = []
    clock.call_later(2 * LONG_S, lambda: called.append(clock.now))
    clock.call_later(LONG_S, lambda: called.append(clock.now))
    clock.run()
    assert called == sorted(called)
    assert called[0] >= LONG_S
    assert called[1] >= 2 * LONG_S


def test_an_alarm_that_is_taken_back_is_as_if_it_had_never_been(clock):
    called = []
    take_back = clock.set_alarm(20 * LONG_S, lambda: called.append("late"))
    clock.set_alarm(LONG_S, lambda: called.append("early"))
    clock.call_later(LONG_S / 2, take_back)
    start = clock.now
    clock.run()
    assert called == ["early"]
    assert clock.now - start < 20 * LONG_S


def test_of_two_alarms_with_one_callback_the_one_is_taken_back_that_was_meant(clock):
    called = []

    def ring():
        called.append(clock.now)

    clock.set_alarm(2 * LONG_S, ring)
    clock.set_alarm(LONG_S, ring)()
    start = clock.now
    clock.run()
    assert len(called) == 1
    assert called[0] - start >= 2 * LONG_S


def test_no_sleep_passes_what_is_due_before_its_end_once_an_alarm_is_taken_back(clock):
    """In this order the alarms leave no heap behind them where nobody sees to it."""
    seen = list[float]()
    alarms = {
        one: clock.set_alarm(one * LONG_S, partial(seen.append, one)) for one in (1, 2, 4, 5, 3, 6)
    }

    async def sleeper():
        alarms[1]()
        await clock.sleep(4.5 * LONG_S)
        seen.append(4.5)

    clock.start(sleeper(), "sleeper")
    clock.run()
    assert seen == [2, 3, 4, 4.5, 5, 6]


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_an_exception_of_a_coroutine_ends_run_and_keeps_its_cause(clock, kind):
    first = LookupError("first")

    async def fails():
        await clock.sleep(0.0)
        raise kind("second") from first

    clock.start(fails(), "fails")
    with pytest.raises(kind, match=r"^second$") as caught:
        clock.run()
    assert caught.value.__cause__ is first


def test_virtual_time_adds_equal_lengths_up_to_the_same_instant():
    clock = SimClock()
    ends = []

    async def path(parts):
        for part in parts:
            await clock.sleep(part)
        ends.append(clock.now)

    clock.start(path([0.1, 0.2, 0.3]), "there")
    clock.start(path([0.3, 0.2, 0.1]), "back")
    clock.run()
    assert ends[0] == ends[1] == pytest.approx(0.6)


def test_a_wall_clock_stretches_seconds():
    clock = WallClock(stretch=1000.0)

    async def sleeper():
        await clock.sleep(1e-6)

    clock.start(sleeper(), "sleeper")
    clock.run()
    assert clock.now == pytest.approx(1e-6)
    assert clock.elapsed_s >= 1e-6
    assert clock.late_max_s < clock.elapsed_s * 1000.0
    clock.close()


@pytest.mark.parametrize("stretch", [0.0, -1.0, float("inf"), float("nan")])
def test_a_stretch_that_is_none_is_refused(stretch):
    text = f"^stretch must be a (positive )?finite number, got {stretch}$"
    with pytest.raises(OptionError, match=text):
        WallClock(stretch)
