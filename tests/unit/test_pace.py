"""How long a task occupies a device whose time varies."""

from __future__ import annotations

import math
from collections import deque
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ampsim.clock import SimClock
from ampsim.errors import SimulationError
from ampsim.hardware import Cluster, Device, Event, Failures
from ampsim.machine import Begun, Instant, Processor, outages_until, paced
from ampsim.machine.pace import Outage, Pace, Paced, lognormal, outages_of
from ampsim.rng import stream

DOWN = math.inf


def slow(start_s: float, end_s: float, factor: float) -> Outage:
    return Outage(start_s, end_s, "slow", factor, False)


def pause(start_s: float, end_s: float) -> Outage:
    return Outage(start_s, end_s, "pause", DOWN, False)


def stop(start_s: float, end_s: float) -> Outage:
    return Outage(start_s, end_s, "stop", DOWN, True)


def pace_of(*outages: Outage) -> Pace:
    return Pace(iter(sorted(outages)), None)


@pytest.mark.parametrize(
    ("outages", "lasts_s"),
    [
        ([], 4.0),
        ([slow(0, 100, 2)], 8.0),
        ([slow(0, 1, 2)], 4.5),
        ([slow(1, 3, 4)], 5.5),
        ([slow(0, 100, 2), slow(0, 100, 3)], 24.0),
        ([pause(1, 3)], 6.0),
        ([pause(4, 9)], 4.0),
        ([pause(1, 3), pause(3, 4)], 7.0),
        ([stop(1, 3)], 7.0),
        ([stop(1, 3), stop(5, 6)], 10.0),
        ([pause(1, 4), stop(2, 3)], 8.0),
        ([slow(2, 4, 2), pause(3, 5)], 6.5),
        ([stop(1, 3), slow(1, 9, 2)], 10.0),
    ],
)
def test_a_task_of_four_seconds_lasts_as_long_as_its_outages_make_it(outages, lasts_s):
    assert pace_of(*outages).lasting_s(0.0, 4.0) == lasts_s


edges = st.integers(0, 60)
spans = st.tuples(edges, st.integers(1, 9))
slow_times = st.lists(st.tuples(spans, st.sampled_from([1.5, 2.0, 7.0])), max_size=6)
pauses = st.lists(spans, max_size=6)


@given(slow_times, pauses, st.integers(0, 30), st.floats(0.01, 30.0))
def test_work_done_over_all_intervals_is_the_seconds_of_the_task(slow_times, pauses, now, seconds):
    """Summed over every whole second and a rest by a plain loop, whatever overlaps."""
    outages = [slow(at, at + long, factor) for (at, long), factor in slow_times]
    outages += [pause(at, at + long) for at, long in pauses]
    pace = pace_of(*outages)
    start_s = pace.up_at_s(float(now))
    assert not any(one.slowness == DOWN and one.start_s <= start_s < one.end_s for one in outages)
    end_s = start_s + pace.lasting_s(start_s, seconds)
    done_s = 0.0
    for second in range(int(start_s), math.ceil(end_s)):
        rates = [1 / one.slowness for one in outages if one.start_s <= second < one.end_s]
        done_s += (min(end_s, second + 1) - second) * math.prod(rates)
    assert done_s == pytest.approx(seconds, rel=1e-9)


@given(pauses, st.lists(st.floats(0.01, 3.0), min_size=1, max_size=20))
def test_tasks_one_after_the_other_take_what_they_take_when_each_is_asked_afresh(pauses, tasks):
    outages = [stop(at, at + long) for at, long in pauses]
    going, now_s = pace_of(*outages), 0.0
    for seconds in tasks:
        fresh = pace_of(*outages)
        now_s = going.up_at_s(now_s)
        assert now_s == fresh.up_at_s(now_s)
        lasts_s = going.lasting_s(now_s, seconds)
        assert lasts_s == fresh.lasting_s(now_s, seconds)
        now_s += lasts_s


@pytest.mark.parametrize("cv", [0.1, 0.4, 1.5])
def test_jitter_has_mean_one_and_the_coefficient_of_variation_asked_for(cv):
    """100,000 draws: the standard error of the mean is cv / 316; of the lognormal's cv, larger."""
    draws = np.fromiter(islice(lognormal(stream(3, "jitter", 0), cv), 100_000), float)
    assert draws.min() > 0
    assert draws.mean() == pytest.approx(1.0, abs=4 * cv / math.sqrt(len(draws)))
    logs = np.log(draws)
    assert math.sqrt(math.expm1(logs.var())) == pytest.approx(cv, rel=0.02)
    assert draws.std() / draws.mean() == pytest.approx(cv, rel=0.1)


def test_outages_by_chance_have_the_means_asked_for_and_never_overlap():
    failures = Failures(mean_time_between_s=3.0, mean_time_to_repair_s=0.5)
    outages = [one for _w, one in outages_until(cluster(1, failures=failures), 0, 30_000.0)]
    up_s = np.array([b.start_s - a.end_s for a, b in pairwise(outages)])
    down_s = np.array([one.end_s - one.start_s for one in outages])
    assert (up_s >= 0).all()
    for times_s, mean_s in ((up_s, 3.0), (down_s, 0.5)):
        assert times_s.mean() == pytest.approx(mean_s, rel=4 / math.sqrt(len(times_s)))
        assert times_s.std() == pytest.approx(mean_s, rel=0.1)


