"""Each row of a forecast has a learning rate of its own, by rule or by trial, and says which."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from program_models import PROGRAMS_ONLY

import ampsim
from ampsim import assets
from ampsim.cli.forecast import TRIALS
from ampsim.data_parallel import SOLVERS
from ampsim.errors import OptionError, UnknownNameError
from ampsim.exploring.axes import Setup
from ampsim.exploring.making import PointRuns, Query
from ampsim.forecasting.making import ForecastRuns, RunMaker, entries_of, looks_of
from ampsim.forecasting.settings import (
    LADDER,
    Score,
    SettingSpace,
    factors,
    search_all,
    trials_of,
)
from ampsim.forecasting.tuning import BUDGET, Tuner
from ampsim.metric import Goal
from ampsim.model_parallel import SCHEDULES
from ampsim.model_parallel.schedules.values import Admission, Order, Updates, Weights
from ampsim.optim import OPTIMIZERS
from ampsim.report.table import notes, rate_line
from ampsim.runs.jobs import opened
from ampsim.runs.run import Run
from ampsim.runs.task import RunPlan, Task
from ampsim.runs.witness import leading
from ampsim.study.learning_rates import Rate, averaged, diverged_by_rule, is_fair, rate_of
from ampsim.study.schedule_names import schedules_of
from ampsim.study.simulation import RunOptions

SMALL = {"data": "synthetic", "hidden": 16, "batch": 20}
FIRST_FORECASTS: dict[str, tuple[dict[str, Any], int | None]] = {
    "bilstm_tagger": ({"data": "synthetic", "hidden": 16}, 30),
    "dynamic_lstm": ({"hidden": 16}, 2_000),
    "ggnn": ({"data": "synthetic", "hidden": 16}, 100),
    "lenet": ({"data": "synthetic"}, 500),
    "lstm_mnist": ({"data": "synthetic", "hidden": 16}, None),
    "mlp": ({"data": "synthetic"}, 2_000),
    "rnn": ({"hidden": 16}, 5_000),
    "tree_lstm": ({"data": "synthetic", "hidden": 16}, 100),
}
"""Each shipped model that learns by messages, on data always there, small enough for a test."""
EVERY, FEW = 10**9, 10
"""Instances to train on and to validate with: who breaks does so in training."""


@pytest.fixture(scope="module")
def model():
    return ampsim.load_model("mlp", **SMALL)


@pytest.fixture(scope="module")
def cluster():
    return ampsim.load_cluster("tflops-1", workers=4)


@dataclass(frozen=True)
class Mine:
    """A schedule of a user's own: what it averages follows from its values."""

    of: int
    name: ClassVar[str] = "mine"
    order = Order()
    weights = Weights()
    admission = Admission(3)

    @property
    def updates(self):
        return Updates(interval=self.of, averages=True)


@pytest.mark.parametrize(
    ("schedule", "count"),
    [
        (ampsim.Sequential(), 1),
        (ampsim.Pipeline(4), 4),
        (ampsim.GPipe(6), 6),
        (ampsim.Amp(8), 1),
        (ampsim.Amp(8, min_update_interval=5), 1),
        (ampsim.PipeDream(), 1),
        (ampsim.PipeDream2BW(min_update_interval=7), 7),
        (Mine(9), 9),
        (ampsim.SyncSGD(ranks=4), 4),
        (ampsim.SyncSGD(ranks=4, inner=ampsim.Pipeline(3)), 12),
        (ampsim.SyncSGD(), None),
        (ampsim.SyncEASGD(ranks=4), 1),
        (ampsim.LocalSGD(ranks=4), 1),
        (ampsim.AsyncSGD(ranks=4, inner=ampsim.Pipeline(3)), 3),
        (ampsim.EAWild(ranks=4), 1),
    ],
)
def test_what_an_update_averages_follows_from_the_schedules_values(schedule, count):
    assert averaged(schedule) == count


