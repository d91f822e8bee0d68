"""A forecast's table in Markdown, CSV and on a terminal."""

from __future__ import annotations

import io
import itertools
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from ampsim.cli import completion
from ampsim.errors import UnknownNameError
from ampsim.report.columns import COLUMNS
from ampsim.report.table import (
    ANSWER,
    answer_cells,
    answer_titles,
    column_cells,
    columns_folded,
    columns_to_rich,
    notes,
    require_columns,
    to_csv,
    to_markdown,
    to_rich,
)
from ampsim.text import note_with

NASTY = ["<script>alert(1)</script>", "a|b", "[bold]x[/bold]", "*b* `c` ![i](u) \\|\n# head"]


def drawn(tables, width):
    written = io.StringIO()
    console = Console(width=width, file=written, color_system=None)
    for table in tables:
        console.print(table)
    return written.getvalue()


def shown(table, width):
    return drawn([to_rich(table, 0.97, width=width)], width)


def cells(markdown):
    """Rows of a pipe table, split at the pipes that are not escaped."""
    lines = markdown.splitlines()
    return [
        [part.strip() for part in line.replace("\\|", "\0").strip("|").split("|")] for line in lines
    ]


def with_ranks(table, **columns):
    """The table with what comparing its rows says."""
    ranked = {
        "standing": ["behind", "too few seeds", "first"], "speed_up": [1.0, 1.58, 3.39],
        "items": ["lists"] * 3, "time_to_target_coverage": [0.75] * 3,
    }  # fmt: skip
    return table.assign(**{**ranked, **columns})


def test_the_answer_has_seven_columns_each_with_its_unit(make_table):
    heading, rule, *rows = cells(to_markdown(with_ranks(make_table()), 0.97))
    assert len({len(row) for row in (heading, rule, *rows)}) == 1
    assert dict(zip(heading, rows[2], strict=True)) == {
        "schedule": "amp",
        "in flight": "8",
        "training lists/s": "2.08 M",
        "epochs": "8",
        "time to target \\[75 % CI\\]": "410 ms \\[380, 510\\]",
        "speed-up": "3.4×",
        "first or tie": "first",
    }
    assert rows[1][-1] == "open"


def test_unknown_is_a_dash_and_never_zero(make_table):
    nothing = [None, float("nan"), pd.NA]
    table = make_table(
        time_to_target_s=nothing, epochs_to_target=nothing, utilisation=nothing,
        time_to_target_low_s=nothing, time_to_target_high_s=nothing, best_accuracy=nothing,
        best_error=[None, None, 4.0], staleness_mean=nothing, repeats_reached=[0] * 3,
    )  # fmt: skip
    heading, *rows = answer_cells(table, 0.97)
    assert [row[heading.index("epochs")] for row in rows] == ["–"] * 3
    assert [row[heading.index("time to target")] for row in rows] == ["–", "–", "best 4"]
    names = ["utilisation", "staleness_mean", "seeds_needed", "is_tied_with_best"]
    assert all(line[1:] == ["–"] * 3 for line in column_cells(table, names)[1:])


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ((1.39, None), "1.39 s [1.39, –]"),
        ((float("nan"), None), "1.39 s"),
        ((0.5, 1000.0), "1.39 s [0.5, 1000]"),
        ((1e-6, 1e5), "1.39 s [1.00 µs, 27.8 h]"),
    ],
)
def test_an_interval_has_the_unit_of_its_median(make_table, ends, said):
    table = make_table(
        time_to_target_low_s=[ends[0], 1.0, 1.0], time_to_target_high_s=[ends[1], 1.0, 1.0]
    )
    heading, first, *_rows = answer_cells(table, 0.97)
    assert first[heading.index("time to target")] == said


def test_a_row_that_missed_the_target_shows_a_best_that_tells_so_or_how_many_arrived(
    make_table,
):
    """Of 97 %, "best 97.2 %" stood where one run of three arrived, and "best 97.0 %" for 96.97."""
    none: dict[str, Any] = {"time_to_target_s": [1.0, None, 1.0], "repeats_reached": [3, 0, 3]}
    assert answer_cells(make_table(**none), 0.97)[2][4] == "best 97.2 %"
    near = make_table(**none, best_accuracy=[1.0, 0.9697, 1.0])
    assert answer_cells(near, 0.97)[2][4] == "best 96.97 %"
    failed = near.assign(note=["", "3 of 3 runs failed: no layer; best 12 of them", ""])
    assert answer_cells(failed, 0.97)[2][4] == "best 96.97 %"
    wrong = make_table(**none, best_accuracy=[None] * 3, best_error=[4.4, 5.123, 4.5])
    assert answer_cells(wrong, 4.6)[2][4] == "best 5.12"
    close = make_table(**none, best_accuracy=[None] * 3, best_error=[4.4, 4.601, 4.5])
    assert answer_cells(close, 4.6)[2][4] == "best 4.601"
    some = make_table(**{**none, "repeats_reached": [3, 1, 3]})
    assert answer_cells(some, 0.97)[2][4] == "in 1 of 3 runs"


