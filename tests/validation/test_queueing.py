"""Processors against queueing theory: M/M/1, M/D/1, M/G/1, M/M/k, a closed tandem, Little's law.

A mean waiting time is compared in two steps, because at a high load it takes tens of millions of
customers to know one within 1 %, and a processor serves 100,000 a second. First, processors and a
recursion that shares no code with them (Lindley, 1952; Kiefer and Wolfowitz, 1955) give every
customer of a run the same waiting time. Second, the recursion's mean over the long run is that of
theory; its standard error, of means of runs, is what the tolerance rests on.

Source: Kleinrock, "Queueing Systems", volume 1, 1975: chapters 3 (M/M/1, Erlang C) and 5
(Pollaczek-Khinchine); Reiser and Lavenberg, 1980 (exact mean-value analysis); Little, 1961.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from ampsim.clock import SimClock
from ampsim.machine import Begun, Instant, Processor

pytestmark = pytest.mark.slow  # 5 to 15 s each: long runs

Draw = Callable[[np.random.Generator, int], np.ndarray]

SERVED = 5_000
"""Customers that processors serve, one by one."""


def exponential(random: np.random.Generator, count: int) -> np.ndarray:
    return random.exponential(1.0, count)


def constant(_random: np.random.Generator, count: int) -> np.ndarray:
    return np.ones(count)


def two_kinds(random: np.random.Generator, count: int) -> np.ndarray:
    """Many short ones and a few long ones: mean 1, second moment 4.1 (computed below)."""
    return np.where(random.random(count) < 0.1, 5.5, 0.5)


SERVICES: dict[str, tuple[Draw, float]] = {
    "M/M/1": (exponential, 2.0),
    "M/D/1": (constant, 1.0),
    "M/G/1": (two_kinds, 0.1 * 5.5**2 + 0.9 * 0.5**2),
}
"""Draws of service times of mean 1, and their second moments."""


class Counter:
    """Processors that serve customers from one queue, first come first served."""

    def __init__(self, clock: SimClock, count: int) -> None:
        self.clock = clock
        self.queue: deque[tuple[float, float, Callable[[], None] | None]] = deque()
        self.waits_s: list[float] = []
        self.times_s: list[float] = []
        self.inside, self.area, self.changed_s = 0, 0.0, 0.0
        instant = Instant(clock)
        self.processors = [Processor(index, clock, instant) for index in range(count)]
        for one in self.processors:
            clock.start(one.work(self), f"processor-{one.index}")
        self.queues = {"customers": self.queue}

    def arrive(self, seconds: float, then: Callable[[], None] | None = None) -> None:
        """A customer comes now; `then` is called when served."""
        self._change(+1)
        self.queue.append((self.clock.now, seconds, then))
        idle = next((one for one in self.processors if one.is_idle), None)
        if idle is not None:
            idle.wake()

    def begin(self, kind: Any, queue: deque[Any]) -> Begun:
        came_s, seconds, then = queue.popleft()
        self.waits_s.append(self.clock.now - came_s)
        return seconds, (came_s, then)

    def end(self, task: Begun) -> None:
        came_s, then = task[1]
        self.times_s.append(self.clock.now - came_s)
        self._change(-1)
        if then is not None:
            then()

    @property
    def has_free(self) -> bool:
        return False

    def do_free(self, now_s: float) -> None:
        """There are no free tasks."""

    def _change(self, by: int) -> None:
        now_s = self.clock.now
        self.area += self.inside * (now_s - self.changed_s)
        self.inside, self.changed_s = self.inside + by, now_s


def served_by_processors(gaps_s: np.ndarray, services_s: np.ndarray, servers: int = 1) -> Counter:
    """Processors serve customers that come after such gaps, for so long."""
    clock = SimClock()
    counter = Counter(clock, servers)
    coming = iter(zip(gaps_s.tolist(), services_s.tolist(), strict=True))

    def next_one() -> None:
        for gap_s, seconds in coming:
            clock.call_later(gap_s, lambda seconds=seconds: come(seconds))
            return

    def come(seconds: float) -> None:
        counter.arrive(seconds)
        next_one()

    next_one()
    clock.run()
    return counter


def lindley(gaps_s: np.ndarray, services_s: np.ndarray, first_s: float) -> np.ndarray:
    """Waiting times of all customers but the first, who waits `first_s`; no gap before it counts.

    W(n + 1) = max(0, W(n) + S(n) - T(n + 1)), summed up at once.
    """
    walk_s = first_s + np.cumsum(services_s[:-1] - gaps_s[1:])
    return walk_s - np.minimum.accumulate(np.minimum(walk_s, 0.0))


STEPS = {0.5: 5_000, 0.7: 7_500, 0.9: 25_000, 0.95: 25_000}
"""By load: customers of each run that count; waits hang together for longer at a high load."""

RUNS = 2_000


@cache
def long_run() -> dict[tuple[str, float], np.ndarray]:
    """Mean waiting time in each of so many runs side by side, after a start of 6 relaxation times.

    Queues and loads have the same customers, drawn once: gaps of mean 1 are scaled by the load.
    """
    random = np.random.default_rng(75)
    starts = {load: round(6 * load / (1 - math.sqrt(load)) ** 2) for load in STEPS}
    waits_s, totals_s = (
        {(queue, load): np.zeros(RUNS) for queue in SERVICES for load in STEPS} for _ in range(2)
    )
    for step in range(max(starts[load] + STEPS[load] for load in STEPS)):
        gaps_s = random.exponential(1.0, RUNS)
        services_s = {queue: draw(random, RUNS) for queue, (draw, _) in SERVICES.items()}
        for load, start in starts.items():
            if step >= start + STEPS[load]:
                continue
            scaled_s = gaps_s / load
            for queue in SERVICES:
                wait_s = waits_s[queue, load]
                if step >= start:
                    totals_s[queue, load] += wait_s
                wait_s += services_s[queue]
                wait_s -= scaled_s
                np.maximum(wait_s, 0.0, out=wait_s)
    return {(queue, load): total_s / STEPS[load] for (queue, load), total_s in totals_s.items()}


@pytest.mark.parametrize("load", STEPS)
@pytest.mark.parametrize("queue", SERVICES)
def test_waiting_times_of_one_processor_are_those_of_pollaczek_and_khinchine(queue, load):
    """Wq = load m2 / 2 (1 - load). The worst standard error is 0.3 % up to 0.9, 0.8 % at 0.95.

    At 0.95, 600 million customers of the same recursion (`tests/benchmark/bench_queueing.py`) have
    0.9979 (M/M/1), 0.9987 (M/D/1) and 1.0017 (M/G/1) times the mean of theory, with standard errors
    of 0.0017, 0.0011 and 0.0021: within 1 %.
    """
    service, second_moment = SERVICES[queue]
    random = np.random.default_rng([75, round(100 * load)])
    gaps_s, services_s = random.exponential(1 / load, SERVED), service(random, SERVED)
    counter = served_by_processors(gaps_s, services_s)
    waits_s = np.array(counter.waits_s)
    np.testing.assert_allclose(waits_s[1:], lindley(gaps_s, services_s, 0.0), atol=1e-7)

    expected_s = load * second_moment / (2 * (1 - load))
    means_s = long_run()[queue, load]
    error = means_s.std(ddof=1) / math.sqrt(len(means_s)) / expected_s
    assert error < (0.004 if load <= 0.9 else 0.01)
    within = 0.01 if load <= 0.9 else 3 * error
    assert means_s.mean() == pytest.approx(expected_s, rel=within)


def by_heap(gaps_s: np.ndarray, services_s: np.ndarray, servers: int) -> list[float]:
    """Waiting times where each customer takes the server that is free first."""
    free_s, now_s, waits_s = [0.0] * servers, 0.0, []
    for gap_s, seconds in zip(gaps_s.tolist(), services_s.tolist(), strict=True):
        now_s += gap_s
        start_s = max(now_s, free_s[0])
        waits_s.append(start_s - now_s)
        heapq.heapreplace(free_s, start_s + seconds)
    return waits_s


def erlang_c(servers: int, load: float) -> float:
    """Probability that a customer waits, by the recursion of Erlang's B formula."""
    offered, blocked = servers * load, 1.0
    for one in range(1, servers + 1):
        blocked = offered * blocked / (one + offered * blocked)
    return blocked / (1 - load * (1 - blocked))


