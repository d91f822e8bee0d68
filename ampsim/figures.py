"""Figures of results and forecasts, for notebooks and scripts: `ampsim.figures.gantt(result)`.

Each gives a matplotlib Figure, which shows itself in a notebook after ``%matplotlib inline``, and
which `save` writes as PNG, SVG or PDF.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np
from matplotlib.figure import Figure

from ampsim.arguments import checked
from ampsim.dependency import EngineResult
from ampsim.errors import OptionError
from ampsim.forecasting import Forecast
from ampsim.report.frames import DataFrame, distinct
from ampsim.report.gantt.boxes import ChartRun, chart_of, first_window
from ampsim.report.gantt.chart import gantt as gantt_of
from ampsim.report.page.figures import result_figures
from ampsim.report.perfetto.trace import Trace, write_perfetto
from ampsim.report.plot.bars import staleness_histogram
from ampsim.report.plot.bars import utilisation as utilisation_of_each
from ampsim.report.plot.queues import queues_drawing
from ampsim.report.saving import save
from ampsim.runs import LoadedRun
from ampsim.study import Result

AnyResult: TypeAlias = Result | LoadedRun
"""A run that was just made, or one that was kept and loaded."""

__all__ = [
    "convergence", "gantt", "of", "perfetto", "plane", "queues", "save", "staleness",
    "utilisation",
]  # fmt: skip


@checked
def gantt(
    *results: AnyResult | EngineResult, window_s: tuple[float, float] | None = None
) -> Figure:
    """A Gantt chart of each result, above each other on one time axis.

    Args:
        results: runs on equally many workers; or one of a dependency engine, which then has a row
            for each thread, and arrows for what made operations ready.
        window_s: start and end in virtual seconds; the first four instances unless given.

    Raises:
        OptionError: there is no result, their workers differ, or the window is empty.
    """
    if len(results) == 1 and isinstance(results[0], EngineResult):
        return _gantt_of_operations(results[0], window_s)
    runs = tuple(one for one in results if not isinstance(one, EngineResult))
    if len(runs) < len(results):
        raise OptionError(
            "a result of a dependency engine has a chart of its own; draw them one by one"
        )
    named = _named(runs)
    if len(counts := {one.workers for one in runs}) > 1:
        raise OptionError(f"results must have equally many workers, got {sorted(counts)}")
    drawn = {name: chart_of(one) for name, one in named.items()}
    return gantt_of(drawn, workers=counts.pop(), window_s=window_s or first_window(drawn))


@checked
def queues(result: EngineResult, *times_s: float) -> Figure:
    """The queues of a dependency engine's variables at some instants; for small programs.

    Args:
        result: what ran.
        times_s: the instants, in virtual seconds.

    Raises:
        OptionError: there is no instant, or a queue is too long to be drawn.
    """
    return queues_drawing(result, times_s)


@checked
def perfetto(result: EngineResult, path: str | Path) -> Path:
    """Write a dependency engine's run as a trace for https://ui.perfetto.dev; give the path.

    It has a track for each thread, arrows for what made operations ready, and counters of what lies
    in the places' memories. Runs of models are written by `ampsim gantt MODEL --out FILE.json`.

    Args:
        result: what ran.
        path: the file, `.json`.

    Raises:
        OptionError: the path has another suffix, or the run ends too late for the format.
        OutputError: the file cannot be written.
    """
    target = Path(path)
    if target.suffix.lower() != ".json":
        raise OptionError(f"path must end in .json, got {str(path)!r}; pictures are for save()")
    trace = Trace(
        f"dependency engine, {result.policy.name}",
        _workers(result),
        lambda: [_lasting(result)],
        updates=tuple,
        epochs=DataFrame(),
        transfers=lambda: [result.transfers],
        memory=result.memory.rename(columns={"place": "worker"}),
        dependencies=_dependencies(result),
    )
    write_perfetto([trace], target)
    return target


def _gantt_of_operations(result: EngineResult, window_s: tuple[float, float] | None) -> Figure:
    run = ChartRun(result.spans, dependencies=_dependencies(result))
    window_s = window_s or (0.0, result.makespan_s or 1.0)
    return gantt_of({result.policy.name: run}, workers=_workers(result), window_s=window_s)


def _workers(result: EngineResult) -> int:
    return 1 + max(row.place for row in result.rows)


def _dependencies(result: EngineResult) -> DataFrame:
    """Name, source and target of each dependency, the last two as numbers of spans."""
    joins = DataFrame(result.dependencies, columns=["source", "target", "name"])
    return joins.assign(source=2 * joins["source"] + 1, target=2 * joins["target"] + 1)


def _lasting(result: EngineResult) -> DataFrame:
    """Spans of operations, with what each waited for, and those of pushes that take time."""
    spans, operations = result.spans, result.operations
    is_operation, number = spans["operations"] == 1, spans["operation"]
    names = operations["name"].to_numpy()
    waited_for = operations["waited_for"].to_numpy()
    waited = np.where(waited_for >= 0, names[waited_for] if len(names) else "", "")[number]
    told = spans.assign(
        waited_for=np.where(is_operation, waited, ""),
        variable=operations["variable"].to_numpy()[number],
    )
    return told[is_operation | (spans["end_s"] > spans["start_s"])]


@checked
def staleness(*results: AnyResult) -> Figure:
    """A histogram of each node's staleness.

    Raises:
        OptionError: there is no result.
    """
    return staleness_histogram({name: one.staleness for name, one in _named(results).items()})


@checked
def utilisation(*results: AnyResult) -> Figure:
    """The share of the run that each worker spends on steps of each direction.

    Raises:
        OptionError: there is no result.
    """
    named = _named(results)
    return utilisation_of_each({name: one.utilisation_by_worker for name, one in named.items()})


@checked
def convergence(forecast: Forecast) -> Figure:
    """Draw validation over virtual time and over epochs, with bands over repeats.

    Raises:
        OptionError: nothing was measured, as in mode "sleep".
    """
    return of(forecast, "convergence")


@checked
def plane(forecast: Forecast) -> Figure:
    """Epochs to the target over throughput, with lines of equal time.

    Raises:
        OptionError: no schedule reached the target.
    """
    return of(forecast, "plane")


@checked
def of(forecast: Forecast, name: str) -> Figure:
    """The figure of that name, as recipes name them: "throughput", "bounds", ...

    Raises:
        OptionError: the forecast has no data for it, or there is none of that name.
    """
    found = [figure for _picture, figure in result_figures(forecast, wanted=[name])]
    if not found:
        raise OptionError(f"this forecast has no data for a figure {name!r}")
    return found[0]


def _named(results: tuple[AnyResult, ...]) -> dict[str, AnyResult]:
    if not results:
        raise OptionError("a figure needs at least one result, got none")
    names = [_schedule_of(result) for result in results]
    if len(set(names)) < len(names):
        names = [f"{_schedule_of(one)}, {one.max_active_keys} in flight" for one in results]
    return dict(zip(distinct(names), results, strict=True))


def _schedule_of(result: AnyResult) -> str:
    return result.schedule if isinstance(result.schedule, str) else result.schedule.name
