"""The rank of a forecast's rows: what few seeds may say, and what they may not."""

from __future__ import annotations

import itertools
import math
from statistics import median

import numpy as np
import pytest

from ampsim.runs.ranking import (
    DRAWS,
    SAME,
    Ranking,
    Sureness,
    coin,
    columns_of,
    draws_of,
    rank,
    seeds_needed,
)
from ampsim.runs.rows import table_of

INF = math.inf


def times(*values):
    return dict(enumerate(values))


def standings_of(rows, sureness=None):
    made = rank(rows, sureness)
    assert made is not None
    return made.standings


def flip_of(made: Ranking | None, place: int) -> float | None:
    assert made is not None
    pair = made.pairs[place]
    assert pair is not None
    return pair.flip


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
    assert flip_of(made, 1) == pytest.approx(flip_by_enumeration(best, other), rel=1e-12)


@pytest.mark.parametrize("trial", range(4))
def test_that_any_other_is_not_behind_is_the_share_of_all_draws(trial):
    """Of three that are near the best, each may be first: the largest of their flips says less."""
    rows = np.random.default_rng(trial).normal(3.0, 0.5, (4, 5))
    made = rank([times(*row) for row in rows])
    assert made is not None and made.flip is not None
    best, others = rows[made.best], np.delete(rows, made.best, axis=0)
    draws = list(itertools.product(range(5), repeat=5))
    flips = sum(
        any(median(best[[*draw]]) >= median(row[[*draw]]) for row in others) for draw in draws
    )
    assert made.flip == pytest.approx(max(flips / len(draws), 0.5**5), rel=1e-12)
    assert made.flip >= max(pair.flip or 0.0 for pair in made.pairs if pair)
    alone = rank([times(row[0]) for row in rows])
    assert alone is not None and alone.flip is None


