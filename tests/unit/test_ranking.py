"""The rank of a forecast's rows: what few seeds may say, and what they may not."""

from __future__ import annotations

import itertools
import math
from statistics import median

import numpy as np
import pytest

from ampsim.study.bootstrap import DRAWS, draws_of
from ampsim.study.ranking import Sureness, coin, rank, seeds_needed

INF = math.inf


def times(*values):
    return dict(enumerate(values))


def ties_of(rows, sureness):
    made = rank(rows, sureness)
    assert made is not None
    return made.ties


def flip_by_enumeration(best, other):
    """Every way to draw the seeds again, one after the other, with the same draw for both."""
    seeds = len(best)
    draws = list(itertools.product(range(seeds), repeat=seeds))
    flips = sum(
        median(best[seed] for seed in draw) >= median(other[seed] for seed in draw)
        for draw in draws
    )
    return max(flips / len(draws), 0.5**seeds)


@pytest.mark.parametrize("seeds", [2, 3, 4, 5])
@pytest.mark.parametrize("trial", range(4))
def test_a_flip_of_few_seeds_is_the_share_of_all_draws(seeds, trial):
    random = np.random.default_rng([seeds, trial])
    rows = random.normal([[3.0], [3.6]], 1.0, (2, seeds)).round(1 if trial % 2 else 6)
    if trial == 3:
        rows[1][0] = INF
    best, other = sorted(rows.tolist(), key=median)
    if median(best) == median(other):
        pytest.skip("a tie, whose flip is a half by definition")
    made = rank([times(*best), times(*other)])
    assert made is not None and made.best == 0
    assert made.flips == (None, pytest.approx(flip_by_enumeration(best, other), rel=1e-12))


def test_many_seeds_are_drawn_as_the_closed_form_of_the_median_says():
    """The bootstrap's median of n distinct values is at most the k-th with a binomial probability.

    At least (n + 1) / 2 of n draws must fall on the k smallest (Efron 1979, Section 3).
    """
    seeds = 21
    medians = draws_of(seeds).medians(range(seeds))
    for k in range(6, 16):
        exact = sum(
            math.comb(seeds, count) * (k / seeds) ** count * (1 - k / seeds) ** (seeds - count)
            for count in range(seeds // 2 + 1, seeds + 1)
        )
        error = 4 * math.sqrt(exact * (1 - exact) / DRAWS)
        assert np.mean(medians < k) == pytest.approx(exact, abs=error)


def test_a_single_seed_and_a_single_row_say_nothing():
    assert rank([times(1.0), times(2.0)]) is None
    assert rank([times(1.0, 2.0)]) is None
    assert rank([{0: 1.0, 1: 2.0}, {2: 1.0, 3: 2.0}]) is None  # no seed in common
    assert rank([times(INF, INF, 1.0), times(INF, INF, INF)]) is None


def test_seeds_that_agree_call_no_more_than_a_coin_might():
    for seeds in range(2, 9):
        made = rank([times(*range(seeds)), times(*(one + 10 for one in range(seeds)))])
        assert made is not None
        assert made.flips[1] == coin(seeds) == 0.5**seeds
        assert made.is_called == (seeds >= seeds_needed(2)) == (seeds >= 5)


def test_only_seeds_that_all_rows_have_count():
    whole = rank([{0: 1.0, 1: 2.0, 2: 3.0}, {0: 2.0, 1: 1.0, 2: 4.0}])
    more = rank([{0: 1.0, 1: 2.0, 2: 3.0, 9: 0.0}, {0: 2.0, 1: 1.0, 2: 4.0, 8: 0.0}])
    assert whole == more


def test_rows_with_one_median_tie():
    made = rank([times(1, 2, 3, 4, 5), times(1, 2, 3, 4, 5), times(*range(11, 16))])
    assert made is not None
    assert made.flips[1] == 0.5 and made.ties[:2] == (True, True)


def test_a_row_that_seldom_arrives_is_behind_one_that_does():
    made = rank([times(INF, INF, INF, INF, 1.0), times(2.0, 2.1, 2.2, 2.3, 2.4)])
    assert made is not None and made.best == 1
    assert made.flips[0] is not None and 0.05 < made.flips[0] < 0.1  # three of five draws of one
    assert made.ties == (True, True)


def test_levels_are_holms():
    """The clearest of two others needs half of the level, the other one all of it."""
    best = times(*range(6))
    far = times(*(one + 10 for one in range(6)))
    sure = Sureness(1 - 2 * 2 * coin(6))  # half of the tail is what six seeds can say
    assert ties_of([best, far, far], sure) == (False, False, False)
    surer = Sureness(1 - 2 * 2 * coin(6) + 1e-9)
    assert ties_of([best, far, far], surer) == (True, True, True)


def test_the_seeds_that_are_needed_are_just_enough():
    for rows, looks in itertools.product((2, 3, 6, 11), (1, 2, 3)):
        sureness = Sureness(0.9, looks)
        seeds = seeds_needed(rows, sureness)
        for count, is_called in ((seeds, True), (seeds - 1, False)):
            others = [times(*(one + 9 for one in range(count))) for _ in range(rows - 1)]
            made = rank([times(*(one / 100 for one in range(count))), *others], sureness)
            assert made is not None and made.is_called is is_called


def test_a_speed_up_has_an_interval_from_five_seeds_on():
    first, row = times(2.0, 2.2, 2.4, 2.6, 2.8), times(1.0, 1.1, 1.2, 1.3, 1.4)
    made = rank([first, row])
    assert made is not None and made.speed_ups[0] is None
    assert made.speed_ups[1] == (pytest.approx(2.0), pytest.approx(2.0))
    few = rank([times(2.0, 2.2), times(1.0, 1.1)])
    assert few is not None and few.speed_ups == (None, None)


def test_the_same_times_give_the_same_rank():
    rows = [times(*np.random.default_rng(place).random(20)) for place in range(3)]
    assert rank(rows) == rank(rows)