@pytest.mark.parametrize(
    ("solver", "count"),
    [
        (ampsim.SyncSGD(), 6),
        (ampsim.SyncSGD(inner=ampsim.Pipeline(3), workers_per_rank=2), 9),
        (ampsim.EAWild(inner=ampsim.SyncSGD(2)), 2),
        (ampsim.AsyncSGD(servers=6), 1),
    ],
)
def test_a_solver_averages_as_many_ranks_as_there_is_room_for(solver, count, model):
    cluster = ampsim.load_cluster("tflops-1", workers=6)
    assert rate_of(model, solver, cluster, RunOptions(), "linear").factor == count


TWO_BW, RANKS = ampsim.PipeDream2BW(min_update_interval=30), ampsim.SyncSGD(inner="pipeline:8")


@pytest.mark.parametrize(("instances", "count"), [(200, 10), (195, 10), (60, 3), (20, 1)])
@pytest.mark.parametrize("schedule", [ampsim.Pipeline(64), TWO_BW, RANKS])
def test_no_rate_is_scaled_by_more_gradients_than_an_epoch_has_batches(
    schedule, instances, count, model, cluster
):
    """Of 64 in flight over 10 batches, 0.1 was made 6.4 for updates of 10 gradients."""
    made = ampsim.forecast(model, cluster, [schedule], max_epochs=1, instances=instances)
    (row,) = made.table.to_dict("records")
    assert row["learning_rate"] == pytest.approx(0.1 * count)
    words = f"linear: {count} averaged gradients" if count > 1 else "as given"
    assert row["learning_rate_rule"] == words
    held = made.runs[0].result.updates["gradient_count"].max()
    assert held == count or schedule is RANKS


@pytest.mark.parametrize("name", SCHEDULES)
def test_one_averaged_update_at_the_scaled_rate_is_that_of_summed_gradients(name, model, cluster):
    """Linear scaling is just this: m gradients' mean at m times the rate is their sum at one."""
    schedule = SCHEDULES[name]()
    count = averaged(schedule)
    assert count is not None
    assert rate_of(model, schedule, cluster, RunOptions()).factor == pytest.approx(count)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_that_scales_its_steps_takes_the_root(name):
    """And one with two stages, of which each would take another rule, none."""
    others = {"adam": "sqrt", "adagrad": "sqrt", "two-stage": "none"}
    assert OPTIMIZERS[name](0.1).scaling == others.get(name, "linear")


@pytest.mark.parametrize(("rule", "factor"), [("none", 1), ("linear", 9), ("sqrt", 3), (None, 9)])
def test_the_rule_can_be_chosen(model, cluster, rule, factor):
    rate = rate_of(model, Mine(9), cluster, RunOptions(), rule)
    assert rate.factor == factor
    assert rate.applied(model).optimizer.rate(3) == pytest.approx(0.1 * factor)


def test_a_rule_that_does_not_exist_is_refused(model, cluster):
    wrong: Any = "cubic"
    with pytest.raises((OptionError, UnknownNameError), match="scale_rate"):
        ampsim.forecast(model, cluster, "pipeline", instances=40, scale_rate=wrong)


def test_a_forecast_scales_and_simulate_does_not(model, cluster):
    """A pipeline in a forecast is the same run, to the bit, as one of a model with that rate."""
    made = ampsim.forecast(
        model, cluster, [ampsim.Pipeline(4)], max_epochs=1, instances=200, target=None
    )
    (row,) = made.table.to_dict("records")
    assert (row["learning_rate"], row["learning_rate_given"]) == (0.4, 0.1)
    assert row["learning_rate_rule"] == "linear: 4 averaged gradients"
    scaled = ampsim.load_model("mlp", **SMALL, learning_rate=0.4)
    alone = ampsim.simulate(scaled, cluster, ampsim.Pipeline(4), instances=200)
    given = ampsim.simulate(model, cluster, ampsim.Pipeline(4), instances=200)
    assert made.runs[0].result.epochs["loss"].tolist() == alone.epochs["loss"].tolist()
    assert alone.epochs["loss"].tolist() != given.epochs["loss"].tolist()


