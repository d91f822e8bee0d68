"""Reports made by a program of their own, and the folder that they fill.

A program is what no recipe of models and schedules can say, such as one on a dependency engine. It
is run by `ampsim report NAME`, as recipes are. `ampsim report --check` runs it again, and compares
page, tables and figures. Of a program that is long, `WITNESS` names globals with small values: with
these it is run beside the report, `--check` repeats only that, and draws the rest of the tables.
"""

from __future__ import annotations

import io
import json
import math
import numbers
import os
import re
import runpy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any, Final

import numpy as np
import pandas as pd

from ampsim.errors import AmpsimError, FileFormatError, one_of
from ampsim.files import read_regular, sha256_of
from ampsim.output_folder import write_files
from ampsim.recipes.beside import WITNESS_FILE, read_beside
from ampsim.recipes.checking import PAGE, Drawn, Verdict, differences, lacks_of, skipped_pictures
from ampsim.recipes.recipe import PROGRAM
from ampsim.recipes.redrawing import edits_of, files_of, read_manifest
from ampsim.recipes.running import FORMAT, KIND
from ampsim.report import words as markdown
from ampsim.report.frames import DataFrame
from ampsim.report.gantt.chart import gantt
from ampsim.report.plot.curves import Curves, draw_curves
from ampsim.report.saving import drawn_with, encode
from ampsim.report.style import DIRECTIONS
from ampsim.study.provenance import source_digest
from ampsim.text import mapping, short
from ampsim.trace import LANES
from ampsim.units import UNKNOWN
from ampsim.user_code import user_code


def write_program_report(
    program: ReportProgram, tables: Mapping[str, DataFrame], folder: str | os.PathLike[str]
) -> list[Path]:
    """Write the report into `folder`, made if missing; gives the files in the order written.

    Raises:
        FileFormatError: the tables cannot be read again.
        OutputError: the folder or a file in it cannot be written, or is another's.
    """
    manifest = {**program.manifest(), "drawn_with": drawn_with()}
    return write_files(folder, KIND, contents_of(program, tables), manifest)


def redraw_program(program: ReportProgram, folder: Path) -> list[Path]:
    """Write page and figures again of the tables that a report has, whose program has a witness.

    Raises:
        FileFormatError: the witness is another one now, or tables are not as they were written.
        OutputError: as of `write_program_report`.
    """
    manifest = read_manifest(folder)
    drawn = _drawn_of_tables(program, folder, manifest)
    tables = {name: one for name, one in files_of(manifest).items() if name.endswith(".csv")}
    told = {**dict.fromkeys(drawn.contents), WITNESS_FILE: drawn.contents[WITNESS_FILE]}
    apart = differences(folder, manifest, replace(drawn, contents=told))
    for fault in (*edits_of(folder, {"files": tables}), *apart):
        raise FileFormatError(f"{fault}; run it again")
    contents = {name: one or read_regular(folder / name) for name, one in drawn.contents.items()}
    origin = {**program.manifest(), "code": manifest.get("code"), "drawn_with": drawn_with()}
    return write_files(folder, KIND, contents, origin)


def contents_of(program: ReportProgram, tables: Mapping[str, DataFrame]) -> dict[str, str | bytes]:
    """Make the files of the report, by name.

    Raises:
        FileFormatError: the tables cannot be read again.
    """
    contents = {f"{name}.csv": _csv(table) for name, table in tables.items()}
    if program.witness:
        again = {name: _read(io.StringIO(contents[f"{name}.csv"])) for name in tables}
        if page(program, again) != page(program, tables):
            raise FileFormatError(
                f"{program.folder / PROGRAM}: with a {WITNESS_NAME} tables are read again from "
                "their CSV; a text must not read as a number, and none be empty"
            )
        contents[WITNESS_FILE] = _witness(program)
    return {**contents, **_drawn(program, tables)}


def _witness(program: ReportProgram) -> str:
    """Run a copy of the program with its small values: JSON, a line a row."""
    path = program.folder / PROGRAM
    with user_code(f"{path} failed with its {WITNESS_NAME}"):
        make: Any = runpy.run_path(str(path))["tables"]
        make.__globals__.update(program.witness)
    made = replace(program, make_tables=make).tables()
    tables = {name: _csv(one).splitlines() for name, one in made.items()}
    return json.dumps({"kind": "witness", "tables": tables}, indent=1) + "\n"


def _drawn(program: ReportProgram, tables: Mapping[str, DataFrame]) -> dict[str, str | bytes]:
    """Figures and page of the tables, by their files."""
    figures = {one.name: draw_curves(tables[one.table], one) for one in program.curves}
    for one in program.timelines:
        table: Any = tables[one.table]
        workers = 1 + int(table["worker"].max())
        figures[one.name] = gantt({one.title: table}, workers=workers)
    pictures = {f"{name}.png": encode(figure, ".png") for name, figure in figures.items()}
    return {**pictures, PAGE: page(program, tables)}


