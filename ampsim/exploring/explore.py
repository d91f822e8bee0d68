"""Explore: who is first at each point of a space of hardware, by how much, and how sure that is.

Every cell, a method at a point, is timed exactly. What is learned there is made where it decides:
the next learning is the one that takes most doubt from the winners (`ampsim.exploring.cells`). As
this depends on what was found and not on the clock, a map that goes on is one that never stopped.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Final, Unpack

import pandas as pd
from annotated_types import Ge, Le
from pydantic import TypeAdapter

from ampsim.errors import OptionError, SimulationError
from ampsim.exploring import axes
from ampsim.exploring.cells import Cells, Entrant, LeftOut, stated_wrong
from ampsim.exploring.finding import LONGEST, Finding, Lines
from ampsim.exploring.making import FirstEpoch, How, Many, PointRuns, Query, question, rows_at
from ampsim.metric import ACCURACY, Metric
from ampsim.output_folder import Kind
from ampsim.report.saving import page_colours
from ampsim.report.style import line_styles
from ampsim.report.words import plain
from ampsim.runs.ranking import SURE
from ampsim.runs.rows import median_interval, table_of, times_of
from ampsim.runs.run import Run
from ampsim.runs.task import Row
from ampsim.study.schedule_names import labels_of
from ampsim.study.simulation import ClusterLike, ModelLike, SchedulesLike
from ampsim.units import NO_CHANGE, format_percent

POINTS: Final = 8  # of a range, unless told otherwise (chosen: a factor of 2.7 in three decades)
REPEATS: Final = 8  # seeds of each learning (chosen: five at least tell two methods apart)
POINTS_MAX: Final = 4096  # of a map (chosen: more are not timed in a day, and fill no page)

NOT_TUNED: Final = (
    "Nothing is tuned: learning rates are the model's own, raised by rule where an update takes "
    "the mean of several gradients."
)
EPOCHS_VARY: Final = (
    "With outages, losses, stages of an optimizer or a period of a solver epochs differ: no cell "
    "is shared, joules are unknown."
)
FIRST_DIFFERS: Final = (
    "Later epochs differ from the first by up to {} where trained: what is shared or predicted, "
    "and joules, are as if each were as the first."
)
SEEDS_DIFFER: Final = "Seeds differ, epochs by up to {}: timings and predictions are of seed {}."


@question
def explore(
    model: ModelLike,
    cluster: ClusterLike,
    schedules: SchedulesLike,
    *,
    over: axes.Over,
    points: Annotated[int, Ge(2), Le(POINTS_MAX)] = POINTS,
    budget_s: float | None = None,
    repeats: Many = REPEATS,
    sure: Annotated[float, Ge(0.5), Le(0.999)] = SURE,
    **how: Unpack[How],
) -> Exploration:
    """Map which schedule reaches the target first at each point of a space, and how sure that is.

    Ctrl-C and the end of the budget keep what has finished; with `keeping`, the same call goes on.

    Args:
        model: as of `forecast`.
        cluster: likewise, but for what `over` changes.
        schedules: those compared: objects or names, or names as on the command line.
        over: values of each key, such as {"latency_s": "1e-7..1e-4:log", "workers": [2, 4]}; a
            text is read as on the command line (`ampsim.exploring.axes` says which keys there are).
        points: of each range.
        budget_s: seconds after which it ends; None until it is `sure`.
        repeats: seeds of each cell that is trained: `seed`, `seed` + 1, …
        sure: ends where at every point the probability is this high that training what is
            predicted would name the same winner.
        how: as of `forecast`; there must be a `target`, `seed` is also that of all times, and a
            `placement` is found anew at each point.

    Raises:
        OptionError: an option has a value that it cannot have, or the model has no target.
        UnknownNameError: a value names nothing that there is.
        SimulationError: no point can be timed, or none can be trained.
    """
    setup = axes.setup_of(model, cluster, schedules)
    asked = Query(setup=setup, repeats=repeats, budget_s=budget_s, **how)
    if (target := asked.aimed_at) is None:
        name = setup.model.name
        raise OptionError(f"explore compares times to a target, and {name} has none; give target")
    values = values_of(over, setup, points)
    axes.require_open(schedules, [axes.Axis(key, of) for key, of in values.items()])
    with asked.runs() as runs:
        base, seed, known = asked.rows, asked.seed, asked.known
        rows = [rows_at(base, p, partial(label_at, p), seed, known) for p in points_of(values)]
        explorer = Explorer(rows, asked, runs)
        stopped = explorer.run(sure)
    evidence = Evidence(values, tuple(labels_of(setup.schedules)), explorer.methods, repeats)
    return exploration_of(
        evidence, target=target, metric=setup.model.measure, model=setup.model.name,
        cluster=setup.cluster.name, said=(NOT_TUNED, *explorer.said, *runs.said()), **stopped,
        failed=runs.failed,
        manifest=asked.manifest(over={key: list(one) for key, one in values.items()}, sure=sure),
    )  # fmt: skip


def values_of(over: axes.Over, setup: axes.Setup, points: int) -> dict[str, tuple[axes.Value, ...]]:
    """The values of each key; an OptionError where there are none, too many, or one method."""
    if not over or "schedule" in over:
        raise OptionError(
            f"over (--for) must name what varies, such as latency_s, and no schedule, got "
            f"{', '.join(over) or 'nothing'}; schedules are compared at each point"
        )
    if len(setup.schedules) < 2:
        raise OptionError("explore compares schedules, got one; name several")
    values = {axis.key: axis.points(points) for axis in axes.axes_over(over, setup)}
    if (count := math.prod(map(len, values.values()))) > POINTS_MAX:
        raise OptionError(f"over must be at most {POINTS_MAX} points, got {count}; leave some out")
    return values


def points_of(values: Mapping[str, Sequence[axes.Value]]) -> list[axes.Point]:
    """List all points, the last key's values side by side."""
    return [dict(zip(values, one, strict=True)) for one in itertools.product(*values.values())]


