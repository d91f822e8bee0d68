"""Predictions of learning, who is called first by them, and what is learned next."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from ampsim.exploring.cells import Cells, Entrant, Estimate, LeftOut, call, stated_wrong
from ampsim.exploring.making import FirstEpoch
from ampsim.exploring.predicting import Guess, Predictor, Process, probability_below
from ampsim.runs.ranking import rank

EPOCHS = 40


@pytest.mark.parametrize("gap", [0.0, 0.3, 1.0, 4.0, -2.0])
def test_chances_are_those_of_the_closed_forms_of_student(gap):
    cauchy = 0.5 - math.atan(gap / 2.0) / math.pi
    two = 0.5 - (gap / 2.0) / (2 * math.sqrt(2 + (gap / 2.0) ** 2))
    assert probability_below(gap, 2.0, 1) == pytest.approx(cauchy, abs=1e-6)
    assert probability_below(gap, 2.0, 2) == pytest.approx(two, abs=1e-6)
    assert probability_below(gap, 2.0, 400) == pytest.approx(
        0.5 * math.erfc(gap / 2.0 / math.sqrt(2)), abs=1e-3
    )


def drawn(seed: int, count: int = 30, noise: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Places, and values of a Gaussian process at them, with noise."""
    random = np.random.default_rng(seed)
    places = random.uniform(0, 4, (count, 2))
    apart_2 = ((places[:, None] - places[None]) ** 2).sum(2)
    covariance = 0.16 * (np.exp(-apart_2 / 2) + noise * np.eye(count))
    return places, 2.0 + random.multivariate_normal(np.zeros(count), covariance)


def test_guesses_are_the_same_where_last_digits_differ():
    """As they do with other kernels of linear algebra."""
    places, values = drawn(3)
    pairs = [(places * (1 + shift), values[:12] * (1 + shift)) for shift in (0, 3e-15, -1e-14)]
    first, *others = (
        Predictor(at, range(12), known.tolist()).guesses(range(30)) for at, known in pairs
    )
    assert all(one == first for one in others)


def test_guesses_solve_the_equations_of_kriging():
    places, values = drawn(1)
    known, asked = range(8), range(8, 12)
    process = Process(places, tuple(known), tuple(values[:8]), 1.0, 0.1)
    apart_2 = ((places[:, None] - places[None]) ** 2).sum(2)
    alike = np.exp(-apart_2 / 2)
    system = np.ones((9, 9))
    system[:8, :8], system[8, 8] = alike[:8, :8] + 0.1 * np.eye(8), 0.0
    for place, middle, spread in zip(asked, *process.guesses(asked), strict=True):
        near = np.append(alike[place, :8], 1.0)
        weights = np.linalg.solve(system, near)
        assert middle == pytest.approx(weights[:8] @ values[:8])
        left = 1.1 - weights @ near
        scale_2 = spread**2 / left
        mean = np.linalg.solve(system, np.append(values[:8], 0.0))[8]
        away = values[:8] - mean
        square = away @ np.linalg.solve(system[:8, :8], away)
        assert scale_2 == pytest.approx((2 * 0.4**2 + square) / 9)


def test_intervals_cover_what_they_say_and_chances_come_true():
    inside, wrong, expected, count = 0, 0, 0.0, 0
    for seed in range(60):
        places, values = drawn(seed)
        known = list(range(12))
        predictor = Predictor(places, known, values[:12].tolist())
        guesses = predictor.guesses(range(12, 30))
        limit = 2.1
        for value, guess in zip(values[12:], guesses, strict=True):
            low, high = guess.interval(0.9)
            inside += low <= value <= high
            wrong += (value < limit) != (guess.mean < limit)
            expected += probability_below(abs(guess.mean - limit), guess.spread, guess.freedom)
            count += 1
    assert 0.86 < inside / count < 0.94
    assert wrong / count == pytest.approx(expected / count, abs=0.03)


