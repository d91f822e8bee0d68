"""A map that was explored: its table, what it says in words, and its page."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import pandas as pd

from ampsim.exploring.axes import named_words, place_words, point_words, value_words
from ampsim.exploring.cells import Cells, Entrant, LeftOut, entrant_from_plain, stated_wrong
from ampsim.exploring.finding import LONGEST, Finding, Lines
from ampsim.exploring.making import FirstEpoch
from ampsim.metric import ACCURACY, Metric
from ampsim.output_folder import Kind
from ampsim.report.frames import texts
from ampsim.report.style import line_styles
from ampsim.report.words import plain
from ampsim.runs.rows import table_of
from ampsim.units import format_percent


@dataclass(frozen=True, kw_only=True, repr=False)
class Exploration(Finding):
    """What `explore` returns.

    Attributes:
        table: one row a point and method: the keys of `over`, schedule, time_to_target_s, low and
            high (its 90 % interval), basis ("learned", "shared", "predicted", "failed" or missing),
            is_first (by medians), doubt (the probability that another is), standing (what seeds let
            one say, as of a forecast; missing of a prediction), epoch_s, train_per_s,
            staleness_mean, peak_bytes, cost_to_target_usd, energy_to_target_j, learning (a number,
            equal where the first epoch learns the same). Unknown is missing, never 0.
        over: the values of each key.
        target: validation accuracy, or error, aimed at.
        metric: what the model is measured by.
        learnings: cells that were trained.
        wrong: share of the points with a prediction of which the winner may turn out to be another
            one when it is trained.
        left_out: what came of predicting trained cells from the others.
        evidence: what was timed and learned, from which all of that follows.
        sentences, model, cluster, manifest, interrupted, is_stopped: as of `Finding`.
    """

    kind: ClassVar[Kind] = "exploration"
    files = ("index.html", "explore.csv")
    told = ("verdict", "learnings", "wrong", "left_out", "interrupted", "rows")

    over: dict[str, tuple[Any, ...]]
    target: float
    metric: Metric = ACCURACY
    learnings: int
    wrong: float
    left_out: LeftOut
    evidence: Evidence = field(repr=False)

    @property
    def title(self) -> str:
        """What it maps."""
        return f"Map: {self.model} over {', '.join(self.over)}"

    @property
    def cells(self) -> Lines:
        """For each method, the point at which it leads most."""
        most: dict[str, tuple[float, list[str]]] = {}
        for _point, of in self.table.groupby(list(self.over), sort=False):
            known = of.dropna(subset=["time_to_target_s"]).sort_values("time_to_target_s")
            if len(known) < 2:
                continue
            first, second = known.to_dict("records")[:2]
            lead = second["time_to_target_s"] / first["time_to_target_s"]
            name = plain(str(first["schedule"]), LONGEST)
            if lead > most.get(name, (0.0, []))[0]:
                where = point_words({key: first[key] for key in self.over})
                most[name] = (lead, [name, f"{lead:.2f} times", where, str(first["basis"])])
        headings = ["ahead", "sooner than the next", "where", "its time is"]
        return headings, [line for _lead, line in most.values()]

    def page(self, csv: str = files[1]) -> str:
        """The page of HTML: the map, and where each method leads most; `csv` has its table."""
        names = list(dict.fromkeys(texts(self.table, "schedule")))
        return self.html(
            "explore.html",
            csv=csv,
            setting=f"{self.metric.target_text(self.target)} on {plain(self.cluster, LONGEST)}",
            data=self._data(names),
        )

    def _data(self, names: Sequence[str]) -> dict[str, Any]:
        """What the map draws: axes, methods, and the cells of each point in the table's order."""
        colours, count = line_styles(names), len(names)
        columns = ("time_to_target_s", "low", "high", "basis", "doubt", "is_first", "standing")
        lines = [[one[name] for name in columns] for one in self.rows]
        return {
            "keys": [
                {
                    "name": key,
                    "values": list(of),
                    "ticks": [value_words(key, one) for one in of],
                    "words": [named_words(key, one) for one in of],
                }
                for key, of in self.over.items()
            ],
            "methods": [
                {"name": plain(one, LONGEST), "colour": colours[one].colour} for one in names
            ],
            "points": [lines[place : place + count] for place in range(0, len(lines), count)],
        }


@dataclass(frozen=True)
class Evidence:
    """What a map rests on: all else that it says follows.

    Args:
        over: the values of each key.
        labels: of the methods.
        methods: what was timed and learned of each; points are places in the product of `over`.
        repeats: seeds of each cell that is trained.
    """

    over: dict[str, tuple[Any, ...]]
    labels: tuple[str, ...]
    methods: tuple[Entrant, ...]
    repeats: int

    @property
    def failures(self) -> list[str]:
        """Why cells failed."""
        return [failure for method in self.methods for failure in method.failures]

    def plain(self) -> dict[str, Any]:
        """It as JSON can hold it."""
        digests: dict[str, int] = {}
        return {
            "over": {key: list(values) for key, values in self.over.items()},
            "labels": list(self.labels),
            "methods": [one.plain(digests) for one in self.methods],
            "repeats": self.repeats,
        }


def evidence_from_plain(plain: Mapping[str, Any]) -> Evidence:
    """What `Evidence.plain` gave.

    Raises:
        ValueError, TypeError, KeyError: it is none.
    """
    over = {str(key): tuple(values) for key, values in plain["over"].items()}
    methods = tuple(map(entrant_from_plain, plain["methods"]))
    return Evidence(over, tuple(map(str, plain["labels"])), methods, int(plain["repeats"]))