def label_at(point: axes.Point, label: str) -> str:
    """The label of a row at a point, which no other point's has."""
    shown = {key: f"{one:.4g}" if isinstance(one, float) else one for key, one in point.items()}
    return ", ".join([label, *(f"{key} = {one}" for key, one in shown.items())])


class Explorer:
    """Times all cells, then learns one after the other."""

    def __init__(self, rows: Sequence[Sequence[Row | str]], asked: Query, runs: PointRuns) -> None:
        """Know nothing yet, but which rows do not fit: of each point, one a method, or why not."""
        self._seeds, self._runs, self._cells = asked.seeds, runs, sum(map(len, rows))
        self.methods = tuple(
            Entrant(one.admission.drains, asked.seed, asked.max_epochs)
            for one in asked.setup.schedules
        )
        self._rows: dict[tuple[int, int], Row] = {}
        for point, of in enumerate(rows):
            for place, row in enumerate(of):
                if isinstance(row, Row):
                    self._rows[point, place] = row
                else:
                    self.methods[place].timed[point] = {asked.seed: FirstEpoch(failure=row)}
                    self.methods[place].unfit.add(point)

    @property
    def said(self) -> list[str]:
        """Notes on the cells' clusters, and on seeds, as far as several were timed anywhere."""
        each = [[o.epoch_s for o in of.values()] for m in self.methods for of in m.timed.values()]
        by = max((max(of) / min(of) - 1 for of in each if min(of) > 0), default=0.0)  # NaN is none
        apart, seed = self._runs.apart, self._seeds[0]
        told = [SEEDS_DIFFER.format(format_percent(by), seed)] * (by > NO_CHANGE)
        told += [FIRST_DIFFERS.format(format_percent(apart))] * (apart > 0)
        return [EPOCHS_VARY] * any(row.epochs_differ for row in self._rows.values()) + told

    @property
    def learnings(self) -> int:
        """Cells that were trained."""
        return sum(len(method.learned) for method in self.methods)

    def run(self, sure: float) -> dict[str, Any]:
        """Go on until all is sure; say why not, if something came first.

        Raises:
            SimulationError: no cell fits, none can be timed, or none can be trained.
        """
        if not self._rows:
            first = self.methods[0].failures[0]
            raise SimulationError(f"none of {self._cells} cells fits; the first: {first}")
        try:
            self._time([(point, place, self._seeds[0]) for point, place in self._rows])
            while not (known := Cells(self.methods)).is_sure(sure) and (chosen := known.next()):
                self._runs.require_time()
                self._learn(*chosen)
            if not self.learnings and any(method.lost for method in self.methods):
                raise SimulationError(self._runs.said()[0])
        except KeyboardInterrupt:
            timed = sum(len(method.timed) for method in self.methods)
            told = f"{timed} of {self._cells} cells are timed, none is trained" if timed else ""
            if timed == self._cells:
                told = f"{self.learnings} of {self._cells} cells are trained"
            return self._runs.stopped(told)
        return {}

    def _time(self, cells: Sequence[tuple[int, int, int]]) -> None:
        left = [
            (point, place, seed) for point, place, seed in cells
            if seed not in self.methods[place].timed.get(point, {})
        ]  # fmt: skip

        def take(index: int, found: FirstEpoch) -> None:
            point, place, seed = left[index]
            if self._rows[point, place].epochs_differ:
                found = replace(found, digest="", power_w=None)
            self.methods[place].timed.setdefault(point, {})[seed] = found

        self._runs.time([(self._rows[point, place], seed) for point, place, seed in left], take)
        if not any(method.points for method in self.methods):
            raise SimulationError(self.methods[0].failures[0])

    def _learn(self, place: int, point: int) -> None:
        """Train a cell with all seeds, and look which points learn the same with each of them."""
        row, method = self._rows[point, place], self.methods[place]
        made = self._runs.learn([(row, seed) for seed in self._seeds])
        runs = [one for one in made if isinstance(one, Run)]
        if not runs:
            method.lost |= {point, *method.alike(point)}
            return
        self._time([(one, place, seed) for one in method.alike(point) for seed in self._seeds])
        method.learned[point] = dict(times_of(row.plan.goal, runs))


