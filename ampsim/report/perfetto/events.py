"""Events of a Perfetto trace as JSON: arrows between steps, counters, links, and outages.

Slices of one track must nest, but with latency several messages of a link are on their way at
once: the link then has as many tracks, lanes, as there are messages on it at the busiest moment.
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, repeat
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from pandas import Series

from ampsim.errors import OptionError
from ampsim.report.frames import (
    DataFrame,
    Floats,
    Hosts,
    Integers,
    floats,
    integers,
    row_name,
    texts,
    under_way,
)
from ampsim.report.words import IN_FULL, plain

CHUNK_ROWS: Final = 1 << 15  # chosen: 30 MB of lines at most
LONGEST_S: Final = 9e9
"""Seconds in nearly 2^63 nanoseconds, the longest time in 64 bits."""


def quoted(text: str) -> str:
    r"""A JSON string in ASCII, without "<", which a browser could read as HTML.

    >>> print(quoted('<b> "ä"'))
    "\u003cb> \"\u00e4\""
    """
    return json.dumps(text).replace("<", "\\u003c")


def arguments(values: Mapping[str, Any]) -> str:
    """A JSON object of texts and numbers; numbers that are not finite are left out.

    >>> arguments({"mean": 0.5, "loss": float("nan")})
    '{"mean":0.5}'
    """
    known = {
        key: value
        for key, value in values.items()
        if not isinstance(value, float) or math.isfinite(value)
    }
    return json.dumps(known, separators=(",", ":")).replace("<", "\\u003c")


def metadata(place: str, what: str, values: Mapping[str, Any]) -> str:
    """An event that names or orders a process or a track.

    >>> metadata('"pid":1', "process_name", {"name": "amp"})
    '{"ph":"M","pid":1,"name":"process_name","args":{"name":"amp"}}'
    """
    return f'{{"ph":"M",{place},"name":"{what}","args":{arguments(values)}}}'


def track_names(pid: int, tid: int, name: str, order: int) -> Iterator[str]:
    """Name and order of a track."""
    place = f'"pid":{pid},"tid":{tid}'
    yield metadata(place, "thread_name", {"name": name})
    yield metadata(place, "thread_sort_index", {"sort_index": order})


def in_nanoseconds(time_s: Floats) -> Integers:
    """Times in whole nanoseconds; rounding keeps their order.

    Raises:
        OptionError: a time is too long for the format.
    """
    if time_s.max(initial=0.0) >= LONGEST_S:
        raise OptionError(
            f"a trace for Perfetto counts nanoseconds and ends before {LONGEST_S:.1e} s, got a "
            f"step at {float(time_s.max()):.3g} s; take another format, such as .html"
        )
    return np.rint(time_s * 1e9).astype(np.int64)


def in_microseconds(time_ns: Integers) -> list[float]:
    """Times in microseconds; Perfetto multiplies them by 1000 and cuts the fraction off.

    Where the cut would lose a nanosecond, the time is the next larger number.

    >>> in_microseconds(np.array([16_001, 2_000]))
    [16.001, 2.0]
    """
    time_us = time_ns / 1000.0
    is_cut = np.trunc(time_us * 1000.0) < time_ns
    return np.where(is_cut, np.nextafter(time_us, np.inf), time_us).tolist()


def times_us(table: DataFrame) -> list[float]:
    """Column time_s in microseconds."""
    return in_microseconds(in_nanoseconds(floats(table, "time_s")))


Place: TypeAlias = tuple[str, float]
"""Track of a slice, as it stands in the file, and a time inside it in µs."""

_WAITING_MAX = 1 << 16  # chosen: more than any schedule has in flight; validation never comes back


class FlowStep(NamedTuple):
    """A step, as an arrow needs it; `state` is the message's, in words."""

    node: str
    direction: str
    instance: int
    state: str
    staleness: int


