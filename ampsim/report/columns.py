"""Columns of a forecast's table as people read it: heading, cells and rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ampsim.report.frames import Row, number, text
from ampsim.report.words import plain
from ampsim.study.bound_words import bound_sentence, bound_words
from ampsim.units import UNKNOWN, format_bytes, format_percent, format_rate, format_seconds

Show = Callable[[Row, Row], str]
"""Text of a cell, from its row and from the first row of the table."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column; a narrow terminal leaves out those of the highest `rank` first.

    Attributes:
        heading: words over the column, lines separated by newlines; "{items}" stands for what
            throughput is of, "{coverage}" for that of the interval, in lines that are left out
            where these are unknown.
        show: text of a cell.
        rank: a terminal always shows rank 0.
        is_wanted: whether these rows need the column.
        of_target: whether the column needs a target.
    """

    heading: str
    show: Show
    rank: int
    is_wanted: Callable[[Sequence[Row]], bool] = lambda rows: True
    of_target: bool = False

    def headed(self, records: Sequence[Row]) -> str:
        """The heading over these rows, in lines."""
        known = {"items": items_of(records), "coverage": _coverage(records)}
        lines = [
            line
            for line in self.heading.split("\n")
            if all(known[name] for name in known if f"{{{name}}}" in line)
        ]
        return "\n".join(lines).format(**known)

    @property
    def name(self) -> str:
        """The heading in one line, without what stands in brackets."""
        return self.heading.partition("\n(")[0].replace("\n", " ")


def format_ratio(ratio: float) -> str:
    """A ratio with two digits, or as many as stand before the point.

    >>> format_ratio(4.094), format_ratio(0.8), format_ratio(23.6)
    ('4.1×', '0.80×', '24×')
    >>> format_ratio(float("nan")) == UNKNOWN
    True
    """
    if not math.isfinite(ratio):
        return UNKNOWN
    decimals = 0 if ratio >= 9.95 else 1 if ratio >= 0.995 else 2
    return f"{ratio:.{decimals}f}×"


def format_count(value: float) -> str:
    """A small number: whole if it is whole, else three digits.

    >>> format_count(7.0), format_count(10.5), format_count(2.3456)
    ('7', '10.5', '2.35')
    """
    return UNKNOWN if math.isnan(value) else f"{value:.0f}" if value % 1 == 0 else f"{value:.3g}"


def speed_ratio(row: Row, first: Row) -> float:
    """Training throughput over that of `first`, NaN where one is unknown or zero."""
    base = number(first, "train_per_s")
    return number(row, "train_per_s") / base if base > 0 else math.nan


def _count(name: str) -> Show:
    return lambda row, first: format_count(number(row, name))


def _seconds(name: str) -> Show:
    return lambda row, first: format_seconds(number(row, name))


def _rate(name: str) -> Show:
    """A rate; the heading has its unit where the row names its items."""

    def show(row: Row, first: Row) -> str:
        said = format_rate(number(row, name))
        return said.removesuffix("/s").rstrip() if text(row, "items") else said

    return show


def _bytes(name: str) -> Show:
    return lambda row, first: format_bytes(number(row, name))


def _amount(name: str) -> Show:
    """A number in the unit of the heading, three digits."""

    def show(row: Row, first: Row) -> str:
        value = number(row, name)
        return UNKNOWN if math.isnan(value) else f"{value:.3g}"

    return show


def _percent(name: str) -> Show:
    return lambda row, first: format_percent(number(row, name))


_FACTORS = ("throughput", "epochs", "validation")


def _ratio(name: str) -> Show:
    return lambda row, first: format_ratio(number(row, name))


def _interval(row: Row, first: Row) -> str:
    low, high = number(row, "time_to_target_low_s"), number(row, "time_to_target_high_s")
    if math.isnan(low) and math.isnan(high):
        return UNKNOWN
    return f"[{format_seconds(low)}, {format_seconds(high)}]"


def _coverage(records: Sequence[Row]) -> str:
    """Probability that the intervals cover the true median; more repeats cover more."""
    known = sorted({number(row, "time_to_target_coverage") for row in records} - {math.nan})
    said = [f"{100 * one:.0f}" for one in known if not math.isnan(one)]
    return " to ".join(dict.fromkeys((said[0], said[-1]))) if said else ""


def _reached(row: Row, first: Row) -> str:
    repeats = number(row, "repeats")
    if math.isnan(repeats) or math.isnan(number(row, "repeats_reached")):
        return UNKNOWN
    return f"{number(row, 'repeats_reached'):.0f} of {repeats:.0f}"


def _varies(name: str) -> Callable[[Sequence[Row]], bool]:
    return lambda rows: len({text(row, name) for row in rows} - {""}) > 1


def _is_missed(best: str) -> Callable[[Sequence[Row]], bool]:
    """Whether some row has a best value and did not reach the target with it."""
    return lambda rows: any(
        math.isnan(number(row, "time_to_target_s")) and not math.isnan(number(row, best))
        for row in rows
    )


def _is_known(name: str) -> Callable[[Sequence[Row]], bool]:
    """Whether some row has the number."""
    return lambda rows: any(not math.isnan(number(row, name)) for row in rows)


def _are_several(rows: Sequence[Row]) -> bool:
    return len(rows) > 1


def _is_measured(rows: Sequence[Row]) -> bool:
    """Whether validation measured anything; without that, times to the target are unknown."""
    names = ("best_accuracy", "best_error", "time_to_target_s")
    return any(not math.isnan(number(row, name)) for row in rows for name in names)


def bound_cell(row: Row) -> str:
    """What bounds the row, with its share of the time; empty where it is unknown.

    >>> bound_cell({"bound_by": "worker 3", "worker_share": 0.92, "path_share": 0.1})
    'worker 3 (92.0 %)'
    """
    return bound_words(plain(bound_name(row)), _at(row), bound_share(row))


def bound_name(row: Row) -> str:
    """What has the largest of the shares; empty where it is unknown."""
    return text(row, "bound_largest") or text(row, "bound_by")


def bound_share(row: Row) -> float:
    """The largest of the shares, which is that of `bound_name`; NaN if all are unknown."""
    shares = (number(row, f"{name}_share") for name in ("worker", "path", "link", "admission"))
    return max((share for share in shares if not math.isnan(share)), default=math.nan)


def bound_line(row: Row) -> str:
    """What bounds the row, as a sentence; empty where it is unknown."""
    name, share = plain(bound_name(row)), bound_share(row)
    return bound_sentence(name, _at(row), share)


def idle_line(row: Row) -> str:
    """How many devices never work, as a sentence; empty where all do, or it is unknown.

    >>> idle_line({"workers_idle": 12, "workers": 16})
    '12 of 16 devices do nothing that takes time'
    """
    idle, workers = number(row, "workers_idle"), number(row, "workers")
    if not idle > 0:
        return ""
    some = "device does" if workers == 1 else "devices do"
    return f"{idle:.0f} of {workers:.0f} {some} nothing that takes time"


def rate_line(row: Row) -> str:
    """The row's learning rate and why it has it, as a sentence; empty where it is as given.

    >>> rule = {"learning_rate_rule": "linear"}
    >>> rate_line({"learning_rate": 0.4, "learning_rate_given": 0.1, **rule})
    'learning rate 0.4 (linear; 0.1 as given)'
    """
    rate, given = number(row, "learning_rate"), number(row, "learning_rate_given")
    rule = text(row, "learning_rate_rule")
    if not rule or math.isnan(rate) or rule == "as given":
        return ""
    return f"learning rate {rate:.3g} ({plain(rule)}; {given:.3g} as given)"


def _at(row: Row) -> str:
    return plain(text(row, "bound_at"), 400)


def items_of(records: Sequence[Row]) -> str:
    """Name of the items in these rows' throughput, such as "images"; empty where it is unknown."""
    found = {text(row, "items") for row in records} - {""}
    return plain(found.pop(), 24) if len(found) == 1 else ""


