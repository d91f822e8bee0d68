"""Counters of a trace: in flight, staleness, weight versions and stashed bytes of nodes, loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ampsim.report.frames import DataFrame, floats, integers, texts
from ampsim.report.perfetto.event_json import arguments, in_microseconds, in_nanoseconds, quoted
from ampsim.report.words import plain

_CHUNK_ROWS = 1 << 15


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
        for start in range(0, len(time_ns), _CHUNK_ROWS):
            part = slice(start, start + _CHUNK_ROWS)
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
