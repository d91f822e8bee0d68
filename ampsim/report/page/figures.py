"""Figures of a forecast or report that follow from its rows, and its Gantt charts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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
    runs: Mapping[str, Sequence[Run]]
    names: Sequence[str] | None

    @property
    def table(self) -> DataFrame:
        return self.forecast.table


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
    source = _Source(forecast, runs_by_row(forecast), names)
    for name, (draw, *words) in _FIGURES.items():
        if wanted is None or name in wanted:
            figure = draw(source)
            if figure is not None:
                yield Picture(f"{name}.png", *words), figure


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
        "What each validation measured, over virtual time and over epochs. A ring marks where the "
        "run that is drawn reaches the target; the legend has the medians of the table.",
    ),
    "throughput": (
        lambda source: throughput(source.table) if len(source.table) else None,
        "Throughput",
        "Items per second of each schedule",
        "Training and validation throughput; in brackets, how many times the first row's.",
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
        "Of the whole run, validation included: the share that each worker spends on steps, in the "
        "first repeat; dashed, all workers together (utilisation in the table).",
    ),
    "bounds": (
        lambda source: bounds(source.table) if has_bounds(source.table) else None,
        "What bounds the throughput",
        "Shares of busiest worker, path, link and admission limit",
        "Shares of the whole run, of the first repeat. The largest is "
        "named; it is the bound where it is a half or more.",
    ),
    "peak-memory": (
        lambda source: peak_memory(source.table) if has_peaks(source.table) else None,
        "Peak memory",
        "Memory of the fullest worker at its peak, by what lies there",
        "What lay in the memory of the fullest worker, of all repeats, when it was fullest. "
        "Stashes are weights other than the latest: old ones, and predicted. Each node keeps its "
        "own activations; no tensor is shared.",
    ),
    "memory": (
        _memory,
        "Memory over time",
        "Memory of the fullest worker over virtual time, by what lies there",
        "What lies in the memory of the fullest worker, in the first repeat: each step is the "
        "fullest moment of a stretch of time.",
    ),
    "staleness": (
        _staleness,
        "Staleness",
        "Staleness of each node's gradients",
        "Updates of a node between a gradient's forward and backward step; peak: the share of the "
        "node's gradients in its tallest bar. All repeats together.",
    ),
}
"""What draws each figure, if there are data for it; its heading, description and caption."""


TOGETHER: Final = Picture(
    "gantt.png",
    "Who works when",
    "Gantt charts on one time axis",
    "The leading instances of the first repeat of each row. A box is a step of a worker, and its "
    "number the instance.",
)
"""The one figure of a report that spans are needed for."""


def gantt_together(forecast: RunTable, runs: dict[str, list[Run]]) -> list[tuple[Picture, Figure]]:
    """The schedules on one time axis; first repeats only."""
    shown = shown_schedules(runs)
    if not shown:
        return []
    devices, window_s = devices_of(forecast.manifest), first_window(shown)
    figure = gantt(shown, workers=forecast.workers, window_s=window_s, devices=devices)
    return [(TOGETHER, figure)]


def shown_schedules(runs: dict[str, list[Run]]) -> dict[str, ChartRun]:
    """The first repeat of each row that has spans."""
    return {name: chart_of(repeats[0]) for name, repeats in runs.items() if len(repeats[0].spans)}
