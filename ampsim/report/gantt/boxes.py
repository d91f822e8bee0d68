"""What a Gantt chart shows: rows, a window of time, steps as boxes, arrows, and outages."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ampsim.errors import OptionError
from ampsim.report.frames import (
    LANE_STEP,
    WHOLE,
    AnyRun,
    DataFrame,
    Floats,
    Hosts,
    Integers,
    KeptPart,
    floats,
    integers,
    is_of_operations,
    is_worker,
    joined,
    kept_of,
    owner_of,
    row_name,
    row_numbers,
    some_of,
    texts,
    thread_name,
)
from ampsim.report.style import BOXES
from ampsim.report.words import plain
from ampsim.units import format_seconds

Window: TypeAlias = tuple[float, float]

INSTANCES = 4
"""Instances that a chart shows unless told (chosen: each box is wide enough for its number)."""


@dataclass(frozen=True, slots=True)
class WorkerRows:
    """The workers that a chart has rows for, and the names of the rows.

    Attributes:
        count: number of workers of the cluster.
        devices: a device's name per worker, by which rows are grouped; empty where unknown.
        hosts: the nodes of each worker, named after its number.
        has_threads: whether each row is named after its lane, as of operations.
    """

    count: int
    devices: Sequence[str] = ()
    hosts: Hosts = field(default_factory=dict[int, Sequence[str]])
    has_threads: bool = False

    def name(self, worker: int) -> str:
        """Name of the row of `worker`, or of another row by its number."""
        if self.has_threads:
            return thread_name(worker)
        if not is_worker(worker):
            return row_name(worker)
        nodes = some_of(self.hosts.get(worker, ()))
        return f"worker {worker} ({nodes})" if nodes else f"worker {worker}"

    def in_order(self) -> list[int]:
        """All workers by number, those with the same device together."""
        kinds = {name: rank for rank, name in enumerate(dict.fromkeys(self.devices))}
        if len(kinds) < 2:
            return list(range(self.count))
        return sorted(range(self.count), key=lambda worker: kinds[self.devices[worker]])


@dataclass(frozen=True, slots=True)
class Boxes:
    """Steps that take time inside a window, in the order of the trace.

    `names` has one for each where these are operations, else none. `present` holds the workers with
    any step in the window, free steps included.
    """

    worker: Integers
    start_s: Floats
    end_s: Floats
    instance: Integers
    direction: NDArray[np.str_]
    present: frozenset[int]
    names: list[str] = field(default_factory=list[str])

    @property
    def labels(self) -> list[str]:
        """What is written into each box: the operation's name, or the instance."""
        numbers = self.instance.tolist()
        return self.names or [str(number) if number >= 0 else "" for number in numbers]

    @property
    def busy_s(self) -> float:
        """Sum of the lengths of boxes that workers compute."""
        own = (self.worker >= 0) & (self.worker < LANE_STEP - 1)
        return float(np.sum((self.end_s - self.start_s)[own]))


@dataclass(frozen=True, slots=True)
class ChartRows:
    """The rows from top to bottom: their numbers, whether each is busy, and a closing line.

    `groups` has a name and the first and last row of each kind of device, if there are several.
    """

    workers: tuple[int, ...]
    is_busy: tuple[bool, ...]
    closing_line: str
    groups: tuple[tuple[str, int, int], ...] = ()


def boxes_in(spans: DataFrame, window_s: Window) -> Boxes:
    """Boxes of `spans` that overlap `window_s`, cut to it. Free steps (length 0) have no box."""
    start_s, end_s = floats(spans, "start_s"), floats(spans, "end_s")
    worker, direction = row_numbers(spans), np.asarray(spans["direction"], dtype=np.str_)
    touching = (end_s >= window_s[0]) & (start_s < window_s[1])
    drawn = (end_s > start_s) & (end_s > window_s[0]) & (start_s < window_s[1])
    unknown = set(np.unique(direction[drawn]).tolist()) - set(BOXES)
    assert not unknown, f"directions without a colour: {sorted(unknown)}"
    return Boxes(
        worker[drawn],
        np.maximum(start_s[drawn], window_s[0]),
        np.minimum(end_s[drawn], window_s[1]),
        integers(spans, "instance")[drawn],
        direction[drawn],
        frozenset(int(number) for number in np.unique(worker[touching])),
        _operation_names(spans[drawn]) if is_of_operations(spans) else [],
    )