def test_as_given_no_row_is_scaled(model, cluster):
    made = ampsim.forecast(
        model, cluster, "pipeline,amp", max_epochs=1, instances=100, scale_rate="none"
    )
    assert set(made.table["learning_rate_rule"]) == {"as given"}
    assert set(made.table["learning_rate"]) == {0.1}


def test_rates_are_powers_of_two_around_the_middle():
    assert sorted(factors(8)) == [2.0**power for power in range(-3, 5)]
    assert factors(1) == [1.0]


@pytest.mark.parametrize("given", [1.0, 1 / 2, 1 / 3, 1 / 8, 1 / 64, 8**-0.5])
@pytest.mark.parametrize("budget", [2, 3, 4, 8, 64])
def test_a_row_begins_with_as_many_rates_its_own_and_that_as_given_among_them(budget, given):
    found = factors(budget, given)
    assert len(found) == len(set(found)) == budget
    assert {1.0, given} <= set(found)


@pytest.mark.parametrize("given", [1.0, 1 / 3, 1 / 8, 8**0.5])
def test_no_rate_is_tried_beyond_the_ladder(given):
    """However many, and wherever the best is: down while all diverge, up while more is better."""
    low, high = min(1.0, given) / LADDER, max(1.0, given) * LADDER
    for better in (1, -1):
        tried = []

        def try_all(trials, better=better):
            return {one: Score(2.0 ** (-better * math.log(one[1])), 0.0) for one in trials}

        for moves in (0, 12):
            halve([given], 64, recording(tried, try_all), moves)
        rates = {factor for _row, factor, _seed in tried}
        assert (min(rates), max(rates)) == pytest.approx((low, high))


def halve(givens, budget, try_all, moves=0):
    """Rates of rows alone, as (row, factor, seed)."""

    def try_settings(trials):
        made = try_all([(row, one.factor, seed) for row, one, seed in trials])
        return {trial: made[trial[0], trial[1].factor, trial[2]] for trial in trials}

    spaces = [SettingSpace(given=one) for one in givens]
    found = search_all(spaces, budget, try_settings, moves=moves)
    return [[one.setting for one in of] for of in found]


def lowest_at(best):
    """Trials whose time is the lowest at one factor of each row; seeds shift all rates alike."""

    def try_all(trials):
        return {
            one: Score(1 + abs(math.log2(one[1] / best[one[0]])) + one[2], 0.0) for one in trials
        }

    return try_all


def recording(tried, try_all):
    def record(trials):
        tried.extend(trials)
        return try_all(trials)

    return record


@pytest.mark.parametrize("given", [1.0, 1 / 8])
@pytest.mark.parametrize("budget", [2, 3, 4, 5, 6, 7, 8, 13])
def test_every_row_gets_as_many_trials_and_the_best_rate_is_found(budget, given):
    """Each of the rates that a row begins with is chosen where it is the best."""
    best, tried = dict(enumerate(factors(budget, given))), []
    found = halve([given] * budget, budget, recording(tried, lowest_at(best)))
    assert [of[0].factor for of in found] == list(best.values())
    for row in best:
        assert sum(one[0] == row for one in tried) == trials_of(budget)
    assert len(set(tried)) == len(tried)


@pytest.mark.parametrize("budget", [3, 4, 6, 8, 11])
def test_a_row_goes_down_while_its_lowest_rate_is_the_best(budget):
    lowest = min(factors(budget))
    tried = []
    (found,) = halve([1.0], budget, recording(tried, lowest_at({0: lowest / 2})))
    assert found[0].factor == lowest / 2
    assert len(tried) == trials_of(budget)


