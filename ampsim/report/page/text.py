"""A page in Markdown, and what a page in any language says beside its tables and figures."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ampsim.metric import Goal
from ampsim.report import words as markdown
from ampsim.report.frames import Row, floats, number, row_labels, rows, runs_by_row, text
from ampsim.report.page.tables import LEFT, NamedTable, bought, node_tables, tuning_tables
from ampsim.report.plot.convergence import is_blind
from ampsim.report.table import columns_folded, notes, to_markdown
from ampsim.report.verdict import called_rows, verdict
from ampsim.report.words import listed, told_apart
from ampsim.runs.run import RunTable
from ampsim.text import is_tables, mapping, sequence
from ampsim.units import format_count

_OF_DEVICES = (
    "Intervals hold the seeds and, within 95 %, the devices' numbers; notes have the devices alone."
)

ALL_COLUMNS: Final = "All columns, and what they are"
CHANGES: Final = "What would change it"

PAPER = "https://arxiv.org/abs/1705.09786"
"""AMPNet: Asynchronous Model-Parallel Training for Dynamic Neural Networks (2017)."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure's file name, heading (none if empty), description and caption."""

    file: str
    heading: str
    description: str
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Words:
    """Texts and tables that differ between the page of a forecast and that of a run."""

    kind: str  # first word of the title
    chart: str  # sentence below the heading of the Gantt chart
    files: str  # beginning of the sentence that ends with the names of the files beside the page
    names: tuple[str, ...]  # names of these files
    csv: str  # file that has all values with every digit
    tables: tuple[NamedTable, ...] = ()  # further tables
    verdict: str = ""  # the verdict; that of the table if empty


FORECAST = Words(
    "Forecast",
    "One run of each schedule; of a long run only the beginning is kept.",
    "All values with every digit are beside this page, in",
    ("forecast.csv",),
    "forecast.csv",
)


