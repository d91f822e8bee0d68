"""A map that was explored: its table, what it says in words, and its folder with the page."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pandas as pd

from ampsim.arguments import checked
from ampsim.exploring.cells import LeftOut
from ampsim.forecasting.forecast import row_values
from ampsim.metric import ACCURACY, Metric
from ampsim.output_folder import write_texts
from ampsim.report.frames import rows
from ampsim.report.grid import words
from ampsim.report.saving import render
from ampsim.report.style import line_styles
from ampsim.report.table import to_csv
from ampsim.report.words import plain
from ampsim.study.provenance import own_version
from ampsim.text import html_table, to_toml
from ampsim.units import format_percent

TABLE: Final = "explore.csv"
INDEX: Final = "index.html"
FILES: Final = (TABLE, INDEX)
"""Files of every exploration, beside its manifest."""

_KIND: Final = "exploration"
_FORMAT: Final = 1
_LONGEST: Final = 80  # chosen: of a name


@dataclass(frozen=True, kw_only=True, repr=False)
class Exploration:
    """What `explore` returns.

    Attributes:
        table: one row a point and method: the keys of `over`, schedule, time_to_target_s, low and
            high (its 90 % interval), basis ("learned", "shared", "predicted", or missing),
            is_first, doubt (the probability that another is first there), epoch_s, train_per_s,
            staleness_mean, peak_bytes, cost_to_target_usd, energy_to_target_j, learning (a number,
            equal where the first epoch learns the same). Unknown is missing, never 0.
        over: the values of each key.
        target: validation accuracy, or error, aimed at.
        metric: what the model is measured by.
        model: the model's name.
        cluster: the name of the cluster that was given.
        learnings: cells that were trained.
        wrong: share of the points with a prediction of which the winner may turn out to be another
            one when it is trained.
        left_out: what came of predicting trained cells from the others.
        interrupted: why it ended before it was sure everywhere; None where it was.
        is_stopped: whether Ctrl-C did that, not the budget.
        manifest: command, versions, seeds and hashes.
    """

    table: pd.DataFrame
    over: dict[str, tuple[Any, ...]]
    target: float
    metric: Metric = ACCURACY
    model: str
    cluster: str
    learnings: int
    wrong: float
    left_out: LeftOut
    interrupted: str | None
    is_stopped: bool = False
    manifest: dict[str, Any] = field(repr=False)

    @checked
    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write page, table and manifest, as `ampsim explore --out` does.

        Args:
            folder: made if missing.

        Returns:
            The files, in the order written.

        Raises:
            OutputError: the folder or a file in it cannot be written.
        """
        return write_exploration(self, Path(folder))

    def __repr__(self) -> str:
        keys = ", ".join(self.over)
        return f"Exploration({self.model} over {keys}; {self.learnings} learnings)"

    def _repr_html_(self) -> str:
        first = self.table[self.table["is_first"].fillna(False)]
        names = [*self.over, "schedule", "time_to_target_s", "basis", "doubt"]
        lines = [[str(row[name]) for name in names] for row in first.to_dict("records")]
        return html_table(f"{self.model}: who is first", lines, headings=names)


def write_exploration(found: Exploration, folder: str | os.PathLike[str]) -> list[Path]:
    """Write explore.csv, index.html and manifest.toml into a folder, whole or not at all.

    Raises:
        OutputError: the folder or a file in it cannot be written, or is another's.
    """
    texts = {TABLE: to_csv(found.table), INDEX: page(found)}
    return write_texts(folder, _KIND, texts, {"format": _FORMAT, **found.manifest})


def to_json(found: Exploration, *, seed: int) -> str:
    """The exploration as JSON text that ends with a newline; unknown is null."""
    content: dict[str, Any] = {
        "ampsim": own_version(),
        "model": found.model,
        "cluster": found.cluster,
        "seed": seed,
        "verdict": " ".join(sentences(found)),
        "learnings": found.learnings,
        "wrong": found.wrong,
        "left_out": {
            "cells": found.left_out.cells,
            "wrong": found.left_out.wrong,
            "expected": found.left_out.expected,
            "inside": found.left_out.inside,
        },
        "interrupted": found.interrupted,
        "rows": [plain_row(record, found) for record in found.table.to_dict("records")],
    }
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


_WHOLE: Final = ("peak_bytes", "learning")