class Flows:
    """Joins steps as they come; an arrow is written when its head is known, so none hangs.

    A node keeps an activation under its message's state, so a backward step used that of the
    forward step with the same node, instance and state. Of several such forward steps, whose states
    differ in what the trace does not keep, the last is taken. The causes that the trace has do not
    tell: a gradient's is the step that sent it, which is another node's.
    """

    def __init__(self) -> None:
        """Start without arrows."""
        self._next_id = 1
        self._nodes: Collection[str] = ()
        self._forwards: OrderedDict[tuple[str, int], dict[str, list[Place]]] = OrderedDict()
        self._gradients: dict[tuple[str, str], list[Place]] = {}  # by node and track: ranks' copies

    def start(self, nodes: Collection[str]) -> None:
        """Begin another schedule, in which `nodes` have updates; others get no arrows."""
        self._nodes = nodes
        self._forwards.clear()
        self._gradients.clear()

    def take(self, lines: list[str], step: FlowStep, place: Place) -> None:
        """Add a step; append the arrows that end there."""
        if step.node not in self._nodes:
            return
        if step.direction == "forward":
            waiting = self._forwards.setdefault((step.node, step.instance), {})
            waiting.setdefault(step.state, []).append(place)
            if len(self._forwards) > _WAITING_MAX:
                self._forwards.popitem(last=False)
        elif step.direction == "update":
            for gradient in self._gradients.pop((step.node, place[0]), ()):
                self.join(lines, "gradient", gradient, place)
        elif step.staleness >= 0:
            self._gradients.setdefault((step.node, place[0]), []).append(place)
            activation = self._activation_of(step)
            if activation:
                self.join(lines, "activation", activation, place)

    def join(self, lines: list[str], name: str, tail: Place, head: Place) -> None:
        """Append an arrow of that name."""
        common = f'"id":{self._next_id},"name":{quoted(name)},"cat":"flow"'
        self._next_id += 1
        for shape, (track, time_us) in (('"ph":"s"', tail), ('"ph":"f","bp":"e"', head)):
            lines.append(f'{{{shape},{track},"ts":{time_us!r},{common}}}')

    def _activation_of(self, step: FlowStep) -> Place | None:
        """The forward step whose activation a backward step used; None where it is unknown."""
        of = step.node, step.instance
        waiting = self._forwards.get(of, {})
        places = waiting.get(step.state)
        if not places:
            return None
        found = places.pop()
        if not places:
            del waiting[step.state]
        if not waiting:
            del self._forwards[of]
        return found


@dataclass(slots=True)
class SliceTracks:
    """The tracks of a lane, and the end of each one's last slice."""

    tids: list[int] = field(default_factory=list[int])
    free_at_ns: list[int] = field(default_factory=list[int])

    def track(self, start_ns: int, end_ns: int, tids: Iterator[int]) -> int:
        """The first lane that is free at `start_ns`, a new one if none is; it is then taken."""
        for lane, free_at_ns in enumerate(self.free_at_ns):
            if free_at_ns <= start_ns:
                self.free_at_ns[lane] = end_ns
                return self.tids[lane]
        self.free_at_ns.append(end_ns)
        self.tids.append(next(tids))
        return self.tids[-1]

    def names(self, pid: int, name: str, order: Iterator[int]) -> Iterator[str]:
        """Name and order of each lane's track."""
        for lane, tid in enumerate(self.tids, 1):
            several = f", lane {lane}" if len(self.tids) > 1 else ""
            yield from track_names(pid, tid, f"{name}{several}", next(order))


