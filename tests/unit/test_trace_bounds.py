"""Critical path, and what bounds a run, on records whose answer is known by hand."""

from __future__ import annotations

import dataclasses
import errno
import io
import math
import tempfile
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ampsim
from ampsim.errors import OutputError
from ampsim.hardware import Link
from ampsim.study.bound_words import nodes_at
from ampsim.trace import (
    PATH_KINDS,
    START,
    Bounds,
    bounds_of,
    critical_path,
    of_admission,
    of_transfer,
)
from ampsim.trace.kinds import record_of
from ampsim.trace.records import LOG_SCHEMAS, CausalRecords, Log
from ampsim.trace.summary import DIRECTIONS

HOST = -1


def records(
    spans: Any, transfers: Any = (), admissions: Any = (), closures: Any = ()
) -> CausalRecords:
    """Records of spans (worker, what, instance, start_s, end_s, cause), transfers and admissions.

    A node has its worker's number and one. A transfer is (source worker, target worker, sent_s,
    start_s, held_s, end_s, cause), an admission (time_s, cause, is_limited).
    """
    steps = [
        (start_s, end_s, cause, instance, worker, worker + 1, DIRECTIONS.index(what), 0)
        for worker, what, instance, start_s, end_s, cause in spans
    ]
    sent = [(*row[2:6], row[6], row[1] + 1, row[0], row[1], 0) for row in transfers]
    logs = {"spans": steps, "transfers": sent, "admissions": list(admissions)}
    return CausalRecords(
        *(log(name, rows) for name, rows in logs.items()), closures=((0.0, False), *closures)
    )


def log(name: str, rows: list[Any]) -> Log:
    made = Log(LOG_SCHEMAS[name])
    if rows:
        columns = zip(LOG_SCHEMAS[name].items(), zip(*rows, strict=True), strict=True)
        made({key: np.array(values, kind) for (key, kind), values in columns})
    return made


def path(found: CausalRecords) -> list[tuple[str, int, float, float]]:
    """(kind, worker, start_s, end_s) of each part."""
    columns = critical_path(found).columns()
    kinds = [PATH_KINDS[kind] for kind in columns["kind"]]
    others = (columns[name].tolist() for name in ("worker", "start_s", "end_s"))
    return list(zip(kinds, *others, strict=True))


def bounds(found: CausalRecords) -> Bounds:
    return bounds_of(found, critical_path(found))


def test_a_cause_names_a_record_and_comes_back():
    for number in (0, 1, 7, 10**12):
        assert record_of(number) == ("span", number)
        assert record_of(of_transfer(number)) == ("transfer", number)
        assert record_of(of_admission(number)) == ("admission", number)
    assert record_of(START)[0] == "start"


def test_the_path_leads_through_waiting_for_a_device_and_for_a_link():
    found = records(
        [
            (0, "forward", 0, 0.0, 1.0, of_admission(0)),
            (1, "forward", 1, 0.0, 9.0, of_admission(0)),  # in the way
            (1, "forward", 0, 9.0, 11.0, of_transfer(0)),
        ],
        [(0, 1, 1.0, 2.0, 3.0, 5.0, 0)],
        [(0.0, START, False)],
    )
    assert path(found) == [
        ("admission", HOST, 0.0, 0.0),
        ("compute", 0, 0.0, 1.0),
        ("link queue", 1, 1.0, 2.0),
        ("transfer", 1, 2.0, 5.0),
        ("device queue", 1, 5.0, 9.0),
        ("compute", 1, 9.0, 11.0),
    ]


def test_the_last_of_those_that_end_last_ends_the_path():
    steps = [(0, "forward", 0, 0.0, 2.0, START), (1, "forward", 1, 1.0, 2.0, START)]
    assert path(records(steps)) == [("device queue", 1, 0.0, 1.0), ("compute", 1, 1.0, 2.0)]


def test_steps_that_take_no_time_join_others_and_are_left_out():
    steps = [(0, "forward", 0, 0, 1, START), (1, "forward", 0, 1, 1, 0), (2, "forward", 0, 1, 3, 1)]
    assert path(records(steps)) == [("compute", 0, 0, 1), ("compute", 2, 1, 3)]