def per_second(records: Sequence[Row]) -> str:
    """Words for an axis of these rows' throughput.

    >>> per_second([{"items": "images"}]), per_second([{}])
    ('images per second of virtual time', 'items per second of virtual time')
    """
    return f"{items_of(records) or 'items'} per second of virtual time"


COLUMNS: tuple[Column, ...] = (
    Column("schedule", lambda row, first: plain(text(row, "schedule"), 24), 0),
    Column("in\nflight", _count("max_active_keys"), 1),
    Column("update\ninterval", _count("min_update_interval"), 2, _varies("min_update_interval")),
    Column("replicas", _count("replicas"), 2, _varies("replicas")),
    Column("workers", _count("workers"), 2, _varies("workers")),
    Column("ranks", _count("ranks"), 6, _varies("ranks")),
    Column("servers", _count("servers"), 7, _varies("servers")),
    Column("CC\nratio", _amount("cc_ratio"), 9, _varies("cc_ratio")),
    Column("training\n({items}/s)", _rate("train_per_s"), 0),
    Column("ratio", lambda row, first: format_ratio(speed_ratio(row, first)), 1, _are_several),
    Column("validation\n({items}/s)", _rate("valid_per_s"), 9),
    Column("busy", _percent("utilisation"), 5),
    Column("peak\nmemory", _bytes("peak_bytes"), 6, _is_known("peak_bytes")),
    Column("staleness\nmean", _count("staleness_mean"), 2),
    Column("staleness\nmax", _count("staleness_max"), 7),
    Column("best\naccuracy", _percent("best_accuracy"), 3, _is_missed("best_accuracy")),
    Column("best\nerror", _count("best_error"), 3, _is_missed("best_error")),
    Column("epochs", _count("epochs_to_target"), 2, _is_measured, of_target=True),
    Column("time to\ntarget", _seconds("time_to_target_s"), 0, _is_measured, of_target=True),
    Column("interval\n({coverage} %)", _interval, 6, _is_measured, of_target=True),
    Column(
        "order\nflips",
        _percent("order_flip_probability"),
        3,
        _is_known("order_flip_probability"),
        of_target=True,
    ),
    Column("sooner\nthan first", _ratio("speed_up"), 5, _is_known("speed_up"), of_target=True),
    *(
        Column(
            f"by\n{name}", _ratio(f"speed_up_by_{name}"), 6, _is_known("speed_up"), of_target=True
        )
        for name in _FACTORS
    ),
    Column("by\nformula", _seconds("time_to_target_formula_s"), 4, _is_measured, of_target=True),
    Column("reached", _reached, 8, _is_measured, of_target=True),
    Column("energy\n(J)", _amount("energy_j"), 9, _is_known("energy_j")),
    Column(
        "energy to\ntarget\n(J)",
        _amount("energy_to_target_j"),
        7,
        _is_known("energy_to_target_j"),
        of_target=True,
    ),
    Column("cost\n(USD)", _amount("cost_usd"), 9, _is_known("cost_usd")),
    Column(
        "cost to\ntarget\n(USD)",
        _amount("cost_to_target_usd"),
        7,
        _is_known("cost_to_target_usd"),
        of_target=True,
    ),
)
