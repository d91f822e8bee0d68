"""What a page answers, and what it leaves open."""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ampsim.metric import Goal
from ampsim.report.frames import Row, floats, number, rows, runs_by_row, text
from ampsim.report.page.tables import trials_of
from ampsim.report.verdict import leading_row
from ampsim.report.words import listed, plain
from ampsim.runs.ranking import seeds_needed
from ampsim.runs.run import RunTable
from ampsim.text import is_tables, mapping, sequence

_NAMED: Final = 4
"""Rows that a sentence names at most (chosen: of more it says how many there are)."""


def rows_at_first_look(forecast: RunTable) -> list[str]:
    """Rows that had reached the target when they were first validated, in half of their runs."""
    if forecast.target is None:
        return []
    goal = Goal(forecast.metric, forecast.target)
    found: list[str] = []
    for label, runs in runs_by_row(forecast).items():
        scores = [floats(run.looks, forecast.metric.kind) for run in runs]
        early = sum(goal.reached_by(one) == 0 for one in scores)
        if runs and 2 * early > len(runs):
            found.append(label)
    return found


def _first_look(forecast: RunTable) -> str:
    names = rows_at_first_look(forecast)
    if not names:
        return ""
    was = "was" if len(names) == 1 else "were"
    return f"{_names(names)} {was} there at the first validation: --validate-every tells if sooner"


def _ends_of_rates(forecast: RunTable) -> str:
    """Which rows have the lowest or the highest of the rates that they tried."""
    trials = trials_of(forecast)
    if trials is None:
        return ""
    by_row: dict[str, list[Row]] = {}
    for row in rows(trials):
        by_row.setdefault(text(row, "schedule"), []).append(row)
    ends: dict[str, list[str]] = {"lowest": [], "highest": []}
    for name, of in by_row.items():
        tried = {number(row, "factor") for row in of}
        chosen = {number(row, "factor") for row in of if number(row, "is_chosen") == 1}
        if len(tried) > 1 and chosen:
            if min(tried) in chosen:
                ends["lowest"].append(name)
            elif max(tried) in chosen:
                ends["highest"].append(name)
    told = [
        f"{_names(names)} {'has' if len(names) == 1 else 'have'} the {end} rate of those tried"
        for end, names in ends.items()
        if names
    ]
    return f"{', '.join(told)}: others may be better" if told else ""


def _names(names: Sequence[str]) -> str:
    if len(names) > _NAMED:
        return f"{len(names)} rows"
    return listed([plain(name, 32) for name in names])


_FLAGS: Final = frozenset(
    {
        "--quiet",
        "-q",
        "--tune",
        "--traceback",
        "--vertical-sync",
        "--overlap",
        "--staleness-rate",
    }
)
"""Options that take no value; a test compares them with those of the command line."""

_OF_FORECAST: Final = frozenset(
    {
        "--schedule", "--max-active-keys", "--min-update-interval", "--max-epochs", "--repeats",
        "--sure", "--max-repeats", "--scale-rate", "--tune", "--trials", "--columns", "--jobs",
        "-j",
    }
)  # fmt: skip
"""Options of a forecast that `ampsim run` lacks, or that differ by row."""

LOOKS: Final = 10
"""Validations of an epoch that are advised where one was too few (chosen: it takes little time)."""

_OF_OUTPUT: Final = frozenset({"--out", "--json", "--columns", "--quiet", "-q", "--traceback"})

NEXT: Final = "What to type next"


def beside_answer(forecast: RunTable) -> list[str]:
    """How rates were made, who may have arrived before the first look, and rates at an end."""
    told = (rates_words(forecast), _first_look(forecast), _ends_of_rates(forecast))
    return [one for one in told if one]


def rates_words(forecast: RunTable) -> str:
    """How the rows' learning rates were made; empty where nothing is compared by what it learns."""
    records = rows(forecast.table)
    learned = [f"best_{forecast.metric.kind}", "time_to_target_s"]
    is_blind = all(math.isnan(number(row, name)) for row in records for name in learned)
    if len(records) < 2 or forecast.target is None or is_blind:
        return ""
    trials = trials_of(forecast)
    if trials is not None:
        chosen = {text(one, "schedule") for one in rows(trials) if number(one, "is_chosen") == 1}
        made = Counter(text(one, "schedule") for one in rows(trials))
        counts = {count for name, count in made.items() if name in chosen}
        if not counts:
            return "learning rates: no row was tuned, as no trial reached the target"
        told = " or ".join(map(str, sorted(counts)))
        who = "each row that was tuned" if set(made) - chosen else "each row"
        return f"learning rates: the best of {told} trials for {who}"
    if any(text(row, "learning_rate_rule") not in ("", "as given") for row in records):
        return "learning rates: by the scaling rule for averaged gradients, none tuned"
    if any("learning_rate" in mapping(one.get("set") or {}) for one in _schedules(forecast)):
        return "learning rates: those that the recipe names"
    return "learning rates: the model's for all rows, none tuned"


