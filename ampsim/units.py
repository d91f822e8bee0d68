"""Quantities as people read them: three significant digits and a unit; unknown is a dash."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

UNKNOWN = "\N{EN DASH}"
"""What stands where a value is None or NaN."""

SECONDS: Final = {
    "ps": 1e-12, "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0,
    "min": 60.0, "h": 3600.0,
}  # fmt: skip
"""Units of time that people write behind a number; both letters for micro."""

_DECIMAL = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"), (1e-12, "ps"))
_MINUTES_FROM_S = 120.0
_HOURS_FROM_S = 7200.0


def format_seconds(seconds: float | None) -> str:
    """Duration in ps, ns, µs, ms or s; from 120 s on in minutes, from 120 minutes on in hours.

    >>> [format_seconds(s) for s in (0, 1.3e-12, 6.55e-6, 9.996e-4, 0.0123, 5.15, 72, 119.4)]
    ['0 s', '1.30 ps', '6.55 µs', '1.00 ms', '12.3 ms', '5.15 s', '72.0 s', '119 s']
    >>> [format_seconds(s) for s in (120, 1000, 7200, 36e4)]
    ['2.00 min', '16.7 min', '2.00 h', '100 h']
    >>> format_seconds(None) == format_seconds(float("nan")) == UNKNOWN
    True
    """
    if seconds is not None and _HOURS_FROM_S <= abs(seconds) < math.inf:
        return f"{_digits(seconds / 3600)} h"
    if seconds is not None and _MINUTES_FROM_S <= abs(seconds) < math.inf:
        return f"{_digits(seconds / 60)} min"
    return _scaled(seconds, _SECONDS, zero="0 s")


def format_rate(per_s: float | None) -> str:
    """Throughput per second.

    >>> [format_rate(r) for r in (268_123, 13_000, 102.4, 0.5, 0)]
    ['268 k/s', '13.0 k/s', '102 /s', '0.500 /s', '0 /s']
    """
    return _scaled(per_s, tuple((scale, f"{prefix}/s") for scale, prefix in _DECIMAL), zero="0 /s")


def format_flop(flop: float | None) -> str:
    """Work, a count of floating-point operations.

    >>> [format_flop(n) for n in (0, 7, 6_553_600, 1e12)]
    ['0 FLOP', '7 FLOP', '6.55 MFLOP', '1.00 TFLOP']
    """
    return _count(flop, "FLOP")


def format_bytes(size_bytes: float | None) -> str:
    """Size in decimal multiples: a kB is 1000 bytes.

    >>> [format_bytes(n) for n in (0, 999, 51_200, 139e9)]
    ['0 B', '999 B', '51.2 kB', '139 GB']
    """
    return _count(size_bytes, "B")


_MOST_DIGITS: Final = 7
"""Digits that a number has before the point at most; longer ones have an exponent (chosen)."""


def format_count(value: float) -> str:
    """A number without a prefix: whole if it is whole, else three digits, or all before the point.

    >>> [format_count(x) for x in (7.0, 10.5, 2.3456, 999.95, -4862.7, 1.23e9 + 0.5, 1.6e-7)]
    ['7', '10.5', '2.35', '1000', '-4863', '1.23e+09', '1.6e-07']
    """
    if math.isnan(value):
        return UNKNOWN
    is_whole = value % 1 == 0 or 999.5 <= abs(value) < 10**_MOST_DIGITS
    return f"{value:.0f}" if is_whole else f"{value:.3g}"


_LEAST_SHARE: Final = 1e-4
"""Fraction below which a share is only called smaller (chosen: nobody acts on its digits)."""

NO_CHANGE: Final = 1e-6
"""Relative difference below which two times are called equal (chosen: nobody acts on it)."""


def format_percent(fraction: float | None) -> str:
    """A fraction of one, in percent; one above nothing but below 1e-4 as no more than that.

    >>> [format_percent(x) for x in (0.97, 0.9731, 1, 0.00123, 1e-6, 0)]
    ['97.0 %', '97.3 %', '100 %', '0.123 %', '< 0.01 %', '0 %']
    """
    if fraction is not None and 0 < fraction < _LEAST_SHARE:
        return f"< {100 * _LEAST_SHARE:g} %"
    scaled = None if fraction is None else 100 * fraction
    return _scaled(scaled, ((1.0, "%"),), zero="0 %")


def format_change(share: float) -> str:
    """A change as a share of what there was, in percent with its sign; empty where it is unknown.

    >>> [format_change(x) for x in (0.973, -0.5, 1e-12, -1e-5, math.nan)]
    ['+97.3 %', '-50.0 %', '0 %', '< 0.01 %', '']
    """
    if math.isnan(share):
        return ""
    if abs(share) < NO_CHANGE:
        return "0 %"
    size = format_percent(abs(share))
    return size if size.startswith("<") else f"{'+' if share > 0 else '-'}{size}"


_COUNTED: Final = {"flop": "FLOP", "bytes": "bytes", "functions": "1", "usd": "USD"}
_MEASURED: Final = {"_s": "s", "_bytes": "bytes", "_w": "W"}


def unit_of(key: str) -> str:
    """The unit that a key's name ends with; empty of a count.

    >>> unit_of("device.flop_per_s"), unit_of("latency_s"), unit_of("workers")
    ('FLOP/s', 's', '')
    """
    counted, per, time = key.rpartition("_per_")
    if per:
        unit = _COUNTED.get(re.split(r"[._]", counted)[-1])
        return f"{unit}/{time}" if unit else ""
    return next((unit for end, unit in _MEASURED.items() if key.endswith(end)), "")


def product_unit(units: Iterable[tuple[str, str]]) -> str:
    """The unit of a product of units, each behind "*" or "/".

    >>> product_unit([("*", "J"), ("/", "s")]), product_unit([("/", "1/s"), ("*", "")])
    ('J s^-1', 's')
    >>> product_unit([("*", "s"), ("/", "s")])
    'a number'
    """
    powers = Counter[str]()
    for sign, unit in ((sign, unit) for sign, unit in units if unit):
        powers[unit.removeprefix("1/")] += 1 if (sign == "*") != unit.startswith("1/") else -1
    words = [unit if of == 1 else f"{unit}^{of}" for unit, of in sorted(powers.items()) if of]
    return " ".join(words) or "a number"


_SHOW: Final[Mapping[str, Callable[[Any], str]]] = {
    "s": format_seconds, "bytes": format_bytes,
    "FLOP/s": lambda value: f"{format_flop(value)}/s",
    "bytes/s": lambda value: f"{format_bytes(value)}/s",
}  # fmt: skip
"""How a number with some units is written."""


def format_as(unit: str, value: float) -> str:
    """A number with its unit; a count as it is.

    >>> format_as("FLOP/s", 1e12), format_as("W", 250.0), format_as("", 4)
    ('1.00 TFLOP/s', '250 W', '4')
    """
    if unit in _SHOW:
        return _SHOW[unit](value)
    return f"{value:.4g} {unit}".strip() if isinstance(value, float) else str(value)


def _count(number: float | None, unit: str) -> str:
    """A count: exact where it is a whole number below 1000, else with a decimal prefix."""
    if number is not None and abs(number) < 1000 and number == int(number):
        return f"{int(number)} {unit}"
    units = tuple((scale, f"{prefix}{unit}") for scale, prefix in _DECIMAL)
    return _scaled(number, units, zero=f"0 {unit}")


def _scaled(number: float | None, units: tuple[tuple[float, str], ...], *, zero: str) -> str:
    """`number` in the largest of `units` (largest first) that it reaches, else in the smallest."""
    if number is None or math.isnan(number):
        return UNKNOWN
    if math.isinf(number):
        return "∞" if number > 0 else "-∞"
    if number == 0:
        return zero
    reached = (unit for unit in units if _rounded(abs(number)) >= unit[0])
    scale, name = next(reached, units[-1])
    return f"{_digits(number / scale)} {name}"


def _rounded(number: float) -> float:
    """`number` to three significant digits, so that 999.6 µs is called 1.00 ms."""
    return float(f"{number:.2e}")


def _digits(number: float) -> str:
    """Three significant digits, trailing zeros kept, an exponent only below 1e-4."""
    rounded = _rounded(number)
    return f"{rounded:.0f}" if abs(rounded) >= 100 else f"{rounded:#.3g}"
