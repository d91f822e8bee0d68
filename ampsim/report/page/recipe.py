"""A recipe's findings as a folder: page, tables, figures, and a manifest with all their hashes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from matplotlib.figure import Figure

from ampsim.files import sha256_of, write_text
from ampsim.output_folder import MANIFEST, staged
from ampsim.paths import expanded
from ampsim.report import markdown
from ampsim.report.forecast import Forecast, runs_by_row
from ampsim.report.frames import DataFrame, floats, number, rows
from ampsim.report.page.answer import assumed_words, next_of_report, rates_words
from ampsim.report.page.epochs import write_epochs
from ampsim.report.page.figures import result_figures
from ampsim.report.page.forecast import TOGETHER, gantt_together
from ampsim.report.page.grid import grid_figures, grid_parts, with_all_workers, without_rows
from ampsim.report.page.left_open import left_open
from ampsim.report.page.node_tables import LEFT
from ampsim.report.page.published import PUBLISHED, published_parts
from ampsim.report.page.text import (
    LEGEND,
    Picture,
    assumptions,
    commands,
    device_words,
    origin,
    picture_parts,
    setting,
    tables_of,
)
from ampsim.report.page.tuning_tables import tuning_tables, write_trials
from ampsim.report.saving import save
from ampsim.report.table import to_csv, to_markdown
from ampsim.report.verdict import called_rows, verdict
from ampsim.toml_text import to_toml

PAGE = "report.md"
TABLE = "report.csv"
WITNESS = "witness.json"
OUTLINES = "outlines.json"
FILES = (TABLE, PAGE)
"""Files of every report, beside its manifest."""

_DRAWN_MAX = 40  # chosen: figures with a panel or line a row cannot be read with more
_SHOWN = ("replicas", "min_update_interval", "max_active_keys")
_OF_ROW = (
    "name", "label", "mode", "set", "epochs_of", "cluster", "workers", "latency_s",
    "bandwidth_bytes_per_s", "topology",
)  # fmt: skip
"""Keys of a row that are no options of its schedule."""


class File(Protocol):
    """The parts of a recipe's file that the page reads."""

    @property
    def title(self) -> str:
        """Heading of the page."""
        ...

    @property
    def text(self) -> str:
        """First paragraphs, in Markdown."""
        ...

    @property
    def figures(self) -> Any:
        """Names of the figures to draw."""
        ...

    @property
    def schedules(self) -> Any:
        """The rows: `name` of the schedule and `set`, options of the model."""
        ...


class Results(Forecast, Protocol):
    """Results of a recipe: a forecast, and published numbers."""

    @property
    def over_seeds(self) -> DataFrame:
        """The table, with intervals over seeds alone."""
        ...

    @property
    def comparison(self) -> DataFrame:
        """One row a published number."""
        ...


class Findings(Results, Protocol):
    """Results of runs that were made now, with what a report holds for later."""

    @property
    def witnesses(self) -> str:
        """Records of short runs of the rows, as text."""
        ...

    @property
    def outlines(self) -> str:
        """Numbers and small tables of the runs, as text."""
        ...


def write_report(findings: Findings, file: File, folder: str | os.PathLike[str]) -> list[Path]:
    """Writes the report into `folder`, made if missing; gives the files in the order written.

    These are report.csv, epochs.csv, trials.csv if learning rates were tuned, published.csv where
    there is something to compare with, witness.json, outlines.json, the figures that the recipe
    names and there are data for, report.md, and last manifest.toml with the hashes of the others.
    They appear together, and take the place of an earlier report; see `ampsim.output_folder`.

    Raises:
        OutputError: the folder or a file in it cannot be written, is another's, or is being
            written by another process.
    """
    with staged(folder, "report") as place:
        written = _write_tables(findings, place)
        for name, content in ((WITNESS, findings.witnesses), (OUTLINES, findings.outlines)):
            written.append(place / name)
            write_text(written[-1], content)
        written += _write_page(findings, file, place, _figures(findings, file), [])
        files = {path.name: sha256_of(path) for path in written}
        write_text(place / MANIFEST, to_toml({**findings.manifest, "files": files}))
    return [expanded(folder) / name for name in (*files, MANIFEST)]


