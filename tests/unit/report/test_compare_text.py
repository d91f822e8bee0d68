"""What a comparison says in words."""

from __future__ import annotations

from typing import Any

from ampsim.report.compare_text import to_text, verdict
from ampsim.runs.compare import number


def compared(origin=(), numbers=(), tables=(), ended: str | None = None) -> dict[str, Any]:
    same = {"model": "model", "cluster": "cluster", "schedule": "schedule"}
    is_identical = not any(one["parting"] for one in tables)
    runs = {"a": {"folder": "a", **same, "ended": ended},
            "b": {"folder": "b", **same, "ended": None}}  # fmt: skip
    more = {"origin": [*origin], "numbers": [*numbers], "tables": [*tables]}
    return {**runs, "is_identical": is_identical, **more}


def text(**parts) -> str:
    return to_text(compared(**parts))


def key(name: str, a: Any, b: Any) -> dict[str, Any]:
    return {"key": name, "a": a, "b": b}


def parting(index: int, a: Any, b: Any, *columns: str) -> dict[str, Any]:
    return {"index": index, "a": a, "b": b, "columns": [*columns]}


def table(name: str, rows_a: int, rows_b: int, apart: Any) -> dict[str, Any]:
    return {"name": name, "rows_a": rows_a, "rows_b": rows_b, "parting": apart}


def test_numbers_have_units_and_unknown_is_a_dash():
    lines = text(
        numbers=[
            number("makespan_s", 1e-6, 2e-6),
            number("train_per_s", 387e6, 4e6),
            number("accuracy", 0.06, 0.05),
            number("staleness_mean", None, 0.5),
            number("messages", 1000.0, 1000.0),
            number("updates", 52_420.0, 2_987.0),
        ]
    ).splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines if line}
    assert rows["makespan_s"] == ["1.00", "µs", "2.00", "µs", "+1.00", "µs", "2"]
    assert rows["train_per_s"] == ["387", "M/s", "4.00", "M/s", "-383", "M/s", "0.01034"]
    assert rows["accuracy"] == ["6.00", "%", "5.00", "%", "-1", "%", "0.8333"]
    assert rows["staleness_mean"] == ["–", "0.5", "–", "–"]
    assert rows["messages"] == ["1,000", "1,000", "0", "1"]
    assert rows["updates"] == ["52,420", "2,987", "-49,433", "0.05698"]


def test_values_that_differ_in_their_last_bits_show_all_digits():
    said = text(numbers=[number("loss", 0.1, 0.1 + 2**-56, epoch=1)])
    assert "0.1  0.10000000000000002  +1.39e-17" in said


def test_long_lists_are_cut_and_say_so():
    origin = [key(f"key-{index}", 0, 1) for index in range(50)]
    numbers = [number("loss", 1.0, 2.0, epoch=epoch) for epoch in range(1, 31)]
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
    apart = parting(3, None, {"node": "n", "time_s": 0.25})
    said = text(tables=[table("updates", 3, 4, apart)])
    assert "updates: 3 in A, 4 in B; they part at update 3, which only one has" in said
    assert [line.split() for line in said.splitlines()[-3:]] == [
        ["A", "B"],
        ["node", "–", "n"],
        ["time_s", "–", "0.25"],
    ]


def test_of_a_wide_table_each_column_is_a_line_and_those_that_differ_are_marked():
    a = {f"column-{index}": index for index in range(13)}
    apart = parting(0, a, {**a, "column-7": 8}, "column-7")
    head, _sides, *lines = text(tables=[table("epochs", 1, 1, apart)]).splitlines()[-15:]
    assert head == "epochs: 1 in A, 1 in B; they part at epoch 0 (*)"
    assert [line.split() for line in lines if "*" in line] == [["*", "column-7", "7", "8"]]
    assert len(lines) == 13
    assert max(map(len, lines)) < 80


def test_the_verdict_names_the_tables_that_differ():
    apart = parting(0, {"node": "n"}, {"node": "m"}, "node")
    tables = (table("spans", 1, 1, apart), table("epochs", 1, 1, None))
    said = verdict(compared(tables=tables))
    assert said == "Not identical: different spans; the same epochs; the same origin."
    assert verdict(compared(origin=[key("seed", 0, 1)], tables=tables[1:])).endswith(
        "; different origins."
    )


def test_a_run_that_did_not_finish_says_so():
    said = text(ended="failed after 0 of 1 epochs")
    assert said.splitlines()[0].endswith(" (failed after 0 of 1 epochs)")
