"""A forecast within a budget: rows tuned alike, then seeds, until an answer, or all is spent.

The budget is work, not a clock: seconds of two processors like the one on which a message and a
FLOP were priced. So the same inputs, seed and budget give the same answer to the bit, on every
machine and with any number of jobs; a slower machine takes longer.

1. Each row runs once, with the first seed, as it is. That prices a run of it, by its messages and
   FLOP, and is all that is made where the budget does not buy more.
2. Each row gets as many trials of what its method needs (`ampsim.forecasting.settings`), on seeds
   of their own: as many as half of the budget buys.
3. All rows run with the least seeds that rank them, which tell what a seed costs; then with more,
   looked at as `sure` says, while the budget lasts.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from ampsim.data import MissingDataError
from ampsim.dataflow import Dataflow
from ampsim.errors import FEWER_IN_FLIGHT, LOWER_RATE, AmpsimError
from ampsim.forecasting.making import (
    ForecastRuns,
    Looks,
    OnRow,
    RunMaker,
    looks_of,
    ranking_of,
    run_rows,
)
from ampsim.forecasting.settings import IN_FLIGHT, SettingSpace, spaces_of, trials_of
from ampsim.forecasting.tuning import SLACK, Tuned, Tuner, no_trials
from ampsim.hardware import load_cluster
from ampsim.metric import Goal
from ampsim.model_parallel import RunSettings, Sequential, placement_of
from ampsim.runs.ranking import SURE, Ranking, Sureness, seeds_needed
from ampsim.runs.rows import arrival
from ampsim.runs.run import Run
from ampsim.runs.task import Row
from ampsim.study.learning_rates import Scaling
from ampsim.study.model import Model
from ampsim.study.placement_advice import advice_on
from ampsim.study.placement_trials import Trials
from ampsim.study.process_settings import fixed_settings
from ampsim.study.training import Training
from ampsim.units import format_seconds

RUN_S: Final = 0.05  # of a processor for a run (tests/benchmark/bench_default_forecast.py)
MESSAGE_S: Final = 8e-6  # for each message that is served in it, likewise
FLOP_S: Final = 2e-11  # for each FLOP of the network, likewise
PROCESSORS: Final = 2  # a second of the budget is one of each (chosen: as CI's least machine has)

SHARE: Final = 0.7  # of the budget for runs; start, page and figures take the rest (measured there)

TUNING: Final = 0.5
"""Of what is for runs, the share after which no further round of trials begins (chosen)."""

STARTS: Final = (4, 8, 16, 32)  # with how many settings a row may begin, the least first (chosen)
SEEDS_MAX: Final = 200  # of a row at most (chosen: what they leave open is a tie, or nearly one)

_LOST: Final = "the budget is not spent on more, for the first run of a row gave nothing"


@dataclass(frozen=True, slots=True)
class Allowance:
    """The budget of a forecast."""

    budget_s: float  # seconds of two processors
    fixed: tuple[str, ...] = ()  # names of options that a user chose, which are not tuned
    scaling: Scaling | None = None  # the rule of learning rates
    repeats: int = 1  # seeds that a user chose; 1 for as many as the answer needs
    sure: float | None = None  # how sure the answer must be; None for 90 %

    @property
    def work_s(self) -> float:
        """Seconds of one processor for runs."""
        return self.budget_s * PROCESSORS * SHARE

    def least(self, rows: int) -> int:
        """Seeds that are run at least."""
        return self.repeats if self.repeats > 1 else least_seeds(rows, self.sure)

    def looks(self, rows: int, seeds: int) -> Looks:
        """After how many of so many seeds it is asked whether the order is clear."""
        if self.repeats > 1 or rows < 2:
            return Looks((self.least(rows),), Sureness(self.sure or SURE))
        return looks_of(rows, 1, self.sure or SURE, min(seeds, SEEDS_MAX))


@dataclass(frozen=True, slots=True)
class Spent:
    """Rows and trials that a budget was spent on."""

    tuned: Tuned  # rows as they ran, and what was tried
    made: ForecastRuns  # their runs
    sureness: Sureness  # of the answer
    said: tuple[str, ...]  # what was spent, and what a larger budget would settle


def least_seeds(rows: int, sure: float | None = None) -> int:
    """Seeds below which nothing is ranked, or not that surely."""
    return seeds_needed(max(rows, 2), Sureness(sure or SURE))


def price_s(run: Run, flop_per_item: float) -> float:
    """Seconds of a processor that a run is counted for: by its messages, and the FLOP of its items.

    A backward step takes twice the FLOP of a forward step.
    """
    items = 3 * float(run.epochs["instances"].sum()) + float(run.epochs["valid_instances"].sum())
    return RUN_S + run.messages * MESSAGE_S + items * flop_per_item * FLOP_S


def flop_per_item(model: Model) -> float | None:
    """FLOP of a forward pass for an item of the first training batch, in the mean.

    Returns:
        None where the data are not there, or where a program says itself what an instance of
        training does, of which there is no forward pass alone.

    Raises:
        OptionError: there is no batch.
        SimulationError: a step failed.
    """
    if model.is_program_only and model.program.train is not None:
        return None
    graph = model.graph()
    try:
        with fixed_settings():
            first = next(model.data(0, None).batches("train", epoch=0, seed=0))
    except MissingDataError:
        return None
    workers = [-1, *[0] * (len(graph.nodes) - 1)]
    cluster = load_cluster("ampnet-core", workers=1)  # charges for light steps, which may have FLOP
    schedule, settings = Sequential(), None
    if model.is_program_only:  # whose control flow may read values
        schedule, settings, cluster = Dataflow(), RunSettings(), model.program.cluster
    training = Training(model, graph, cluster, workers, schedule, settings=settings)
    training.validate([first])
    training.recorder.flush()
    return training.recorder.summary.flop / first.rows


def placed_alike(entries: Sequence[Row], trials: Trials, seed: int) -> tuple[list[Row], list[str]]:
    """Rows, each with a placement that is clearly faster where there is one, and what was done."""
    found: list[Row] = []
    said: list[str] = []
    for one in entries:
        advice = advice_on(trials, [one.schedule], seed=seed)
        if advice is not None:
            placed = trials.settled(placement_of(advice.placement), one.schedule)
            one = replace(one, plan=one.plan.having(placement=placed))
            said.append(f"{one.label} is placed by {advice.placement}: {advice.fastest:.2f} times")
        found.append(one)
    return found, [f"{', '.join(said)} as fast as by paper, in time alone"] if said else []


class Spending:
    """Spends a budget on rows."""

    def __init__(
        self,
        entries: Sequence[Row],
        budget: Allowance,
        seed: int,
        maker: RunMaker,
        on_run: OnRow | None = None,
    ) -> None:
        """Make nothing yet; `on_run` is told of the runs by which rows are compared."""
        self._on_run = on_run or maker.on_run
        self._entries, self._budget, self._seed, self._maker = tuple(entries), budget, seed, maker
        self._goal: Goal = entries[0].plan.goal
        self._spent_s = 0.0
        self._first: dict[str, Run] = {}
        self._looks = Looks((1,), Sureness(budget.sure or SURE))

    @cached_property
    def _flop(self) -> float:
        """FLOP of a forward pass for an item; asked when a run is priced, which ran it before."""
        with contextlib.suppress(AmpsimError):  # as its runs say themselves
            return flop_per_item(self._entries[0].plan.model) or 0.0
        return 0.0

    def spend(self) -> Spent:
        """Run, tune, and run until there is an answer, as far as the budget goes.

        Raises:
            SimulationError: no run gave anything.
        """
        self._entries, made = run_rows(self._entries, self._looks, self._seed, self._maker)
        self._first = {of[0].label: of[0] for of in made.rows}
        once_s = self._count(self._first.values())
        start = self._start(once_s)
        tuned = Tuned(self._entries, no_trials())
        if start is None or made.interrupted is not None or len(made.rows) < len(self._entries):
            for run in self._first.values():
                self._on_run(run)
            said = self._too_small(once_s) if start is None else _LOST * (not made.interrupted)
            return Spent(tuned, made, self._looks.sureness, (said,) if said else ())
        spaces = spaces_of(self._entries, self._budget.fixed, self._budget.scaling)
        if any(one.is_free for one in spaces):
            tuner = Tuner(self._entries, self._seed, self._goal, self._maker)
            tuned = tuner.settle(spaces, start, self._caps(), self._is_tuned)
            self._count(tuned.runs)
        if tuned.interrupted is not None:
            return Spent(tuned, ForecastRuns((), tuned.interrupted, ()), self._looks.sureness, ())
        return self._ranked(tuned, spaces)

    def _count(self, runs: Iterable[Run]) -> float:
        """Take from the budget what runs cost, and say how much that is."""
        cost_s = sum(price_s(one, self._flop) for one in runs)
        self._spent_s += cost_s
        return cost_s

    def _take(self, run: Run) -> None:
        """Count a run by which rows are compared, when it has ended, and tell it on."""
        self._count([run])
        self._on_run(run)

    def _start(self, once_s: float) -> int | None:
        """Return how many settings a row begins with; None where the budget buys no answer."""
        work_s = self._budget.work_s
        seeds = self._budget.least(len(self._entries))
        bought = (
            one
            for one in STARTS
            if trials_of(one) * once_s <= TUNING * work_s
            and (1 + trials_of(one) + seeds) * once_s <= work_s
        )
        return max(bought, default=None)

    def _is_tuned(self, runs: Collection[Run]) -> bool:
        """Tell whether the seeds need the rest of the budget, or all failed where no move helps."""
        cost_s = self._spent_s + sum(price_s(one, self._flop) for one in runs)
        known = [one.failure or LOWER_RATE for one in runs] or [LOWER_RATE]
        has_hope = any(LOWER_RATE in one or FEWER_IN_FLIGHT in one for one in known)
        return cost_s >= TUNING * self._budget.work_s or not has_hope

    def _caps(self) -> dict[int, int]:
        """Epochs after which a trial of each row ends: clearly more than its first run took."""
        firsts = [self._first[one.label] for one in self._entries]
        epochs = [arrival(self._goal, run)[0] for run in firsts]
        return {place: math.ceil(SLACK * of) for place, of in enumerate(epochs) if of < math.inf}

    def _ranked(self, tuned: Tuned, spaces: Sequence[SettingSpace]) -> Spent:
        """Run the tuned rows with seed after seed."""
        known = {
            one.label: (self._first[one.label],)
            for before, one in zip(self._entries, tuned.entries, strict=True)
            if one.schedule == before.schedule and one.plan.model is before.plan.model
            and (one.plan.rate.factor, one.plan.rate.decay) == (before.plan.rate.factor, 1.0)
        }  # fmt: skip
        self._maker.on_run = self._take
        for (run,) in known.values():
            self._on_run(run)
        least = self._budget.least(len(tuned.entries))
        first = Looks((least,), Sureness())
        entries, made = run_rows(tuned.entries, first, self._seed, self._maker, known)
        if made.interrupted is None:
            known = {of[0].label: of for of in made.rows}
            spent_s = sum(price_s(run, self._flop) for of in made.rows for run in of)
            each_s, left_s = spent_s / least, self._budget.work_s - self._spent_s
            is_vain = all(run.failure for of in made.rows for run in of)
            more = max(int(left_s / each_s), 0) if each_s and not is_vain else 0
            self._looks = self._budget.looks(len(tuned.entries), least + more)
            entries, made = run_rows(entries, self._looks, self._seed, self._maker, known)
        ranking = ranking_of(entries, made.rows, self._looks.sureness)
        said = [*self._what_was_done(spaces, tuned, made), *self._more(ranking, made)]
        return Spent(replace(tuned, entries=entries), made, self._looks.sureness, tuple(said))

    def _what_was_done(
        self, spaces: Sequence[SettingSpace], tuned: Tuned, made: ForecastRuns
    ) -> Iterator[str]:
        """Tell what the budget bought, and what a user chose."""
        seeds = max((len(of) for of in made.rows), default=0)
        trials: list[int] = sorted(tuned.trials["schedule"].value_counts().to_list())
        who = "each row" if len(trials) == len(spaces) else f"{len(trials)} of {len(spaces)} rows"
        count = " to ".join(map(str, dict.fromkeys(trials[:1] + trials[-1:])))
        what = ["learning rate"] * any(one.has_rate for one in spaces)
        what += ["optimizer"] * any(len(one.methods) > 1 for one in spaces)
        what += ["in flight"] * any(one.in_flight for one in spaces)
        what += ["decay"] * any(one.decays for one in spaces)
        tried = f"{who} tuned by {count} trials ({', '.join(what)}), then " if trials else ""
        ran = f"{tried}{seeds} seed{'s' * (seeds != 1)}"
        used = f"{format_seconds(budget_s_of(self._spent_s))} used, counted as work and not timed"
        yield f"budget {format_seconds(self._budget.budget_s)}: {ran}; {used}"
        is_in_part = any(one.in_flight for one in spaces)  # of other rows it was tuned
        whose = [f" of {one.schedule.name}" * is_in_part for one in self._entries]
        pairs = [(name, of) for of, one in zip(whose, spaces, strict=True) for name in one.kept]
        if kept := sorted({f"{name}{of * (name == IN_FLIGHT)}" for name, of in pairs}):
            yield f"chosen by you, so not tuned: {', '.join(kept)}"

    def _more(self, ranking: Ranking | None, made: ForecastRuns) -> Iterator[str]:
        """Tell what a larger budget would settle, of which tuning may take its share again."""
        if ranking is None or ranking.is_clear or ranking.seeds_needed is None:
            return
        runs_s = sum(price_s(run, self._flop) for of in made.rows for run in of)
        seeds, each_s = ranking.seeds_needed, runs_s / ranking.seeds
        more_s = each_s * (seeds - ranking.seeds)
        wanted_s = max(self._spent_s + more_s, each_s * seeds / (1 - TUNING))
        asked = f"--repeats {seeds} " if self._budget.repeats > 1 or seeds > SEEDS_MAX else ""
        yield f"about {seeds} seeds would likely settle it: {asked}--budget {_typed(wanted_s)}"

    def _too_small(self, once_s: float) -> str:
        seeds, trials = self._budget.least(len(self._entries)), trials_of(STARTS[0])
        wanted_s = once_s * max(1 + trials + seeds, trials / TUNING)
        return (
            f"budget {format_seconds(self._budget.budget_s)} buys one run of each row, which ranks "
            f"nothing; --budget {_typed(wanted_s)} would tune rows alike and run {seeds} seeds"
        )


def budget_s_of(work_s: float) -> float:
    """The budget that has so much work of one processor for runs."""
    return work_s / PROCESSORS / SHARE


def _typed(work_s: float) -> str:
    """A budget for so much work, rounded up, as it is typed.

    >>> _typed(100), _typed(1000)
    ('72s', '12m')
    """
    budget_s = math.ceil(budget_s_of(work_s))
    return f"{budget_s}s" if budget_s < 100 else f"{math.ceil(budget_s / 60)}m"
