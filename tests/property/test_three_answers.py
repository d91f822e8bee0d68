"""A ranking gives one of three answers, whatever the times, and the same in any order of rows."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from ampsim.runs.ranking import SAME, Sureness, rank

TIMES = st.one_of(
    st.floats(0.1, 100.0),
    st.floats(1.0, 1.08),  # about the margin
    st.sampled_from([1.0, 2.0]),
    st.just(math.inf),
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[dict[int, float]], list[int]]:
    """Times of a few rows with the same seeds, and another order of the rows."""
    rows, seeds = draw(st.integers(2, 4)), draw(st.integers(1, 9))
    made = [
        dict(enumerate(draw(st.lists(TIMES, min_size=seeds, max_size=seeds)))) for _ in range(rows)
    ]
    return made, draw(st.permutations(range(rows)))


@settings(max_examples=300, deadline=None)
@given(tables())
def test_an_answer_is_one_of_three_and_hangs_on_no_order(found):
    rows, order = found
    made, turned = rank(rows), rank([rows[place] for place in order])
    assert (made is None) == (turned is None)
    if made is None or turned is None:
        return
    assert turned.answer == made.answer
    assert turned.seeds_needed == made.seeds_needed
    assert sorted(turned.standings) == sorted(made.standings)
    twins = [rows.count(row) > 1 for row in rows]  # either of two that are the same may be the best
    for place, whose in enumerate(order):
        assert twins[whose] or turned.standings[place] == made.standings[whose]


@settings(max_examples=300, deadline=None)
@given(tables())
def test_first_excludes_a_tie_and_a_tie_lies_within_the_margin(found):
    rows, _order = found
    made = rank(rows)
    if made is None:
        return
    others = [one for place, one in enumerate(made.standings) if place != made.best]
    if made.answer == "first":
        assert set(others) <= {"behind", "not reached"}
        assert all((pair.flip or 1.0) <= Sureness().tail for pair in made.pairs if pair)
    elif made.answer == "tie":
        assert "tie" in others and "too few seeds" not in others
    else:
        assert made.seeds_needed is not None and made.seeds_needed > made.seeds
    for row, pair in zip(rows, made.pairs, strict=True):
        if pair is None:
            continue
        if all(map(math.isinf, row.values())):
            assert pair.standing == "not reached"
        if pair.standing == "tie":
            assert pair.low is not None and pair.high is not None
            assert 1 / (1 + SAME) <= pair.low <= pair.ratio <= pair.high <= 1 + SAME
