"""Numbers as the tables show them that stand for results and forecasts in a notebook."""

from __future__ import annotations

import math
from typing import Any

from ampsim.units import UNKNOWN, format_rate


def known(value: Any) -> float | None:
    """A number, or None where it is None or NaN."""
    return None if value is None or math.isnan(value) else float(value)


def rate_text(per_s: float | None) -> str:
    """A rate whose unit stands in the heading."""
    return format_rate(per_s).removesuffix("/s").rstrip()


def count_text(value: Any) -> str:
    """A whole number with all its digits, another one with three."""
    number = known(value)
    return UNKNOWN if number is None else f"{number:,.3g}" if number % 1 else f"{number:,.0f}"
