"""Costs grow with work, add up, and never fall below what either limit alone would say."""

import math

from hypothesis import given
from hypothesis import strategies as st

from ampsim.hardware import Device, occupancy_s
from ampsim.hardware.efficiency import fraction_at
from ampsim.ir.work import Work

COUNTS = st.integers(0, 10**15)
WORKS = st.tuples(COUNTS, COUNTS, st.integers(1, 100), st.floats(0, 1)).map(
    lambda parts: Work(*parts[:3], weight_bytes=int(parts[1] * parts[3]))
)
RATES = st.floats(1e-6, 1e24)
SECONDS = st.floats(0, 1e9)
DEVICES = st.builds(
    Device,
    name=st.just("any"),
    flop_per_s=RATES,
    operation_overhead_s=SECONDS,
    memory_bandwidth_bytes_per_s=st.none() | RATES,
)
CACHES = st.tuples(DEVICES, st.integers(1, 10**15), st.floats(1, 1e3)).map(
    lambda parts: parts[0].model_copy(
        update={
            "memory_bandwidth_bytes_per_s": parts[0].memory_bandwidth_bytes_per_s or 1.0,
            "cache_bytes": parts[1],
            "cache_bandwidth_bytes_per_s": parts[2]
            * (parts[0].memory_bandwidth_bytes_per_s or 1.0),
        }
    )
)
PAPERS = st.builds(Device, name=st.just("paper"), flop_per_s=RATES)


def is_at_most(first: float, second: float) -> bool:
    return first <= second * (1 + 1e-12)


@given(PAPERS, WORKS, WORKS)
def test_heavy_cost_of_the_paper_adds_up(device, first, second):
    apart = sum(occupancy_s(device, work, is_light=False) for work in (first, second))
    together = occupancy_s(device, first + second, is_light=False)
    assert math.isclose(together, apart, rel_tol=1e-12)


@given(DEVICES, WORKS, WORKS)
def test_joining_two_steps_never_costs_more_than_both(device, first, second):
    for is_light in (False, True):
        apart = sum(occupancy_s(device, work, is_light=is_light) for work in (first, second))
        assert is_at_most(occupancy_s(device, first + second, is_light=is_light), apart)


@given(DEVICES, WORKS, WORKS)
def test_more_work_never_costs_less(device, less, more):
    for is_light in (False, True):
        assert is_at_most(
            occupancy_s(device, less, is_light=is_light),
            occupancy_s(device, less + more, is_light=is_light),
        )


@given(DEVICES, WORKS)
def test_light_step_never_costs_more_than_a_heavy_one_of_equal_work(device, work):
    light, heavy = (occupancy_s(device, work, is_light=is_light) for is_light in (True, False))
    assert 0 <= light <= heavy < math.inf


@given(DEVICES, WORKS)
def test_naming_a_bandwidth_never_makes_a_heavy_step_faster(device, work):
    free_memory = device.model_copy(update={"memory_bandwidth_bytes_per_s": None})
    assert occupancy_s(device, work, is_light=False) >= occupancy_s(
        free_memory, work, is_light=False
    )


@given(CACHES, WORKS, COUNTS, COUNTS)
def test_a_cache_only_ever_saves_time_and_fewer_weights_never_cost_more(device, work, less, more):
    few_s, many_s, none_s = (
        occupancy_s(device, work, is_light=False, resident_bytes=size)
        for size in (less, less + more, None)
    )
    assert is_at_most(few_s, many_s)
    assert is_at_most(many_s, none_s)
    plain = device.model_copy(update={"cache_bytes": None, "cache_bandwidth_bytes_per_s": None})
    assert none_s == occupancy_s(plain, work, is_light=False, resident_bytes=less)


CURVES = st.lists(
    st.tuples(st.integers(1, 10**6), st.floats(1e-6, 1.0)),
    min_size=1,
    max_size=6,
    unique_by=lambda point: point[0],
).map(lambda points: tuple(sorted(points)))


@given(CURVES, st.integers(0, 2 * 10**6))
def test_a_fraction_lies_between_those_of_its_neighbours(curve, rows):
    fraction = fraction_at(curve, rows)
    below = [value for at, value in curve if at <= rows][-1:]
    above = [value for at, value in curve if at >= rows][:1]
    near = below + above
    assert min(near) * (1 - 1e-12) <= fraction <= max(near) * (1 + 1e-12)
    assert all(fraction_at(curve, at) == value for at, value in curve)


@given(DEVICES, WORKS, CURVES, st.integers(0, 10**6))
def test_efficiency_only_ever_costs_time(device, work, curve, rows):
    slow = device.model_copy(update={"efficiency": curve})
    for is_light in (False, True):
        full_s = occupancy_s(device, work, is_light=is_light, rows=rows)
        assert is_at_most(full_s, occupancy_s(slow, work, is_light=is_light, rows=rows))
        assert occupancy_s(device, work, is_light=is_light) == full_s
    whole = device.model_copy(update={"efficiency": ((1, 1.0), (9, 1.0))})
    assert occupancy_s(whole, work, is_light=False, rows=rows) == occupancy_s(
        device, work, is_light=False
    )