@dataclass(frozen=True)
class Evidence:
    """The evidence of a map, from which all that it says follows."""

    over: dict[str, tuple[Any, ...]]  # the values of each key
    labels: tuple[str, ...]  # of the methods
    methods: tuple[Entrant, ...]  # points are places in the product of `over`
    repeats: int  # seeds of each cell that is trained

    def plain(self) -> dict[str, Any]:
        """Return a value as JSON can hold it."""
        digests: dict[str, int] = {}
        return {**vars(self), "methods": [one.plain(digests) for one in self.methods]}


def evidence_from_plain(plain: Mapping[str, Any]) -> Evidence:
    """Read what `Evidence.plain` gave; a ValueError where it is none."""
    return TypeAdapter(Evidence).validate_python(plain)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Exploration(Finding):
    """The result of `explore`: a map of who is first.

    Attributes:
        table: one row a point and method: the keys of `over`, schedule, time_to_target_s, low and
            high (its 90 % interval; of fewer than five seeds the least and most), basis ("learned",
            "shared", "predicted", "failed", "unfit" of what does not fit there, or missing), note
            (why "failed" or "unfit", or who never met in the first epoch), is_first (by medians),
            doubt (the probability that another is), standing (as of a forecast; missing of a
            prediction), epoch_s, train_per_s, staleness_mean, peak_bytes, cost_to_target_usd,
            energy_to_target_j, learning (a number, equal where the first epoch learns the same).
            Unknown is missing, never 0.
        over: the values of each key.
        target: what is aimed at, of the model's metric.
        learnings: cells that were trained.
        wrong: share of the points with a prediction of which the winner may turn out to be another
            one when it is trained.
        left_out: what came of predicting trained cells from the others.
        evidence: what was timed and learned, from which all of that follows.
    """

    kind: ClassVar[Kind] = "exploration"
    files: ClassVar = {"index.html": "page", "explore.csv": "table"}
    told = ("verdict", "learnings", "wrong", "left_out", "interrupted", "rows")

    over: dict[str, tuple[Any, ...]]
    target: float
    metric: Metric = ACCURACY
    learnings: int
    wrong: float
    left_out: LeftOut
    evidence: Evidence = field(repr=False)

    @property
    def by_point(self) -> list[tuple[dict[str, Any], ...]]:
        """Rows of each point, one a method."""
        return [*zip(*[iter(self.rows)] * len(self.evidence.labels), strict=True)]

    @property
    def ahead(self) -> list[tuple[dict[str, Any] | None, float]]:
        """For each point the row that is ahead, and its lead: the next one's time over its own.

        None where nobody is known to arrive, and infinite where no other does.
        """
        found: list[tuple[dict[str, Any] | None, float]] = []
        for of in self.by_point:
            times = [one["time_to_target_s"] for one in of]
            first, second = sorted(math.inf if one is None else one for one in times)[:2]
            best = next((one for one in of if one["is_first"]), None)
            found.append((best, second / first if first else math.inf))
        return found

    @property
    def cells(self) -> Lines:
        """For each method, the point at which it leads most, and what is called there."""
        most: dict[str, tuple[float, list[str]]] = {}
        for row, lead in self.ahead:
            name = plain(str(row["schedule"]), LONGEST) if row else ""
            if row and most.get(name, (0.0, []))[0] < lead < math.inf:
                at = axes.point_words({key: row[key] for key in self.over}, self.over)
                most[name] = (lead, [name, f"{lead:.2f} times", at, row["standing"] or "predicted"])
        headings = ["ahead", "sooner than the next", "where", "by the seeds"]
        return headings, [line for _lead, line in most.values()]

    def page(self, csv: str = "explore.csv") -> str:
        """The page of HTML: the map, and where each method leads most; `csv` has its table."""
        setting = f"{self.metric.target_text(self.target)} on {plain(self.cluster, LONGEST)}"
        covered = median_interval(range(self.evidence.repeats)).coverage
        told: dict[str, Any] = {"csv": csv, "setting": setting, "covered": covered}
        return self.html("explore.html", **told, data=self._data())

    def _data(self) -> dict[str, Any]:
        """Return what the page draws: axes, methods, and each point's cells in table order."""
        columns = (
            "time_to_target_s", "low", "high", "basis", "doubt", "is_first", "standing", "note",
            "learning",
        )  # fmt: skip
        return {
            "keys": [
                {"name": key, "values": [*of],
                 "ticks": [axes.value_words(key, one, of) for one in of],
                 "words": [axes.named_words(key, one, of) for one in of]}
                for key, of in self.over.items()
            ],
            "methods": [
                {"name": plain(one, LONGEST), "colour": page_colours(style.colour)}
                for one, style in line_styles(self.evidence.labels).items()
            ],
            "points": [[[one[name] for name in columns] for one in of] for of in self.by_point],
        }  # fmt: skip


