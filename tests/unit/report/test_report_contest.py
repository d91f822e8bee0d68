"""Who is first at each point of a grid, and the line between, against tables made by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from ampsim.report.contest import contest
from ampsim.report.contest_verdict import contest_verdict
from ampsim.report.plot.heat_map import heat_map, sign_of, winner_edges

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


def made(ran_flop_per_s=None, **fields) -> Any:
    keys = {"across": "latency_s", "down": "workers", "panels": None, "flop_per_s": None}
    cells, table = cells_and_table()
    return contest(table, cells, Plain(ours=["amp"], **{**keys, **fields}), ran_flop_per_s)


def test_the_best_of_each_side_is_taken_and_compared():
    found = made()
    assert (found.across, found.down) == (("latency_s", [S, L]), ("workers", [2, 4]))
    ((first, second), (third, fourth)) = found.bouts[0]
    assert [one.winner.label for one in (first, second, third, fourth)] == [
        "pipeline", "amp", "amp", "amp",
    ]  # fmt: skip
    assert [one.ratio for one in (first, second, third, fourth)] == [0.5, 1.25, 2.0, math.inf]
    assert third.others.label == "gpipe"
    assert [one.is_tie for one in (first, second, third, fourth)] == [False, True, False, False]


def test_the_line_leads_between_those_who_are_first():
    signs = [[sign_of(one) for one in line] for line in made().bouts[0]]
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
        "pipeline\n2.00×\n2.00 s", "amp\n1.25×, a tie\n4.00 s", "amp\n2.00×\n1.00 s",
        "amp\nalone\n1.00 s",
    ]  # fmt: skip


def test_the_verdict_counts_clear_wins_and_ties():
    assert contest_verdict(made()) == (
        "Of 4 points, amp is first at 2, the best of the others at 1, and at 1 the repeats leave "
        "it open (in the median ours are first at 1 of these). amp is at most 2 times as soon as "
        "gpipe (1.00 s against 2.00 s, at 4 workers, "
        "1.00 µs). pipeline is at most 2 times as soon as amp (2.00 s against 4.00 s, at 2 "
        "workers, 1.00 µs)."
    )


def test_single_runs_call_nobody_first():
    alone = {
        place: tuple((middle, None, None) for middle, _low, _high in three)
        for place, three in TIMES.items()
    }
    cells, table = cells_and_table(alone)
    keys = Plain(across="latency_s", down="workers", panels=None, ours=["amp"], flop_per_s=None)
    found: Any = contest(table, cells, keys, None)
    assert all(one.is_tie for line in found.bouts[0] for one in line if one.others is not None)
    assert contest_verdict(found).startswith(
        "One run of each calls nothing. In it, of 4 points amp is ahead at 3, and the best of the "
        "others at 1. amp is at most 2 times as soon as gpipe"
    )
    said = [text.get_text() for text in heat_map(found).axes[0].texts]
    assert said[0] == "pipeline\n2.00×, one run\n2.00 s"


def test_other_flop_rates_follow_from_the_latency_that_is_as_many_flop():
    found = made(1e12, down="flop_per_s", panels="workers", flop_per_s=[1e12, 8e12])
    assert found.across == ("latency_s", [S])
    assert found.down == ("flop_per_s", [8e12, 1e12])
    ((fast,), (plain,)) = found.bouts[found.panels[1].index(2)]
    assert (plain.ours.value, plain.others.value) == (4.0, 2.0)
    assert (fast.ours.value, fast.others.value) == (0.5, 0.625)
    assert fast.is_tie


def test_throughputs_are_compared_where_nothing_was_learned():
    cells, table = cells_and_table()
    table = table.assign(time_to_target_s=math.nan)
    table["train_per_s"] = [100.0, 50.0, 80.0, 100.0, 97.0, 60.0] + [100.0, 90.0, 400.0] * 2
    keys = Plain(across="latency_s", down="workers", panels=None, ours=["amp"], flop_per_s=None)
    found: Any = contest(table, cells, keys, None)
    assert [one.ratio for line in found.bouts[0] for one in line] == pytest.approx(
        [1.25, 100 / 97, 0.25, 0.25]
    )
    assert [one.is_tie for line in found.bouts[0] for one in line] == [False, True, False, False]


def test_a_point_that_nobody_reached_is_said_so():
    nobody = dict.fromkeys(TIMES, ((None, None, None),) * 3)
    times = {**nobody, (2, S): TIMES[2, S]}
    cells, table = cells_and_table(times)
    keys = Plain(across="latency_s", down="workers", panels=None, ours=["amp"], flop_per_s=None)
    found: Any = contest(table, cells, keys, None)
    assert [sign_of(one) for line in found.bouts[0] for one in line] == [-1, 0, 0, 0]
    assert "; at 3 nobody reached the target." in contest_verdict(found)
    assert [text.get_text() for text in heat_map(found).axes[0].texts][1:] == ["not reached"] * 3
