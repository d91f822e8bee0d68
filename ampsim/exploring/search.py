"""Search: which points of a space no other one beats, in time, money, energy or memory.

Points are proposed (`ampsim.exploring.sampling`), evaluated as far as they may be on the front
(`ampsim.exploring.trials`), and told back, batch by batch.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Unpack

import pandas as pd

from ampsim.errors import OptionError, SimulationError
from ampsim.exploring import axes
from ampsim.exploring.condition import Condition, condition_of
from ampsim.exploring.finding import LONGEST, Finding, Lines
from ampsim.exploring.making import How, Many, PointRuns, Query, question, rows_at
from ampsim.exploring.sampling import JOURNAL, Proposals, SamplerName, Space
from ampsim.exploring.trials import SPENT, Aim, Evaluator, PointOutcome, objectives_of, reference_of
from ampsim.output_folder import Kind
from ampsim.report.table import cell_text
from ampsim.report.words import plain
from ampsim.runs.rows import table_of
from ampsim.runs.task import Row
from ampsim.study.provenance import about, data_files
from ampsim.study.simulation import ClusterLike, ModelLike, SchedulesLike
from ampsim.units import format_percent, unit_of
from ampsim.user_code import digest_of_value

TRIALS: Final = 100  # points tried, unless told otherwise (chosen: ten times what is at random)
REPEATS: Final = 3  # seeds of each point (chosen: two of them decide a median)
CHOSEN: Final = "The best were chosen by these very seeds: with others they take more, as a rule."
IN_FLIGHT: Final = 8  # points under way (chosen: not the cores: every machine finds the same)


@question
def search(
    model: ModelLike,
    cluster: ClusterLike,
    schedules: SchedulesLike,
    *,
    over: axes.Over,
    minimise: str | Sequence[str] = "time_s",
    subject_to: str | Sequence[str] = (),
    trials: Many = TRIALS,
    budget_s: float | None = None,
    repeats: Many = REPEATS,
    in_flight: Many = IN_FLIGHT,
    sampler: SamplerName = "tpe",
    prunes: bool = True,
    against_random: bool = False,
    **how: Unpack[How],
) -> Searched:
    """Search a space for the points that no other one beats in all that is minimised.

    Points are proposed by Optuna, and told back in the order in which they were asked for, so that
    the same call finds the same. A point is left as soon as what it spent is dominated. Ctrl-C and
    the end of the budget keep what has finished; with `keeping`, the same call goes on.

    Args:
        model: as of `forecast`.
        cluster: likewise, but for what `over` changes.
        schedules: those tried, each a value of the axis "schedule" unless `over` names it.
        over: values of each key, as of `explore`; a range is searched as a whole.
        minimise: columns: time_s, epochs, dollars, joules (to the target), peak_bytes, epoch_s.
        subject_to: conditions such as "peak_bytes <= 16e9" on columns, as of `solve`.
        trials: points to try; of a space with no more points, all of which are listed, each once.
        budget_s: seconds after which it ends; None for none.
        repeats: seeds of each point; values are medians, of peak_bytes the most, epoch_s the first.
        in_flight: points that are asked for before any of them is told.
        sampler: "tpe", or "random".
        prunes: whether a point is left as soon as it is dominated (`ampsim.exploring.trials`).
        against_random: also try as many points at random, and say how both compare.
        how: as of `forecast`; `seed` is also that of what is proposed, a `placement` is found anew
            at each point, and `keeping` keeps the journal of trials, too.

    Raises:
        OptionError: an option has a value that it cannot have, or Optuna is not installed.
        UnknownNameError: a value names nothing that there is.
        SimulationError: no point can be run.
    """
    setup = axes.setup_of(model, cluster, schedules)
    if sampler == "random" and against_random:
        raise OptionError("against_random has no effect beside sampler='random'; leave it out")
    asked = Query(setup=setup, repeats=repeats, budget_s=budget_s, **how)
    varied = axes.axes_over(over, setup)
    axes.require_open(schedules, varied)
    aim = Aim(*aims_of(minimise, subject_to), asked.seeds, prunes)
    if aim.learns and asked.aimed_at is None:
        told = f"{setup.model.name} has no target, and what is minimised needs one"
        raise OptionError(f"{told}; give target")
    searcher, stopped, given = _Searcher(varied, asked, aim), dict[str, Any](), 0
    count, of_each = trials, dict[str, Proposals]()
    with searcher.asked.runs() as runs:
        try:
            for name in dict.fromkeys((sampler, "random") if against_random else (sampler,)):
                proposals = of_each[name] = searcher.proposals(name, in_flight)
                if name != "random":
                    given = proposals.start_from_others(trials // 2)
                count = proposals.end(max(trials, *(len(one.known) for one in of_each.values())))
                searcher.run(proposals, runs, count, in_flight)
        except KeyboardInterrupt:
            tried = [len(one.known) for one in of_each.values()]
            far = f"{tried[-1]} of {count} points are tried"
            stopped = runs.stopped(far if any(tried) else "")
    told = [one for proposals in of_each.values() for _point, one in proposals.known.values()]
    if not stopped and all(one.outcome == "failed" for one in told):
        raise SimulationError(f"none of {len(told)} points can be run; the first: {told[0].note}")
    found = searcher.found(of_each, sampler, told)
    ahead = f"The first {given} of these points are of another search, none of those at random."
    missed = runs.said(has_arrived=aim.has_target and len(found.front) > 0)
    said = (*sentences_of(found), *[ahead] * (against_random and given > 0), *missed)
    return replace(found, sentences=said, failed=runs.failed, **stopped)


def aims_of(*given: str | Sequence[str]) -> tuple[tuple[str, ...], tuple[Condition, ...]]:
    """The columns of `minimise`, and the conditions of `subject_to`; an OptionError of others."""
    names, texts = (one.split(",") if isinstance(one, str) else [*one] for one in given)
    try:
        conditions = tuple(map(condition_of, texts))
    except OptionError as error:
        raise OptionError(str(error).replace("until", "subject_to", 1)) from None
    for column, schedule in (value for one in conditions for value in one.values):
        if schedule:
            told = f"{column}({schedule}); leave ({schedule}) out"
            raise OptionError(f"subject_to is asked of each point, got {told}")
    return objectives_of(names), conditions


class _Searcher:
    """Asks, evaluates and tells, batch by batch."""

    def __init__(self, over: Sequence[axes.Axis], asked: Query, aim: Aim) -> None:
        self._aim, setup, varied = aim, asked.setup, list(over)
        named = [one.name for one in setup.schedules]
        if len(named) > 1 and all(axis.key != "schedule" for axis in over):
            if len(set(named)) < len(named):
                raise OptionError(
                    f"schedules must differ in their names, got {', '.join(named)}; let an option "
                    "vary, such as max_active_keys"
                )
            varied.append(axes.Axis("schedule", tuple(named)))
        if not varied:
            raise OptionError("over must name what varies, such as latency_s, got nothing")
        self._keys = tuple(axis.key for axis in varied)
        self._space = Space(sorted(varied, key=lambda axis: axis.key != "schedule"), setup)
        names = [str(name) for axis in varied if axis.key == "schedule" for name in axis.values]
        axes.require_open([one for one in names if one not in named], varied)
        first = [axes.setup_at(setup, {"schedule": name}).schedules[0] for name in names]
        of_names = replace(asked, setup=setup._replace(schedules=tuple(first)))
        self._rows: dict[Any, Row] = dict(zip(names, of_names.rows, strict=True))
        self.asked = replace(asked, beside=tuple(first))
        values = ((axis.key, one) for axis in self._space.axes for one in axis.values)
        self.asked.known.update(axes.digests_of(values))
        self._files = [*self.asked.known.values()]
        self._origin: dict[str, Any] = {
            **asked.origin,
            "over": {axis.key: list(axis.values) or [axis.low, axis.high, axis.is_log]
                     for axis in self._space.axes},
            "minimise": aim.objectives, "subject_to": [one.text for one in aim.conditions],
            "prunes": aim.prunes,
        }  # fmt: skip

    def proposals(self, sampler: str, in_flight: int) -> Proposals:
        """Open a sampler's proposals; another search has another name, so that it has others."""
        told = {**self._origin, "sampler": sampler, "in_flight": in_flight, "about": about()}
        (model, _cluster, schedules), varied = self.asked.setup, self._space.axes
        told["own"] = digest_of_value(model.config, self.asked.placement, *schedules)
        told["files"] = self._files
        told["data"] = [data_files(one) for one in axes.models_at(varied, self.asked.setup)]
        text, keeping = json.dumps(told, sort_keys=True, default=str), self.asked.keeping
        return Proposals(
            f"ampsim {hashlib.sha256(text.encode()).hexdigest()[:16]}", self._space,
            objectives=self._aim.objectives, sampler=sampler, seed=self.asked.seed,
            journal=None if keeping is None else keeping.runs / JOURNAL,
        )  # fmt: skip

    def run(self, trials: Proposals, runs: PointRuns, count: int, in_flight: int) -> None:
        """Go on until so many points are tried; a KeyboardInterrupt says that there is no time."""
        evaluator = Evaluator(self._aim, runs)
        while len(trials.known) < count:
            runs.require_time()
            points, before = trials.batch(in_flight, count)
            known = {_text(point): one for point, one in before}
            front = [one.values for one in known.values() if one.outcome == "complete"]
            new = {_text(point): point for point in points.values()}
            rows = {t: self._row(point) for t, point in new.items() if t not in known}
            known |= zip(rows, evaluator.evaluate([*rows.values()], front), strict=True)
            for number, point in points.items():
                trials.tell(number, known[_text(point)])

    def _row(self, point: axes.Point) -> Row | str:
        """The row of a point, or why there is none; of several schedules of a name, the first's."""
        asked, rest = self.asked, dict(point)
        row = self._rows[rest.pop("schedule")] if self._rows else asked.rows[0]
        return rows_at([row], rest, lambda _label: _text(point), asked.seed, asked.known)[0]

    def found(
        self, of_each: Mapping[str, Proposals], sampler: str, told: Sequence[PointOutcome]
    ) -> Searched:
        """Assemble the result, without sentences, of the trials told so far."""
        reference = reference_of([one.values for one in told if one.outcome == "complete"])
        volumes = {name: proposals.volumes(reference) for name, proposals in of_each.items()}
        count, chance = len(volumes[sampler]), volumes.get("random", ())
        is_compared = sampler != "random" and 0 < count <= len(chance)
        objectives, front = self._aim.objectives, of_each[sampler].front
        names = ("outcome", *objectives, "violation", "seeds", "is_pareto", "note")
        unknown = (math.nan,) * len(objectives)
        lines = [
            (number, *map(point.get, self._keys), one.outcome, *(one.values or unknown),
             one.violation, one.seeds, number in front, one.note)
            for number, (point, one) in of_each[sampler].known.items()
        ]  # fmt: skip
        table = pd.DataFrame(lines, columns=["trial", *self._keys, *names])
        varies = {axis.key: axis.values for axis in self._space.axes}
        model, cluster, _schedules = self.asked.setup
        place = axes.place_words(cluster.name, varies)
        return Searched(
            title=f"Search: {model.name} on {place}", cluster=place, volumes=volumes,
            table=table_of(table.replace(math.inf, math.nan)), objectives=objectives,
            keys=self._keys, sampler=sampler, sentences=(), model=model.name,
            hypervolume=next(reversed(volumes[sampler]), 0.0), reference=reference,
            hypervolume_random=chance[count - 1] if is_compared else None,
            importances=of_each[sampler].importances,
            manifest=self.asked.manifest(**self._origin, sampler=sampler),
        )  # fmt: skip