def long_run_of_several(servers: int, load: float) -> np.ndarray:
    """Mean waiting time in each of 20,000 runs side by side, after a start of 6 relaxation times.

    Kiefer and Wolfowitz: the sorted work before each server, less the gap to the next customer. The
    customer's server takes its place among the others, which stay sorted.
    """
    random, runs = np.random.default_rng([55, servers, round(100 * load)]), 20_000
    relaxation = load / (1 - math.sqrt(load)) ** 2
    work_s, total_s = np.zeros((servers, runs)), np.zeros(runs)
    start, steps = round(6 * relaxation), max(600, round(6 * relaxation))
    for step in range(start + steps):
        if step >= start:
            total_s += work_s[0]
        moved_s = work_s[0] + random.exponential(1.0, runs)
        for place in range(1, servers):
            np.minimum(moved_s, work_s[place], out=work_s[place - 1])
            np.maximum(moved_s, work_s[place], out=moved_s)
        work_s[-1] = moved_s
        work_s -= random.exponential(1 / (servers * load), runs)
        np.maximum(work_s, 0.0, out=work_s)
    return total_s / steps


@pytest.mark.parametrize(("servers", "load"), [(2, 0.5), (4, 0.7), (4, 0.9)])
def test_waiting_times_of_several_processors_at_one_queue_are_those_of_erlang(servers, load):
    """Wq = C / (k - offered load). The worst standard error is 0.3 %.

    At 0.95, `tests/benchmark/bench_queueing.py` has 1.0038 (2 servers) and 1.0000 (4) times the
    mean of theory, with standard errors of 0.0030 and 0.0031.
    """
    random = np.random.default_rng([17, servers])
    gaps_s = random.exponential(1 / (servers * load), SERVED)
    services_s = exponential(random, SERVED)
    counter = served_by_processors(gaps_s, services_s, servers)
    np.testing.assert_allclose(counter.waits_s, by_heap(gaps_s, services_s, servers), atol=1e-7)

    expected_s = erlang_c(servers, load) / (servers * (1 - load))
    means_s = long_run_of_several(servers, load)
    assert means_s.std(ddof=1) / math.sqrt(len(means_s)) < 0.004 * expected_s
    assert means_s.mean() == pytest.approx(expected_s, rel=0.01)


