"""What bounds a run, on traces whose answer is known by hand."""

import math

import numpy as np
import pytest

from ampsim.trace import bounds_of, window_of
from ampsim.trace.admission import starved_s
from ampsim.trace.critical_path import critical_path_s
from ampsim.trace.links import held_s
from ampsim.trace.recorder import DIRECTIONS, SPAN_SCHEMA, TRANSFER_SCHEMA

NODES = 9  # node n lives on worker n - 1 unless a test says otherwise; 0 is the controller


def window(spans, transfers=(), *, workers=3, end_s=None):
    """`spans`: (node, direction, instance, start_s, end_s[, worker]); `transfers`: as recorded."""
    rows = [
        (
            place[0] if place else node - 1,
            node,
            DIRECTIONS.index(what),
            key,
            start_s,
            end_s,
            0,
            0,
            -1,
            0,
        )
        for node, what, key, start_s, end_s, *place in spans
    ]
    return window_of(
        columns(SPAN_SCHEMA, rows),
        columns(TRANSFER_SCHEMA, transfers),
        workers=workers,
        nodes=NODES,
        end_s=max([row[5] for row in rows], default=0.0) if end_s is None else end_s,
    )


def columns(schema, rows):
    return {
        name: np.array([row[place] for row in rows], dtype=kind)
        for place, (name, kind) in enumerate(schema.items())
    }


def there_and_back(instance, start_s, step_s=1.0, nodes=(1, 2, 3)):
    """Spans of an instance that meets nobody."""
    way = [*((n, "forward") for n in nodes), *((n, "backward") for n in reversed(nodes))]
    return [
        (node, what, instance, start_s + place * step_s, start_s + (place + 1) * step_s)
        for place, (node, what) in enumerate(way)
    ]


def updates(start_s, end_s):
    return [(node, "update", -1, start_s, end_s) for node in (1, 2, 3)]


def test_one_instance_after_the_other_is_all_critical_path():
    spans = [*there_and_back(0, 0.0), *updates(6.0, 7.0), *there_and_back(1, 7.0), *updates(13, 14)]
    found = bounds_of(window(spans), max_active_keys=1)
    assert found.bound_by == "critical path"
    assert (found.path_share, found.link_share, found.window_s) == (1.0, 0.0, 14.0)
    assert found.worker_share == pytest.approx(6 / 14)
    assert found.admission_share == pytest.approx(8 / 14)


def test_without_barriers_instances_do_not_depend_on_each_other():
    """The same steps without updates by the controller: only the limit keeps them apart."""
    spans = [step for key in range(3) for step in there_and_back(key, 6.0 * key)]
    assert critical_path_s(window(spans)) == pytest.approx(6.0)
    found = bounds_of(window(spans), max_active_keys=1)
    assert (found.bound_by, found.admission_share) == ("admission limit", pytest.approx(2 / 3))


def test_an_updates_barrier_counts_its_longest_update_once():
    spans = [*there_and_back(0, 0.0), (1, "update", -1, 6, 7), (2, "update", -1, 6, 8)]
    assert critical_path_s(window(spans)) == pytest.approx(8.0)


def test_a_nodes_own_update_is_a_step_of_its_instance():
    spans = [*there_and_back(0, 0.0), (1, "update", 0, 6, 6.5)]
    assert critical_path_s(window(spans)) == pytest.approx(6.5)


def test_waiting_is_not_on_the_path():
    spans = [(1, "forward", 0, 0, 1), (2, "forward", 0, 5, 6), (2, "forward", 1, 1, 5)]
    assert critical_path_s(window(spans)) == pytest.approx(4.0)  # instance 1's step alone
    assert critical_path_s(window(spans[:2])) == pytest.approx(2.0)


def test_steps_of_an_instance_that_overlap_do_not_depend_on_each_other():
    spans = [(1, "forward", 0, 0, 2), (2, "forward", 0, 1, 4), (3, "forward", 0, 4, 5)]
    assert critical_path_s(window(spans)) == pytest.approx(4.0)