@pytest.mark.parametrize("coverages", [*itertools.permutations([0.978, float("nan"), 0.93])])
def test_the_heading_says_between_what_the_intervals_cover(make_table, coverages):
    """Numbers among which one is none have no order: it was "98 to 93" of some."""
    heading = answer_cells(with_ranks(make_table(), time_to_target_coverage=coverages), 0.97)[0]
    assert heading[4] == "time to target [93 to 98 % CI]"


def test_what_sets_a_row_apart_stands_in_its_name(make_table):
    names = ["amp", "amp", "pipeline"]
    for column, said in (
        ("min_update_interval", "update interval 4"), ("replicas", "4 replicas"),
        ("workers", "4 workers"),
    ):  # fmt: skip
        table = make_table(schedule=names, **{column: [1, 4, 4]})
        assert [line[0] for line in answer_cells(table, 0.97)[2:]] == [f"amp, {said}", "pipeline"]
    flights = make_table(schedule=names, max_active_keys=[4, 8, 8])
    assert [line[:2] for line in answer_cells(flights, 0.97)[1:3]] == [["amp", "4"], ["amp", "8"]]


@pytest.mark.parametrize("name", NASTY)
def test_a_name_in_markdown_is_only_a_name(make_table, name):
    table = make_table(schedule=["sequential", name, "amp"], note=["", name, ""])
    text = to_markdown(table, 0.97)
    rows = cells(text)
    assert len(rows) == 5
    assert len({len(row) for row in rows}) == 1
    assert "<" not in text
    assert "![" not in text.replace("\\!", "")


@pytest.mark.parametrize("name", NASTY)
def test_a_name_on_the_terminal_is_only_a_name(make_table, name):
    table = make_table(schedule=["sequential", "x", "amp"], note=["", "", name])
    assert f"amp: {' '.join(name.split())}" in notes(table)
    table = make_table(schedule=["sequential", "[b]x[/b]", "amp"], note=["", "", "[b]y[/b]"])
    assert "[b]x[/b]" in shown(table, 80)
    assert "[b]y[/b]" in drawn(columns_to_rich(table, ["note"], width=80), 80)


def test_escape_sequences_do_not_reach_the_terminal(make_table):
    text = shown(make_table(schedule=["\x1b[31mred", "pipeline", "amp"]), 120)
    assert "\x1b" not in text
    assert "[31mred" in text


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140, 200])
def test_the_terminal_table_keeps_within_its_width(make_table, width):
    lines = shown(with_ranks(make_table()), width).splitlines()
    assert max(map(len, lines)) <= max(width, 46)
    assert "2.08 M" in "".join(lines)


def labels_of_all_methods():
    """Every schedule and solver, by its name on the command line, plain and with its options."""
    inner = ["", ", 2 ranks of 4, in groups of random, compression 0.01"]
    return [f"{name}{more}" for name in completion.SCHEDULES for more in inner]


LONG = {
    "train_per_s": [123_456_789.0] * 3, "time_to_target_s": [11_999.0, 0.000_999, None],
    "time_to_target_low_s": [11_000.0, 0.000_123, 1.0],
    "time_to_target_high_s": [12_345.0, 0.002_345, None],
    "epochs_to_target": [123.5, 10.25, None], "max_active_keys": [1024, 512, 16],
}  # fmt: skip


