"""The time of a step equals the roofline, written out a second time, for every kind of device."""

import itertools
import math

import pytest
from covering import together

from ampsim.hardware import Device, occupancy_s
from ampsim.ir import Direction
from ampsim.ir.work import Work
from ampsim.model_parallel.price import WAITS, Prices
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
    "surface": {
        "forward_efficiency": (
            (1, 1000, 0.1),
            (1, 100_000, 0.4),
            (16, 1000, 0.5),
            (16, 100_000, 0.8),
        ),
        "backward_efficiency": (
            (4, 1000, 0.2),
            (4, 50_000, 0.3),
            (64, 1000, 0.6),
            (64, 50_000, 1.0),
        ),
    },
    "passes": {"pass_bandwidth_bytes_per_s": 2.3e10},
    "functions": {"functions_per_s": 3.1e9},
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
APART = ({"surface", "efficiency"}, {"surface", "matrix_efficiency"}, {"passes", "light"})
KEYS = [
    frozenset(chosen)
    for count in range(len(GROUPS) + 1)
    for chosen in itertools.combinations(GROUPS, count)
    if "memory" in chosen or "light" not in chosen
    if {"memory", "passes"} & set(chosen) or "cache" not in chosen
    if not any(pair <= set(chosen) for pair in APART)
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


def on_table(points, rows, elements):
    """By the law between the rows of a table: seconds are linear in rows, then in log elements."""
    (first, small, a), (_, large, b), (last, _, c), (_, _, d) = points
    k, size = min(max(rows, first), last), min(max(elements, small), large)
    seconds = []
    for at_first, at_last in ((a, c), (b, d)):
        slope = (last / at_last - first / at_first) / (last - first)
        seconds.append((first / at_first + slope * (k - first)) / k)
    part = math.log(size / small) / math.log(large / small)
    return 1 / (seconds[0] + part * (seconds[1] - seconds[0]))


def roofline_s(keys, work, *, is_light, rows, elements, resident, is_backward=False, updated=None):
    """The formula of the documentation, from the numbers of `GROUPS` alone."""
    pays_for_light = keys & {
        "operation_overhead_s", "step_overhead_s", "memory", "passes", "functions",
    }  # fmt: skip
    if is_light and not pays_for_light:
        return 0.0
    rate = RATE
    if "efficiency" in keys and rows is not None:
        rate = rate * on_curve(GROUPS["efficiency"]["efficiency"], rows)
    if "matrix_efficiency" in keys and elements is not None:
        rate = rate * on_curve(GROUPS["matrix_efficiency"]["matrix_efficiency"], elements)
    if "surface" in keys and rows is not None and elements is not None:
        way = "backward" if is_backward else "forward"
        rate = rate * on_table(GROUPS["surface"][f"{way}_efficiency"], rows, elements)
    traffic_s, passes_s = 0.0, 0.0
    if "passes" in keys:
        passed = work.pass_bytes or (work.bytes if is_light else 0)
        near = passed * min(1, 300_000 / updated) if "cache" in keys and updated else 0
        passes_s = near / 9e10 + (passed - near) / 2.3e10
    if "functions" in keys:
        passes_s += work.functions / 3.1e9
    if "memory" in keys and not (is_light and "passes" in keys):
        if is_light and "light" in keys:
            traffic_s = work.bytes / 7e9
        elif "cache" in keys and resident <= 300_000:
            traffic_s = (work.bytes - work.weight_bytes) / MEMORY + work.weight_bytes / 9e10
        else:
            traffic_s = work.bytes / MEMORY
    step_s = 3.1e-6 if "step_overhead_s" in keys else 0.0
    operation_s = 9e-7 if "operation_overhead_s" in keys else 0.0
    return step_s + work.operations * operation_s + max(work.flop / rate, traffic_s) + passes_s


def device_of(keys):
    numbers = {}
    for group in keys:
        numbers |= GROUPS[group]
    return Device(name="d", flop_per_s=RATE, **numbers)


def test_there_are_combinations_of_all_keys():
    """Four groups are free; of three, rows and matrix or the table; of two, light or passes."""
    free, fractions, memory_and_light = 4, 2 * 2 + 1, (3 + 4 + 2)
    assert len(KEYS) == 2**free * fractions * memory_and_light
    assert frozenset(GROUPS) - {"surface", "passes"} in KEYS


CURVES = frozenset({"efficiency", "matrix_efficiency", "surface"})


@together("curves, others", [(keys & CURVES, keys - CURVES) for keys in KEYS])
def test_a_step_takes_what_the_formula_says_for_a_grid_of_shapes(curves, others):
    keys = curves | others
    device = device_of(keys)
    in_cache = ((0, None), (300_000, 300_000), (300_001, 450_000))
    sizes = in_cache if "cache" in keys else in_cache[:1]
    ways = (False, True) if "surface" in keys else (False,)
    for (rows, (width, height)), is_light, operations, size, is_backward in itertools.product(
        SHAPES, (True, False), (1, 5), sizes, ways
    ):
        resident, updated = size
        weight_bytes = 0 if is_light else 4 * width * height
        work = Work(
            flop=2 * rows * width * height,
            bytes=4 * rows * (width + height) + weight_bytes,
            operations=operations,
            weight_bytes=weight_bytes,
            pass_bytes=0 if operations == 1 else 12 * rows * height,
            functions=rows * height,
        )
        elements = None if is_light else width * height
        seconds = occupancy_s(
            device,
            work,
            is_light=is_light,
            rows=rows,
            resident_bytes=resident,
            matrix_elements=elements,
            is_backward=is_backward,
            updated_bytes=updated,
        )
        told = roofline_s(
            keys,
            work,
            is_light=is_light,
            rows=rows,
            elements=elements,
            resident=resident,
            is_backward=is_backward,
            updated=updated,
        )
        assert seconds == (pytest.approx(told, rel=1e-12) if "surface" in keys else told)


def test_where_passes_are_charged_a_view_is_no_operation_and_steps_without_flop_are_passes():
    device = device_of({"passes", "operation_overhead_s", "step_overhead_s"})
    assert occupancy_s(device, Work(), is_light=True) == 3.1e-6
    assert occupancy_s(device_of({"operation_overhead_s"}), Work(), is_light=True) == 9e-7
    gather = Work(0, 46_000, 2)
    assert occupancy_s(device, gather, is_light=False) == pytest.approx(3.1e-6 + 1.8e-6 + 2e-6)


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
@pytest.mark.parametrize("curves", [("surface",), ("efficiency", "matrix_efficiency")])
def test_a_node_is_priced_with_all_its_parameters_as_the_matrix_but_not_when_it_updates(
    direction, curves
):
    node = Linear("l", 30, 50)
    keys = frozenset(GROUPS) - {"light", *curves}
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
        is_backward=direction is Direction.BACKWARD,
        updated=2 * 6200 if is_update else None,
    )
    assert prices.price(direction, shape).seconds == pytest.approx(told, rel=1e-12)


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
    assert prices.price(Direction.FORWARD, WAITS).seconds == 0.0
    assert prices.price(Direction.FORWARD, (2, 2)).seconds == 3.1e-6


def test_messages_that_are_served_as_one_step_pay_its_overhead_once():
    prices = prices_of(Linear("l", 30, 50), device_of(frozenset({"step_overhead_s"})))
    one = prices.price(Direction.FORWARD, (8, 30)).seconds
    two = prices.price_of_group(Direction.FORWARD, [(8, 30), (8, 30)], [None, None]).seconds
    assert two == 3.1e-6 + 2 * 16 * 30 * 50 / RATE
    assert two < 2 * one


def test_messages_without_a_gradient_are_no_operations_of_a_step_that_has_one():
    """One alone is one operation; several are that one, and beside others they are none."""
    prices = prices_of(Linear("l", 30, 50), device_of(frozenset({"operation_overhead_s"})))

    def group(*shapes: tuple[int, int] | None) -> float:
        needed = [None] * len(shapes)
        return prices.price_of_group(Direction.BACKWARD, shapes, needed).seconds

    assert group(None, None, None) == group(None) > 0
    assert group(None, (8, 50), None) == group((8, 50))
