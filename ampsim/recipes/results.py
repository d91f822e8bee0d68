"""Results of a report, and how they are drawn: tables, figures, and the page of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ampsim.forecasting.intervals import Spreading
from ampsim.output_folder import Saveable
from ampsim.recipes.beside import OUTLINES_FILE, WITNESS_FILE, outlines_to_text
from ampsim.recipes.recipe import HARDWARE, Published, Recipe, RecipeFile
from ampsim.report import words as markdown
from ampsim.report.frames import DataFrame, Row, floats, number, rows, runs_by_row, text
from ampsim.report.page.figures import TOGETHER, gantt_together, result_figures
from ampsim.report.page.tables import LEFT, table_files, tuning_tables
from ampsim.report.page.text import (
    Picture,
    answer_parts,
    assumptions,
    bullets,
    next_of_report,
    origin,
    picture_parts,
    setting,
    shared_notes,
    tables_of,
)
from ampsim.report.plot.grid import (
    Costs,
    cluster_words,
    costs_cells,
    costs_verdict,
    grid_cost,
    grid_costs,
)  # fmt: skip
from ampsim.report.saving import drawn_with, encode
from ampsim.report.table import cell_text, format_ratio, to_csv
from ampsim.report.verdict import verdict
from ampsim.report.words import escape, listed, paragraph
from ampsim.runs.run import Run, RunTable

PAGE: Final = "report.md"
TABLE: Final = "report.csv"
FILES: Final = (TABLE, PAGE)
"""Files of every report, beside its manifest."""


_OF_FIRST: Final = {"time_by_node": pd.DataFrame(), "path_parts": pd.DataFrame()}
"""Tables that pages show of a row's first run: most of the outlines, of hundreds of runs."""


class Reported(Saveable):
    """The source of a report's page: rows that were run (`Results`), or a map (`Explored`)."""

    kind: ClassVar = "report"
    recipe: Recipe  # what was asked
    witnesses: str  # of the rows, as their file has them; empty of a report that was read
    runs: tuple[Run, ...]  # every one, in order; none of a map, which keeps what it needs of them

    @property
    def outlines(self) -> str:
        """The file beside the report from which it can be drawn again."""
        raise NotImplementedError

    def tables(self) -> dict[str, str]:
        """The tables, by their files."""
        raise NotImplementedError

    def charts(self, runs: Sequence[Run] | None) -> dict[str, bytes | None]:
        """The charts that spans are needed for, by their files, or None without; a map has none."""
        del runs
        return {}

    def drawn(self, charts: Mapping[str, bytes | None]) -> dict[str, str | bytes]:
        """Figures and pages, by their files, and charts, which the page shows in any case."""
        raise NotImplementedError

    def contents(self) -> dict[str, str | bytes]:
        """Tables, witnesses, outlines, figures and pages."""
        beside = {WITNESS_FILE: self.witnesses, OUTLINES_FILE: self.outlines}
        return {**self.tables(), **beside, **self.drawn(self.charts(self.runs))}


