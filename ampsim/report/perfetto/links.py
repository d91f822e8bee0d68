"""Tracks of a trace for transfers: one track for each directed pair of workers.

Slices of one track must nest, but with latency several messages of a link are on their way at
once: the link then has as many tracks, lanes, as there are messages on it at the busiest moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from ampsim.report.frames import DataFrame, floats, integers, texts
from ampsim.report.hosts import Hosts, some_of
from ampsim.report.perfetto.event_json import in_microseconds, in_nanoseconds, quoted, track_names
from ampsim.report.perfetto.lanes import Lanes
from ampsim.report.words import plain

_CHUNK_ROWS: Final = 1 << 15


@dataclass(slots=True)
class _Link:
    """A directed pair of workers: its name and its lanes."""

    words: str
    lanes: Lanes = field(default_factory=Lanes)


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
        self._links: dict[tuple[int, int], _Link] = {}

    def events(self, transfers: Iterable[DataFrame]) -> Iterator[list[str]]:
        """Lines of all transfers in these chunks, then the names of the tracks."""
        for chunk in transfers:
            for start in range(0, len(chunk), _CHUNK_ROWS):
                yield self._slices(chunk[start : start + _CHUNK_ROWS])
        yield list(self._names())

    def _slices(self, transfers: DataFrame) -> list[str]:
        start_ns = in_nanoseconds(floats(transfers, "start_s"))
        end_ns = in_nanoseconds(floats(transfers, "end_s"))
        labels: dict[tuple[str, str], tuple[str, str]] = {}
        lines: list[str] = []
        rows = zip(
            texts(transfers, "source"), texts(transfers, "target"),
            integers(transfers, "source_worker").tolist(),
            integers(transfers, "target_worker").tolist(),
            integers(transfers, "bytes").tolist(), start_ns.tolist(), end_ns.tolist(),
            in_microseconds(start_ns), in_microseconds(end_ns - start_ns),
            strict=True,
        )  # fmt: skip
        for source, target, sender, receiver, size, begin, end, ts, dur in rows:
            if (source, target) not in labels:
                labels[source, target] = _label(plain(source), plain(target))
            label, ends = labels[source, target]
            tid = self._link(sender, receiver).lanes.track(begin, end, self._tids)
            shape = f'"ph":"X","dur":{dur!r}' if end > begin else '"ph":"i","s":"t"'
            place = f'"pid":{self._pid},"tid":{tid}'
            lines.append(
                f'{{{shape},"ts":{ts!r},{place},{label},"args":{{{ends},"bytes":{size}}}}}'
            )
        return lines

    def _link(self, sender: int, receiver: int) -> _Link:
        """The link between two workers, or a worker and the host."""
        ends = sender, receiver
        if ends not in self._links:
            self._links[ends] = _Link(" → ".join(map(self._words, ends)))
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


def _label(source: str, target: str) -> tuple[str, str]:
    """Name and category of a slice, and its two ends as arguments."""
    ends = f'"source":{quoted(source)},"target":{quoted(target)}'
    return f'"name":{quoted(f"{source} → {target}")},"cat":"transfer"', ends
