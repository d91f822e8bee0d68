"""The critical path: the longest chain of steps that had to wait for one another.

No device, however fast its neighbours, and no link could have made a run shorter than this without
changing a step on the path. A trace does not say which message led to which step, so dependence is
read off times and places:

* A step depends on an earlier step of its instance if the two nodes share a worker, or if a
  transfer between the two nodes started after the one and ended before the other; of several, the
  last counts, whichever instance it was for. Where no message between two workers ever took time,
  every earlier step on the one counts for the other. So branches of one instance that a worker
  served one after the other count as a chain: for graphs that are no chain, the path may be too
  long, but it is never longer than the run. Waiting for a link is not part of the path.
* A step that a worker merged with others counts for its share of the group's time, although what
  it sends waits for the whole group. So with grouping the path may be too short, never too long.
* Updates that the controller sends are barriers: all before, then the longest update, then all
  after. Instances between two barriers do not depend on each other, nor do a node's own updates.
* An instance comes from the host and returns there, and so does an update that it sends: each way
  counts with the least that any message to or from it took.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ampsim.trace.window import Window

_UPDATE: Final = 0
_BY_CONTROLLER: Final = -1
_ROUNDING: Final = 1e-12  # of the window: times are sums of rounded times


def critical_path_s(window: Window) -> float:
    """Return the length of the critical path in seconds; see this module's text for what it is."""
    spans, seconds = window.spans, window.seconds
    is_barrier = (spans["direction"] == _UPDATE) & (spans["instance"] == _BY_CONTROLLER)
    is_step = spans["instance"] != _BY_CONTROLLER
    order = np.lexsort((spans["end_s"], spans["start_s"]))
    begins = np.diff(is_barrier[order].astype(int), prepend=0) == 1
    segment = np.empty(len(order), int)
    segment[order] = np.cumsum(begins)
    host_s = window.pump_s + window.return_s
    ways = _Ways(window)
    longest_s = np.zeros(int(segment.max(initial=0)) + 1)
    key = np.stack([segment, spans["instance"]])
    for rows in _groups(key[:, is_step], np.flatnonzero(is_step)):
        chain_s = host_s + _chain_s(window, rows, ways)
        longest_s[segment[rows[0]]] = max(longest_s[segment[rows[0]]], chain_s)
    for rows in _groups(key[:, is_barrier], np.flatnonzero(is_barrier)):
        longest_s[segment[rows[0]] - 1] += host_s + float(seconds[rows].max())
    return float(longest_s.sum())


def _groups(key: np.ndarray, rows: np.ndarray) -> list[np.ndarray]:
    """Split `rows` by the columns of `key`, (2, rows)."""
    if not len(rows):
        return []
    order = np.lexsort(key)
    changes = np.flatnonzero((np.diff(key[:, order], axis=1) != 0).any(axis=0)) + 1
    return np.split(rows[order], changes)


class _Ways:
    """How a step of one node can lead to a step of another."""

    def __init__(self, window: Window) -> None:
        places, sent = window.places, window.transfers
        joined = np.zeros((window.workers + 2, window.workers + 2), bool)
        joined[places[sent["source"]], places[sent["target"]]] = True
        self._slack_s = _ROUNDING * window.end_s
        self.is_free = not len(sent["source"])
        self._is_instant = ~joined[np.ix_(places, places)]  # (nodes, nodes)
        self._sent: dict[int, dict[int, np.ndarray]] = {}  # by target, by source: (2, transfers)
        pairs = np.stack([sent["source"], sent["target"]])
        for group in _groups(pairs, np.arange(len(sent["source"]))):
            rows = group[np.argsort(sent["end_s"][group], kind="stable")]
            of_target = self._sent.setdefault(int(sent["target"][rows[0]]), {})
            times = np.stack([sent["start_s"][rows], sent["end_s"][rows]])
            of_target[int(sent["source"][rows[0]])] = times

    def lags_s(
        self, nodes: np.ndarray, end_s: np.ndarray, target: int, start_s: float
    ) -> np.ndarray:
        """Seconds under way from each earlier step to one of `target` at `start_s`.

        Args:
            nodes: of the earlier steps.
            end_s: when they ended.
            target: a node.
            start_s: when it began.

        Returns:
            A lag for each earlier step; infinite where it cannot have led there.
        """
        slack_s = self._slack_s
        is_before = self._is_instant[nodes, target] & (end_s <= start_s)
        lags_s = np.where(is_before, 0.0, np.inf)
        for source, (starts_s, ends_s) in self._sent.get(target, {}).items():
            last = int(np.searchsorted(ends_s, start_s, side="right")) - 1
            if last >= 0:
                is_sender = (nodes == source) & (end_s <= starts_s[last] + slack_s)
                lags_s[is_sender] = ends_s[last] - starts_s[last]
        return lags_s


def _chain_s(window: Window, rows: np.ndarray, ways: _Ways) -> float:
    """Return the longest chain among the spans `rows`, all of one instance."""
    if ways.is_free:  # then spans that take no time join nothing that is not joined anyway
        rows = rows[window.seconds[rows] > 0]
    start_s, end_s = window.spans["start_s"][rows], window.spans["end_s"][rows]
    order = np.lexsort((end_s, start_s))
    start_s, end_s = start_s[order] + _ROUNDING * window.end_s, end_s[order]
    seconds, nodes = window.seconds[rows][order], window.spans["node"][rows][order]
    chain_s = seconds.copy()
    for place in range(1, len(rows)):
        lags_s = ways.lags_s(nodes[:place], end_s[:place], int(nodes[place]), start_s[place])
        chain_s[place] += np.where(np.isfinite(lags_s), chain_s[:place] + lags_s, 0.0).max()
    return float(chain_s.max(initial=0.0))