def mean_values(services_s: list[float], customers: int) -> tuple[float, list[float]]:
    """Throughput and mean numbers at each station of a closed tandem, by exact recursion."""
    at, throughput = [0.0] * len(services_s), 0.0
    for number in range(1, customers + 1):
        times_s = [s * (1 + inside) for s, inside in zip(services_s, at, strict=True)]
        throughput = number / sum(times_s)
        at = [throughput * one for one in times_s]
    return throughput, at


def go_round(times_s: np.ndarray, customers: int) -> np.ndarray:
    """When each round ends at each station: (runs, rounds, stations), as `times_s` are.

    None overtakes: a station begins with who has left the one before, when its last has left.
    """
    ends_s = np.zeros_like(times_s)
    for number in range(times_s.shape[1]):
        before_s = ends_s[:, number - customers, -1] if number >= customers else 0.0
        for place in range(times_s.shape[2]):
            free_s = ends_s[:, number - 1, place] if number else 0.0
            before_s = np.maximum(before_s, free_s) + times_s[:, number, place]
            ends_s[:, number, place] = before_s
    return ends_s


@pytest.mark.parametrize("customers", [1, 3, 8])
def test_a_closed_tandem_of_processors_is_that_of_mean_value_analysis(customers):
    """Each customer's times are those of a recursion, whose means over 1,000 runs are of theory.

    The standard error of a throughput is at most 0.2 %.
    """
    services_s, rounds = [1.0, 0.6, 1.4], 3_000
    random = np.random.default_rng(80 + customers)
    clock = SimClock()
    stations = [Counter(clock, 1) for _ in services_s]
    drawn_s = random.exponential(services_s, (1, rounds, len(services_s)))
    draws = [iter(drawn_s[0, :, place].tolist()) for place in range(len(services_s))]

    def go_on(place: int) -> None:
        seconds = next(draws[place], None)
        if seconds is not None:
            stations[place].arrive(seconds, lambda: go_on((place + 1) % len(stations)))

    for _ in range(customers):
        go_on(0)
    clock.run()
    (ends_s,) = go_round(drawn_s, customers)
    assert clock.now == pytest.approx(ends_s.max(), rel=1e-9)
    for place, station in enumerate(stations):
        began = np.concatenate([np.zeros(customers), ends_s[:-customers, -1]])
        came_s = ends_s[:, place - 1] if place else began
        np.testing.assert_allclose(station.times_s, ends_s[:, place] - came_s, atol=1e-7)
        assert station.area == pytest.approx(sum(station.times_s), rel=1e-9)

    throughput, numbers = mean_values(services_s, customers)
    start, end = 20 * customers, 80 * customers
    ends_s = go_round(random.exponential(services_s, (1_000, end, len(services_s))), customers)
    lasting_s = ends_s[:, end - 1, -1] - ends_s[:, start - 1, -1]
    assert (end - start) / lasting_s.mean() == pytest.approx(throughput, rel=0.01)
    came_s = np.roll(ends_s, customers, axis=1)[:, :, -1:]
    inside_s = np.diff(np.concatenate([came_s, ends_s], axis=2))[:, start:end].mean(axis=(0, 1))
    for number, expected in zip(throughput * inside_s, numbers, strict=True):
        assert number == pytest.approx(expected, rel=0.03)


def test_littles_law_holds_to_rounding_on_every_run_that_ends_empty():
    random = np.random.default_rng(61)
    for servers, load in ((1, 0.6), (1, 0.95), (3, 0.8)):
        gaps_s = random.exponential(1 / (servers * load), SERVED)
        counter = served_by_processors(gaps_s, exponential(random, SERVED), servers)
        assert counter.inside == 0
        number = counter.area / counter.clock.now
        rate_per_s = len(counter.times_s) / counter.clock.now
        assert number == pytest.approx(rate_per_s * np.mean(counter.times_s), rel=1e-9)