def page(forecast: RunTable, pictures: Sequence[Picture], words: Words = FORECAST) -> str:
    """The page in Markdown; every name that a user chose is shown letter for letter."""
    model, cluster = markdown.escape(forecast.model), markdown.escape(forecast.cluster)
    said = words.verdict or verdict(
        forecast.table, forecast.target, forecast.metric, forecast.manifest
    )
    files = ", ".join(f"[{name}]({name})" for name in words.names)
    parts = [
        f"# {words.kind}: {model} on {cluster}",
        f"**{markdown.paragraph(said)}**",
        markdown.paragraph(setting(forecast)),
        markdown.escape(forecast.interrupted or ""),
        *answer_parts(forecast),
        *tables_of(words.tables, LEFT),
        *(part for picture in pictures for part in picture_parts(picture)),
        *tables_of(tuning_tables(forecast), LEFT),
        *tables_of(node_tables(forecast), LEFT),
        *assumptions(forecast.manifest),
        *origin(forecast.manifest, words.csv),
        "" if words is FORECAST else f"The whole trace: {files}.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def answer_parts(forecast: RunTable) -> list[str]:
    """The table of the answer, the best rows bold, lines below it, and all columns in a fold."""
    table = forecast.table
    if not len(table):
        return []
    changes = sentences_under(forecast.manifest, "changes")
    folds = [(CHANGES, bullets(changes))] if changes else []
    for name, (headings, *lines) in [*bought(forecast), (ALL_COLUMNS, columns_folded(table))]:
        folds.append((name, markdown.table(headings, lines, left=LEFT)))
    return [
        to_markdown(table, forecast.target, bold=called_rows(table)).rstrip("\n"),
        bullets(lines_below(forecast)),
        *(f"<details>\n<summary>{name}</summary>\n\n{told}\n</details>" for name, told in folds),
    ]


def sentences_under(manifest: Mapping[str, Any], key: str) -> list[str]:
    """The sentences that a manifest has under a key, as "assumptions", "budget" or "changes"."""
    return [str(one) for one in sequence(manifest.get(key))]


def lines_below(forecast: RunTable) -> list[str]:
    """Return the lines below the table of a page: what bounds each row, and short notes."""
    has_ends = any(not math.isnan(number(row, "train_per_s_low")) for row in rows(forecast.table))
    return [*notes(forecast.table), *shared_notes(forecast), *([_OF_DEVICES] if has_ends else [])]


def shared_notes(forecast: RunTable) -> list[str]:
    """Notes that are no single row's: how rates were made, what is left open, what is assumed."""
    return [*filter(None, (*beside_answer(forecast), assumed_words(forecast.manifest)))]


def bullets(lines: Sequence[str]) -> str:
    """A list of plain texts in Markdown."""
    return "\n".join(f"- {markdown.escape(line)}" for line in lines)


def setting(forecast: RunTable) -> str:
    """Workers, target and repeats, in one line of plain text."""
    counts = {one for row in rows(forecast.table) if (one := number(row, "workers")) >= 0}
    *fewer, most = sorted(counts or {float(forecast.workers)})
    several = f"{', '.join(map(format_count, fewer))} or " if fewer else ""
    parts = [f"{several}{format_count(most)} worker{'s' if most != 1 else ''}"]
    if forecast.target is not None:
        target = forecast.metric.target_text(forecast.target)
        parts.append(f"target {target} validation {forecast.metric.kind}")
    repeats = {number(row, "repeats") for row in rows(forecast.table)}
    known = sorted(count for count in repeats if count >= 1)
    if known and (known[-1] > 1 or len(forecast.table) > 1):
        made = " to ".join(dict.fromkeys(map(format_count, (known[0], known[-1]))))
        parts.append(f"{made} repeat{'s' if known[-1] != 1 else ''} of each schedule")
    return f"{', '.join(parts)}."


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
    elsewhere = ("assumptions", "costs", "budget", "changes", "free", "lost_runs")
    rest = {key: manifest[key] for key in manifest if key not in elsewhere}
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


def tables_of(tables: Sequence[NamedTable], left: Sequence[str]) -> list[str]:
    """Tables under their headings; columns in `left` are aligned left."""
    parts: list[str] = []
    for heading, (headings, *lines) in tables:
        table = markdown.table(headings, lines, left=left).rstrip("\n")
        parts += [f"## {markdown.escape(heading)}", table]
    return parts


def assumptions(manifest: Mapping[str, Any]) -> list[str]:
    """The section of assumptions: sentences, and the table of costs."""
    sentences, costs = sentences_under(manifest, "assumptions"), charged(manifest)
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
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(_in_words(item) for item in sequence(value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


_NAMED: Final = 4
"""Rows that a sentence names at most (chosen: of more it says how many there are)."""


def _first_look(forecast: RunTable) -> str:
    """Name rows that had arrived when they were first validated, in most of their runs."""
    goal, early = Goal(forecast.metric, forecast.target), list[str]()
    for label, runs in runs_by_row(forecast).items():
        scores = [floats(run.looks, forecast.metric.kind) for run in runs]
        if 2 * sum(goal.reached_by(one) == 0 for one in scores) > len(runs):
            early.append(label)
    if not early:
        return ""
    who = f"{_names(forecast, early)} {'was' if len(early) == 1 else 'were'}"
    less = "a smaller " * ("validate_every" in forecast.manifest)
    return f"{who} there at the first validation: {less}--validate-every tells if sooner"


def _ends_of_rates(forecast: RunTable) -> str:
    by_row: dict[tuple[str, str], list[Row]] = {}  # rates of different optimizers are no ladder
    for row in rows(forecast.trials):
        by_row.setdefault((text(row, "schedule"), text(row, "optimizer")), []).append(row)
    ends: dict[str, list[str]] = {"lowest": [], "highest": []}
    for (name, _optimizer), of in by_row.items():
        tried = {number(row, "factor") for row in of}
        chosen = {number(row, "factor") for row in of if number(row, "is_chosen") == 1}
        if len(tried) > 1 and chosen:
            if min(tried) in chosen:
                ends["lowest"].append(name)
            elif max(tried) in chosen:
                ends["highest"].append(name)
    told = [
        f"{_names(forecast, of)} {'has' if len(of) == 1 else 'have'} the {end} rate of those tried"
        for end, of in ends.items()
        if of
    ]
    return f"{', '.join(told)}: others may be better" if told else ""


def _names(forecast: RunTable, names: Sequence[str]) -> str:
    if len(names) > _NAMED:
        return f"{len(names)} rows"
    shown = told_apart([*row_labels(forecast.table), *names], 32)
    return listed([shown[name] for name in names])


def beside_answer(forecast: RunTable) -> list[str]:
    """Tell of lost runs, how rates were made, who may have arrived before, rates at an end."""
    kinds = ("lost_runs", "budget", "free")
    lost, spent, free = (sentences_under(forecast.manifest, key) for key in kinds)
    rates = "" if spent else rates_words(forecast)
    gone = f"Runs that gave nothing: {len(lost)}; the first, {lost[0]}" if lost else ""
    told = (gone, *spent, rates, *free, _first_look(forecast), _ends_of_rates(forecast))
    return [one for one in (*told, _learnings(forecast)) if one]


def _learnings(forecast: RunTable) -> str:
    """On how many learnings the runs that learned rest, where some share one."""
    awake = (run for run in forecast.runs if not is_blind([run.epochs], forecast.metric))
    digests = [run.learning_digest for run in awake if run.learning_digest]
    learned = len(set(digests))
    if learned == len(digests):
        return ""
    return f"{len(digests)} runs rest on {learned} learnings: who meets the same weights shares one"


def rates_words(forecast: RunTable) -> str:
    """Tell how the rows' learning rates were made; empty where no learning is compared."""
    records = rows(forecast.table)
    learned = [f"best_{forecast.metric.kind}", "time_to_target_s"]
    is_blind = all(math.isnan(number(row, name)) for row in records for name in learned)
    if len(records) < 2 or forecast.target is None or is_blind:
        return ""
    if trials := rows(forecast.trials):
        chosen = {text(one, "schedule") for one in trials if number(one, "is_chosen") == 1}
        made = Counter(text(one, "schedule") for one in trials)
        counts = {count for name, count in made.items() if name in chosen}
        if not counts:
            return "learning rates: no row was tuned, as no trial reached the target"
        told = " or ".join(map(str, sorted(counts)))
        who = "each row that was tuned" if set(made) - chosen else "each row"
        return f"learning rates: the best of {told} trials for {who}"
    if any(text(row, "learning_rate_rule") not in ("", "as given") for row in records):
        return "learning rates: by the scaling rule for averaged gradients, none tuned"
    found = forecast.manifest.get("schedules")
    schedules = [mapping(one) for one in sequence(found)] if is_tables(found) else []
    if any("learning_rate" in mapping(one.get("set") or {}) for one in schedules):
        return "learning rates: those that the recipe names"
    return "learning rates: the model's for all rows, none tuned"


def assumed_words(manifest: Mapping[str, Any]) -> str:
    """List in a line what is assumed and not measured; empty where nothing is."""
    costs = manifest.get("costs")
    by_thing: dict[str, list[str]] = {}
    for one in sequence(costs) if is_tables(costs) else ():
        cost = mapping(one)
        if cost.get("kind") == "assumed":
            by_thing.setdefault(str(cost.get("of")), []).append(str(cost.get("what")))
    told = [f"of {thing}: {', '.join(dict.fromkeys(what))}" for thing, what in by_thing.items()]
    return f"assumed, not measured: {'; '.join(told)}" if told else ""


def next_of_report(name: str) -> list[str]:
    """The section of a report's page on what to type next."""
    options = ("--check", "--check --rerun", "--redraw")
    lines = "\n".join(f"ampsim report {shlex.quote(name)} {one}" for one in options)
    return ["## What to type next", f"```sh\n{lines}\n```"]
