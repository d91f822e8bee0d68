"""A run as a trace that ui.perfetto.dev and chrome://tracing open.

A schedule is a process with one track per worker, and for each other lane of a device and the host
if they take time, and, if it has transfers, a second process with one track per link. A worker
whose device was slow or down has a track more, which says when. A step that takes time is a slice;
a free step is an instant. Arrows lead from a forward step to the backward step that used its
activation, and from there to the update that used the gradient; counters show instances in flight,
staleness, weight versions, bytes of stashed weights, what lies in each worker's memory, and loss.
Times are virtual, rounded to whole nanoseconds, which is what Perfetto keeps.

Of a dependency engine's run a track is a thread and a slice an operation; an arrow leads from the
operation whose end made another one ready to that one, if both take time.

Source: "Trace Event Format", Google, 2016; Perfetto's `json_utils.cc` for how times are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from itertools import count as counted
from pathlib import Path

import numpy as np

from ampsim.files import replacing
from ampsim.report.frames import (
    DataFrame,
    Integers,
    floats,
    hosts_in,
    integers,
    is_worker,
    owner_of,
    row_name,
    row_numbers,
    texts,
    thread_name,
)
from ampsim.report.perfetto.events import (
    Flows,
    FlowStep,
    InFlight,
    Place,
    arguments,
    in_microseconds,
    in_nanoseconds,
    link_events,
    loss_events,
    memory_events,
    metadata,
    outage_events,
    quoted,
    sliced,
    stash_events,
    update_events,
)
from ampsim.report.style import DIRECTIONS
from ampsim.report.words import IN_FULL, plain


@dataclass(frozen=True, slots=True)
class Trace:
    """The tables of one run; each pass asks for the chunks anew, so none need be kept.

    Attributes:
        name: of the schedule, a user's text.
        workers: how many workers the cluster has.
        spans, updates, stashes, transfers: give the trace's tables in chunks, in the order of the
            record, of time, of time, and of each link's starts.
        epochs: one row per epoch.
        devices: a device's name for each worker; empty where it is unknown.
        outages: when which device was not as usual; None where nobody says.
        memory: what lay in each worker's memory when; None likewise.
        dependencies: name, source and target, labels of two spans, drawn as arrows; only where
            `spans` gives one chunk.
    """

    name: str
    workers: int
    spans: Callable[[], Iterable[DataFrame]]
    updates: Callable[[], Iterable[DataFrame]]
    epochs: DataFrame
    stashes: Callable[[], Iterable[DataFrame]] = tuple
    transfers: Callable[[], Iterable[DataFrame]] = tuple
    devices: Sequence[str] = ()
    outages: DataFrame | None = None
    memory: DataFrame | None = None
    dependencies: DataFrame | None = None


@dataclass(frozen=True, slots=True)
class _Tracks:
    """Numbers of a schedule's two processes and of its tracks; no two share one."""

    pid: int  # of the schedule's process; schedules stand in this order
    links_pid: int  # of the process of its links
    first_tid: int  # of its first worker's track; the other workers' follow
    link_tids: Iterator[int]  # of tracks of links, outages, the host and other lanes
    row_name: Callable[[int], str]  # what a row that is no worker's own is called
    lane_tids: dict[int, int] = field(default_factory=dict[int, int])  # by rows

    def lanes_among(self, rows: Integers) -> Iterator[str]:
        """Names of tracks of rows that are no worker's own and have none yet."""
        for row in np.unique(rows).tolist():
            if not is_worker(row) and row not in self.lane_tids:
                self.lane_tids[row] = next(self.link_tids)
                yield from metadata("thread", self.place(row), self.row_name(row), owner_of(row))

    def place(self, row: int) -> str:
        """The process and the track of a row."""
        tid = self.first_tid + row if is_worker(row) else self.lane_tids[row]
        return f'"pid":{self.pid},"tid":{tid}'