def exploration_of(
    evidence: Evidence, *, said: Sequence[str], cluster: str, **about: Any
) -> Exploration:
    """The map that follows from what was timed and learned, with sentences that are said besides.

    `cluster` is the name of that of which nothing varies; `about` are other fields.
    """
    over, cells = evidence.over, Cells(evidence.methods)
    table = pd.DataFrame(
        {**point, "schedule": label, **_line(cells, number, place, evidence.repeats)}
        for number, point in enumerate(points_of(over))
        for place, label in enumerate(evidence.labels)
    )
    number = pd.Series(pd.factorize(table["learning"])[0] + 1)
    table = table_of(table.assign(learning=number.where(number > 0)))
    learnings = sum(len(method.learned) for method in evidence.methods)
    left_out = cells.left_out()
    wrong = stated_wrong(cells, left_out)
    told = sentences_of(table, learnings, wrong, left_out, evidence.repeats)
    return Exploration(
        title=f"Map: {about['model']} over {', '.join(over)}", table=table, over=over, wrong=wrong,
        learnings=learnings, left_out=left_out, sentences=(*told, *said), evidence=evidence,
        cluster=axes.place_words(cluster, over), **about,
    )  # fmt: skip


def _line(cells: Cells, point: int, place: int, seeds: int) -> dict[str, Any]:
    """Return a cell's columns beside its keys; unknown is None."""
    method, called = cells.methods[place], cells.calls.get(point)
    timed = method.timed.get(point, {}).get(method.first_seed) or FirstEpoch()
    is_known = called is not None and (method.learned or timed.failure)
    found = cells.estimates[point][place] if is_known else None
    best = None if called is None else called.best
    time_s = None if found is None else found.time_s
    low, high = (None, None) if found is None else found.interval_s
    return {
        "time_to_target_s": time_s, "low": low, "high": high,
        "basis": None if found is None else found.basis,
        "is_first": None if best is None else best == place,
        "doubt": None if best is None or called is None else round(called.doubt(seeds), 12),
        "standing": None if called is None else called.standing(place),
        "epoch_s": timed.epoch_s, "train_per_s": timed.train_per_s,
        "staleness_mean": timed.staleness_mean, "peak_bytes": timed.peak_bytes,
        **timed.upkeep(time_s), "learning": timed.digest or None,
        "note": timed.failure or (timed.never_met and f"{_FIRST}: {timed.never_met}"),
    }  # fmt: skip


