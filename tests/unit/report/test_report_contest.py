"""Who is first at each point of a grid, and the line between, against tables made by hand."""

from __future__ import annotations

import math
from statistics import median
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from ampsim.report.grid import contest, contest_verdict
from ampsim.report.plot.grid import heat_map, sign_of, winner_edges
from ampsim.runs.ranking import rank

Plain: Any = SimpleNamespace
S, L = 1e-6, 8e-6
TIMES = {
    # workers, latency: amp's median and interval, then the two pipelines'
    (2, S): ((4.0, 3.0, 5.0), (2.0, 1.5, 2.5), (3.0, 3.0, 3.0)),
    (2, L): ((4.0, 3.0, 5.0), (5.0, 4.5, 6.0), (9.0, 8.0, 9.0)),
    (4, S): ((1.0, 0.9, 1.1), (4.0, 4.0, 4.0), (2.0, 2.0, 2.5)),
    (4, L): ((1.0, 0.9, 1.1), (None, 8.0, None), (None, None, None)),
}
"""What was measured: pipelines first at two workers over short links, by a clear margin; AMP first
in the median over long ones, but 5.0 is in reach of 4.5; AMP first with four workers."""


def cells_and_table(times=TIMES):
    cells, records = [], []
    for (workers, latency_s), three in times.items():
        for name, (middle, low, high) in zip(("amp", "pipeline", "gpipe"), three, strict=True):
            point = {"workers": workers, "latency_s": latency_s}
            cells.append(Plain(label=name, point=point, is_whole=True))
            records.append(
                {
                    "schedule": name, "train_per_s": 1e3, "epochs_to_target": 3.0,
                    "time_to_target_s": middle, "time_to_target_low_s": low,
                    "time_to_target_high_s": high,
                }
            )  # fmt: skip
    return cells, pd.DataFrame(records)


def made(**fields) -> Any:
    keys = {"across": "latency_s", "down": "workers", "panels": None}
    cells, table = cells_and_table()
    keyed = Plain(ours=["amp"], **{**keys, **fields})
    return contest(table, cells, keyed, times_of(table))


def times_of(table, seeds=6):
    """Times by seed: from the low end to the high one, of pipelines the other way round."""
    found = []
    for place, row in enumerate(table.to_dict("records")):
        ends = [row[f"time_to_target{end}_s"] for end in ("_low", "", "_high")]
        low, middle, high = (math.inf if one is None or math.isnan(one) else one for one in ends)
        spread = [low, middle, high] if seeds == 3 else [low, low, middle, middle, high, high]
        found.append(dict(enumerate(spread[:: -1 if place % 3 else 1])))
    return found


def test_the_best_of_each_side_is_taken_and_compared():
    found = made()
    assert (found.across, found.down) == (("latency_s", [S, L]), ("workers", [2, 4]))
    ((first, second), (third, fourth)) = found.points[0]
    assert [one.winner.label for one in (first, second, third, fourth)] == [
        "pipeline", "amp", "amp", "amp",
    ]  # fmt: skip
    assert [one.ratio for one in (first, second, third, fourth)] == [0.5, 1.25, 2.0, math.inf]
    assert third.others.label == "gpipe"
    answers = [one.answer for one in (first, second, third, fourth)]
    assert answers == ["first", "too few seeds", "first", "first"]


def test_the_line_leads_between_those_who_are_first():
    signs = [[sign_of(one) for one in line] for line in made().points[0]]
    assert signs == [[-1, 1], [1, 1]]
    assert winner_edges(signs) == [((1.0, 0.0), (1.0, 1.0)), ((0.0, 1.0), (1.0, 1.0))]
    assert winner_edges([[1, 0, -1], [0, -1, -1]]) == []


def test_the_line_is_drawn_where_it_leads():
    axes: Any = heat_map(made()).axes[0]
    drawn = [
        tuple(zip(line.get_xdata(), line.get_ydata(), strict=True))
        for line in axes.get_lines()
        if len(line.get_xdata())
    ]
    assert drawn == [((1.0, 0.0), (1.0, 1.0)), ((0.0, 1.0), (1.0, 1.0))]
    said = [text.get_text() for text in axes.texts]
    assert said == [
        "pipeline\n2.00×\n2.00 s", "amp\n1.25×, open\n4.00 s", "amp\n2.00×\n1.00 s",
        "amp\nalone\n1.00 s",
    ]  # fmt: skip


def test_the_verdict_counts_the_three_answers():
    assert contest_verdict(made()) == (
        "Of 4 points, amp is first at 2, the best of the others at 1, and at 1 there are too few "
        "seeds (up to 62 would do; in the median amp is ahead at 1 of these). At most amp is 2 "
        "times as soon as gpipe (1.00 s against 2.00 s, at 4 workers, 1.00 µs), and pipeline is 2 "
        "times as soon as amp (2.00 s against 4.00 s, at 2 workers, 1.00 µs)."
    )


def test_few_seeds_call_nobody_first():
    """A single run, and three that agree, say who is ahead and how many seeds would tell."""
    cells, table = cells_and_table()
    keys = Plain(across="latency_s", down="workers", panels=None, ours=["amp"])
    for seeds in (1, 3):
        times = [{0: one[1]} if seeds == 1 else one for one in times_of(table, 3)]
        found: Any = contest(table, cells, keys, times)
        assert {point.answer for _place, point in found.compared} == {"too few seeds"}
        assert contest_verdict(found) == (
            "Of 4 points, amp is first at 0, the best of the others at 0, and at 4 there are too "
            "few seeds (up to 5 would do; fewer rank nothing)."
        )
        said = [text.get_text() for text in heat_map(found).axes[0].texts]
        assert said[0] == "pipeline\n2.00×, open\n2.00 s"


def test_a_grid_and_a_table_give_one_answer():
    """The map's answer is that of the ranking of the two rows it compares."""
    cells, table = cells_and_table()
    keys = Plain(across="latency_s", down="workers", panels=None, ours=["amp"])
    times = times_of(table)
    found: Any = contest(table, cells, keys, times)
    for place, point in enumerate(point for _place, point in found.compared):
        amp, *pipelines = times[3 * place : 3 * place + 3]
        best = min(pipelines, key=lambda one: median(one.values()))
        told = rank([amp, best])
        assert told is not None and point.answer == told.answer


def test_throughputs_are_compared_where_nothing_was_learned():
    cells, table = cells_and_table()
    table = table.assign(time_to_target_s=math.nan)
    table["train_per_s"] = [100.0, 50.0, 80.0, 100.0, 97.0, 60.0] + [100.0, 90.0, 400.0] * 2
    keys = Plain(across="latency_s", down="workers", panels=None, ours=["amp"])
    found: Any = contest(table, cells, keys, times_of(table))
    assert [one.ratio for line in found.points[0] for one in line] == pytest.approx(
        [1.25, 100 / 97, 0.25, 0.25]
    )
    answers = [one.answer for line in found.points[0] for one in line]
    assert answers == ["first", "tie", "first", "first"]


def test_a_point_that_nobody_reached_is_said_so():
    nobody = dict.fromkeys(TIMES, ((None, None, None),) * 3)
    times = {**nobody, (2, S): TIMES[2, S]}
    cells, table = cells_and_table(times)
    keys = Plain(across="latency_s", down="workers", panels=None, ours=["amp"])
    found: Any = contest(table, cells, keys, times_of(table))
    assert [sign_of(one) for line in found.points[0] for one in line] == [-1, 0, 0, 0]
    assert ", nobody reached the target at 3." in contest_verdict(found)
    assert [text.get_text() for text in heat_map(found).axes[0].texts][1:] == ["not reached"] * 3