def _csv(table: DataFrame) -> str:
    """Every digit, and texts as they are, for they are read again."""
    return str(table.to_csv(index=False))


def _read(file: Path | io.StringIO) -> pd.DataFrame:
    """A table from its CSV, with the numbers that its cells say."""
    cells = pd.read_csv(file, dtype=str, keep_default_na=False)
    return cells.map(_value).infer_objects()


def _value(cell: str) -> int | float | str:
    """Read a cell: a number, text, or NaN where it is empty."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(cell or math.nan)
    return cell


def page(program: ReportProgram, tables: Mapping[str, DataFrame]) -> str:
    """The page in Markdown; the program's own text is taken as it is."""
    parts = [f"# {markdown.escape(program.title)}", program.text.strip()]
    for figure in (*program.curves, *program.timelines):
        parts.append(f"![{markdown.escape(figure.title)}]({figure.name}.png)")
    for name, table in tables.items():
        shown = [] if any(name == one.table for one in program.timelines) else [_page_table(table)]
        parts += [f"## Table {markdown.escape(name)}", *shown]
        parts.append(f"Every digit: [{name}.csv]({name}.csv).")
    parts.append(
        f"Made by [program.py](program.py); `ampsim report {program.name}` makes it again, and "
        "`ampsim report --check` says whether it still follows."
    )
    return "\n\n".join(parts) + "\n"


def _page_table(table: DataFrame) -> str:
    columns: list[Any] = [table[name].tolist() for name in table]
    texts = [str(name) for name in table if all(isinstance(one, str) for one in table[name])]
    lines = [[*map(_cell, row)] for row in zip(*columns, strict=True)]
    return markdown.table([*map(str, table.columns)], lines, left=texts).rstrip("\n")


def _cell(value: Any) -> str:
    """A cell of the page: texts as they are, counts in full, other numbers to four digits.

    >>> _cell(32768), _cell(17543.9), _cell(2.3e11), _cell(math.nan)
    ('32,768', '17,540', '2.3e+11', '–')
    """
    if isinstance(value, str | numbers.Integral):
        return value if isinstance(value, str) else f"{int(value):,}"
    said = f"{value:.4g}"
    if 1e3 <= abs(value) < 1e9:
        return f"{float(said):,.0f}"
    return UNKNOWN if math.isnan(value) else said


_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")
_A_NAME: Final = "must be up to 60 letters, digits, - and _, and be given once"

_LARGEST: Final = 1e100  # chosen: beyond, an axis has no ticks

_NAMES: Final = ("TITLE", "TEXT", "CURVES", "tables")
WITNESS_NAME: Final = "WITNESS"


@dataclass(frozen=True, slots=True)
class Timeline:
    """A Gantt chart of a table, whose rows are spans: the columns are `SPAN_COLUMNS`."""

    name: str  # of the figure's file, without its suffix
    title: str  # its heading
    table: str  # name of the table


_COUNT: Final = "a whole number from 0 to 9999"
SPAN_COLUMNS: Final = {
    "worker": _COUNT, "lane": "a lane", "node": "text", "direction": "a direction",
    "instance": _COUNT, "start_s": "a number", "end_s": "a number",
}  # fmt: skip
"""What a table has of which there is a chart; `instance` is the number that a box shows."""


@dataclass(frozen=True, slots=True)
class ReportProgram:
    """A program that was read."""

    folder: Path  # where it lies
    sha256: str  # of its file
    title: str  # of the report
    text: str  # its paragraphs, in Markdown
    curves: tuple[Curves, ...]  # its figures, and so the timelines
    timelines: tuple[Timeline, ...]
    make_tables: Callable[[], Mapping[str, pd.DataFrame]]  # runs it
    witness: Mapping[str, Any]  # globals with which it is run in a small way, if it has such

    @property
    def name(self) -> str:
        """Name of its folder."""
        return self.folder.resolve().name

    def tables(self) -> dict[str, pd.DataFrame]:
        """Run the program: a table for each name.

        Raises:
            FileFormatError: it gives something else, or what no report can hold.
            SimulationError: it fails.
        """
        path = self.folder / PROGRAM
        with user_code(f"{path} failed"):
            tables: Any = self.make_tables()
        if not isinstance(tables, dict) or not tables:
            raise FileFormatError(f"{path}: tables() must give tables by name, got {short(tables)}")
        for fault in _faults_of_tables(tables, self):  # pyright: ignore[reportUnknownArgumentType]  # a user's
            raise FileFormatError(f"{path}: {fault}")
        return {**tables}

    def manifest(self) -> dict[str, Any]:
        """The program's part of a report's manifest."""
        return {
            "kind": KIND,
            "format": FORMAT,
            "code": source_digest(),
            "program": {"file": PROGRAM, "sha256": self.sha256},
        }


