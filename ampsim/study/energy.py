"""Joules and dollars of a run, where the files of all its devices have the numbers.

A device takes its idle power all the time, and what its busy power is more while a step occupies
it; a step that a pause or a stop holds up takes none more meanwhile. Links and hosts take none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

HOUR_S: Final = 3600.0
UPKEEP: Final = ("idle_power_w", "busy_power_w", "price_usd_per_h")
"""Keys of a device that say what its time takes."""


def energy_j(groups: Sequence[Mapping[str, Any]], busy_s: np.ndarray, makespan_s: float) -> float:
    """Sum over workers of idle power x makespan + (busy - idle power) x busy time; NaN unknown.

    Args:
        groups: workers in a row with what they have in common, as in a manifest.
        busy_s: per worker, the seconds in which a step occupies it and it is up.
        makespan_s: of the run.
    """
    idle_w, busy_w = (_by_worker(groups, key) for key in ("idle_power_w", "busy_power_w"))
    if len(idle_w) != len(busy_s):
        return math.nan
    return float((idle_w * makespan_s + (busy_w - idle_w) * busy_s).sum())


def cost_usd(groups: Sequence[Mapping[str, Any]], makespan_s: float) -> float:
    """Sum over workers of price x makespan, busy or idle; NaN where a price is unknown."""
    price_usd_per_h = _by_worker(groups, "price_usd_per_h")
    return float(price_usd_per_h.sum()) * makespan_s / HOUR_S if len(price_usd_per_h) else math.nan


def _by_worker(groups: Sequence[Mapping[str, Any]], key: str) -> np.ndarray:
    """A number of each worker; NaN where its device's file does not say."""
    return np.array([one.get(key, math.nan) for one in groups for _ in range(one["workers"])])