def test_one_more_known_point_takes_the_variance_that_it_was_said_to_take():
    places, values = drawn(3)
    process = Process(places, (0, 1, 2), tuple(values[:3]), 1.0, 0.1)
    told = process.told([7], range(8, 12))[0]
    more = Process(places, (0, 1, 2, 7), (*values[:3], 2.0), 1.0, 0.1)

    after, before = (one.variances(range(8, 12)) for one in (more, process))
    assert after / before == pytest.approx(1 - told)


def method(*, drains: bool, learned: dict[int, list[float]], digests: str, ages: Any) -> Entrant:
    """Points whose first epochs take 1, 2, 4, ... seconds, with two seeds."""
    timed = {
        point: {
            seed: FirstEpoch(2.0**point, 1.0, digest and f"{digest}{seed}", {"linear": age})
            for seed in ((0,) if drains else (0, 1))
        }
        for point, (digest, age) in enumerate(zip(digests, ages, strict=True))
    }
    times = {point: dict(enumerate(of)) for point, of in learned.items()}
    return Entrant(drains, 0, EPOCHS, timed, times)


def test_points_of_one_digest_share_a_learning_in_their_own_time():
    cells = Cells([method(drains=True, learned={1: [6.0, 10.0]}, digests="aaa", ages=[0, 0, 0])])
    assert [cells.estimates[p][0].basis for p in range(3)] == ["shared", "learned", "shared"]
    assert [cells.estimates[p][0].time_s for p in range(3)] == pytest.approx([4.0, 8.0, 16.0])
    assert cells.estimates[2][0].times_s == {0: 12.0, 1: 20.0}


def test_points_whose_other_seeds_part_share_nothing_unless_the_method_drains():
    one = method(drains=False, learned={1: [6.0, 10.0]}, digests="aaa", ages=[1, 1, 2])
    one.timed[2][1] = FirstEpoch(4.0, 1.0, "other", {"linear": 2.0})
    del one.timed[0][1]
    assert [Cells([one]).estimates[p][0].basis for p in range(3)] == [
        "predicted", "learned", "predicted",
    ]  # fmt: skip


def test_a_method_of_no_digest_shares_nothing():
    one = method(drains=True, learned={0: [6.0, 6.0]}, digests=["", ""], ages=[0, 0])  # pyright: ignore[reportArgumentType]  # as good as a text
    assert Cells([one]).estimates[1][0].basis == "predicted"


def test_the_first_is_called_and_doubted_as_far_as_it_is_predicted():
    sure = method(drains=True, learned={0: [4.0, 4.0]}, digests="aaa", ages=[0, 0, 0])
    other = method(
        drains=False, learned={0: [5.0, 5.0], 1: [10.0, 10.0]}, digests="pqr", ages=[1, 2, 8]
    )
    cells = Cells([sure, other])
    assert [cells.calls[p].best for p in range(3)] == [0, 0, 0]
    assert cells.calls[0].wrong == 0
    assert 0 < cells.calls[2].wrong <= 0.5
    assert cells.doubt == cells.calls[2].wrong
    assert cells.next() == (1, 2)
    assert stated_wrong(cells, LeftOut()) == 1.0  # of one point one may be another


def test_the_stated_share_is_what_predictions_expect_times_how_wrong_they_were_and_one_point():
    first = method(drains=True, learned={0: [4.0, 4.0]}, digests="a" * 8, ages=[0] * 8)
    other = method(
        drains=False, learned={0: [5.0, 5.0], 1: [10.0, 10.0]}, digests="pqrstuvw", ages=range(8)
    )
    cells = Cells([first, other])
    expected = sum(cells.calls[point].wrong for point in range(2, 8))
    assert 0 < expected < 2.5
    assert stated_wrong(cells, LeftOut()) == pytest.approx((expected + 1) / 6)
    twice = stated_wrong(cells, LeftOut(cells=4, wrong=3, expected=1.0))
    assert twice == pytest.approx(min((2 * expected + 1) / 6, 1.0))