@pytest.mark.parametrize("trial", range(6))
def test_the_ends_of_a_speed_up_are_those_of_all_draws_and_unknown_where_nobody_arrives(trial):
    """A row that seldom arrives had an interval of 0 to 0, and one of which the first, too, did
    not, of 1 to 1."""
    random = np.random.default_rng(trial)
    first, row = random.normal([[8.0], [6.0]], 2.0, (2, 5))
    first[: trial % 3], row[trial // 2 :] = INF, INF
    made = rank([times(*first), times(*row), times(*range(5))])
    told = columns_of(made, 3)[1]
    medians = [
        tuple(median(one[[*draw]]) for one in (first, row))
        for draw in itertools.product(range(5), repeat=5)
    ]
    low, high = (
        sorted(unknown if a == b == INF else a / b for a, b in medians)[place]
        for unknown, place in ((0.0, 156), (INF, 2968))  # of 3125, those of 5 % and 95 %
    )
    assert told["speed_up_low"] == pytest.approx(low, rel=1e-12)
    is_known = 0 < high < INF
    assert told["speed_up_high"] == (pytest.approx(high, rel=1e-12) if is_known else None)


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


def test_a_single_row_and_rows_that_never_arrive_say_nothing():
    assert rank([times(1.0, 2.0)]) is None
    assert rank([{0: 1.0, 1: 2.0}, {2: 1.0, 3: 2.0}]) is None  # no seed in common
    assert rank([times(INF, INF, 1.0), times(INF, INF, INF)]) is None


def test_seeds_that_agree_call_no_more_than_a_coin_might():
    for seeds in range(2, 9):
        made = rank([times(*range(seeds)), times(*(one + 10 for one in range(seeds)))])
        assert made is not None
        assert flip_of(made, 1) == coin(seeds) == 0.5**seeds
        is_called = made.answer == "first"
        assert is_called == (seeds >= seeds_needed(2)) == (seeds >= 5)


@pytest.mark.parametrize("trial", range(40))
def test_no_time_of_a_run_that_was_lost_makes_a_call_wrong(trial):
    """It may have taken none, and never have arrived: all that is said bears both, and any."""
    random = np.random.default_rng(trial)
    seeds, count = int(random.integers(6, 12)), int(random.integers(2, 5))
    rows = [times(*random.lognormal(place / 2, 0.2, seeds)) for place in range(count)]
    lost = random.choice(seeds, trial % 3 + 1, replace=False).tolist()
    gone = [(int(random.integers(count)), seed) for seed in lost]
    some = rank([{s: t for s, t in of.items() if (p, s) not in gone} for p, of in enumerate(rows)])
    assert some is not None
    for ends in itertools.product((0.0, 1.5, INF), repeat=len(gone)):
        for (place, seed), time_s in zip(gone, ends, strict=True):
            rows[place][seed] = time_s
        whole = rank(rows)
        assert whole is not None
        called = (some.answer, some.best)
        assert some.answer == "too few seeds" or (whole.answer, whole.best) == called
        for before, after in zip(some.pairs, whole.pairs, strict=True):
            if before is None or after is None or whole.best != some.best:
                continue
            assert (before.flip or 0) >= (after.flip or 0) - 1e-12
            if before.low is not None and before.high is not None:
                assert before.low <= (after.low or 0) and (after.high or INF) <= before.high


def test_a_row_that_lost_the_seeds_with_which_it_is_late_is_not_called_first():
    """Of a row that is sooner where it arrives, and does so with six seeds of ten, a limit left
    these six: by them it was first, though its median is infinite."""
    sooner, other = times(*range(10, 16)), times(*range(20, 30))
    assert standings_of([sooner, {seed: other[seed] for seed in sooner}])[0] == "first"
    assert standings_of([sooner, other]) == ("too few seeds", "too few seeds")


def test_rows_with_one_median_flip_with_a_half():
    made = rank([times(1, 2, 3, 4, 5, 3), times(2, 1, 3, 5, 4, 3), times(*range(11, 17))])
    assert made is not None
    assert made.best == 0 and flip_of(made, 1) == 0.5
    assert made.standings == ("too few seeds", "too few seeds", "behind")


def test_a_row_that_seldom_arrives_is_behind_one_that_does():
    made = rank([times(INF, INF, INF, INF, 1.0), times(2.0, 2.1, 2.2, 2.3, 2.4)])
    assert made is not None and made.best == 1
    flip = flip_of(made, 0)
    assert flip is not None and 0.05 < flip < 0.1  # three of five draws of one
    assert made.standings == ("too few seeds", "too few seeds")


def test_levels_are_holms():
    """The clearest of two others needs half of the level, the other one all of it."""
    best = times(*range(6))
    far = times(*(one + 10 for one in range(6)))
    sure = Sureness(1 - 2 * 2 * coin(6))  # half of the tail is what six seeds can say
    assert standings_of([best, far, far], sure) == ("first", "behind", "behind")
    surer = Sureness(1 - 2 * 2 * coin(6) + 1e-9)
    assert standings_of([best, far, far], surer) == ("too few seeds",) * 3


@pytest.mark.parametrize(("count", "seeds"), [(5, 8), (9, 16), (6, 7)])
def test_who_alone_arrives_is_as_sure_as_a_coin_of_the_seeds_with_which_it_does(count, seeds):
    """Draws in which it does not arrive either were flips: it was first beside a doubt of 0.34."""
    made = rank([times(*[INF] * seeds), times(*range(count), *[INF] * (seeds - count))])
    assert made is not None and made.answer == "first"
    assert made.flip == flip_of(made, 0) == coin(count)


def test_a_draw_in_which_neither_arrives_is_a_flip_of_two_that_sometimes_do():
    first, other = [1.0, 2.0, 3.0, 4.0, INF, INF, INF], [5.0, 6.0, 7.0, 8.0, INF, INF, INF]
    made = rank([times(*first), times(*other)])
    assert made is not None and made.answer == "too few seeds"
    neither = sum(math.comb(7, k) * (3 / 7) ** k * (4 / 7) ** (7 - k) for k in range(4, 8))
    assert made.flip == flip_of(made, 1) == pytest.approx(neither, rel=1e-12)


AMP, LATE = (8.0, 8.1, 8.2, 8.3, 8.4, 8.5), (21.0, 21.1, 21.2, 21.3, 21.4, 21.5)
NEAR = tuple(one * 1.01 for one in AMP)
NEVER, SOME = (INF,) * 6, (INF, INF, INF, INF, 9.0, 9.1)
WIDE = (4.0, 30.0, 6.0, 20.0, 9.0, 8.2)
OUTCOMES = {
    "all others are behind": ((LATE, AMP), ("behind", "first"), None),
    "who never arrives ties with nobody": (
        (LATE, NEVER, AMP), ("behind", "not reached", "first"), None
    ),
    "who never arrives costs no seed": (
        (LATE[:5], NEVER[:5], AMP[:5]), ("behind", "not reached", "first"), None
    ),
    "one alone arrives": ((NEVER, AMP, NEVER), ("not reached", "first", "not reached"), None),
    "one alone arrives, with four seeds": (
        (NEVER[:4], AMP[:4]), ("not reached", "too few seeds"), 5
    ),
    "alike within 1 %": ((AMP, NEAR, LATE), ("tie", "tie", "behind"), None),
    "equal times": ((AMP, AMP), ("tie", "tie"), None),
    "equal times of too few seeds": ((AMP[:4], AMP[:4]), ("too few seeds",) * 2, 5),
    "one alone arrives, with three of five seeds": (
        ((*AMP[:3], INF, INF), NEVER[:5]), ("too few seeds", "not reached"), 10
    ),
    "one alone arrives, with five of eight seeds": (
        ((*AMP[:5], INF, INF, INF), (INF,) * 8), ("first", "not reached"), None
    ),
    "equal times, and one seed with which neither arrives": (
        ((*AMP[:4], INF), (*AMP[:4], INF)), ("too few seeds",) * 2, 6
    ),
    "one seed": ((LATE[:1], AMP[:1], NEVER[:1]), ("too few seeds", "too few seeds", "not reached"),
                 5),
    "no time passes": (((0.0,) * 6, (0.0,) * 6), ("tie", "tie"), None),
    "three seeds that agree": ((LATE[:3], AMP[:3], NEVER[:3]),
                               ("too few seeds", "too few seeds", "not reached"), 5),
    "times that cross": ((AMP, WIDE, LATE), ("too few seeds", "too few seeds", "behind"), 1000),
    "some arrive, most do not": ((AMP, SOME), ("first", "behind"), None),
    "one of two is alike, the other open": (
        (AMP, NEAR, WIDE), ("too few seeds", "tie", "too few seeds"), 1000
    ),
    "one is not compared": ((AMP, None, LATE), ("first", "not compared", "behind"), None),
}  # fmt: skip


@pytest.mark.parametrize("name", OUTCOMES)
def test_every_outcome_has_its_answer(name):
    rows, standings, needed = OUTCOMES[name]
    for order in itertools.permutations(range(len(rows))):
        made = rank([None if rows[place] is None else times(*rows[place]) for place in order])
        assert made is not None
        assert made.standings == tuple(standings[place] for place in order)
        assert made.answer == standings[order[made.best]]
        if needed is None:
            assert made.seeds_needed is None
        else:
            assert made.seeds_needed is not None
            assert made.seeds < made.seeds_needed <= max(needed, 5)
            assert made.seeds_needed == needed or made.seeds >= 5


def test_nobody_arrives():
    assert rank([times(*NEVER), times(*NEVER)]) is None
    assert rank([times(*SOME), times(*NEVER)]) is None


def test_the_table_says_what_the_ranking_does():
    made = rank([times(*LATE), times(*NEVER), times(*AMP)])
    table = table_of(columns_of(made, 3))
    assert table["standing"].tolist() == ["behind", "not reached", "first"]
    assert table["is_tied_with_best"].tolist() == [False, False, False]
    assert table["time_ratio"].iloc[0] == pytest.approx(21.25 / 8.25)
    assert math.isnan(table["time_ratio"].iloc[1]) and table["time_ratio"].iloc[2] == 1.0
    assert (table["time_ratio_low"] <= table["time_ratio"]).iloc[0]


def test_a_tie_needs_the_whole_interval_within_the_margin():
    wide = times(*(one * 1.04 for one in AMP[:5]), AMP[5] * 1.2)
    made = rank([times(*AMP), wide])
    assert made is not None and made.pairs[1] is not None
    pair = made.pairs[1]
    assert pair.ratio < 1 + SAME < (pair.high or 0)
    assert pair.standing != "tie"


@pytest.mark.parametrize(
    ("seeds", "looks", "answer"),
    [(4, 1, "too few seeds"), (5, 1, "tie"), (5, 2, "too few seeds"), (6, 2, "tie")],
)
def test_rows_may_tie_from_five_seeds_on_and_from_more_with_more_looks(seeds, looks, answer):
    alike = times(*(one * 1.01 for one in AMP[:seeds]))
    made = rank([times(*AMP[:seeds]), alike], Sureness(0.9, looks))
    assert made is not None and made.answer == answer and made.pairs[1] is not None
    assert (made.pairs[1].low is None) is (seeds < 5)


def test_the_seeds_that_are_needed_are_just_enough():
    for rows, looks in itertools.product((2, 3, 6, 11), (1, 2, 3)):
        sureness = Sureness(0.9, looks)
        seeds = seeds_needed(rows, sureness)
        for count, is_called in ((seeds, True), (seeds - 1, False)):
            others = [times(*(one + 9 for one in range(count))) for _ in range(rows - 1)]
            made = rank([times(*(one / 100 for one in range(count))), *others], sureness)
            assert made is not None and (made.answer == "first") is is_called
            assert made.seeds_needed == (None if is_called else seeds)


def test_with_the_seeds_that_are_needed_an_interval_is_just_narrow_enough():
    """Its wider side, shrunk by the root of their number, leaves 1 out, or lies within the margin.

    Four of five cases take ((1.645 + 0.842) / 1.645)² = 2.3 times as many as just suffice.
    """
    random, asked = np.random.default_rng(0), 0
    for lead in (0.0, 0.02, 0.06) * 8:
        rows = [times(*np.exp(random.normal(by, 0.1, 9))) for by in (0.0, lead)]
        made = rank(rows)
        assert made is not None
        pair = next(one for one in made.pairs if one is not None)
        if made.seeds_needed is None or made.seeds_needed <= 10:
            continue
        ratio, low, high = (math.log(one or math.nan) for one in (pair.ratio, pair.low, pair.high))
        wide, allowed = max(ratio - low, high - ratio), max(ratio, math.log(1 + SAME) - ratio)
        enough, fewer = (wide * math.sqrt(2.3 * 9 / (made.seeds_needed - by)) for by in (0, 1))
        assert enough <= allowed < fewer
        asked += 1
    assert asked > 10


def test_a_speed_up_has_an_interval_from_five_seeds_on():
    first, row = times(2.0, 2.2, 2.4, 2.6, 2.8), times(1.0, 1.1, 1.2, 1.3, 1.4)
    made = rank([first, row])
    assert made is not None and made.speed_ups[0] is None
    assert made.speed_ups[1] == (pytest.approx(2.0), pytest.approx(2.0))
    few = rank([times(2.0, 2.2), times(1.0, 1.1)])
    assert few is not None and few.speed_ups == (None, None)


def test_the_interval_of_a_speed_up_knows_of_looks_as_that_of_a_ratio_does():
    random = np.random.default_rng(1)
    rows = [times(*np.exp(random.normal(by, 0.3, 20))) for by in (0.2, 0.0)]
    once, often = (rank(rows, Sureness(looks=looks)) for looks in (1, 5))
    assert once is not None and often is not None
    for made in (once, often):
        pair = made.pairs[0]  # the first is not the best: its ratio is the best's speed-up
        assert pair is not None and made.speed_ups[1] == (pair.low, pair.high)
    assert often.speed_ups[1] != once.speed_ups[1]


def test_the_same_times_give_the_same_rank():
    rows = [times(*np.random.default_rng(place).random(20)) for place in range(3)]
    assert rank(rows) == rank(rows)
