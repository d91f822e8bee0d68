"""Times and messages of programs that are cut over two devices meet closed forms exactly."""

from __future__ import annotations

import numpy as np
import pytest

from ampsim import flow
from ampsim.hardware import Cluster, Device, Link

PRODUCT_S = 1.0
PRODUCT_FLOP = 2 * 2 * 2 * 2
MATRIX_BYTES = 2 * 2 * 8
LATENCY_S, BANDWIDTH_BYTES_PER_S = 0.25, 64.0  # all times are exact in binary
CROSSING_S = LATENCY_S + MATRIX_BYTES / BANDWIDTH_BYTES_PER_S
EYE = {"x": np.eye(2), "w": np.eye(2)}


def pair() -> Cluster:
    devices = tuple(
        Device(name=name, flop_per_s=PRODUCT_FLOP / PRODUCT_S) for name in ("left", "right")
    )
    link = Link(latency_s=LATENCY_S, bandwidth_bytes_per_s=BANDWIDTH_BYTES_PER_S)
    return Cluster(name="pair", devices=devices, link=link)


def near(seconds: float) -> object:
    """Equal but for rounding: a clock counts ticks of 1e-18 s."""
    return pytest.approx(seconds, rel=1e-12, abs=1e-15)


def test_two_products_over_a_link_take_both_and_the_way_between():
    with flow.FlowGraph():
        x = flow.input("x", (2, 2))
        y = flow.matmul(x, x)
        with flow.device("right"):
            z = flow.matmul(y, y)
    result = flow.run(z, {"x": np.eye(2)}, cluster=pair())
    assert result.makespan_s == near(2 * PRODUCT_S + CROSSING_S)
    assert result.spans["worker"].tolist() == [0, 1]
    assert result.sent == {"tensors": 1, "predicates": 0, "signals": 0, "dead": 0}
    assert result.transfers["bytes"].tolist() == [MATRIX_BYTES]  # y once, though it is read twice


@pytest.mark.parametrize("trips", [1, 2, 5])
def test_an_iteration_of_a_cut_loop_takes_both_products_and_both_ways(trips):
    """w and the first predicate, a byte, take the link before what the first iteration sends."""

    def body(i: flow.Tensor, y: flow.Tensor) -> tuple[flow.Tensor, ...]:
        with flow.device(1):
            half = flow.matmul(y, w)
        with flow.device(0):
            return i + 1, flow.matmul(half, w)

    with flow.FlowGraph():
        x, w = flow.input("x", (2, 2)), flow.input("w", (2, 2))
        y = flow.while_loop(lambda i, y: i < trips, body, (0, x))[1]
    result = flow.run(y, EYE, cluster=pair())
    first_s = (MATRIX_BYTES + 1) / BANDWIDTH_BYTES_PER_S
    assert result.makespan_s == near(first_s + trips * 2 * (PRODUCT_S + CROSSING_S))
    assert result.sent == {
        "tensors": 2 * trips + 1,  # there and back, and w once
        "predicates": trips + 1,  # the last of them false
        "signals": 0,
        "dead": 2,  # there and back, after the last iteration
    }
    assert len(result.transfers) == sum(result.sent.values())


@pytest.mark.parametrize("steps", [1, 4])
def test_a_branch_that_is_not_taken_is_told_for_each_tensor_or_once(steps):
    with flow.FlowGraph():
        x, p = flow.input("x", (2, 2)), flow.input("p", (), "bool")

        def deep() -> flow.Tensor:
            parts = [flow.tanh(x * float(place + 2)) for place in range(steps)]
            with flow.device(1):
                return flow.sum(flow.concat(parts))

        asked = flow.cond(p, deep, lambda: flow.sum(x))
    for broadcast_dead, there in ((False, steps), (True, 1)):
        result = flow.run(
            asked, {"x": np.eye(2), "p": False}, cluster=pair(), broadcast_dead=broadcast_dead
        )
        assert result.sent["dead"] == there
        assert float(result.values[0]) == 2.0