@pytest.mark.parametrize("given", [1.0, 1 / 8])
@pytest.mark.parametrize("budget", [2, 3, 4, 6, 8, 13])
def test_a_row_whose_trials_all_diverge_goes_down_with_what_it_has(budget, given):
    """The other row, which arrives, gets as many; where all diverge the rate as given is left."""
    tried = []

    def try_all(trials):
        lost, fine = Score(math.inf, math.inf), lowest_at({1: 1.0})
        return {one: lost if one[0] == 0 else fine([one])[one] for one in trials}

    broken, _fine = halve([given] * 2, budget, recording(tried, try_all))
    rates = {factor for row, factor, _seed in tried if row == 0}
    lowest = min(factors(budget, given)) / 2 ** (trials_of(budget) - budget)
    assert min(rates) == pytest.approx(max(lowest, given / LADDER))
    assert broken[0].factor == given
    assert {sum(one[0] == row for one in tried) for row in (0, 1)} == {trials_of(budget)}


def test_a_rate_that_shines_with_one_seed_is_not_chosen_for_it():
    def try_all(trials):
        lucky = {(0, 2.0, 0): 0.1}
        return {one: Score(lucky.get(one, 5.0 if one[1] == 2.0 else 2.0), 0.0) for one in trials}

    (found,) = halve([1.0], 4, try_all)
    assert found[0].factor == 1.0


def test_where_no_trial_arrives_the_best_validation_decides():
    def try_all(trials):
        return {one: Score(math.inf, abs(one[1] - 0.5)) for one in trials}

    (found,) = halve([1.0], 4, try_all)
    assert found[0].factor == 0.5


class Losing(RunMaker):
    """Loses the trials of one row but for its first four, as if their processes had died."""

    made = 0

    def make(self, tasks, **how):
        kept = []
        for one in tasks:
            self.made += one.label.startswith("pipeline")
            if not one.label.startswith("pipeline") or self.made <= 4:
                kept.append(one)
        made = super().make(kept, **how) if kept else ForecastRuns((), None, ())
        return ForecastRuns(
            made.rows, made.interrupted, ("a process died",) * (len(tasks) - len(kept))
        )


def test_a_row_that_lost_a_trial_is_not_tuned_and_not_compared(model, cluster):
    goal = Goal(model.measure, 0.01)
    plan = RunPlan(model, cluster, RunOptions(instances=200, target=0.01))
    entries = entries_of(plan, schedules_of("sequential,pipeline"), None)
    with opened(1) as executor:
        found = Tuner(entries, 0, goal, Losing(executor, None, None)).tune(4)
    assert dict(found.untuned) == {"pipeline": "of its 6 trials 4 ended"}
    assert not found.trials[found.trials["schedule"] == "pipeline"]["is_chosen"].any()
    rules = [one.plan.rate.rule for one in found.entries]
    assert rules[0].startswith("tuned: ")
    assert rules[1].startswith("not tuned (of its 6 trials 4 ended): ")
    assert [is_fair(rule, [None]) for rule in rules] == [True, False]


def breaks_above(model, limit):
    """The model, of which weights are lost at any learning rate above a limit."""
    inner = model.optimizer.update

    def update(gradient, state, theta, rate, in_place=False):
        if float(rate) > limit * (1 + 1e-9):
            return np.full_like(theta, math.nan), state
        return inner(gradient, state, theta, rate, in_place)

    return replace(model, optimizer=replace(model.optimizer, update=update))


METHODS = {**SCHEDULES, **SOLVERS}


@pytest.mark.parametrize("name", METHODS)
def test_a_row_that_our_rule_breaks_is_run_at_the_rate_as_given_and_says_so(name, model, cluster):
    fragile = breaks_above(model, 0.1)
    (schedule,) = schedules_of(name)
    count = rate_of(fragile, schedule, cluster, RunOptions(instances=200)).factor
    made = ampsim.forecast(
        fragile, cluster, [ampsim.Sequential(), schedule], instances=200, max_epochs=1, target=0.12
    )
    row = made.table.iloc[1]
    assert not made.failures
    assert row["learning_rate"] == 0.1
    assert row["standing"] != "not compared"
    if count == 1:
        assert row["learning_rate_rule"] == "as given"
        return
    assert row["learning_rate_rule"].startswith(f"as given; it diverged at {0.1 * count:.3g} (")
    assert made.manifest["schedules"][1]["learning_rate_rule"] == row["learning_rate_rule"]
    plain = {str(key): value for key, value in row.to_dict().items()}
    assert rate_line(plain) in " ".join(notes(made.table))


