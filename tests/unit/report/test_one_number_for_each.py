"""A quantity is one number, wherever a forecast's files and figures show it."""

from __future__ import annotations

import csv
import html
import json
import re
from dataclasses import dataclass
from typing import Any

import pytest
from unpainted import no_paint

import ampsim
from ampsim.forecasting.forecast import to_json
from ampsim.report.page.figures import result_figures
from ampsim.units import format_count, format_percent, format_rate, format_seconds

NAMES = ("sequential", "amp")
QUANTITIES = {  # column of the table, how its heading in the answer begins, how people read it
    "train_per_s": ("training images/s", lambda x: format_rate(x).removesuffix("/s").strip()),
    "epochs_to_target": ("epochs", format_count),
    "time_to_target_s": ("time to target", format_seconds),
}
FOLDED = {
    "train_per_s": format_rate, "utilisation": format_percent, "staleness_mean": format_count,
    "epochs_to_target": format_count, "time_to_target_s": format_seconds,
}  # fmt: skip


@dataclass(frozen=True)
class Said:
    """One forecast: its rows by schedule as each file has them, and all words of its figures."""

    csv: dict[str, Any]
    json: dict[str, Any]
    markdown: dict[str, Any]
    page: dict[str, Any]
    folded: dict[str, dict[str, str]]
    words: dict[str, list[str]]


def by_name(heading: list[str], lines: list[list[str]]) -> dict[str, dict[str, str]]:
    named = [dict(zip(heading, line, strict=True)) for line in lines]
    return {one["schedule"]: one for one in named}


def markdown_rows(text: str) -> dict[str, Any]:
    table = [line for line in text.splitlines() if line.startswith("|")]
    while not table[0].startswith("| schedule"):
        table.pop(0)
    cells = [[cell.strip("* ") for cell in line.strip("|").split("|")] for line in table[: 2 + 2]]
    return by_name(cells[0], cells[2:])


def folded_rows(text: str) -> dict[str, dict[str, str]]:
    """The columns of the fold, by name and schedule."""
    _before, _, fold = text.partition("<summary>All columns")
    table = [line for line in fold.partition("</details>")[0].splitlines() if line.startswith("|")]
    cells = [
        [cell.strip().replace("\\", "") for cell in line.strip("|").split("|")] for line in table
    ]
    return {line[0]: dict(zip(cells[0], line, strict=True)) for line in cells[2:]}


def page_rows(text: str) -> dict[str, Any]:
    table = re.search(r'<table class="schedules".*?</table>', text, re.DOTALL)
    assert table is not None
    lines = [
        [
            html.unescape(" ".join(re.sub(r"<[^>]*>", " ", cell).split()))
            for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line, re.DOTALL)
        ]
        for line in re.findall(r"<tr[^>]*>(.*?)</tr>", table[0], re.DOTALL)
    ]
    return by_name(lines[0], lines[1:])


def words_of(figure: Any) -> list[str]:
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
    entries = [text.get_text() for one in legends if one for text in one.get_texts()]
    drawn = [text.get_text() for axes in figure.axes for text in axes.texts]
    titles = [axes.get_title(loc=where) for axes in figure.axes for where in ("left", "right")]
    return [text for text in (*entries, *drawn, *titles) if text]


@pytest.fixture(scope="module")
def said(tmp_path_factory) -> Said:
    folder = tmp_path_factory.mktemp("forecast") / "made"
    model = ampsim.load_model("mlp", data="synthetic", hidden=8)
    cluster = ampsim.load_cluster("tflops-1", workers=4)
    schedules = [ampsim.Sequential(), ampsim.Amp(4)]
    options = {"instances": 300, "max_epochs": 8, "target": 0.15, "repeats": 2, "jobs": 1}
    made = ampsim.forecast(model, cluster, schedules, **options)
    with pytest.MonkeyPatch.context() as patch:
        no_paint(patch)  # figures are asked for their words below
        made.save(folder)
    rows = list(csv.DictReader((folder / "forecast.csv").read_text("utf-8").splitlines()))
    return Said(
        {row["schedule"]: row for row in rows},
        {row["schedule"]: row for row in json.loads(to_json(made, seed=0))["rows"]},
        markdown_rows((folder / "forecast.md").read_text("utf-8")),
        page_rows((folder / "index.html").read_text("utf-8")),
        folded_rows((folder / "forecast.md").read_text("utf-8")),
        {picture.file: words_of(figure) for picture, figure in result_figures(made)},
    )


@pytest.mark.slow
@pytest.mark.parametrize("column", QUANTITIES)
@pytest.mark.parametrize("schedule", NAMES)
def test_files_of_a_forecast_have_one_number_for_a_quantity(said, schedule, column):
    start, show = QUANTITIES[column]
    value = said.json[schedule][column]
    assert value is not None and float(said.csv[schedule][column]) == value
    for one in (said.page[schedule], said.markdown[schedule]):
        (shown,) = [cell for heading, cell in one.items() if heading.startswith(start)]
        assert shown.replace("\\", "").partition(" [")[0] == show(value)


@pytest.mark.slow
@pytest.mark.parametrize("column", FOLDED)
@pytest.mark.parametrize("schedule", NAMES)
def test_the_fold_has_the_numbers_of_the_csv(said, schedule, column):
    value = float(said.csv[schedule][column])
    assert said.folded[column][schedule] == FOLDED[column](value)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", NAMES)
def test_figures_say_the_numbers_of_the_table(said, schedule):
    row = said.json[schedule]
    legend = next(one for one in said.words["convergence.png"] if one.startswith(schedule))
    assert f"after {format_seconds(row['time_to_target_s'])}," in legend
    assert f" {format_count(row['epochs_to_target'])} epoch" in legend
    rates = said.words["throughput.png"]
    assert any(one.split("  (")[0] == format_rate(row["train_per_s"]) for one in rates)
    busy = [one for one in said.words["utilisation.png"] if one.startswith("all: ")]
    assert busy[NAMES.index(schedule)] == f"all: {format_percent(row['utilisation'])}"
