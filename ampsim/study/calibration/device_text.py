"""A device file from what a calibration found: each number with its source, ready to be read."""

from __future__ import annotations

import math
from typing import Any

from ampsim.study.calibration.fit import (
    Calibration,
    Fitted,
    median_error,
    rank_correlation,
)
from ampsim.toml_text import to_toml

DIGITS = 4
"""Significant digits of a fitted number in a file (chosen: far more than its interval has)."""


def device_text(found: Calibration) -> str:
    """The device file, as TOML."""
    file = found.table.file
    content: dict[str, Any] = {"name": file.name, "description": file.description or None}
    sources: dict[str, Any] = {}
    for key, value in found.device.numbers.items():
        fitted = next((one for one in found.fitted if one.key == key), None)
        content[key] = value if fitted is None else rounded(value)
        sources[key] = _known(found) if fitted is None else _source(found, fitted)
    return to_toml({**content, "sources": sources})


def rounded(value: float) -> float:
    """The value as a file has it.

    >>> rounded(22311940386.76)
    22310000000.0
    """
    return float(f"{value:.{DIGITS - 1}e}")


def _known(found: Calibration) -> dict[str, str]:
    return {"kind": "assumed", "text": f"given, not fitted, in {_name(found)}"}


def _source(found: Calibration, fitted: Fitted) -> dict[str, Any]:
    seen, unseen = found.seen, found.unseen
    interval = "no interval, for no number is left over"
    if not math.isnan(fitted.low):
        interval = f"95 % interval {fitted.low:.3g} to {fitted.high:.3g}"
    text = (
        f"fitted to {len(seen)} published numbers, {_listed(found)}: {interval}; simulated over "
        f"published, less 1: median {median_error(seen):.1%} in size"
    )
    if unseen:
        text += (
            f", {median_error(unseen):.1%} over numbers that the fit did not see ({len(unseen)})"
        )
    if not math.isnan(rank := rank_correlation(unseen)):
        text += f", rank correlation {rank:.2f}"
    if fitted.is_at_bound:
        text += "; held by a bound of the file"
    told: dict[str, Any] = {
        "kind": "fitted",
        "text": f"{text}; ampsim calibrate table {_name(found)}",
    }
    return told | ends(fitted.value, fitted.low, fitted.high)


def ends(value: float, low: float, high: float) -> dict[str, float]:
    """The ends of an interval as a file has them; none where they are unknown, or one number.

    They hold the number also where all three are rounded.

    >>> ends(2.0, 1.00004, 3.0), ends(2.0, math.nan, math.nan), ends(2.0, 2.00001, 2.00002)
    ({'low': 1.0, 'high': 3.0}, {}, {})
    """
    if math.isnan(low) or rounded(low) >= rounded(high):
        return {}
    return {"low": min(rounded(low), rounded(value)), "high": max(rounded(high), rounded(value))}


def _listed(found: Calibration) -> str:
    """The rows that the fit saw, with where they stand."""
    rows = {point.label: point.source for point in found.seen}
    sources = dict.fromkeys(rows.values())
    return f"{'; '.join(rows)} ({'; '.join(sources)})"


def _name(found: Calibration) -> str:
    return f"{found.table.label.replace(chr(92), '/').rpartition('/')[2]}"