def read_program(folder: Path) -> ReportProgram:
    """Read the program of a folder.

    Raises:
        FileFormatError: it lacks one of the names TITLE, TEXT, CURVES and tables.
        SimulationError: it cannot be run.
    """
    path = folder / PROGRAM
    try:
        digest = sha256_of(path)
    except OSError as error:
        raise FileFormatError(f"{path} cannot be read: {error.strerror}") from error
    with user_code(f"{path} failed"):
        names = runpy.run_path(str(path))
    missing = [name for name in _NAMES if name not in names]
    if missing:
        raise FileFormatError(f"{path}: missing {', '.join(missing)}; a program has {_NAMES}")
    for fault in _faults_of_names(names):
        raise FileFormatError(f"{path}: {fault}")
    title, text = names["TITLE"], names["TEXT"]
    figures = tuple(names["CURVES"]), tuple(names.get("TIMELINES", ()))
    witness = names.get(WITNESS_NAME, {})
    return ReportProgram(folder, digest, title, text, *figures, names["tables"], witness)


# Of what is wrong, the first is told; what comes behind it takes for granted that it is right.


def _faults_of_names(names: Mapping[str, Any]) -> Iterator[str]:
    for name, keep in (("TITLE", ""), ("TEXT", "\n\t")):
        if not _is_text(names[name], keep):
            yield f"{name} must be text that can be shown, got {short(names[name])}"
    files: set[str] = set()
    for key, kind in (("CURVES", Curves), ("TIMELINES", Timeline)):
        yield from _faults_of_figures(key, names.get(key, ()), kind, files)
    if not isinstance(names["tables"], FunctionType):
        yield f"tables must be a function, got {short(names['tables'])}"
    witness: Any = names.get(WITNESS_NAME, {})
    if not isinstance(witness, dict):
        yield f"{WITNESS_NAME} must be small values by names of the program, got {short(witness)}"
    for name in map(str, witness):  # pyright: ignore[reportUnknownArgumentType]  # a user's
        if name not in names:
            yield f"{WITNESS_NAME}: {one_of('global', name, names)}"


def _faults_of_figures(key: str, given: Any, kind: type[Any], files: set[str]) -> Iterator[str]:
    """Find the faults of the figures of one kind; `files` are names that are taken."""
    if not isinstance(given, list | tuple) or any(not isinstance(one, kind) for one in given):  # pyright: ignore[reportUnknownVariableType]  # a user's
        yield f"{key} must be a list of {kind.__name__}, got {short(given)}"
    every: list[Any] = list(given)  # pyright: ignore[reportUnknownArgumentType]  # as above
    for place, one in enumerate(every):
        for field in fields(one):
            value, is_flag = getattr(one, field.name), field.name.startswith("is_")
            if not (isinstance(value, bool) if is_flag else _is_text(value)):
                wanted = "true or false" if is_flag else "text"
                yield f"{key}[{place}].{field.name} must be {wanted}, got {short(value)}"
        if not _FILE_NAME.fullmatch(one.name) or one.name.casefold() in files:
            yield f"{key}[{place}].name {_A_NAME}, got {short(one.name)}"
        files.add(one.name.casefold())


def _faults_of_tables(tables: Mapping[Any, Any], program: ReportProgram) -> Iterator[str]:
    files: set[str] = set()
    for name in tables:
        if not isinstance(name, str) or not _FILE_NAME.fullmatch(name) or name.casefold() in files:
            yield f"the name of a table {_A_NAME}, got {short(name)}"
        files.add(name.casefold())
    for name, table in tables.items():
        if not isinstance(table, pd.DataFrame):
            yield f"table {name!r} must be a DataFrame, got {short(table)}"
        yield from _faults_of_table(name, table)
    for one in program.curves:
        kinds = [(one.x, _AXIS[one.is_log_x]), (one.y, _AXIS[one.is_log_y]), (one.by, _CELL)]
        yield from _faults_of_figure(one, kinds, tables)
    for one in program.timelines:
        yield from _faults_of_figure(one, [*SPAN_COLUMNS.items()], tables)


def _faults_of_table(name: str, table: Any) -> Iterator[str]:
    columns: list[Any] = table.columns.tolist()
    if any(not _is_text(one) or not one.strip() for one in columns) or not table.columns.is_unique:
        yield f"table {name!r}: columns must be texts that differ, got {short(columns)}"
    if not len(table) or not columns:
        yield f"table {name!r}: must have a row and a column, got {len(table)} x {len(columns)}"
    yield from _faults_of_cells(f"table {name!r}", table, [(one, _CELL) for one in columns])