def assumed_words(manifest: Mapping[str, Any]) -> str:
    """What is assumed and not measured, in a line; empty where nothing is."""
    costs = manifest.get("costs")
    by_thing: dict[str, list[str]] = {}
    for one in sequence(costs) if is_tables(costs) else ():
        cost = mapping(one)
        if cost.get("kind") == "assumed":
            by_thing.setdefault(str(cost.get("of")), []).append(str(cost.get("what")))
    told = [f"of {thing}: {', '.join(dict.fromkeys(what))}" for thing, what in by_thing.items()]
    return f"assumed, not measured: {'; '.join(told)}" if told else ""


def next_steps(forecast: RunTable) -> list[str]:
    """Three commands that say more than a forecast did; none of one that no command made."""
    words = _command(forecast.manifest, "forecast")
    records = rows(forecast.table)
    if words is None or not records:
        return []
    best = leading_row(forecast.table)
    seeds, asked = number(records[0], "repeats"), number(best, "seeds_needed")
    needed = seeds_needed(len(records)) if math.isnan(asked) else int(asked)
    repeats = max(needed, int(2 * seeds) if seeds >= 1 and math.isnan(asked) else 0)
    surer = [*_without(words, {"--repeats", "--sure", "--max-repeats"}), "--repeats", str(repeats)]
    if rows_at_first_look(forecast):
        counts = (floats(run.epochs, "instances").max(initial=0.0) for run in forecast.runs)
        each = max(int(max(counts)) // LOOKS, 1)
        surer = [*_without(surer, {"--validate-every"}), "--validate-every", str(each)]
    tuned = [*_without(words, {"--tune", "--trials"}), "--tune"]
    if trials_of(forecast) is not None:
        tuned = [*_without(words, {"--trials"}), "--trials", "16"]
    name = text(best, "schedule").partition(",")[0]
    run = ["run", *_without(words[1:], _OF_FORECAST), "--schedule", name]
    in_flight = number(best, "max_active_keys")
    if name != "sequential" and not math.isnan(in_flight) and "--max-active-keys" in words:
        run += ["--max-active-keys", f"{in_flight:.0f}"]
    return _plain([_line(one) for one in (surer, tuned, run)])


def next_of_run(manifest: Mapping[str, Any], epochs: int) -> list[str]:
    """Three commands that say more of a run that was kept; none of one that no command made."""
    words = _command(manifest, "run")
    if words is None:
        return []
    place = _value(words, "--out") or f"run-{mapping(manifest['model'])['name']}"
    longer = [*_without(words, {"--epochs"}), "--epochs", str(2 * max(epochs, 1))]
    other = [*_without(words, {"--seed"}), "--seed", str(int(manifest["seed"]) + 1)]
    return _plain(
        [
            _line(["gantt", place, "--out", "gantt.html"]),
            _line([*longer, "--out", "longer"]),
            _line([*other, "--out", "other"]) + f" && {_line(['compare', place, 'other'])}",
        ]
    )


def next_of_report(name: str) -> list[str]:
    """Three commands about a report."""
    return [
        _line(["report", name, "--check"]),
        _line(["report", name, "--check", "--rerun"]),
        _line(["report", name, "--redraw"]),
    ]


def _schedules(forecast: RunTable) -> list[Mapping[str, Any]]:
    found = forecast.manifest.get("schedules")
    return [mapping(one) for one in sequence(found)] if is_tables(found) else []


def _command(manifest: Mapping[str, Any], name: str) -> list[str] | None:
    """The words of a command of that name, from its name on; None where another made this."""
    words = [str(one) for one in sequence(manifest.get("command") or ())]
    if len(words) < 2 or words[1] != name:
        return None
    return [name, *_without(words[2:], _OF_OUTPUT - {"--out"} if name == "run" else _OF_OUTPUT)]


def _without(words: Sequence[str], options: frozenset[str] | set[str]) -> list[str]:
    """Words of a command line without some options and their values."""
    kept: list[str] = []
    skips = False
    for word in words:
        option, equals, _value = word.partition("=")
        if skips:
            skips = False
        elif option in options:
            skips = not equals and option not in _FLAGS
        else:
            kept.append(word)
    return kept


def _value(words: Sequence[str], option: str) -> str | None:
    for place, word in enumerate(words):
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
        if word == option and place + 1 < len(words):
            return words[place + 1]
    return None


def _plain(lines: list[str]) -> list[str]:
    """The lines, unless one has characters that a page could take for its own."""
    return lines if all(re.fullmatch(r"[\w ,.:;=/+'\"@%&~-]+", one) for one in lines) else []


def _line(words: Sequence[str]) -> str:
    return f"ampsim {shlex.join(words)}"