def _operation_names(spans: DataFrame) -> list[str]:
    named = zip(texts(spans, "node"), texts(spans, "direction"), strict=True)
    return ["" if kind in ("push", "dispatch") else plain(name, 40) for name, kind in named]


def lanes_for(
    charts: Iterable[Boxes], rows: WorkerRows, joined: frozenset[int] = frozenset()
) -> ChartRows:
    """The rows of all `charts`; workers in `joined`, where arrows end, have one even if idle."""
    charts = list(charts)
    busy = {int(number) for boxes in charts for number in np.unique(boxes.worker)}
    present = frozenset[int]().union(*(boxes.present for boxes in charts))
    of = {number: owner_of(number) for number in busy | present}
    beyond = sorted(number for number, owner in of.items() if not -1 <= owner < rows.count)
    assert not beyond, f"spans of workers {beyond} in a chart of {rows.count} workers"
    lanes = sorted(number for number in busy if not is_worker(number))
    everyone = [number for number in lanes if of[number] < 0]
    for worker in rows.in_order():
        everyone += [worker, *(number for number in lanes if of[number] == worker)]
    shown = [number for number in everyone if not busy or number in busy or number in joined]
    hidden = set(everyone) - set(shown)
    free = len(hidden & present)
    parts = [_counted(free, "with only free steps"), _counted(len(hidden) - free, "with no steps")]
    return ChartRows(
        tuple(shown),
        tuple(number in busy for number in shown),
        "" if rows.has_threads else ", ".join(part for part in parts if part),
        _groups(shown, rows),
    )


def _groups(shown: Sequence[int], rows: WorkerRows) -> tuple[tuple[str, int, int], ...]:
    found: dict[str, list[int]] = {}
    if len(set(rows.devices)) > 1:
        for row, worker in enumerate(shown):
            if owner_of(worker) >= 0:
                found.setdefault(rows.devices[owner_of(worker)], []).append(row)
    return tuple((plain(name, 24), places[0], places[-1]) for name, places in found.items())


def whole_window(frames: Iterable[DataFrame]) -> Window:
    """From the first start to the last end of all spans; (0, 1) where nothing takes time."""
    filled = [frame for frame in frames if len(frame)]
    if not filled:
        return 0.0, 1.0
    start_s = min(float(np.min(floats(frame, "start_s"))) for frame in filled)
    end_s = max(float(np.max(floats(frame, "end_s"))) for frame in filled)
    return (start_s, end_s) if end_s > start_s else (start_s, start_s + 1.0)


def check_window(window_s: Window) -> Window:
    """The window itself.

    Raises:
        OptionError: it is not a pair of finite times in rising order.
    """
    if not (np.isfinite(window_s[0]) and np.isfinite(window_s[1]) and window_s[0] < window_s[1]):
        raise OptionError(
            f"a window must be two finite times in s, start < end, got {window_s[0]:g} to "
            f"{window_s[1]:g}; leave it out to see the whole run"
        )
    return window_s


def choose_window(
    spans_by_schedule: Mapping[str, DataFrame],
    instances: int = INSTANCES,
    known_until_s: float = math.inf,
) -> Window:
    """A window for all schedules in which the slowest finishes about `instances` instances.

    It begins with the earliest span, and ends no later than `known_until_s`: beyond, the faster
    schedules would look idle. An instance has finished when its last forward or backward step ends;
    a schedule with fewer instances counts with all of them.
    """
    assert instances >= 1, instances
    start_s, end_s = whole_window(spans_by_schedule.values())
    finishes = [_finish_s(spans, instances) for spans in spans_by_schedule.values() if len(spans)]
    slowest_s = min(max(finishes, default=end_s), known_until_s)
    return (start_s, slowest_s) if slowest_s > start_s else (start_s, end_s)


