"""A forecast's page in Markdown: verdict, table, figures, assumptions and origin."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ampsim.report import words as markdown
from ampsim.report.frames import DataFrame, number, rows
from ampsim.report.page.answer import NEXT, assumed_words, beside_answer, next_steps
from ampsim.report.page.tables import LEFT, node_tables, tuning_tables
from ampsim.report.table import columns_folded, format_count, notes, to_markdown
from ampsim.report.verdict import called_rows, verdict
from ampsim.runs.run import RunTable
from ampsim.text import is_tables, mapping, sequence

_OF_DEVICES = (
    "Intervals hold the seeds and, within 95 %, the devices' numbers; notes have the devices alone."
)

ALL_COLUMNS: Final = "All columns, and what they are"

PAPER = "https://arxiv.org/abs/1705.09786"
"""AMPNet: Asynchronous Model-Parallel Training for Dynamic Neural Networks (2017)."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure's file name, heading (none if empty), description and caption."""

    file: str
    heading: str
    description: str
    caption: str = ""


def page(forecast: RunTable, pictures: Sequence[Picture]) -> str:
    """The page in Markdown; every name that a user chose is shown letter for letter."""
    model, cluster = markdown.escape(forecast.model), markdown.escape(forecast.cluster)
    parts = [
        f"# Forecast: {model} on {cluster}",
        f"**{markdown.paragraph(verdict(forecast.table, forecast.target, forecast.metric))}**",
        setting(forecast),
        markdown.escape(forecast.interrupted or ""),
        *answer_parts(forecast, called_rows(forecast.table)),
        *(part for picture in pictures for part in picture_parts(picture)),
        *tables_of(tuning_tables(forecast), LEFT),
        *tables_of(node_tables(forecast), LEFT),
        *commands(next_steps(forecast)),
        *assumptions(forecast.manifest),
        *origin(forecast.manifest, "forecast.csv"),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def device_words(table: DataFrame) -> str:
    """What notes and intervals have of the devices; empty where no number has an interval."""
    is_known = any(not math.isnan(number(row, "train_per_s_low")) for row in rows(table))
    return _OF_DEVICES if is_known else ""


def commands(lines: Sequence[str]) -> list[str]:
    """The section of what to type next; empty without commands."""
    return [f"## {NEXT}", "```sh\n" + "\n".join(lines) + "\n```"] if lines else []


def answer_parts(forecast: RunTable, bold: Collection[int] = ()) -> list[str]:
    """The table of the answer, the lines below it, and all columns in a fold.

    Args:
        forecast: whose table it is.
        bold: places of the rows that are bold.
    """
    table = forecast.table
    if not len(table):
        return []
    headings, *lines = columns_folded(table)
    folded = markdown.table(headings, lines, left=LEFT)
    return [
        to_markdown(table, has_target=forecast.target is not None, bold=bold).rstrip("\n"),
        bullets(lines_below(forecast)),
        f"<details>\n<summary>{ALL_COLUMNS}</summary>\n\n{folded}\n</details>",
    ]


def lines_below(forecast: RunTable) -> list[str]:
    """What stands below the table on a page: what bounds each row, and short notes."""
    told = [*notes(forecast.table), *shared_notes(forecast), device_words(forecast.table)]
    return [line for line in told if line]


def shared_notes(forecast: RunTable) -> list[str]:
    """Notes that are no single row's: how rates were made, what is left open, what is assumed."""
    assumed = assumed_words(forecast.manifest)
    return [*beside_answer(forecast), *([assumed] if assumed else [])]


def bullets(lines: Sequence[str]) -> str:
    """A list of plain texts in Markdown."""
    return "\n".join(f"- {markdown.escape(line)}" for line in lines)


def setting(forecast: RunTable) -> str:
    """Workers, target and repeats, in one line."""
    parts = [f"{forecast.workers} worker{'s' if forecast.workers != 1 else ''}"]
    if forecast.target is not None:
        target = forecast.metric.target_text(forecast.target)
        parts.append(f"target {markdown.escape(target)} validation {forecast.metric.kind}")
    repeats = {number(row, "repeats") for row in rows(forecast.table)}
    known = sorted(count for count in repeats if count >= 1)
    if known and (known[-1] > 1 or len(forecast.table) > 1):
        most = format_count(known[-1])
        parts.append(f"{most} repeat{'s' if known[-1] != 1 else ''} of each schedule")
    return f"{', '.join(parts)}."


def assumed(manifest: Mapping[str, Any]) -> list[str]:
    """The assumptions, in sentences."""
    return [str(sentence) for sentence in sequence(manifest.get("assumptions"))]


def charged(manifest: Mapping[str, Any]) -> list[list[str]]:
    """A table of the costs and their sources; empty where the manifest has none."""
    costs = manifest.get("costs")
    if not is_tables(costs):
        return []
    tables = [mapping(table) for table in sequence(costs)]
    headings = list(dict.fromkeys(key for table in tables for key in table))
    return [headings, *([_in_words(table.get(key, "")) for key in headings] for table in tables)]


def origin_values(manifest: Mapping[str, Any]) -> list[list[str]]:
    """Name and text of each other value of the manifest; a value in a table has a dotted name."""
    rest = {key: manifest[key] for key in manifest if key not in ("assumptions", "costs")}
    rest["placement"] = _without_nodes(rest.get("placement", {}))
    if "placements" in rest:
        found = mapping(rest["placements"])
        rest["placements"] = {label: _without_nodes(found[label]) for label in found}
    return [list(pair) for pair in _flat(rest, "")]


def _without_nodes(placement: Any) -> dict[str, Any]:
    """A placement's name and options; a line for each node would bury the others."""
    known = mapping(placement)
    return {key: known[key] for key in known if key != "workers"}


def picture_parts(picture: Picture) -> list[str]:
    """Heading, if any, figure, and caption, if any."""
    heading = [f"## {picture.heading}"] if picture.heading else []
    caption = [f"*{markdown.escape(picture.caption)}*"] if picture.caption else []
    return [*heading, f"![{markdown.escape(picture.description)}]({picture.file})", *caption]


def tables_of(tables: Sequence[tuple[str, list[list[str]]]], left: Sequence[str]) -> list[str]:
    """Tables under their headings; columns in `left` are aligned left."""
    parts: list[str] = []
    for heading, (headings, *lines) in tables:
        table = markdown.table(headings, lines, left=left).rstrip("\n")
        parts += [f"## {markdown.escape(heading)}", table]
    return parts


def assumptions(manifest: Mapping[str, Any]) -> list[str]:
    """The section of assumptions: sentences, and the table of costs."""
    sentences, costs = assumed(manifest), charged(manifest)
    parts: list[str] = []
    if sentences:
        parts.append("\n".join(f"- {markdown.paragraph(sentence)}" for sentence in sentences))
    if costs:
        headings, *lines = costs
        parts.append(markdown.table(headings, lines, left=headings).rstrip("\n"))
    return ["## What is assumed", *parts] if parts else []


def origin(manifest: Mapping[str, Any], csv: str) -> list[str]:
    """The section of origin: a table of the manifest's values, and links to the files."""
    values = origin_values(manifest)
    table = markdown.table(["what", "value"], values, left=("what", "value")) if values else ""
    files = (
        f"All values with every digit: [{csv}]({csv}). "
        "Where they come from: [manifest.toml](manifest.toml). "
        f"The method: [AMPNet]({PAPER})."
    )
    return ["## How this was made", table.rstrip("\n"), files]


def _flat(table: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Dotted name and text of each value in nested tables, lists of tables counted from 1."""
    for key, value in table.items():
        name = f"{path}{key}"
        if isinstance(value, Mapping):
            yield from _flat(mapping(value), f"{name}.")
        elif is_tables(value):
            for index, item in enumerate(sequence(value), 1):
                yield from _flat(mapping(item), f"{name}.{index}.")
        elif value is not None:
            yield name, _in_words(value)


def _in_words(value: Any) -> str:
    """A manifest's value in one line."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(_in_words(item) for item in sequence(value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
