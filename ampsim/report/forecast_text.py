"""The words of a forecast's page: verdict, table, figures, assumptions, how to make it again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ampsim.report import markdown
from ampsim.report.columns import format_count
from ampsim.report.forecast import Forecast
from ampsim.report.frames import number, rows
from ampsim.report.table import to_markdown
from ampsim.report.verdict import verdict
from ampsim.study.result import BOUND_RECORDS
from ampsim.toml_text import is_tables, mapping, sequence

LEGEND = (
    "mak: at most that many instances in flight (max_active_keys). Ratio: training throughput "
    "over that of the first row. Busy: share of all workers' time spent in steps that cost time. "
    "Staleness: updates of a node between a gradient's forward and its backward step. Time to "
    "target: read off the virtual clock, median of the repeats, with the interval over them; by "
    "formula: epochs times what an epoch takes at these throughputs. Bound by: the largest of four "
    f"shares of the first training pass, as far as its leading {BOUND_RECORDS:,} steps and "
    "transfers tell, which may be few instances: time in which the busiest worker is busy; time in "
    "which the busiest link is occupied; length of the longest chain of steps that wait for one "
    "another (critical path), as far as a trace tells; time in which that worker or link idles "
    "while no more instances may be in flight or all workers idle (admission limit). All times are "
    "virtual."
)


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure's file name, the heading over it (none if empty) and what it shows in words."""

    file: str
    heading: str
    description: str


def page(forecast: Forecast, pictures: Sequence[Picture]) -> str:
    """The page in Markdown; every name that a user chose is shown letter for letter."""
    model, cluster = markdown.escape(forecast.model), markdown.escape(forecast.cluster)
    parts = [
        f"# Forecast: {model} on {cluster}",
        f"**{markdown.escape(verdict(forecast.table, forecast.target, forecast.metric))}**",
        setting(forecast),
        markdown.escape(getattr(forecast, "interrupted", None) or ""),
        _table(forecast),
        LEGEND if len(forecast.table) else "",
        *(part for picture in pictures for part in picture_parts(picture)),
        *assumptions(forecast.manifest),
        *origin(forecast.manifest, "forecast.csv"),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(forecast: Forecast) -> str:
    if not len(forecast.table):
        return ""
    return to_markdown(forecast.table, has_target=forecast.target is not None).rstrip("\n")


def setting(forecast: Forecast) -> str:
    """What was asked, in one line."""
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
    """What was taken for granted, in sentences."""
    return [str(sentence) for sentence in sequence(manifest.get("assumptions"))]


def charged(manifest: Mapping[str, Any]) -> list[list[str]]:
    """A heading and lines on how each cost is known; empty where the manifest does not say."""
    costs = manifest.get("costs")
    if not is_tables(costs):
        return []
    tables = [mapping(table) for table in sequence(costs)]
    headings = list(dict.fromkeys(key for table in tables for key in table))
    return [headings, *([_in_words(table.get(key, "")) for key in headings] for table in tables)]


def origin_values(manifest: Mapping[str, Any]) -> list[list[str]]:
    """Name and text of each other value of the manifest, those of tables under their path."""
    rest = {key: manifest[key] for key in manifest if key not in ("assumptions", "costs")}
    placement = mapping(rest.get("placement", {}))  # a line for each node would bury the others
    rest["placement"] = {key: placement[key] for key in placement if key != "workers"}
    return [list(pair) for pair in _flat(rest, "")]


def picture_parts(picture: Picture) -> list[str]:
    """Heading, if any, and figure."""
    heading = [f"## {picture.heading}"] if picture.heading else []
    return [*heading, f"![{markdown.escape(picture.description)}]({picture.file})"]


def assumptions(manifest: Mapping[str, Any]) -> list[str]:
    """Sentences on what was taken for granted, and how each cost is known."""
    sentences, costs = assumed(manifest), charged(manifest)
    parts: list[str] = []
    if sentences:
        parts.append("\n".join(f"- {markdown.escape(sentence)}" for sentence in sentences))
    if costs:
        headings, *lines = costs
        parts.append(markdown.table(headings, lines, left=headings).rstrip("\n"))
    return ["## What is assumed", *parts] if parts else []


def origin(manifest: Mapping[str, Any], csv: str) -> list[str]:
    """A table of the manifest's values, and where all of them are."""
    values = origin_values(manifest)
    table = markdown.table(["what", "value"], values, left=("what", "value")) if values else ""
    files = (
        f"All values with every digit: [{csv}]({csv}). "
        "Where they come from: [manifest.toml](manifest.toml)."
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
