"""The interval of order statistics, against the binomial distribution by hand."""

import math

import pytest

from ampsim.runs.rows import Interval, median_interval, time_by_formula


@pytest.mark.parametrize(
    ("count", "rank", "coverage"),
    [
        (2, 1, 1 - 2 * 1 / 4),
        (3, 1, 1 - 2 * 1 / 8),
        (5, 1, 1 - 2 * 1 / 32),
        (7, 1, 1 - 2 * 1 / 128),
        (8, 2, 1 - 2 * (1 + 8) / 256),
        (10, 2, 1 - 2 * (1 + 10) / 1024),
        (11, 3, 1 - 2 * (1 + 11 + 55) / 2048),
    ],
)
def test_the_tightest_ranks_that_cover_nine_tenths_are_taken(count, rank, coverage):
    values = [float(value) for value in range(count, 0, -1)]
    interval = median_interval(values)
    assert (interval.low, interval.high) == (rank, count + 1 - rank)
    assert interval.middle == (count + 1) / 2
    assert interval.coverage == pytest.approx(coverage, abs=1e-15)


def test_less_coverage_wanted_gives_a_tighter_interval():
    assert median_interval([1, 2, 3, 4, 5, 6, 7, 8], wanted=0.7) == Interval(4.5, 3, 6, 182 / 256)


def test_one_run_has_a_median_and_no_interval():
    assert median_interval([4.0]) == Interval(4.0, None, None, 0.0)
    assert median_interval([math.inf]) == Interval(None, None, None, 0.0)


def test_no_run_has_nothing():
    assert median_interval([]) == Interval(None, None, None, 0.0)


@pytest.mark.parametrize(
    ("values", "middle", "low", "high"),
    [
        ([1.0, 2.0, math.inf], 2.0, 1.0, None),
        ([1.0, math.inf], None, 1.0, None),
        ([1.0, 2.0, math.inf, math.inf], None, 1.0, None),
        ([math.inf] * 3, None, None, None),
    ],
)
def test_runs_that_did_not_get_there_are_infinite_and_unknown(values, middle, low, high):
    interval = median_interval(values)
    assert (interval.middle, interval.low, interval.high) == (middle, low, high)


def test_the_papers_formula_adds_training_and_validation():
    assert time_by_formula(3, (100, 50.0), (20, 40.0)) == 3 * (2.0 + 0.5)
