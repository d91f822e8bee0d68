"""Who is first where on a grid of hardware, in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ampsim.report.contest import Best, Bout, Contest, value_words


def contest_verdict(found: Contest) -> str:
    """Who is first where, in three sentences."""
    played = found.played
    if not played:
        return "Nothing was run that can be compared."
    if all(bout.is_single for _place, bout in played):
        return _single_verdict(found)
    clear = [(place, bout) for place, bout in played if not bout.is_tie and bout.winner]
    ours = [one for one in clear if one[1].ratio > 1.0]
    others = [one for one in clear if one[1].ratio < 1.0]
    missed = sum(bout.winner is None for _place, bout in played)
    ties = sum(bout.is_tie for _place, bout in played)
    whose = _names(bout.ours for _place, bout in played)
    text = (
        f"Of {len(played)} points, {whose} is first at {len(ours)}, the best of the others at "
        f"{len(others)}, and at {ties} "
        + ("the repeats leave it open" if found.is_time else "they are less than 5 % apart")
    )
    if ties:
        ahead = sum(bout.is_tie and bout.ratio > 1.0 for _place, bout in played)
        text += f" (in the median ours are first at {ahead} of these)"
    text += f"; at {missed} nobody reached the target." if missed else "."
    return text + _leads(ours, others, is_time=found.is_time)


def _single_verdict(found: Contest) -> str:
    """Who is ahead where each row has one run; `--repeats`, or more seeds, call who is first."""
    ours = [one for one in found.played if one[1].ratio > 1.0]
    others = [one for one in found.played if one[1].ratio < 1.0]
    whose = _names(bout.ours for _place, bout in found.played)
    return (
        f"One run of each calls nothing. In it, of {len(found.played)} points {whose} is ahead at "
        f"{len(ours)}, and the best of the others at {len(others)}."
        + _leads(ours, others, is_time=found.is_time)
    )


def _leads(
    ours: Sequence[tuple[str, Bout]], others: Sequence[tuple[str, Bout]], *, is_time: bool
) -> str:
    """A sentence on the largest lead of each side that has one."""
    text = ""
    for side, is_most in ((ours, max), (others, min)):
        known = [one for one in side if 0.0 < one[1].ratio < math.inf]
        if known:
            text += f" {_lead(*is_most(known, key=lambda one: one[1].ratio), is_time=is_time)}"
    return text


def _lead(place: str, bout: Bout, *, is_time: bool) -> str:
    """A sentence on the largest lead of one side."""
    assert bout.ours is not None, "a ratio that is finite and not 0 has both sides"
    assert bout.others is not None, "a ratio that is finite and not 0 has both sides"
    first, second = (bout.ours, bout.others)
    if bout.ratio < 1.0:
        first, second = second, first
    factor = max(bout.ratio, 1.0 / bout.ratio)
    how = "soon" if is_time else "fast"
    values = [value_words(one.value, is_time=is_time) for one in (first, second)]
    return (
        f"{first.label} is at most {factor:.2g} times as {how} as {second.label} "
        f"({values[0]} against {values[1]}, at {place})."
    )


def _names(bests: Iterable[Best | None]) -> str:
    """Labels of those that are best somewhere."""
    labels = list(dict.fromkeys(one.label for one in bests if one is not None))
    return " or ".join(labels) if labels else "ours"
