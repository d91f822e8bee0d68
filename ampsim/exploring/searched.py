"""What a search found: its trials, its front, what it says in words, and its page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd

from ampsim.exploring.axes import unit_of, value_words
from ampsim.exploring.finding import LONGEST, Finding, Lines
from ampsim.exploring.trials import PointOutcome
from ampsim.output_folder import Kind
from ampsim.report.table import cell_text
from ampsim.report.words import plain
from ampsim.runs.rows import table_of


@dataclass(frozen=True, kw_only=True, repr=False)
class Searched(Finding):
    """What `search` returns.

    Attributes:
        table: one row a trial: trial, the keys that vary, outcome ("complete", "pruned",
            "infeasible", "not reached" or "failed"), the objectives (of a trial that is not
            complete, what it takes at least), violation (how far conditions are from holding),
            seeds (whose runs went on to their end), is_pareto, note. Unknown is missing.
        objectives: the columns that were minimised.
        keys: what varied.
        sampler: what proposed the points.
        hypervolume: what the front dominates, up to `reference`.
        hypervolume_random: the same of as many points at random; None where none were tried.
        reference: a tenth beyond the largest value of each objective, of all complete trials.
        sentences, model, cluster, manifest, interrupted, is_stopped: as of `Finding`.
    """

    kind: ClassVar[Kind] = "search"
    files = ("index.html", "search.csv")
    told = (
        "verdict", "objectives", "hypervolume", "hypervolume_random", "interrupted", "rows",
    )  # fmt: skip

    objectives: tuple[str, ...]
    keys: tuple[str, ...]
    sampler: str
    hypervolume: float
    hypervolume_random: float | None
    reference: tuple[float, ...]

    @property
    def title(self) -> str:
        """What was searched."""
        return f"Search: {self.model} on {self.cluster}"

    @property
    def front(self) -> pd.DataFrame:
        """The trials that no other one dominates, best first in the first objective."""
        return front_of(self.table, self.keys, self.objectives)

    @property
    def cells(self) -> Lines:
        """The front."""
        headings = ["trial", *self.keys, *self.objectives]
        records = self.front.to_dict("records")
        return headings, [[_cell(name, row[name]) for name in headings] for row in records]

    def page(self) -> str:
        """The page of HTML: the front, and all points."""
        known = self.table[self.table["outcome"].isin(["complete", "pruned"])]
        trials = [
            {
                "text": ", ".join(f"{key} {_cell(key, row[key])}" for key in self.keys),
                "values": [row[name] for name in self.objectives],
                "words": [_cell(name, row[name]) for name in self.objectives],
                "isPareto": bool(row["is_pareto"]),
                "isPruned": row["outcome"] == "pruned",
                "trial": int(row["trial"]),
            }
            for row in known.to_dict("records")
        ]
        data = {"objectives": list(self.objectives), "trials": trials}
        return self.html("search.html", data=data)


def table_of_trials(
    trials: Sequence[tuple[int, tuple[Mapping[str, Any], PointOutcome]]],
    keys: Sequence[str],
    objectives: Sequence[str],
    front: set[int],
) -> pd.DataFrame:
    """The table of trials: number, point and what came of it."""
    columns = [
        "trial", *keys, "outcome", *objectives, "violation", "seeds", "is_pareto", "note",
    ]  # fmt: skip
    rows: list[dict[str, Any]] = []
    for number, (point, trial) in trials:
        values = trial.values or (math.nan,) * len(objectives)
        told = (trial.outcome, *values, trial.violation, trial.seeds, number in front, trial.note)
        own = (number, *map(point.get, keys), *told)
        rows.append(dict(zip(columns, own, strict=True)))
    if not rows:
        return pd.DataFrame(columns=columns)
    names = {name for row in rows for name, value in row.items() if isinstance(value, str)}
    texts = pd.DataFrame([{name: row[name] for name in row if name in names} for row in rows])
    others = table_of([{name: row[name] for name in row if name not in names} for row in rows])
    return pd.concat([others, texts], axis=1)[columns]


def front_of(table: pd.DataFrame, keys: Sequence[str], objectives: Sequence[str]) -> pd.DataFrame:
    """The rows of the front, each once, best first in the first objective."""
    front = table[table["is_pareto"].astype(bool)].drop_duplicates([*keys, *objectives])
    return front.sort_values([*objectives], kind="stable").reset_index(drop=True)


def sentences_of(
    table: pd.DataFrame, front: int, objectives: Sequence[str], volumes: Sequence[float | None]
) -> tuple[str, ...]:
    """How many points were tried, what is on the front, and how far it is ahead of chance.

    Args:
        table: of trials.
        front: how many points are on it.
        objectives: that were minimised.
        volumes: that the front dominates, and as many points at random; None where none were tried.
    """
    told = ", ".join(f"{count} {name}" for name, count in table["outcome"].value_counts().items())
    of = " and ".join(objectives)
    are = "is" if front == 1 else "are"
    said = [f"{front} of {len(table)} points tried {are} beaten by none in {of}."]
    if not front and len(table):
        outcomes = set(table["outcome"])
        why = "reaches the target" if outcomes == {"not reached"} else "is complete"
        said = [f"None of {len(table)} points tried {why}, so that {of} cannot be compared."]
    said += [f"Of all trials: {told}."] if told else []
    failed = table[table["outcome"] == "failed"]["note"]
    said += [f"Where one failed: {note}." for note in failed[:1]]
    own, chance = volumes
    if own is not None and chance is not None:
        more = f", {own / chance:.3g} times as much" if chance else ""
        said.append(
            f"The front dominates a volume of {own:.4g}, as many points at random {chance:.4g}"
            f"{more}."
        )
    return tuple(said)


def _cell(name: str, value: Any) -> str:
    if isinstance(value, str):
        return plain(value, LONGEST)
    if value is None or value != value:  # NaN
        return "–"
    if unit_of(name):
        return value_words(name, value)
    return f"{int(value)}" if value == int(value) else cell_text(name, {name: float(value)})
