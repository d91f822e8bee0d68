"""What steps and messages cost, and what is said of it."""

import pytest

from ampsim.hardware import (
    Charge,
    Device,
    Link,
    charges,
    light_is_free,
    load_device,
    occupancy_s,
)
from ampsim.ir.work import Work

PAPER = Device(name="paper", flop_per_s=1e12)
OVERHEAD = Device(name="overhead", flop_per_s=1e12, operation_overhead_s=1e-6)
ROOFLINE = Device(
    name="roofline",
    flop_per_s=1e12,
    operation_overhead_s=1e-6,
    memory_bandwidth_bytes_per_s=1e9,
)


def test_heavy_work_lasts_flop_over_rate():
    assert occupancy_s(PAPER, Work(flop=3_000_000, bytes=10**9), is_light=False) == 3e-6


def test_light_work_is_free_by_default():
    assert light_is_free(PAPER)
    assert occupancy_s(PAPER, Work(flop=10**9, bytes=10**9), is_light=True) == 0


def test_overhead_is_charged_for_every_step_heavy_or_light():
    assert not light_is_free(OVERHEAD)
    assert occupancy_s(OVERHEAD, Work(), is_light=True) == 1e-6
    assert occupancy_s(OVERHEAD, Work(flop=2_000_000), is_light=False) == 3e-6


def test_roofline_is_the_larger_of_arithmetic_and_traffic():
    traffic_bound, compute_bound = Work(flop=10**6, bytes=5000), Work(flop=10**7, bytes=5000)
    for is_light in (True, False):
        assert occupancy_s(ROOFLINE, traffic_bound, is_light=is_light) == 1e-6 + 5e-6
        assert occupancy_s(ROOFLINE, compute_bound, is_light=is_light) == 1e-6 + 1e-5


CACHED = ROOFLINE.model_copy(
    update={"cache_bytes": 10_000, "cache_bandwidth_bytes_per_s": 1e10},
)


@pytest.mark.parametrize(
    ("resident_bytes", "memory_s"), [(None, 5e-6), (10_001, 5e-6), (10_000, 1.4e-6), (0, 1.4e-6)]
)
def test_weights_come_from_a_cache_that_has_room_for_all_of_the_worker_s(resident_bytes, memory_s):
    work = Work(bytes=5000, weight_bytes=4000)
    for is_light in (True, False):
        seconds = occupancy_s(CACHED, work, is_light=is_light, resident_bytes=resident_bytes)
        assert seconds == pytest.approx(1e-6 + memory_s)


def test_overhead_is_charged_for_every_operation_of_a_step():
    work = Work(flop=2_000_000, operations=5)
    assert occupancy_s(OVERHEAD, work, is_light=False) == pytest.approx(7e-6)
    assert occupancy_s(PAPER, work, is_light=False) == 2e-6


def test_link_is_free_only_without_latency_and_bandwidth():
    assert Link().is_free
    assert not Link(latency_s=1e-9).is_free
    assert not Link(bandwidth_bytes_per_s=1e24).is_free


def test_charges_of_the_papers_device_are_formula_and_assumption():
    assert charges(load_device("tflops-1")) == [
        Charge("heavy steps", "formula", "FLOP / flop_per_s (AMPNet, Appendix C)"),
        Charge("light steps", "assumed", "free, as no bandwidth or overhead is named"),
        Charge(
            "flop_per_s = 1e+12",
            "assumed",
            "AMPNet, Appendix C: a hypothetical device that computes 10^12 FLOP per second",
        ),
    ]


def test_light_steps_are_free_but_for_their_messages_where_these_have_an_overhead():
    device = Device(name="d", flop_per_s=1e12, message_overhead_s=1e-7)
    (light,) = [one.text for one in charges(device) if one.what == "light steps"]
    assert light == "free but for message_overhead_s, as no bandwidth or other overhead is named"


def test_charges_of_the_cpu_core_are_measured():
    heavy, light, *numbers = charges(load_device("cpu-core"))
    step = (
        "operations x operation_overhead_s + max(FLOP / (flop_per_s x efficiency of the rows), "
        "bytes / memory_bandwidth_bytes_per_s); weights with cache_bandwidth_bytes_per_s instead, "
        "if all weights on the worker, without sparse tables, fit into cache_bytes"
    )
    assert (light.kind, light.text) == ("formula", step)
    assert heavy.text == f"roofline over the FLOP of AMPNet, Appendix C: {step}"
    kinds = ["measured", "measured", "measured", "datasheet", "measured", "measured"]
    assert [row.kind for row in numbers] == kinds
    assert numbers[3].what == "cache_bytes = 2097152"
    numbers.pop(3)
    assert all("NumPy 2.4" in row.text or "Same core" in row.text for row in numbers)


def test_overhead_alone_is_said_to_be_added():
    assert charges(OVERHEAD)[1].text == "operations x operation_overhead_s + FLOP / flop_per_s"


CURVE = Device(name="curve", flop_per_s=1e12, efficiency=((4, 0.25), (64, 0.75)))


@pytest.mark.parametrize(
    ("rows", "fraction"),
    [(0, 0.25), (1, 0.25), (4, 0.25), (16, 0.5), (64, 0.75), (10**6, 0.75), (None, 1.0)],
)
def test_few_rows_reach_a_fraction_of_the_rate(rows, fraction):
    work = Work(flop=3_000_000)
    assert occupancy_s(CURVE, work, is_light=False, rows=rows) == pytest.approx(3e-6 / fraction)
    assert occupancy_s(PAPER, work, is_light=False, rows=rows) == 3e-6


def test_efficiency_slows_arithmetic_and_not_memory():
    slow = ROOFLINE.model_copy(update={"efficiency": ((1, 0.5),)})
    traffic_bound, compute_bound = Work(flop=10**6, bytes=5000), Work(flop=10**7, bytes=5000)
    assert occupancy_s(slow, traffic_bound, is_light=False, rows=1) == 1e-6 + 5e-6
    assert occupancy_s(slow, compute_bound, is_light=False, rows=1) == 1e-6 + 2e-5


def test_one_point_holds_for_all_rows():
    flat = Device(name="flat", flop_per_s=1e12, efficiency=((7, 0.5),))
    for rows in (1, 7, 100):
        assert occupancy_s(flat, Work(flop=10**6), is_light=False, rows=rows) == 2e-6


def test_charges_say_that_rows_matter():
    heavy, light, *_numbers, curve = charges(CURVE)
    assert heavy.text == "FLOP / (flop_per_s x efficiency of the rows) (AMPNet, Appendix C)"
    assert light.kind == "assumed"
    assert curve.what == "efficiency = 0.25 at 4 to 0.75 at 64 rows"
    assert [charge.kind for charge in charges(load_device("fpga"))[2:]] == [
        "formula", "assumed", "datasheet", "assumed", "assumed", "datasheet",
    ]  # fmt: skip


def test_the_p100_takes_as_long_for_few_rows_as_for_64():
    """Its file's assumption, which interpolation between the points keeps within a tenth."""
    device = load_device("p100")
    whole_s = occupancy_s(device, Work(2 * 64 * 2560 * 2560), is_light=False, rows=64)
    measured_s = 2 * 64 * 2560 * 2560 / 5.31e12
    assert whole_s - device.operation_overhead_s == pytest.approx(measured_s, rel=1e-3)
    for rows in (1, 3, 11, 16, 24, 50):
        some = Work(2 * rows * 2560 * 2560)
        assert occupancy_s(device, some, is_light=False, rows=rows) == pytest.approx(
            whole_s, rel=0.1
        )
