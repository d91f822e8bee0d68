"""Pace: how long a task really occupies a device whose time varies, and the outages of a worker.

Outages come in the order of their starts: those that are set, and those by chance, which are drawn
when somebody looks that far ahead, from a stream of the worker's own.

A worker of such a device has its tasks wrapped when a run is wired; any other has them as they are,
so that nothing is asked per message. `docs/decisions/0012-time-that-varies.md` has the reasons.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count, islice, takewhile
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np

from ampsim.clock import Clock
from ampsim.errors import SimulationError
from ampsim.hardware import HOST, Cluster, Failures
from ampsim.machine.processor import Begun, Processor, Tasks
from ampsim.rng import stream

_TICK_S: Final = 1e-18
_DRAWS: Final = 1024  # chosen: one call of NumPy for so many costs little more than for one

OUTAGES_MAX: Final = 1_000_000
"""Most outages by chance of one worker; chosen: it ends runs of which nearly all is outages."""


class Outage(NamedTuple):
    """A time in which a device is not as usual.

    Attributes:
        start_s: when it begins.
        end_s: when it is over.
        kind: "slow", "pause" or "stop".
        slowness: how many times as long as usual a step takes; infinite where the device is down.
        is_step_lost: whether a step in the middle is done again from its start.
        loses_weights: whether the device comes back with the weights of its last checkpoint.
    """

    start_s: float
    end_s: float
    kind: str
    slowness: float
    is_step_lost: bool
    loses_weights: bool = False


def outages_of(cluster: Cluster, worker: int, seed: int) -> Iterator[Outage]:
    """Every outage of a worker, by its start; without end where they come by chance.

    Raises:
        SimulationError: more came by chance than a run can have.
    """
    events = [
        Outage(one.from_s, one.until_s, one.kind, one.slowness, one.is_step_lost, one.loses_weights)
        for one in cluster.events
        if one.hits(worker)
    ]
    failures = cluster.failures
    if failures is None or not failures.hits(worker):
        return iter(sorted(events))
    return heapq.merge(sorted(events), _drawn(failures, worker, seed))


def outages_until(cluster: Cluster, seed: int, end_s: float) -> list[tuple[int, Outage]]:
    """The outages of all workers that begin before `end_s`, worker by worker, a million of each."""
    found: list[tuple[int, Outage]] = []
    for worker in range(cluster.workers) if cluster.events or cluster.failures else ():
        coming = islice(outages_of(cluster, worker, seed), OUTAGES_MAX)
        found += [(worker, one) for one in takewhile(lambda one: one.start_s < end_s, coming)]
    return found


def has_outages(cluster: Cluster, worker: int) -> bool:
    """Tell whether a worker has any."""
    given: Sequence[object] = [one for one in cluster.events if one.hits(worker)]
    return bool(given) or (cluster.failures is not None and cluster.failures.hits(worker))


def loses_weights(cluster: Cluster, worker: int) -> bool:
    """Tell whether some outage of a worker takes its weights back to those of a checkpoint."""
    return any(
        one.loses_weights and one.hits(worker)
        for one in (*cluster.events, cluster.failures)
        if one is not None
    )


def _drawn(failures: Failures, worker: int, seed: int) -> Iterator[Outage]:
    random, end_s = stream(seed, "failures", worker), 0.0
    what = failures.kind, failures.slowness, failures.is_step_lost, failures.loses_weights
    for _ in range(OUTAGES_MAX):
        start_s = end_s + float(random.exponential(failures.mean_time_between_s))
        end_s = start_s + float(random.exponential(failures.mean_time_to_repair_s))
        yield Outage(start_s, end_s, *what)
    raise SimulationError(
        f"worker {worker} fails more than {OUTAGES_MAX:,} times until {end_s:.9g} s, as "
        f"mean_time_between_s is {failures.mean_time_between_s:g}; try a longer one"
    )


def paced(
    tasks: Tasks,
    processor: Processor,
    clock: Clock,
    cluster: Cluster,
    *,
    seed: int,
    computes: bool = True,
    is_beside: bool = False,
) -> Tasks:
    """The tasks of a processor at the pace of its device; they themselves where nothing varies.

    All lanes of a device are slow or down together. Jitter is that of what computes, and of the
    host, which is never slow or down. `is_beside` says whether what takes no time is done beside a
    task that is under way.
    """
    worker = processor.index
    device = cluster.host if worker == HOST else cluster.devices[worker]
    cv = device.jitter_cv if computes and device is not None else 0.0
    varies = worker != HOST and has_outages(cluster, worker)
    if not cv and not varies:
        return tasks
    jitter = lognormal(stream(seed, "jitter", worker), cv) if cv else None
    outages = outages_of(cluster, worker, seed) if varies else iter(())
    return Paced(tasks, Pace(outages, jitter), processor, clock, is_beside=is_beside)


def lognormal(random: np.random.Generator, cv: float) -> Iterator[float]:
    """Draws of mean 1 and this coefficient of variation, without end.

    Source: of a lognormal variable exp(m + s z), the mean is exp(m + s²/2) and the squared
    coefficient of variation exp(s²) - 1.
    """
    variance = math.log1p(cv * cv)
    while True:
        yield from random.lognormal(-variance / 2, math.sqrt(variance), _DRAWS).tolist()


def has_come(at_s: float, now_s: float) -> bool:
    """Tell if a time has come; a clock counts ticks, so what is nearer than rounding is now."""
    return at_s - now_s <= _TICK_S + 4 * math.ulp(at_s)


_T = TypeVar("_T")


class Ahead(Iterator[_T]):
    """An iterator at whose next items one can look without taking them."""

    __slots__ = ("_seen", "_source")

    def __init__(self, source: Iterator[_T]) -> None:
        self._source = source
        self._seen: deque[_T] = deque()

    def __next__(self) -> _T:
        return self._seen.popleft() if self._seen else next(self._source)

    def look(self) -> Iterator[_T]:
        """The items to come, from the next one on; nothing is to be taken meanwhile."""
        for place in count():
            if place == len(self._seen):
                try:
                    self._seen.append(next(self._source))
                except StopIteration:
                    return
            yield self._seen[place]


class Pace:
    """When a device is up, and how long a task takes that begins then.

    It is asked of times that never fall, but may have looked beyond a task that was cut short.

    Args:
        outages: when the device is not as usual, by their starts.
        jitter: factors of mean 1, one for each task; None where a task takes what it is priced.
        known: outages that were met and are not over.
        up_s: when the device can begin a task at the earliest.

    Attributes:
        losses: when outages began that take weights, of those that it has met; for whoever asks,
            who empties it.
    """

    __slots__ = ("_coming", "_jitter", "_known", "_next", "_passed", "_up_s", "losses")

    def __init__(
        self,
        outages: Iterator[Outage],
        jitter: Iterator[float] | None,
        *,
        known: Iterable[Outage] = (),
        up_s: float = 0.0,
    ) -> None:
        self._coming = outages
        self._jitter = jitter
        self._known, self._passed = list(known), list[Outage]()
        self._next = next(outages, None)
        self._up_s = up_s
        self.losses: list[float] = []

    def up_at_s(self, now_s: float) -> float:
        """When the device can begin a task: now, or when it is up again."""
        if now_s >= self._up_s:
            self._up_s = self._looked_up(now_s)
        return now_s if has_come(self._up_s, now_s) else self._up_s

    def lasting_s(self, now_s: float, seconds: float) -> float:
        """Return the seconds of a task that begins now, when the device is up; they may vary."""
        if self._jitter is not None:
            seconds *= next(self._jitter)
        return self.stretched_s(now_s, seconds)

    def stretched_s(self, now_s: float, seconds: float) -> float:
        """Seconds that a task takes with slow-downs and stops, without jitter.

        An outage that begins as the task ends does not hold it up.
        """
        at_s, left_s = max(now_s, self._up_s), seconds
        while True:
            slowness, until_s, is_lost = self._state(at_s)
            if slowness == math.inf:
                left_s = seconds if is_lost else left_s
            elif has_come(at_s + left_s * slowness, until_s):
                return (at_s - now_s) + left_s * slowness
            else:
                left_s -= (until_s - at_s) / slowness
            at_s = until_s

    def losses_within(self, now_s: float, seconds: float, *, jitters: bool) -> list[float]:
        """When outages would take weights in the middle of a task that begins now.

        Nothing has been asked then: the task's own factor of jitter is still to come. What is to
        come must be of class `Ahead`.

        Args:
            now_s: when the task begins; the device is up.
            seconds: how long it takes as priced.
            jitters: whether it takes a factor of jitter as long.
        """
        assert isinstance(self._coming, Ahead)
        soon = () if self._next is None else (self._next,)
        jitter = None
        if jitters and self._jitter is not None:
            assert isinstance(self._jitter, Ahead)
            jitter = self._jitter.look()
        outages = chain(soon, self._coming.look())
        ahead = Pace(outages, jitter, known=self._known, up_s=self._up_s)
        ahead.lasting_s(now_s, seconds)
        return ahead.losses

    def _looked_up(self, at_s: float) -> float:
        self._known += [one for one in self._passed if one.end_s > at_s]
        self._passed.clear()
        while True:
            slowness, until_s, _is_lost = self._state(at_s)
            if slowness < math.inf:
                return at_s
            at_s = until_s

    def _state(self, at_s: float) -> tuple[float, float, bool]:
        """Return from a time on: the factor on all times, until when, and if a step is lost."""
        if self._known:
            self._passed += [one for one in self._known if one.end_s <= at_s]
            self._known = [one for one in self._known if one.end_s > at_s]
        while self._next is not None and self._next.start_s <= at_s:
            if self._next.end_s > at_s:
                self._known.append(self._next)
            if self._next.loses_weights:
                self.losses.append(self._next.start_s)
            self._next = next(self._coming, None)
        until_s = math.inf if self._next is None else self._next.start_s
        slowness, is_lost = 1.0, False
        for one in self._known:
            if one.start_s > at_s:
                until_s = min(until_s, one.start_s)
                continue
            slowness *= one.slowness
            is_lost |= one.is_step_lost
            until_s = min(until_s, one.end_s)
        return slowness, until_s, is_lost


class Pacing(Protocol):
    """The times that `Paced` asks a device for."""

    def up_at_s(self, now_s: float) -> float:
        """When the device can begin a task: now, or later."""
        ...

    def lasting_s(self, now_s: float, seconds: float) -> float:
        """Return how long a task of so many seconds takes that begins now."""
        ...


class Paced:
    """Tasks at the pace of their device: they last as it takes, and wait while it is down."""

    __slots__ = ("_clock", "_is_beside", "_is_waiting", "_pace", "_processor", "_tasks", "queues")

    def __init__(
        self,
        tasks: Tasks,
        pace: Pacing,
        processor: Processor,
        clock: Clock,
        *,
        is_beside: bool = False,
    ) -> None:
        self.queues: dict[Any, deque[Any]] = tasks.queues
        self._tasks = tasks
        self._pace = pace
        self._processor = processor
        self._clock = clock
        self._is_waiting, self._is_beside = False, is_beside

    @property
    def has_free(self) -> bool:
        """Whether a task waits that takes no time."""
        return self._tasks.has_free

    def begin(self, kind: Any, queue: deque[Any]) -> Begun:
        """Take a task, or wait until the device is up and leave it in its queue."""
        now_s = self._clock.now
        up_s = self._pace.up_at_s(now_s)
        if up_s > now_s:
            return up_s - now_s, None
        seconds, what = self._tasks.begin(kind, queue)
        if seconds and what is not None:
            seconds = self._pace.lasting_s(now_s, seconds)
        return seconds, what

    def end(self, task: Begun) -> None:
        """Finish a task; a wait needs no end."""
        if task[1] is not None:
            self._tasks.end(task)

    def do_free(self, now_s: float) -> None:
        """Do what takes no time, now or when the device is up again."""
        if not self._tasks.has_free:
            return
        up_s = self._pace.up_at_s(now_s)
        if up_s == now_s:
            self._tasks.do_free(now_s)
        elif not self._is_waiting:
            self._is_waiting = True
            self._clock.call_later(up_s - now_s, self._resume)

    def _resume(self) -> None:
        """Do what came for free while it was down, after the task of a busy one or beside it."""
        self._is_waiting = False
        instant = self._processor.instant
        if self._is_beside:
            self.do_free(self._clock.now)
        instant.add(self._processor)
        instant.settle()
