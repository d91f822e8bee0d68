"""The content of a Gantt chart: rows, a window of time, boxes of steps and outages, arrows.

Boxes are a table: `row`, the number of a row (`row_numbers`); `start_s` and `end_s`, cut to a
window; `look`, a step's direction or one of `OUTAGES`; and `label`, what is written into a step's.
Arrows are one, too: `source` and `target`, numbers of rows; `start_s`, when one begins, `end_s`,
when it ends; and `bytes`, the size of a message.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ampsim.errors import OptionError
from ampsim.report.frames import (
    AnyRun,
    DataFrame,
    KeptPart,
    floats,
    hosts_in,
    integers,
    is_worker,
    joined,
    kept_of,
    owner_of,
    row_name,
    row_numbers,
    texts,
    thread_name,
    under_way,
)
from ampsim.report.style import BOXES
from ampsim.report.words import plain, told_apart
from ampsim.units import SECONDS, format_seconds

Window: TypeAlias = tuple[float, float]

INSTANCES = 4
"""Instances that a chart shows unless told (chosen: each box is wide enough for its number)."""


@dataclass(frozen=True, slots=True)
class ChartRows:
    """The rows of a chart from top to bottom."""

    numbers: tuple[int, ...]  # as of `row_numbers`
    names: tuple[str, ...]  # of a worker, with the nodes that it hosts, or of a thread, by its lane
    devices: tuple[str, ...]  # of each, by which rows are grouped; empty where all are the same
    is_busy: tuple[bool, ...]  # whether each has boxes
    closing_line: str  # how many workers have no row, and why
    has_threads: bool  # whether they are a dependency engine's

    @property
    def groups(self) -> list[tuple[str, int, int]]:
        """Name, first and last row of each kind of device, if there are several."""
        found: dict[str, list[int]] = {}
        for place, name in enumerate(self.devices):
            if name:
                found.setdefault(name, []).append(place)
        return [(name, places[0], places[-1]) for name, places in found.items()]

    def places(self, numbers: NDArray[Any]) -> NDArray[np.int64]:
        """The place of each of these rows, 0 on top; all are there."""
        place = {number: index for index, number in enumerate(self.numbers)}
        known, of = np.unique(numbers, return_inverse=True)
        return np.array([place[one] for one in known.tolist()], np.int64)[of]


def boxes_in(spans: DataFrame, window_s: Window) -> DataFrame:
    """Boxes of the steps that take time in a window, in the order of the trace."""
    drawn = spans[_are_drawn(spans, window_s)]
    looks = texts(drawn, "direction")
    assert set(looks) <= set(BOXES), f"directions without a colour: {sorted({*looks} - {*BOXES})}"
    if "operation" in spans:  # of a dependency engine
        named = zip(texts(drawn, "node"), looks, strict=True)
        labels = ["" if kind in ("push", "dispatch") else plain(name, 40) for name, kind in named]
    else:
        labels = [str(one) if one >= 0 else "" for one in integers(drawn, "instance").tolist()]
    return _cut(drawn, window_s, row=row_numbers(drawn), look=looks, label=labels)


def _are_in(frame: DataFrame, window_s: Window) -> NDArray[np.bool_]:
    """Tell whether each overlaps a window."""
    return (floats(frame, "end_s") > window_s[0]) & (floats(frame, "start_s") < window_s[1])


def _are_drawn(spans: DataFrame, window_s: Window) -> NDArray[np.bool_]:
    """Tell which steps are drawn: free ones (length 0) have no box."""
    return _are_in(spans, window_s) & (floats(spans, "end_s") > floats(spans, "start_s"))


def _cut(frame: DataFrame, window_s: Window, **columns: Any) -> DataFrame:
    start_s = np.maximum(floats(frame, "start_s"), window_s[0])
    end_s = np.minimum(floats(frame, "end_s"), window_s[1])
    return DataFrame({**columns, "start_s": start_s, "end_s": end_s})


def rows_for(
    frames: Sequence[DataFrame],
    window_s: Window,
    workers: int,
    devices: Sequence[str] = (),
    ends: Collection[int] = (),
) -> ChartRows:
    """The rows that all charts of some spans have.

    Args:
        frames: the spans of each chart.
        window_s: start and end of the time shown.
        workers: how many the cluster has.
        devices: a device's name per worker; empty where it is unknown.
        ends: rows of arrows' ends, which are shown even if idle.
    """
    busy, present = set[int](), set[int]()
    for spans in frames:
        numbers, is_there = row_numbers(spans), floats(spans, "end_s") >= window_s[0]
        busy.update(np.unique(numbers[_are_drawn(spans, window_s)]).tolist())
        is_there &= floats(spans, "start_s") < window_s[1]
        present.update(np.unique(numbers[is_there]).tolist())
    beyond = sorted(one for one in busy | present if not -1 <= owner_of(one) < workers)
    assert not beyond, f"spans of workers {beyond} in a chart of {workers} workers"
    named = told_apart(devices, 24)
    kinds = list(named.values())
    kind_of = {one: named[devices[one]] if len(kinds) > 1 else "" for one in range(workers)}
    lanes = sorted(one for one in busy if not is_worker(one))
    everyone = [one for one in lanes if owner_of(one) < 0]
    for worker in sorted(kind_of, key=lambda one: kinds.index(kind_of[one]) if kind_of[one] else 0):
        everyone += [worker, *(one for one in lanes if owner_of(one) == worker)]
    shown = [one for one in everyone if not busy or one in busy or one in ends]
    hidden = set(everyone) - set(shown)
    free = len(hidden & present)
    told = [_counted(free, "with only free steps"), _counted(len(hidden) - free, "with no steps")]
    has_threads, hosts = any("operation" in one for one in frames), hosts_in(frames)
    return ChartRows(
        tuple(shown),
        tuple(thread_name(one) if has_threads else row_name(one, hosts) for one in shown),
        tuple(kind_of.get(owner_of(one), "") for one in shown),
        tuple(one in busy for one in shown),
        "" if has_threads else ", ".join(filter(None, told)),
        has_threads,
    )


def _counted(count: int, what: str) -> str:
    return f"{count} worker{'s' if count != 1 else ''} {what}" if count else ""


def whole_window(frames: Iterable[DataFrame]) -> Window:
    """Return the first start and the last end of all spans; (0, 1) where nothing takes time."""
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
            f"{window_s[1]:g}; or leave it out"
        )
    return window_s


def _finish_s(spans: DataFrame, instances: int) -> float:
    """When `instances` instances have finished, with the updates that began until then."""
    end_s = floats(spans, "end_s")
    is_update = np.asarray(spans["direction"], dtype=np.str_) == "update"
    counted: Any = under_way(spans)
    if not len(counted):
        return float(np.max(end_s))
    last_s = counted.groupby("instance")["end_s"].max().sort_values()
    finish_s = float(last_s.iloc[min(instances, len(last_s)) - 1])
    following = is_update & (floats(spans, "start_s") <= finish_s)
    return max(finish_s, float(np.max(end_s[following], initial=finish_s)))


ARROWS_MAX = 200  # chosen: more hide what they join; of more, every second, third, ... is drawn
_TRANSFER: Final = {
    "source_worker": "source", "target_worker": "target", "start_s": "start_s", "end_s": "end_s",
    "bytes": "bytes",
}  # fmt: skip


def arrows_in(transfers: Sequence[DataFrame], window_s: Window) -> DataFrame:
    """Transfers between workers in a window, from chunks, each from its start to its arrival.

    Those from and to the host are left out.
    """
    if not transfers:
        return DataFrame(columns=list(_TRANSFER.values()))
    rows: Any = joined([chunk[list(_TRANSFER)] for chunk in transfers])
    is_between = (rows["source_worker"] >= 0) & (rows["target_worker"] >= 0)
    return rows[_are_in(rows, window_s) & is_between].rename(columns=_TRANSFER)


def ends_of(every: Iterable[DataFrame]) -> set[int]:
    """The rows at which any arrow ends or begins."""
    return {row for one in every for end in ("source", "target") for row in integers(one, end)}


@dataclass(frozen=True, slots=True)
class ChartRun:
    """The part of a run that a chart draws."""

    spans: DataFrame  # free steps (start_s == end_s) are not drawn
    transfers: Sequence[DataFrame] = ()  # in chunks, drawn as arrows
    kept: KeptPart | None = None  # what of the run that is, None for all; the rest is hatched
    outages: DataFrame | None = None  # when which device was not as usual, hatched
    dependencies: DataFrame | None = None  # labels of two spans, in place of transfers

    def arrows(self, boxes: DataFrame, window_s: Window) -> DataFrame:
        """Transfers between workers, or dependencies between the rows of `boxes`.

        The latter lead from the end of an operation to the start of one that it made ready.
        """
        if self.dependencies is None:
            return arrows_in(self.transfers, window_s)
        tails, heads = (self.spans.loc[self.dependencies[end]] for end in ("source", "target"))
        source, target = row_numbers(tails), row_numbers(heads)
        start_s, end_s = floats(tails, "end_s"), floats(heads, "start_s")
        known = integers(boxes, "row")
        chosen = np.isin(source, known) & np.isin(target, known) & (source != target)
        chosen &= (start_s >= window_s[0]) & (end_s <= window_s[1])
        columns = {"source": source, "target": target, "start_s": start_s, "end_s": end_s}
        arrows: Any = DataFrame({**columns, "bytes": 0})
        return arrows[chosen]


def chart_of(run: AnyRun) -> ChartRun:
    """Take what a chart draws of a run: its spans and transfers, outages and waits."""
    transfers = [run.transfers] if len(run.transfers) else []
    return ChartRun(run.spans, transfers, kept_of(run), outages_of(run))


def first_window(runs: Mapping[str, ChartRun]) -> Window:
    """A window for all runs in which the slowest finishes a few instances (`instances_of`).

    It begins with the earliest span, and ends no later than what was kept of each run: beyond, the
    faster ones would look idle. An instance has finished when its last forward or backward step
    ends; a run with fewer instances counts with all of them.
    """
    spans, count = [one.spans for one in runs.values()], instances_of(runs.values())
    start_s, end_s = whole_window(spans)
    finishes = [_finish_s(one, count) for one in spans if len(one)]
    kept_s = (one.kept.until_s for one in runs.values() if one.kept)
    slowest_s = min(max(finishes, default=end_s), *kept_s, math.inf)
    return (start_s, slowest_s) if slowest_s > start_s else (start_s, end_s)


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


def outages_in(outages: DataFrame | None, window_s: Window) -> DataFrame:
    """Boxes of the outages and waits that overlap a window, in the order of the record."""
    if outages is None or not len(outages):
        return DataFrame(columns=["row", "look", "start_s", "end_s"])
    drawn = outages[_are_in(outages, window_s)]
    looks = [
        "lost" if updates > 0 else "waits" if kind.startswith("waits") else
        kind if kind in OUTAGES else "down"
        for kind, updates in zip(texts(drawn, "kind"), floats(drawn, "updates_lost"), strict=True)
    ]  # fmt: skip
    return _cut(drawn, window_s, row=integers(drawn, "worker"), look=looks)


def looks_of(outages: Iterable[DataFrame]) -> list[str]:
    """List the looks that there are, in the order of `OUTAGES`."""
    found = {look for one in outages for look in one["look"]}
    return [one for one in OUTAGES if one in found]


def outages_of(run: AnyRun) -> DataFrame:
    """The outages of a run and the waits of its ranks."""
    outages, waits = run.outages, run.waits
    if not len(waits):
        return outages
    return joined([outages, waits]) if len(outages) else waits


def instances_of(runs: Iterable[ChartRun]) -> int:
    """Instances that a chart shows unless told: of ranks that wait, an exchange of each."""
    waiting = 0
    for one in (run.outages for run in runs):
        if one is not None and len(one):
            waits = [kind.startswith("waits") for kind in texts(one, "kind")]
            waiting = max(waiting, len(np.unique(integers(one, "worker")[waits])))
    return max(INSTANCES, 2 * waiting)


_ROUNDING = 1e-4
"""How much later than the end a window may end (chosen: ends are told in six digits)."""

_TIME = re.compile(rf"([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*({'|'.join(SECONDS)})?\Z")


def parse_window(text: str) -> Window:
    """Reads --window: ``0:2e-5`` or ``0:2ms``.

    Numbers without a unit are seconds; a start without one takes the unit of the end.

    Raises:
        OptionError: the text is no such window.

    >>> parse_window("1:2ms")
    (0.001, 0.002)
    """
    start, separator, end = text.partition(":")
    times = [_TIME.match(part.strip()) for part in (start, end)]
    try:
        values = [float(time[1]) for time in times if time]
    except ValueError:  # such as 1.2.3
        values = []
    if not separator or len(values) < 2:
        raise OptionError(
            "--window must be START:END in virtual seconds or with a unit, such as 0:2e-5 or "
            f"0:2ms, got {text!r}"
        )
    units = [time[2] for time in times if time]
    factors = [SECONDS[unit or units[1] or "s"] for unit in units]
    return check_window((values[0] * factors[0], values[1] * factors[1]))


def require_within(window_s: Window | None, frames: Iterable[DataFrame]) -> Window | None:
    """The window itself, if there is one.

    Raises:
        OptionError: it reaches beyond the end of the last of these spans.
    """
    end_s = max((float(np.max(floats(one, "end_s"), initial=0.0)) for one in frames), default=0.0)
    if window_s is not None and window_s[1] > end_s * (1 + _ROUNDING):
        raise OptionError(
            f"--window {window_s[0]:g}:{window_s[1]:g} reaches beyond the run, which ends at "
            f"{end_s:g} seconds ({format_seconds(end_s)}); take an END of at most {end_s:g}"
        )
    return window_s
