"""The answer to a question: its table, what that says in words, and its folder with the page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias

import pandas as pd
from matplotlib.figure import Figure

from ampsim.output_folder import Saveable
from ampsim.report import words as markdown
from ampsim.report.saving import encode, render
from ampsim.report.table import to_csv
from ampsim.report.words import plain
from ampsim.runs.rows import plain_row
from ampsim.study.provenance import own_version
from ampsim.text import html_table, to_toml

LONGEST: Final = 80  # characters of a name on a page (chosen)

_WHOLE: Final = (
    "trial", "seeds", "seeds_agree", "learning", "workers", "max_active_keys",
    "min_update_interval",
)  # fmt: skip

Lines: TypeAlias = tuple[list[str], list[list[str]]]
"""Headings of a table, and its lines."""

Figures: TypeAlias = Mapping[str, Figure]
"""Figures by their files."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Finding(Saveable):
    """The answer to a question.

    Attributes:
        title: that of its page.
        table: its rows; unknown is missing, never 0.
        sentences: what it says in words, the most important first.
        model: the model's name.
        cluster: what it is asked of: the name of the cluster, or of those that are compared.
        manifest: command, versions, seeds and hashes.
        interrupted: why it ended before all was asked; None where it was.
        is_stopped: whether Ctrl-C did that, not the budget.
        failed: a line on its runs where each of them failed; None where one did not.
    """

    files: ClassVar[Mapping[str, str]]
    """Those of its folder beside the manifest, the page first, and what they hold: of a table the
    attribute; a figure may be left out."""
    told: ClassVar[tuple[str, ...]]
    """Attributes that JSON has beside model, cluster and seed."""

    title: str
    table: pd.DataFrame
    sentences: tuple[str, ...]
    model: str
    cluster: str
    manifest: dict[str, Any] = field(repr=False)
    interrupted: str | None = None
    is_stopped: bool = False
    failed: str | None = None

    @property
    def cells(self) -> Lines:
        """Its rows, or the most important of them, for a person."""
        raise NotImplementedError

    @property
    def verdict(self) -> str:
        """The sentences, in one text."""
        return " ".join(self.sentences)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table as JSON can hold them."""
        return _plain(self.table)

    def page(self) -> str:
        """The page, which loads nothing from any network: Markdown unless a question has more."""
        headings, lines = self.cells
        names = [name for name in self.files if name.endswith(".png")]
        parts = [
            f"# {markdown.escape(self.title)}",
            "\n".join(f"* {markdown.paragraph(one)}" for one in self.sentences),
            markdown.table(headings, lines, left=headings[:2]),
            *(f"![{Path(name).stem}]({name})" for name in names if name in self.figures()),
        ]
        return "\n\n".join(filter(None, parts)) + "\n"

    def html(self, template: str, **more: Any) -> str:
        """The page that a template makes of what all findings have, and more."""
        headings, lines = self.cells
        return render(
            template, title=plain(self.title, 200), sentences=self.sentences,
            interrupted=plain(self.interrupted or "", 400), headings=headings, lines=lines,
            manifest=to_toml(self.manifest), **more,
        )  # fmt: skip

    def figures(self) -> Figures:
        """Its figures, by their files."""
        return {}

    def contents(self) -> dict[str, str | bytes]:
        """Page, tables and figures."""
        page, *others = self.files
        tables = [name for name in others if name.endswith(".csv")]
        written = {name: to_csv(getattr(self, self.files[name])) for name in tables}
        figures = {name: encode(one, ".png") for name, one in self.figures().items()}
        return {page: self.page(), **written, **figures}

    def origin(self) -> dict[str, Any]:
        """Format, command, versions, seeds and hashes."""
        return {"format": 1, **self.manifest}

    def to_json(self) -> str:
        """Return the table as JSON text that ends with a newline; unknown is null."""
        named = {"model": self.model, "cluster": self.cluster, "seed": self.manifest["seeds"][0]}
        told = {name: _plain(getattr(self, name)) for name in self.told}
        content = {"ampsim": own_version(), **named, **told}
        return json.dumps(content, indent=2, allow_nan=False) + "\n"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model} on {self.cluster}: {self.verdict})"

    def _repr_html_(self) -> str:
        headings, lines = self.cells
        return html_table(self.title, lines, headings=headings, note=self.verdict)


def _plain(value: Any) -> Any:
    """An attribute as JSON can hold it; unknown and infinite numbers of a table are None."""
    if isinstance(value, pd.DataFrame):
        return [plain_row(record, _WHOLE) for record in value.to_dict("records")]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
