"""Lines of a plot: the rows of one schedule over `max_active_keys`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ampsim.report.columns import format_count
from ampsim.report.frames import DataFrame, Row, labelled, number, rows, text

_MARKS = ("min_update_interval", "replicas")


def series(table: DataFrame, names: Sequence[str] | None = None) -> dict[str, list[Row]]:
    """The rows of each line, in the order of their instances in flight.

    A line is a schedule, and, where rows of one schedule differ in it, its update interval and
    count of replicas.

    Args:
        table: one row a schedule.
        names: the schedule of each row; the column `schedule` unless given.
    """
    records = rows(table)
    names = [text(row, "schedule") for row in records] if names is None else list(names)
    for column in _MARKS:
        values = [format_count(number(row, column)) for row in records]
        counts = Counter(name for name, _value in set(zip(names, values, strict=True)))
        names = [
            labelled(name, column, value) if counts[name] > 1 else name
            for name, value in zip(names, values, strict=True)
        ]
    lines: dict[str, list[Row]] = {name: [] for name in names}
    for name, row in zip(names, records, strict=True):
        lines[name].append(row)
    return {
        name: sorted(own, key=lambda row: number(row, "max_active_keys"))
        for name, own in lines.items()
    }
