"""The verdict is honest in every outcome."""

from __future__ import annotations

import pytest

from ampsim.metric import Metric
from ampsim.report.verdict import best_rows, called_rows, verdict

NAN = float("nan")


def test_the_best_schedule_is_compared_with_the_first(make_table):
    assert verdict(make_table(), 0.97) == (
        "amp trains 4.1 times as fast as sequential (2.08 M/s against 508 k/s) and reaches 97 % in "
        "410 ms instead of 1.39 s, with a mean staleness of 2.3 updates."
    )


def test_the_fastest_to_the_target_is_the_best_and_not_the_highest_throughput(make_table):
    text = verdict(make_table(time_to_target_s=[1.39, 0.3, 0.41]), 0.97)
    assert text.startswith("pipeline trains 2.5 times as fast as sequential")
    assert text.endswith("with no staleness.")


def test_a_schedule_that_missed_the_target_is_named(make_table):
    table = make_table(
        time_to_target_s=[1.39, NAN, 0.41],
        best_accuracy=[0.97, 0.951, 0.97],
        repeats_reached=[3, 0, 3],
    )
    assert verdict(table, 0.97).endswith(" 97 % is not reached by pipeline (best 95.1 %).")


def test_a_schedule_that_reached_it_too_seldom_says_how_often(make_table):
    table = make_table(time_to_target_s=[1.39, NAN, 0.41], repeats_reached=[3, 1, 2])
    text = verdict(table, 0.97)
    assert "97 % is not reached by pipeline (only in 1 of 3 repeats)" in text
    assert "in 410 ms (in 2 of 3 repeats) instead of 1.39 s" in text


def test_nobody_reaching_the_target_is_said_with_the_closest(make_table):
    table = make_table(time_to_target_s=[NAN] * 3, best_accuracy=[0.9, 0.951, 0.94])
    assert verdict(table, 0.97) == (
        "amp trains 4.1 times as fast as sequential (2.08 M/s against 508 k/s), with a mean "
        "staleness of 2.3 updates. No schedule reached 97 %; pipeline came closest with 95.1 %."
    )


def test_less_than_half_of_the_runs_reaching_the_target_is_not_nobody(make_table):
    table = make_table(
        time_to_target_s=[NAN] * 3, best_accuracy=[0.971, 0.951, 0.98], repeats_reached=[1, 0, 1]
    )
    assert verdict(table, 0.97).endswith(
        " In the median no schedule reached 97 %; sequential in 1 of 3 repeats only and amp in 1 "
        "of 3 repeats only."
    )


def test_the_first_schedule_may_win(make_table):
    text = verdict(make_table(time_to_target_s=[0.2, 0.9, 0.41]), 0.97)
    assert text == (
        "sequential reaches 97 % first, in 200 ms; next comes amp in 410 ms, although it trains "
        "4.1 times as fast."
    )
    missed = {"best_accuracy": [0.97, 0.9, 0.9], "repeats_reached": [3, 0, 0]}
    alone = make_table(time_to_target_s=[0.2, NAN, NAN], **missed)
    assert verdict(alone, 0.97) == (
        "sequential reaches 97 % first, in 200 ms, training 508 k/s, with no staleness. "
        "97 % is not reached by pipeline (best 90.0 %), amp (best 90.0 %)."
    )


def test_one_schedule_alone_is_not_compared(make_table):
    text = verdict(make_table().iloc[2:], 0.97)
    assert text == (
        "amp trains 2.08 M/s and reaches 97 % in 410 ms, after 8 epochs, with a mean staleness of "
        "2.3 updates."
    )
    missed = make_table(time_to_target_s=[NAN] * 3, best_accuracy=[0.951] * 3).iloc[2:]
    assert verdict(missed, 0.97).endswith("It did not reach 97 %; its best accuracy was 95.1 %.")


@pytest.mark.parametrize("target", [None, 0.97])
def test_without_accuracy_only_speed_is_claimed(make_table, target):
    table = make_table(best_accuracy=[NAN] * 3, time_to_target_s=[None] * 3)
    assert verdict(table, target) == (
        "amp trains 4.1 times as fast as sequential (2.08 M/s against 508 k/s). No accuracy was "
        "computed, so time to a target is unknown."
    )