def test_an_instance_that_the_limit_kept_out_is_marked_by_a_moment():
    found = records(
        [
            (0, "backward", 0, 0.0, 2.0, of_admission(0)),
            (0, "forward", 1, 2.0, 5.0, of_admission(1)),
        ],
        admissions=[(0.0, START, False), (2.0, 0, True)],
        closures=[(0.0, True), (2.0, False)],
    )
    kinds = [kind for kind, *_rest in path(found)]
    assert kinds == ["admission", "compute", "limit", "compute"]
    assert bounds(found).path_share == pytest.approx(3 / 5)


def test_rounding_does_not_say_which_of_equal_nodes_is_named_first():
    assert nodes_at("worker 0", {"a": 0, "b": 0}, {"a": 0.3, "b": 0.1 + 0.2}) == "a, b"


def test_what_is_behind_a_barrier_must_have_come_before():
    """The controller's update stands between the two; the limit, behind it, is of its own pass."""
    found = records(
        [
            (0, "backward", 0, 0.0, 2.0, of_admission(0)),
            (0, "backward", 1, 2.0, 4.0, of_admission(1)),
            (0, "update", -1, 4.0, 5.0, 1),
            (0, "forward", 2, 5.0, 6.0, of_admission(2)),
        ],
        admissions=[(0.0, START, False), (2.0, 0, True), (5.0, 2, False)],
    )
    assert bounds(found).path_share == pytest.approx(4 / 6)


def test_rounding_of_a_transfers_end_leaves_no_gap_and_no_overlap():
    end_s = 0.3
    for wrong in (end_s, np.nextafter(end_s, 1), np.nextafter(end_s, 0)):
        steps = [(0, "forward", 0, 0.0, 0.1, START), (1, "forward", 0, end_s, 0.5, of_transfer(0))]
        found = path(records(steps, [(0, 1, 0.1, 0.1, 0.1, wrong, 0)]))
        assert [(start, end) for *_what, start, end in found] == [(0, 0.1), (0.1, 0.3), (0.3, 0.5)]


def test_a_worker_that_is_always_busy_is_the_bound():
    steps = [(0, "forward", key, float(key), key + 1.0, START) for key in range(9)]
    steps += [(1, "forward", key, key + 1.0, key + 1.1, key) for key in range(8)]
    found = bounds(records(steps, closures=[(0.0, True), (8.0, False)]))
    assert (found.bound_by, found.worker_share) == ("worker 0", pytest.approx(1.0))
    assert found.admission_share == pytest.approx(0.0)


def test_admission_counts_the_time_in_which_instances_are_kept_out_and_the_busiest_idles():
    steps = [
        (0, "forward", 0, 0, 2, START),
        (0, "backward", 0, 6, 8, 0),
        (1, "forward", 0, 2, 3, 0),
    ]
    always = bounds(records(steps, closures=[(0.0, True), (8.0, False)]))
    assert (always.bound_by, always.admission_share) == ("worker 0", pytest.approx(4 / 8))
    for from_s, until_s, share in ((1, 3, 1), (3, 5, 2), (5, 7, 1), (0, 1, 0)):
        some = bounds(records(steps, closures=[(from_s, True), (until_s, False)]))
        assert some.admission_share == pytest.approx(share / 8)
    of_two_copies = [(1.0, True), (3.0, True), (3.0, False), (5.0, False), (9.0, True)]
    some = bounds(records(steps, closures=of_two_copies))
    assert some.admission_share == pytest.approx(3 / 8)
    open_to_the_end = bounds(records(steps, closures=[(5.0, True)]))
    assert open_to_the_end.admission_share == pytest.approx(1 / 8)


def test_a_link_is_held_for_bytes_over_bandwidth_and_not_for_its_latency():
    steps = [(0, "forward", 0, 0, 1, START), (1, "forward", 0, 11, 20, of_transfer(1))]
    sent = [(0, 1, 0, 0, 3, 8, START), (0, 1, 1, 3, 6, 11, 0), (1, 0, 0, 0, 0, 5, START)]
    found = bounds(records(steps, sent))
    assert found.link_share == pytest.approx(6 / 20)
    assert found.path_share == pytest.approx((1 + 8 + 9) / 20)


