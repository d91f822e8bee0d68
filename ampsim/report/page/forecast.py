"""A finished forecast as a folder: page, table, figures and manifest."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from ampsim.files import sha256_of, write_text
from ampsim.output_folder import MANIFEST, staged
from ampsim.paths import expanded
from ampsim.report.forecast import (
    Forecast,
    Run,
    devices_of,
    known_until_s,
    runs_by_row,
    transfers_of,
)
from ampsim.report.frames import DataFrame
from ampsim.report.gantt.boxes import choose_window
from ampsim.report.gantt.chart import Schedule, gantt, gantt_comparison
from ampsim.report.gantt.outages import instances_of, outages_of
from ampsim.report.kept import kept_of
from ampsim.report.naming import slugs
from ampsim.report.page.epochs import write_epochs
from ampsim.report.page.figures import narrow_figures, result_figures
from ampsim.report.page.html import html_page
from ampsim.report.page.text import Picture, page
from ampsim.report.page.tuning_tables import write_trials
from ampsim.report.saving import save
from ampsim.report.table import to_csv
from ampsim.toml_text import to_toml

TABLE: Final = "forecast.csv"
PAGE: Final = "forecast.md"
INDEX: Final = "index.html"
FILES: Final = (TABLE, PAGE, INDEX)
"""Files of every forecast, beside its manifest."""

TOGETHER: Final = Picture(
    "gantt.png",
    "Who works when",
    "Gantt charts on one time axis",
    "The leading instances of the first repeat of each row. A box is a step of a worker, and its "
    "number the instance.",
)
"""The one figure of a report that spans are needed for."""

_KIND: Final = "forecast"
_FORMAT: Final = 1
_INSTANCES = 4  # as in the paper's Figure 1


def write_forecast(forecast: Forecast, folder: str | os.PathLike[str]) -> list[Path]:
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


def _write(forecast: Forecast, place: Path) -> list[Path]:
    """Write everything but the manifest."""
    write_text(place / TABLE, to_csv(forecast.table))
    written = [place / TABLE, *write_epochs(forecast, place), *write_trials(forecast, place)]
    runs = runs_by_row(forecast)
    learning = list(result_figures(forecast))
    for_phone = narrow_figures(forecast)
    shown = _shown(runs)
    charts = [*gantt_together(forecast, runs), *_gantt_each(forecast, shown)]
    pictures: list[Picture] = []
    for picture, figure in [*learning, *charts]:
        written.append(save(figure, place / picture.file))
        pictures.append(picture)
    write_text(place / PAGE, page(forecast, pictures))
    spans, sent = _spans(shown), {name: one.transfers for name, one in shown.items()}
    kept = {name: one.kept for name, one in shown.items()}
    outages = {name: one.outages for name, one in shown.items()}
    told = html_page(
        forecast, learning, spans, transfers=sent, kept=kept, outages=outages, narrow=for_phone
    )
    write_text(place / INDEX, told)
    return [*written, place / PAGE, place / INDEX]


def gantt_together(forecast: Forecast, runs: dict[str, list[Run]]) -> list[tuple[Picture, Figure]]:
    """The schedules on one time axis; first repeats only."""
    shown = _shown(runs)
    if not shown:
        return []
    until_s = known_until_s(repeats[0] for repeats in runs.values())
    count = max(_INSTANCES, instances_of(one.outages for one in shown.values()))
    together = gantt_comparison(
        shown,
        workers=forecast.workers,
        window_s=choose_window(_spans(shown), count, until_s),
        devices=devices_of(forecast),
    )
    return [(TOGETHER, together)]


def _gantt_each(forecast: Forecast, shown: dict[str, Schedule]) -> list[tuple[Picture, Figure]]:
    """Each schedule in a window of its own; first repeats only."""
    figures: list[tuple[Picture, Figure]] = []
    devices = devices_of(forecast)
    for name, part in slugs(shown).items():
        one = shown[name]
        chart = gantt(
            one.spans,
            workers=forecast.workers,
            window_s=choose_window({name: one.spans}, max(_INSTANCES, instances_of([one.outages]))),
            title=name,
            devices=devices,
            transfers=one.transfers,
            kept=one.kept,
            outages=one.outages,
        )
        caption = f"The leading instances of the first repeat of {name}, in a window of their own."
        picture = Picture(f"gantt-{part}.png", "", f"Gantt chart of {name}", caption)
        figures.append((picture, chart))
    return figures


def _shown(runs: dict[str, list[Run]]) -> dict[str, Schedule]:
    """The first repeat of each row that has spans."""
    return {
        name: Schedule(
            repeats[0].spans,
            transfers_of(repeats[0]),
            kept_of(repeats[0]),
            outages_of(repeats[0]),
        )
        for name, repeats in runs.items()
        if len(repeats[0].spans)
    }


def _spans(shown: dict[str, Schedule]) -> dict[str, DataFrame]:
    return {name: one.spans for name, one in shown.items()}
