"""The time of a step equals the roofline, written out a second time, for every kind of device."""

import itertools
import math

import pytest

from ampsim.hardware import Device, occupancy_s
from ampsim.ir import Direction
from ampsim.ir.work import Work
from ampsim.model_parallel.price import Prices
from ampsim.nodes import Linear, Tanh
from ampsim.trace import Kinds

RATE = 3.7e11
MEMORY = 1.3e10
GROUPS = {
    "operation_overhead_s": {"operation_overhead_s": 9e-7},
    "step_overhead_s": {"step_overhead_s": 3.1e-6},
    "efficiency": {"efficiency": ((1, 0.1), (16, 0.7), (128, 1.0))},
    "matrix_efficiency": {"matrix_efficiency": ((1000, 0.2), (100_000, 0.9))},
    "memory": {"memory_bandwidth_bytes_per_s": MEMORY},
    "cache": {"cache_bytes": 300_000, "cache_bandwidth_bytes_per_s": 9e10},
    "light": {"light_bandwidth_bytes_per_s": 7e9},
    "no time": {
        "memory_bytes": 10**9,
        "jitter_cv": 0.3,
        "idle_power_w": 10.0,
        "busy_power_w": 90.0,
        "price_usd_per_h": 2.5,
        "message_overhead_s": 1e-6,
        "copy_bandwidth_bytes_per_s": 1e9,
        "copy_latency_s": 1e-6,
    },
}
NEED_MEMORY = {"cache", "light"}
KEYS = [
    frozenset(chosen)
    for count in range(len(GROUPS) + 1)
    for chosen in itertools.combinations(GROUPS, count)
    if "memory" in chosen or not NEED_MEMORY & set(chosen)
]
SHAPES = list(itertools.product((1, 3, 16, 100, 1000), ((10, 7), (64, 64), (300, 1024))))


def on_curve(points, count):
    """Between two points linear in the logarithm, outside the nearest point."""
    if count <= points[0][0]:
        return points[0][1]
    for (low, start), (high, end) in itertools.pairwise(points):
        if count == low:
            return start
        if low < count < high:
            return start + (end - start) * math.log(count / low) / math.log(high / low)
    return points[-1][1]


def roofline_s(keys, work, *, is_light, rows, elements, resident):
    """The formula of the documentation, from the numbers of `GROUPS` alone."""
    pays_for_light = keys & {"operation_overhead_s", "step_overhead_s", "memory"}
    if is_light and not pays_for_light:
        return 0.0
    rate = RATE
    if "efficiency" in keys and rows is not None:
        rate = rate * on_curve(GROUPS["efficiency"]["efficiency"], rows)
    if "matrix_efficiency" in keys and elements is not None:
        rate = rate * on_curve(GROUPS["matrix_efficiency"]["matrix_efficiency"], elements)
    traffic_s = 0.0
    if "memory" in keys:
        if is_light and "light" in keys:
            traffic_s = work.bytes / 7e9
        elif "cache" in keys and resident <= 300_000:
            traffic_s = (work.bytes - work.weight_bytes) / MEMORY + work.weight_bytes / 9e10
        else:
            traffic_s = work.bytes / MEMORY
    step_s = 3.1e-6 if "step_overhead_s" in keys else 0.0
    operation_s = 9e-7 if "operation_overhead_s" in keys else 0.0
    return step_s + work.operations * operation_s + max(work.flop / rate, traffic_s)


def device_of(keys):
    numbers = {}
    for group in keys:
        numbers |= GROUPS[group]
    return Device(name="d", flop_per_s=RATE, **numbers)


def test_there_are_combinations_of_all_keys():
    assert len(KEYS) == 2**5 * (1 + 4)
    assert frozenset(GROUPS) in KEYS


@pytest.mark.parametrize("keys", KEYS, ids=lambda keys: "+".join(sorted(keys)) or "rate alone")
def test_a_step_takes_what_the_formula_says_for_a_grid_of_shapes(keys):
    device = device_of(keys)
    for (rows, (width, height)), is_light, operations in itertools.product(
        SHAPES, (True, False), (1, 5)
    ):
        weight_bytes = 0 if is_light else 4 * width * height
        work = Work(
            flop=2 * rows * width * height,
            bytes=4 * rows * (width + height) + weight_bytes,
            operations=operations,
            weight_bytes=weight_bytes,
        )
        for resident in (weight_bytes, 300_000, 300_001):
            elements = None if is_light else width * height
            seconds = occupancy_s(
                device,
                work,
                is_light=is_light,
                rows=rows,
                resident_bytes=resident,
                matrix_elements=elements,
            )
            told = roofline_s(
                keys, work, is_light=is_light, rows=rows, elements=elements, resident=resident
            )
            assert seconds == told


def test_a_rate_alone_is_the_papers_model_to_the_bit():
    device = Device(name="d", flop_per_s=RATE)
    for rows, (width, height) in SHAPES:
        flop = 2 * rows * width * height
        work = Work(flop=flop, bytes=10**9, operations=9, weight_bytes=10**6)
        seconds = occupancy_s(
            device, work, is_light=False, rows=rows, resident_bytes=1, matrix_elements=width
        )
        assert seconds == flop / RATE
        assert occupancy_s(device, work, is_light=True, rows=rows) == 0.0


def prices_of(node, device, resident=0):
    return Prices(node, 0, 0, device, Kinds(), work=node.work, resident_bytes=resident)


@pytest.mark.parametrize("direction", Direction)
def test_a_node_is_priced_with_all_its_parameters_as_the_matrix_but_not_when_it_updates(direction):
    node = Linear("l", 30, 50)
    keys = frozenset(GROUPS) - {"light"}
    rows, elements = 8, 30 * 50 + 50
    prices = prices_of(node, device_of(keys), resident=6200)
    shape = None if direction is Direction.UPDATE else (rows, 30)
    is_update = direction is Direction.UPDATE
    told = roofline_s(
        keys,
        node.work(direction, shape),
        is_light=False,
        rows=None if is_update else rows,
        elements=None if is_update else elements,
        resident=6200,
    )
    assert prices.price(direction, shape).seconds == told


def test_a_light_node_pays_the_step_and_its_own_bandwidth_and_no_matrix():
    node = Tanh("t")
    keys = frozenset({"step_overhead_s", "memory", "light", "matrix_efficiency"})
    price = prices_of(node, device_of(keys)).price(Direction.FORWARD, (8, 30))
    work = node.work(Direction.FORWARD, (8, 30))
    assert price.seconds == 3.1e-6 + max(work.flop / RATE, work.bytes / 7e9)
    assert price.seconds > 3.1e-6


def test_a_step_that_only_waits_pays_no_overhead():
    prices = prices_of(Tanh("t"), device_of(frozenset({"step_overhead_s"})))
    assert not prices.is_free
    assert prices.price(Direction.FORWARD, (-1,)).seconds == 0.0
    assert prices.price(Direction.FORWARD, (2, 2)).seconds == 3.1e-6


def test_messages_that_are_served_as_one_step_pay_its_overhead_once():
    prices = prices_of(Linear("l", 30, 50), device_of(frozenset({"step_overhead_s"})))
    one = prices.price(Direction.FORWARD, (8, 30)).seconds
    needed = prices.needed
    two = prices.price_of_group(Direction.FORWARD, [(8, 30), (8, 30)], [needed, needed]).seconds
    assert two == 3.1e-6 + 2 * 16 * 30 * 50 / RATE
    assert two < 2 * one
