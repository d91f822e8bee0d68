"""What a comparison says in words."""

from __future__ import annotations

from pathlib import Path

from ampsim.report.compare_text import to_text, verdict
from ampsim.runs.compare import Comparison, KeyDifference, Number, Parting, TableComparison
from ampsim.runs.loaded_run import LoadedRun


def run(name, **manifest):
    names = {key: {"name": key, "workers": 2} for key in ("model", "cluster", "schedule")}
    return LoadedRun(Path(name), {**names, **manifest})


def text(origin=(), numbers=(), tables=()):
    return to_text(run("a"), run("b"), Comparison(tuple(origin), tuple(numbers), tuple(tables)))


def test_numbers_have_units_and_unknown_is_a_dash():
    lines = text(
        numbers=[
            Number("makespan_s", 1e-6, 2e-6),
            Number("staleness_mean", None, 0.5),
            Number("messages", 1000.0, 1000.0),
        ]
    ).splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines if line}
    assert rows["makespan_s"] == ["1.00", "µs", "2.00", "µs", "+1e-06", "2"]
    assert rows["staleness_mean"] == ["–", "0.5", "–", "–"]
    assert rows["messages"] == ["1,000", "1,000", "0", "1"]


def test_values_that_differ_in_their_last_bits_show_all_digits():
    said = text(numbers=[Number("loss", 0.1, 0.1 + 2**-56, epoch=1)])
    assert "0.1  0.10000000000000002  +1.39e-17" in said


def test_long_lists_are_cut_and_say_so():
    origin = [KeyDifference(f"key-{index}", 0, 1) for index in range(50)]
    numbers = [Number("loss", 1.0, 2.0, epoch=epoch) for epoch in range(1, 31)]
    said = text(origin=origin, numbers=numbers)
    assert "key-39" in said
    assert "key-40" not in said
    assert "10 more differences; --json has them all" in said
    assert [line.split()[0] for line in said.splitlines() if " loss " in line] == [
        *map(str, range(1, 12)),
        "30",
    ]
    assert "epochs between are left out; --json has them all" in said


def test_a_row_that_only_one_run_has_is_shown_beside_nothing():
    parting = Parting(3, None, {"node": "n", "time_s": 0.25}, ())
    said = text(tables=[TableComparison("updates", 3, 4, parting)])
    assert "updates: 3 in A, 4 in B; they part at update 3, which only one has" in said
    assert [line.split() for line in said.splitlines()[-3:]] == [
        ["A", "B"],
        ["node", "–", "n"],
        ["time_s", "–", "0.25"],
    ]


def test_of_a_wide_table_each_column_is_a_line_and_those_that_differ_are_marked():
    a = {f"column-{index}": index for index in range(13)}
    parting = Parting(0, a, {**a, "column-7": 8}, ("column-7",))
    head, _sides, *lines = text(tables=[TableComparison("epochs", 1, 1, parting)]).splitlines()[
        -15:
    ]
    assert head == "epochs: 1 in A, 1 in B; they part at epoch 0 (*)"
    assert [line.split() for line in lines if "*" in line] == [["*", "column-7", "7", "8"]]
    assert len(lines) == 13
    assert max(map(len, lines)) < 80


def test_the_verdict_names_the_tables_that_differ():
    parting = Parting(0, {"node": "n"}, {"node": "m"}, ("node",))
    tables = (TableComparison("spans", 1, 1, parting), TableComparison("epochs", 1, 1, None))
    said = verdict(Comparison((), (), tables))
    assert said == "Not identical: different spans; the same epochs; the same origin."
    assert verdict(Comparison((KeyDifference("seed", 0, 1),), (), tables[1:])).endswith(
        "; different origins."
    )


def test_a_run_that_did_not_finish_says_so():
    said = to_text(run("a", ended="failed after 0 of 1 epochs"), run("b"), Comparison((), (), ()))
    assert said.splitlines()[0].endswith(" (failed after 0 of 1 epochs)")