def test_where_all_known_cells_took_one_epoch_the_next_may_take_two():
    """Of a space that was trained whole, the last of 16 was said to be sure to a millionth."""
    digests, ages = "abcdefghijklmnop", [1.0] * 16
    fast = method(
        drains=False, learned={p: [2.0**p] * 2 for p in range(15)}, digests=digests, ages=ages
    )
    slow = method(drains=True, learned={0: [1.6, 1.6]}, digests="z" * 16, ages=[0] * 16)
    cells = Cells([fast, slow])
    assert cells.estimates[15][0].interval_s[1] == pytest.approx(2.0**15 * 1.42, rel=0.05)
    assert 0.01 < cells.calls[15].wrong < 0.1
    assert stated_wrong(cells, cells.left_out()) == 1.0


def test_a_method_that_nobody_learned_is_learned_first_where_most_learn_the_same():
    sure = method(drains=True, learned={0: [4.0, 4.0]}, digests="aaaa", ages=[0] * 4)
    other = method(drains=False, learned={}, digests="pqqq", ages=[1, 5, 5, 5])
    cells = Cells([sure, other])
    assert cells.calls[0].best is None
    assert cells.next() == (1, 1)


def test_who_does_not_arrive_is_behind_and_two_of_them_name_nobody():
    gone = method(drains=True, learned={0: [math.inf, math.inf]}, digests="aa", ages=[0, 0])
    there = method(drains=True, learned={0: [4.0, 8.0]}, digests="bb", ages=[0, 0])
    cells = Cells([gone, there])
    assert [cells.calls[p].best for p in range(2)] == [1, 1]
    assert cells.estimates[1][0].time_s is None
    assert Cells([gone, gone]).calls[0].best is None


def test_what_is_left_out_is_predicted_from_the_others():
    ages = [1.0, 2.0, 3.0, 4.0, 5.0]
    learned = {p: [4.0 * 2**p] * 2 for p in range(5)}
    learned[4] = [30.0 * 2**4] * 2  # nothing told that it takes so long
    sure = method(drains=True, learned={0: [6.0, 6.0]}, digests="aaaaa", ages=[0] * 5)
    other = method(drains=False, learned=learned, digests="pqrst", ages=ages)
    left = Cells([sure, other]).left_out()
    assert left.cells == 5
    assert left.wrong >= 1
    assert left.inside <= 4


def test_with_more_known_points_a_smooth_field_is_told_better():
    ages = np.linspace(0.5, 8, 12)
    values = {p: math.exp(2 + 0.1 * math.sin(ages[p])) * 2**p for p in range(12)}

    def error(known: list[int]) -> float:
        one = method(
            drains=False, learned={p: [values[p]] * 2 for p in known}, digests="abcdefghijkl",
            ages=ages,
        )  # fmt: skip
        cells = Cells([one])
        times = [cells.estimates[p][0].time_s or math.inf for p in range(12)]
        return max(abs(math.log(t / values[p])) for p, t in enumerate(times))

    errors = [error(known) for known in ([5], [0, 5, 11], [0, 2, 4, 6, 8, 10, 11])]
    assert all(later < earlier for earlier, later in pairwise(errors))


def test_the_call_of_three_methods_joins_their_chances():
    ages = [1.0, 2.0]
    first = method(drains=True, learned={0: [4.0, 4.0]}, digests="aa", ages=[0, 0])
    others = [
        method(drains=False, learned={0: [8.0, 8.0]}, digests=digests, ages=ages)
        for digests in ("pq", "rs")
    ]
    cells = Cells([first, *others])
    called = call(cells.estimates[1])
    assert called.wrong == pytest.approx(1 - (1 - called.others[1]) * (1 - called.others[2]))
    assert called.others[1] == pytest.approx(called.others[2])
    assert called.others[0] == 0


def known(*times: float) -> Estimate:
    return Estimate("learned", 1.0, Guess(0.0), dict(enumerate(times)), EPOCHS)


def guessed(mean: float, spread: float) -> Estimate:
    return Estimate("predicted", 1.0, Guess(mean, spread, 30), None, 10**6)


