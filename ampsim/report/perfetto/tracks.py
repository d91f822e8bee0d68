"""Tracks of a Perfetto trace beside the workers': devices, links, counters.

Slices of one track must nest, but with latency several messages of a link are on their way at
once: the link then has as many tracks, lanes, as there are messages on it at the busiest moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import numpy as np

from ampsim.report.frames import DataFrame, Hosts, floats, integers, some_of, texts
from ampsim.report.perfetto.event_json import (
    arguments,
    in_microseconds,
    in_nanoseconds,
    quoted,
    track_names,
)
from ampsim.report.words import plain


@dataclass(slots=True)
class SliceTracks:
    """Of each lane the track, and the end of its last slice."""

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


_COUNTER_ROWS = 1 << 15


class InFlight:
    """Instances in flight: start of the first and end of the last step of each, in 16 bytes."""

    def __init__(self) -> None:
        """Start with no instance."""
        self._first_ns = np.empty(0, dtype=np.int64)
        self._last_ns = np.empty(0, dtype=np.int64)

    def take(self, spans: DataFrame) -> None:
        """Add a chunk of spans; updates do not keep an instance in flight."""
        direction = np.asarray(spans["direction"], dtype=np.str_)
        instance = integers(spans, "instance")
        counted = (direction != "update") & (instance >= 0)
        instance = instance[counted]
        if not len(instance):
            return
        self._grow(int(instance.max()) + 1)
        np.minimum.at(self._first_ns, instance, in_nanoseconds(floats(spans, "start_s")[counted]))
        np.maximum.at(self._last_ns, instance, in_nanoseconds(floats(spans, "end_s")[counted]))

    def events(self, pid: int) -> Iterator[list[str]]:
        """Lines of the counter, one for each change."""
        is_there = self._last_ns >= 0
        time_ns = np.concatenate([self._first_ns[is_there], self._last_ns[is_there]])
        step = np.repeat([1, -1], len(time_ns) // 2)
        order = np.argsort(time_ns, kind="stable")
        time_ns, level = time_ns[order], np.cumsum(step[order])
        is_last = np.append(time_ns[1:] != time_ns[:-1], True)[: len(time_ns)]
        time_ns, level = time_ns[is_last], level[is_last]
        for start in range(0, len(time_ns), _COUNTER_ROWS):
            part = slice(start, start + _COUNTER_ROWS)
            times = in_microseconds(time_ns[part])
            yield [
                _counter(pid, '"in flight"', time_us, {"instances": count})
                for time_us, count in zip(times, level[part].tolist(), strict=True)
            ]

    def _grow(self, count: int) -> None:
        missing = count - len(self._first_ns)
        if missing > 0:
            room = max(missing, len(self._first_ns) // 8)  # grows by an eighth: few copies
            never = np.full(room, np.iinfo(np.int64).max)
            self._first_ns = np.concatenate([self._first_ns, never])
            self._last_ns = np.concatenate([self._last_ns, np.full(room, -1)])


def update_events(updates: DataFrame, pid: int, versions: dict[str, int]) -> list[str]:
    """Counters of each update: staleness of its gradients, and the count of the node's updates.

    Args:
        updates: a chunk of updates.
        pid: the schedule's process.
        versions: updates of each node until now; counted on.
    """
    times = in_microseconds(in_nanoseconds(floats(updates, "time_s")))
    means = floats(updates, "staleness").tolist()
    highest = integers(updates, "staleness_max").tolist()
    lines: list[str] = []
    for node, time_us, mean, most in zip(
        texts(updates, "node"), times, means, highest, strict=True
    ):
        versions[node] = versions.get(node, 0) + 1
        stale, version = quoted(f"staleness {plain(node)}"), quoted(f"version {plain(node)}")
        lines.append(_counter(pid, stale, time_us, {"mean": mean, "max": most}))
        lines.append(_counter(pid, version, time_us, {"updates": versions[node]}))
    return lines


def stash_events(stashes: DataFrame, pid: int, held: dict[str, int]) -> list[str]:
    """Counters of stashed bytes: old versions of a node's weights, and those of all nodes.

    Args:
        stashes: a chunk of changes, each with the bytes from then on.
        pid: the schedule's process.
        held: bytes of each node until now; kept up to date.
    """
    times = in_microseconds(in_nanoseconds(floats(stashes, "time_s")))
    sizes = integers(stashes, "bytes").tolist()
    lines: list[str] = []
    total = sum(held.values())
    for node, time_us, size in zip(texts(stashes, "node"), times, sizes, strict=True):
        total += size - held.get(node, 0)
        held[node] = size
        name = quoted(f"stashed weights {plain(node)}")
        lines.append(_counter(pid, name, time_us, {"bytes": size}))
        lines.append(_counter(pid, '"stashed weights"', time_us, {"bytes": total}))
    return lines


def loss_events(epochs: DataFrame, pid: int) -> list[str]:
    """Loss of each epoch, at its end; none where it is unknown, as in mode sleep."""
    times = in_microseconds(in_nanoseconds(floats(epochs, "time_s")))
    losses = {"training": floats(epochs, "loss"), "validation": floats(epochs, "valid_loss")}
    lines: list[str] = []
    for row, time_us in enumerate(times):
        known = {name: float(loss[row]) for name, loss in losses.items() if np.isfinite(loss[row])}
        if known:
            lines.append(_counter(pid, '"loss"', time_us, known))
    return lines


def _counter(pid: int, name: str, time_us: float, values: dict[str, Any]) -> str:
    return f'{{"ph":"C","pid":{pid},"ts":{time_us!r},"name":{name},"args":{arguments(values)}}}'


_LINK_ROWS: Final = 1 << 15


@dataclass(slots=True)
class _LinkTracks:
    """A directed pair of workers: its name and its lanes."""

    words: str
    lanes: SliceTracks = field(default_factory=SliceTracks)


class Links:
    """Slices of one run's transfers, in a process of their own."""

    def __init__(self, pid: int, hosts: Hosts, tids: Iterator[int]) -> None:
        """Start with no link.

        Args:
            pid: the process, which nothing else has.
            hosts: the nodes of each worker.
            tids: numbers for tracks, each given once.
        """
        self._pid, self._hosts, self._tids = pid, hosts, tids
        self._links: dict[tuple[int, int], _LinkTracks] = {}

    def events(self, transfers: Iterable[DataFrame]) -> Iterator[list[str]]:
        """Lines of all transfers in these chunks, then the names of the tracks."""
        for chunk in transfers:
            for start in range(0, len(chunk), _LINK_ROWS):
                yield self._slices(chunk[start : start + _LINK_ROWS])
        yield list(self._names())

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
            tid = self._link(sender, receiver).lanes.track(begin, end, self._tids)
            shape = f'"ph":"X","dur":{dur!r}' if end > begin else '"ph":"i","s":"t"'
            place = f'"pid":{self._pid},"tid":{tid}'
            lines.append(
                f'{{{shape},"ts":{ts!r},{place},{label},"args":{{{ends},"bytes":{size}}}}}'
            )
        return lines

    def _names_and_ends(self, transfers: DataFrame) -> Iterator[tuple[str, str, str]]:
        """Name of each transfer and its two ends: nodes, or workers where an operation sends."""
        if "node" in transfers:
            ends = (integers(transfers, f"{end}_worker").tolist() for end in ("source", "target"))
            for name, source, target in zip(texts(transfers, "node"), *ends, strict=True):
                yield plain(name, 200), self._words(source), self._words(target)
            return
        nodes = (texts(transfers, end) for end in ("source", "target"))
        for source, target in zip(*nodes, strict=True):
            yield f"{plain(source)} → {plain(target)}", plain(source), plain(target)

    def _link(self, sender: int, receiver: int) -> _LinkTracks:
        """The link between two workers, or a worker and the host."""
        ends = sender, receiver
        if ends not in self._links:
            self._links[ends] = _LinkTracks(" → ".join(map(self._words, ends)))
        return self._links[ends]

    def _words(self, worker: int) -> str:
        if worker < 0:
            return "host"
        nodes = some_of(self._hosts.get(worker, ()))
        return f"worker {worker} ({nodes})" if nodes else f"worker {worker}"

    def _names(self) -> Iterator[str]:
        """Names and order of the tracks, by sender, receiver and lane."""
        order = count()
        for _ends, link in sorted(self._links.items()):
            for lane, tid in enumerate(link.lanes.tids, 1):
                name = link.words if len(link.lanes.tids) == 1 else f"{link.words}, lane {lane}"
                yield from track_names(self._pid, tid, name, next(order))