def exploration_of(
    evidence: Evidence, *, said: Sequence[str], model: str, cluster: str, **about: Any
) -> Exploration:
    """The map that follows from what was timed and learned.

    Args:
        evidence: that.
        said: sentences to add.
        model: its name.
        cluster: the name of that of which nothing varies.
        about: target, metric and manifest.
    """
    over, cells = evidence.over, Cells(evidence.methods)
    lines = [
        {**dict(zip(over, point, strict=True)), "schedule": label, **_line(cells, number, place)}
        for number, point in enumerate(itertools.product(*over.values()))
        for place, label in enumerate(evidence.labels)
    ]
    table, left_out = _numbered(lines), cells.left_out()
    learnings = sum(len(method.learned) for method in evidence.methods)
    wrong = stated_wrong(cells, left_out)
    told = sentences_of(table, learnings, wrong, left_out, evidence.repeats)
    failed = [f"Where cells failed: {one}." for one in evidence.failures[:1]]
    return Exploration(
        table=table, over=over, learnings=learnings, wrong=wrong, left_out=left_out,
        sentences=(*told, *failed, *said), evidence=evidence, model=model,
        cluster=place_words(cluster, over), **about,
    )  # fmt: skip


def _line(cells: Cells, point: int, place: int) -> dict[str, Any]:
    """What the table says of a cell beside its keys; unknown is None."""
    method, called = cells.methods[place], cells.calls.get(point)
    timed = method.timed.get(point, {}).get(method.first_seed) or FirstEpoch()
    found = None
    if called is not None and (method.learned or timed.failure):
        found = cells.estimates[point][place]
    best = None if called is None else called.best
    time_s = None if found is None else found.time_s
    low, high = (None, None) if found is None else found.interval_s
    return {
        "time_to_target_s": time_s,
        "low": low,
        "high": high,
        "basis": None if found is None else found.basis,
        "is_first": None if best is None else best == place,
        "doubt": None if best is None or called is None else round(called.doubt, 12),
        "standing": None if called is None else called.standing(place),
        "epoch_s": timed.epoch_s,
        "train_per_s": timed.train_per_s,
        "staleness_mean": timed.staleness_mean,
        "peak_bytes": timed.peak_bytes,
        "cost_to_target_usd": _times(timed.usd_per_s, time_s),
        "energy_to_target_j": _times(timed.power_w, time_s),
        "learning": timed.digest or None,
    }


def _times(rate: float | None, time_s: float | None) -> float | None:
    return None if rate is None or time_s is None else rate * time_s


def _numbered(lines: Sequence[dict[str, Any]]) -> Any:
    """The table of lines, in which each digest is a number, from 1."""
    digests = dict.fromkeys(line["learning"] for line in lines if line["learning"])
    numbers = {digest: number for number, digest in enumerate(digests, 1)}
    return table_of([{**line, "learning": numbers.get(line["learning"])} for line in lines])


OPEN: Final = {
    "tie": "Methods tie within 5 % at {count}",
    "too few seeds": "With {seeds} it is open who is first at {count}",
    "predicted": "It is predicted who is ahead at {count}",
}
"""Why nobody is first for sure, by the standing of who is ahead."""


NOT_TUNED: Final = "Nothing is tuned: learning rates are the model's own for all schedules."


def sentences_of(
    table: pd.DataFrame, learnings: int, wrong: float, left: LeftOut, seeds: int
) -> tuple[str, ...]:
    """What a map says: who is first where, on what that rests, and how sure it is."""
    points = len(table) // max(table["schedule"].nunique(), 1)
    ahead = table[table["is_first"].fillna(False).astype(bool)]
    if not len(ahead):
        return (f"No method is known to reach the target at any of {points} points.",)
    standing = ahead["standing"].fillna("predicted")
    first = ahead[standing == "first"]["schedule"].value_counts()
    told = [f"{plain(name, LONGEST)} is first at {count}" for name, count in first.items()]
    said = [f"Of {points} points, {', '.join(told) or 'nobody is first for sure at any'}."]
    for what, why in OPEN.items():
        own = ahead[standing == what]["schedule"].value_counts()
        names = ", ".join(f"{plain(name, LONGEST)} at {count}" for name, count in own.items())
        where = why.format(count=own.sum(), seeds=f"{seeds} seed{'s' * (seeds != 1)}")
        said += [f"{where}; ahead in the median: {names}."] if names else []
    nobody = points - len(ahead)
    said += [f"No method is known to reach the target at {nobody}."] if nobody else []
    basis = table["basis"].value_counts()
    shared, predicted, failed = (int(basis.get(of, 0)) for of in ("shared", "predicted", "failed"))
    said += [
        f"Of {len(table)} cells {learnings} were trained, {shared} learn the same as one of "
        f"these, and {predicted} are predicted{f'; {failed} cannot be run' if failed else ''}.",
    ]
    if predicted:
        said.append(
            f"Where something is predicted, at most {format_percent(wrong)} of the winners may "
            "turn out to be others when trained."
        )
    if predicted and left.cells:
        said.append(
            f"Left out one by one, {left.wrong} of {left.cells} trained cells would have been "
            f"called wrongly, where the predictions expected {left.expected:.1f}; {left.inside} "
            "of the times lay in their 90 % interval."
        )
    return tuple(said)
