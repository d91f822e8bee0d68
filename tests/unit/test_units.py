"""Quantities as people read them."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from ampsim import units

FORMATS = [
    units.format_seconds,
    units.format_rate,
    units.format_flop,
    units.format_bytes,
    units.format_percent,
]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("unknown", [None, math.nan])
def test_unknown_is_a_dash_and_never_zero(
    form: Callable[[float | None], str], unknown: float | None
) -> None:
    assert form(unknown) == units.UNKNOWN == chr(0x2013)


@pytest.mark.parametrize("form", FORMATS)
def test_infinity_has_a_sign_and_no_unit(form: Callable[[float | None], str]) -> None:
    assert (form(math.inf), form(-math.inf)) == ("∞", "-∞")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (-0.0, "0 s"),
        (2e-10, "200 ps"),
        (6.5536e-6, "6.55 µs"),
        (9.994e-7, "999 ns"),
        (9.996e-7, "1.00 µs"),
        (9.996e-4, "1.00 ms"),
        (0.9996, "1.00 s"),
        (5.15, "5.15 s"),
        (99.96, "100 s"),
        (119.4, "119 s"),
        (119.6, "120 s"),
        (120, "2.00 min"),
        (7199, "120 min"),
        (7200, "2.00 h"),
        (4e6, "1110 h"),
        (-0.25, "-250 ms"),
        (-300, "-5.00 min"),
    ],
)
def test_seconds_change_unit_where_the_rounded_value_does(seconds: float, text: str) -> None:
    assert units.format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("per_s", "text"),
    [(999.4, "999 /s"), (999.6, "1.00 k/s"), (268_123, "268 k/s"), (1e-6, "1.00e-06 /s")],
)
def test_rates_have_three_digits_and_a_prefix(per_s: float, text: str) -> None:
    assert units.format_rate(per_s) == text


def test_counts_below_a_thousand_are_exact() -> None:
    assert units.format_bytes(5) == "5 B"
    assert units.format_bytes(0.5) == "0.500 B"
    assert units.format_flop(999) == "999 FLOP"
    assert units.format_flop(1000) == "1.00 kFLOP"
    assert units.format_flop(2e21) == "2000 EFLOP"


def test_a_percentage_is_of_a_fraction() -> None:
    assert [units.format_percent(x) for x in (0.97, 1.0, 0.0, -0.05)] == [
        "97.0 %",
        "100 %",
        "0 %",
        "-5.00 %",
    ]
