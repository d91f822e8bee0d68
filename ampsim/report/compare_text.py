"""A comparison of two runs for a terminal: origin, numbers, and the first row that differs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from ampsim.report.words import plain
from ampsim.runs.compare import Comparison, Number, Parting, TableComparison
from ampsim.runs.loaded_run import LoadedRun
from ampsim.units import UNKNOWN, format_percent, format_rate, format_seconds

_ORIGIN_MAX = 40  # chosen: more lines hide what follows; --json has all
_EPOCHS_MAX = 12  # chosen: likewise; the last one is always there

_SINGULAR = {
    "spans": "span", "transfers": "transfer", "admissions": "admission", "updates": "update",
    "stashes": "stash", "epochs": "epoch",
}  # fmt: skip


def to_text(a: LoadedRun, b: LoadedRun, comparison: Comparison) -> str:
    """The comparison in lines; names that users chose are plain text."""
    blocks = [
        _aligned([["A", _about(a)], ["B", _about(b)]]),
        verdict(comparison),
        _origin(comparison),
        _numbers(comparison),
        _epochs(comparison),
        "\n".join(line for table in comparison.tables for line in _table(table)),
    ]
    return "\n\n".join(block for block in blocks if block)


def verdict(comparison: Comparison) -> str:
    """One sentence: whether the traces are identical, and if not, which tables differ."""
    same_origin = "the same origin" if not comparison.origin else "different origins"
    if comparison.is_identical:
        return f"Identical to the bit: every {', '.join(_SINGULAR.values())}; {same_origin}."
    apart = [one.name for one in comparison.tables if one.parting]
    together = [one.name for one in comparison.tables if not one.parting]
    same = f"; the same {', '.join(together)}" if together else ""
    return f"Not identical: different {', '.join(apart)}{same}; {same_origin}."


def _about(run: LoadedRun) -> str:
    """Folder, model, cluster, schedule and end of a run, in a line."""
    what = f"{plain(run.model)} on {plain(run.cluster)}, {plain(run.schedule)}"
    ended = run.manifest.get("ended", "finished")
    how = "" if ended == "finished" else f" ({plain(ended, 80)})"
    return f"{plain(run.folder, 80)}: {what}{how}"


def _origin(comparison: Comparison) -> str:
    if not comparison.origin:
        return ""
    shown = comparison.origin[:_ORIGIN_MAX]
    rows = [[plain(one.key, 60), _value(one.a), _value(one.b)] for one in shown]
    more = len(comparison.origin) - len(shown)
    last = f"\n{more} more differences; --json has them all" if more else ""
    return _aligned([["origin", "A", "B"], *rows]) + last


def _value(value: Any) -> str:
    return UNKNOWN if value is None else plain(value, 40)


def _numbers(comparison: Comparison) -> str:
    rows = [_cells(one.name, one) for one in comparison.numbers if one.epoch is None]
    return _aligned([["number", "A", "B", "B - A", "B / A"], *rows], left=1)


def _epochs(comparison: Comparison) -> str:
    of_epochs = [one for one in comparison.numbers if one.epoch is not None]
    last = max((one.epoch or 0 for one in of_epochs), default=0)
    shown = [one for one in of_epochs if (one.epoch or 0) < _EPOCHS_MAX or one.epoch == last]
    if not shown:
        return ""
    rows = [[str(one.epoch), *_cells(one.name, one)] for one in shown]
    more = "" if last <= _EPOCHS_MAX else "\nepochs between are left out; --json has them all"
    return _aligned([["epoch", "number", "A", "B", "B - A", "B / A"], *rows], left=2) + more


def _cells(name: str, number: Number) -> list[str]:
    values = [_shown(name, value) for value in (number.a, number.b)]
    if values[0] == values[1] and number.difference:  # they differ where this does not show it
        values = [UNKNOWN if one is None else repr(one) for one in (number.a, number.b)]
    difference = number.difference
    apart = UNKNOWN if difference is None else "0" if not difference else f"{difference:+.3g}"
    ratio = UNKNOWN if number.ratio is None else f"{number.ratio:.4g}"
    return [name, *values, apart, ratio]


def _shown(name: str, value: float | None) -> str:
    if name.endswith("per_s"):
        return format_rate(value)
    if name.endswith("_s"):
        return format_seconds(value)
    if name == "utilisation" or name.endswith("accuracy"):
        return format_percent(value)
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if math.isfinite(value) and value == int(value) else f"{value:.6g}"


def _table(table: TableComparison) -> Iterator[str]:
    if table.parting is None:
        yield f"{table.name}: {table.rows_a:,} in both, identical"
        return
    parting = table.parting
    counts = f"{table.rows_a:,} in A, {table.rows_b:,} in B"
    there = parting.a or parting.b or {}
    where = f"they part at {_SINGULAR[table.name]} {there.get('epoch', parting.index):,}"
    what = " (*)" if parting.columns else ", which only one has"
    yield f"{table.name}: {counts}; {where}{what}"
    yield from _aligned(_sides(parting)).splitlines()


def _sides(parting: Parting) -> list[list[str]]:
    """A line for each column of the two rows, those that differ marked."""
    sides = [side for side in (parting.a, parting.b) if side]
    names = [name for name in sides[0] if any(side[name] is not None for side in sides)]
    lines = [["   ", "A", "B"]]
    for name in names:
        mark = "*" if name in parting.columns else " "
        cells = (_cell(name, side) for side in (parting.a, parting.b))
        lines.append([f" {mark} {name}", *cells])
    return lines


def _cell(name: str, side: dict[str, Any] | None) -> str:
    value = side.get(name) if side else None
    if isinstance(value, float):
        return repr(value)
    return UNKNOWN if value is None else plain(value, 32) or '""'


def _aligned(rows: Sequence[Sequence[str]], *, left: int | None = None) -> str:
    """Columns below each other, after the first `left` to the right; None: all to the left."""
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    until = len(widths) if left is None else left
    lines: list[str] = []
    for row in rows:
        cells = [
            cell.ljust(wide) if place < until else cell.rjust(wide)
            for place, (cell, wide) in enumerate(zip(row, widths, strict=False))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