def test_a_link_that_is_always_occupied_is_the_bound():
    steps = [(0, "forward", 0, 0.0, 0.1, START), (1, "forward", 9, 10.0, 10.1, of_transfer(9))]
    sent = [(0, 1, 0.1, key, key + 1.0, key + 1.0, 0) for key in range(10)]
    assert bounds(records(steps, sent)).bound_by == "link 0 to 1"
    from_host = [(HOST, *row[1:]) for row in sent]
    assert bounds(records(steps, from_host)).bound_by == "link host to 1"


def test_a_transfer_after_the_last_step_holds_its_link_until_the_end_only():
    steps = [(0, "forward", 0, 0.0, 2.0, START)]
    assert bounds(records(steps, [(0, HOST, 2.0, 2.0, 9.0, 9.0, 0)])).link_share == 0.0
    assert bounds(records(steps, [(0, 1, 1.0, 1.0, 9.0, 9.0, 0)])).link_share == 0.5


@pytest.mark.parametrize("steps", [[], [(0, "forward", 0, 0, 0, START)]])
def test_where_no_time_passes_nothing_is_known(steps):
    found = bounds(records(steps))
    assert found.bound_by is None
    assert all(map(math.isnan, (found.worker_share, found.path_share, found.admission_share)))


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
@pytest.mark.parametrize("schedule", [ampsim.Pipeline(3), ampsim.Amp(3), ampsim.Sequential()])
def test_a_path_read_in_pieces_says_what_it_says_as_a_whole(
    schedule, parts, chain, make_cluster, monkeypatch
):
    cluster = make_cluster(2, link=Link(latency_s=0.5))
    model = chain(((1, 2, 1), (2, 3, 1)), instances=9, valid=3).model()
    whole = ampsim.simulate(model, cluster, schedule)
    bounds, sums = whole.bounds, whole.critical_path_parts
    module = critical_path.__globals__  # `ampsim.trace` has the function under the module's name
    monkeypatch.setitem(module, "CHUNK_ROWS", parts)
    monkeypatch.setitem(module, "PIECE_PARTS", 2 * parts)
    pieces = ampsim.simulate(model, cluster, schedule)
    assert len(list(pieces._path.pieces())) > 2
    pd.testing.assert_frame_equal(pieces.critical_path, whole.critical_path)
    by = ["kind", "node", "direction", "worker"]
    again = pieces.critical_path_parts.sort_values(by, ignore_index=True)
    pd.testing.assert_frame_equal(again, sums.sort_values(by, ignore_index=True))
    assert pieces.bounds.bound_by == bounds.bound_by
    assert dataclasses.astuple(pieces.bounds)[1:] == pytest.approx(dataclasses.astuple(bounds)[1:])


def test_the_file_of_a_log_ends_with_it():
    made = Log({"a": np.float64}, bytes_max=0)
    made({"a": np.arange(3.0)})
    file = made._file
    assert file is not None and not file.closed
    del made
    assert file.closed


@pytest.mark.parametrize("bytes_max", [0, 200, 1 << 20])
def test_a_log_gives_back_its_rows_whether_in_memory_or_in_a_file(bytes_max):
    whole = np.arange(50.0)
    made = Log({"a": np.float64, "b": np.int8}, bytes_max)
    for chunk in (slice(0, 7), slice(7, 8), slice(8, 30), slice(30, 50)):
        made({"b": whole[chunk], "a": 2 * whole[chunk], "c": whole[chunk]})
    assert len(made) == 50
    assert [made.row(one) for one in (49, 7, 0, 29, 30, 8)] == [
        (98.0, 49), (14.0, 7), (0.0, 0), (58.0, 29), (60.0, 30), (16.0, 8),
    ]  # fmt: skip
    assert np.concatenate(list(made.chunks()))["a"].tolist() == (2 * whole).tolist()


def test_a_disk_that_is_full_is_told_with_the_folder(monkeypatch):
    class Full(io.BytesIO):
        def write(self, _content):
            raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Full())
    made = Log({"a": np.float64}, bytes_max=0)
    said = "^cannot keep a trace in TMPDIR, .*: the disk is full; free some space or choose"
    with pytest.raises(OutputError, match=said):
        made({"a": np.arange(3.0)})