class InFlight:
    """Instances in flight: start of the first and end of the last step of each, in 16 bytes."""

    def __init__(self) -> None:
        """Start with no instance."""
        self._first_ns = np.empty(0, dtype=np.int64)
        self._last_ns = np.empty(0, dtype=np.int64)

    def take(self, spans: DataFrame) -> None:
        """Add a chunk of spans."""
        counted = under_way(spans)
        if not len(counted):
            return
        instance = integers(counted, "instance")
        self._grow(int(instance.max()) + 1)
        np.minimum.at(self._first_ns, instance, in_nanoseconds(floats(counted, "start_s")))
        np.maximum.at(self._last_ns, instance, in_nanoseconds(floats(counted, "end_s")))

    def events(self, pid: int) -> Iterator[list[str]]:
        """Lines of the counter, one for each change."""
        is_there = self._last_ns >= 0
        time_ns = np.concatenate([self._first_ns[is_there], self._last_ns[is_there]])
        changes: Any = Series(np.repeat([1, -1], len(time_ns) // 2), index=time_ns)
        levels = changes.groupby(level=0).sum().cumsum()
        for start in range(0, len(levels), CHUNK_ROWS):
            part = levels.iloc[start : start + CHUNK_ROWS]
            times = in_microseconds(part.index.to_numpy())
            yield [
                _counter(pid, '"in flight"', time_us, {"instances": count})
                for time_us, count in zip(times, part.tolist(), strict=True)
            ]

    def _grow(self, count: int) -> None:
        missing = count - len(self._first_ns)
        if missing > 0:
            room = max(missing, len(self._first_ns) // 8)  # grows by an eighth: few copies
            never = np.full(room, np.iinfo(np.int64).max)
            self._first_ns = np.concatenate([self._first_ns, never])
            self._last_ns = np.concatenate([self._last_ns, np.full(room, -1)])


def update_events(updates: DataFrame, pid: int, versions: dict[str, int]) -> list[str]:
    """Counters of each update of a chunk: staleness of its gradients, and the node's updates.

    `versions` are updates of each node until now; they are counted on.
    """
    lines: list[str] = []
    for node, time_us, mean, most in zip(
        texts(updates, "node"), times_us(updates), floats(updates, "staleness").tolist(),
        integers(updates, "staleness_max").tolist(), strict=True,
    ):  # fmt: skip
        versions[node] = versions.get(node, 0) + 1
        stale, version = (quoted(f"{of} {plain(node, IN_FULL)}") for of in ("staleness", "version"))
        lines.append(_counter(pid, stale, time_us, {"mean": mean, "max": most}))
        lines.append(_counter(pid, version, time_us, {"updates": versions[node]}))
    return lines


def stash_events(stashes: DataFrame, pid: int, held: dict[str, int]) -> list[str]:
    """Counters of stashed bytes: old versions of a node's weights, and those of all nodes.

    Each change has the bytes from then on; `held` are those of each node, kept up to date.
    """
    times, sizes = times_us(stashes), integers(stashes, "bytes").tolist()
    lines: list[str] = []
    total = sum(held.values())
    for node, time_us, size in zip(texts(stashes, "node"), times, sizes, strict=True):
        total += size - held.get(node, 0)
        held[node] = size
        name = quoted(f"stashed weights {plain(node, IN_FULL)}")
        lines.append(_counter(pid, name, time_us, {"bytes": size}))
        lines.append(_counter(pid, '"stashed weights"', time_us, {"bytes": total}))
    return lines


def loss_events(epochs: DataFrame, pid: int) -> list[str]:
    """Loss of each epoch, at its end; none where it is unknown, as in mode sleep."""
    losses = {"training": floats(epochs, "loss"), "validation": floats(epochs, "valid_loss")}
    lines: list[str] = []
    for row, time_us in enumerate(times_us(epochs)):
        known = {name: float(loss[row]) for name, loss in losses.items() if np.isfinite(loss[row])}
        if known:
            lines.append(_counter(pid, '"loss"', time_us, known))
    return lines


def _counter(pid: int, name: str, time_us: float, values: dict[str, Any]) -> str:
    return f'{{"ph":"C","pid":{pid},"ts":{time_us!r},"name":{name},"args":{arguments(values)}}}'


class Links:
    """Slices of one run's transfers, in a process of their own."""

    def __init__(self, pid: int, hosts: Hosts, tids: Iterator[int]) -> None:
        """Start with no link in a process that nothing else has; each of `tids` is given once."""
        self._pid, self._hosts, self._tids = pid, hosts, tids
        self._links: dict[tuple[int, int], SliceTracks] = {}

    def events(self, transfers: Iterable[DataFrame]) -> Iterator[list[str]]:
        """Lines of all transfers in these chunks, then the names of the tracks."""
        yield from map(self._slices, sliced(transfers))
        order = count()
        yield [
            line
            for ends, link in sorted(self._links.items(), key=lambda one: one[0])
            for line in link.names(self._pid, " → ".join(map(self._words, ends)), order)
        ]

    def _slices(self, transfers: DataFrame) -> list[str]:
        start_ns = in_nanoseconds(floats(transfers, "start_s"))
        end_ns = in_nanoseconds(floats(transfers, "end_s"))
        labels: dict[tuple[str, ...], tuple[str, str]] = {}
        lines: list[str] = []
        rows = zip(
            self._names_and_ends(transfers),
            integers(transfers, "source_worker").tolist(),
            integers(transfers, "target_worker").tolist(),
            integers(transfers, "bytes").tolist(), start_ns.tolist(), end_ns.tolist(),
            in_microseconds(start_ns), in_microseconds(end_ns - start_ns),
            strict=True,
        )  # fmt: skip
        for named, sender, receiver, size, begin, end, ts, dur in rows:
            if named not in labels:
                labels[named] = _label(*named)
            label, ends = labels[named]
            link = self._links.setdefault((sender, receiver), SliceTracks())
            tid = link.track(begin, end, self._tids)
            shape = f'"ph":"X","dur":{dur!r}' if end > begin else '"ph":"i","s":"t"'
            place = f'"pid":{self._pid},"tid":{tid}'
            lines.append(
                f'{{{shape},"ts":{ts!r},{place},{label},"args":{{{ends},"bytes":{size}}}}}'
            )
        return lines

    def _names_and_ends(self, transfers: DataFrame) -> Iterator[tuple[str, str, str]]:
        """Name of each transfer and its two ends: nodes, or workers where an operation sends."""
        if "operation" in transfers:
            ends = (integers(transfers, f"{end}_worker").tolist() for end in ("source", "target"))
            for name, source, target in zip(texts(transfers, "node"), *ends, strict=True):
                yield plain(name, IN_FULL), self._words(source), self._words(target)
            return
        nodes = (texts(transfers, end) for end in ("source", "target"))
        for source, target in zip(*nodes, strict=True):
            source, target = plain(source, IN_FULL), plain(target, IN_FULL)
            yield f"{source} → {target}", source, target

    def _words(self, worker: int) -> str:
        return row_name(worker, self._hosts)


def _label(name: str, source: str, target: str) -> tuple[str, str]:
    ends = f'"source":{quoted(source)},"target":{quoted(target)}'
    return f'"name":{quoted(name)},"cat":"transfer"', ends


_BEHIND: Final = 1 << 20
"""Added to a worker's number for the order of its track of outages: these come behind workers."""


def outage_events(
    outages: DataFrame, pid: int, tids: Iterator[int], end_s: float, what: str = "outages"
) -> Iterator[list[str]]:
    """Lines of the times in which devices were slow or down, a track for each such worker.

    Times that overlap, as slow ones may, have tracks of their own.

    Args:
        outages: rows of `Result.outages`.
        pid: the schedule's process.
        tids: of tracks, each given once.
        end_s: end of the run; what lasts longer is cut there.
        what: the tracks are of.
    """
    lanes: dict[int, SliceTracks] = {}
    rows = outages[floats(outages, "start_s") < end_s].sort_values("start_s", kind="stable")
    start_ns = in_nanoseconds(floats(rows, "start_s"))
    end_ns = in_nanoseconds(floats(rows, "end_s").clip(max=end_s))
    lost = np.nan_to_num(floats(rows, "updates_lost")).astype(int).tolist()
    lines: list[str] = []
    for kind, updates, worker, begin, end, ts, dur in zip(
        texts(rows, "kind"), lost, integers(rows, "worker").tolist(), start_ns.tolist(),
        end_ns.tolist(), in_microseconds(start_ns), in_microseconds(end_ns - start_ns), strict=True,
    ):  # fmt: skip
        name = quoted(plain(f"{kind}, {updates} updates lost" if updates else kind))
        tid = lanes.setdefault(worker, SliceTracks()).track(begin, end, tids)
        lines.append(
            f'{{"ph":"X","dur":{dur!r},"ts":{ts!r},"pid":{pid},"tid":{tid},"name":{name},'
            f'"cat":"{what.removesuffix("s")}"}}'
        )
    for start in range(0, len(lines), CHUNK_ROWS):
        yield lines[start : start + CHUNK_ROWS]
    yield [
        line
        for worker in sorted(lanes)
        for line in lanes[worker].names(pid, f"worker {worker}: {what}", repeat(_BEHIND + worker))
    ]


def memory_events(memory: DataFrame, pid: int) -> Iterator[list[str]]:
    """Lines of a counter for each worker: bytes in its memory, by category.

    Each is the fullest moment of a stretch of time, as in `Result.memory`.
    """
    categories = [str(name) for name in memory.columns if name not in ("worker", "time_s", "bytes")]
    for chunk in sliced([memory]):
        parts = {name: integers(chunk, name).tolist() for name in categories}
        workers = integers(chunk, "worker").tolist()
        owners = ("the host" if worker < 0 else f"worker {worker}" for worker in workers)
        yield [
            _counter(
                pid, f'"memory of {owner}"', time_us, {name: parts[name][row] for name in parts}
            )
            for row, (owner, time_us) in enumerate(zip(owners, times_us(chunk), strict=True))
        ]


def sliced(chunks: Iterable[DataFrame]) -> Iterator[DataFrame]:
    """Cut rows into chunks that are no longer than what is written at once."""
    for chunk in chunks:
        for start in range(0, len(chunk), CHUNK_ROWS):
            yield chunk[start : start + CHUNK_ROWS]