def test_a_transfer_is_part_of_the_path_and_waiting_for_its_link_is_not():
    spans = [(1, "forward", 0, 0, 1), (2, "forward", 0, 4, 5)]
    assert critical_path_s(window(spans, [(1, 2, 8, 2.0, 4.0)])) == pytest.approx(4.0)


def test_a_step_that_costs_nothing_joins_two_transfers():
    spans = [(1, "forward", 0, 0, 1), (2, "forward", 0, 3, 3), (3, "forward", 0, 6, 7)]
    sent = [(1, 2, 8, 1.0, 3.0), (2, 3, 8, 3.0, 6.0)]
    assert critical_path_s(window(spans, sent)) == pytest.approx(7.0)


def test_nodes_on_joined_workers_that_exchange_nothing_do_not_depend_on_each_other():
    spans = [(1, "forward", 0, 0, 3), (2, "forward", 0, 4, 6), (4, "forward", 0, 3, 4, 1)]
    sent = [(1, 4, 8, 3.0, 3.0)]  # from worker 0 to node 4, which shares worker 1 with node 2
    assert critical_path_s(window(spans, sent)) == pytest.approx(6.0)
    assert critical_path_s(window(spans[:2], [(1, 3, 8, 0.0, 0.0)])) == pytest.approx(5.0)
    alone = [*spans[:2], (4, "forward", 1, 0, 1, 1)]
    assert critical_path_s(window(alone, [(1, 4, 8, 3.0, 3.0)])) == pytest.approx(3.0)


def test_the_way_from_the_host_and_back_is_part_of_the_path():
    spans = [(1, "forward", 0, 2, 3), (1, "backward", 0, 3, 4)]
    sent = [(0, 1, 8, 0.0, 2.0), (1, 0, 8, 4.0, 7.0)]
    assert critical_path_s(window(spans, sent, end_s=7.0)) == pytest.approx(7.0)


def test_a_worker_that_is_always_busy_is_the_bound():
    spans = [(1, "forward", key, float(key), key + 1.0) for key in range(9)]
    spans += [(2, "forward", key, key + 1.0, key + 1.1) for key in range(8)]
    found = bounds_of(window(spans), max_active_keys=2)
    assert (found.bound_by, found.worker_share) == ("worker 0", pytest.approx(1.0))
    assert found.admission_share == pytest.approx(0.0)


def test_idling_counts_only_at_the_limit_or_when_all_idle():
    spans = [
        (1, "forward", 0, 0, 4),
        (2, "forward", 0, 4, 5),  # one in flight
        (3, "forward", 1, 4.5, 6),  # until 5 two in flight
        (1, "backward", 1, 7, 8),  # from 6 to 7 all idle
    ]
    found = window(spans)
    busy = (np.array([0.0, 7.0]), np.array([4.0, 8.0]))
    assert starved_s(found, busy, 3) == pytest.approx(1.0)
    assert starved_s(found, busy, 2) == pytest.approx(1.5)
    assert starved_s(found, busy, 1) == pytest.approx(3.0)


def test_a_limit_that_changes_counts_from_when_it_does():
    spans = [
        (1, "forward", 0, 0, 4),
        (2, "forward", 0, 4, 5),
        (3, "forward", 1, 4.5, 6),  # from 4.5 to 5 two in flight
        (1, "backward", 1, 7, 8),  # from 6 to 7 all idle
    ]
    found = window(spans)
    busy = (np.array([0.0, 7.0]), np.array([4.0, 8.0]))

    def limits(*steps):
        from_s, counts = zip(*steps, strict=True)
        return np.array(from_s), np.array(counts)

    assert starved_s(found, busy, limits((0.0, 3))) == pytest.approx(1.0)
    assert starved_s(found, busy, limits((0.0, 3), (4.75, 2))) == pytest.approx(1.25)
    assert starved_s(found, busy, limits((0.0, 2), (4.75, 3))) == pytest.approx(1.25)
    assert starved_s(found, busy, limits((0.0, 1), (4.0, 3), (5.5, 1))) == pytest.approx(1.5)


