"""A processor on tasks of its own: what occupies it, what is done at once, and in which order."""

from __future__ import annotations

from collections import deque
from itertools import permutations
from typing import Any

import pytest

from ampsim.clock import SimClock
from ampsim.machine import Begun, Instant, Processor


class Chores:
    """Tasks of two kinds: (name, seconds, what to do at its end). Without seconds they are free."""

    def __init__(self, processor: Processor, clock: SimClock) -> None:
        self.processor, self.clock = processor, clock
        self.queues: dict[Any, deque[Any]] = {"urgent": deque(), "usual": deque()}
        self.free: deque[tuple[str, Any]] = deque()
        self.log: list[tuple[str, float, float]] = []

    def put(self, kind: str, name: str, seconds: float, then: Any = None) -> None:
        self.queues[kind].append((name, seconds, then))
        self.processor.wake()

    def put_free(self, name: str, then: Any = None) -> None:
        self.free.append((name, then))
        self.processor.instant.add(self.processor)

    def begin(self, kind: Any, queue: deque[Any]) -> Begun:
        name, seconds, then = queue.popleft()
        return seconds, None if name == "pause" else (name, self.clock.now, then)

    def end(self, task: Begun) -> None:
        if task[1] is not None:
            name, start_s, then = task[1]
            self.log.append((name, start_s, self.clock.now))
            if then is not None:
                then()

    @property
    def has_free(self) -> bool:
        return bool(self.free)

    def do_free(self, now_s: float) -> None:
        while self.free:
            name, then = self.free.popleft()
            self.log.append((name, now_s, now_s))
            if then is not None:
                then()


@pytest.fixture
def make_chores():
    """`make_chores(count)`: processors that share an instant, each with its chores."""

    def make(count: int = 1) -> tuple[SimClock, Instant, list[Chores]]:
        clock = SimClock()
        instant = Instant(clock)
        made = [Chores(Processor(index, clock, instant), clock) for index in range(count)]
        for one in made:
            clock.start(one.processor.work(one), f"worker-{one.processor.index}")
        clock.run()
        return clock, instant, made

    return make


def test_tasks_are_done_one_at_a_time_the_most_urgent_kind_first(make_chores):
    clock, _instant, (chores,) = make_chores()
    for name in ("a", "b"):
        chores.put("usual", name, 2.0)
    chores.put("urgent", "c", 1.0)
    clock.run()
    assert chores.log == [("c", 0.0, 1.0), ("a", 1.0, 3.0), ("b", 3.0, 5.0)]


def test_what_comes_while_a_task_runs_waits_for_its_end(make_chores):
    clock, _instant, (chores,) = make_chores()
    chores.put("usual", "long", 4.0)
    clock.call_later(1.0, lambda: chores.put("usual", "late", 1.0))
    clock.call_later(2.0, lambda: chores.put("urgent", "later but urgent", 1.0))
    clock.run()
    assert [(name, start_s) for name, start_s, _end_s in chores.log] == [
        ("long", 0.0), ("later but urgent", 4.0), ("late", 5.0)
    ]  # fmt: skip


def test_free_tasks_are_done_at_once_when_idle_and_after_the_task_when_busy(make_chores):
    clock, instant, (idle, busy) = make_chores(2)
    busy.put("usual", "long", 3.0)

    def come() -> None:
        idle.put_free("free")
        busy.put_free("free too")
        instant.settle()

    clock.call_later(1.0, come)
    clock.run()
    assert idle.log == [("free", 1.0, 1.0)]
    assert busy.log == [("long", 0.0, 3.0), ("free too", 3.0, 3.0)]


def test_all_free_tasks_of_an_instant_come_before_new_work(make_chores):
    """Two steps end at once; what the second brings for free is there when the first goes on."""
    clock, instant, (one, other) = make_chores(2)
    one.put("usual", "first", 1.0)
    one.put("usual", "next", 1.0)
    other.put("usual", "second", 1.0, then=lambda: one.put("urgent", "brought", 1.0))
    clock.run()
    assert [name for name, *_times in one.log] == ["first", "brought", "next"]
    assert not instant.waiting


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_what_began_earlier_is_first_come_where_free_steps_of_others_send_on_at_one_instant(
    make_chores, order
):
    """Three services that begin in turn end at once; each leads to a free task of another worker.

    What these send to one worker, of one kind, is served in the order of the beginnings, whatever
    the workers' numbers are (docs/decisions/0004-instants.md).
    """
    clock, instant, made = make_chores(7)
    serving, freeing, target = made[:3], made[3:6], made[6]

    def lead(place: int) -> None:
        freeing[order[place]].put_free(
            f"free {place}", lambda: target.put("usual", f"from {place}", 1.0)
        )
        instant.settle()

    for place, worker in enumerate(order):
        begin_s = place / 4

        def begin(place: int = place, worker: int = worker, seconds: float = 2 - begin_s) -> None:
            serving[worker].put("usual", "service", seconds, then=lambda: lead(place))

        clock.call_later(begin_s, begin)
    clock.run()
    assert [(name, start_s) for name, start_s, _end_s in target.log] == [
        ("from 0", 2.0), ("from 1", 3.0), ("from 2", 4.0)
    ]  # fmt: skip


def test_a_processor_that_only_waits_is_not_occupied(make_chores):
    clock, instant, (chores,) = make_chores()
    chores.put("usual", "pause", 5.0)

    def come() -> None:
        assert not chores.processor.is_busy
        chores.put_free("free")
        instant.settle()

    clock.call_later(2.0, come)
    clock.run()
    assert chores.log == [("free", 2.0, 2.0)]
    assert clock.now == 5.0
