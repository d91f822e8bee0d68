"""Pages of a run that was kept, beside its trace: index.html, report.md and figures."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from ampsim.files import write_text
from ampsim.metric import Goal, Metric
from ampsim.output_folder import staged
from ampsim.report import words as markdown
from ampsim.report.frames import DataFrame, Row, kept_of, number, rows, transfers_of
from ampsim.report.gantt.outages import outages_of
from ampsim.report.page.answer import next_of_run
from ampsim.report.page.figures import gantt_together, narrow_figures, result_figures
from ampsim.report.page.html import Words, html_page
from ampsim.report.page.tables import LEFT, node_tables, write_epochs
from ampsim.report.page.text import (
    Picture,
    answer_parts,
    assumptions,
    commands,
    origin,
    picture_parts,
    setting,
    tables_of,
)
from ampsim.report.saving import save
from ampsim.report.table import format_count, items_of
from ampsim.report.verdict import verdict
from ampsim.runs.folder import KIND, ROWS_KEPT, TABLES, Outcome, TraceWriter, write_run
from ampsim.runs.rows import row_of
from ampsim.runs.run import RunTable, run_of
from ampsim.trace import OnRows
from ampsim.units import format_rate, format_seconds

PAGE: Final = "report.md"
INDEX: Final = "index.html"
EPOCHS_SHOWN: Final = 40  # chosen: a longer table hides the figures below it
FIGURES: Final = ("convergence", "utilisation", "bounds", "memory", "staleness")
FILES: Final = (PAGE, INDEX, *(f"{name}.parquet" for name in TABLES))
"""Files of every run, beside its manifest."""


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
    """A sentence on how the run ended, unless it finished."""
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
    charts = gantt_together(view, {view.runs[0].schedule: [*view.runs]})
    written = [save(figure, place / picture.file) for picture, figure in [*charts, *figures]]
    write_text(place / PAGE, page(view, [picture for picture, _figure in [*charts, *figures]]))
    write_text(place / INDEX, index(view, figures))
    return [*written, place / PAGE, place / INDEX, *write_epochs(view, place)]


def index(view: RunTable, figures: Sequence[tuple[Picture, Figure]]) -> str:
    """The page of HTML, with figures and data inside."""
    spans = {view.runs[0].schedule: view.runs[0].spans} if len(view.runs[0].spans) else {}
    words = Words(
        "Run",
        f"At most the first {ROWS_KEPT:,} steps; ampsim gantt draws them all from this folder.",
        "The whole trace is beside this page, in",
        _tables(view),
        ((_epochs_heading(view), epochs_table(view)),) if len(view.runs[0].epochs) else (),
        verdict_of(view),
        tuple(next_of_run(view.manifest, len(view.runs[0].epochs))),
    )  # fmt: skip
    return html_page(
        view,
        figures,
        spans,
        words,
        {view.runs[0].schedule: transfers_of(view.runs[0])},
        kept={view.runs[0].schedule: kept_of(view.runs[0])},
        outages={view.runs[0].schedule: outages_of(view.runs[0])},
        narrow=narrow_figures(view, FIGURES),
    )


def _tables(view: RunTable) -> tuple[str, ...]:
    """The files of the trace that are kept of a run."""
    seldom = ("outages.parquet",) if len(view.runs[0].outages) else ()
    return (*(f"{name}.parquet" for name in TABLES), *seldom)


def page(view: RunTable, pictures: Sequence[Picture]) -> str:
    """The page in Markdown."""
    model, cluster = markdown.escape(view.model), markdown.escape(view.cluster)
    headings, *lines = epochs_table(view)
    table = markdown.table(headings, lines, left=()).rstrip("\n")
    files = ", ".join(f"[{name}]({name})" for name in _tables(view))
    parts = [
        f"# Run: {model} on {cluster}",
        f"**{markdown.paragraph(verdict_of(view))}**",
        setting(view),
        markdown.escape(view.interrupted or ""),
        *answer_parts(view),
        *([f"## {_epochs_heading(view)}", table] if lines else []),
        *(part for picture in pictures for part in picture_parts(picture)),
        *tables_of(node_tables(view), LEFT),
        *commands(next_of_run(view.manifest, len(view.runs[0].epochs))),
        *assumptions(view.manifest),
        *origin(view.manifest, "epochs.parquet"),
        f"The whole trace: {files}.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def verdict_of(view: RunTable) -> str:
    """The table's verdict, and the last epoch's validation."""
    said = verdict(view.table, view.target, view.metric)
    if not len(view.runs[0].epochs):
        return said
    last, count = rows(view.runs[0].epochs)[-1], len(view.runs[0].epochs)
    score = number(last, view.metric.kind)
    time_s = format_seconds(number(last, "time_s"))
    after = f"After {count} epoch{'' if count == 1 else 's'}, at {time_s}"
    if math.isnan(score):
        return said
    return f"{said} {after}, its validation {view.metric.kind} is {view.metric.text(score)}."


def epochs_table(view: RunTable) -> list[list[str]]:
    """Headings, then a line for each of the last epochs."""
    kind = view.metric.kind
    headings = ["epoch", "virtual time", "training loss", "validation loss", f"validation {kind}"]
    items = items_of(rows(view.table)) or "items"
    return [
        [*headings, f"training ({items}/s)"],
        *(_line(row, view.metric) for row in _last_epochs(view)),
    ]


def _last_epochs(view: RunTable) -> list[Row]:
    return rows(view.runs[0].epochs)[-EPOCHS_SHOWN:]


def _epochs_heading(view: RunTable) -> str:
    count = len(view.runs[0].epochs)
    return "Epochs" if count <= EPOCHS_SHOWN else f"The last {EPOCHS_SHOWN} of {count} epochs"


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