OPEN: Final = {
    "tie": "Methods tie within 5 % at {count}",
    "too few seeds": "With {seeds} it is open who is first at {count}",
    "predicted": "It is predicted who is ahead at {count}",
}
"""Why nobody is first for sure, by the standing of who is ahead."""
_NOBODY: Final = "No method is known to reach the target"
_FIRST: Final = "first epoch"  # how a note begins that is no failure
_ILLS = {"unfit": "do not fit", "failed": "cannot be run", _FIRST: "have ranks that never met"}


def sentences_of(
    table: pd.DataFrame, learnings: int, wrong: float, left: LeftOut, seeds: int
) -> tuple[str, ...]:
    """Say who is first where, on what that rests, and how sure it is."""
    points = len(table) // max(table["schedule"].nunique(), 1)
    ills, names = list[str](), list(table)
    bases = table["basis"].mask(table["note"].fillna("").str.startswith(_FIRST), _FIRST)
    for basis, words in _ILLS.items():
        own = table[bases == basis]
        for one in own[:1].to_dict("records"):
            point = {str(name): one[name] for name in names[: names.index("schedule")]}
            first = f"{label_at(point, one['schedule'])}: {one['note'].rstrip('.')}"
            ills.append(f"{len(own)} of {len(table)} cells {words}; the first, {first}.")
    ahead = table[table["is_first"].fillna(False).astype(bool)]
    if not len(ahead):
        names = ", ".join(table[table["basis"].isna()]["schedule"].unique())
        why = f"It is open who is first: of {names} no time is known" if names else _NOBODY
        return (f"{why} at any of {points} points.", *ills)
    standing = ahead["standing"].fillna("predicted")
    first = ahead[standing == "first"]["schedule"].value_counts()
    told = [f"{plain(name, LONGEST)} is first at {count}" for name, count in first.items()]
    said = [f"Of {points} points, {', '.join(told) or 'nobody is first for sure at any'}."]
    for what, why in OPEN.items():
        own = ahead[standing == what]["schedule"].value_counts()
        names = ", ".join(f"{plain(name, LONGEST)} at {count}" for name, count in own.items())
        where = why.format(count=own.sum(), seeds=f"{seeds} seed{'s' * (seeds != 1)}")
        said += [f"{where}; ahead in the median: {names}."] if names else []
    said += [f"{_NOBODY} at {nobody}."] if (nobody := points - len(ahead)) else []
    basis = table["basis"].value_counts()
    shared, predicted = (int(basis.get(of, 0)) for of in ("shared", "predicted"))
    known = f"{learnings} were trained, {shared} learn the same as one of these"
    said += [f"Of {len(table)} cells {known}, and {predicted} are predicted."]
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
    return (*said, *ills)
