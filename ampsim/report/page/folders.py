"""The folder of a forecast, and of a run beside its trace: pages, tables, figures."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from ampsim.files import write_bytes
from ampsim.metric import Goal, Metric
from ampsim.output_folder import staged
from ampsim.report.frames import DataFrame, Row, number, rows, runs_by_row
from ampsim.report.page.figures import gantt_together, result_figures, shown_schedules
from ampsim.report.page.html import html_page
from ampsim.report.page.tables import table_files
from ampsim.report.page.text import Picture, Words, page
from ampsim.report.saving import encode
from ampsim.report.table import items_of, to_csv
from ampsim.report.verdict import verdict
from ampsim.runs.folder import KIND, ROWS_KEPT, TABLES, Outcome, TraceWriter, write_run
from ampsim.runs.rows import row_of
from ampsim.runs.run import RunTable, run_of
from ampsim.trace import OnRows
from ampsim.units import format_count, format_rate, format_seconds

CSV: Final = "forecast.csv"
MARKDOWN: Final = "forecast.md"
PAGE: Final = "report.md"
INDEX: Final = "index.html"
OF_FORECAST: Final = (CSV, MARKDOWN, INDEX)
"""Files of every forecast, beside its manifest."""

EPOCHS_SHOWN: Final = 40  # chosen: a longer table hides the figures below it
FIGURES: Final = ("convergence", "utilisation", "bounds", "memory", "staleness")
FILES: Final = (PAGE, INDEX, *(f"{name}.parquet" for name in TABLES))
"""Files of every run, beside its manifest."""


def contents_of(forecast: RunTable) -> dict[str, str | bytes]:
    """Make the files of a forecast, by name.

    These are forecast.csv, epochs.csv, validations.csv if some are within epochs, trials.csv if
    learning rates were tuned, the figures that there are data for (gantt.png, and those of
    `result_figures`), forecast.md, which shows them, and index.html, which holds everything itself.
    """
    runs = runs_by_row(forecast)
    learning = list(result_figures(forecast))
    drawn = [*learning, *gantt_together(forecast, runs)]
    return {
        CSV: to_csv(forecast.table),
        **table_files(forecast),
        **_encoded(drawn),
        MARKDOWN: page(forecast, [picture for picture, _figure in drawn]),
        INDEX: html_page(forecast, learning, shown_schedules(runs)),
    }


def _encoded(drawn: Sequence[tuple[Picture, Figure]]) -> dict[str, str | bytes]:
    return {picture.file: encode(figure, ".png") for picture, figure in drawn}


def view_of(outcome: Outcome, target: float | None = None) -> RunTable:
    """The run as a table of one row, which is what the pages show.

    Args:
        outcome: what was kept.
        target: value of the metric at which training ends, if any.
    """
    result = outcome.result
    name, metric = result.schedule.name, result.model.measure
    whole = run_of(result, outcome.failure, schedule=name, seed=result.origin["seed"])
    run = replace(
        whole, spans=whole.spans.head(ROWS_KEPT), transfers=whole.transfers.head(ROWS_KEPT)
    )
    return RunTable(
        runs=(run,),
        table=DataFrame([row_of(name, Goal(metric, target), [run])]),
        target=target,
        metric=metric,
        model=result.model.name,
        cluster=str(result.origin["cluster"]["name"]),
        workers=run.workers,
        manifest=result.origin,
        interrupted=_ending(outcome),
    )


def _ending(outcome: Outcome) -> str | None:
    if outcome.is_interrupted:
        return f"The run was {outcome.ended}."
    return f"The run {outcome.ended}." if outcome.failure else None


def write_run_folder(
    make: Callable[[OnRows], Outcome],
    folder: str | os.PathLike[str],
    target: float | None = None,
) -> Outcome:
    """Makes a run and writes pages, trace and manifest into `folder`, made if missing.

    They appear together, and take the place of an earlier run; see `ampsim.output_folder`.

    Args:
        make: makes the run, and hands over the rows of its trace as they come.
        folder: where to.
        target: value of the metric at which training ends, if any.

    Raises:
        OutputError: the folder or a file in it cannot be written, is another's, or is being
            written by another process.
    """
    with staged(folder, KIND) as place, TraceWriter(place) as trace:
        outcome = make(trace)
        pages = write_run_page(outcome, place, target)
        write_run(outcome, place, pages, trace)
    return outcome


def write_run_page(outcome: Outcome, folder: str | Path, target: float | None = None) -> list[Path]:
    """Writes figures, report.md, index.html and epochs.csv for a trace; gives the files as written.

    Raises:
        OutputError: a file cannot be written.
    """
    place, view = Path(folder), view_of(outcome, target)
    figures = list(result_figures(view, wanted=FIGURES))
    drawn = [*gantt_together(view, runs_by_row(view)), *figures]
    contents = {
        **_encoded(drawn),
        PAGE: page(view, [picture for picture, _figure in drawn], words_of(view)),
        INDEX: index(view, figures),
        **table_files(view),
    }
    for name, content in contents.items():
        write_bytes(place / name, content if isinstance(content, bytes) else content.encode())
    return [place / name for name in contents]


def index(view: RunTable, figures: Sequence[tuple[Picture, Figure]]) -> str:
    """The page of HTML, with figures and data inside."""
    return html_page(view, figures, shown_schedules(runs_by_row(view)), words_of(view))


def words_of(view: RunTable) -> Words:
    """Return the words of a run's pages that a forecast's do not have."""
    epochs = view.runs[0].epochs
    shown = "Epochs"
    if len(epochs) > EPOCHS_SHOWN:
        shown = f"The last {EPOCHS_SHOWN} of {len(epochs)} epochs"
    seldom = ("outages.parquet",) if len(view.runs[0].outages) else ()
    return Words(
        "Run",
        f"At most the first {ROWS_KEPT:,} steps; ampsim gantt draws them all from this folder.",
        "The whole trace is beside this page, in",
        (*(f"{name}.parquet" for name in TABLES), *seldom),
        "epochs.parquet",
        ((shown, epochs_table(view)),) if len(epochs) else (),
        verdict_of(view),
    )


def verdict_of(view: RunTable) -> str:
    """The table's verdict, and the last epoch's validation."""
    said = verdict(view.table, view.target, view.metric, view.manifest)
    epochs = rows(view.runs[0].epochs)
    score = number(epochs[-1], view.metric.kind) if epochs else math.nan
    if math.isnan(score):
        return said
    time_s = format_seconds(number(epochs[-1], "time_s"))
    after = f"After {len(epochs)} epoch{'' if len(epochs) == 1 else 's'}, at {time_s}"
    return f"{said} {after}, its validation {view.metric.kind} is {view.metric.text(score)}."


def epochs_table(view: RunTable) -> list[list[str]]:
    """Headings, then a line for each of the last epochs."""
    kind = view.metric.kind
    headings = ["epoch", "virtual time", "training loss", "validation loss", f"validation {kind}"]
    items = items_of(rows(view.table)) or "items"
    last = rows(view.runs[0].epochs)[-EPOCHS_SHOWN:]
    return [[*headings, f"training ({items}/s)"], *(_line(row, view.metric) for row in last)]


def _line(row: Row, metric: Metric) -> list[str]:
    spent_s = number(row, "train_s")
    rate = number(row, "instances") / spent_s if spent_s > 0 else None
    return [
        format_count(number(row, "epoch")),
        format_seconds(number(row, "time_s")),
        _three_digits(number(row, "loss")),
        _three_digits(number(row, "valid_loss")),
        metric.text(number(row, metric.kind)),
        format_rate(rate).removesuffix("/s").rstrip(),
    ]


def _three_digits(value: float) -> str:
    return format_count(float(f"{value:.3g}"))
