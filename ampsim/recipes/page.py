"""A report as a folder: page, tables, figures, and a manifest with all their hashes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ampsim.files import expanded, sha256_of, write_text
from ampsim.output_folder import MANIFEST, staged
from ampsim.recipes.beside import OUTLINES_FILE as OUTLINES
from ampsim.recipes.beside import WITNESS_FILE as WITNESS
from ampsim.recipes.explored import Explored
from ampsim.recipes.recipe import RecipeFile
from ampsim.recipes.results import Results
from ampsim.recipes.running import Findings
from ampsim.report import words as markdown
from ampsim.report.frames import DataFrame, Row, floats, number, rows, runs_by_row, text
from ampsim.report.page.figures import TOGETHER, gantt_together, result_figures
from ampsim.report.page.grid import grid_figures, grid_parts, with_all_workers, without_rows
from ampsim.report.page.tables import LEFT, tuning_tables, write_tables
from ampsim.report.page.text import (
    Picture,
    answer_parts,
    assumptions,
    bullets,
    commands,
    next_of_report,
    origin,
    picture_parts,
    setting,
    shared_notes,
    tables_of,
)
from ampsim.report.saving import drawn_with, save
from ampsim.report.table import cell_text, format_ratio, to_csv
from ampsim.report.verdict import called_rows, verdict
from ampsim.report.words import escape, paragraph
from ampsim.text import to_toml

PUBLISHED = "published.csv"

_WORDS = {
    "train_per_s": "training",
    "valid_per_s": "validation",
    "epochs_to_target": "epochs to target",
    "time_to_target_s": "time to target",
    "best_accuracy": "best accuracy",
    "best_error": "best error",
}


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
    quantity = text(record, "quantity")
    found, made = (
        cell_text(quantity, {quantity: record[name]}) for name in ("published", "simulated")
    )
    return [
        text(record, "schedule"),
        _WORDS.get(quantity, quantity),
        found,
        made,
        format_ratio(number(record, "simulated_per_published")),
        format_ratio(number(record, "published_ratio")),
        format_ratio(number(record, "simulated_ratio")),
        text(record, "source"),
    ]


PAGE = "report.md"
TABLE = "report.csv"
FILES = (TABLE, PAGE)
"""Files of every report, beside its manifest."""

_DRAWN_MAX = 40  # chosen: figures with a panel or line a row cannot be read with more
_SHOWN = ("replicas", "min_update_interval", "max_active_keys")
_OF_ROW = (
    "name", "label", "mode", "set", "cluster", "workers", "latency_s",
    "bandwidth_bytes_per_s", "topology",
)  # fmt: skip
"""Keys of a row that are no options of its schedule."""


def write_report(
    findings: Findings | Explored, file: RecipeFile, folder: str | os.PathLike[str]
) -> list[Path]:
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
        _write_manifest(findings, files, place)
    return [expanded(folder) / name for name in (*files, MANIFEST)]


def redraw_report(
    results: Results | Explored,
    file: RecipeFile,
    folder: str | os.PathLike[str],
    before: Mapping[str, str],
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
        _write_manifest(results, {name: files[name] for name in order}, place)
    return [expanded(folder) / path.name for path in (*written, place / MANIFEST)]


def _write_manifest(results: Results | Explored, files: Mapping[str, str], place: Path) -> None:
    manifest = {**results.manifest, "drawn_with": drawn_with(), "files": files}
    write_text(place / MANIFEST, to_toml(manifest))


def draw_again(
    results: Results | Explored, file: RecipeFile, folder: Path, traced: Results | None
) -> set[str]:
    """Writes what follows from results into a folder; gives the names of all files of a report.

    These are also witnesses, outlines, and a chart that cannot be drawn.

    Args:
        results: what the report was made of; its runs have no spans.
        file: the recipe's.
        folder: an empty one.
        traced: the same with runs that have spans, for the Gantt chart.
    """
    written = _write_tables(results, folder)
    figures = _figures(results, file)
    charts = [TOGETHER] if _shows_gantt(results, file) else []
    if traced is not None and charts:
        figures += gantt_together(traced, runs_by_row(traced))
        charts = []
    written += _write_page(results, file, folder, figures, charts)
    names = {path.name for path in written} | {picture.file for picture in charts}
    return names | {WITNESS, OUTLINES}


def _copy(path: Path, digest: str, place: Path) -> None:
    """Take a file along, unless it is not the one that was written: that is left where it is."""
    if os.path.isfile(path) and sha256_of(path) == digest:
        shutil.copyfile(path, place / path.name)


def _write_tables(results: Results | Explored, place: Path) -> list[Path]:
    write_text(place / TABLE, to_csv(results.table))
    if isinstance(results, Explored):
        return [place / TABLE]
    written = [place / TABLE, *write_tables(results, place)]
    if len(results.comparison):
        written.append(place / PUBLISHED)
        write_text(written[-1], to_csv(results.comparison))
    return written


def _write_page(
    results: Results | Explored,
    file: RecipeFile,
    place: Path,
    figures: list[tuple[Picture, Figure]],
    charts: list[Picture],
) -> list[Path]:
    """Write figures and a page that shows them, and behind them charts that are there already."""
    if isinstance(results, Explored):
        pages = results.pages(PAGE, TABLE)
        for name, content in pages.items():
            write_text(place / name, content)
        return [place / name for name in pages]
    written = [save(figure, place / picture.file) for picture, figure in figures]
    written.append(place / PAGE)
    write_text(written[-1], page(results, file, [*(picture for picture, _ in figures), *charts]))
    return written


def page(findings: Results, file: RecipeFile, pictures: list[Picture]) -> str:
    """The page in Markdown; the recipe's own text is taken as it is."""
    model, cluster = escape(findings.model), escape(findings.cluster)
    compared = published_parts(findings.comparison)
    said, of_grid = grid_parts(findings, file)
    ruled = said or verdict(_judged(findings), findings.target, findings.metric)
    parts = [
        f"# {escape(file.title)}",
        file.text.strip(),
        f"**{paragraph(ruled)}**",
        f"{model} on {cluster}: {with_all_workers(setting(findings), findings.table)}",
        *(
            [*of_grid, bullets(shared_notes(findings))]
            if of_grid
            else answer_parts(findings, called_rows(findings.table))
        ),
        *compared,
        *(part for picture in pictures for part in picture_parts(picture)),
        *tables_of(tuning_tables(findings), LEFT),
        *commands(next_of_report(str(findings.manifest["command"][-1]))),
        *assumptions(findings.manifest),
        *origin(without_rows(findings.manifest) if of_grid else findings.manifest, TABLE),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _judged(findings: Results) -> DataFrame:
    """The rows that the verdict compares: those that were measured, unless none was."""
    table: Any = findings.table
    measured = ~_is_nan(floats(table, findings.metric.best_column))
    failed = _is_nan(floats(table, "train_per_s"))
    return table[measured | failed] if measured.any() else table


def _is_nan(values: Any) -> Any:
    return values != values  # only NaN differs from itself


def _figures(findings: Results | Explored, file: RecipeFile) -> list[tuple[Picture, Figure]]:
    """The figures that the recipe names, with their file names and headings."""
    if isinstance(findings, Explored):
        return []
    wanted = set(file.figures)
    if len(findings.table) > _DRAWN_MAX:
        wanted &= {"grid-cost"}
    figures = list(result_figures(findings, wanted=wanted, names=line_names(file)))
    of_grid = grid_figures(findings, file, wanted)
    has_gantt = _shows_gantt(findings, file)
    together = gantt_together(findings, runs_by_row(findings)) if has_gantt else []
    return [*of_grid, *figures, *together]


def _shows_gantt(findings: Results | Explored, file: RecipeFile) -> bool:
    """Whether the report has a Gantt chart: rows in a number, on as many workers, that ran."""
    if isinstance(findings, Explored):
        return False
    of_rows = rows(findings.table)
    are_equal = len({number(row, "workers") for row in of_rows}) < 2
    has_run = any(run.messages for run in findings.runs)
    return "gantt" in file.figures and are_equal and has_run and len(of_rows) <= _DRAWN_MAX


def line_names(file: RecipeFile) -> list[str]:
    """The schedule of each row, with those options of the model that the table does not show."""
    return [
        ", ".join([entry.name, *(f"{key} {value}" for key, value in _hidden(entry).items())])
        for entry in file.schedules
    ]


def _hidden(entry: Any) -> dict[str, Any]:
    """Options of schedule and model that tell a line from another and have no column."""
    given = entry.model_dump(exclude_defaults=True, exclude=set(_OF_ROW))
    return {key: value for key, value in {**given, **entry.set}.items() if key not in _SHOWN}