@dataclass(frozen=True, kw_only=True)
class Results(RunTable, Reported):
    """The results of a recipe's rows.

    Tables and numbers are those of `RunTable` by the same names.
    """

    recipe: Recipe
    comparison: pd.DataFrame  # published numbers beside simulated ones; see `compare`
    witnesses: str = field(default="", repr=False)
    # what the intervals of its devices do to each row, by its label
    spreads: Mapping[str, Spreading] = field(default_factory=dict[str, Spreading], repr=False)

    @property
    def outlines(self) -> str:
        """The runs without their traces; what pages show of a row's first run, of that alone."""
        runs = [run if run.repeat == 1 else replace(run, **_OF_FIRST) for run in self.runs]
        return outlines_to_text(self.metric, runs, self.spreads)

    def origin(self) -> dict[str, Any]:
        """The manifest, and the libraries that drew the pictures."""
        return {**self.manifest, "drawn_with": drawn_with()}

    def as_before(self, manifest: dict[str, Any], before: Reported) -> Results:
        """Replace the manifest; runs of earlier versions had no learning digests."""
        runs = self.runs
        if not any(one.learning_digest for one in before.runs):
            runs = tuple(replace(one, learning_digest="") for one in runs)
        return replace(self, manifest=manifest, runs=runs)

    def tables(self) -> dict[str, str]:
        """report.csv, epochs.csv, and trials.csv and published.csv where these have rows."""
        published = {PUBLISHED: to_csv(self.comparison)} if len(self.comparison) else {}
        return {TABLE: to_csv(self.table), **table_files(self), **published}

    def charts(self, runs: Sequence[Run] | None) -> dict[str, bytes | None]:
        """The Gantt chart, if the recipe names it and few rows ran, all on as many workers."""
        of_rows = rows(self.table)
        are_equal = len({number(row, "workers") for row in of_rows}) < 2
        has_run = any(run.messages for run in self.runs) and len(of_rows) <= _DRAWN_MAX
        if not (are_equal and has_run and "gantt" in self.recipe.file.figures):
            return {}
        if runs is None:
            return {TOGETHER.file: None}
        traced = replace(self, runs=tuple(runs))
        drawn = gantt_together(traced, runs_by_row(traced))
        return {picture.file: encode(figure, ".png") for picture, figure in drawn}

    def drawn(self, charts: Mapping[str, bytes | None]) -> dict[str, str | bytes]:
        """The figures that the recipe names and there are data for, and report.md."""
        figures = self._figures()
        pictures = [*(picture for picture, _figure in figures), *([TOGETHER] if charts else [])]
        return {
            **{picture.file: encode(figure, ".png") for picture, figure in figures},
            **{name: content for name, content in charts.items() if content is not None},
            PAGE: self._page(pictures),
        }

    def _figures(self) -> list[tuple[Picture, Figure]]:
        """The figures that the recipe names and no spans are needed for."""
        file, wanted = self.recipe.file, set(self.recipe.file.figures)
        if len(self.table) > _DRAWN_MAX:
            wanted &= {"grid-cost"}
        figures = result_figures(self, wanted=wanted, names=line_names(file))
        costs = [one for one in self._costs if one.measure.column in _COSTLY]
        if "grid-cost" not in wanted or not costs or len(costs[0].values.columns) < 2:
            return list(figures)
        return [(_COST, grid_cost(costs)), *figures]

    @property
    def _costs(self) -> list[Costs]:
        """The costs of each cluster, of a report on several; empty without a grid."""
        return grid_costs(self.table, self.recipe.cells) if self.recipe.file.grid else []

    def _page(self, pictures: list[Picture]) -> str:
        """The page in Markdown; the recipe's own text is taken as it is."""
        file, model, own = self.recipe.file, escape(self.model), self.recipe.file.schedules
        named = cluster_words(one.cluster for one in own if one.cluster is not None).values()
        is_apart = all(one.cluster is not None for one in own)
        cluster = escape(listed([*named]) if is_apart else self.cluster)
        if file.grid is None:
            ruled = verdict(self._judged(), self.target, self.metric)
            answer, manifest = answer_parts(self), self.manifest
        else:
            costs = [(one.measure.heading.capitalize(), costs_cells(one)) for one in self._costs]
            ruled = costs_verdict(self._costs)
            answer = [*tables_of(costs, ("schedule",)), _PLACE, bullets(shared_notes(self))]
            manifest = {key: self.manifest[key] for key in self.manifest if key != "schedules"}
        parts = [
            f"# {escape(file.title)}",
            file.text.strip(),
            f"**{paragraph(ruled)}**",
            f"{model} on {cluster}: {paragraph(setting(self))}",
            *answer,
            *published_parts(self.comparison),
            *(part for picture in pictures for part in picture_parts(picture)),
            *tables_of(tuning_tables(self), LEFT),
            *next_of_report(str(self.manifest["command"][-1])),
            *assumptions(self.manifest),
            *origin(manifest, TABLE),
        ]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _judged(self) -> DataFrame:
        """The rows that the verdict compares: those that were measured, unless none was."""
        table: Any = self.table
        measured = ~np.isnan(floats(table, self.metric.best_column))
        failed = np.isnan(floats(table, "train_per_s"))
        return table[measured | failed] if measured.any() else table


