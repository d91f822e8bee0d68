"""The nodes that each worker hosts, as a trace records them, and their names in few words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from ampsim.report.frames import DataFrame, floats, integers, texts
from ampsim.report.words import plain
from ampsim.trace import COMPUTE_LANE, LANES

Hosts: TypeAlias = Mapping[int, Sequence[str]]
"""The nodes of each worker, those that work for longest first."""


def hosts_in(frames: Iterable[DataFrame]) -> Hosts:
    """The nodes of each worker that has a span in any of these frames.

    The mapping is empty where two frames place a node on different workers: no name then fits all
    rows.
    """
    busy_s: dict[str, float] = {}
    places: dict[str, int] = {}
    for spans in map(_computed, frames):
        nodes, place = np.unique(np.asarray(texts(spans, "node"), np.str_), return_inverse=True)
        seconds = np.bincount(place, floats(spans, "end_s") - floats(spans, "start_s"), len(nodes))
        worker = np.zeros(len(nodes), dtype=np.int64)
        worker[place] = integers(spans, "worker")
        for node, its_s, where in zip(
            nodes.tolist(), seconds.tolist(), worker.tolist(), strict=True
        ):
            if places.setdefault(node, where) != where:
                return {}
            busy_s[node] = busy_s.get(node, 0.0) + its_s
    found: dict[int, list[str]] = {}
    for node in sorted(busy_s, key=lambda name: -busy_s[name]):
        found.setdefault(places[node], []).append(node)
    return found


def _computed(spans: DataFrame) -> DataFrame:
    """What workers compute, without the host and other lanes."""
    is_host = spans["worker"] < 0
    if "lane" in spans:
        return spans[~is_host & (spans["lane"] == LANES[COMPUTE_LANE])]
    return spans[~is_host] if bool(is_host.any()) else spans


def some_of(nodes: Sequence[str], longest: int = 28) -> str:
    """As many of the names as fit, at least the first, and the count of the others.

    >>> some_of(["linear-1", "relu-1", "loss"]), some_of(["linear-1", "relu-1", "loss"], 16)
    ('linear-1, relu-1, loss', 'linear-1 +2')
    """
    names = [plain(node, longest) for node in nodes]
    for count in range(len(names), 0, -1):
        more = f" +{len(names) - count}" if count < len(names) else ""
        said = ", ".join(names[:count]) + more
        if len(said) <= longest or count == 1:
            return said
    return ""
