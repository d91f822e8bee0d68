"""A comparison of two runs for a terminal: origin, numbers, and the first row that differs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from ampsim.report.table import cell_text
from ampsim.report.words import plain
from ampsim.units import UNKNOWN

_ORIGIN_MAX = 40  # chosen: more lines hide what follows; --json has all
_EPOCHS_MAX = 12  # chosen: likewise; the last one is always there

_SINGULAR = {
    "spans": "span", "transfers": "transfer", "admissions": "admission", "updates": "update",
    "stashes": "stash", "epochs": "epoch", "outages": "outage", "memory": "moment in memory",
    "exchanges": "exchange", "collectives": "collective",
}  # fmt: skip


def to_text(compared: Mapping[str, Any]) -> str:
    """Format what `compare_runs` gives; names that users chose are plain text."""
    whole = [one for one in compared["numbers"] if one["epoch"] is None]
    blocks = [
        _aligned([["A", _about(compared["a"])], ["B", _about(compared["b"])]]),
        verdict(compared),
        _origin(compared["origin"]),
        _aligned([["number", "A", "B", "B - A", "B / A"], *map(_cells, whole)], left=1),
        _epochs(compared["numbers"][len(whole) :]),
        "\n".join(line for table in compared["tables"] for line in _table(table)),
    ]
    return "\n\n".join(block for block in blocks if block)


def verdict(compared: Mapping[str, Any]) -> str:
    """One sentence: whether the traces are identical, and if not, which tables differ."""
    same_origin = "the same origin" if not compared["origin"] else "different origins"
    if compared["is_identical"]:
        return f"Identical to the bit: every {', '.join(_SINGULAR.values())}; {same_origin}."
    apart = [one["name"] for one in compared["tables"] if one["parting"]]
    together = [one["name"] for one in compared["tables"] if not one["parting"]]
    same = f"; the same {', '.join(together)}" if together else ""
    return f"Not identical: different {', '.join(apart)}{same}; {same_origin}."


def _about(run: Mapping[str, Any]) -> str:
    """Folder, model, cluster, schedule and end of a run, in a line."""
    what = f"{plain(run['model'])} on {plain(run['cluster'])}, {plain(run['schedule'])}"
    how = "" if run["ended"] in (None, "finished") else f" ({plain(run['ended'], 80)})"
    return f"{plain(run['folder'], 80)}: {what}{how}"


def _origin(origin: Sequence[Mapping[str, Any]]) -> str:
    if not origin:
        return ""
    shown = origin[:_ORIGIN_MAX]
    rows = [[plain(one["key"], 60), _value(one["a"]), _value(one["b"])] for one in shown]
    more = len(origin) - len(shown)
    last = f"\n{more} more differences; --json has them all" if more else ""
    return _aligned([["origin", "A", "B"], *rows]) + last


def _value(value: Any) -> str:
    return UNKNOWN if value is None else plain(value, 40)


def _epochs(numbers: Sequence[Mapping[str, Any]]) -> str:
    if not numbers:
        return ""
    last = numbers[-1]["epoch"]
    shown = [one for one in numbers if one["epoch"] < _EPOCHS_MAX or one["epoch"] == last]
    rows = [[str(one["epoch"]), *_cells(one)] for one in shown]
    more = "" if last <= _EPOCHS_MAX else "\nepochs between are left out; --json has them all"
    return _aligned([["epoch", "number", "A", "B", "B - A", "B / A"], *rows], left=2) + more


def _cells(number: Mapping[str, Any]) -> list[str]:
    name, difference, ratio = (number[key] for key in ("name", "difference", "ratio"))
    values = [_shown(name, number[side]) for side in ("a", "b")]
    if values[0] == values[1] and difference:  # they differ where this does not show it
        values = [repr(number[side]) for side in ("a", "b")]
    return [name, *values, _apart(name, difference), UNKNOWN if ratio is None else f"{ratio:.4g}"]


def _apart(name: str, difference: float | None) -> str:
    """A difference with its sign and the unit of what differs."""
    if difference is None or not difference:
        return UNKNOWN if difference is None else "0"
    if name.endswith("_s"):
        return f"{'+' if difference > 0 else '-'}{_shown(name, abs(difference))}"
    if _is_share(name):
        return f"{100 * difference:+.3g} %"
    return f"{difference:+,.0f}" if difference % 1 == 0 else f"{difference:+.3g}"


def _is_share(name: str) -> bool:
    return name == "utilisation" or name.endswith("accuracy")


def _shown(name: str, value: float | None) -> str:
    if value is None or name.endswith("_s") or _is_share(name):
        return cell_text(name, {name: value})
    return f"{value:,.0f}" if math.isfinite(value) and value == int(value) else f"{value:.6g}"


def _table(table: Mapping[str, Any]) -> Iterator[str]:
    name, parting = table["name"], table["parting"]
    if parting is None:
        yield f"{name}: {table['rows_a']:,} in both, identical"
        return
    there = parting["a"] or parting["b"]
    where = f"they part at {_SINGULAR[name]} {there.get('epoch', parting['index']):,}"
    what = " (*)" if parting["columns"] else ", which only one has"
    yield f"{name}: {table['rows_a']:,} in A, {table['rows_b']:,} in B; {where}{what}"
    yield from _aligned(_sides(parting)).splitlines()


def _sides(parting: Mapping[str, Any]) -> list[list[str]]:
    """A line for each column of the two rows, those that differ marked."""
    both = parting["a"], parting["b"]
    sides = [side for side in both if side]
    names = [name for name in sides[0] if any(side[name] is not None for side in sides)]
    lines = [["   ", "A", "B"]]
    for name in names:
        mark = "*" if name in parting["columns"] else " "
        lines.append([f" {mark} {name}", *(_cell(name, side) for side in both)])
    return lines


def _cell(name: str, side: Mapping[str, Any] | None) -> str:
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
