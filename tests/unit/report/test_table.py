"""A forecast's table in Markdown, CSV and on a terminal."""

from __future__ import annotations

import io

import pandas as pd
import pytest
from rich.console import Console

from ampsim.report.table import to_csv, to_markdown, to_rich

NASTY = ["<script>alert(1)</script>", "a|b", "[bold]x[/bold]", "*b* `c` ![i](u) \\|\n# head"]


def shown(table, width):
    written = io.StringIO()
    Console(width=width, file=written, color_system=None).print(to_rich(table, width=width))
    return written.getvalue()


def cells(markdown):
    """Rows of a pipe table, split at the pipes that are not escaped."""
    lines = markdown.splitlines()
    return [
        [part.strip() for part in line.replace("\\|", "\0").strip("|").split("|")] for line in lines
    ]


def test_markdown_shows_every_result_with_its_unit(make_table):
    heading, rule, *rows = cells(to_markdown(make_table()))
    assert len({len(row) for row in (heading, rule, *rows)}) == 1
    amp = dict(zip(heading, rows[2], strict=True))
    assert amp == {
        "schedule": "amp",
        "in flight": "8",
        "training": "2.08 M/s",
        "ratio": "4.1×",
        "validation": "5.90 M/s",
        "busy": "43.0 %",
        "staleness mean": "2.3",
        "staleness max": "8",
        "epochs": "8",
        "time to target": "410 ms",
        "interval": "\\[380 ms, 510 ms\\]",
        "by formula": "420 ms",
        "reached": "3 of 3",
    }


def test_unknown_is_a_dash_and_never_zero(make_table):
    nothing = [None, float("nan"), pd.NA]
    table = make_table(
        time_to_target_s=nothing, epochs_to_target=nothing, utilisation=nothing,
        time_to_target_low_s=nothing, time_to_target_high_s=nothing,
    )  # fmt: skip
    heading, _, *rows = cells(to_markdown(table))
    for row in rows:
        named = dict(zip(heading, row, strict=True))
        for column in ("time to target", "epochs", "busy", "interval"):
            assert named[column] == "–"


def test_an_interval_without_an_upper_end_says_so(make_table):
    table = make_table(time_to_target_high_s=[None, float("inf"), 0.51])
    heading, _, *rows = cells(to_markdown(table))
    column = heading.index("interval")
    assert rows[0][column] == "\\[1.39 s, –\\]"


def test_columns_that_say_nothing_new_are_left_out(make_table):
    assert "update interval" not in to_markdown(make_table(min_update_interval=[None, None, 1]))
    assert "update interval" in to_markdown(make_table(min_update_interval=[1, 1, 4]))
    assert "best accuracy" in to_markdown(make_table(time_to_target_s=[1.0, None, 1.0]))


@pytest.mark.parametrize("name", NASTY)
def test_a_name_in_markdown_is_only_a_name(make_table, name):
    table = make_table(schedule=["sequential", name, "amp"], note=["", name, ""])
    text = to_markdown(table)
    rows = cells(text)
    assert len(rows) == 5
    assert len({len(row) for row in rows}) == 1
    assert "<" not in text
    assert "![" not in text.replace("\\!", "")


@pytest.mark.parametrize("name", NASTY)
def test_a_name_on_the_terminal_is_only_a_name(make_table, name):
    text = shown(make_table(schedule=["sequential", "x", "amp"], note=["", "", name]), 120)
    assert f"amp: {' '.join(name.split())}" in text


def test_escape_sequences_do_not_reach_the_terminal(make_table):
    text = shown(make_table(schedule=["\x1b[31mred", "pipeline", "amp"]), 120)
    assert "\x1b" not in text
    assert "[31mred" in text


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140, 200])
def test_the_terminal_table_keeps_within_its_width(make_table, width):
    lines = shown(make_table(), width).splitlines()
    assert max(map(len, lines)) <= max(width, 44)
    assert "2.08 M/s" in "".join(lines)


def test_80_columns_hold_both_times_to_the_target(make_table):
    text = shown(make_table(), 80)
    for part in ("amp", "4.1×", "2.3", "410 ms", "420 ms", "formula"):
        assert part in text
    assert "…" not in text