def write_perfetto(traces: Sequence[Trace], path: str | Path, *, title: str = "") -> int:
    """Writes `traces` beside each other into one JSON file, whole or not at all.

    Memory does not grow with the spans, but for 16 bytes for each instance
    (`tests/benchmark/bench_perfetto.py`).

    Args:
        traces: one for each schedule; all begin at time 0.
        path: the file.
        title: name of the model and of the cluster, users' texts.

    Returns:
        How many spans were written.

    Raises:
        OutputError: the file cannot be written.
    """
    count, ids = 0, counted(1)
    with (
        replacing(path) as temporary,
        open(temporary, "w", encoding="ascii", newline="\n", buffering=1 << 20) as file,
    ):
        about = {"title": plain(title, IN_FULL), "source": "ampsim"}
        about["time"] = "virtual, whole nanoseconds"
        file.write(f'{{"displayTimeUnit":"ns","otherData":{arguments(about)},"traceEvents":[\n')
        first_tid, comma = 2 * len(traces) + 1, ""
        link_tids = counted(first_tid + sum(trace.workers for trace in traces))
        for pid, trace in enumerate(traces, 1):
            name = row_name if trace.dependencies is None else thread_name
            tracks = _Tracks(pid, len(traces) + pid, first_tid, link_tids, name)
            for lines, spans in _events(trace, tracks, ids):
                count += spans
                if lines:
                    file.write(comma)
                    file.write(",\n".join(lines))
                    comma = ",\n"
            first_tid += trace.workers
        file.write("\n]}\n")
    return count


def _events(trace: Trace, tracks: _Tracks, ids: Iterator[int]) -> Iterator[tuple[list[str], int]]:
    """Lines of one schedule, chunk by chunk, with how many spans are in them."""
    yield list(_metadata(trace, tracks)), 0
    nodes: set[str] = set()
    versions: dict[str, int] = {}
    for chunk in sliced(trace.updates()):
        nodes.update(texts(chunk, "node"))
        yield update_events(chunk, tracks.pid, versions), 0
    held: dict[str, int] = {}
    for chunk in sliced(trace.stashes()):
        yield stash_events(chunk, tracks.pid, held), 0
    yield loss_events(trace.epochs, tracks.pid), 0
    in_flight, flows, end_s = InFlight(), Flows(nodes, ids), 0.0
    for chunk in sliced(trace.spans()):
        in_flight.take(chunk)
        end_s = max(end_s, float(floats(chunk, "end_s").max(initial=0.0)))
        yield _steps(chunk, tracks, flows), len(chunk)
    yield _dependencies(trace, tracks, flows), 0
    for lines in in_flight.events(tracks.pid):
        yield lines, 0
    for lines in chain(_of_devices(trace, tracks, end_s), _transfers(trace, tracks)):
        yield lines, 0


def _of_devices(trace: Trace, tracks: _Tracks, end_s: float) -> Iterator[list[str]]:
    if trace.outages is not None and len(trace.outages):
        waits = np.array([kind.startswith("waits") for kind in texts(trace.outages, "kind")])
        for what, chosen in (("outages", trace.outages[~waits]), ("waits", trace.outages[waits])):
            yield from outage_events(chosen, tracks.pid, tracks.link_tids, end_s, what)
    if trace.memory is not None and len(trace.memory):
        yield from memory_events(trace.memory, tracks.pid)


def _transfers(trace: Trace, tracks: _Tracks) -> Iterator[list[str]]:
    """Lines of the links' process; none where there are no transfers."""
    if not any(len(chunk) for chunk in trace.transfers()):
        return
    pid, name = tracks.links_pid, f"{plain(trace.name)}: links"
    yield metadata("process", f'"pid":{pid}', name, 2 * tracks.pid + 1)
    yield from link_events(trace.transfers(), pid, tracks.link_tids, hosts_in(trace.spans()))


def _metadata(trace: Trace, tracks: _Tracks) -> Iterator[str]:
    """Names and order of the process and of its tracks, those of idle workers too."""
    yield from metadata("process", f'"pid":{tracks.pid}', plain(trace.name), 2 * tracks.pid)
    for worker in range(trace.workers):
        name = f"worker {worker}" if trace.dependencies is None else thread_name(worker)
        yield from metadata("thread", tracks.place(worker), name, worker)