def _finish_s(spans: DataFrame, instances: int) -> float:
    """When `instances` instances have finished, with the updates that began until then."""
    instance, end_s = integers(spans, "instance"), floats(spans, "end_s")
    start_s = floats(spans, "start_s")
    is_update = np.asarray(spans["direction"], dtype=np.str_) == "update"
    counted = ~is_update & (instance >= 0)
    if not counted.any():
        return float(np.max(end_s))
    _, index = np.unique(instance[counted], return_inverse=True)
    last_s = np.full(int(index.max()) + 1, -np.inf)
    np.maximum.at(last_s, index, end_s[counted])
    finish_s = float(np.sort(last_s)[min(instances, len(last_s)) - 1])
    following = is_update & (start_s <= finish_s)
    return max(finish_s, float(np.max(end_s[following], initial=finish_s)))


def _counted(count: int, what: str) -> str:
    return f"{count} worker{'s' if count != 1 else ''} {what}" if count else ""


ARROWS_MAX = 200  # chosen: more hide what they join; of more, every second, third, ... is drawn
_HOST = -1


@dataclass(frozen=True, slots=True)
class Arrows:
    """What joins rows in a window, in the order of the record.

    Transfers between workers, from the start on the link to the arrival; or, of operations, which
    made which ready, from the end of the one to the start of the other.

    Attributes:
        source, target: workers, or rows.
        start_s, end_s: when an arrow begins and ends.
        size_bytes: of the message.
        to_host: how many other transfers in the window begin or end at the host.
    """

    source: Integers
    target: Integers
    start_s: Floats
    end_s: Floats
    size_bytes: Integers
    to_host: int

    @property
    def workers(self) -> frozenset[int]:
        """The workers that send or receive any of these."""
        return frozenset(int(w) for w in np.unique(np.concatenate([self.source, self.target])))

    def thinned(self, most: int) -> tuple[Arrows, int]:
        """Every step-th transfer, at most `most`, and the step."""
        step = max(1, -(-len(self.source) // most))
        chosen = slice(None, None, step)
        columns = (self.source, self.target, self.start_s, self.end_s, self.size_bytes)
        kept: list[Any] = [column[chosen] for column in columns]
        return Arrows(*kept, to_host=self.to_host), step


def arrows_in(transfers: Sequence[DataFrame], window_s: Window) -> Arrows:
    """Transfers between workers that overlap a window, from chunks of the trace's transfers."""
    counts, times = np.empty(0, np.int64), np.empty(0)
    parts: list[list[Any]] = [[counts, counts, times, times, counts]]
    to_host = 0
    for chunk in transfers:
        start_s, end_s = floats(chunk, "start_s"), floats(chunk, "end_s")
        touching = (end_s > window_s[0]) & (start_s < window_s[1])
        rows = chunk[touching]
        source, target = (integers(rows, f"{end}_worker") for end in ("source", "target"))
        joins = (source != _HOST) & (target != _HOST)
        to_host += int((~joins).sum())
        columns = [source, target, start_s[touching], end_s[touching], integers(rows, "bytes")]
        parts.append([column[joins] for column in columns])
    joined: list[Any] = [np.concatenate(each) for each in zip(*parts, strict=True)]
    return Arrows(*joined, to_host=to_host)


def dependencies_in(
    spans: DataFrame, dependencies: DataFrame, boxes: Boxes, window_s: Window
) -> Arrows:
    """Which operation made which ready, between rows that have boxes.

    Args:
        spans: of the operations.
        dependencies: source and target, the labels of two spans.
        boxes: what the chart draws.
        window_s: start and end of the time shown.
    """
    tails, heads = (spans.loc[dependencies[end]] for end in ("source", "target"))
    source, target = row_numbers(tails), row_numbers(heads)
    start_s, end_s = floats(tails, "end_s"), floats(heads, "start_s")
    has_rows = np.isin(source, boxes.worker) & np.isin(target, boxes.worker)
    chosen = has_rows & (source != target) & (start_s >= window_s[0]) & (end_s <= window_s[1])
    columns = (source, target, start_s, end_s, np.zeros(len(source), np.int64))
    kept: list[Any] = [column[chosen] for column in columns]
    return Arrows(*kept, to_host=0)


@dataclass(frozen=True, slots=True)
class ChartRun:
    """What a chart draws of a schedule's run.

    Attributes:
        spans: the trace's spans; free steps (start_s == end_s) are not drawn.
        transfers: the trace's transfers, in chunks, drawn as arrows.
        kept: how much of the run `spans` are, None for all of it; the rest is hatched.
        outages: when which device was not as usual, hatched; None where there is nothing to draw.
        dependencies: source and target, labels of two spans, drawn in place of transfers.
    """

    spans: DataFrame
    transfers: Sequence[DataFrame] = ()
    kept: KeptPart | None = WHOLE
    outages: DataFrame | None = None
    dependencies: DataFrame | None = None

    def arrows(self, boxes: Boxes, window_s: Window) -> Arrows:
        """Transfers between workers, or dependencies between the rows of `boxes`."""
        if self.dependencies is None:
            return arrows_in(self.transfers, window_s)
        return dependencies_in(self.spans, self.dependencies, boxes, window_s)


def chart_of(run: AnyRun) -> ChartRun:
    """What a chart draws of a run: its spans and transfers, outages and waits."""
    transfers = [run.transfers] if len(run.transfers) else []
    return ChartRun(run.spans, transfers, kept_of(run), outages_of(run))


def first_window(runs: Mapping[str, ChartRun]) -> Window:
    """The window of a few instances of each run, as far as all of them were kept."""
    known_s = min((one.kept.until_s for one in runs.values() if one.kept), default=math.inf)
    count = instances_of(one.outages for one in runs.values())
    return choose_window({name: one.spans for name, one in runs.items()}, count, known_s)


Charted: TypeAlias = Mapping[str, "DataFrame | ChartRun"]
"""What is drawn of each schedule, by its name: a run, or spans alone."""


def chart_runs(schedules: Charted) -> dict[str, ChartRun]:
    """Each as a run."""
    return {
        name: one if isinstance(one, ChartRun) else ChartRun(one) for name, one in schedules.items()
    }


OUTAGES: Final = {
    "down": ("device down", "\\\\\\\\"),
    "lost": ("device down, updates lost", "xxxx"),
    "checkpoint": ("checkpoint", "----"),
    "slow": ("device slow", "..."),
    "waits": ("waits for others", "||||"),
}
"""What the legend says of each look, in its order, and its hatch, unlike those of steps."""


@dataclass(frozen=True, slots=True)
class Outages:
    """Outages and waits that overlap a window, in the order of the record.

    `worker` is whose device each is of, and `look` how it is drawn, one of `OUTAGES`.
    """

    worker: Integers
    start_s: Floats
    end_s: Floats
    look: NDArray[np.str_]

    @property
    def looks(self) -> list[str]:
        """Which there are, in the order of `OUTAGES`."""
        return [one for one in OUTAGES if one in self.look]


def outages_in(outages: DataFrame | None, window_s: Window) -> Outages:
    """Outages that overlap a window, cut to it."""
    if outages is None or not len(outages):
        empty = np.empty(0)
        return Outages(np.empty(0, np.int64), empty, empty, np.empty(0, np.str_))
    start_s, end_s = floats(outages, "start_s"), floats(outages, "end_s")
    chosen = (end_s > window_s[0]) & (start_s < window_s[1])
    look = np.array([_look_of(kind) for kind in texts(outages, "kind")])
    look = np.where(floats(outages, "updates_lost") > 0, "lost", look)
    return Outages(
        integers(outages, "worker")[chosen],
        np.maximum(start_s[chosen], window_s[0]),
        np.minimum(end_s[chosen], window_s[1]),
        look[chosen],
    )


def _look_of(kind: str) -> str:
    if kind.startswith("waits"):
        return "waits"
    return kind if kind in ("slow", "checkpoint") else "down"


def outages_of(run: AnyRun) -> DataFrame:
    """The outages of a run and the waits of its ranks."""
    outages, waits = run.outages, run.waits
    if not len(waits):
        return outages
    return joined([outages, waits]) if len(outages) else waits


def instances_of(every: Iterable[DataFrame | None]) -> int:
    """Instances that a chart shows unless told: of ranks that wait, an exchange of each."""
    waiting = 0
    for one in every:
        if one is not None and len(one):
            waits = [kind.startswith("waits") for kind in texts(one, "kind")]
            waiting = max(waiting, len(np.unique(integers(one, "worker")[waits])))
    return max(INSTANCES, 2 * waiting)


def outage_rows(outages: Outages, workers: Sequence[int]) -> list[list[Any]]:
    """Row, start, end and look, for each outage of a worker that has a row."""
    place = {worker: row for row, worker in enumerate(workers)}
    columns = (one.tolist() for one in (outages.start_s, outages.end_s, outages.look))
    return [
        [place[worker], *rest]
        for worker, *rest in zip(outages.worker.tolist(), *columns, strict=True)
        if worker in place
    ]


def looks_of(every: Iterable[Outages]) -> list[str]:
    """Which looks there are, in the order of `OUTAGES`."""
    found = {look for one in every for look in one.looks}
    return [one for one in OUTAGES if one in found]


_ROUNDING = 1e-4
"""How much later than the end a window may end (chosen: ends are told in six digits)."""

_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "\u03bcs": 1e-6, "ns": 1e-9}
_TIME = re.compile(rf"([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*({'|'.join(_UNITS)})?\Z")
_INSTANCES = re.compile(r"instances?:([0-9]+)(?:-([0-9]+))?\Z")


@dataclass(frozen=True, slots=True)
class Instances:
    """The time from the start of the first step of some instances to the end of their last."""

    first: int
    last: int

    def window(self, spans_by_schedule: Mapping[str, DataFrame]) -> Window:
        """One window for all schedules.

        Raises:
            OptionError: no step of these instances takes time.
        """
        starts, ends, highest = list[float](), list[float](), -1
        for spans in spans_by_schedule.values():
            instance = integers(spans, "instance")
            start_s, end_s = floats(spans, "start_s"), floats(spans, "end_s")
            chosen = (instance >= self.first) & (instance <= self.last) & (end_s > start_s)
            highest = max(highest, int(np.max(instance, initial=-1)))
            if chosen.any():
                starts.append(float(np.min(start_s[chosen])))
                ends.append(float(np.max(end_s[chosen])))
        if not starts:
            raise OptionError(
                f"--window instance:{self.first}-{self.last}: no step of these instances takes "
                f"time; the last instance of this run is {highest}"
            )
        return min(starts), max(ends)


Choice: TypeAlias = "Window | Instances"


def parse_window(text: str) -> Choice:
    """Reads --window: ``0:2e-5``, ``0:2ms``, ``instance:3`` or ``instance:3-7``.

    Numbers without a unit are seconds; a start without one takes the unit of the end.

    Raises:
        OptionError: the text is none of these.

    >>> parse_window("1:2ms"), parse_window("instance:3-7")
    ((0.001, 0.002), Instances(first=3, last=7))
    """
    named = _INSTANCES.match(text.strip())
    if named:
        first, last = int(named[1]), int(named[2] or named[1])
        if first > last:
            raise OptionError(
                f"--window {text}: instances must rise, such as instance:{last}-{first}"
            )
        return Instances(first, last)
    start, separator, end = text.partition(":")
    times = [_TIME.match(part.strip()) for part in (start, end)]
    try:
        values = [float(time[1]) for time in times if time]
    except ValueError:  # such as 1.2.3
        values = []
    if not separator or len(values) < 2:
        raise OptionError(
            "--window must be START:END in virtual seconds or with a unit, such as 0:2e-5 or "
            f"0:2ms, or instance:FIRST-LAST, got {text!r}"
        )
    units = [time[2] for time in times if time]
    factors = [_UNITS[unit or units[1] or "s"] for unit in units]
    return check_window((values[0] * factors[0], values[1] * factors[1]))


def chosen_window(choice: Choice, spans_by_schedule: Mapping[str, DataFrame]) -> Window:
    """The window of time of a choice.

    Raises:
        OptionError: no step of the instances asked for takes time, or the window reaches beyond
            the end of the last schedule.
    """
    if isinstance(choice, Instances):
        return choice.window(spans_by_schedule)
    every = spans_by_schedule.values()
    end_s = max((float(np.max(floats(one, "end_s"), initial=0.0)) for one in every), default=0.0)
    if choice[1] > end_s * (1 + _ROUNDING):
        raise OptionError(
            f"--window {choice[0]:g}:{choice[1]:g} reaches beyond the run, which ends at {end_s:g} "
            f"seconds ({format_seconds(end_s)}); take an END of at most {end_s:g}"
        )
    return choice
