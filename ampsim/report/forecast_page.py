"""A finished forecast as a folder: page, table, figures and manifest."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from ampsim.files import prepare_folder, write_text
from ampsim.report.forecast import (
    Forecast,
    Run,
    devices_of,
    known_until_s,
    runs_by_row,
    transfers_of,
)
from ampsim.report.forecast_html import html_page
from ampsim.report.forecast_text import Picture, page
from ampsim.report.frames import DataFrame
from ampsim.report.gantt import Schedule, gantt, gantt_comparison
from ampsim.report.gantt_boxes import choose_window
from ampsim.report.naming import slugs
from ampsim.report.result_figures import result_figures
from ampsim.report.saving import save
from ampsim.report.table import to_csv
from ampsim.toml_text import to_toml

_INSTANCES = 4  # as in the paper's Figure 1


def write_forecast(forecast: Forecast, folder: str | Path) -> list[Path]:
    """Writes the forecast into `folder`, made if missing; gives the files in the order written.

    These are manifest.toml, forecast.csv, the figures that there are data for (gantt.png and
    gantt-<schedule>.png, and those of `result_figures`), forecast.md, which
    shows them, and index.html, which holds everything itself. Older files of these names are
    replaced.

    Raises:
        OutputError: the folder or a file in it cannot be written.
    """
    place = prepare_folder(folder)
    manifest, values = place / "manifest.toml", place / "forecast.csv"
    write_text(manifest, to_toml(forecast.manifest))
    write_text(values, to_csv(forecast.table))
    written = [manifest, values]
    runs = runs_by_row(forecast)
    learning = list(result_figures(forecast))
    shown = _shown(runs)
    charts = [*gantt_together(forecast, runs), *_gantt_each(forecast, shown)]
    pictures: list[Picture] = []
    for picture, figure in [*learning, *charts]:
        written.append(save(figure, place / picture.file))
        pictures.append(picture)
    text, index = place / "forecast.md", place / "index.html"
    write_text(text, page(forecast, pictures))
    spans, sent = _spans(shown), {name: one.transfers for name, one in shown.items()}
    write_text(index, html_page(forecast, learning, spans, transfers=sent))
    return [*written, text, index]


def gantt_together(forecast: Forecast, runs: dict[str, list[Run]]) -> list[tuple[Picture, Figure]]:
    """The schedules on one time axis; first repeats only."""
    shown = _shown(runs)
    if not shown:
        return []
    until_s = known_until_s(repeats[0] for repeats in runs.values())
    together = gantt_comparison(
        shown,
        workers=forecast.workers,
        window_s=choose_window(_spans(shown), _INSTANCES, until_s),
        devices=devices_of(forecast),
    )
    picture = Picture("gantt.png", "Who works when", "Gantt charts on one time axis")
    return [(picture, together)]


def _gantt_each(forecast: Forecast, shown: dict[str, Schedule]) -> list[tuple[Picture, Figure]]:
    """Each schedule in a window of its own; first repeats only."""
    figures: list[tuple[Picture, Figure]] = []
    devices = devices_of(forecast)
    for name, part in slugs(shown).items():
        one = shown[name]
        chart = gantt(
            one.spans,
            workers=forecast.workers,
            window_s=choose_window({name: one.spans}, _INSTANCES),
            title=name,
            devices=devices,
            transfers=one.transfers,
        )
        figures.append((Picture(f"gantt-{part}.png", "", f"Gantt chart of {name}"), chart))
    return figures


def _shown(runs: dict[str, list[Run]]) -> dict[str, Schedule]:
    """The first repeat of each row that has spans."""
    return {
        name: Schedule(repeats[0].spans, transfers_of(repeats[0]))
        for name, repeats in runs.items()
        if len(repeats[0].spans)
    }


def _spans(shown: dict[str, Schedule]) -> dict[str, DataFrame]:
    return {name: one.spans for name, one in shown.items()}
