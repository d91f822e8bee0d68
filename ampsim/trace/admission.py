"""The admission limit: how long the busiest part idles because no more may be in flight."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from ampsim.trace.window import Window

Limit: TypeAlias = "int | tuple[np.ndarray, np.ndarray]"
"""How many may be in flight: one number, or (from which moments on, how many), ascending."""


def starved_s(
    window: Window, busy_s: tuple[np.ndarray, np.ndarray], max_active_keys: Limit
) -> float:
    """Return the seconds in which some part idles and admission could be why.

    That is while as many instances are in flight as may be, or while all workers idle. An instance
    is in flight from its first step to its last, and before and after that for the least that any
    message took from and to the host; an instance that waits for its first step counts from there
    only.

    Args:
        window: the time looked at.
        busy_s: from when to when the part, a worker or a link, was busy.
        max_active_keys: how many instances may be in flight.
    """
    spans = window.spans
    takes_time = window.seconds > 0
    first_s, last_s = _lives(window)
    from_s, limits = _steps(max_active_keys)
    intervals = [
        busy_s,
        (spans["start_s"][takes_time], spans["end_s"][takes_time]),
        (first_s, last_s),
        (from_s, from_s),
    ]
    times, counts = _counts(intervals, window.end_s)
    works, some_work, alive, _limit = counts[:, :-1]
    limit = limits[np.maximum(np.searchsorted(from_s, times[:-1], side="right") - 1, 0)]
    is_starved = (works == 0) & ((some_work == 0) | (alive >= limit))
    return float(np.diff(times)[is_starved].sum())


def _steps(limit: Limit) -> tuple[np.ndarray, np.ndarray]:
    return (np.zeros(1), np.array([limit])) if isinstance(limit, int) else limit


def _lives(window: Window) -> tuple[np.ndarray, np.ndarray]:
    """Return when each instance came into flight, and when it was done."""
    is_step = window.spans["instance"] >= 0
    _instances, place = np.unique(window.spans["instance"][is_step], return_inverse=True)
    first_s = np.full(len(_instances), np.inf)
    last_s = np.zeros(len(_instances))
    np.minimum.at(first_s, place, window.spans["start_s"][is_step])
    np.maximum.at(last_s, place, window.spans["end_s"][is_step])
    return first_s - window.pump_s, last_s + window.return_s


def _counts(
    intervals: list[tuple[np.ndarray, np.ndarray]], end_s: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the moments at which a count changes, and the counts from each moment on.

    Args:
        intervals: starts and ends, of each kind that is counted.
        end_s: the last moment; the first is 0.

    Returns:
        Moments (moments,) ascending, and counts (kinds, moments).
    """
    times, changes = [np.array([0.0, end_s])], [np.zeros((len(intervals), 2), int)]
    for kind, (starts, ends) in enumerate(intervals):
        for moments, change in ((starts, 1), (ends, -1)):
            times.append(np.clip(moments, 0.0, end_s))
            of_kind = np.zeros((len(intervals), len(moments)), int)
            of_kind[kind] = change
            changes.append(of_kind)
    joined = np.concatenate(times)
    order = np.argsort(joined, kind="stable")
    return joined[order], np.cumsum(np.concatenate(changes, axis=1)[:, order], axis=1)