@pytest.mark.parametrize("best", [{}, {"best_accuracy": [0.97, 0.9, 0.98]}])
def test_80_columns_show_mean_staleness_and_name_what_they_leave_out(make_table, best):
    missed = [1.4, None, 0.41] if best else [1.4, 0.9, 0.41]
    lines = shown(make_table(time_to_target_s=missed, **best), 80).splitlines()
    headings, amp = "".join(lines[:3]), next(line for line in lines if line.startswith(" amp"))
    assert "mean" in headings and "2.3" in amp.split()
    (said,) = [line for line in lines if line.startswith("no room for: ")]
    names = said.removeprefix("no room for: ").split(", ")
    assert "validation" in [name.strip() for name in names]
    assert "staleness max" in names and "staleness mean" not in names


def test_where_all_columns_fit_none_is_said_to_be_left_out(make_table):
    assert "no room for" not in shown(make_table(), 200)


def test_a_wide_terminal_shows_the_interval_and_validation(make_table):
    text = shown(make_table(), 200)
    assert "[380 ms, 510 ms]" in text
    assert "5.90 M/s" in text


def test_csv_keeps_every_column_and_digit(make_table):
    table = make_table(train_per_s=[1 / 3, 2e6 / 7, 2.08e6], schedule=["a,b", 'say "x"', "amp"])
    read = pd.read_csv(io.StringIO(to_csv(table)), keep_default_na=False, na_values=[""])
    assert list(read.columns) == list(table.columns)
    assert list(read["train_per_s"]) == list(table["train_per_s"])
    assert list(read["schedule"]) == list(table["schedule"])


def test_csv_leaves_unknown_empty(make_table):
    text = to_csv(make_table(time_to_target_s=[None, float("nan"), 1.0])[["time_to_target_s"]])
    assert text == 'time_to_target_s\n""\n""\n1.0\n'


BOUNDS = {
    "bound_by": ["critical path", "link host to 3", "admission limit"],
    "worker_share": [0.1, 0.2, 0.3],
    "path_share": [1.0, 0.3, float("nan")],
    "link_share": [0.0, 0.875, 0.3],
    "admission_share": [0.2, 0.1, 0.5],
}


def test_markdown_says_what_bounds_each_row_and_by_how_much(make_table):
    heading, _, *rows = cells(to_markdown(make_table(**BOUNDS)))
    assert heading[-1] == "bound by"
    assert [row[-1].replace("\\", "") for row in rows] == [
        "critical path (100 %)", "link host to 3 (87.5 %)", "admission limit (50.0 %)",
    ]  # fmt: skip


def test_the_terminal_says_it_in_sentences_below_the_table(make_table):
    below = shown(make_table(**BOUNDS), 200).splitlines()[-4:]
    assert [line.strip() for line in below if line.strip()][-3:] == [
        "sequential: bound by its critical path: steps that wait for one another take 100 % of "
        "the time",
        "pipeline: bound by link host to 3, which is occupied 87.5 % of the time",
        "amp: bound by the admission limit: 50.0 % of the time the busiest worker or link idles",
    ]
    one = make_table(bound_by=["worker 3", None, None], worker_share=[0.92, None, None])
    assert "sequential: bound by worker 3, which is busy 92.0 % of the time" in shown(one, 120)
    assert "pipeline: bound" not in shown(one, 120)


def test_a_table_of_no_rows_is_its_heading(make_table):
    assert to_markdown(make_table().iloc[:0]).startswith("| schedule |")
    assert "schedule" in shown(make_table().iloc[:0], 80)


def test_the_best_error_has_a_column_where_a_target_was_missed(make_table):
    missed = make_table(
        time_to_target_s=[1.0, None, 1.0], best_accuracy=[None] * 3, best_error=[4.4, 5.123, 4.5]
    )
    heading, _, *rows = cells(to_markdown(missed))
    assert [row[heading.index("best error")] for row in rows] == ["4.4", "5.12", "4.5"]
    assert "best accuracy" not in heading


def test_without_a_measurement_nothing_is_said_of_targets(make_table):
    blind = make_table(best_accuracy=[None] * 3, time_to_target_s=[None] * 3)
    assert not {"time to target", "epochs", "reached"} & set(cells(to_markdown(blind))[0])
