"""Sums over the spans of a trace, chunk by chunk, for which it need not be kept."""

from __future__ import annotations

from typing import Final

import numpy as np

from ampsim.trace.kinds import COMPUTE_LANE
from ampsim.trace.table import Columns

DIRECTIONS: Final = ("update", "backward", "forward")
"""Names of the codes of a span's direction."""

LANE_STEP: Final = 8
"""More than there are lanes."""

_SPARSE: Final = 16
"""Keys for each row of a chunk, above which they are sorted (chosen: then sums would be longer)."""


class Summary:
    """Running totals of a trace; takes each chunk of spans once.

    What workers compute is summed up by worker, node and direction; what the host and other lanes
    than that of computing do, is not among it.

    Attributes:
        messages: messages served, updates among them.
        lane_s: of the host and of other lanes, seconds of service by (worker, lane).
        worked_s: seconds of service, (workers, directions), those as in `DIRECTIONS`.
        spent: of each (node, worker, direction), how many steps took time, and their seconds; under
            a solver a node has copies on several workers. Messages merged into one step are one.
        staleness: per node, {staleness in updates: count of gradients}; a merge of several nodes'
            gradients counts each of them.
        in_flight_max: per node, the most forward steps whose backward had not run; the engine
            counts them, for nodes with parameters.
        stashed_bytes_max: likewise, the most bytes of weights other than the latest.
        group_sizes: per node, {messages merged into one step: count of such steps}; the engine
            counts them, where it merges any.
    """

    def __init__(self, nodes: int, workers: int) -> None:
        self.messages = 0
        self.worked_s = np.zeros((workers, len(DIRECTIONS)))
        self.spent: dict[tuple[int, int, int], tuple[int, float]] = {}
        self.lane_s: dict[tuple[int, int], float] = {}
        self.end_s = 0.0
        self.flop = 0
        self.staleness: dict[int, dict[int, int]] = {}
        self._merged_at: int | None = None
        self.update_count = np.zeros(nodes, np.int64)
        self.in_flight_max: dict[int, int] = {}
        self.stashed_bytes_max: dict[int, int] = {}
        self.group_sizes: dict[int, dict[int, int]] = {}

    def grow(self, nodes: int) -> None:
        """Sum up for so many nodes from now on."""
        more = nodes - len(self.update_count)
        self.update_count = np.pad(self.update_count, (0, more))

    def count_merged(self, centre: int) -> None:
        """Count the staleness of spans of `centre` by the updates, which are all made there.

        Its spans merge gradients of several nodes, and have the most staleness of these.
        """
        self._merged_at = centre

    def __call__(self, spans: Columns) -> None:
        """Add one chunk of spans."""
        self.end_s = max(self.end_s, float(spans["end_s"].max()))
        if spans["lane"].any() or spans["worker"].min() < 0:
            spans = self._without_lanes(spans)
        duration_s = spans["end_s"] - spans["start_s"]
        self.messages += len(duration_s)
        cell = spans["worker"] * len(DIRECTIONS) + spans["direction"]
        sums_s = np.bincount(cell, weights=duration_s, minlength=self.worked_s.size)
        self.worked_s += sums_s.reshape(self.worked_s.shape)
        self._add_nodes(spans["node"].astype(np.int64), cell, duration_s)
        self.flop += int(spans["flop"].sum())
        if self._merged_at is None:
            self._add_staleness(spans["node"], spans["staleness"])

    def take_whole(self, spans: Columns, updates: Columns, centre: int | None) -> None:
        """Add all spans and updates of a run; spans of gradients at `centre` are merges."""
        if centre is not None and (spans["staleness"][spans["node"] == centre] >= 0).any():
            self.count_merged(centre)
        self(spans)
        self.take_updates(updates)

    def _without_lanes(self, spans: Columns) -> Columns:
        """Return what workers compute, of a chunk; the rest is summed up by itself."""
        worker, lane = spans["worker"].astype(np.int64), spans["lane"]
        is_own = (lane == COMPUTE_LANE) & (worker >= 0)
        key = (worker * LANE_STEP + lane)[~is_own]
        lasting_s = (spans["end_s"] - spans["start_s"])[~is_own]
        places, number = np.unique(key, return_inverse=True)
        sums_s = np.bincount(number, weights=lasting_s, minlength=len(places))
        for place, seconds in zip(places.tolist(), sums_s.tolist(), strict=True):
            of = divmod(place, LANE_STEP)
            self.lane_s[of] = self.lane_s.get(of, 0.0) + seconds
        return {name: column[is_own] for name, column in spans.items()}

    def _add_nodes(self, node: np.ndarray, cell: np.ndarray, duration_s: np.ndarray) -> None:
        lasts = duration_s > 0
        number, keys = (node * self.worked_s.size + cell)[lasts], None
        if number.max(initial=0) > _SPARSE * len(number):  # sorting takes 20 times as long
            keys, number = np.unique(number, return_inverse=True)
        sums_s, counts = np.bincount(number, weights=duration_s[lasts]), np.bincount(number)
        there = np.flatnonzero(counts)
        parts = there if keys is None else keys, counts[there], sums_s[there]
        for key, count, seconds in zip(*(one.tolist() for one in parts), strict=True):
            place, rest = divmod(key, self.worked_s.size)
            of = place, *divmod(rest, len(DIRECTIONS))
            steps, spent_s = self.spent.get(of, (0, 0.0))
            self.spent[of] = steps + count, spent_s + seconds

    def _add_staleness(self, node: np.ndarray, staleness: np.ndarray) -> None:
        is_gradient = staleness >= 0
        if not is_gradient.any():
            return
        node, staleness = node[is_gradient].astype(np.int64), staleness[is_gradient]
        values = int(staleness.max()) + 1
        found, counts = np.unique(node * values + staleness, return_counts=True)
        for pair, count in zip(found.tolist(), counts.tolist(), strict=True):
            of_node = self.staleness.setdefault(pair // values, {})
            of_node[pair % values] = of_node.get(pair % values, 0) + count

    def take_updates(self, updates: Columns) -> None:
        """Add one chunk of updates."""
        self.update_count += np.bincount(updates["node"], minlength=len(self.update_count))
        if self._merged_at is not None:
            node = np.full(len(updates["node"]), self._merged_at)
            self._add_staleness(node, updates["staleness"].astype(np.int64))

    def count_group(self, place: tuple[int, int, int], size: int, lasting: int) -> None:
        """Add one step at (node, worker, direction) of `size` messages, `lasting` of which last.

        Their spans count as a step each, whenever they come.
        """
        of_node = self.group_sizes.setdefault(place[0], {})
        of_node[size] = of_node.get(size, 0) + 1
        steps, spent_s = self.spent.get(place, (0, 0.0))
        if lasting > 1:
            self.spent[place] = steps - (lasting - 1), spent_s

    @property
    def busy_s(self) -> np.ndarray:
        """Seconds of service, per worker."""
        return self.worked_s.sum(axis=1)

    @property
    def staleness_mean(self) -> float:
        """Mean staleness over all gradients; NaN where there was none."""
        counts = [(s, n) for of_node in self.staleness.values() for s, n in of_node.items()]
        total = sum(n for _s, n in counts)
        return sum(s * n for s, n in counts) / total if total else float("nan")

    @property
    def staleness_max(self) -> int | None:
        """Largest staleness of any gradient; None where there was none."""
        return max((s for of_node in self.staleness.values() for s in of_node), default=None)
