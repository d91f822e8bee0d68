"""Events of a Perfetto trace as JSON: arrows between steps, counters, links, and outages.

Slices of one track must nest, but with latency several messages of a link are on their way at
once: the link then has as many tracks, lanes, as there are messages on it at the busiest moment.
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from itertools import count
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
    rows,
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


def metadata(kind: str, place: str, name: str, order: int) -> list[str]:
    """Events that name and order a "process" or a "thread", which is a track.

    >>> metadata("process", '"pid":1', "amp", 2)[0]
    '{"ph":"M","pid":1,"name":"process_name","args":{"name":"amp"}}'
    """
    return [
        f'{{"ph":"M",{place},"name":"{kind}_{what}","args":{arguments(values)}}}'
        for what, values in (("name", {"name": name}), ("sort_index", {"sort_index": order}))
    ]


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

    def __init__(self, nodes: Collection[str], ids: Iterator[int]) -> None:
        """Start without arrows, of which only `nodes`, which have updates, get some."""
        self._nodes, self._ids = nodes, ids
        self._forwards: OrderedDict[tuple[str, int], dict[str, list[Place]]] = OrderedDict()
        self._gradients: dict[tuple[str, str], list[Place]] = {}  # by node and track: ranks' copies

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
        common = f'"id":{next(self._ids)},"name":{quoted(name)},"cat":"flow"'
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


class Slices:
    """Slices of a process, by keys; a key has as many tracks, lanes, as overlap at most."""

    def __init__(self, pid: int, tids: Iterator[int]) -> None:
        """Start with no track; each of `tids` is given once."""
        self._pid, self._tids = pid, tids
        self._free_at_ns: dict[Any, dict[int, int]] = {}  # by key: the end of each track's last one

    def lines(
        self, frame: DataFrame, keys: Iterable[Any], labels: Iterable[str], *, instants: bool
    ) -> list[str]:
        """A slice, or, if told so, an instant of what takes no time, for each row of a frame."""
        start_ns, end_ns = (in_nanoseconds(floats(frame, end)) for end in ("start_s", "end_s"))
        times = in_microseconds(start_ns), in_microseconds(end_ns - start_ns)
        lines: list[str] = []
        for key, label, begin, end, ts, dur in zip(
            keys, labels, start_ns.tolist(), end_ns.tolist(), *times, strict=True
        ):
            free_at_ns = self._free_at_ns.setdefault(key, {})
            tid = next((tid for tid, free_ns in free_at_ns.items() if free_ns <= begin), None)
            if tid is None:
                tid = next(self._tids)
            free_at_ns[tid] = end
            shape = '"ph":"i","s":"t"' if instants and end == begin else f'"ph":"X","dur":{dur!r}'
            lines.append(f'{{{shape},"ts":{ts!r},"pid":{self._pid},"tid":{tid},{label}}}')
        return lines

    def names(self, named: Callable[[Any], str], order: Callable[[Any], int]) -> list[str]:
        """Name and order of each track, by its key."""
        lines: list[str] = []
        for key, tids in sorted(self._free_at_ns.items(), key=lambda one: one[0]):
            for lane, tid in enumerate(tids, 1):
                name = named(key) + (f", lane {lane}" if len(tids) > 1 else "")
                lines += metadata("thread", f'"pid":{self._pid},"tid":{tid}', name, order(key))
        return lines


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
        missing = int(instance.max()) + 1 - len(self._first_ns)
        if missing > 0:
            room = 0, max(missing, len(self._first_ns) // 8)  # grows by an eighth: few copies
            never = np.iinfo(np.int64).max
            self._first_ns = np.pad(self._first_ns, room, constant_values=never)
            self._last_ns = np.pad(self._last_ns, room, constant_values=-1)
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


def _counter(pid: int, name: str, time_us: float, values: Mapping[str, Any]) -> str:
    return f'{{"ph":"C","pid":{pid},"ts":{time_us!r},"name":{name},"args":{arguments(values)}}}'


def link_events(
    transfers: Iterable[DataFrame], pid: int, tids: Iterator[int], hosts: Hosts
) -> Iterator[list[str]]:
    """Lines of a run's transfers, in a process of their own, then the names of the tracks."""

    def words(worker: int) -> str:
        return row_name(worker, hosts)

    links, order = Slices(pid, tids), count()
    for chunk in sliced(transfers):
        label = cache(_label)  # of a chunk, as operations may all have names of their own
        ends = [integers(chunk, f"{end}_worker").tolist() for end in ("source", "target")]
        if "operation" in chunk:  # has a name, and a worker sends it
            named = zip(*([*map(words, end)] for end in ends), texts(chunk, "node"), strict=True)
        else:
            named = zip(texts(chunk, "source"), texts(chunk, "target"), strict=True)
        sizes = integers(chunk, "bytes").tolist()
        labels = (f'{label(*one)},"bytes":{size}}}' for one, size in zip(named, sizes, strict=True))
        yield links.lines(chunk, zip(*ends, strict=True), labels, instants=True)
    yield links.names(lambda ends: " → ".join(map(words, ends)), lambda _ends: next(order))


def _label(source: str, target: str, name: str | None = None) -> str:
    """Name of a transfer, its category and the ends of it; the name is of these unless given."""
    source, target = plain(source, IN_FULL), plain(target, IN_FULL)
    name = f"{source} → {target}" if name is None else plain(name, IN_FULL)
    ends = f'"source":{quoted(source)},"target":{quoted(target)}'
    return f'"name":{quoted(name)},"cat":"transfer","args":{{{ends}'


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
    shown = outages[floats(outages, "start_s") < end_s].sort_values("start_s", kind="stable")
    shown = shown.assign(end_s=floats(shown, "end_s").clip(max=end_s))
    lost = np.nan_to_num(floats(shown, "updates_lost")).astype(int).tolist()
    named = [
        quoted(plain(f"{kind}, {updates} updates lost" if updates else kind))
        for kind, updates in zip(texts(shown, "kind"), lost, strict=True)
    ]
    labels = [f'"name":{name},"cat":"{what.removesuffix("s")}"' for name in named]
    slices = Slices(pid, tids)
    lines = slices.lines(shown, integers(shown, "worker").tolist(), labels, instants=False)
    for start in range(0, len(lines), CHUNK_ROWS):
        yield lines[start : start + CHUNK_ROWS]
    yield slices.names(lambda worker: f"worker {worker}: {what}", lambda worker: _BEHIND + worker)


def memory_events(memory: DataFrame, pid: int) -> Iterator[list[str]]:
    """Lines of a counter for each worker: bytes in its memory, by category.

    Each is the fullest moment of a stretch of time, as in `Result.memory`.
    """
    categories = [name for name in memory.columns if name not in ("worker", "time_s", "bytes")]
    for chunk in sliced([memory]):
        owners = [f"worker {one}" if one >= 0 else "the host" for one in integers(chunk, "worker")]
        held = rows(chunk[categories].astype(int))
        yield [
            _counter(pid, f'"memory of {owner}"', time_us, sizes)
            for owner, time_us, sizes in zip(owners, times_us(chunk), held, strict=True)
        ]


def sliced(chunks: Iterable[DataFrame]) -> Iterator[DataFrame]:
    """Cut rows into chunks that are no longer than what is written at once."""
    for chunk in chunks:
        for start in range(0, len(chunk), CHUNK_ROWS):
            yield chunk[start : start + CHUNK_ROWS]