def cluster(workers: int, jitter_cv: float = 0.0, **varies: Any) -> Cluster:
    devices = (Device(name="test", flop_per_s=1.0, jitter_cv=jitter_cv),) * workers
    return Cluster(name="test", devices=devices, **varies)


def test_a_worker_more_leaves_the_outages_of_the_others_as_they_are():
    failures = Failures(mean_time_between_s=1.0, mean_time_to_repair_s=1.0)
    few, many = (outages_until(cluster(n, failures=failures), 7, 50.0) for n in (3, 4))
    assert few == [(worker, one) for worker, one in many if worker < 3]
    assert len({one.start_s for _worker, one in many}) == len(many)


def test_a_device_that_does_nothing_but_fail_ends_the_run(monkeypatch):
    """Of a million, which take seconds to draw, two thousand here."""
    monkeypatch.setattr("ampsim.machine.pace.OUTAGES_MAX", 2_000)
    failures = Failures(mean_time_between_s=1e-9, mean_time_to_repair_s=1e-9)
    failing = Pace(outages_of(cluster(1, failures=failures), 0, 0), None)
    with pytest.raises(SimulationError, match=r"^worker 0 fails more than 2,000 times .* longer"):
        failing.lasting_s(failing.up_at_s(0.0), 1.0)


class Chores:
    """Tasks by name, as in test_processor.py; `log` has each with its start and end."""

    def __init__(self) -> None:
        self.queues: dict[str, deque[Any]] = {"usual": deque()}
        self.free: deque[str] = deque()
        self.log: list[tuple[str, float, float]] = []
        self.clock = SimClock()
        self.processor = Processor(0, self.clock, Instant(self.clock))

    def put(self, name: str, seconds: float) -> None:
        self.queues["usual"].append((name, seconds))
        self.processor.wake()

    def begin(self, kind: Any, queue: deque[Any]) -> Begun:
        name, seconds = queue.popleft()
        return seconds, (name, self.clock.now)

    def end(self, task: Begun) -> None:
        name, start_s = task[1]
        self.log.append((name, start_s, self.clock.now))

    @property
    def has_free(self) -> bool:
        return bool(self.free)

    def do_free(self, now_s: float) -> None:
        while self.free:
            self.log.append((self.free.popleft(), now_s, now_s))

    def put_free(self, name: str) -> None:
        self.free.append(name)
        self.processor.instant.add(self.processor)
        self.processor.instant.settle()

    def run(self, **varies: Any) -> list[tuple[str, float, float]]:
        tasks = paced(self, self.processor, self.clock, cluster(1, **varies), seed=0)
        self.clock.start(self.processor.work(tasks), "worker-0")
        self.clock.run()
        return self.log


def event(kind: Any, from_s: float, until_s: float, **more: Any) -> dict[str, Any]:
    return {"events": (Event(kind=kind, worker=0, from_s=from_s, until_s=until_s, **more),)}


@pytest.mark.parametrize(
    ("varies", "expected"),
    [
        (event("slow", 0.0, 9.0, factor=2.0), [("a", 0, 4), ("b", 4, 8)]),
        (event("pause", 1.0, 2.5), [("a", 0, 3.5), ("b", 3.5, 5.5)]),
        (event("pause", 2.0, 3.0), [("a", 0, 2), ("b", 3, 5)]),
        (event("pause", 0.0, 3.0), [("a", 3, 5), ("b", 5, 7)]),
        (event("stop", 1.0, 2.5), [("a", 0, 4.5), ("b", 4.5, 6.5)]),
        (event("stop", 1.0, 2.5, loses_step=False), [("a", 0, 3.5), ("b", 3.5, 5.5)]),
    ],
)
def test_tasks_begin_when_the_device_is_up_and_wait_in_their_queue_until_then(varies, expected):
    chores = Chores()
    chores.put("a", 2.0)
    chores.put("b", 2.0)
    log = chores.run(**varies)
    assert [name for name, *_times in log] == [name for name, *_times in expected]
    times_s = [times for _name, *times in log]
    np.testing.assert_allclose(times_s, [times for _name, *times in expected], rtol=1e-15)


def test_free_tasks_that_come_while_the_device_is_down_are_done_when_it_is_up():
    chores = Chores()
    chores.clock.call_later(1.5, lambda: chores.put_free("free"))
    chores.clock.call_later(1.7, lambda: chores.put_free("too"))
    chores.clock.call_later(1.8, lambda: chores.put("late", 1.0))
    log = chores.run(**event("pause", 1.0, 2.0))
    assert log == [("free", 2.0, 2.0), ("too", 2.0, 2.0), ("late", 2.0, 3.0)]


def test_where_nothing_varies_tasks_are_not_wrapped():
    chores = Chores()
    others = (Event(kind="pause", worker=1, from_s=0.0, until_s=1.0),)
    varying: tuple[dict[str, Any], ...] = ({}, {"events": others})
    for varies in varying:
        made = paced(chores, chores.processor, chores.clock, cluster(2, **varies), seed=0)
        assert made is chores
    made = paced(chores, chores.processor, chores.clock, cluster(2, 0.1), seed=0)
    assert isinstance(made, Paced)
