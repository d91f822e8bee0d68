"""What a worker's cache keeps, and which steps run from it."""

from __future__ import annotations

import numpy as np
import pytest

from ampsim import Amp, simulate
from ampsim.hardware import Device
from ampsim.ir import Direction
from ampsim.nodes import Embedding, Linear, ReLU
from ampsim.runtime.site import Site, keep_weights

MEMORY, CACHE = 1e3, 1e6
WEIGHTS = 4 * (10 * 10 + 10)  # bytes of Linear("l", 10, 10) in single precision
FORWARD, BACKWARD, UPDATE = Direction.FORWARD, Direction.BACKWARD, Direction.UPDATE


def device(cache_bytes: int) -> Device:
    """Arithmetic is free beside its memory."""
    return Device(
        name="d",
        flop_per_s=1e24,
        memory_bandwidth_bytes_per_s=MEMORY,
        cache_bytes=cache_bytes,
        cache_bandwidth_bytes_per_s=CACHE,
    )


def sites(cache_bytes, *placed):
    """A site for each (node, worker)."""
    made = []
    for index, (node, worker) in enumerate(placed):
        if node.is_parameterized:
            node.adopt(np.zeros(node.parameter_count, np.float32))
        made.append(Site(node, index, worker, device(cache_bytes) if worker >= 0 else None))
    keep_weights(made)
    return made


def rate(site, direction, shape):
    """Bytes per second at which a step's bytes moved."""
    seconds, _flop, moved = site.price(direction, shape)
    return pytest.approx(moved / seconds)


def test_weights_and_payload_that_fit_exactly_run_from_the_cache():
    payload = 4 * (10 + 10)  # a row of input and a row of output
    for spare, expected in ((0, CACHE), (-1, MEMORY)):
        (site,) = sites(WEIGHTS + payload + spare, (Linear("l", 10, 10), 0))
        assert rate(site, FORWARD, (1, 10)) == expected


def test_an_update_runs_from_the_cache_only_if_the_gradient_fits_too():
    for cache_bytes, expected in ((4 * WEIGHTS, CACHE), (4 * WEIGHTS - 1, MEMORY)):
        (site,) = sites(cache_bytes, (Linear("l", 10, 10), 0))
        assert rate(site, UPDATE, None) == expected
        assert rate(site, BACKWARD, (1, 10)) == CACHE


def test_nodes_of_one_worker_share_its_cache_and_those_of_others_do_not():
    room = 2 * WEIGHTS
    linear, other, relu = Linear("l", 10, 10), Linear("m", 10, 10), ReLU("r")
    apart = sites(room, (linear, 0), (other, 1), (relu, 0))
    assert [rate(site, FORWARD, (1, 10)) for site in apart] == [CACHE] * 3
    together = sites(room, (linear, 0), (other, 0), (relu, 0))
    assert [rate(site, FORWARD, (1, 10)) for site in together] == [MEMORY] * 3


def test_a_light_step_with_a_large_payload_runs_from_memory():
    (site,) = sites(1000, (ReLU("r"), 0))
    assert rate(site, FORWARD, (1, 125)) == CACHE  # 4 bytes read and 4 written, each
    assert rate(site, FORWARD, (1, 126)) == MEMORY


def test_a_sparse_table_takes_no_room_and_its_rows_come_from_memory():
    table, linear = Embedding("e", 1000, 10, is_sparse=True), Linear("l", 10, 10)
    embedding, other = sites(2 * WEIGHTS, (table, 0), (linear, 0))
    assert rate(embedding, FORWARD, (1,)) == rate(embedding, UPDATE, (1,)) == MEMORY
    assert rate(other, FORWARD, (1, 10)) == CACHE
    dense = Embedding("e", 1000, 10)
    embedding, other = sites(2 * WEIGHTS, (dense, 0), (linear, 0))
    assert rate(embedding, FORWARD, (1,)) == rate(other, FORWARD, (1, 10)) == MEMORY


def test_a_cache_changes_a_run_only_where_weights_fit(chain, make_cluster):
    """The engine tells every site what its worker hosts."""

    def makespan_s(cache):
        one = Device(name="d", flop_per_s=1e9, memory_bandwidth_bytes_per_s=MEMORY)
        cluster = make_cluster(1)
        with_cache = {"cache_bytes": cache, "cache_bandwidth_bytes_per_s": CACHE} if cache else {}
        cluster = cluster.model_copy(update={"devices": (one.model_copy(update=with_cache),)})
        return simulate(chain(((1, 1, 1),) * 3).model(), cluster, Amp(2), mode="sleep").makespan_s

    assert makespan_s(None) == makespan_s(1) > makespan_s(10**6) > 0