def test_without_a_target_no_time_is_claimed(make_table):
    text = verdict(make_table(time_to_target_s=[None] * 3), None)
    assert text.endswith("(2.08 M/s against 508 k/s), with a mean staleness of 2.3 updates.")


@pytest.mark.parametrize(
    ("rate", "words"),
    [(508e3 * 1.04, "about as fast as"), (508e3 / 2, "0.5 times as fast as"), (508e4, "10 times")],
)
def test_ratios_near_one_and_below_are_worded_honestly(make_table, rate, words):
    table = make_table(train_per_s=[508e3, 1e3, rate])
    assert words in verdict(table, 0.97)


def test_rows_of_one_name_are_told_apart_by_what_is_in_flight(make_table):
    table = make_table(schedule=["amp", "amp", "amp"], max_active_keys=[1, 4, 8])
    assert verdict(table, 0.97).startswith("amp, 8 in flight trains 4.1 times as fast as amp, 1 in")


def test_no_row_is_no_verdict(make_table):
    assert verdict(make_table().iloc[:0], 0.97).startswith("No schedule was finished")


def test_an_error_is_named_with_its_unit(make_table):
    error = Metric("error", "eV")
    errors = {"best_accuracy": [NAN] * 3, "best_error": [5.0, 4.8, 6.0]}
    table = make_table(time_to_target_s=[NAN] * 3, **errors)
    assert verdict(table, 4.6, error).endswith(
        "No schedule reached an error of 4.6 eV; pipeline came closest with 4.8 eV."
    )
    missed = make_table(
        time_to_target_s=[1.39, NAN, 0.41], repeats_reached=[3, 0, 3],
        best_accuracy=[NAN] * 3, best_error=[4.5, 4.8, 4.5],
    )  # fmt: skip
    assert " reaches an error of 4.6 eV in 410 ms instead of" in verdict(missed, 4.6, error)
    assert verdict(missed, 4.6, error).endswith(
        " An error of 4.6 eV is not reached by pipeline (best 4.8 eV)."
    )
    nothing = make_table(best_accuracy=[NAN] * 3, time_to_target_s=[NAN] * 3)
    assert "No error was computed" in verdict(nothing, 4.6, error)


def ranked(table, ties, flips, repeats=20):
    counts = {"repeats": repeats, "repeats_reached": repeats}
    return table.assign(is_tied_with_best=ties, order_flip_probability=flips, **counts)


def test_the_next_best_is_named_with_how_sure_that_is(make_table):
    table = ranked(make_table(), [False, False, False], [0.0, 0.012, NAN])
    said = verdict(table, 0.97)
    assert " Next comes pipeline in " in said
    sure = "the probability that with other seeds it would not be behind the best is 1.20 %."
    assert said.endswith(sure)
    assert best_rows(table) == [2]
    assert "tie" not in said


def test_a_tie_is_called_one_before_anything_else(make_table):
    table = ranked(make_table(), [False, True, True], [0.01, 0.3, NAN])
    said = verdict(table, 0.97)
    assert said.startswith("It is a tie: 20 seeds do not tell which of amp (410 ms) and pipeline (")
    assert "Next comes sequential in 1.39 s" in said
    assert said.endswith("--repeats 40 can tell more.")
    assert best_rows(table) == called_rows(table) == [1, 2]


def test_one_seed_says_what_to_type_to_be_surer(make_table):
    table = ranked(make_table(), [None] * 3, [NAN] * 3, repeats=1)
    said = verdict(table, 0.97)
    assert said.endswith(" One seed does not say how sure this order is; --repeats 6 can.")
    assert best_rows(table) == called_rows(table) == []


def test_a_first_row_that_is_best_has_a_next_one_too(make_table):
    table = ranked(make_table(time_to_target_s=[0.2, 0.9, 0.41]), [False] * 3, [NAN, 0.0, 0.04])
    said = verdict(table, 0.97)
    assert said.startswith(
        "sequential reaches 97 % first, in 200 ms, although amp trains 4.1 times"
    )
    assert "Next comes amp in 410 ms" in said and "4.00 %" in said