def _text(point: axes.Point) -> str:
    """A point in words that no other one has."""
    return ", ".join(f"{key} = {value!r}" for key, value in sorted(point.items()))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Searched(Finding):
    """The result of `search`: a front of points that no other beats in all objectives.

    Attributes:
        table: one row a trial: trial, the keys that vary, outcome ("complete", "pruned",
            "infeasible", "not reached" or "failed"), the objectives (of a trial that is not
            complete, what it takes at least), violation (how far conditions are from holding),
            seeds (whose runs went on to their end), is_pareto, note. Unknown is missing.
        objectives: the columns that were minimised.
        keys: what varied.
        sampler: what proposed the points.
        hypervolume: what the front dominates, up to `reference`.
        hypervolume_random: the same of as many points at random; None where fewer were tried.
        reference: of each objective, the largest value of all complete trials and a tenth of the
            range of its values, or of itself where all are one.
        volumes: of each sampler the hypervolume of its first trial, its first two, and so on.
        importances: of each key the share that it has in telling the best tenth of the complete
            trials from all of them (PED-ANOVA), largest first; empty of fewer than 30.
    """

    kind: ClassVar[Kind] = "search"
    files: ClassVar = {"index.html": "page", "search.csv": "table"}
    told = (
        "verdict", "objectives", "hypervolume", "hypervolume_random", "importances", "interrupted",
        "rows",
    )  # fmt: skip

    objectives: tuple[str, ...]
    keys: tuple[str, ...]
    sampler: str
    hypervolume: float
    hypervolume_random: float | None
    reference: tuple[float, ...]
    volumes: Mapping[str, Sequence[float]]
    importances: Mapping[str, float]

    @property
    def front(self) -> pd.DataFrame:
        """The trials that no other one dominates, best first in the first objective."""
        front = self.table[self.table["is_pareto"].astype(bool)]
        front = front.drop_duplicates([*self.keys, *self.objectives])
        return front.sort_values([*self.objectives], kind="stable").reset_index(drop=True)

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
                "isPareto": bool(row["is_pareto"]), "isPruned": row["outcome"] == "pruned",
                "trial": int(row["trial"]),
            }
            for row in known.to_dict("records")
        ]  # fmt: skip
        data = {"objectives": list(self.objectives), "trials": trials, "volumes": self.volumes}
        told = [[key, format_percent(share)] for key, share in self.importances.items()]
        return self.html("search.html", data=data, importances=told)