def _label(name: str, source: str, target: str) -> tuple[str, str]:
    """Name and category of a slice, and its two ends as arguments."""
    ends = f'"source":{quoted(source)},"target":{quoted(target)}'
    return f'"name":{quoted(name)},"cat":"transfer"', ends


_DEVICE_ROWS: Final = 1 << 15
_NO_CATEGORY: Final = ("worker", "time_s", "bytes")
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
    order = np.argsort(floats(outages, "start_s"), kind="stable")
    start_s = floats(outages, "start_s")[order]
    is_there = start_s < end_s
    order, start_s = order[is_there], start_s[is_there]
    start_ns = in_nanoseconds(start_s)
    end_ns = in_nanoseconds(floats(outages, "end_s")[order].clip(max=end_s))
    kinds: list[str] = texts(outages, "kind")
    workers: list[int] = integers(outages, "worker")[order].tolist()
    lost = np.nan_to_num(floats(outages, "updates_lost"))
    names = [quoted(plain(_name(kinds[int(place)], int(lost[place])))) for place in order]
    lines: list[str] = []
    for name, worker, begin, end, ts, dur in zip(
        names, workers, start_ns.tolist(), end_ns.tolist(),
        in_microseconds(start_ns), in_microseconds(end_ns - start_ns), strict=True,
    ):  # fmt: skip
        tid = lanes.setdefault(worker, SliceTracks()).track(begin, end, tids)
        lines.append(
            f'{{"ph":"X","dur":{dur!r},"ts":{ts!r},"pid":{pid},"tid":{tid},"name":{name},'
            f'"cat":"{what.removesuffix("s")}"}}'
        )
    for start in range(0, len(lines), _DEVICE_ROWS):
        yield lines[start : start + _DEVICE_ROWS]
    yield [line for worker, one in sorted(lanes.items()) for line in _names(worker, one, pid, what)]