def test_an_instance_is_in_flight_on_its_way_from_and_to_the_host():
    spans = [(1, "forward", 0, 2, 3), (2, "forward", 0, 3, 5), (1, "forward", 1, 9, 10)]
    sent = [(0, 1, 8, 0.0, 2.0), (2, 0, 8, 5.0, 6.5)]
    busy = (np.array([2.0, 9.0]), np.array([3.0, 10.0]))
    found = window([*spans, (3, "forward", 2, 3, 9)], sent)
    assert starved_s(found, busy, 2) == pytest.approx(2.0 + 3.5 + 2.0)


def test_a_link_is_held_for_bytes_over_bandwidth_and_not_for_its_latency():
    """Latency 5 s, 2 bytes/s: sizes 0, 2 and 4 take 5, 6 and 7 s."""
    sent = [(1, 2, 0, 0.0, 5.0), (1, 2, 2, 1.0, 7.0), (1, 2, 4, 4.0, 11.0), (2, 1, 0, 0.0, 5.0)]
    spans = [(1, "forward", 0, 0, 1), (2, "forward", 0, 11, 20)]
    found = held_s(window(spans, sent))
    starts, ends = found[0, 1]
    assert (starts.tolist(), ends.tolist()) == ([0, 1, 4], [0, 2, 6])
    assert [times.tolist() for times in found[1, 0]] == [[0.0], [0.0]]
    assert bounds_of(window(spans, sent), 1).link_share == pytest.approx(3 / 20)


def test_messages_of_one_size_hold_their_link_for_at_most_the_soonest_next():
    spans = [(1, "forward", 0, 0, 1), (2, "forward", 0, 11, 20)]
    sent = [(1, 2, 8, 0.0, 5.0), (1, 2, 8, 3.0, 8.0), (1, 2, 8, 9.0, 14.0)]
    _starts, ends = held_s(window(spans, sent))[0, 1]
    assert ends.tolist() == [3.0, 6.0, 12.0]
    _starts, ends = held_s(window(spans, sent[:1]))[0, 1]
    assert ends.tolist() == [5.0]


def test_a_link_that_is_always_occupied_is_the_bound():
    spans = [(1, "forward", key, float(key), key + 0.1) for key in range(10)]
    spans += [(2, "forward", key, key + 1.1, key + 1.2) for key in range(9)]
    sent = [(1, 2, 10, key + 0.1, key + 1.1) for key in range(9)] + [(1, 2, 0, 9.1, 9.1)]
    found = bounds_of(window(spans, sent, end_s=9.1), max_active_keys=1)
    assert found.bound_by == "link 0 to 1"
    assert found.link_share == pytest.approx(9 / 9.1)
    assert found.admission_share <= 0.1 / 9.1 + 1e-12


def test_links_of_the_host_have_its_name():
    spans = [(1, "forward", key, 4.0 * key + 4, 4.0 * key + 4.1) for key in range(3)]
    sent = [(0, 1, 10, 4.0 * key, 4.0 * key + 4) for key in range(3)] + [(0, 1, 0, 12.0, 12.0)]
    found = bounds_of(window(spans, sent), max_active_keys=9)
    assert (found.bound_by, found.link_share > 0.9) == ("link host to 0", True)


def test_a_transfer_to_a_node_that_never_served_belongs_to_no_link():
    assert held_s(window([(1, "forward", 0, 0, 1)], [(1, 7, 8, 0.0, 1.0)])) == {}


def test_where_no_time_passes_nothing_is_known():
    found = bounds_of(window([(1, "forward", 0, 0, 0)]), max_active_keys=1)
    assert found.bound_by is None
    assert all(map(math.isnan, (found.worker_share, found.path_share, found.admission_share)))


def test_a_window_leaves_out_what_ends_later():
    spans = [(1, "forward", 0, 0, 1), (1, "forward", 1, 1, 3)]
    cut = window(spans, [(1, 2, 8, 0.5, 9.0), (1, 2, 8, 2.0, 9.0)], end_s=2.0)
    assert cut.seconds.tolist() == [1.0]
    assert cut.transfer_s.tolist() == [8.5]
