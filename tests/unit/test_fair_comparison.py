"""Each row of a forecast has a learning rate of its own, by rule or by trial, and says which."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

import ampsim
from ampsim.cli.comparing import TRIALS
from ampsim.errors import OptionError, UnknownNameError
from ampsim.model_parallel import SCHEDULES
from ampsim.model_parallel.schedules.values import Admission, Order, Updates, Weights
from ampsim.optim import OPTIMIZERS
from ampsim.study.halving import BUDGET, Score, factors, halve, trials_of
from ampsim.study.learning_rates import averaged, rate_of, with_rate
from ampsim.study.repeats import looks_of

SMALL = {"data": "synthetic", "hidden": 16, "batch": 20}


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


@pytest.mark.parametrize("name", SCHEDULES)
def test_one_averaged_update_at_the_scaled_rate_is_that_of_summed_gradients(name, model):
    """Linear scaling is just this: m gradients' mean at m times the rate is their sum at one."""
    schedule = SCHEDULES[name]()
    count = averaged(schedule)
    assert count is not None
    assert rate_of(model, schedule).factor == pytest.approx(count)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_that_scales_its_steps_takes_the_root(name):
    """And one with two stages, of which each would take another rule, none."""
    others = {"adam": "sqrt", "adagrad": "sqrt", "two-stage": "none"}
    assert OPTIMIZERS[name](0.1).scaling == others.get(name, "linear")


@pytest.mark.parametrize(("rule", "factor"), [("none", 1), ("linear", 9), ("sqrt", 3), (None, 9)])
def test_the_rule_can_be_chosen(model, rule, factor):
    rate = rate_of(model, Mine(9), rule)
    assert rate.factor == factor
    assert with_rate(model, rate.factor).optimizer.rate(3) == pytest.approx(0.1 * factor)


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


@pytest.mark.parametrize("budget", [2, 3, 4, 8, 13])
def test_every_row_gets_as_many_trials_and_the_best_rate_is_found(budget):
    """Times that are lowest at one factor, and seeds that shift all alike: it must be chosen."""
    best = dict(enumerate([factors(budget)[-1], 1.0, factors(budget)[1]]))
    tried = []

    def try_all(trials):
        tried.extend(trials)
        return {
            one: Score(1 + abs(math.log2(one[1] / best[one[0]])) + one[2], 0.0) for one in trials
        }

    found = halve(3, budget, try_all)
    assert [of[0].factor for of in found] == list(best.values())
    for row in range(3):
        assert sum(one[0] == row for one in tried) == trials_of(budget)
    assert len(set(tried)) == len(tried)


def test_a_rate_that_shines_with_one_seed_is_not_chosen_for_it():
    def try_all(trials):
        lucky = {(0, 2.0, 0): 0.1}
        return {one: Score(lucky.get(one, 5.0 if one[1] == 2.0 else 2.0), 0.0) for one in trials}

    (found,) = halve(1, 4, try_all)
    assert found[0].factor == 1.0


def test_where_no_trial_arrives_the_best_validation_decides():
    def try_all(trials):
        return {one: Score(math.inf, abs(one[1] - 0.5)) for one in trials}

    (found,) = halve(1, 4, try_all)
    assert found[0].factor == 0.5


@pytest.fixture(scope="module")
def tuned(cluster):
    model = ampsim.load_model("mlp", data="synthetic", hidden=32, batch=20)
    return ampsim.forecast(
        model, cluster, "sequential,pipeline", target=0.6, max_epochs=4, instances=200, tune=3,
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
        assert len(set(mine["learning_rate"])) == 3


@pytest.mark.slow
def test_what_was_tried_stands_in_json_and_page(tuned, tmp_path, unpainted):
    import json

    from ampsim.study.forecast_json import to_json

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
    said = "sequential: no trial reached 99.9 %; it has the learning rate that came closest"
    assert made.unreached == (said,)
    assert said in made.manifest["assumptions"]


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
        ({"schedules": "amp,pipeline", "sure": 1.5}, "sure must be"),
        ({"schedules": "amp,pipeline", "sure": 0.9, "mode": "sleep"}, "there is none"),
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
        ("--validate-every", "0"): "validate_every must be",
    }
    for options, words in refused.items():
        code, out, error = call(*start, *options)
        assert (code, out) == (2, "")
        assert error.startswith("ampsim: ") and words in error and error.count("\n") == 1