def _steps(spans: DataFrame, tracks: _Tracks, flows: Flows) -> list[str]:
    start_s, end_s = floats(spans, "start_s"), floats(spans, "end_s")
    start_ns, end_ns = in_nanoseconds(start_s), in_nanoseconds(end_s)
    label = cache(_label)
    states = texts(spans, "state") if "state" in spans else [""] * len(spans)
    places = row_numbers(spans)
    lines = list(tracks.lanes_among(places))
    rows = zip(
        texts(spans, "node"), texts(spans, "direction"),
        places.tolist(), integers(spans, "instance").tolist(), states,
        integers(spans, "staleness").tolist(), _arguments(spans, states),
        (start_s == end_s).tolist(), in_microseconds((start_ns + end_ns) // 2),
        in_microseconds(start_ns), in_microseconds(end_ns - start_ns),
        strict=True,
    )  # fmt: skip
    for node, direction, worker, instance, state, age, said, free, middle, ts, dur in rows:
        place = tracks.place(worker)
        shape = '"ph":"i","s":"t"' if free else f'"ph":"X","dur":{dur!r}'
        lines.append(f'{{{shape},"ts":{ts!r},{place},{label(node, direction)},"args":{{{said}}}}}')
        if not free and is_worker(worker):
            flows.take(lines, FlowStep(node, direction, instance, state, age), (place, middle))
    return lines


def _arguments(spans: DataFrame, states: list[str]) -> list[str]:
    """Write the arguments of each slice, beside its name and times."""
    said = {one: f'"state":{quoted(plain(one, IN_FULL))},' if one else "" for one in set(states)}
    columns = (integers(spans, name).tolist() for name in ("flop", "bytes", "staleness"))
    return [
        f'{of}{said[state]}"flop":{flop},"bytes":{size}'
        + (f',"staleness":{age}' if age >= 0 else "")
        for of, state, flop, size, age in zip(_subjects(spans), states, *columns, strict=True)
    ]


def _label(node: str, direction: str) -> str:
    if direction in DIRECTIONS:
        name = f"{plain(node, IN_FULL)} {direction}"
    else:
        operation = plain(node, IN_FULL)
        name = f"{direction} {operation}" if direction in ("push", "dispatch") else operation
    return f'"name":{quoted(name)},"cat":{quoted(direction)}'


def _subjects(spans: DataFrame) -> list[str]:
    """Write the instance or the operation of each span, as arguments of its slice."""
    if "operation" not in spans:
        numbers = integers(spans, "instance").tolist()
        return [f'"instance":{one},' if one >= 0 else "" for one in numbers]
    named = (texts(spans, name) for name in ("waited_for", "variable"))
    columns = ([quoted(plain(one, IN_FULL)) for one in every] for every in named)
    return [
        f'"operation":{number},'
        + (f'"waited for":{one},"through":{variable},' if one != '""' else "")
        for number, one, variable in zip(
            integers(spans, "operation").tolist(), *columns, strict=True
        )
    ]


def _dependencies(trace: Trace, tracks: _Tracks, flows: Flows) -> list[str]:
    """Arrows from each operation to those that it made ready, where both take time."""
    if trace.dependencies is None:
        return []
    (spans,) = trace.spans()
    ends = [spans.loc[trace.dependencies[end]] for end in ("source", "target")]
    last = [floats(one, "end_s") > floats(one, "start_s") for one in ends]
    chosen = last[0] & last[1]
    tails, heads = (_middles(one[chosen], tracks) for one in ends)
    lines: list[str] = []
    for name, tail, head in zip(
        texts(trace.dependencies[chosen], "name"), tails, heads, strict=True
    ):
        flows.join(lines, plain(name, IN_FULL), tail, head)
    return lines


def _middles(spans: DataFrame, tracks: _Tracks) -> list[Place]:
    start_ns, end_ns = (in_nanoseconds(floats(spans, end)) for end in ("start_s", "end_s"))
    places = map(tracks.place, row_numbers(spans).tolist())
    return list(zip(places, in_microseconds((start_ns + end_ns) // 2), strict=True))
