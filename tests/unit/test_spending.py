"""What a forecast's budget counts, and what it buys, before any run is made."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

import ampsim
from ampsim.errors import OptionError
from ampsim.forecasting import budget
from ampsim.forecasting.budget import least_seeds
from ampsim.forecasting.making import ForecastRuns, RunMaker, entries_of
from ampsim.forecasting.settings import Score, search_all, spaces_of
from ampsim.forecasting.tuning import Tuned, Tuner, no_trials
from ampsim.model_parallel import placement_of
from ampsim.options import seconds_of
from ampsim.runs.ranking import SURE, Ranking
from ampsim.runs.run import SHARES, Run, run_of, to_plain
from ampsim.runs.task import Row, RunPlan
from ampsim.study.learning_rates import methods_of
from ampsim.study.schedule_names import schedules_of
from ampsim.study.simulation import RunOptions

NOBODY: Any = None
"""In place of what makes runs, where none is made."""


@pytest.fixture(scope="module")
def rows():
    """Rows of a small model, one a schedule."""
    model = ampsim.load_model("mlp", data="synthetic", hidden=16, batch=20)
    options = RunOptions(placement=placement_of("paper"), target=0.6)
    plan = RunPlan(model, ampsim.load_cluster("tflops-1", workers=4), options)
    return lambda *schedules: entries_of(plan, schedules, None)


def spending_on(entries: list[Row], budget_s: float = 6.0, repeats: int = 1) -> budget.Spending:
    allowance = budget.Allowance(budget_s, repeats=repeats)
    return budget.Spending(entries, allowance, 0, RunMaker(NOBODY, None, None))


def costing(cost_s: float) -> Run:
    """A run of that price."""
    none = pd.DataFrame({"instances": [0], "valid_instances": [0]})
    return Run(messages=round((cost_s - budget.RUN_S) / budget.MESSAGE_S), epochs=none)


@pytest.mark.parametrize(
    ("repeats", "seeds", "said"),
    [(1, 40, "--budget 3m"), (1, 400, "--repeats 400 --budget 21m"), (5, 9, "--repeats 9 --bud")],
)
def test_what_would_settle_an_answer_is_typed_so_that_it_buys_these_seeds(
    rows, repeats, seeds, said
):
    """Seeds that were named stay as many, whatever the budget, which alone buys 200 at most."""
    entries = rows(ampsim.Sequential(), ampsim.Pipeline(4))
    spending = spending_on(entries, repeats=repeats)
    looks = pd.DataFrame({"instances": [100], "valid_instances": [10]})
    one = Run(messages=round(1 / budget.MESSAGE_S), epochs=looks)  # a second
    made = ForecastRuns(((one,) * 5,) * 2, None, ())
    (line,) = spending._more(Ranking("too few seeds", 0, (None, None), 5, seeds, (), None), made)
    assert line.startswith(f"about {seeds} seeds would likely settle it: {said}")
    budget_s = seconds_of("--budget", line.rpartition(" ")[2])
    assert budget_s * budget.PROCESSORS * budget.SHARE * (1 - budget.TUNING) >= 2 * seeds
    few = budget.Allowance(budget_s, repeats=repeats).looks(2, seeds).counts[-1]
    assert min(seeds, budget.SEEDS_MAX) == few or repeats > 1


@pytest.mark.parametrize("repeats", [1, 2, 30])
def test_a_budget_that_would_do_is_the_least_that_does(rows, repeats):
    """With few seeds it is the share of the trials that would not do."""
    entries = rows(ampsim.Sequential(), ampsim.Pipeline())
    once_s = 1000.0
    said = spending_on(entries, 1.0, repeats)._too_small(once_s)
    found = re.search(r"--budget (\w+) would", said)
    assert found is not None, said
    least_s = seconds_of("--budget", found[1])
    assert spending_on(entries, least_s, repeats)._start(once_s) is not None
    assert spending_on(entries, 0.98 * least_s, repeats)._start(once_s) is None


@pytest.mark.parametrize("sure", [None, 0.5, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("count", [2, 3, 9])
def test_the_least_seeds_are_enough_to_be_as_sure_as_is_asked(count, sure):
    """They were those of 90 %: a budget was spent, and then a line refused `max_repeats`."""
    allowance = budget.Allowance(6.0, sure=sure)
    least = allowance.least(count)
    assert allowance.looks(count, least).counts == (least,)
    for repeats in (1, 6):  # as many as it takes, and as many as a user named
        named = budget.Allowance(6.0, sure=sure, repeats=repeats)
        assert named.looks(count, 40).sureness.sure == (sure or SURE)
    with pytest.raises(OptionError, match="must be"):
        allowance.looks(count, least - 1)


def test_tuning_ends_with_half_of_what_is_for_runs(rows):
    """First runs and trials count; who had only few trials so far has another round."""
    entries = rows(ampsim.Sequential())
    spending = spending_on(entries, 10.0)
    half_s = 10.0 * budget.PROCESSORS * budget.SHARE / 2
    spending._count([costing(1.0)])
    assert not spending._is_tuned([costing(1.0), costing(half_s - 2.1)])
    assert spending._is_tuned([costing(1.0), costing(half_s - 1.9)])


def test_trials_that_fit_into_no_memory_leave_hope_for_fewer_in_flight(rows):
    device = ampsim.load_cluster("tflops-1", workers=1).devices[0]
    small = device.model_copy(update={"memory_bytes": 500_000})
    (row,) = rows(ampsim.GPipe())
    cluster = row.plan.cluster.model_copy(update={"devices": (small,) * 4})
    (run,) = ampsim.forecast(row.plan.model, cluster, [row.schedule], instances=200).runs
    spending = spending_on([row], 10.0)
    assert "out of memory" in str(run.failure) and not spending._is_tuned([run])
    assert spending._is_tuned([replace(run, failure="no data")])


@pytest.mark.parametrize(("in_flight", "factor"), [(4, 0), (1, 0), (0, 1 / 16)])
def test_where_all_trials_of_a_row_are_lost_fewer_in_flight_are_tried(rows, in_flight, factor):
    """As it does not fit into memory: rates were tried, and twice as many, or as rates are high."""
    (space,) = spaces_of(rows(ampsim.GPipe()), (), None)

    def try_all(trials):
        fine = {one for one in trials if (one[1].in_flight or 8) <= in_flight}
        fine |= {one for one in trials if one[1].factor <= factor}
        return {one: Score(1.0, 0.0) if one in fine else Score() for one in trials}

    ((best, *_others),) = search_all([space], 4, try_all, moves=4)
    assert not best.is_lost


def test_a_trial_may_take_half_as_many_epochs_again_as_the_first_run(rows):
    """Of a row that did not reach the target, as many as any run."""
    entries = rows(ampsim.Sequential(), ampsim.Pipeline())
    spending = spending_on(entries)
    accuracies = {"sequential": [0.1, 0.5, 0.7, 0.8], "pipeline": [0.1, 0.2, 0.3, 0.4]}
    tables = {
        label: pd.DataFrame({"accuracy": of, "epoch": [1, 2, 3, 4], "time_s": 1.0})
        for label, of in accuracies.items()
    }
    spending._first = {label: Run(epochs=of) for label, of in tables.items()}
    assert spending._caps() == {0: 5}  # it arrived in the third
    within = pd.DataFrame({"accuracy": [0.1, 0.7, 0.5], "epochs": [0.5, 1.5, 2], "time_s": 1.0})
    spending._first["pipeline"] = Run(epochs=tables["pipeline"], validations=within)
    assert spending._caps() == {0: 5, 1: 3}  # and this one within its second, and not at its end


def test_a_trial_ends_by_epochs_of_as_many_in_flight_and_within_those_of_a_run(rows, monkeypatch):
    """With 32 in flight 12 epochs take less than 6 with 8, by which they were ended."""
    (entry,) = rows(ampsim.Amp())
    short = replace(entry, plan=entry.plan.having(epochs=14))
    tuner = Tuner([short], 0, short.plan.goal, RunMaker(NOBODY, None, None))
    asked: list[tuple[int, int]] = []

    def try_all(trials):
        for row, setting, seed in trials:
            keys = setting.in_flight or 8
            asked.append((keys, tuner._entry(row, setting).plan.options.epochs))
            epochs = 4 + keys // 4
            is_reached = epochs <= asked[-1][1]
            tuner._made[row, setting, seed] = {
                "time_to_target_s": epochs / keys if is_reached else None,
                "epochs_to_target": epochs if is_reached else None,
            }
        return {one: Score(tuner._made[one]["time_to_target_s"] or math.inf) for one in trials}

    monkeypatch.setattr(tuner, "_try_all", try_all)
    tuner.settle(spaces_of([short], ("learning_rate",), None), 4, {0: 9}, lambda _runs: True)
    assert asked == [(8, 9), (16, 14), (4, 14), (32, 14), (32, 14), (16, 12)]


@pytest.mark.parametrize(
    ("fixed", "names", "numbers"),
    [
        ((), "amp:4,amp:8", [0, 0]),
        (("amp:8",), "amp:8,pipeline,sync-sgd:2/pipeline:8", [0, 8, 0]),
        ((), "amp:8,pipeline:8", [8, 8]),
    ],
)
def test_a_number_in_flight_is_tried_of_rows_that_do_not_say_theirs(rows, fixed, names, numbers):
    spaces = spaces_of(rows(*schedules_of(names)), fixed, None)
    assert [one.in_flight for one in spaces] == numbers


def test_a_number_behind_a_schedules_name_is_what_a_user_chose(call, monkeypatch):
    """Also where it is the default: as `amp:8` beside `amp:4`, both rows had 4 in flight."""
    asked: dict[str, Any] = {}

    def forecast(*_given: Any, **options: Any) -> None:
        asked.update(options)
        raise OptionError("enough")

    monkeypatch.setattr(ampsim, "forecast", forecast)
    assert call("forecast", "mlp", "--schedule", "sequential, AMP:8").code == 2
    assert asked["fixed"] == ["amp:8"]
    assert call("forecast", "mlp", "--schedule", "amp:8,sequential", "--tune").code == 2
    assert not asked["fixed"], "without a budget nothing heeds it"


def test_a_first_run_is_one_by_which_rows_are_compared_where_nothing_was_tuned(rows, monkeypatch):
    entries = rows(ampsim.Sequential(), ampsim.Pipeline(4), ampsim.Amp(4), ampsim.GPipe())
    spending = spending_on(entries)
    spending._first = {one.label: costing(1.0) for one in entries}
    as_it_was, scheduled, optimized, rated = entries
    tuned = (
        as_it_was,
        replace(scheduled, schedule=ampsim.Pipeline(8)),
        replace(
            optimized, plan=replace(optimized.plan, model=methods_of(optimized.plan.model)["adam"])
        ),
        replace(rated, plan=replace(rated.plan, rate=replace(rated.plan.rate, factor=2.0))),
    )
    asked: list[dict[str, Any]] = []

    def run_rows(entries, looks, seed, maker, known):
        asked.append(known)
        return entries, ForecastRuns((), None, ())

    monkeypatch.setattr(budget, "run_rows", run_rows)
    monkeypatch.setattr(spending, "_on_run", lambda run: None)
    spending._ranked(Tuned(tuned, pd.DataFrame({"schedule": []})), spaces_of(tuned, (), None))
    assert list(asked[0]) == [as_it_was.label]


@pytest.mark.parametrize(("interrupted", "said"), [(None, (budget._LOST,)), ("cut", ())])
def test_a_budget_that_ends_with_the_first_runs_says_so(rows, monkeypatch, interrupted, said):
    """The process of one had died: the others ran once each, and nothing told of the budget."""
    entries = rows(ampsim.Sequential(), ampsim.Pipeline(4))
    first = replace(costing(0.1), label=entries[0].label, seed=0)
    made = ForecastRuns(((first,),), interrupted, ("pipeline, seed 0: its process died",))
    monkeypatch.setattr(budget, "run_rows", lambda *_asked: (tuple(entries), made))
    spent = spending_on(entries, budget_s=600.0).spend()
    assert spent.said == said
    assert spent.made.lost == made.lost


def test_a_seed_is_priced_by_the_first_seeds_so_that_a_budget_lasts(rows, monkeypatch):
    """Trials of the setting that was chosen were lucky: by them 12 s told 13."""
    entries = rows(ampsim.Sequential(), ampsim.Pipeline())
    spending = spending_on(entries)
    spending._first = {one.label: costing(0.1) for one in entries}
    asked: list[int] = []

    def run_rows(entries, looks, seed, maker, known):
        done = len(known.get(entries[0].label, ()))
        asked.append(looks.counts[-1])
        made = [(replace(costing(0.31), label=one.label),) * asked[-1] for one in entries]
        for run in (run for of in made for run in of[done:]):
            maker.on_run(run)
        return entries, ForecastRuns(tuple(made), None, ())

    monkeypatch.setattr(budget, "run_rows", run_rows)
    monkeypatch.setattr(budget, "ranking_of", lambda *_rows: None)
    spending._on_run = lambda _run: None
    tuned = Tuned(tuple(replace(one, schedule=ampsim.Amp()) for one in entries), no_trials())
    spending._ranked(tuned, spaces_of(entries, (), None))
    assert asked[0] == least_seeds(2) < asked[1]
    work_s = spending._budget.work_s
    assert work_s - 0.62 < spending._spent_s <= work_s


@pytest.mark.parametrize(
    ("trials", "said"),
    [
        ({"sequential": 26, "amp": 26}, ": each row tuned by 26 trials (in flight), then 0 seeds"),
        ({"amp": 26}, ": 1 of 2 rows tuned by 26 trials (in flight), then 0 seeds"),
        ({"sequential": 9, "amp": 26}, ": each row tuned by 9 to 26 trials (in flight), then 0"),
        ({}, "s: 0 seeds; 0 s used"),
    ],
)
def test_a_row_of_which_nothing_was_tried_is_not_told_to_be_tuned(rows, trials, said):
    """Where the rate was chosen, a row that has one instance in flight has nothing to try."""
    entries = rows(ampsim.Sequential(), ampsim.Amp())
    spending = spending_on(entries)
    spaces = spaces_of(entries, ("learning_rate",), None)
    assert [one.is_free for one in spaces] == [False, True]
    schedules = [label for label, count in trials.items() for _ in range(count)]
    tuned = Tuned(tuple(entries), pd.DataFrame({"schedule": schedules}))
    first = next(spending._what_was_done(spaces, tuned, ForecastRuns((), None, ())))
    assert said in first


def test_a_trial_has_all_of_a_run_but_what_bounds_it_and_what_its_memories_held(rows):
    """It is kept by another key, so that it stands for no run of which these are asked."""
    (row,) = rows(ampsim.Amp(2))
    whole = row.task(0).having(instances=100, epochs=1)
    trial = whole.having(is_explained=False)
    one, other = (to_plain(run_of(*task.run(None))) for task in (whole, trial))
    parts = [(one[of], other[of]) for of in ("numbers", "tables")]
    unlike = {name for a, b in parts for name in a if a[name] != b.get(name)}
    assert unlike == {"bound_by", *SHARES, "bound_at", "path_parts", "peak_memory"}
    maker = RunMaker(NOBODY, None, None)
    assert maker.known(whole) != maker.known(trial)


@pytest.mark.parametrize(
    ("schedules", "fixed", "said"),
    [
        ("sequential,pipeline:4,amp", (), " of pipeline"),
        ("gpipe:4,amp,pipeline:2", (), " of gpipe, max_active_keys of pipeline"),
        ("sequential,pipeline:4", (), ""),
        ("pipeline,amp", ("max_active_keys",), ""),
    ],
)
def test_of_what_a_user_chose_for_some_rows_it_is_told_for_which(rows, schedules, fixed, said):
    entries = rows(*schedules_of(schedules))
    spaces = spaces_of(entries, fixed, None)
    tuned, made = Tuned(entries, no_trials()), ForecastRuns((), None, ())
    _bought, *told = spending_on(entries)._what_was_done(spaces, tuned, made)
    assert told == [f"chosen by you, so not tuned: max_active_keys{said}"]