def test_questions_run_what_our_rule_breaks_at_the_rate_as_given_as_a_forecast_does(
    model, cluster, only
):
    """Else a schedule is behind for a rate that nobody chose."""
    only(factor=2.0)
    fragile, over = breaks_above(model, 0.1), {"latency_s": [1e-6]}
    how: dict[str, Any] = {"instances": 200, "max_epochs": 2, "target": 0.12, "repeats": 3}
    two = [ampsim.Sequential(), ampsim.Pipeline(4)]
    there = cluster.model_copy(update={"link": ampsim.Link(latency_s=1e-6)})
    made = ampsim.forecast(fragile, there, two, placement="paper", **how).table
    rule = made["learning_rate_rule"][1]
    assert rule.startswith("as given; it diverged at 0.4")
    found = ampsim.explore(fragile, cluster, two, over=over, **how)
    times_s = made["time_to_target_s"].tolist()
    assert found.table["time_to_target_s"].tolist() == pytest.approx(times_s, rel=1e-12)
    said = f"pipeline, latency_s = 1e-06: its learning rate is {rule}."
    assert said in found.sentences
    few: dict[str, Any] = {**how, "instances": 80, "target": 0.01, "repeats": 1}
    changes = ampsim.whatif(fragile, there, two[1:], learn=1, **few)
    solved = ampsim.solve(
        fragile, cluster, two[1:], over={"latency_s": "1e-6..1e-4"}, until="time_s <= 1", **few
    )
    assert np.isfinite([changes.table["time_to_target_s"][0], *solved.curve["left"]]).all()
    for sentences in (changes.sentences, solved.sentences):
        assert any(rule in one for one in sentences)
    pytest.importorskip("optuna", reason="optuna is not installed")
    for prunes in (True, False):
        tried = ampsim.search(
            fragile, cluster, two, over=over, trials=8, in_flight=1, prunes=prunes, **how
        )
        whole = tried.table[tried.table["outcome"] == "complete"].set_index("schedule")
        assert {*whole.loc[["pipeline"], "time_to_target_s"]} == {times_s[1]}
        assert any(f"its learning rate is {rule}." in one for one in tried.sentences)


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_row_that_our_rule_broke_with_any_seed_is_run_again_with_all(model, cluster, broken):
    """Seeds are compared, so that all have one rate."""
    schedules = (ampsim.Sequential(), ampsim.Pipeline(4))
    rows = entries_of(RunPlan(model, cluster, RunOptions()), schedules, None)
    asked: list[list[tuple[str, float, int]]] = []

    class Breaking(PointRuns):
        def learn_once(self, wanted):
            asked.append([(row.label, row.plan.rate.factor, seed) for row, seed in wanted])
            lost = {("pipeline", 4.0, broken): "the scaling rule for averaged gradients raised it"}
            return [Run(label=one[0], failure=lost.get(one)) for one in asked[-1]]

    executor: Any = None
    runs = Breaking(Query(setup=Setup(model, cluster, schedules)), executor)
    found = runs.learn([(row, seed) for row in rows for seed in range(3)])
    assert asked[1:] == [[("pipeline", 1.0, seed) for seed in range(3)]]
    assert [one.failure for one in found if isinstance(one, Run)] == [None] * 6


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*assets.names("models")} - PROGRAMS_ONLY - {"profile"}))
def test_no_shipped_model_has_a_row_that_our_rule_broke_and_others_are_praised_against(name):
    """As a first forecast asks: the model's own rate, scaled by our rule where updates average.

    Rows that take the rate as given break nothing by our rule, so that these train a moment only.
    """
    settings, instances = FIRST_FORECASTS[name]
    model = ampsim.load_model(name, **settings)

    def first_forecast(schedules, most):
        return ampsim.forecast(
            leading(model, most, FEW),
            ampsim.load_cluster("tflops-1", workers=4),
            schedules,
            max_epochs=2 if most == EVERY else 1,
            instances=instances,
            placement="paper",
            target=None,  # all epochs are trained
        )

    given = first_forecast([ampsim.Sequential(), ampsim.Amp(4)], FEW)
    assert given.table["learning_rate_rule"].tolist() == ["as given", "as given"]
    made = first_forecast([ampsim.Pipeline(8)], EVERY)
    (rule,) = made.table["learning_rate_rule"]
    assert rule.startswith(("linear: 8 averaged", "square root of 8 averaged", "as given; it di"))
    assert not [run.failure for run in made.runs if "scaling rule" in (run.failure or "")]


