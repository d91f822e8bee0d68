"""The verdict is honest in every outcome, in at most two sentences."""

from __future__ import annotations

import itertools
import math
import re

import pandas as pd
import pytest

from ampsim.metric import Metric
from ampsim.report.verdict import called_rows, verdict
from ampsim.runs.executor import overdue
from ampsim.runs.ranking import Sureness, columns_of, rank

NAN, INF = float("nan"), math.inf
NAMES = ("sequential", "pipeline", "amp", "gpipe")


def sentences(said: str) -> int:
    return len(re.findall(r"\.(?= [A-Z0-9]|$)", said))


def judged(make_table, *times, apart=(), sureness=None, **changes):
    """A table of rows with these times by seed, ranked as a forecast ranks them."""
    rows = [dict(enumerate(one)) for one in times]
    made = rank([None if place in apart else row for place, row in enumerate(rows)], sureness)
    middles = [sorted(one)[len(one) // 2] for one in times]
    columns = {
        "schedule": NAMES[: len(times)],
        "max_active_keys": [1, 8, 8, 8][: len(times)],
        "train_per_s": [508e3, 1.27e6, 2.08e6, 1.2e6][: len(times)],
        "staleness_mean": [0.0, 0.0, 2.3, 0.0][: len(times)],
        "best_accuracy": [0.98 if min(one) < INF else 0.104 for one in times],
        "time_to_target_s": [NAN if math.isinf(one) else one for one in middles],
        "epochs_to_target": [8.0] * len(times),
        "repeats": [len(one) for one in times],
        "repeats_reached": [sum(map(math.isfinite, one)) for one in times],
        "is_draining_pipeline": [False, True, False, True][: len(times)],
        **changes,
    }
    ranked = pd.DataFrame(columns_of(made, len(rows)))
    for place in apart:
        ranked.loc[place, "standing"] = "not compared"
    return pd.DataFrame(columns).join(ranked)


def near(middle: float, seeds: int, spread: float = 0.01) -> list[float]:
    return [middle * (1 + spread * (place - seeds // 2) / seeds) for place in range(seeds)]


def test_the_first_is_compared_with_the_next_and_the_best_pipeline_that_drains(make_table):
    table = judged(make_table, near(1.0, 8), near(3.0, 8), near(0.5, 8), near(2.0, 8))
    said = verdict(table, 0.97)
    assert said == (
        "With 8 seeds, amp reaches 97 % first, in 500 ms: 2.00 times (2.00 to 2.00) as soon as the "
        "next, sequential, and 4.00 times (4.00 to 4.00) as soon as the best pipeline that "
        "drains, gpipe."
    )
    assert called_rows(table) == [2]


def test_the_next_may_be_the_best_pipeline_that_drains(make_table):
    said = verdict(judged(make_table, near(3.0, 8), near(1.0, 8), near(0.5, 8)), 0.97)
    assert said.endswith(" as soon as the next and the best pipeline that drains, pipeline.")


def test_a_pipeline_that_is_first_is_compared_with_the_next(make_table):
    said = verdict(judged(make_table, near(3.0, 8), near(0.5, 8), near(1.0, 8)), 0.97)
    assert said.startswith("With 8 seeds, pipeline reaches 97 % first, in 500 ms: 2.00 times")
    assert said.endswith(" as soon as the next, amp.")


def test_who_never_arrives_is_named_and_ties_with_nobody(make_table):
    table = judged(make_table, near(21.6e-3, 6), [INF] * 6, near(8.86e-3, 6))
    said = verdict(table, 0.97)
    assert said == (
        "With 6 seeds, amp reaches 97 % first, in 8.86 ms: 2.44 times (2.44 to 2.44) as soon as "
        "the next, sequential. 97 % is not reached by pipeline (best 10.4 %)."
    )
    assert called_rows(table) == [2]


def test_a_tie_says_within_which_ratios(make_table):
    table = judged(make_table, near(3.0, 8), near(1.0, 8), near(0.5, 8), near(0.505, 8))
    said = verdict(table, 0.97)
    assert said == (
        "With 8 seeds, amp (500 ms) and gpipe (505 ms) tie: they reach 97 % within 5 % of each "
        "other's time (ratios of 1.01 to 1.01). Of these amp is 2.00 times (2.00 to 2.00) as soon "
        "as the next and the best pipeline that drains, pipeline."
    )
    assert called_rows(table) == [2, 3]


def test_too_few_seeds_say_how_many_would_do(make_table):
    table = judged(make_table, near(21.6e-3, 3), [INF] * 3, near(8.86e-3, 3))
    said = verdict(table, 0.97)
    assert said == (
        "3 seeds are too few to say which of amp (8.86 ms) and sequential (21.6 ms) reaches 97 % "
        "first; about 5 would do, and fewer rank nothing. 97 % is not reached by pipeline (best "
        "10.4 %)."
    )
    assert called_rows(table) == []
    assert "tie" not in said


def test_one_seed_calls_nothing(make_table):
    table = judged(make_table, [1.45e-3], [9.0e-3], [1.449e-3])
    said = verdict(table, 0.97)
    assert said.startswith("1 seed is too few to say which of amp (1.45 ms), sequential (1.45 ms)")
    assert said.endswith("first; about 6 would do, and fewer rank nothing.")
    assert "instead of" not in said
    assert called_rows(table) == []


@pytest.mark.parametrize("count", [4, 7])
def test_seeds_are_those_by_which_rows_are_compared(make_table, count):
    """A run may give nothing, as its process dies, and then its row has fewer than others."""
    said = verdict(judged(make_table, near(1.0, 8), near(2.0, count)), 0.97)
    assert said.startswith(f"{count} seeds are too few" if count < 5 else f"With {count} seeds, ")
    assert ("about 5 would do, and fewer rank nothing." in said) == (count < 5)


@pytest.mark.parametrize(("sure", "looks", "least"), [(0.6, 1, 3), (0.9, 3, 6), (0.99, 1, 8)])
def test_seeds_of_which_fewer_rank_nothing_are_as_many_as_being_that_sure_takes(
    make_table, sure, looks, least
):
    for count in (least - 1, least):
        times = [[1.0, 9.0] * 4, [2.0, 1.0] * 4]
        table = judged(make_table, *(of[:count] for of in times), sureness=Sureness(sure, looks))
        said = verdict(table, 0.97, manifest={"sure": sure, "looks": looks, "seeds": []})
        assert said.startswith(f"{count} seeds are too few to say")
        told = f"about {least} would do, and fewer rank nothing" in said
        assert (told, "in the median" in said.lower()) == (count < least, count >= least)


def test_a_ratio_that_seeds_bound_on_neither_side_is_said_so(make_table):
    here = [1.0, INF, 1.0, INF, 1.0, 1.0]
    there = [INF, 2.0, INF, 2.0, 2.0, 2.0]
    table = judged(make_table, [*near(9.0, 6)], there, here)
    assert table["time_ratio_low"].tolist()[1] == 0.0
    assert math.isnan(table["time_ratio_high"].tolist()[1])
    said = verdict(table, 0.97)
    assert "2.00 times (with these seeds it may be any other) as soon as" in said
    assert "0.00" not in said


@pytest.mark.parametrize("is_earlier_first", [True, False])
@pytest.mark.parametrize("third", [[2.0] * 7, [1.0, 0.5, 2.0, 0.4, 3.0, 1.1, 0.9]])
def test_of_equal_medians_the_verdict_names_that_which_others_were_compared_with(
    make_table, is_earlier_first, third
):
    earlier, later = [0.998, *[1.0] * 6], [0.999, *[1.0] * 6]
    pair = (earlier, later) if is_earlier_first else (later, earlier)
    table = judged(make_table, *pair, third)
    said = verdict(table, 0.97)
    assert "nan" not in said
    is_open = "too few seeds" in table["standing"].tolist()
    assert (" tie: " in said, " too few to say " in said) == (not is_open, is_open), said
    assert called_rows(table) == ([] if is_open else [0, 1])


def test_a_row_is_no_multiple_of_one_that_arrives_but_with_the_seeds_that_all_have(make_table):
    """Its own median is known; of the six seeds that another row has, half do not arrive."""
    table = judged(make_table, [1.0] * 7, [INF] * 3 + [2.0] * 4, near(3.0, 6))
    said = verdict(table, 0.97, manifest={"shared_seeds": 6})
    assert said.startswith("With 6 seeds, sequential reaches 97 % first, in 1.00 s: 3.00 times")
    assert "nan" not in said


def test_a_row_whose_runs_all_failed_has_no_best(make_table):
    times = near(2.0, 6), [INF] * 6, near(1.0, 6)
    said = verdict(judged(make_table, *times, best_accuracy=[0.98, NAN, 0.98]), 0.97)
    assert said.endswith(" 97 % is not reached by pipeline (no run was validated).")


def test_one_that_arrives_alone(make_table):
    sure = verdict(judged(make_table, [INF] * 6, [INF] * 6, near(0.5, 6)), 0.97)
    assert sure.startswith("With 6 seeds, amp reaches 97 % alone, in 500 ms. 97 % is not reached")
    open_ = verdict(judged(make_table, [INF] * 2, [INF] * 2, near(0.5, 2)), 0.97)
    assert open_.startswith("2 seeds are too few to say that amp (500 ms) alone reaches 97 %; ")


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("not tuned (no trial reached 97 %): 0.125", "not tuned as no trial reached 97 %"),
        ("linear: 8 averaged gradients", "it diverged at the learning rate that the scaling rule"),
    ],
)
def test_a_row_that_must_not_be_compared_is_neither_the_next_nor_the_first(make_table, rule, why):
    for place in range(3):
        times = [near(3.0, 8), near(2.0, 8), near(1.0, 8)]
        rules = ["as given"] * 3
        rules[place] = rule
        table = judged(make_table, *times, apart=[place], learning_rate_rule=rules)
        said = verdict(table, 0.97)
        assert f". Not compared: {NAMES[place]} ({why}" in said
        first = said.partition(". ")[0]
        assert NAMES[place] not in first
        assert place not in called_rows(table)


TIMES = {
    "soon": near(0.5, 6), "as soon": near(0.502, 6), "late": near(2.0, 6), "never": [INF] * 6,
    "seldom": [INF] * 4 + [0.5] * 2, "wide": [0.1, 9.0, 0.3, 5.0, 0.6, 2.0],
}  # fmt: skip


@pytest.mark.parametrize("seeds", [1, 3, 6])
@pytest.mark.parametrize("first", TIMES)
def test_a_verdict_has_two_sentences_at_most_and_agrees_with_the_table(make_table, first, seeds):
    for kinds in itertools.product([first], TIMES, TIMES):
        table = judged(make_table, *(TIMES[kind][:seeds] for kind in kinds))
        said = verdict(table, 0.97)
        assert 1 <= sentences(said.replace("NaN", "")) <= 2, said
        assert "nan" not in said and "instead of" not in said
        standings = set(table["standing"].dropna())
        assert ("tie:" in said) == ("tie" in standings and "too few seeds" not in standings), said
        assert (" too few to say " in said) == ("too few seeds" in standings), said
        assert seeds == 6 or not re.search(r"as soon as|In the median", said), said
        assert bool(re.search(r" first, in | alone, in ", said)) == ("first" in standings), said
        bold = {str(table["schedule"].iloc[place]) for place in called_rows(table)}
        assert all(name in said for name in bold), said


def test_nobody_reaching_the_target_is_said_with_the_closest(make_table):
    table = make_table(time_to_target_s=[NAN] * 3, best_accuracy=[0.9, 0.951, 0.94])
    assert verdict(table, 0.97) == (
        "amp trains 2.08 M/s: 1.61 times as fast as the next, pipeline (1.29 M/s), with a mean "
        "staleness of 2.3 updates. No schedule reached 97 %; pipeline came closest with 95.1 %."
    )


@pytest.mark.parametrize(
    ("best", "who"),
    [
        ([0.951, 0.951, 0.94], "sequential and pipeline"),
        ([0.94] * 3, "sequential, pipeline and amp"),
        ([NAN, 0.94, 0.94], "pipeline and amp"),
    ],
)
def test_of_rows_that_come_as_close_each_is_named(make_table, best, who):
    table = make_table(time_to_target_s=[NAN] * 3, best_accuracy=best)
    assert f" No schedule reached 97 %; {who} came closest with 9" in verdict(table, 0.97)


def test_a_miss_is_not_rounded_to_the_target(make_table):
    table = make_table(time_to_target_s=[NAN] * 3, best_accuracy=[0.9, 0.9697, 0.94])
    assert verdict(table, 0.97).endswith(
        " No schedule reached 97 %; pipeline came closest with 96.97 %."
    )


def test_less_than_half_of_the_runs_reaching_the_target_is_not_nobody(make_table):
    table = make_table(
        time_to_target_s=[NAN] * 3, best_accuracy=[0.971, 0.951, 0.98], repeats_reached=[1, 0, 1]
    )
    assert verdict(table, 0.97).endswith(
        " In the median no schedule reached 97 %; sequential in 1 of 3 repeats only and amp in 1 "
        "of 3 repeats only."
    )


def test_one_schedule_alone_is_not_compared(make_table):
    text = verdict(make_table().iloc[2:], 0.97)
    assert text == (
        "amp trains 2.08 M/s and reaches 97 % in 410 ms, after 8 epochs, with a mean staleness of "
        "2.3 updates."
    )
    missed = make_table(time_to_target_s=[NAN] * 3, best_accuracy=[0.951] * 3).iloc[2:]
    assert verdict(missed, 0.97).endswith("It did not reach 97 %; its best accuracy was 95.1 %.")


def test_one_epoch_is_one_and_a_large_staleness_has_no_exponent(make_table):
    changed = make_table(epochs_to_target=[1.0] * 3, staleness_mean=[0.0, 0.0, 123.4])
    assert verdict(changed.iloc[2:], 0.97).endswith(
        ", after 1 epoch, with a mean staleness of 123 updates."
    )


@pytest.mark.parametrize("target", [None, 0.97])
def test_without_accuracy_only_speed_is_claimed(make_table, target):
    table = make_table(best_accuracy=[NAN] * 3, time_to_target_s=[None] * 3)
    assert verdict(table, target) == (
        "amp trains 2.08 M/s: 1.61 times as fast as the next, pipeline (1.29 M/s). No accuracy was "
        "computed, so time to a target is unknown."
    )
    drained = table.assign(
        is_draining_pipeline=[True, False, False], train_per_s=[508e3, 1.27e6, 1.3e6]
    )
    assert verdict(drained, target).startswith(
        "amp trains 1.30 M/s: about as fast as the next, pipeline (1.27 M/s), and 2.56 times as "
        "fast as the best pipeline that drains, sequential (508 k/s). "
    )


def test_rows_of_which_none_has_a_speed_are_no_multiples_of_each_other(make_table):
    """As where all runs of all rows fail."""
    unknown = {name: [NAN] * 4 for name in ("train_per_s", "staleness_mean", "best_accuracy")}
    table = judged(make_table, *([[INF] * 2] * 4), **unknown)
    assert verdict(table, 0.97) == (
        "No run of any row finished an epoch, so there is nothing to compare."
    )
    assert called_rows(table) == []


def test_a_row_that_arrived_within_its_first_epoch_is_first_though_its_speed_is_unknown(make_table):
    unknown = {"train_per_s": [NAN] * 2}
    table = judged(make_table, [1.0] * 7, [2.0] * 7, **unknown)
    assert " first, in 1.00 s" in verdict(table, 0.97)


def test_without_a_target_no_time_is_claimed(make_table):
    text = verdict(make_table(time_to_target_s=[None] * 3), None)
    speed = "(1.29 M/s), with a mean staleness of 2.3 updates."
    assert text.endswith(f"{speed} 3 seeds rank none of 3 rows by accuracy.")
    enough = verdict(make_table(time_to_target_s=[None] * 3, repeats=[6] * 3), None)
    assert enough.endswith(speed)


def test_rows_of_one_name_are_told_apart_by_what_is_in_flight(make_table):
    table = make_table(
        schedule=["amp", "amp", "amp"], max_active_keys=[1, 4, 8], time_to_target_s=[NAN] * 3
    )
    assert verdict(table, None).startswith("amp, 8 in flight trains 2.08 M/s: 1.61 times as fast")


def test_no_row_is_no_verdict(make_table):
    assert verdict(make_table().iloc[:0], 0.97).startswith("No schedule was finished")


def test_an_error_is_named_with_its_unit(make_table):
    error = Metric("error", "eV")
    errors = {"best_accuracy": [NAN] * 3, "best_error": [5.0, 4.8, 6.0]}
    table = make_table(time_to_target_s=[NAN] * 3, **errors)
    assert verdict(table, 4.6, error).endswith(
        "No schedule reached an error of 4.6 eV; pipeline came closest with 4.8 eV."
    )
    table = judged(make_table, near(3.0, 6), [INF] * 6, near(0.5, 6)).drop(columns="best_accuracy")
    said = verdict(table.assign(best_error=[4.5, 4.8, 4.5]), 4.6, error)
    assert " reaches an error of 4.6 eV first, in 500 ms" in said
    assert said.endswith(" An error of 4.6 eV is not reached by pipeline (best 4.8 eV).")
    nothing = make_table(best_accuracy=[NAN] * 3, time_to_target_s=[NAN] * 3)
    assert "No error was computed" in verdict(nothing, 4.6, error)


def test_rows_that_differ_in_the_middle_of_their_names_are_told_apart(make_table):
    """The widest that a command makes: both numbers of `pipedream-2bw`."""
    names = [f"pipedream-2bw, {held} in flight, update interval 100" for held in (10, 12, 100)]
    table = make_table(time_to_target_s=[NAN] * 3, best_accuracy=[0.951, 0.951, 0.94])
    table["schedule"] = names
    said = verdict(table, 0.97)
    assert {held for held in (10, 12, 100) if f"pipedream-2bw, {held} in fl" in said} >= {10, 12}


def test_it_says_that_seeds_are_left_out_whose_run_took_longer_than_the_limit(make_table):
    """It is the long runs that it ends, such as those that never arrive."""
    table = judged(make_table, near(1.0, 8), near(0.5, 8))
    ended = str(overdue(600.0))
    said = verdict(table, 0.97, manifest={"lost_runs": [f"pipeline, seed 3: {ended}"]})
    caveat = " Medians leave out seeds whose run the limit ended; no call does."
    assert said == verdict(table, 0.97) + caveat
    assert verdict(table, 0.97, manifest={"lost_runs": ["amp, seed 3: was killed"]}) in said
    assert caveat not in verdict(table, 0.97, manifest={"lost_runs": ["amp, seed 3: was killed"]})
