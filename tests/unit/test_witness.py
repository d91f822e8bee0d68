"""A witness tells two runs apart, and names the first record that differs."""

from __future__ import annotations

import json
import math
from typing import Any

import pandas as pd
import pytest

from ampsim.errors import FileFormatError
from ampsim.runs.run import Run
from ampsim.runs.witness import HEAD, TAGS, TinyRun, Witness, agree, condense, witness_from_plain


def table(count: int) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "node": pd.Categorical([f"linear-{place % 3}" for place in range(count)]),
            "start_s": [place / 3 for place in range(count)],
            "flop": [7 * place for place in range(count)],
        }
    )


def witness(frame: pd.DataFrame, **numbers: object) -> Witness:
    return Witness({"spans": condense(frame)}, numbers)


def found(before: pd.DataFrame, now: pd.DataFrame) -> str | None:
    kept = witness_from_plain(json.loads(json.dumps(witness(before).plain())))
    return TinyRun(witness(now), {"spans": now}, Run()).difference(kept)


@pytest.mark.parametrize("count", [0, 1, HEAD, 100, TAGS, TAGS + 1, 3 * TAGS + 5])
def test_equal_tables_have_equal_witnesses(count):
    assert found(table(count), table(count)) is None
    assert agree(witness(table(count)), witness(table(count)))


@pytest.mark.parametrize("place", [0, 1, HEAD - 1, HEAD, 50, 98, 99])
@pytest.mark.parametrize("column", ["start_s", "flop"])
def test_a_change_by_one_bit_anywhere_is_named_by_its_record(place, column):
    now = table(100)
    value: Any = now.loc[place, column]
    now.loc[place, column] = value + 1 if column == "flop" else math.nextafter(value, math.inf)
    said = found(table(100), now)
    assert said is not None
    assert f"record {place + 1} of spans" in said
    if place < HEAD:
        assert f": {column} was {value} and is " in said
    assert not agree(witness(table(100)), witness(now))


@pytest.mark.parametrize("place", [HEAD + 1, 1234, 3 * TAGS - 1, 3 * TAGS + 3])
def test_in_a_long_table_it_is_named_to_a_few_records(place):
    now = table(3 * TAGS + 5)
    now.loc[place, "flop"] = -1
    said = found(table(3 * TAGS + 5), now)
    assert said is not None
    words = said.split()
    first = int(words[words.index("records") + 1])
    last = int(words[words.index("to") + 1])
    assert first <= place + 1 <= last <= first + 3


@pytest.mark.parametrize("count", [HEAD, 100, 3 * TAGS])
def test_records_that_are_missing_or_new_are_counted(count):
    fewer = f"there are {count} records of spans, and were {count + 1}"
    assert found(table(count + 1), table(count)) == fewer
    more = found(table(count), table(count + 1))
    assert more is not None
    assert more.startswith(f"record {count + 1} of spans is new: node linear-")


def test_a_new_column_changes_nothing_and_a_lost_one_does():
    more = table(9).assign(operations=3)
    assert found(table(9), more) is None
    assert not agree(witness(table(9)), witness(more))
    assert found(more, table(9)) == "spans have no column 'operations' any more"


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (1.0, 1.0 + 1e-7, None),
        (1.0, 1.0 + 1e-5, "loss was 1.0 and is 1.00001"),
        (float("nan"), float("nan"), None),
        (float("nan"), 1.0, "loss was nan and is 1.0"),
        (float("inf"), float("inf"), None),
        (None, 1.0, "loss was None and is 1.0"),
        ("worker", "link", "loss was worker and is link"),
    ],
)
def test_numbers_may_differ_in_their_rounding(before, now, said):
    kept = witness_from_plain(json.loads(json.dumps(witness(table(2), loss=before).plain())))
    other = witness(table(2), loss=now)
    assert TinyRun(other, {"spans": table(2)}, Run()).difference(kept) == said
    assert agree(kept, other) is (said is None)


def test_a_run_that_fails_now_is_another():
    other = Witness({"spans": condense(table(2))}, {}, "loss is NaN")
    said = TinyRun(other, {"spans": table(2)}, Run()).difference(witness(table(2)))
    assert said == "it did not fail, and now failed (loss is NaN)"
    assert not agree(witness(table(2)), other)


@pytest.mark.parametrize(
    "plain", [None, 3, {}, {"tables": []}, {"tables": {"a": {}}, "numbers": {}, "failure": None}]
)
def test_what_is_no_witness_is_told(plain):
    with pytest.raises(FileFormatError, match=r"^expected a witness, got "):
        witness_from_plain(plain)
