"""Tables of a page: nodes, epochs, and rates that were tried."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import pandas as pd

from ampsim.report.frames import DataFrame, Row, number, rows, runs_by_row, text
from ampsim.report.table import to_csv
from ampsim.report.words import listed, plain, told_apart
from ampsim.runs.run import RunTable, placed_alike
from ampsim.study.provenance import devices_of
from ampsim.trace import MEMORY_CATEGORIES
from ampsim.units import format_bytes, format_change, format_count, format_percent, format_seconds

NamedTable: TypeAlias = tuple[str, list[list[str]]]
"""A heading, then a line of headings of columns, then lines of cells."""

LEFT: Final = ("node", "worker", "device", "direction", "what", "with", "column", "what it is")
"""Headings over words; the others stand over numbers."""

_LONGEST: Final = 60
_PATH_MAX: Final = 15  # chosen: what fits beside the other tables

_WORDS: Final = {
    "compute": "step",
    "device queue": "wait for the device",
    "transfer": "transfer to",
    "link queue": "wait for the link to",
}
"""Words for a part of the critical path, before the name of its node."""


def node_tables(forecast: RunTable) -> list[NamedTable]:
    """Tables of placement, busy time, memory and critical path, of each schedule's first repeat.

    A table is left out where the forecast has no data for it.
    """
    by_row, found = runs_by_row(forecast), list[NamedTable]()
    firsts = {name: of[0] for name, of in by_row.items() if "placement" in forecast.manifest}
    for names, is_rank, placed in placed_alike(firsts):
        of = f" under {plain(listed(names), _LONGEST)}" if len(names) < len(by_row) else ""
        where = " in the first rank" * is_rank + of
        found.append((f"Placement of nodes{where}", _placement(placed, forecast)))
    for name, (first, *_others) in by_row.items():
        of = f" under {plain(name, _LONGEST)}" if len(by_row) > 1 else ""
        for heading, table, lines in (
            ("Busy time of each node", first.time_by_node, _busy),
            ("Memory at its peak", first.peak_memory, _memory),
            ("Critical path", first.path_parts, _path),
        ):
            if len(table):
                found.append((f"{heading}{of}", lines(rows(table))))
    return found


def _placement(placed: Mapping[str, Any], forecast: RunTable) -> list[list[str]]:
    lines, every = [["node", "worker", "device"]], devices_of(forecast.manifest)
    devices = list(map(told_apart(every, 24).__getitem__, every))
    for node, place in placed.items():
        device = devices[int(place)] if 0 <= int(place) < len(devices) else ""
        lines.append([plain(node, _LONGEST), f"worker {int(place)}", device])
    return lines


def _busy(records: list[Row]) -> list[list[str]]:
    lines = [["node", "worker", "direction", "steps", "busy", "share of the run"]]
    for row in records:
        lines.append([*_where(row, ""), f"{number(row, 'steps'):,.0f}", *_spent(row, "busy_s")])
    return lines


def _where(row: Row, host: str) -> list[str]:
    """Node, worker and direction; `host` where no worker is meant."""
    worker = number(row, "worker")
    place = f"worker {worker:.0f}" if worker >= 0 else host
    return [plain(text(row, "node"), _LONGEST), place, text(row, "direction")]


def _spent(row: Mapping[str, Any], seconds: str) -> list[str]:
    return [format_seconds(number(row, seconds)), format_percent(number(row, "share"))]


def _memory(records: list[Row]) -> list[list[str]]:
    """Tabulate each worker's memory at its fullest moment, without what no worker has.

    Moments of the workers are apart, so that columns do not add up.
    """
    shown = [name for name in MEMORY_CATEGORIES if any(number(row, name) for row in records)]
    lines = [["worker", "at", "peak", *shown]]
    for row in (one for one in records if number(one, "bytes")):
        sizes = [format_bytes(number(row, name)) for name in ("bytes", *shown)]
        at = format_seconds(number(row, "time_s"))
        lines.append([f"worker {number(row, 'worker'):.0f}", at, *sizes])
    return lines


def _path(records: list[Row]) -> list[list[str]]:
    """The longest parts of the critical path, and the sum of the others; all add up to the run."""
    lines = [["what", "node", "direction", "worker", "on the path", "share of the run"]]
    for row in records[:_PATH_MAX]:
        node, worker, direction = _where(row, "host")
        kind = _WORDS.get(text(row, "kind"), text(row, "kind"))
        lines.append([kind, node, direction, worker, *_spent(row, "seconds")])
    others = records[_PATH_MAX:]
    if others:
        rest = {of: sum(number(row, of) for row in others) for of in ("seconds", "share")}
        lines.append([f"{len(others)} shorter parts", "", "", "", *_spent(rest, "seconds")])
    return lines


def tuning_tables(forecast: RunTable) -> list[NamedTable]:
    """One table, a line for each setting of each row; none of a forecast that tuned nothing."""
    groups: dict[tuple[str, float, str], list[Row]] = {}
    for row in rows(forecast.trials):
        key = (text(row, "schedule"), number(row, "learning_rate"), text(row, "setting"))
        groups.setdefault(key, []).append(row)
    is_more = any(setting for _name, _rate, setting in groups)
    lines = [
        [
            plain(name, 60),
            f"{rate:.3g}",
            *([setting] if is_more else []),
            "best" if any(number(one, "is_chosen") == 1 for one in of) else "",
            _each(of, "epochs_to_target", format_count),
            _each(of, "time_to_target_s", format_seconds),
        ]
        for (name, rate, setting), of in groups.items()
    ]
    headings = ["what", "learning rate", *(["with"] if is_more else [])]
    headings += ["chosen", "epochs of each seed", "time of each seed"]
    name = "Settings that were tried" if is_more else "Learning rates that were tried"
    return [(name, [headings, *lines])] if lines else []


def bought(forecast: RunTable) -> list[NamedTable]:
    """One table of what each number buys; none of a forecast that did not ask."""
    lines = [
        [
            plain(text(row, "schedule"), _LONGEST), text(row, "what"),
            format_percent(number(row, "share")), format_change(number(row, "change")) or "–",
        ]
        for row in rows(forecast.buys)
    ]  # fmt: skip
    headings = ["with", "what", "share", "twice as fast"]
    name = "What takes the time, and what twice as fast would buy"
    return [(name, [headings, *lines])] if lines else []


def _each(of: list[Row], name: str, show: Callable[[float], str]) -> str:
    values = [number(row, name) for row in of]
    return ", ".join("not reached" if math.isnan(one) else show(one) for one in values)


def _of_runs(forecast: RunTable, name: str) -> DataFrame | None:
    frames: dict[Any, DataFrame] = {
        (label, run.repeat): frame
        for label, runs in runs_by_row(forecast).items()
        for run in runs
        if len((frame := getattr(run, name)).columns)
    }
    if not frames:
        return None
    return pd.concat(frames, names=["schedule", "repeat"]).reset_index([0, 1])


def table_files(forecast: RunTable) -> dict[str, str]:
    """Make epochs.csv, validations.csv, trials.csv and buys.csv, those that there are data for.

    The first two have a row for each epoch, or validation within one, of each run, with its label,
    which is that of the legends, and its repeat.
    """
    tables = {name: _of_runs(forecast, name) for name in ("epochs", "validations")}
    others = {"trials": forecast.trials, "buys": forecast.buys}
    tables |= {name: table if len(table) else None for name, table in others.items()}
    return {f"{name}.csv": to_csv(table) for name, table in tables.items() if table is not None}