def redraw_report(
    results: Results, file: File, folder: str | os.PathLike[str], before: Mapping[str, str]
) -> list[Path]:
    """Writes page, tables and figures of a report again, and their hashes into its manifest.

    Witnesses, outlines and the Gantt chart, which needs spans, stay as they are, and so does
    all else that the manifest says.

    Args:
        results: what the report was made of; its runs have no spans.
        file: the recipe's.
        folder: where the report lies.
        before: hash of each of its files, by name, as its manifest has them.

    Raises:
        OutputError: as for `write_report`.
    """
    kept = {name: before[name] for name in (WITNESS, OUTLINES, TOGETHER.file) if name in before}
    with staged(folder, "report") as place:
        for name, digest in kept.items():
            _copy(expanded(folder) / name, digest, place)
        written = _write_tables(results, place)
        charts = [TOGETHER] if TOGETHER.file in kept else []
        written += _write_page(results, file, place, _figures(results, file), charts)
        files = {**kept, **{path.name: sha256_of(path) for path in written}}
        order = [*(name for name in before if name in files), *files]
        manifest = {**results.manifest, "files": {name: files[name] for name in order}}
        write_text(place / MANIFEST, to_toml(manifest))
    return [expanded(folder) / path.name for path in (*written, place / MANIFEST)]


def _copy(path: Path, digest: str, place: Path) -> None:
    """Take a file along, unless it is not the one that was written: that is left where it is."""
    if os.path.isfile(path) and sha256_of(path) == digest:
        shutil.copyfile(path, place / path.name)


def _write_tables(results: Results, place: Path) -> list[Path]:
    written = [place / TABLE, *write_epochs(results, place), *write_trials(results, place)]
    write_text(place / TABLE, to_csv(results.table))
    if len(results.comparison):
        written.append(place / PUBLISHED)
        write_text(written[-1], to_csv(results.comparison))
    return written


def _write_page(
    results: Results,
    file: File,
    place: Path,
    figures: list[tuple[Picture, Figure]],
    charts: list[Picture],
) -> list[Path]:
    """Write figures and a page that shows them, and behind them charts that are there already."""
    written = [save(figure, place / picture.file) for picture, figure in figures]
    written.append(place / PAGE)
    write_text(written[-1], page(results, file, [*(picture for picture, _ in figures), *charts]))
    return written


def page(findings: Results, file: File, pictures: list[Picture]) -> str:
    """The page in Markdown; the recipe's own text is taken as it is."""
    model, cluster = markdown.escape(findings.model), markdown.escape(findings.cluster)
    compared = published_parts(findings.comparison)
    of_grid = grid_parts(findings, file)
    ruled = of_grid.verdict or verdict(_judged(findings), findings.target, findings.metric)
    ruled = " ".join(filter(None, [ruled, rates_words(findings)]))
    parts = [
        f"# {markdown.escape(file.title)}",
        file.text.strip(),
        f"**{markdown.paragraph(ruled)}**",
        markdown.escape(left_open(findings)),
        f"{model} on {cluster}: {with_all_workers(setting(findings), findings.table)}",
        markdown.escape(assumed_words(findings.manifest)),
        "" if of_grid.tables else device_words(findings.table),
        *(of_grid.tables or [_table(findings), LEGEND]),
        *compared,
        *(part for picture in pictures for part in picture_parts(picture)),
        *tables_of(tuning_tables(findings), LEFT),
        *commands(next_of_report(str(findings.manifest["command"][-1]))),
        *assumptions(findings.manifest),
        *origin(without_rows(findings.manifest) if of_grid.tables else findings.manifest, TABLE),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(findings: Results) -> str:
    has_target, bold = findings.target is not None, called_rows(findings.table)
    return to_markdown(findings.table, has_target=has_target, bold=bold).rstrip("\n")


def _judged(findings: Results) -> DataFrame:
    """The rows that the verdict compares: those that were measured, unless none was."""
    table: Any = findings.table
    measured = ~_is_nan(floats(table, findings.metric.best_column))
    failed = _is_nan(floats(table, "train_per_s"))
    return table[measured | failed] if measured.any() else table


def _is_nan(values: Any) -> Any:
    return values != values  # only NaN differs from itself


def _figures(findings: Results, file: File) -> list[tuple[Picture, Figure]]:
    """The figures that the recipe names, with their file names and headings."""
    wanted = set(file.figures)
    if len(findings.table) > _DRAWN_MAX:
        wanted &= {"heat-map", "grid-cost"}
    figures = list(result_figures(findings, wanted=wanted, names=line_names(file)))
    of_grid = grid_figures(findings, file, wanted)
    are_equal = len({number(row, "workers") for row in rows(findings.table)}) < 2
    is_drawn = "gantt" in wanted and are_equal
    together = gantt_together(findings, runs_by_row(findings)) if is_drawn else []
    return [*of_grid, *figures, *together]


def line_names(file: File) -> list[str]:
    """The schedule of each row, with those options of the model that the table does not show."""
    return [
        ", ".join([entry.name, *(f"{key} {value}" for key, value in _hidden(entry).items())])
        for entry in file.schedules
    ]


def _hidden(entry: Any) -> dict[str, Any]:
    """Options of schedule and model that tell a line from another and have no column."""
    given = entry.model_dump(exclude_defaults=True, exclude=set(_OF_ROW))
    return {key: value for key, value in {**given, **entry.set}.items() if key not in _SHOWN}
