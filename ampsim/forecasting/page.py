"""A finished forecast as a folder: page, table, figures and manifest."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from ampsim.files import expanded, sha256_of, write_text
from ampsim.output_folder import MANIFEST, staged
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
from ampsim.report.page.tables import write_tables
from ampsim.report.page.text import Picture, page
from ampsim.report.saving import save
from ampsim.report.table import to_csv
from ampsim.report.words import slugs
from ampsim.runs.run import RunTable
from ampsim.text import to_toml

TABLE: Final = "forecast.csv"
PAGE: Final = "forecast.md"
INDEX: Final = "index.html"
FILES: Final = (TABLE, PAGE, INDEX)
"""Files of every forecast, beside its manifest."""

_KIND: Final = "forecast"
_FORMAT: Final = 1


def write_forecast(forecast: RunTable, folder: str | os.PathLike[str]) -> list[Path]:
    """Writes the forecast into `folder`, made if missing; gives the files in the order written.

    These are forecast.csv, epochs.csv, validations.csv if some are within epochs, trials.csv if
    learning rates were tuned, the figures that there are data for (gantt.png and
    gantt-<schedule>.png, and those of `result_figures`), forecast.md, which shows them, index.html,
    which holds everything itself, and last manifest.toml with the hashes of the others. They appear
    together, and take the place of an earlier forecast; see `ampsim.output_folder`.

    Raises:
        OutputError: the folder or a file in it cannot be written, is another's, or is being
            written by another process.
    """
    with staged(folder, _KIND) as place:
        written = _write(forecast, place)
        files = {path.name: sha256_of(path) for path in written}
        start = {"kind": _KIND, "format": _FORMAT}
        write_text(place / MANIFEST, to_toml({**start, **forecast.manifest, "files": files}))
    return [expanded(folder) / name for name in (*files, MANIFEST)]


def _write(forecast: RunTable, place: Path) -> list[Path]:
    """Write everything but the manifest."""
    write_text(place / TABLE, to_csv(forecast.table))
    written = [place / TABLE, *write_tables(forecast, place)]
    runs = runs_by_row(forecast)
    learning = list(result_figures(forecast))
    for_phone = narrow_figures(forecast)
    shown = shown_schedules(runs)
    charts = [*gantt_together(forecast, runs), *_gantt_each(forecast, shown)]
    pictures: list[Picture] = []
    for picture, figure in [*learning, *charts]:
        written.append(save(figure, place / picture.file))
        pictures.append(picture)
    write_text(place / PAGE, page(forecast, pictures))
    told = html_page(forecast, learning, shown, narrow=for_phone)
    write_text(place / INDEX, told)
    return [*written, place / PAGE, place / INDEX]


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