def _faults_of_figure(
    one: Curves | Timeline, kinds: Sequence[tuple[str, str]], tables: Mapping[str, Any]
) -> Iterator[str]:
    """Find the faults of the columns that a figure draws, each of a kind."""
    where = f"figure {one.name!r}"
    if one.table not in tables:
        yield f"{where}: {one_of('table', one.table, tables)}"
        return
    columns = tables[one.table].columns.tolist()
    missing = [name for name, _kind in kinds if name not in columns]
    if missing:
        yield f"{where}: {one_of('column', missing[0], columns)}"
    yield from _faults_of_cells(where, tables[one.table], kinds)


def _faults_of_cells(where: str, table: Any, kinds: Sequence[tuple[str, str]]) -> Iterator[str]:
    for column, kind in kinds:
        cells: list[Any] = table[column].tolist()
        for row, cell in enumerate(cells, 1):
            if not _IS_KIND[kind](cell):
                yield f"{where}: {column} of row {row} must be {kind}, got {short(cell)}"


def _is_text(value: Any, keep: str = "") -> bool:
    """Tell whether it is text that can be shown: a line, but for characters to `keep`."""
    return isinstance(value, str) and all(one.isprintable() or one in keep for one in value)


def _is_number(value: Any) -> bool:
    """Tell whether it is a truth, a whole number of 64 bits, or a float; NaN is."""
    if isinstance(value, numbers.Integral):  # NumPy's are, too
        return abs(int(value)) < 2**63
    return isinstance(value, float | np.floating)


def _is_on_axis(value: Any) -> bool:
    return _is_number(value) and not isinstance(value, bool) and not abs(value) > _LARGEST


_CELL: Final = "text or a number"
_UP_TO: Final = f"no larger than {_LARGEST:g}"
_AXIS: Final = (
    f"a number, and {_UP_TO}",
    f"a number above 0, for its axis is logarithmic, and {_UP_TO}",
)
"""What stands on an axis, and on a logarithmic one."""

_IS_KIND: Final[dict[str, Callable[[Any], bool]]] = {
    _CELL: lambda cell: _is_text(cell) or _is_number(cell),
    _AXIS[0]: _is_on_axis,
    _AXIS[1]: lambda cell: _is_on_axis(cell) and not cell <= 0,
    _COUNT: lambda cell: isinstance(cell, numbers.Integral) and 0 <= int(cell) < 10_000,
    "a number": lambda cell: _is_number(cell) and abs(cell) < _LARGEST,
    "a lane": lambda cell: cell in LANES,
    "a direction": lambda cell: cell in DIRECTIONS,
    "text": _is_text,
}


def check_program(program: ReportProgram, folder: Path, *, is_again: bool = False) -> Verdict:
    """Tell whether a report follows from its program; nothing is written into its folder.

    The program is run again in whole, unless it has a witness and not `is_again`: then only in the
    small way of that, and page and figures are drawn of the tables that the report has.
    """
    try:
        manifest = read_manifest(folder)
        faults = (*edits_of(folder, manifest), *lacks_of(manifest, [PAGE]))
        if mapping(manifest.get("program", {})).get("sha256") != program.sha256:
            faults += ("the program has changed",)
        notes: tuple[str, ...] = ()
        if manifest.get("code") != source_digest():
            notes = ("ampsim's code has changed",)
        if faults:
            return Verdict(faults, notes)
        skipped = skipped_pictures(manifest)
        if program.witness and not is_again:
            drawn = _drawn_of_tables(program, folder, manifest)
        else:
            contents = contents_of(program, program.tables())
            drawn = Drawn(contents, f"what {PROGRAM} gives")
        faults = tuple(differences(folder, manifest, drawn, skipped))
    except AmpsimError as error:
        return Verdict((str(error),))
    return Verdict(faults, (*notes, *filter(None, [skipped])))


def _drawn_of_tables(program: ReportProgram, folder: Path, manifest: Mapping[str, Any]) -> Drawn:
    """Page and figures of the tables that a report has, and its witness, made now."""
    files = [one for one in files_of(manifest) if one.endswith(".csv")]
    tables = {
        one.removesuffix(".csv"): read_beside(partial(_read, folder / one), one) for one in files
    }
    for fault in _faults_of_tables(tables, program):
        raise FileFormatError(f"{', '.join(files)}: {fault}")
    contents = {**dict.fromkeys(files), WITNESS_FILE: _witness(program), **_drawn(program, tables)}
    return Drawn(contents, f"what {', '.join(files)} and {WITNESS_NAME} of {PROGRAM} give")
