"""What was found as a folder: page, tables and figures, and a manifest; or folded into a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import pandas as pd
from matplotlib.figure import Figure

from ampsim.exploring import solve as solving
from ampsim.exploring import whatif as what_if
from ampsim.exploring.solve import Solved
from ampsim.exploring.whatif import WhatIf
from ampsim.files import sha256_of, write_text
from ampsim.output_folder import MANIFEST, OutputFolder, staged
from ampsim.report import words as markdown
from ampsim.report.plot.whatif import both_sides, speed_up_curves, tornado
from ampsim.report.saving import page_svg, save
from ampsim.report.table import to_csv
from ampsim.study.provenance import software
from ampsim.text import to_toml

PAGE: Final = "report.md"
WHATIF_FILES: Final = (
    PAGE, "whatif.csv", "curves.csv", "elasticities.csv", "tornado.png", "curves.png",
)  # fmt: skip
SOLVE_FILES: Final = (PAGE, "solve.csv", "curve.csv", "solve.png")


def write_whatif(found: WhatIf, folder: OutputFolder) -> list[Path]:
    """Write page, tables and figures of `whatif`; give the files in the order written.

    Raises:
        OutputError: a file there is not ours, or cannot be written.
    """
    title = f"{found.model} on {found.cluster}: what each thing would buy"
    tables = {
        "whatif.csv": found.table,
        "curves.csv": found.curves,
        "elasticities.csv": found.elasticities,
    }
    figures = {"tornado.png": tornado(found.table)}
    if len(found.curves):
        figures["curves.png"] = speed_up_curves(found.curves)
    text = _text(title, found.sentences, what_if.cells(found.table), figures)
    return _written(folder, text, tables, figures)


def write_solved(found: Solved, folder: OutputFolder) -> list[Path]:
    """Write page, tables and figure of `solve`; give the files in the order written.

    Raises:
        OutputError: a file there is not ours, or cannot be written.
    """
    title = f"{found.model} on {found.cluster}: {found.key} until {found.until}"
    is_log = bool((found.curve["value"] > 0).all())
    figures = {"solve.png": both_sides(found.curve, found.key, found.until, is_log=is_log)}
    text = _text(title, found.sentences, solving.cells(found.table), figures)
    tables = {"solve.csv": found.table, "curve.csv": found.curve}
    return _written(folder, text, tables, figures)


def _text(
    title: str,
    sentences: Sequence[str],
    cells: tuple[list[str], list[list[str]]],
    figures: Mapping[str, Figure],
) -> str:
    """The page in Markdown."""
    headings, rows = cells
    parts: list[str] = [
        f"# {markdown.escape(title)}",
        "\n".join(f"* {markdown.paragraph(one)}" for one in sentences),
        markdown.table(headings, rows, left=headings[:2]),
        *(f"![{Path(name).stem}]({name})" for name in figures),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _written(
    folder: OutputFolder,
    text: str,
    tables: Mapping[str, pd.DataFrame],
    figures: Mapping[str, Figure],
) -> list[Path]:
    with staged(folder, folder.kind) as place:
        write_text(place / PAGE, text)
        for name, table in tables.items():
            write_text(place / name, to_csv(table))
        for name, figure in figures.items():
            save(figure, place / name)
        names = (PAGE, *tables, *figures)
        files = {name: sha256_of(place / name) for name in names}
        manifest: dict[str, Any] = {"kind": folder.kind, **software(), "files": files}
        write_text(place / MANIFEST, to_toml(manifest))
    return [folder.path / name for name in (*names, MANIFEST)]


def folded(found: WhatIf) -> str:
    """What was found as an element of a page of HTML, folded: sentences, and the bars."""
    said = "".join(f"<li>{escape(one)}</li>" for one in found.sentences)
    svg = page_svg(
        tornado(found.table), "whatif", "What each thing would buy: " + "; ".join(found.sentences)
    )
    return f"<details><summary>What each thing would buy</summary><ul>{said}</ul>{svg}</details>"