def test_a_run_that_our_rule_broke_blames_it(model, cluster):
    options = RunOptions(instances=200)
    rate = rate_of(model, ampsim.Pipeline(8), cluster, options)
    plan = RunPlan(breaks_above(model, 0.1), cluster, options, rate)
    _result, failure = Task(plan, ampsim.Pipeline(8), 0, "pipeline", 1, 1).run(None)
    assert failure is not None and diverged_by_rule(failure)
    assert failure.endswith(
        "try a lower learning rate; the scaling rule for averaged gradients raised it from 0.1 to "
        "0.8 (linear: 8 averaged gradients)"
    )
    _result, own = Task(replace(plan, rate=Rate(8.0)), ampsim.Pipeline(8), 0, "pipeline", 1, 1).run(
        None
    )
    assert own is not None and not diverged_by_rule(own)


def test_a_row_broken_at_the_rate_as_given_is_not_run_again(model, cluster):
    made = ampsim.forecast(
        breaks_above(model, 0.05), cluster, [ampsim.Sequential(), ampsim.Pipeline(4)],
        instances=200, max_epochs=1,
    )  # fmt: skip
    assert len(made.failures) == 2
    assert not any(map(diverged_by_rule, made.failures))


@pytest.fixture(scope="module")
def tuned(cluster):
    model = ampsim.load_model("mlp", data="synthetic", hidden=32, batch=20)
    return ampsim.forecast(
        model, cluster, "sequential,pipeline", target=0.3, max_epochs=4, instances=200, tune=3,
        repeats=2,
    )  # fmt: skip


@pytest.mark.slow
def test_tuning_reports_what_was_tried_and_judges_with_other_seeds(tuned):
    trials = tuned.trials
    assert len(trials) == 2 * trials_of(3)
    assert not set(trials["seed"]) & {run.seed for run in tuned.runs}
    for row in tuned.table.to_dict("records"):
        mine = trials[trials["schedule"] == row["schedule"]]
        (chosen,) = set(mine[mine["is_chosen"]]["learning_rate"])
        assert row["learning_rate"] == chosen
        assert row["learning_rate_rule"].startswith("tuned: ")
        assert len(mine) == trials_of(3)
        assert 0.1 in set(mine["learning_rate"].round(6))


@pytest.mark.slow
def test_what_was_tried_stands_in_json_and_page(tuned, tmp_path, unpainted):
    import json

    from ampsim.forecasting.forecast import to_json

    told = json.loads(to_json(tuned, seed=0))
    assert len(told["trials"]) == len(tuned.trials)
    assert {one["is_chosen"] for one in told["trials"]} == {True, False}
    tuned.save(tmp_path / "page")
    assert "Learning rates that were tried" in (tmp_path / "page" / "forecast.md").read_text()
    assert (tmp_path / "page" / "trials.csv").read_text().count("\n") == len(tuned.trials) + 1