def _names(worker: int, lanes: SliceTracks, pid: int, what: str) -> Iterator[str]:
    for lane, tid in enumerate(lanes.tids, 1):
        name = f"worker {worker}: {what}" + (f", lane {lane}" if len(lanes.tids) > 1 else "")
        yield from track_names(pid, tid, name, _BEHIND + worker)


def _name(kind: str, updates: int) -> str:
    """What a slice is called: the kind, and what was lost."""
    return f"{kind}, {updates} updates lost" if updates else kind


def _owner(worker: int) -> str:
    return "the host" if worker < 0 else f"worker {worker}"


def memory_events(memory: DataFrame, pid: int) -> Iterator[list[str]]:
    """Lines of a counter for each worker: bytes in its memory, by category.

    Each is the fullest moment of a stretch of time, as in `Result.memory`.
    """
    categories = [str(name) for name in memory.columns if name not in _NO_CATEGORY]
    for start in range(0, len(memory), _DEVICE_ROWS):
        chunk = memory[start : start + _DEVICE_ROWS]
        times = in_microseconds(in_nanoseconds(floats(chunk, "time_s")))
        parts = {name: integers(chunk, name).tolist() for name in categories}
        yield [
            f'{{"ph":"C","pid":{pid},"ts":{time_us!r},"name":"memory of {_owner(worker)}",'
            f'"args":{arguments({name: one[row] for name, one in parts.items()})}}}'
            for row, (worker, time_us) in enumerate(
                zip(integers(chunk, "worker").tolist(), times, strict=True)
            )
        ]
