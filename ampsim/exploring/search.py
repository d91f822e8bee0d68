"""Search: which points of a space no other one beats, in time, money, energy or memory."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

from annotated_types import Ge, Le

from ampsim.arguments import checked
from ampsim.errors import OptionError
from ampsim.exploring.axes import Axis, Point, Setup, Value, axes_over, place_words, setup_at
from ampsim.exploring.condition import Condition, condition_of
from ampsim.exploring.making import Asked, PointRuns, RunLimit, point_runs
from ampsim.exploring.pareto import hypervolume, pareto, reference_of
from ampsim.exploring.sampling import JOURNAL, Proposals, SamplerName, Space
from ampsim.exploring.searched import Searched, front_of, sentences_of, table_of_trials
from ampsim.exploring.trials import Aim, Evaluator, objectives_of
from ampsim.forecasting.forecast import MAX_EPOCHS
from ampsim.forecasting.making import times_validation
from ampsim.options import REPEATS_MAX, Count, Seed
from ampsim.runs.jobs import ExecutorLike
from ampsim.runs.store import Keeping
from ampsim.runs.task import Row
from ampsim.study.progress import OnProgress
from ampsim.study.provenance import code_digest
from ampsim.study.simulation import (
    ClusterLike,
    ModelLike,
    PlacementLike,
    SchedulesLike,
    cluster_of,
    model_of,
    schedules_of,
)

TRIALS: Final = 100
"""Points tried unless told otherwise (chosen: ten times what starts at random)."""

REPEATS: Final = 3
"""Seeds of each point (chosen: two of them decide a median)."""

IN_FLIGHT: Final = 8
"""Points under way at a time (chosen: not the cores, so that every machine finds the same)."""


@checked
def search(
    model: ModelLike,
    cluster: ClusterLike,
    schedules: SchedulesLike,
    *,
    over: Mapping[str, str | Sequence[Value] | Axis],
    minimise: str | Sequence[str] = "time_s",
    subject_to: str | Sequence[str] = (),
    trials: Annotated[int, Ge(1), Le(REPEATS_MAX)] = TRIALS,
    budget_s: float | None = None,
    repeats: Annotated[int, Ge(1), Le(REPEATS_MAX)] = REPEATS,
    in_flight: Annotated[int, Ge(1), Le(REPEATS_MAX)] = IN_FLIGHT,
    sampler: SamplerName = "tpe",
    prunes: bool = True,
    against_random: bool = False,
    target: float | None = None,
    max_epochs: Count = MAX_EPOCHS,
    instances: Count | None = None,
    seed: Seed = 0,
    placement: PlacementLike | None = None,
    jobs: Annotated[int, Ge(1), Le(REPEATS_MAX)] = 1,
    on_progress: OnProgress | None = None,
    keeping: Keeping | None = None,
    executor: ExecutorLike = None,
    run_limit_s: RunLimit = None,
) -> Searched:
    """Search a space for the points that no other one beats in all that is minimised.

    Points are proposed by Optuna, and told back in the order in which they were asked for, so that
    the same call finds the same. A point is left as soon as it is dominated for sure. Ctrl-C and
    the end of the budget keep what has finished; with `keeping`, the same call goes on.

    Args:
        model: as of `forecast`.
        cluster: likewise, but for what `over` changes.
        schedules: those tried, each a value of the axis "schedule" unless `over` names it.
        over: values of each key, as of `explore`; a range is searched as a whole.
        minimise: columns: time_s, epochs, dollars, joules (to the target), peak_bytes, epoch_s.
        subject_to: conditions such as "peak_bytes <= 16e9" on columns, as of `solve`.
        trials: points to try.
        budget_s: seconds after which it ends; None for none.
        repeats: seeds of each point, `seed`, `seed` + 1, …; values are medians over them.
        in_flight: points that are asked for before any of them is told.
        sampler: "tpe", or "random".
        prunes: whether a point is left as soon as it is dominated; the front stays the same.
        against_random: also try as many points at random, and say how both compare.
        seed: of the first repeat, and of what is proposed.
        placement: as of `forecast`, found anew at each point.
        keeping: where finished runs, and the journal of trials, are kept, and taken from.
        target: as of `forecast`.
        max_epochs: as of `forecast`.
        instances: as of `forecast`.
        jobs: as of `forecast`.
        on_progress: as of `forecast`.
        executor: as of `forecast`.
        run_limit_s: as of `forecast`.

    Raises:
        OptionError: an option has a value that it cannot have, or Optuna is not installed.
        UnknownNameError: a value names nothing that there is.
    """
    setup = Setup(model_of(model), cluster_of(cluster), tuple(schedules_of(schedules)))
    target = setup.model.measure.require_target(target)
    asked = Asked(
        target=target, max_epochs=max_epochs, repeats=repeats, instances=instances, seed=seed,
        placement=placement,
    )  # fmt: skip
    conditions = tuple(map(_condition, _words(subject_to)))
    aim = Aim(objectives_of(_words(minimise)), conditions, asked.seeds, prunes)
    if aim.learns and target is None and setup.model.target is None:
        raise OptionError(
            f"{setup.model.name} has no target, and what is minimised needs one; give target"
        )
    searcher = _Searcher(setup, over, asked, aim)
    journal = None if keeping is None else keeping.runs / JOURNAL
    interrupted: str | None = None
    of_each: dict[SamplerName, Proposals] = {}
    samplers: tuple[SamplerName, ...] = (sampler, "random") if against_random else (sampler,)
    with point_runs(
        asked, jobs=jobs, executor=executor, on_progress=on_progress, keeping=keeping,
        run_limit_s=run_limit_s, budget_s=budget_s,
    ) as runs:  # fmt: skip
        for name in dict.fromkeys(samplers):
            of_each[name] = Proposals(
                searcher.name(sampler=name, in_flight=in_flight), searcher.space,
                objectives=len(aim.objectives), journal=journal, sampler=name, seed=seed,
            )  # fmt: skip
            if name != "random":
                of_each[name].start_from_others(trials // 2)
            if interrupted is None:
                interrupted = searcher.run(of_each[name], runs, trials, in_flight)
    is_stopped = interrupted is not None and not runs.clock.is_over
    found = searcher.found(of_each, sampler)
    said = (*found.sentences, *runs.said())
    return replace(found, sentences=said, interrupted=interrupted, is_stopped=is_stopped)


def _words(given: str | Sequence[str]) -> list[str]:
    return given.split(",") if isinstance(given, str) else list(given)


def _condition(text: str) -> Condition:
    """A condition on columns of the point itself.

    Raises:
        OptionError: it is none.
    """
    try:
        found = condition_of(text)
    except OptionError as error:
        raise OptionError(str(error).replace("until", "subject_to", 1)) from None
    for column, schedule in found.values:
        if schedule:
            raise OptionError(
                f"subject_to is asked of each point, got {column}({schedule}); "
                f"leave ({schedule}) out"
            )
    return found


class _Searcher:
    """Asks, evaluates and tells, batch by batch."""

    def __init__(
        self,
        setup: Setup,
        over: Mapping[str, str | Sequence[Value] | Axis],
        asked: Asked,
        aim: Aim,
    ) -> None:
        self._setup, self._asked, self._aim = setup, asked, aim
        axes = list(axes_over(over, setup))
        if len(setup.schedules) > 1 and "schedule" not in over:
            named = [one.name for one in setup.schedules]
            if len(set(named)) < len(named):
                raise OptionError(
                    f"schedules must differ in their names, got {', '.join(named)}; let an option "
                    "vary, such as max_active_keys"
                )
            axes.append(Axis("schedule", tuple(named)))
        if not axes:
            raise OptionError("over must name what varies, such as latency_s, got nothing")
        self.space, self._keys = Space(axes, setup), tuple(axis.key for axis in axes)
        self._beside = [
            schedule
            for axis in axes
            for name in (axis.values if axis.key == "schedule" else ())
            for schedule in setup_at(setup, {"schedule": name}).schedules
        ]

    @property
    def _origin(self) -> dict[str, Any]:
        """What is searched, as plain values."""
        return {
            **self._asked.origin(self._setup),
            "over": {
                axis.key: list(axis.values) or [axis.low, axis.high, axis.is_log]
                for axis in self.space.axes
            },
            "minimise": self._aim.objectives,
            "subject_to": [one.text for one in self._aim.conditions],
            "prunes": self._aim.prunes,
        }

    def name(self, **how: Any) -> str:
        """A name that no other search has."""
        text = json.dumps(
            {**self._origin, **how, "code": code_digest()}, sort_keys=True, default=str
        )
        return f"ampsim {hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def run(self, trials: Proposals, runs: PointRuns, count: int, in_flight: int) -> str | None:
        """Go on until so many points are tried; say why not, if something came first."""
        evaluator = Evaluator(self._aim, runs)
        try:
            while len(trials.known) < count:
                runs.clock.require_left()
                points, before = trials.batch(in_flight, count)
                known = {_text(point): one for point, one in before}
                front = [one.values for one in known.values() if one.outcome == "complete"]
                texts = {number: _text(point) for number, point in points.items()}
                new = {texts[number]: point for number, point in points.items()}
                rows = [self._row(point) for text, point in new.items() if text not in known]
                made = evaluator.evaluate(rows, front)
                known |= {row.label: one for row, one in zip(rows, made, strict=True)}
                for number, point in points.items():
                    trials.tell(number, point, known[texts[number]])
        except KeyboardInterrupt:
            return runs.clock.sentence(f"{len(trials.known)} of {count} points are tried")
        return None

    def _row(self, point: Point) -> Row:
        """The row of a point, which is compared with those of all schedules."""
        at = setup_at(self._setup, point)
        (row,) = self._asked.rows(at._replace(schedules=at.schedules[:1]), are_many=True)
        plan = times_validation(row.plan, row.schedule, self._beside)
        return replace(row, plan=plan, label=_text(point))

    def found(self, of_each: Mapping[SamplerName, Proposals], sampler: SamplerName) -> Searched:
        """What came of it."""
        complete = {
            name: [one.values for _point, one in of.known.values() if one.outcome == "complete"]
            for name, of in of_each.items()
        }
        every = list(itertools.chain.from_iterable(complete.values()))
        reference = reference_of(every) if every else ()
        volumes = {name: hypervolume(of, reference) for name, of in complete.items() if reference}
        mine = sorted(of_each[sampler].known.items())
        first = {number: one for number, (_point, one) in mine if one.outcome == "complete"}
        places = pareto([one.values for one in first.values()])
        keys, objectives = self._keys, self._aim.objectives
        table = table_of_trials(mine, keys, objectives, {[*first][place] for place in places})
        own, varies = volumes.get(sampler, 0.0), {one.key: one.values for one in self.space.axes}
        chance = volumes.get("random", 0.0) if "random" in of_each else None
        on_front = len(front_of(table, keys, objectives))
        return Searched(
            table=table, objectives=objectives, keys=keys, sampler=sampler,
            model=self._setup.model.name, cluster=place_words(self._setup.cluster.name, varies),
            sentences=sentences_of(table, on_front, objectives, (own, chance)),
            hypervolume=own, hypervolume_random=chance, reference=reference,
            manifest={**self._asked.manifest(self._setup), **self._origin, "sampler": sampler},
        )  # fmt: skip


def _text(point: Point) -> str:
    """A point in words that no other one has."""
    return ", ".join(f"{key} = {value!r}" for key, value in sorted(point.items()))