_DRAWN_MAX: Final = 40  # chosen: figures with a panel or line a row cannot be read with more
_COSTLY: Final = ("train_per_s", "time_to_target_s", "energy_to_target_j")
_COST: Final = Picture(
    "grid-cost.png",
    "What it costs",
    "Throughput, time and energy to the target of each schedule, against the first column",
    "The first column has the value, the others how many times that theirs is; orange where it "
    "is worse. A dash: the target was not reached, or the number is not known.",
)
_PLACE = (
    "Times, epochs and throughputs are medians of the repeats; in brackets, how many times that of "
    "the first column. Every row with all its numbers stands in report.csv."
)
_SHOWN: Final = ("replicas", "min_update_interval", "max_active_keys")


def line_names(file: RecipeFile) -> list[str]:
    """The schedule of each row, with those options of the model that the table does not show."""
    found, of_row = list[str](), {"name", "label", "mode", "set", *HARDWARE}
    for entry in file.schedules:
        given = entry.model_dump(exclude_defaults=True, exclude=of_row) | entry.set
        hidden = [f"{key} {value}" for key, value in given.items() if key not in _SHOWN]
        found.append(", ".join([entry.name, *hidden]))
    return found


PUBLISHED: Final = "published.csv"

_WORDS: Final = {"train_per_s": "training", "valid_per_s": "validation"}
"""Quantities whose names do not say what they are."""


def published_parts(comparison: DataFrame) -> list[str]:
    """Published numbers beside simulated ones, with their ratios."""
    records = rows(comparison)
    if not records:
        return []
    headings = [
        "schedule", "quantity", "published", "simulated", "simulated / published",
        "published, ratio", "simulated, ratio", "source",
    ]  # fmt: skip
    lines = [_line(record) for record in records]
    words = (
        "Simulated / published says how alike the hardware is. The two ratios, each to the first "
        "row of the same quantity here, say how alike the schedules are. "
        f"Every digit: [{PUBLISHED}]({PUBLISHED})."
    )
    table = markdown.table(headings, lines, left=("schedule", "quantity", "source"))
    return ["## Beside what was published", table.rstrip("\n"), words]


def _line(record: Row) -> list[str]:
    schedule, quantity, source = (text(record, one) for one in ("schedule", "quantity", "source"))
    values = [cell_text(quantity, {quantity: record[name]}) for name in ("published", "simulated")]
    names = ("simulated_per_published", "published_ratio", "simulated_ratio")
    ratios = [format_ratio(number(record, name)) for name in names]
    said = _WORDS.get(quantity, quantity.removesuffix("_s").replace("_", " "))
    return [schedule, said, *values, *ratios, source]


def compare(table: DataFrame, published: Sequence[Published]) -> DataFrame:
    """Put each published number beside that of the table's row; unknown is NaN.

    The ratios are to the first published number of the same quantity, and to what was simulated
    for that one: they can be compared where the hardware cannot.
    """
    of = {text(row, "schedule"): row for row in rows(table)}
    found = pd.DataFrame([one.model_dump() for one in published], columns=[*Published.model_fields])
    found = found.rename(columns={"value": "published"})
    simulated = [number(of[one.schedule], one.quantity) for one in published]
    found.insert(3, "simulated", np.array(simulated))
    found.insert(4, "simulated_per_published", found["simulated"] / found["published"])
    firsts = found.drop_duplicates("quantity").set_index("quantity").loc[found["quantity"]]
    for place, name in enumerate(("published", "simulated"), 5):
        base = firsts[name].replace(0, np.nan).to_numpy()
        found.insert(place, f"{name}_ratio", found[name] / base)
    return found
