"""Axes with units: the SI prefix for a range of seconds or of rates."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """Plotted value = (value - origin) · factor, labelled with `unit`."""

    factor: float
    unit: str
    origin: float = 0.0

    def label(self, quantity: str) -> str:
        """Label of an axis: quantity, unit, and time of zero unless that is the start."""
        if self.origin == 0.0:
            return f"{quantity} ({self.unit})"
        return f"{quantity} after {self.origin:.9g} s ({self.unit})"


_TIME: tuple[tuple[float, str], ...] = ((1.0, "s"), (1e3, "ms"), (1e6, "µs"), (1e9, "ns"))
_RATE: tuple[tuple[float, str], ...] = ((1e-9, "G/s"), (1e-6, "M/s"), (1e-3, "k/s"), (1.0, "1/s"))
_FAR = 100.0  # chosen: from here on, ticks counted from time 0 would need too many digits


def time_scale(start_s: float, end_s: float) -> Scale:
    """Unit for a window of time: the largest of s, ms, µs, ns in which it is 1 unit long or more.

    >>> time_scale(0.0, 4.2e-6).unit, time_scale(0.0, 12.0).unit
    ('µs', 's')
    """
    length_s = end_s - start_s
    factor, unit = _first_filling(_TIME, length_s)
    origin = start_s if start_s > _FAR * length_s else 0.0
    return Scale(factor, unit, origin)


def rate_scale(highest_per_s: float) -> Scale:
    """Unit for an axis of rates that ends near `highest_per_s`.

    >>> rate_scale(2.1e6).unit
    'M/s'
    """
    return Scale(*_first_filling(_RATE, highest_per_s))


def _first_filling(units: tuple[tuple[float, str], ...], extent: float) -> tuple[float, str]:
    if not math.isfinite(extent) or extent <= 0.0:
        return 1.0, "s" if units is _TIME else "1/s"
    return next((pair for pair in units if extent * pair[0] >= 0.9999), units[-1])
