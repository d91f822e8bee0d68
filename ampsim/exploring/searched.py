"""What a search found: its trials, its front, what it says in words, and its folder."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pandas as pd

from ampsim.arguments import checked
from ampsim.exploring.trials import PointOutcome
from ampsim.forecasting.forecast import row_values
from ampsim.output_folder import write_texts
from ampsim.report.saving import render
from ampsim.report.table import cell_text, to_csv
from ampsim.report.words import plain
from ampsim.runs.rows import table_of
from ampsim.study.provenance import own_version
from ampsim.text import html_table, to_toml

TABLE: Final = "search.csv"
INDEX: Final = "index.html"
FILES: Final = (TABLE, INDEX)
"""Files of every search, beside its manifest."""

_KIND: Final = "search"
_FORMAT: Final = 1
_LONGEST: Final = 80  # chosen: of a name


@dataclass(frozen=True, kw_only=True, repr=False)
class Searched:
    """What `search` returns.

    Attributes:
        table: one row a trial: trial, the keys that vary, outcome ("complete", "pruned",
            "infeasible", "not reached" or "failed"), the objectives (of a trial that is not
            complete, what it takes at least), violation (how far conditions are from holding),
            seeds (whose runs went on to their end), is_pareto, note. Unknown is missing.
        objectives: the columns that were minimised.
        keys: what varied.
        model: the model's name.
        cluster: the name of the cluster that was given.
        sampler: what proposed the points.
        hypervolume: what the front dominates, up to `reference`.
        hypervolume_random: the same of as many points at random; None where none were tried.
        reference: a tenth beyond the largest value of each objective, of all complete trials.
        interrupted: why it ended before all points were tried; None where they were.
        is_stopped: whether Ctrl-C did that, not the budget.
        manifest: command, versions, seeds and hashes.
    """

    table: pd.DataFrame
    objectives: tuple[str, ...]
    keys: tuple[str, ...]
    model: str
    cluster: str
    sampler: str
    hypervolume: float
    hypervolume_random: float | None
    reference: tuple[float, ...]
    interrupted: str | None
    is_stopped: bool
    manifest: dict[str, Any] = field(repr=False)

    @property
    def front(self) -> pd.DataFrame:
        """The trials that no other one dominates, best first in the first objective."""
        front = self.table[self.table["is_pareto"].astype(bool)]
        alike = [*self.keys, *self.objectives]
        ordered = front.drop_duplicates(alike).sort_values([*self.objectives], kind="stable")
        return ordered.reset_index(drop=True)

    @checked
    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write page, table and manifest, as `ampsim search --out` does.

        Args:
            folder: made if missing.

        Returns:
            The files, in the order written.

        Raises:
            OutputError: the folder or a file in it cannot be written.
        """
        return write_search(self, Path(folder))

    def __repr__(self) -> str:
        return f"Searched({self.model}: {len(self.front)} of {len(self.table)} on the front)"

    def _repr_html_(self) -> str:
        headings, *lines = front_lines(self)
        return html_table(sentences(self)[0], lines, headings=headings)


def table_of_trials(
    trials: Sequence[tuple[int, tuple[Mapping[str, Any], PointOutcome]]],
    keys: Sequence[str],
    objectives: Sequence[str],
    front: set[int],
) -> pd.DataFrame:
    """The table of trials: number, point and what came of it."""
    rows: list[dict[str, Any]] = []
    for number, (point, trial) in trials:
        values = trial.values or (math.nan,) * len(objectives)
        rows.append(
            {
                "trial": number,
                **{key: point.get(key) for key in keys},
                "outcome": trial.outcome,
                **dict(zip(objectives, values, strict=True)),
                "violation": trial.violation,
                "seeds": trial.seeds,
                "is_pareto": number in front,
                "note": trial.note,
            }
        )
    if not rows:
        columns = [
            "trial",
            *keys,
            "outcome",
            *objectives,
            "violation",
            "seeds",
            "is_pareto",
            "note",
        ]
        return pd.DataFrame(columns=columns)
    return _typed(rows)


