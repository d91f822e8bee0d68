"""Pages of a run that was kept, beside its trace: index.html, report.md and figures."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from matplotlib.figure import Figure

from ampsim.files import write_text
from ampsim.metric import Goal, Metric
from ampsim.output_folder import staged
from ampsim.paths import expanded
from ampsim.report import markdown
from ampsim.report.columns import format_count, items_of
from ampsim.report.forecast import transfers_of
from ampsim.report.frames import DataFrame, Row, number, rows
from ampsim.report.gantt.outages import outages_of
from ampsim.report.kept import kept_of
from ampsim.report.page.answer import assumed_words, next_of_run
from ampsim.report.page.epochs import write_epochs
from ampsim.report.page.figures import narrow_figures, result_figures
from ampsim.report.page.forecast import gantt_together
from ampsim.report.page.html import Words, html_page
from ampsim.report.page.node_tables import LEFT, node_tables
from ampsim.report.page.text import (
    LEGEND,
    Picture,
    assumptions,
    commands,
    origin,
    picture_parts,
    setting,
    tables_of,
)
from ampsim.report.saving import save
from ampsim.report.table import to_markdown
from ampsim.report.verdict import verdict
from ampsim.study.finished_run import FinishedRun
from ampsim.study.row import row_of
from ampsim.study.run_dir import KIND, TABLES, write_run
from ampsim.study.run_to_keep import Outcome
from ampsim.units import format_rate, format_seconds

PAGE: Final = "report.md"
INDEX: Final = "index.html"
SPANS_SHOWN: Final = 20_000  # chosen: as a forecast keeps, so that a page stays small
EPOCHS_SHOWN: Final = 40  # chosen: a longer table hides the figures below it
FIGURES: Final = ("convergence", "utilisation", "bounds", "memory", "staleness")
FILES: Final = (PAGE, INDEX, *(f"{name}.parquet" for name in TABLES))
"""Files of every run, beside its manifest."""


@dataclass(frozen=True)
class RunView:
    """A run as a forecast of one row, which is what the pages show.

    Attributes:
        run: its numbers and tables, with the leading spans and transfers.
        table: the one row.
        target: value of the metric at which training ends; None without one.
        metric: what validation measures.
        model: the model's name.
        cluster: the cluster's name.
        manifest: origin of the run.
        interrupted: how the run ended, unless it finished.
    """

    run: FinishedRun
    table: DataFrame
    target: float | None
    metric: Metric
    model: str
    cluster: str
    manifest: Mapping[str, Any]
    interrupted: str | None

    @property
    def workers(self) -> int:
        """How many workers there were."""
        return self.run.outline.workers

    @property
    def runs(self) -> Sequence[FinishedRun]:
        """The run."""
        return [self.run]


def view_of(outcome: Outcome, target: float | None = None) -> RunView:
    """The run as the pages show it.

    Args:
        outcome: what was kept.
        target: value of the metric at which training ends, if any.
    """
    result = outcome.result
    whole = result.outline()
    leading = {name: getattr(whole, name).head(SPANS_SHOWN) for name in ("spans", "transfers")}
    outline = replace(whole, **leading)
    metric = result.model.measure
    failures = [outcome.failure] if outcome.failure else []
    row = row_of(result.schedule.name, Goal(metric, target), [outline], failures)
    return RunView(
        run=FinishedRun(result.schedule.name, 1, result.origin["seed"], outline, outcome.failure),
        table=DataFrame([row]),
        target=target,
        metric=metric,
        model=result.model.name,
        cluster=str(result.origin["cluster"]["name"]),
        manifest=result.origin,
        interrupted=_ending(outcome),
    )


def _ending(outcome: Outcome) -> str | None:
    """A sentence on how the run ended, unless it finished."""
    if outcome.is_interrupted:
        return f"The run was {outcome.ended}."
    return f"The run {outcome.ended}." if outcome.failure else None


def write_run_folder(
    outcome: Outcome, folder: str | os.PathLike[str], target: float | None = None
) -> list[Path]:
    """Writes pages, trace and manifest into `folder`, made if missing; gives the files as written.

    They appear together, and take the place of an earlier run; see `ampsim.output_folder`.

    Raises:
        OutputError: the folder or a file in it cannot be written, is another's, or is being
            written by another process.
    """
    with staged(folder, KIND) as place:
        pages = write_run_page(outcome, place, target)
        written = [*pages, *write_run(outcome, place, pages)]
    return [expanded(folder) / path.name for path in written]


def write_run_page(outcome: Outcome, folder: str | Path, target: float | None = None) -> list[Path]:
    """Writes figures, report.md, index.html and epochs.csv for a trace; gives the files as written.

    Raises:
        OutputError: a file cannot be written.
    """
    place, view = Path(folder), view_of(outcome, target)
    figures = list(result_figures(view, wanted=FIGURES))
    charts = gantt_together(view, {view.run.schedule: [view.run]})
    written = [save(figure, place / picture.file) for picture, figure in [*charts, *figures]]
    write_text(place / PAGE, page(view, [picture for picture, _figure in [*charts, *figures]]))
    write_text(place / INDEX, index(view, figures))
    return [*written, place / PAGE, place / INDEX, *write_epochs(view, place)]


def index(view: RunView, figures: Sequence[tuple[Picture, Figure]]) -> str:
    """The page of HTML, with figures and data inside."""
    spans = {view.run.schedule: view.run.spans} if len(view.run.spans) else {}
    words = Words(
        "Run",
        f"At most the first {SPANS_SHOWN:,} steps; ampsim gantt draws them all from this folder.",
        "The whole trace is beside this page, in",
        _tables(view),
        ((_epochs_heading(view), epochs_table(view)),) if len(view.run.epochs) else (),
        verdict_of(view),
        tuple(next_of_run(view.manifest, len(view.run.epochs))),
    )  # fmt: skip
    return html_page(
        view,
        figures,
        spans,
        words,
        {view.run.schedule: transfers_of(view.run)},
        kept={view.run.schedule: kept_of(view.run)},
        outages={view.run.schedule: outages_of(view.run)},
        narrow=narrow_figures(view, FIGURES),
    )


def _tables(view: RunView) -> tuple[str, ...]:
    """The files of the trace that are kept of a run."""
    seldom = ("outages.parquet",) if len(view.run.outline.outages) else ()
    return (*(f"{name}.parquet" for name in TABLES), *seldom)


def page(view: RunView, pictures: Sequence[Picture]) -> str:
    """The page in Markdown."""
    model, cluster = markdown.escape(view.model), markdown.escape(view.cluster)
    headings, *lines = epochs_table(view)
    table = markdown.table(headings, lines, left=()).rstrip("\n")
    files = ", ".join(f"[{name}]({name})" for name in _tables(view))
    parts = [
        f"# Run: {model} on {cluster}",
        f"**{markdown.paragraph(verdict_of(view))}**",
        setting(view),
        markdown.escape(assumed_words(view.manifest)),
        markdown.escape(view.interrupted or ""),
        to_markdown(view.table, has_target=view.target is not None).rstrip("\n"),
        LEGEND,
        *([f"## {_epochs_heading(view)}", table] if lines else []),
        *(part for picture in pictures for part in picture_parts(picture)),
        *tables_of(node_tables(view), LEFT),
        *commands(next_of_run(view.manifest, len(view.run.epochs))),
        *assumptions(view.manifest),
        *origin(view.manifest, "epochs.parquet"),
        f"The whole trace: {files}.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def verdict_of(view: RunView) -> str:
    """The table's verdict, and the last epoch's validation."""
    said = verdict(view.table, view.target, view.metric)
    if not len(view.run.epochs):
        return said
    last, count = rows(view.run.epochs)[-1], len(view.run.epochs)
    score = number(last, view.metric.kind)
    time_s = format_seconds(number(last, "time_s"))
    after = f"After {count} epoch{'' if count == 1 else 's'}, at {time_s}"
    if math.isnan(score):
        return said
    return f"{said} {after}, its validation {view.metric.kind} is {view.metric.text(score)}."


def epochs_table(view: RunView) -> list[list[str]]:
    """Headings, then a line for each of the last epochs."""
    kind = view.metric.kind
    headings = ["epoch", "virtual time", "training loss", "validation loss", f"validation {kind}"]
    items = items_of(rows(view.table)) or "items"
    return [
        [*headings, f"training ({items}/s)"],
        *(_line(row, view.metric) for row in _last_epochs(view)),
    ]


def _last_epochs(view: RunView) -> list[Row]:
    return rows(view.run.epochs)[-EPOCHS_SHOWN:]


def _epochs_heading(view: RunView) -> str:
    count = len(view.run.epochs)
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
