"""Search: which points of a space no other one beats, in time, money, energy or memory."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

from annotated_types import Ge, Le

from ampsim.arguments import checked
from ampsim.errors import OptionError
from ampsim.exploring.axes import Axis, Setup, Value, axes_over, setup_at
from ampsim.exploring.clock import TimeBudget
from ampsim.exploring.condition import Condition, condition_of
from ampsim.exploring.pareto import hypervolume, pareto, reference_of
from ampsim.exploring.sampling import JOURNAL, Proposals, SamplerName, Space
from ampsim.exploring.searched import Searched, table_of_trials
from ampsim.exploring.timing import Timer
from ampsim.exploring.trials import Aim, Evaluator, PointOutcome, objectives_of
from ampsim.forecasting.forecast import MAX_EPOCHS
from ampsim.forecasting.making import RunMaker, entries_of
from ampsim.options import REPEATS_MAX, Count, Seed
from ampsim.runs.jobs import opened
from ampsim.runs.store import Keeping
from ampsim.runs.task import Row, RunPlan
from ampsim.study.progress import OnProgress
from ampsim.study.provenance import code_digest, model_origin, schedule_origin, software
from ampsim.study.schedule_names import labels_of
from ampsim.study.simulation import (
    ClusterLike,
    ModelLike,
    RunOptions,
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

Told = dict[int, tuple[dict[str, Value], PointOutcome]]


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
    jobs: Annotated[int, Ge(1), Le(REPEATS_MAX)] = 1,
    on_progress: OnProgress | None = None,
    keeping: Keeping | None = None,
) -> Searched:
    """Search a space for the points that no other one beats in all that is minimised.

    Points are proposed by Optuna, and told back in the order in which they were asked for, so that
    the same call finds the same. A point is left as soon as it is dominated for sure. Ctrl-C and
    the end of the budget keep what has finished; with `keeping`, the same call goes on.

    Args:
        model: what to train: from `load_model`, or its name or path.
        cluster: on what, but for what `over` changes: from `load_cluster`, or its name or path.
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
        target: as in `forecast`.
        max_epochs: end a run that has not reached the target by then.
        instances: training items to use; None for all.
        seed: of the first repeat, and of what is proposed.
        jobs: runs to make at a time, each on a core of its own.
        on_progress: told as by `forecast`.
        keeping: where finished runs, and the journal of trials, are kept, and taken from.

    Raises:
        OptionError: an option has a value that it cannot have, or Optuna is not installed.
        UnknownNameError: a value names nothing that there is.
        SimulationError: a point cannot be timed.
    """
    model, cluster = model_of(model), cluster_of(cluster)
    setup = Setup(model, cluster, tuple(schedules_of(schedules)))
    target = model.measure.require_target(target)
    options = RunOptions(
        epochs=max_epochs, instances=instances, target=model.target if target is None else target
    )
    conditions = tuple(map(_condition, _words(subject_to)))
    aim = Aim(objectives_of(_words(minimise)), conditions, range(seed, seed + repeats), prunes)
    if aim.learns and options.target is None:
        raise OptionError(
            f"{model.name} has no target, and what is minimised needs one; give target"
        )
    clock = TimeBudget(budget_s, on_progress)
    with opened(jobs, jobs) as executor:
        maker = RunMaker(executor, clock.tell, keeping)
        timer = Timer(maker, None if keeping is None else keeping.store.folder)
        searcher = _Searcher(setup, over, options, Evaluator(aim, maker, timer), aim)
        journal = None if keeping is None else keeping.store.folder / JOURNAL
        interrupted: str | None = None
        found: dict[SamplerName, Told] = {}
        samplers: list[SamplerName] = [sampler]
        if against_random and sampler != "random":
            samplers.append("random")
        for name in samplers:
            of = searcher.trials(name, seed, in_flight, journal)
            if name != "random":
                of.trials.start_from_others(trials // 2)
            interrupted = (
                searcher.run(of, clock, trials, in_flight) if interrupted is None else None
            )
            found[name] = of.known
    return searcher.found(found, sampler, interrupted, clock)


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


class _Batches:
    """The trials of one sampler, as far as they were told."""

    def __init__(self, trials: Proposals, sampler: SamplerName, seed: int) -> None:
        self.trials, self._seed = trials, seed
        self._sampler: SamplerName = sampler
        self.known: Told = {}
        self._open: dict[int, dict[str, Value]] = {}
        for number, point, told in trials.all():
            if told is None:
                self._open[number] = point
            else:
                self.known[number] = (point, told)

    def batch(self, size: int, most: int) -> dict[int, dict[str, Value]]:
        """The points of the batch that is not all told yet, by number; fewer at the end."""
        first = min(self._open, default=len(self.known)) // size * size
        found: dict[int, dict[str, Value]] = {}
        for number in range(first, min(first + size, most)):
            if number in self._open:
                found[number] = self._open[number]
            elif number not in self.known:
                found[number] = self.trials.ask(number, self._sampler, self._seed)
        self._open = {}
        return found

    def before(self, number: int) -> list[tuple[dict[str, Value], PointOutcome]]:
        """Points and what came of them, of all trials with lower numbers."""
        return [one for known, one in sorted(self.known.items()) if known < number]

    def tell(self, number: int, point: dict[str, Value], trial: PointOutcome) -> None:
        """Say what came of a trial."""
        self.trials.tell(number, trial)
        self.known[number] = (point, trial)


class _Searcher:
    """Asks, evaluates and tells, batch by batch."""

    def __init__(
        self,
        setup: Setup,
        over: Mapping[str, str | Sequence[Value] | Axis],
        options: RunOptions,
        evaluator: Evaluator,
        aim: Aim,
    ) -> None:
        self._setup, self._options, self._evaluator, self._aim = setup, options, evaluator, aim
        self._axes = list(axes_over(over, setup))
        names = labels_of(setup.schedules)
        if len(names) > 1 and "schedule" not in over:
            named = [one.name for one in setup.schedules]
            if len(set(named)) < len(named):
                raise OptionError(
                    f"schedules must differ in their names, got {', '.join(named)}; let an option "
                    "vary, such as max_active_keys"
                )
            self._axes.append(Axis("schedule", tuple(named)))
        if not self._axes:
            raise OptionError("over must name what varies, such as latency_s, got nothing")

    def trials(
        self, sampler: SamplerName, seed: int, in_flight: int, journal: Path | None
    ) -> _Batches:
        """The trials of a sampler, with those that an earlier call made."""
        what = {**self._asked(), "sampler": sampler, "seed": seed, "in_flight": in_flight}
        text = json.dumps({**what, "code": code_digest()}, sort_keys=True, default=str)
        name = f"ampsim {hashlib.sha256(text.encode()).hexdigest()[:16]}"
        space = Space(self._axes, self._setup)
        return _Batches(Proposals(name, space, len(self._aim.objectives), journal), sampler, seed)

    def run(self, asked: _Batches, clock: TimeBudget, count: int, in_flight: int) -> str | None:
        """Go on until so many points are tried; say why not, if something came first."""
        try:
            while len(asked.known) < count:
                clock.require_left()
                self._batch(asked, count, in_flight)
        except KeyboardInterrupt:
            return clock.sentence(f"{len(asked.known)} of {count} points are tried")
        return None

    def _batch(self, asked: _Batches, count: int, in_flight: int) -> None:
        points = asked.batch(in_flight, count)
        first = min(points) // in_flight * in_flight  # what the batch itself finds prunes nothing
        before = asked.before(first)
        known = {_text(point): trial for point, trial in before}
        front = [trial.values for _point, trial in before if trial.outcome == "complete"]
        new = {number: point for number, point in points.items() if _text(point) not in known}
        made = self._evaluator.evaluate([self._row(point) for point in new.values()], front)
        told = dict(zip(new, made, strict=True))
        for number, point in points.items():
            asked.tell(number, point, told.get(number) or known[_text(point)])

    def _row(self, point: Mapping[str, Value]) -> Row:
        at = setup_at(self._setup, point)
        (entry,) = entries_of(RunPlan(at.model, at.cluster, self._options), at.schedules[:1], None)
        return replace(entry, label=_text(point))

    def _asked(self) -> dict[str, Any]:
        """What is searched, as plain values."""
        options = self._options
        return {
            "model": model_origin(self._setup.model),
            "cluster": self._setup.cluster.digest,
            "schedules": [schedule_origin(one) for one in self._setup.schedules],
            "over": {
                axis.key: list(axis.values) or [axis.low, axis.high, axis.is_log]
                for axis in self._axes
            },
            "minimise": self._aim.objectives,
            "subject_to": [one.text for one in self._aim.conditions],
            "seeds": [self._aim.seeds.start, self._aim.seeds.stop - 1],
            "prunes": self._aim.prunes,
            "target": options.target,
            "max_epochs": options.epochs,
            "instances": options.instances,
        }

    def found(
        self,
        known: Mapping[SamplerName, Told],
        sampler: SamplerName,
        interrupted: str | None,
        clock: TimeBudget,
    ) -> Searched:
        """What came of it."""
        complete = {
            name: [trial.values for _point, trial in of.values() if trial.outcome == "complete"]
            for name, of in known.items()
        }
        every = list(itertools.chain.from_iterable(complete.values()))
        reference = reference_of(every) if every else ()
        volumes = {name: hypervolume(of, reference) for name, of in complete.items() if reference}
        mine = sorted(known[sampler].items())
        keys = [axis.key for axis in self._axes]
        first = {number: trial for number, (_point, trial) in mine if trial.outcome == "complete"}
        places = pareto([trial.values for trial in first.values()])
        front = {[*first][place] for place in places}
        asked = self._asked()
        return Searched(
            table=table_of_trials(mine, keys, self._aim.objectives, front),
            objectives=self._aim.objectives,
            keys=tuple(keys),
            model=self._setup.model.name,
            cluster=self._setup.cluster.name,
            sampler=sampler,
            hypervolume=volumes.get(sampler, 0.0),
            hypervolume_random=volumes.get("random", 0.0) if "random" in known else None,
            reference=reference,
            interrupted=interrupted,
            is_stopped=interrupted is not None and not clock.is_over,
            manifest={**software(), **asked, "sampler": sampler},
        )


def _text(point: Mapping[str, Value]) -> str:
    """A point in words that no other one has."""
    return ", ".join(f"{key} = {value!r}" for key, value in sorted(point.items()))
