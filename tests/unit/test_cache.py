"""What a worker's cache keeps, and which steps read their weights from it."""

from __future__ import annotations

import numpy as np
import pytest

from ampsim import Amp, simulate
from ampsim.hardware import Device
from ampsim.ir import Direction
from ampsim.ir.work import Calls
from ampsim.model_parallel.price import Prices, resident_bytes
from ampsim.nodes import Embedding, Linear, ReLU
from ampsim.trace import Kinds

MEMORY, CACHE = 1e3, 1e6
WEIGHTS = 4 * (10 * 10 + 10)  # bytes of Linear("l", 10, 10) in single precision
PAYLOADS = 4 * (10 + 10)  # bytes of a row of input and a row of output
FROM_MEMORY = (WEIGHTS + PAYLOADS) / MEMORY
FROM_CACHE = WEIGHTS / CACHE + PAYLOADS / MEMORY
FORWARD, BACKWARD, UPDATE = Direction.FORWARD, Direction.BACKWARD, Direction.UPDATE


def device(cache_bytes: int | None, bandwidth: str = "memory_bandwidth_bytes_per_s") -> Device:
    """Arithmetic is free beside its memory, or its passes."""
    cache = {"cache_bytes": cache_bytes, "cache_bandwidth_bytes_per_s": CACHE}
    numbers = {bandwidth: MEMORY, **(cache if cache_bytes else {})}
    return Device(name="d", flop_per_s=1e24, **numbers)


def linear(name: str = "l") -> Linear:
    return Linear(name, 10, 10)


def priced(cache_bytes, *placed, bandwidth="memory_bandwidth_bytes_per_s"):
    """(node, its prices) for each (node, worker)."""
    nodes, workers = zip(*placed, strict=True)
    for node in nodes:
        if node.is_parameterized:
            node.adopt(np.zeros(node.parameter_count, np.float32))
    kept, where = resident_bytes(nodes, workers), device(cache_bytes, bandwidth)
    return [
        (
            node,
            Prices(
                node, place, worker, where, Kinds(), work=node.work, resident_bytes=kept[worker]
            ),
        )
        for place, (node, worker) in enumerate(placed)
    ]


def seconds(one, direction, shape=(1, 10)):
    _node, prices = one
    return pytest.approx(prices.price(direction, shape).seconds)


def test_weights_that_fit_exactly_are_read_from_the_cache_and_payloads_from_memory():
    for cache_bytes, expected in ((WEIGHTS, FROM_CACHE), (WEIGHTS - 1, FROM_MEMORY)):
        (one,) = priced(cache_bytes, (linear(), 0))
        assert seconds(one, FORWARD) == expected
        assert seconds(one, BACKWARD) == expected + PAYLOADS / MEMORY


def test_an_update_goes_to_memory_with_what_the_optimizer_keeps():
    (one,) = priced(10**9, (linear(), 0))
    assert seconds(one, UPDATE, None) == 4 * WEIGHTS / MEMORY
    one[0].state_arrays = 2
    (one,) = priced(10**9, (one[0], 0))
    assert seconds(one, UPDATE, None) == 8 * WEIGHTS / MEMORY


@pytest.mark.parametrize("states", [0, 2])
def test_an_updates_passes_are_at_the_caches_bandwidth_as_far_as_the_workers_updates_fit(states):
    """b bytes over what fits take b / cache bandwidth; the part that does not fit, the passes'."""
    kept = (2 + states) * WEIGHTS
    passed = 7 * WEIGHTS
    for nodes, room, share in ((1, kept, 1), (1, kept // 2, 1 / 2), (2, kept, 1 / 2), (2, 1, 0)):
        placed = [(linear(f"l{number}"), 0) for number in range(nodes)]
        for one, _worker in placed:
            one.step_by(states, Calls(2, 7))
        (one, *_others) = priced(room, *placed, bandwidth="pass_bandwidth_bytes_per_s")
        told = passed * (share / CACHE + (1 - share) / MEMORY)
        assert one[1].price(UPDATE, None).seconds == pytest.approx(told, rel=2e-3)


def test_a_sparse_tables_update_and_payloads_find_nothing_in_the_cache():
    table = Embedding("e", 1000, 10, is_sparse=True)
    placed = (table, 0), (ReLU("r"), 0), (linear(), 0)  # a layer beside them has use of it
    found = priced(10**9, *placed, bandwidth="pass_bandwidth_bytes_per_s")
    bare = priced(None, *placed, bandwidth="pass_bandwidth_bytes_per_s")
    for (_node, one), (_same, other) in zip(found[:2], bare[:2], strict=True):
        for direction in (FORWARD, UPDATE) if one is found[0][1] else (FORWARD,):
            shape = (3,) if one is found[0][1] else (1, 10)
            assert one.price(direction, shape).seconds == other.price(direction, shape).seconds > 0


def test_nodes_of_one_worker_share_its_cache_and_those_of_others_do_not():
    for workers, expected in (((0, 1), FROM_CACHE), ((0, 0), FROM_MEMORY)):
        placed = zip((linear("l"), linear("m")), workers, strict=True)
        for one in priced(2 * WEIGHTS - 1, *placed):
            assert seconds(one, FORWARD) == expected


def test_light_steps_move_payloads_alone_and_gain_nothing_from_a_cache():
    (one,) = priced(10**9, (ReLU("r"), 0))
    assert seconds(one, FORWARD, (1, 125)) == 1000 / MEMORY


def test_a_sparse_table_takes_no_room_and_its_rows_come_from_memory():
    row = 4 * 10
    table = Embedding("e", 1000, 10, is_sparse=True)
    embedding, other = priced(WEIGHTS, (table, 0), (linear(), 0))
    assert seconds(embedding, FORWARD, (1,)) == 2 * row / MEMORY
    assert seconds(other, FORWARD) == FROM_CACHE


def test_a_table_that_is_not_sparse_takes_room_as_all_weights_do():
    row = 4 * 10
    for cache_bytes, rows_s, expected in (
        (WEIGHTS + 1000 * row, row / CACHE + row / MEMORY, FROM_CACHE),
        (WEIGHTS + 1000 * row - 1, 2 * row / MEMORY, FROM_MEMORY),
    ):
        embedding, other = priced(cache_bytes, (Embedding("e", 1000, 10), 0), (linear(), 0))
        assert seconds(embedding, FORWARD, (1,)) == rows_s
        assert seconds(other, FORWARD) == expected


def test_in_a_run_a_cache_helps_only_where_the_weights_fit(mlp_on):
    """The engine tells every one what its worker hosts."""
    plain, small, large = mlp_on(None), mlp_on(1), mlp_on(10**9)
    assert plain == small > large > 0


@pytest.fixture
def mlp_on(make_cluster):
    """Makespan of a small perceptron on one worker with a cache of so many bytes."""
    from ampsim import load_model

    def makespan_s(cache_bytes):
        one = Device(name="d", flop_per_s=1e12, memory_bandwidth_bytes_per_s=1e9)
        if cache_bytes is not None:
            cache = {"cache_bytes": cache_bytes, "cache_bandwidth_bytes_per_s": 1e12}
            one = one.model_copy(update=cache)
        cluster = make_cluster(1).model_copy(update={"devices": (one,)})
        model = load_model("mlp", data="synthetic", hidden=8)
        return simulate(model, cluster, Amp(2), mode="sleep", instances=200).makespan_s

    return makespan_s