def test_a_target_that_no_trial_reaches_is_said_in_a_line(model, cluster):
    made = ampsim.forecast(
        model, cluster, "sequential", target=0.999, max_epochs=1, instances=40, tune=2
    )
    said = "sequential: not tuned: no trial reached 99.9 %"
    assert made.unreached == (said,)
    assert said in made.manifest["assumptions"]
    assert made.table["learning_rate_rule"][0].startswith("not tuned (no trial reached 99.9 %): ")
    assert not made.trials["is_chosen"].any()


@pytest.mark.parametrize("budget", [0, -1, 1, 65, 2.5])
def test_a_budget_that_chooses_nothing_is_refused_in_a_line(model, cluster, budget):
    with pytest.raises(OptionError, match="tune must be"):
        ampsim.forecast(model, cluster, "amp", tune=budget)


def test_tuning_needs_numbers(model, cluster):
    with pytest.raises(OptionError, match="mode 'sleep' computes none of it"):
        ampsim.forecast(model, cluster, "amp", tune=2, mode="sleep", instances=40)


def test_the_command_line_tries_as_many_as_the_tuner():
    assert TRIALS == BUDGET


@pytest.mark.parametrize(("rows", "most"), list(itertools.product((2, 3, 11), (10, 20, 40, 100))))
def test_looks_double_and_end_at_the_budget(rows, most):
    looks = looks_of(rows, 1, 0.9, most)
    assert looks.counts[-1] == most
    assert all(b >= 2 * a for a, b in itertools.pairwise(looks.counts))
    assert looks.sureness.looks == len(looks.counts)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"schedules": "amp", "sure": 0.9}, "sure compares schedules, got one"),
        ({"schedules": "amp,pipeline", "sure": 0.9, "max_repeats": 3}, "max_repeats must be >= 5"),
        ({"schedules": "amp,pipeline", "sure": 0.9, "repeats": 50}, ">= 50, for so many are asked"),
        ({"schedules": "amp,pipeline", "sure": 1.5}, "sure must be"),
        ({"schedules": "amp,pipeline", "sure": 0.9, "mode": "sleep"}, "there is none"),
        ({"schedules": "amp", "max_repeats": 8}, "got 8; give sure=0.9 alone, or leave"),
        ({"schedules": "amp", "max_repeats": 8, "budget_s": 9.0}, "not what budget_s does, got 8"),
    ],
)
def test_sureness_that_cannot_be_is_refused(model, cluster, given, words):
    with pytest.raises(OptionError, match=words):
        ampsim.forecast(model, cluster, instances=40, **given)


@pytest.mark.slow
def test_repeats_end_as_soon_as_the_order_is_clear(cluster):
    """A rate that learns nothing loses with every seed, so that the first look decides."""
    model = ampsim.load_model("mlp", data="synthetic", hidden=32, batch=20)
    made = ampsim.forecast(
        model, cluster, [ampsim.Sequential(), ampsim.Pipeline(8)], target=0.5, max_epochs=4,
        instances=200, sure=0.9, max_repeats=40, scale_rate="none",
    )  # fmt: skip
    looks = looks_of(2, 1, 0.9, 40)
    assert set(made.table["repeats"]) == {looks.counts[0]}
    assert made.table["is_tied_with_best"].tolist() == [False, False]


def test_wrong_options_of_a_comparison_are_one_line_each(call):
    start = ("forecast", "mlp", "--set", "data=synthetic", "--quiet")
    refused = {
        ("--tune", "--trials", "0"): "tune must be a whole number of learning rates from 2 to 64, "
        "got 0; try 8, or leave tuning out",
        ("--max-repeats", "9"): "--max-repeats 9 ends what --sure goes on with; give --sure 0.9 "
        "too, or --repeats instead",
        ("--tune", "--mode", "sleep"): "tune needs what is learned, and mode 'sleep' computes none "
        "of it; take mode 'numeric', or leave tuning out",
        ("--validate-every", "0"): "--validate-every must be",
    }
    for options, words in refused.items():
        code, out, error = call(*start, *options)
        assert (code, out) == (2, "")
        assert error.startswith("ampsim: ") and words in error and error.count("\n") == 1