@pytest.mark.parametrize("items", ["lists", "molecules of QM9 and more"])
@pytest.mark.parametrize("label", labels_of_all_methods())
def test_the_answer_of_every_method_fits_80_characters_and_7_columns(make_table, label, items):
    table = make_table(
        schedule=["sequential", label, label], min_update_interval=[1, 4, 16], **LONG
    )
    table = with_ranks(
        table, standing=["tie", "not compared", "not reached"], items=[items] * 3,
        speed_up=[1.0, 0.0123, 123.0],
    )  # fmt: skip
    lines = shown(table, 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(answer_cells(table, 0.97)[0]) == len(answer_titles(table, 0.97)) == 7
    assert "unranked" in "".join(lines)
    assert max(map(len, notes(table.assign(**BOUNDS)))) <= 80


def test_without_times_the_ratio_is_that_of_throughput(make_table):
    blind = make_table(best_accuracy=[None] * 3, time_to_target_s=[None] * 3)
    headings, *_rows, amp = answer_cells(blind, 0.97)
    assert headings == ["schedule", "in flight", "training", "ratio"]
    assert amp == ["amp", "8", "2.08 M/s", "4.1×"]
    assert answer_cells(with_ranks(make_table()), None)[0] == [
        "schedule", "in flight", "training lists/s"
    ]  # fmt: skip


def test_every_column_of_the_answer_is_one_of_the_table():
    assert {column.name for column in ANSWER} <= set(COLUMNS)


def test_all_columns_are_those_of_the_csv(make_table):
    table = with_ranks(make_table())
    names = require_columns("all")
    assert names is not None
    said = drawn(columns_to_rich(table, names, width=80), 80)
    assert max(map(len, said.splitlines())) <= 80
    for name in to_csv(table).splitlines()[0].split(","):
        assert name in names
        assert name == "schedule" or f"\n{name} " in said
    upright = drawn(columns_to_rich(table, ["utilisation", "peak_bytes"], width=80), 80)
    assert ["amp", "43.0", "%", "–"] in [line.split() for line in upright.splitlines()]


def test_numbers_without_a_prefix_have_no_exponent_either(make_table):
    joules = with_ranks(make_table(), energy_j=[4862.7, 999.7, 12.345])
    assert column_cells(joules, ["energy_j"])[1] == ["energy_j", "4863", "1000", "12.3"]


def test_a_fold_has_what_is_known_and_what_it_is(make_table):
    table = make_table()
    headings, *lines = columns_folded(table)
    assert headings == ["column", "sequential", "pipeline", "amp", "what it is"]
    assert {line[0] for line in lines} == set(table.columns) - {
        "schedule", "best_error", "bound_by", "note", "worker_share", "path_share", "link_share",
        "admission_share",
    }  # fmt: skip
    assert all(line[-1] for line in lines)


@pytest.mark.parametrize("names", ["utilizaton", "utilisation,", "makespan", "utilisation,x"])
def test_a_column_that_is_not_there_is_refused_by_its_name(names):
    with pytest.raises(UnknownNameError, match="no column named"):
        require_columns(names)
    assert require_columns(None) is None
    assert require_columns("utilisation, makespan_s") == ["utilisation", "makespan_s"]


def test_a_shell_offers_the_columns():
    assert completion.columns("makes") == ["makespan_s"]
    assert completion.columns("schedule,al") == ["schedule,all"]


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


def test_a_line_below_says_what_bounds_each_row_and_by_how_much(make_table):
    assert notes(make_table(**BOUNDS)) == [
        "sequential: bound by critical path (100 %)",
        "pipeline: bound by link host to 3 (87.5 %)",
        "amp: bound by admission limit (50.0 %)",
    ]
    one = make_table(bound_by=["worker 3", None, None], worker_share=[0.92, None, None])
    assert notes(one) == ["sequential: bound by worker 3 (92.0 %)"]


def test_rows_of_which_the_same_is_said_share_a_line(make_table):
    late = "97 % not reached in 3 of 3 runs within 2 epochs"
    table = make_table(note=[f"{late}; best 9 %; x", f"{late}; best 8 %", f"{late}; best 7 %"])
    assert notes(table) == [f"all rows: {late}", "sequential: x"]
    idle = make_table(note=["", late, late]).assign(workers_idle=[12, 12, 0])
    assert notes(idle) == [
        "sequential and pipeline: 12 of 16 devices do nothing that takes time",
        f"pipeline and amp: {late}",
    ]


def test_why_runs_failed_is_one_line_whatever_its_words(make_table):
    """An error's remedy stands behind a "; ", and was a line of its own, of all rows with one."""
    why = "2 of 3 runs failed: weights stopped being finite; try a lower learning rate"
    other = "3 of 3 runs failed: no node named x; did you mean y?; best is z"
    table = make_table(note=[note_with(why, "off the clock"), other, "late; best 9 %"])
    assert notes(table) == [
        "sequential: off the clock", f"sequential: {why}", f"pipeline: {other}", "amp: late"
    ]  # fmt: skip


def test_a_table_of_no_rows_is_its_heading(make_table):
    assert to_markdown(make_table().iloc[:0], 0.97).startswith("| schedule |")
    assert "schedule" in shown(make_table().iloc[:0], 80)
