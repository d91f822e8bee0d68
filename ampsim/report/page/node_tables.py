"""Tables of nodes and workers: placement, busy time, memory, and parts of the critical path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from ampsim.report.forecast import Forecast, devices_of, runs_by_row
from ampsim.report.frames import DataFrame, number, rows, text
from ampsim.report.words import plain
from ampsim.toml_text import mapping
from ampsim.trace import MEMORY_CATEGORIES
from ampsim.units import format_bytes, format_percent, format_seconds

NamedTable: TypeAlias = tuple[str, list[list[str]]]
"""A heading, then a line of headings of columns, then lines of cells."""

LEFT: Final = ("node", "worker", "device", "direction", "what")
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


def node_tables(forecast: Forecast) -> list[NamedTable]:
    """Tables of placement, busy time, memory and critical path, of each schedule's first repeat.

    A table is left out where the forecast has no data for it.
    """
    placed = mapping(mapping(forecast.manifest.get("placement") or {}).get("workers") or {})
    found: list[NamedTable] = []
    if placed:
        found.append(("Placement of nodes", _placement(placed, devices_of(forecast))))
    by_row = runs_by_row(forecast)
    for name, repeats in by_row.items():
        times = _times(repeats[0])
        parts = getattr(repeats[0], "path_parts", None)
        of = f" under {plain(name, _LONGEST)}" if len(by_row) > 1 else ""
        if times is not None and len(times):
            found.append((f"Busy time of each node{of}", _busy(times)))
        peaks = getattr(repeats[0], "peak_memory", None)
        if peaks is not None and len(peaks):
            found.append((f"Memory at its peak{of}", _memory(peaks)))
        if parts is not None and len(parts):
            found.append((f"Critical path{of}", _path(parts)))
    return found


def _placement(placed: Mapping[str, Any], devices: list[str]) -> list[list[str]]:
    lines = [["node", "worker", "device"]]
    for node, place in placed.items():
        worker = int(place)
        device = devices[worker] if 0 <= worker < len(devices) else ""
        lines.append([plain(node, _LONGEST), f"worker {worker}", plain(device, 24)])
    return lines


def _busy(times: DataFrame) -> list[list[str]]:
    lines = [["node", "worker", "direction", "steps", "busy", "share of the run"]]
    for row in rows(times):
        lines.append(
            [
                plain(text(row, "node"), _LONGEST),
                f"worker {number(row, 'worker'):.0f}" if number(row, "worker") >= 0 else "",
                text(row, "direction"),
                f"{number(row, 'steps'):,.0f}",
                format_seconds(number(row, "busy_s")),
                format_percent(number(row, "share")),
            ]
        )
    return lines


def _memory(peaks: DataFrame) -> list[list[str]]:
    """What lay in each worker's memory at its fullest moment; categories that nobody has left out.

    Moments of the workers are apart, so that columns do not add up.
    """
    records = rows(peaks)
    shown = [name for name in MEMORY_CATEGORIES if any(number(row, name) for row in records)]
    lines = [["worker", "at", "peak", *shown]]
    for row in records:
        sizes = [format_bytes(number(row, name)) for name in ("bytes", *shown)]
        at = format_seconds(number(row, "time_s"))
        lines.append([f"worker {number(row, 'worker'):.0f}", at, *sizes])
    return lines


def _path(parts: DataFrame) -> list[list[str]]:
    """The longest parts of the critical path, and the sum of the others; all add up to the run."""
    lines = [["what", "node", "direction", "worker", "on the path", "share of the run"]]
    shown, others = rows(parts)[:_PATH_MAX], rows(parts)[_PATH_MAX:]
    for row in shown:
        worker = number(row, "worker")
        lines.append(
            [
                _WORDS.get(text(row, "kind"), text(row, "kind")),
                plain(text(row, "node"), _LONGEST),
                text(row, "direction"),
                f"worker {worker:.0f}" if worker >= 0 else "host",
                format_seconds(number(row, "seconds")),
                format_percent(number(row, "share")),
            ]
        )
    if others:
        seconds, share = (sum(number(row, of) for row in others) for of in ("seconds", "share"))
        rest = [f"{len(others)} shorter parts", "", "", ""]
        lines.append([*rest, format_seconds(seconds), format_percent(share)])
    return lines


def _times(run: Any) -> DataFrame | None:
    return getattr(run, "time_by_node", None)
