"""Figures of a forecast or report that follow from its rows, and its Gantt charts."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from matplotlib.figure import Figure

from ampsim.report.frames import DataFrame, floats, joined, runs_by_row
from ampsim.report.gantt.boxes import ChartRun, chart_of, first_window
from ampsim.report.gantt.chart import gantt
from ampsim.report.page.text import Picture
from ampsim.report.plot.bars import (
    bounds,
    has_bounds,
    has_lines,
    has_peaks,
    memory_over_time,
    peak_memory,
    staleness_histogram,
    throughput,
    throughput_over_mak,
    utilisation,
)
from ampsim.report.plot.convergence import convergence, has_scores, is_blind
from ampsim.report.plot.plane import has_points, plane
from ampsim.runs.run import Run, RunTable
from ampsim.study.provenance import devices_of

_PANELS_MAX = 6  # chosen: more timelines below each other say less than the peaks


@dataclass(frozen=True, slots=True)
class _Source:
    """The data of all figures; `names` are the schedules of the table's rows."""

    forecast: RunTable
    table: DataFrame
    runs: Mapping[str, Sequence[Run]]
    names: Sequence[str] | None


def result_figures(
    forecast: RunTable,
    *,
    wanted: Collection[str] | None = None,
    names: Sequence[str] | None = None,
) -> Iterator[tuple[Picture, Figure]]:
    """Each figure that the forecast has data for, with its file, heading, description and caption.

    Args:
        forecast: the numbers.
        wanted: names of the figures to draw; all unless given.
        names: the schedule of each row of the table; its column `schedule` unless given.
    """
    source = _Source(forecast, forecast.table, runs_by_row(forecast), names)
    for name, (draw, heading, description, caption) in _FIGURES.items():
        if (wanted is None or name in wanted) and (figure := draw(source)) is not None:
            told = _told(caption, forecast)
            yield Picture(f"{name}.png", heading, description, told), figure


def _told(caption: str, forecast: RunTable) -> str:
    """Leave out what is not drawn of the caption: each `[kind:words]` whose kind there is none."""
    is_there = {
        "repeats": len(forecast.runs) > 1,
        "rows": len(forecast.table) > 1,
        "target": forecast.target is not None,
        "validation": not np.isnan(floats(forecast.table, "valid_per_s")).all(),
    }
    while "[" in caption:  # from within
        caption = re.sub(r"\[(\w+):([^][]*)\]", lambda part: part[2] * is_there[part[1]], caption)
    return caption


def _convergence(source: _Source) -> Figure | None:
    metric = source.forecast.metric
    epochs = {name: [run.looks for run in repeats] for name, repeats in source.runs.items()}
    epochs = {name: own for name, own in epochs.items() if not is_blind(own, metric)}
    if not has_scores(epochs, metric):
        return None
    return convergence(epochs, target=source.forecast.target, metric=metric)


def _plane(source: _Source) -> Figure | None:
    table = source.table
    first = (floats(of[0].epochs, "instances")[:1].tolist() for of in source.runs.values())
    sizes = {items for one in first for items in one if items > 0}
    is_one = len(sizes) == 1  # else as many epochs take other times in another row
    return plane(table, int(*sizes), source.names) if is_one and has_points(table) else None


def _utilisation(source: _Source) -> Figure | None:
    shares = {name: repeats[0].utilisation_by_worker for name, repeats in source.runs.items()}
    shares = {name: frame for name, frame in shares.items() if frame.notna().all(axis=None)}
    busy = floats(source.table, "utilisation").tolist()
    known = dict(zip(source.runs, busy, strict=False)) if len(busy) == len(source.runs) else {}
    return utilisation(shares, known) if shares else None


def _memory(source: _Source) -> Figure | None:
    tables = {name: runs[0].memory for name, runs in source.runs.items()}
    known = {name: table for name, table in tables.items() if len(table)}
    return memory_over_time(known) if 0 < len(known) <= _PANELS_MAX else None


def _staleness(source: _Source) -> Figure | None:
    counts = {
        name: joined([run.staleness for run in repeats]) for name, repeats in source.runs.items()
    }
    return staleness_histogram(counts) if any(map(len, counts.values())) else None