@pytest.mark.parametrize("methods", [2, 3, 4, 6])
def test_that_another_is_first_is_as_likely_as_is_said_or_less(methods):
    """At most 1 - 1/n was said, 0.67 of three: two vague ones beat one that is known in 0.75."""
    random = np.random.default_rng(methods)
    said, found = [], []
    for _ in range(60):
        means = random.normal(0.0, 0.3, methods)
        spreads = random.choice([0.02, 0.1, 0.3, 0.6], methods)
        called = call([guessed(*one) for one in zip(means, spreads, strict=True)])
        drawn = means + spreads * random.standard_t(30, (20_000, methods))
        said.append(called.wrong)
        found.append(np.mean(np.argmin(drawn, axis=1) != called.best))
    assert np.all(np.subtract(found, said) < 0.015)  # four standard errors
    assert np.mean(said) < np.mean(found) + 0.05 * (methods - 2) + 0.01
    vague = call([guessed(0.0, 1e-6), *[guessed(1e-6, 0.5)] * (methods - 1)])
    assert vague.wrong == pytest.approx(1 - 0.5 ** (methods - 1), abs=1e-3)


def test_seeds_leave_a_doubt_that_is_never_less_than_that_of_a_coin():
    """With one seed "another is first with less than 0.1 %" was said, and of what is predicted."""
    one = call([known(1.0), known(9.0)])
    assert one.doubt(1) == 0.5
    many = call([known(*range(1, 9)), known(*range(11, 19))])
    assert many.doubt(8) == 0.5**8
    sure = Guess(9.0, 1e-3, 10)
    predicted = call([known(*range(1, 9)), Estimate("predicted", 1.0, sure, None, 10**6)])
    assert predicted.wrong < 1e-6
    assert predicted.doubt(8) == 0.5**8


def test_a_predicted_method_far_behind_takes_no_doubt_from_those_that_are_near():
    near = known(1.0, 1.2, 1.4, 1.6, 1.8), known(1.3, 1.5, 1.1, 1.7, 1.9)
    doubt = call(near).doubt(5)
    assert doubt > 0.1
    far = Estimate("predicted", 1.0, Guess(9.0, 1e-3, 10), None, 10**6)
    assert call([*near, far]).doubt(5) == doubt
    assert call([far, *near]).standing(1) is None


def test_no_seed_that_all_have_leaves_it_open_who_is_first():
    one, other = known(1.0), Estimate("learned", 1.0, Guess(0.0), {7: 2.0}, EPOCHS)
    assert call([one, other]).doubt(8) == 0.5


def test_no_map_is_sure_that_predicts_a_method_from_fewer_than_three_cells():
    first = method(drains=True, learned={0: [4.0, 4.0]}, digests="aaaa", ages=[0] * 4)
    never = [math.inf, math.inf]
    for count in (1, 2, 3):
        learned = dict.fromkeys(range(count), never)
        other = method(drains=False, learned=learned, digests="pqrs", ages=[1, 1, 1, 1])
        cells = Cells([first, other])
        assert cells.doubt < 0.1
        assert cells.is_sure(0.9) == (count == 3)
        assert (cells.next() or (None, None))[0] == 1


@pytest.mark.parametrize(("lost", "others"), [({0, 1, 2}, 2), ({0, 1}, 2), ({0, 1, 2}, 1)])
def test_a_method_of_which_every_run_is_lost_leaves_two_others_their_call(lost, others):
    """It is not tried any more, and nothing is known of it; one other has nobody beside it."""
    known = [
        method(drains=True, learned={0: [time, time]}, digests="aaaa", ages=[0] * 4)
        for time in (4.0, 9.0)[:others]
    ]
    gone = method(drains=False, learned={}, digests="pqrs", ages=[1, 2, 3, 4])
    gone.lost |= lost
    cells, is_called = Cells([*known, gone]), len(lost) > 2 and others > 1
    assert [one.best for one in cells.calls.values()] == [0 if is_called else None] * 4
    assert cells.is_sure(0.9) == is_called
    assert cells.next() == ((2, 2) if len(lost) < 3 else None) or others == 1
    if is_called:
        called = cells.calls[3]
        assert called.ranking and called.standing(2) == "not compared"
        alone = rank([of.times_s for of in cells.estimates[3][:2]])
        assert alone and called.ranking.flip == alone.flip
