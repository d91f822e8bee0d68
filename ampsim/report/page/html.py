"""A finished forecast as one page of HTML, with its figures and data inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from ampsim.report.gantt.boxes import Charted
from ampsim.report.gantt.view import gantt_view
from ampsim.report.page.tables import LEFT, bought, node_tables, tuning_tables
from ampsim.report.page.text import (
    ALL_COLUMNS,
    CHANGES,
    FORECAST,
    PAPER,
    Picture,
    Words,
    charged,
    lines_below,
    origin_values,
    sentences_under,
    setting,
)
from ampsim.report.saving import page_svg, render
from ampsim.report.table import answer_cells, answer_titles, columns_folded
from ampsim.report.verdict import called_rows, verdict
from ampsim.report.words import LONGEST, PARAGRAPH, plain
from ampsim.runs.run import RunTable
from ampsim.study.provenance import devices_of
from ampsim.text import to_toml

_FIXED = "\N{NO-BREAK SPACE}"


def html_page(
    forecast: RunTable,
    figures: Sequence[tuple[Picture, Figure]],
    charted: Charted,
    words: Words = FORECAST,
) -> str:
    """The page: verdict, table, interactive Gantt chart, figures, assumptions, origin.

    The page loads nothing from any network, and shows names that users chose letter for letter.

    Args:
        forecast: the table, its runs and the manifest.
        figures: the figures with their headings, descriptions and captions.
        charted: a run of each schedule; the page has no chart where it is empty.
        words: texts of this kind of page.
    """
    values: dict[str, Any] = {
        "title": f"{words.kind}: {plain(forecast.model, 80)} on {plain(forecast.cluster, 80)}",
        "words": words,
        "verdict": words.verdict
        or verdict(forecast.table, forecast.target, forecast.metric, forecast.manifest),
        "setting": setting(forecast),
        "interrupted": plain(forecast.interrupted or "", LONGEST),
        **_answer(forecast),
        "view": gantt_view(charted, workers=forecast.workers, devices=devices_of(forecast.manifest))
        if charted
        else None,
        "trials": tuning_tables(forecast),
        "nodes": node_tables(forecast),
        "left": LEFT,
        "paper": PAPER,
        "pictures": [
            (picture, page_svg(figure, f"w{place}", picture.description))
            for place, (picture, figure) in enumerate(figures)
        ],
        "assumed": _said(sentences_under(forecast.manifest, "assumptions")),
        "charged": charged(forecast.manifest),
        "origin": [
            [plain(cell, LONGEST) for cell in row] for row in origin_values(forecast.manifest)
        ],
        "manifest": to_toml(forecast.manifest),
    }
    return render("forecast.html", **values)


def _answer(forecast: RunTable) -> dict[str, Any]:
    """The table with what its headings mean, the lines below, and all columns for a fold."""
    table, target = forecast.table, forecast.target
    headings, *lines = answer_cells(table, target)
    return {
        "headings": list(zip(headings, answer_titles(table, target), strict=True)),
        "lines": [  # a narrow page breaks a cell before its interval alone
            [name, *(one.replace(" ", _FIXED).replace(f"{_FIXED}[", " [") for one in cells)]
            for name, *cells in lines
        ],
        "best": called_rows(table) if len(lines) > 1 else [],
        "notes": _said(lines_below(forecast)),
        "changes": (CHANGES, _said(sentences_under(forecast.manifest, "changes"))),
        "columns": [*bought(forecast), (ALL_COLUMNS, columns_folded(table))],
    }


def _said(lines: Sequence[str]) -> list[str]:
    return [plain(line, PARAGRAPH) for line in lines]