def _over_mak(source: _Source) -> Figure | None:
    table, names = source.table, source.names
    return throughput_over_mak(table, names) if has_lines(table, names) else None


_FIGURES: Final[Mapping[str, tuple[Callable[[_Source], Figure | None], str, str, str]]] = {
    "convergence": (
        _convergence,
        "Convergence",
        "Validation over virtual time, and over epochs",
        "What each validation measured, over virtual time and over epochs.[target: A ring marks "
        "where the run[repeats: that is drawn] reaches the target[repeats:; the legend has the "
        "medians of the table].]",
    ),
    "throughput": (
        lambda source: throughput(source.table) if len(source.table) else None,
        "Throughput",
        "Items per second of each schedule",
        "Training[validation: and validation] throughput[rows:; in brackets, how many times the "
        "first row's].",
    ),
    "throughput-over-mak": (
        _over_mak,
        "Throughput over instances in flight",
        "Training items per second over max_active_keys, a line for each schedule",
        "Training throughput over the most instances in flight (max_active_keys).",
    ),
    "plane": (
        _plane,
        "Throughput and epochs",
        "Epochs to the target over throughput, with lines of equal time",
        "Epochs to the target over training throughput; along a grey line training takes the time "
        "that stands at its end, so that lower right is faster. The number at a point: instances "
        "in flight, at most (max_active_keys).",
    ),
    "utilisation": (
        _utilisation,
        "Utilisation",
        "Share of the run that each worker is busy, by direction",
        "Of the whole run, validation included: the share that each worker spends on steps[repeats"
        ":, in the first repeat]; dashed, all workers together[repeats: (utilisation in the table)"
        "].",
    ),
    "bounds": (
        lambda source: bounds(source.table) if has_bounds(source.table) else None,
        "What bounds the throughput",
        "Shares of busiest worker, path, link and admission limit",
        "Shares of the whole run[repeats:, of the first repeat]. The largest is named; it is the "
        "bound where it is a half or more.",
    ),
    "peak-memory": (
        lambda source: peak_memory(source.table) if has_peaks(source.table) else None,
        "Peak memory",
        "Memory of the fullest worker at its peak, by what lies there",
        "What lay in the memory of the fullest worker[repeats:, of all repeats], when it was "
        "fullest. Stashes are weights other than the latest: old ones, and predicted. Each node "
        "keeps its own activations; no tensor is shared.",
    ),
    "memory": (
        _memory,
        "Memory over time",
        "Memory of the fullest worker over virtual time, by what lies there",
        "What lies in the memory of the fullest worker[repeats:, in the first repeat]: each step "
        "is the fullest moment of a stretch of time.",
    ),
    "staleness": (
        _staleness,
        "Staleness",
        "Staleness of each node's gradients",
        "Updates of a node between a gradient's forward and backward step; peak: the share of the "
        "node's gradients in its tallest bar.[repeats: All repeats together.]",
    ),
}
"""What draws each figure, if there are data for it; its heading, description and caption, of which
`[kind:words]` stand where there is such a thing."""


_OF_ROWS: Final = " of the first repeat of each row"
TOGETHER: Final = Picture(
    "gantt.png",
    "Who works when",
    "Gantt charts on one time axis",
    f"The leading instances{_OF_ROWS}. A box is a step of a worker, and its number the instance.",
)
"""The one figure of a report that spans are needed for."""


def gantt_together(forecast: RunTable, runs: dict[str, list[Run]]) -> list[tuple[Picture, Figure]]:
    """The schedules on one time axis; first repeats only."""
    shown = shown_schedules(runs)
    if not shown:
        return []
    devices, window_s = devices_of(forecast.manifest), first_window(shown)
    figure = gantt(shown, workers=forecast.workers, window_s=window_s, devices=devices)
    caption = TOGETHER.caption.replace(_OF_ROWS, "" if len(forecast.runs) == 1 else _OF_ROWS)
    return [(replace(TOGETHER, caption=caption), figure)]


def shown_schedules(runs: dict[str, list[Run]]) -> dict[str, ChartRun]:
    """The first repeat of each row that has spans."""
    return {name: chart_of(repeats[0]) for name, repeats in runs.items() if len(repeats[0].spans)}
