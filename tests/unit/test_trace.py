"""Traces: rows become columns chunk by chunk, and the summary says what the frames say."""

import pickle
from typing import NamedTuple

import numpy as np
import pytest

from ampsim.trace import START, Recorder, Summary, recorder, table, to_frame
from ampsim.trace.recorder import TABLE_SCHEMAS, States
from ampsim.trace.table import KeptRows, RecordTable, plain_fields

SCHEMA = {"a": np.int64, "b": np.float64}


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(table, "CHUNK_ROWS", 10)


def filled(rows_max=None, rows=35):
    kept = KeptRows(SCHEMA, rows_max)
    chunks = []
    growing = RecordTable(
        plain_fields(SCHEMA), (kept, lambda columns: chunks.append(len(columns["a"])))
    )
    for row in range(rows):
        growing.append((row, row / 2))
        growing.flush_if_full()
    growing.flush()
    growing.flush()
    return kept.columns(), chunks


@pytest.mark.usefixtures("small_chunks")
def test_rows_over_several_chunks_come_back_in_order_and_typed():
    columns, chunks = filled()
    assert chunks == [10, 10, 10, 5]
    assert columns["a"].tolist() == list(range(35))
    assert columns["b"].tolist() == [row / 2 for row in range(35)]
    assert {name: column.dtype for name, column in columns.items()} == SCHEMA


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("rows_max", [0, 1, 9, 10, 11, 20, 34, 35, 36, 1000])
def test_only_the_first_rows_are_kept_where_told(rows_max):
    columns, chunks = filled(rows_max)
    assert columns["a"].tolist() == list(range(min(rows_max, 35)))
    assert sum(chunks) == 35


def test_an_empty_table_gives_empty_typed_columns():
    columns, chunks = filled(rows=0)
    assert chunks == []
    assert {name: (column.dtype, len(column)) for name, column in columns.items()} == {
        "a": (np.int64, 0),
        "b": (np.float64, 0),
    }


class Key(NamedTuple):
    instance: int
    step: int
    words: tuple[str, ...]


class Other(NamedTuple):
    instance: int
    step: int
    name: str


def recorded(rows=500, spans_kept=None, on_rows=None):
    random = np.random.default_rng(0)
    recorder = Recorder(["controller", "linear", "relu"], 3, spans_kept, on_rows=on_rows)
    for _ in range(rows):
        node, direction = int(random.integers(1, 3)), int(random.integers(0, 3))
        staleness = int(random.integers(0, 4)) if (node, direction) == (1, 1) else -1
        start_s, seconds = float(random.random()), float(random.random())
        flop, key = int(random.integers(0, 9)), Key(0, int(random.integers(0, 9)), ("x",))
        kind = recorder.kinds.number((int(random.integers(0, 3)), node, direction, flop, 8, 1))
        recorder.spans.append((kind, start_s, start_s + seconds, staleness, key, START))
        recorder.span_number()
        if direction == 0:
            recorder.updates.append((node, start_s, 1, 0.0, 0))
            recorder.stashes.append((node, start_s, 80))
        recorder.flush_if_full()
    recorder.flush()
    return recorder


@pytest.mark.usefixtures("small_chunks")
def test_summary_is_what_the_frames_say():
    recorder = recorded()
    spans, updates, summary = recorder.frame("spans"), recorder.frame("updates"), recorder.summary
    duration_s = spans["end_s"] - spans["start_s"]
    assert summary.messages == len(spans) == 500
    assert summary.busy_s == pytest.approx(duration_s.groupby(spans["worker"]).sum().to_numpy())
    assert summary.end_s == spans["end_s"].max()
    assert summary.flop == spans["flop"].sum()
    gradients = spans[spans["staleness"] >= 0]
    assert summary.staleness == {1: gradients["staleness"].value_counts().to_dict()}
    assert summary.staleness_mean == pytest.approx(gradients["staleness"].mean())
    assert summary.staleness_max == gradients["staleness"].max()
    counts = updates["node"].value_counts()
    assert summary.update_count.tolist() == [counts[node] for node in recorder.nodes]


@pytest.mark.usefixtures("small_chunks")
def test_summary_does_not_depend_on_what_is_kept():
    few, all_ = recorded(spans_kept=3), recorded()
    assert len(few.frame("spans")) == 3
    assert len(few.frame("updates")) == len(few.frame("stashes")) == 3
    assert list(all_.frame("stashes")["node"]) == list(all_.frame("updates")["node"])
    assert few.summary.messages == all_.summary.messages
    assert few.summary.staleness == all_.summary.staleness


@pytest.mark.usefixtures("small_chunks")
def test_a_sink_gets_every_span_however_few_are_kept():
    taken = []
    recorded(
        spans_kept=3,
        on_rows=lambda table, rows: taken.extend(rows["end_s"] if table == "spans" else ()),
    )
    assert taken == recorded().frame("spans")["end_s"].tolist()


def test_summary_of_nothing_is_nothing():
    summary = Summary(2, 3)
    assert (summary.messages, summary.end_s, summary.staleness) == (0, 0.0, {})
    assert np.isnan(summary.staleness_mean)
    assert summary.staleness_max is None


def test_frames_have_names_instead_of_codes_and_all_categories():
    frame = recorded(1).frame("spans")
    names = list(TABLE_SCHEMAS["spans"])
    assert list(frame.columns) == names
    assert set(frame["lane"]) == {"compute"}
    assert list(frame["node"].cat.categories) == ["controller", "linear", "relu"]
    assert list(frame["direction"].cat.categories) == ["update", "backward", "forward"]
    transfers = to_frame({"source": np.array([0]), "target": np.array([2])}, ["a", "b", "c"])
    assert transfers.iloc[0].tolist() == ["a", "c"]


def test_states_are_told_by_their_counters_and_names_without_the_instance():
    known = States()
    keys = [Key(7, 3, ("a",)), Key(8, 3, ("b",)), Key(7, 4, ("a",)), (-1,), Other(1, 3, "x")]
    codes = [*known.codes(keys), *known.codes(keys)]
    assert [known.texts[code] for code in codes] == [
        "step 3",
        "step 3",
        "step 4",
        "",
        "step 3, name x",
    ] * 2
    assert len(set(known.texts)) == len(known.texts) == 4


def test_states_beyond_the_most_are_not_told_apart(monkeypatch):
    monkeypatch.setattr(recorder, "STATES_MAX", 3)
    known = States()
    codes = known.codes(Key(0, step, ()) for step in (1, 2, 3, 4, 1, 5))
    texts = [known.texts[code] for code in codes]
    assert texts == ["step 1", "step 2", "...", "...", "step 1", "..."]
    assert known.texts == ["", "step 1", "step 2", "..."]


def test_known_states_go_to_another_process_without_their_types():
    class Local(NamedTuple):
        instance: int
        step: int

    known = States()
    before = [*known.codes([Local(0, 1), Local(0, 2)])]
    sent = pickle.loads(pickle.dumps(known))
    assert [*sent.codes([Local(0, 1), Local(0, 3), Local(0, 2)])] == [before[0], 3, before[1]]
    assert sent.texts == ["", "step 1", "step 2", "step 3"]


@pytest.mark.usefixtures("small_chunks")
def test_spans_have_states_in_words():
    frame = recorded(50).frame("spans")
    assert set(frame["state"]) <= {f"step {step}" for step in range(9)}
    assert len(set(frame["state"])) > 1
