"""A finished forecast as one page of HTML, with its figures and data inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from ampsim.report.forecast import Forecast, devices_of
from ampsim.report.frames import DataFrame
from ampsim.report.gantt.view import gantt_view
from ampsim.report.kept import Kept
from ampsim.report.page.answer import NEXT, assumed_words, next_steps
from ampsim.report.page.left_open import left_open
from ampsim.report.page.node_tables import LEFT, node_tables
from ampsim.report.page.svg import dark_colours, page_svg
from ampsim.report.page.text import (
    LEGEND,
    PAPER,
    Picture,
    assumed,
    charged,
    device_words,
    origin_values,
    ruling,
    setting,
)
from ampsim.report.page.tuning_tables import tuning_tables
from ampsim.report.table import notes, to_cells
from ampsim.report.template import render
from ampsim.report.verdict import best_rows
from ampsim.report.words import plain
from ampsim.toml_text import to_toml

_LONGEST = 400  # chosen: of a user's text; enough for two sentences
_SENTENCES = 4000  # chosen: of what ampsim says itself, with every device named


@dataclass(frozen=True, slots=True)
class Words:
    """Texts and tables that differ between the page of a forecast and that of a run.

    Attributes:
        kind: first word of the title.
        chart: sentence below the heading of the Gantt chart.
        files: beginning of the sentence that ends with the names of the files beside the page.
        names: names of these files.
        tables: further tables: heading, then headings of the columns, then lines.
        verdict: the verdict; that of the table if empty.
        next: commands that say more; those of a forecast if empty.
    """

    kind: str
    chart: str
    files: str
    names: tuple[str, ...]
    tables: tuple[tuple[str, list[list[str]]], ...] = ()
    verdict: str = ""
    next: tuple[str, ...] = ()


FORECAST = Words(
    "Forecast",
    "One run of each schedule; of a long run only the beginning is kept.",
    "All values with every digit are beside this page, in",
    ("forecast.csv",),
)


def html_page(
    forecast: Forecast,
    figures: Sequence[tuple[Picture, Figure]],
    spans_by_schedule: Mapping[str, DataFrame],
    words: Words = FORECAST,
    transfers: Mapping[str, Sequence[DataFrame]] | None = None,
    *,
    kept: Mapping[str, Kept | None] | None = None,
    outages: Mapping[str, DataFrame | None] | None = None,
    narrow: Sequence[Figure] = (),
) -> str:
    """The page: verdict, table, interactive Gantt chart, figures, assumptions, origin.

    The page loads nothing from any network, and shows names that users chose letter for letter.

    Args:
        forecast: the table, its runs and the manifest.
        figures: the figures with their headings, descriptions and captions.
        spans_by_schedule: spans of a run of each schedule; the page has no chart where it is empty.
        words: texts of this kind of page.
        transfers: transfers of the same runs, which the chart draws as arrows.
        kept: how much of each run `spans_by_schedule` has; all of a run that it does not name.
        outages: when which device of each run was not as usual.
        narrow: the same figures for a phone; where it is empty a phone shrinks `figures`.
    """
    is_known = len(forecast.table) > 0
    headings, *lines = (
        to_cells(forecast.table, has_target=forecast.target is not None) if is_known else [[]]
    )
    values: dict[str, Any] = {
        "title": f"{words.kind}: {plain(forecast.model, 80)} on {plain(forecast.cluster, 80)}",
        "words": words,
        "verdict": words.verdict or ruling(forecast),
        "setting": setting(forecast),
        **_beside_verdict(forecast, words),
        "interrupted": plain(getattr(forecast, "interrupted", None) or "", _LONGEST),
        "headings": headings,
        "lines": lines,
        "best": best_rows(forecast.table) if len(lines) > 1 else [],
        "notes": notes(forecast.table),
        "legend": LEGEND if is_known else "",
        "view": gantt_view(
            spans_by_schedule,
            workers=forecast.workers,
            devices=devices_of(forecast),
            transfers=transfers,
            kept=kept,
            outages=outages,
        )
        if spans_by_schedule
        else None,
        "trials": tuning_tables(forecast),
        "nodes": node_tables(forecast),
        "left": LEFT,
        "paper": PAPER,
        "pictures": _drawn(figures, narrow),
        "dark": dark_colours(),
        "assumed": [plain(sentence, _SENTENCES) for sentence in assumed(forecast.manifest)],
        "charged": charged(forecast.manifest),
        "origin": [
            [plain(cell, _LONGEST) for cell in row] for row in origin_values(forecast.manifest)
        ],
        "manifest": to_toml(forecast.manifest),
    }
    return render("forecast.html", **values)


def _beside_verdict(forecast: Forecast, words: Words) -> dict[str, Any]:
    """What is left open, what was assumed, and what to type next."""
    manifest, table = forecast.manifest, forecast.table
    first = [left_open(forecast), assumed_words(manifest), device_words(table)]
    return {
        "assumed_first": plain(" ".join(filter(None, first)), _SENTENCES),
        "next": [plain(one, _LONGEST) for one in words.next or next_steps(forecast)],
        "next_heading": NEXT,
    }


def _drawn(
    figures: Sequence[tuple[Picture, Figure]], narrow: Sequence[Figure]
) -> list[tuple[Picture, str, str]]:
    """Each picture as an element of the page, and its narrow one, empty if there is none."""
    return [
        (
            picture,
            page_svg(figure, f"w{place}", picture.description),
            page_svg(narrow[place], f"n{place}", picture.description) if narrow else "",
        )
        for place, (picture, figure) in enumerate(figures)
    ]