def plain_row(record: Mapping[Any, Any], found: Exploration) -> dict[str, Any]:
    """One row of the table as JSON knows it."""
    values = {key: row_values({key: value})[key] for key, value in record.items()}
    counts = {key: int(values[key]) for key in _WHOLE if values[key] is not None}
    axes = {key: values[key] for key in found.over}
    return {**axes, **values, **counts}


def sentences(found: Exploration) -> list[str]:
    """What the map says: who is first where, on what that rests, and how sure it is."""
    table = found.table
    first = table[table["is_first"].fillna(False).astype(bool)]
    points = math.prod(map(len, found.over.values()))
    if not len(first):
        return [f"No method is known to reach the target at any of {points} points."]
    counts = first["schedule"].value_counts()
    told = [f"{plain(name, _LONGEST)} is first at {count}" for name, count in counts.items()]
    basis = table["basis"].value_counts()
    shared, predicted = int(basis.get("shared", 0)), int(basis.get("predicted", 0))
    rests = (
        f"Of {len(table)} cells {found.learnings} were trained, {shared} learn the same as one of "
        f"these, and {predicted} are predicted."
    )
    return [f"{'; '.join(told)} of {points} points.", rests, *_sureness(found, predicted)]


def _sureness(found: Exploration, predicted: int) -> list[str]:
    """How often a winner that rests on a prediction may be wrong, and how that was measured."""
    if not predicted:
        return []
    told = [
        f"Where something is predicted, at most {format_percent(found.wrong)} of the winners may "
        "turn out to be others when trained."
    ]
    left = found.left_out
    if left.cells:
        told.append(
            f"Left out one by one, {left.wrong} of {left.cells} trained cells would have been "
            f"called wrongly, where the predictions expected {left.expected:.1f}; {left.inside} "
            "of the times lay in their 90 % interval."
        )
    return told


def page(found: Exploration) -> str:
    """The page of HTML, which loads nothing from any network."""
    names = list(dict.fromkeys(str(row["schedule"]) for row in rows(found.table)))
    return render(
        "explore.html",
        title=f"Map: {plain(found.model, _LONGEST)} over {plain(', '.join(found.over), 200)}",
        sentences=sentences(found),
        setting=f"{found.metric.target_text(found.target)} on {plain(found.cluster, _LONGEST)}",
        interrupted=plain(found.interrupted or "", 400),
        data=_data(found, names),
        names=[plain(name, _LONGEST) for name in names],
        leads=leads_of(found),
        manifest=to_toml(found.manifest),
    )


def _data(found: Exploration, names: list[str]) -> dict[str, Any]:
    """What the map draws: axes, methods, and the cells of each point in the order of the table."""
    colours = line_styles(names)
    columns = ("time_to_target_s", "low", "high", "basis", "doubt", "is_first", "epoch_s")
    cells = [plain_row(record, found) for record in found.table.to_dict("records")]
    lines = [[one[name] for name in columns] for one in cells]
    count = len(names)
    return {
        "keys": [
            {"name": key, "values": list(values), "words": [_words({key: one}) for one in values]}
            for key, values in found.over.items()
        ],
        "methods": [{"name": plain(one, _LONGEST), "colour": colours[one].colour} for one in names],
        "points": [lines[place : place + count] for place in range(0, len(lines), count)],
    }


def leads_of(found: Exploration) -> list[list[str]]:
    """For each method, the point at which it leads most, as lines of a table."""
    most: dict[str, tuple[float, list[str]]] = {}
    for _point, of in found.table.groupby(list(found.over), sort=False):
        known = of.dropna(subset=["time_to_target_s"]).sort_values("time_to_target_s")
        if len(known) < 2:
            continue
        first, second = known.to_dict("records")[:2]
        lead = second["time_to_target_s"] / first["time_to_target_s"]
        name = str(first["schedule"])
        if lead > most.get(name, (0.0, []))[0]:
            where = _words({key: first[key] for key in found.over})
            line = [plain(name, _LONGEST), f"{lead:.2f} times", where, str(first["basis"])]
            most[name] = (lead, line)
    return [line for _lead, line in most.values()]


def _words(point: Mapping[str, Any]) -> str:
    """A point in words; a number of all devices is told as if there were one."""
    return words({key.removeprefix("device."): value for key, value in point.items()})
