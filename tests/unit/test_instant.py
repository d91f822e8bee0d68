"""Free tasks of an instant, in the order of decision 4."""

from __future__ import annotations

from typing import Any

import pytest

from ampsim.clock import SimClock
from ampsim.machine import Instant, Processor


class FreeTasks:
    """Writes down who did its free tasks, which lead to those of others."""

    def __init__(self, processor: Processor, done: list[int], leads_to: list[Processor]) -> None:
        self._processor, self._done, self._leads_to = processor, done, leads_to

    def do_free(self, _now_s: float) -> None:
        self._done.append(self._processor.index)
        for other in self._leads_to:
            self._processor.instant.add(other)
        self._processor.instant.settle()  # as an arrival does: those that wait are not overtaken


@pytest.fixture
def processors() -> list[Processor]:
    clock = SimClock()
    instant = Instant(clock)
    return [Processor(index, clock, instant) for index in range(4)]


def settled(
    processors: list[Processor], first: list[int], leads: dict[int, list[int]]
) -> list[int]:
    """Who did its free tasks, in their order."""
    done: list[int] = []
    for one in processors:
        tasks: Any = FreeTasks(one, done, [processors[led] for led in leads.get(one.index, [])])
        one.tasks = tasks
    for index in first:
        processors[index].instant.add(processors[index])
    processors[0].instant.settle()
    return done


@pytest.mark.parametrize("first", [[0, 1, 2], [2, 0, 1], [1, 2, 0]])
def test_workers_do_their_free_tasks_in_the_order_in_which_they_got_their_first(processors, first):
    assert settled(processors, first, {}) == first


def test_what_free_tasks_lead_to_comes_after_those_that_wait(processors):
    assert settled(processors, [3, 0], {3: [2, 1]}) == [3, 0, 2, 1]


def test_a_worker_that_got_several_does_them_at_once_and_a_busy_one_later(processors):
    processors[2].is_busy = True
    assert settled(processors, [1, 2, 1, 0], {1: [2]}) == [1, 0]
