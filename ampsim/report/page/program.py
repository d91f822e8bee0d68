"""The report of a program as a folder: page, tables, figures, and a manifest with their hashes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from ampsim.files import sha256_of, write_text
from ampsim.output_folder import MANIFEST, staged
from ampsim.paths import expanded
from ampsim.report import markdown
from ampsim.report.frames import DataFrame
from ampsim.report.plot.curves import Curves, curves
from ampsim.report.saving import save
from ampsim.toml_text import to_toml

PAGE: Final = "report.md"


class Figure(Curves, Protocol):
    """A figure of a report."""

    @property
    def name(self) -> str:
        """Of its file, without the suffix."""
        ...

    @property
    def table(self) -> str:
        """Name of the table that it shows."""
        ...


class Program(Protocol):
    """What a program says of its report."""

    @property
    def name(self) -> str:
        """Name of its folder."""
        ...

    @property
    def title(self) -> str:
        """Heading of the page."""
        ...

    @property
    def text(self) -> str:
        """Its paragraphs, in Markdown."""
        ...

    @property
    def curves(self) -> Sequence[Figure]:
        """Its figures."""
        ...

    def manifest(self) -> dict[str, Any]:
        """What it says of its origin."""
        ...


def write_program_report(
    program: Program, tables: Mapping[str, DataFrame], folder: str | os.PathLike[str]
) -> list[Path]:
    """Write the report into `folder`, made if missing; gives the files in the order written.

    Raises:
        OutputError: the folder or a file in it cannot be written, or is another's.
    """
    with staged(folder, "report") as place:
        written: list[Path] = []
        for name, table in tables.items():
            written.append(place / f"{name}.csv")
            write_text(written[-1], str(table.to_csv(index=False)))
        for figure in program.curves:
            written.append(save(curves(tables[figure.table], figure), place / f"{figure.name}.png"))
        written.append(place / PAGE)
        write_text(written[-1], page(program, tables))
        files = {path.name: sha256_of(path) for path in written}
        write_text(place / MANIFEST, to_toml({**program.manifest(), "files": files}))
    return [expanded(folder) / name for name in (*files, MANIFEST)]


def page(program: Program, tables: Mapping[str, DataFrame]) -> str:
    """The page in Markdown; the program's own text is taken as it is."""
    parts = [f"# {markdown.escape(program.title)}", program.text.strip()]
    for figure in program.curves:
        parts.append(f"![{markdown.escape(figure.words[0])}]({figure.name}.png)")
    for name, table in tables.items():
        columns = [str(one) for one in table.columns]
        lines = [[_cell(one) for one in row] for row in table.itertuples(index=False)]
        parts.append(f"## Table {markdown.escape(name)}")
        parts.append(markdown.table(columns, lines, left=()).rstrip("\n"))
        parts.append(f"Every digit: [{name}.csv]({name}.csv).")
    parts.append(
        f"Made by [program.py](program.py); `ampsim report {program.name}` makes it again, and "
        "`ampsim report --check` says whether it still follows."
    )
    return "\n\n".join(parts) + "\n"


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"