def sentences_of(found: Searched) -> tuple[str, ...]:
    """Say how many points were tried and are on the front, and how far it is ahead of chance."""
    table, front, of = found.table, len(found.front), " and ".join(found.objectives)
    points = len(table.drop_duplicates([*found.keys]))  # of which some may be tried again
    told = ", ".join(f"{count} {name}" for name, count in table["outcome"].value_counts().items())
    are = "is" if front == 1 else "are"
    said = [f"{front} of {points} points tried {are} beaten by none in {of}."]
    if not front and points:
        why = "reaches the target" if set(table["outcome"]) == {"not reached"} else "is complete"
        said = [f"None of {points} points tried {why}, so that {of} cannot be compared."]
    said += [CHOSEN] * (0 < front < points and not SPENT.keys().isdisjoint(found.objectives))
    said += [f"Of all trials: {told}."] if told else []
    said += [f"Where one failed: {one}." for one in table[table["outcome"] == "failed"]["note"][:1]]
    own, chance = found.hypervolume, found.hypervolume_random
    if chance is not None:
        volume = f"The front dominates a volume of {own:.4g}, as many points at random {chance:.4g}"
        said.append(f"{volume}, {own / chance:.3g} times as much." if chance else f"{volume}.")
    return tuple(said)


def _cell(name: str, value: Any) -> str:
    if isinstance(value, str):
        return plain(value, LONGEST)
    if value is None or value != value:  # NaN
        return "–"
    return axes.value_words(name, value) if unit_of(name) else cell_text(name, {name: value})
