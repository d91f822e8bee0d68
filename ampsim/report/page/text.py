"""A forecast's page in Markdown: verdict, table, figures, assumptions and origin."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ampsim.report import markdown
from ampsim.report.columns import format_count
from ampsim.report.forecast import Forecast
from ampsim.report.frames import DataFrame, number, rows
from ampsim.report.page.answer import NEXT, assumed_words, next_steps, rates_words
from ampsim.report.page.left_open import left_open
from ampsim.report.page.node_tables import LEFT, node_tables
from ampsim.report.page.tuning_tables import tuning_tables
from ampsim.report.table import to_markdown
from ampsim.report.verdict import called_rows, verdict
from ampsim.toml_text import is_tables, mapping, sequence

LEGEND = (
    "In flight: at most that many instances at a time (max_active_keys, in labels also mak). "
    "Update interval: gradients between updates of a node (min_update_interval). Ratio: training "
    "throughput over that of the first row. Busy: share of all workers' time spent in steps that "
    "cost time, over the whole run, validation included. Staleness: updates of a node between a "
    "gradient's forward and its backward step. Epochs and time to target: read off the virtual "
    "clock, medians of the repeats. Interval: order statistics of the repeats that cover the true "
    "median time with the probability in the heading; with few repeats it cannot cover more. "
    "Order flips: the probability that with other seeds the row would not be behind the best; "
    "seeds are drawn again, the same for all rows (paired bootstrap of medians), and n seeds "
    "never make it less than 1 in 2^n. Rows in bold are the best, or tie with it: one that is as "
    "good as the best is called worse in at most one of ten cases. Sooner: time to the target of "
    "the first row over this row's, which is the product of what throughput, epochs and the share "
    "of validation in that time make of it, all of the median repeat. By formula: epochs times "
    "what an epoch takes at these throughputs. Bound by: the largest of four shares of the first "
    "repeat's time. The busiest worker's is that in which it is busy, the busiest link's that in "
    "which it is occupied. The critical path leads from the last step back to the start, through "
    "what each step waited for; its share is that of steps and transfers on it, as far as no "
    "limit on instances in flight made them wait. The admission limit is that in which the busier "
    "of that worker and that link idles while instances are kept out. Where none reaches a half, "
    "no single thing is the bound. All times are virtual."
)

_OF_DEVICES = (
    "Some numbers of the devices are known within 95 % intervals only, which are named under "
    '"What is assumed". The note of a row says how fast and how soon it would be within these '
    "alone; its interval, where it has one, holds them and the seeds."
)

PAPER = "https://arxiv.org/abs/1705.09786"
"""AMPNet: Asynchronous Model-Parallel Training for Dynamic Neural Networks (2017)."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure's file name, heading (none if empty), description and caption."""

    file: str
    heading: str
    description: str
    caption: str = ""


def page(forecast: Forecast, pictures: Sequence[Picture]) -> str:
    """The page in Markdown; every name that a user chose is shown letter for letter."""
    model, cluster = markdown.escape(forecast.model), markdown.escape(forecast.cluster)
    parts = [
        f"# Forecast: {model} on {cluster}",
        f"**{markdown.paragraph(ruling(forecast))}**",
        markdown.escape(left_open(forecast)),
        setting(forecast),
        markdown.escape(assumed_words(forecast.manifest)),
        device_words(forecast.table),
        markdown.escape(getattr(forecast, "interrupted", None) or ""),
        _table(forecast),
        LEGEND if len(forecast.table) else "",
        *(part for picture in pictures for part in picture_parts(picture)),
        *tables_of(tuning_tables(forecast), LEFT),
        *tables_of(node_tables(forecast), LEFT),
        *commands(next_steps(forecast)),
        *assumptions(forecast.manifest),
        *origin(forecast.manifest, "forecast.csv"),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def ruling(forecast: Forecast) -> str:
    """The verdict, and how the rows' learning rates were made."""
    said = verdict(forecast.table, forecast.target, forecast.metric)
    return " ".join(filter(None, [said, rates_words(forecast)]))


def device_words(table: DataFrame) -> str:
    """What notes and intervals have of the devices; empty where no number has an interval."""
    is_known = any(not math.isnan(number(row, "train_per_s_low")) for row in rows(table))
    return _OF_DEVICES if is_known else ""


def commands(lines: Sequence[str]) -> list[str]:
    """The section of what to type next; empty without commands."""
    return [f"## {NEXT}", "```sh\n" + "\n".join(lines) + "\n```"] if lines else []


def _table(forecast: Forecast) -> str:
    if not len(forecast.table):
        return ""
    has_target, bold = forecast.target is not None, called_rows(forecast.table)
    return to_markdown(forecast.table, has_target=has_target, bold=bold).rstrip("\n")


def setting(forecast: Forecast) -> str:
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
    placement = mapping(rest.get("placement", {}))  # a line for each node would bury the others
    rest["placement"] = {key: placement[key] for key in placement if key != "workers"}
    return [list(pair) for pair in _flat(rest, "")]


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