def _typed(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """A table in which columns of texts may have gaps."""
    names = {name for row in rows for name, value in row.items() if isinstance(value, str)}
    texts = pd.DataFrame([{name: row[name] for name in row if name in names} for row in rows])
    others = table_of([{name: row[name] for name in row if name not in names} for row in rows])
    return pd.concat([others, texts], axis=1)[[*rows[0]]]


def write_search(found: Searched, folder: str | os.PathLike[str]) -> list[Path]:
    """Write search.csv, index.html and manifest.toml into a folder, whole or not at all.

    Raises:
        OutputError: the folder or a file in it cannot be written, or is another's.
    """
    texts = {TABLE: to_csv(found.table), INDEX: page(found)}
    return write_texts(folder, _KIND, texts, {"format": _FORMAT, **found.manifest})


def to_json(found: Searched, *, seed: int) -> str:
    """The search as JSON text that ends with a newline; unknown is null."""
    content: dict[str, Any] = {
        "ampsim": own_version(),
        "model": found.model,
        "cluster": found.cluster,
        "seed": seed,
        "verdict": " ".join(sentences(found)),
        "objectives": list(found.objectives),
        "hypervolume": found.hypervolume,
        "hypervolume_random": found.hypervolume_random,
        "interrupted": found.interrupted,
        "rows": [_plain(record) for record in found.table.to_dict("records")],
    }
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


_WHOLE: Final = ("trial", "seeds", "peak_bytes", "workers", "max_active_keys")


def _plain(record: Mapping[Any, Any]) -> dict[str, Any]:
    values = {str(key): row_values({key: value})[key] for key, value in record.items()}
    counts = {
        key: int(value) for key, value in values.items() if key in _WHOLE and value is not None
    }
    return {**values, **counts}


def sentences(found: Searched) -> list[str]:
    """How many points were tried, what is on the front, and how far it is ahead of chance."""
    outcomes = found.table["outcome"].value_counts()
    told = ", ".join(f"{count} {name}" for name, count in outcomes.items())
    of = " and ".join(found.objectives)
    said = [
        f"{len(found.front)} of {len(found.table)} points tried are beaten by none in {of}.",
        f"Of all trials: {told}." if told else "",
    ]
    if found.hypervolume_random is not None:
        ratio = found.hypervolume / found.hypervolume_random if found.hypervolume_random else None
        more = "" if ratio is None else f", {ratio:.3g} times as much"
        said.append(
            f"The front dominates a volume of {found.hypervolume:.4g}, as many points at random "
            f"{found.hypervolume_random:.4g}{more}."
        )
    return [one for one in said if one]


def front_lines(found: Searched) -> list[list[str]]:
    """The front as cells of a table, headings first."""
    headings = ["trial", *found.keys, *found.objectives]
    lines = [
        [_cell(name, row[name]) for name in headings] for row in found.front.to_dict("records")
    ]
    return [headings, *lines]


def _cell(name: str, value: Any) -> str:
    if isinstance(value, str):
        return plain(value, _LONGEST)
    if value is None or value != value:  # NaN
        return "–"
    if name in ("trial", "workers", "max_active_keys", "min_update_interval"):
        return f"{int(value)}"
    return cell_text(name, {name: float(value)})


def page(found: Searched) -> str:
    """The page of HTML, which loads nothing from any network."""
    known = found.table[found.table["outcome"].isin(["complete", "pruned"])]
    return render(
        "search.html",
        title=f"Search: {plain(found.model, _LONGEST)} on {plain(found.cluster, _LONGEST)}",
        sentences=sentences(found),
        interrupted=plain(found.interrupted or "", 400),
        lines=front_lines(found),
        data={
            "objectives": list(found.objectives),
            "trials": [
                {
                    "text": ", ".join(f"{key} {_cell(key, row[key])}" for key in found.keys),
                    "values": [row[name] for name in found.objectives],
                    "words": [_cell(name, row[name]) for name in found.objectives],
                    "isPareto": bool(row["is_pareto"]),
                    "isPruned": row["outcome"] == "pruned",
                    "trial": int(row["trial"]),
                }
                for row in known.to_dict("records")
            ],
        },
        manifest=to_toml(found.manifest),
    )
