"""The path through whoever held the device or link, of which derivatives of a run's time follow.

`ampsim.trace.critical_path` follows messages, and shows a wait for a device as a wait. Were the
device faster, the wait would be shorter: what takes its time is the step before. So this path
follows a message only where nothing held it up; else it goes on with the step that had the device
until then, or the transfer that had the link. Each second of the run then lies in one step, one
transfer or a wait for a set time, and the derivative of its time by the logarithm of a time
constant is the time on the path that is proportional to it, as long as no order changes
(infinitesimal perturbation analysis). Where several paths are equally long, one is taken.

Source: Ho and Cao, "Perturbation analysis of discrete event dynamic systems", 1991, chapter 3.
Under fair shares of bandwidth a transfer's time is taken as proportional to 1 / bandwidth, though
who shares with it may change, too.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from ampsim.trace.bounds import Crossings
from ampsim.trace.critical_path import NOBODY, is_near
from ampsim.trace.kinds import KIND_SCHEMA, START, of_transfer, record_of
from ampsim.trace.recorder import Recorder
from ampsim.trace.table import Columns

Kind: TypeAlias = Literal["step", "latency", "bandwidth", "wait"]


class Holding(NamedTuple):
    """A step, transfer or wait that holds a run up for a while.

    Args:
        kind: a step on a device, a message's latency, its bytes on a link, or a wait for something
            that is neither, such as a set time.
        worker: whose step, or who receives; -1 for the host.
        source_worker: who sends; -2 of what is no transfer.
        step: the kind of the step, as `ampsim.trace.Kinds` has it; () of what is no step.
        size: of the step's seconds as recorded, which tell it from others of its kind; 0 of others.
        messages: how many the step takes from other places, and sends there, if they tell it apart.
    """

    kind: Kind
    worker: int
    source_worker: int
    step: tuple[int, ...]
    size: float
    messages: int = 0


_ROUNDING: Final = 1e-12


def held_path(
    recorder: Recorder,
    until_s: float,
    crossings: Crossings | None = None,
    down_s: np.ndarray | None = None,
    *,
    by_message: bool = False,
    group_wait_s: float = 0.0,
) -> dict[Holding, float]:
    """Seconds of each part of the path, which add up to the time of what ended last.

    Args:
        recorder: a run's, which has kept all of its records.
        until_s: when its last epoch ended; what ends later, such as weights sent on, is left out.
        crossings: what messages cross where they share links; None where each pair has its own.
        down_s: of each span, for how long its device was down meanwhile; None for not at all.
        by_message: whether steps are told apart by their messages, too.
        group_wait_s: for how long a worker waited, once, before it began a smaller group.
    """
    spans, transfers = recorder.columns("spans"), recorder.columns("transfers")
    assert len(spans["end_s"]) == recorder.spans.count, "the path needs all spans of the run"
    if not len(spans["end_s"]):
        return {}
    walk = _Walk(spans, transfers, recorder.columns("admissions"), crossings)
    if down_s is not None:
        of_spans: list[float] = down_s.tolist()
        walk.down_s = dict(enumerate(of_spans))
    if by_message:
        walk.messages = recorder.messages
    walk.group_wait_s = group_wait_s
    return walk.walked(until_s)


class _Walk:
    """A walk from the last step or message of a run's epochs back to time 0."""

    def __init__(
        self, spans: Columns, transfers: Columns, admissions: Columns, crossings: Crossings | None
    ) -> None:
        kinds = (spans[name].tolist() for name in KIND_SCHEMA)
        self._kinds: list[tuple[int, ...]] = list(zip(*kinds, strict=True))
        self._workers: list[int] = spans["worker"].tolist()
        self._starts: list[float] = spans["start_s"].tolist()
        self._ends: list[float] = spans["end_s"].tolist()
        self._causes: list[int] = spans["cause"].tolist()
        times_and_ends = (transfers[name].tolist() for name in _OF_TRANSFER)
        self._transfers: list[tuple[Any, ...]] = list(zip(*times_and_ends, strict=True))
        self.messages: dict[int, int] = {}  # of spans, if steps are told apart by them
        self._admissions: list[tuple[float, int]] = list(
            zip(admissions["time_s"].tolist(), admissions["cause"].tolist(), strict=True)
        )
        self._on_place = _by_end(spans)
        self._on_link = self._by_link(crossings)
        self._crossings = crossings
        self.down_s: dict[int, float] = {}
        self.group_wait_s = 0.0
        self.found: defaultdict[Holding, float] = defaultdict(float)

    def _by_link(self, crossings: Crossings | None) -> dict[Any, list[tuple[float, int]]]:
        """Transfers that held each link, edge or port, by when they let it go."""
        found: dict[Any, list[tuple[float, int]]] = {}
        for number, (*_times, held_s, _end_s, source, target, _cause) in enumerate(self._transfers):
            for link in _links(source, target, crossings):
                found.setdefault(link, []).append((held_s, number))
        for one in found.values():
            one.sort()
        return found

    def walked(self, until_s: float) -> dict[Holding, float]:
        """Walk, and give the seconds of each part."""
        ends = [(end_s, number) for number, end_s in enumerate(self._ends)]
        ends += [(float(one[3]), of_transfer(at)) for at, one in enumerate(self._transfers)]
        last_s = until_s * (1 + _ROUNDING)
        now_s, cause = max((one for one in ends if one[0] <= last_s), default=(0.0, START))
        from_link = False
        for _ in range(2 * (len(self._ends) + len(self._transfers) + len(self._admissions)) + 2):
            if cause == START:
                self._add(_WAIT, now_s)
                return self.found
            table, number = record_of(cause)
            if table == "span":
                now_s, cause = self._at_span(number, now_s)
                from_link = False
            elif table == "transfer":
                now_s, cause, from_link = self._at_transfer(number, now_s, skips=from_link)
            else:
                time_s, cause = self._admissions[number]
                now_s = self._waited(now_s, time_s)
        raise AssertionError("the path through whoever held the device runs in a circle")

    def _add(self, part: Holding, seconds: float) -> None:
        if seconds > 0:
            self.found[part] += seconds

    def _waited(self, now_s: float, until_s: float) -> float:
        """Go back to a time before without a step or transfer."""
        if until_s >= now_s or is_near(until_s, now_s):
            return now_s
        self._add(_WAIT, now_s - until_s)
        return until_s

    def _at_span(self, number: int, now_s: float) -> tuple[float, int]:
        """Take a step; who held its device until it began comes next, or else its message."""
        now_s = self._waited(now_s, self._ends[number])
        start_s, kind = self._starts[number], self._kinds[number]
        down_s = self.down_s.get(number, 0.0)
        size = self._ends[number] - start_s - down_s
        self._add(_WAIT, down_s)
        messages = self.messages.get(number, 0)
        step = Holding("step", self._workers[number], NOBODY, kind, size, messages)
        self._add(step, now_s - start_s - down_s)
        now_s = min(now_s, start_s)
        cause = self._causes[number]
        if self._has_come(cause, now_s):
            return now_s, cause
        before = self._holder(number, now_s)
        if before is None and self.group_wait_s:
            return self._before_wait(number, now_s)
        return (now_s, cause) if before is None else (now_s, before)

    def _before_wait(self, number: int, now_s: float) -> tuple[float, int]:
        """Go back over a wait for a larger group, to what ended, or came, as it began.

        That may have come for another node: whatever is most urgent ends the wait.
        """
        since_s, moments = now_s - self.group_wait_s, self._moments[self._workers[number]]
        place = bisect_left(moments, (since_s * (1 - _ROUNDING), START))
        time_s, before = moments[place]
        is_found = time_s <= since_s * (1 + _ROUNDING)
        return (self._waited(now_s, time_s), before) if is_found else (now_s, self._causes[number])

    @cached_property
    def _moments(self) -> dict[int, list[tuple[float, int]]]:
        """When steps of each worker ended, and what came for them, in order."""
        found: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
        for number, (worker, cause) in enumerate(zip(self._workers, self._causes, strict=True)):
            found[worker] += [(self._ends[number], number), (self._end_of(cause), cause)]
        return {worker: sorted(own) for worker, own in found.items()}

    def _has_come(self, cause: int, now_s: float) -> bool:
        """Tell whether what a cause brought came just now, so that nothing held it up."""
        end_s = self._end_of(cause)
        return end_s >= now_s or is_near(end_s, now_s)

    def _end_of(self, cause: int) -> float:
        table, number = record_of(cause)
        if table == "span":
            return self._ends[number]
        if table == "transfer":
            return float(self._transfers[number][3])
        return self._admissions[number][0] if table == "admission" else 0.0

    def _holder(self, number: int, now_s: float) -> int | None:
        """Find what had a step's device until it began: a step that ended then, or what came then.

        It may have waited for another message, as a member of a group does; then that one's cause.
        """
        ends_s, numbers = self._on_place[self._workers[number], self._kinds[number][-1]]
        first, last = bisect_left(ends_s, now_s), bisect_right(ends_s, now_s)
        there = [one for one in numbers[first:last] if one < number]
        for one in reversed(there):
            if self._starts[one] < now_s:
                return one
        for one in reversed(there):
            if self._has_come(self._causes[one], now_s):
                return one
        return self._of_group(numbers, ends_s, number)

    def _of_group(self, numbers: list[int], ends_s: list[float], number: int) -> int | None:
        """The cause of a later member of a step's group, if that came last."""
        now_s, until_s = self._starts[number], self._ends[number]
        for place in range(bisect_right(ends_s, until_s), len(numbers)):
            one = numbers[place]
            if self._starts[one] != until_s or self._kinds[one][1:3] != self._kinds[number][1:3]:
                return None
            if is_near(self._end_of(self._causes[one]), now_s):  # not later: it is another group's
                return self._causes[one]
            until_s = self._ends[one]
        return None

    def _at_transfer(self, number: int, now_s: float, *, skips: bool) -> tuple[float, int, bool]:
        """Take a transfer; `skips` its latency where it is met because it held the link."""
        sent_s, start_s, held_s, end_s, source, target, cause = self._transfers[number]
        if not skips:
            now_s = self._waited(now_s, end_s)
            self._add(Holding("latency", target, source, (), 0.0), now_s - held_s)
            now_s = min(now_s, held_s)
        self._add(Holding("bandwidth", target, source, (), 0.0), now_s - start_s)
        now_s = min(now_s, start_s)
        if sent_s < now_s and not is_near(sent_s, now_s):
            for link in _links(source, target, self._crossings):
                before = self._before_on(link, number, now_s)
                if before is not None:
                    return now_s, -2 - 2 * before, True
            now_s = self._waited(now_s, sent_s)
        return now_s, cause, False

    def _before_on(self, link: Any, number: int, now_s: float) -> int | None:
        """The transfer that had a link until a time."""
        held = self._on_link[link]
        near_s = now_s * _ROUNDING
        for place in range(bisect_right(held, (now_s + near_s, len(self._transfers))) - 1, -1, -1):
            held_s, other = held[place]
            if held_s < now_s - near_s:
                return None
            if other < number and self._transfers[other][1] < now_s:
                return other
        return None


_WAIT: Final = Holding("wait", NOBODY, NOBODY, (), 0.0)
_OF_TRANSFER: Final = (
    "sent_s", "start_s", "held_s", "end_s", "source_worker", "target_worker", "cause",
)  # fmt: skip


def _links(source: int, target: int, crossings: Crossings | None) -> Sequence[Any]:
    """List what a message from one worker to another holds."""
    if crossings is None:
        return [(source, target)]
    return [one.name for one in crossings(source, target)]


def _by_end(spans: Columns) -> dict[tuple[int, int], tuple[list[float], list[int]]]:
    """Ends of the steps of each lane of each worker, in order, and their numbers."""
    order = np.lexsort((np.arange(len(spans["end_s"])), spans["end_s"]))
    found: dict[tuple[int, int], tuple[list[float], list[int]]] = {}
    ends, workers, lanes = (spans[name][order].tolist() for name in ("end_s", "worker", "lane"))
    for end_s, worker, on, number in zip(ends, workers, lanes, order.tolist(), strict=True):
        ends_s, numbers = found.setdefault((worker, on), ([], []))
        ends_s.append(end_s)
        numbers.append(number)
    return found
