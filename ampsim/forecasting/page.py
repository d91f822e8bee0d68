"""A finished forecast as a folder: page, table, figures and manifest."""

from __future__ import annotations

from typing import Final

from matplotlib.figure import Figure

from ampsim.report.frames import devices_of, runs_by_row
from ampsim.report.gantt.boxes import ChartRun, first_window
from ampsim.report.gantt.chart import gantt
from ampsim.report.page.figures import (
    gantt_together,
    narrow_figures,
    result_figures,
    shown_schedules,
)
from ampsim.report.page.html import html_page
from ampsim.report.page.tables import table_files
from ampsim.report.page.text import Picture, page
from ampsim.report.saving import encode
from ampsim.report.table import to_csv
from ampsim.report.words import slugs
from ampsim.runs.run import RunTable

TABLE: Final = "forecast.csv"
PAGE: Final = "forecast.md"
INDEX: Final = "index.html"
FILES: Final = (TABLE, PAGE, INDEX)
"""Files of every forecast, beside its manifest."""


def contents_of(forecast: RunTable) -> dict[str, str | bytes]:
    """What each file of a forecast holds, by its name.

    These are forecast.csv, epochs.csv, validations.csv if some are within epochs, trials.csv if
    learning rates were tuned, the figures that there are data for (gantt.png and
    gantt-<schedule>.png, and those of `result_figures`), forecast.md, which shows them, and
    index.html, which holds everything itself.
    """
    runs = runs_by_row(forecast)
    learning = list(result_figures(forecast))
    for_phone = narrow_figures(forecast)
    shown = shown_schedules(runs)
    drawn = [*learning, *gantt_together(forecast, runs), *_gantt_each(forecast, shown)]
    return {
        TABLE: to_csv(forecast.table),
        **table_files(forecast),
        **{picture.file: encode(figure, ".png") for picture, figure in drawn},
        PAGE: page(forecast, [picture for picture, _figure in drawn]),
        INDEX: html_page(forecast, learning, shown, narrow=for_phone),
    }


def _gantt_each(forecast: RunTable, shown: dict[str, ChartRun]) -> list[tuple[Picture, Figure]]:
    """Each schedule in a window of its own; first repeats only."""
    figures: list[tuple[Picture, Figure]] = []
    devices = devices_of(forecast)
    for name, part in slugs(shown).items():
        one = shown[name]
        chart = gantt(
            one,
            workers=forecast.workers,
            window_s=first_window({name: one}),
            title=name,
            devices=devices,
        )
        caption = f"The leading instances of the first repeat of {name}, in a window of their own."
        picture = Picture(f"gantt-{part}.png", "", f"Gantt chart of {name}", caption)
        figures.append((picture, chart))
    return figures
