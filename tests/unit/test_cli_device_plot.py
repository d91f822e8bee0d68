"""`ampsim devices NAME` draws what a device attains over rows, in 80 columns of plain text."""

import pytest

from ampsim import assets
from ampsim.cli.devices import BAR_CHARACTERS, ROWS, attainable_flop_per_s, attainable_text
from ampsim.hardware import Device, load_device


@pytest.mark.parametrize("name", assets.names("devices"))
def test_the_plot_of_every_shipped_device_fits_80_columns_of_plain_text(name):
    lines = attainable_text(load_device(name)).splitlines()
    assert len(lines) == 1 + len(ROWS)
    assert all(len(line) <= 80 and line.isascii() and line.isprintable() for line in lines)


def test_a_rate_alone_is_attained_with_any_rows():
    device = Device(name="d", flop_per_s=1e12)
    assert {attainable_flop_per_s(device, rows) for rows in ROWS} == {1e12}
    bars = [line.split()[-1] for line in attainable_text(device).splitlines()[1:]]
    assert bars == ["#" * BAR_CHARACTERS] * len(ROWS)


def test_overhead_and_memory_lower_what_is_attained():
    device = Device(
        name="d", flop_per_s=1e12, memory_bandwidth_bytes_per_s=1e11, operation_overhead_s=1e-6
    )
    weights, flop = 1024 * 1024, 2 * 1024 * 1024
    assert attainable_flop_per_s(device, 1) == pytest.approx(
        flop / (1e-6 + 4 * (weights + 2 * 1024) / 1e11)
    )
    assert attainable_flop_per_s(device, 4096) == pytest.approx(
        4096 * flop / (1e-6 + 4096 * flop / 1e12)
    )


def test_a_matrix_of_that_size_and_its_rows_have_their_efficiency():
    device = Device(
        name="d",
        flop_per_s=1e12,
        efficiency=((1, 0.5), (64, 1.0)),
        matrix_efficiency=((1024 * 1024, 0.25), (2**22, 1.0)),
    )
    assert attainable_flop_per_s(device, 1) == pytest.approx(1e12 / 8)
    assert attainable_flop_per_s(device, 64) == pytest.approx(1e12 / 4)


def test_weights_come_from_a_cache_that_holds_them():
    numbers = {"flop_per_s": 1e15, "memory_bandwidth_bytes_per_s": 1e10}
    small = Device(name="d", **numbers, cache_bytes=2**22 - 1, cache_bandwidth_bytes_per_s=1e12)
    enough = Device(name="d", **numbers, cache_bytes=2**22, cache_bandwidth_bytes_per_s=1e12)
    assert attainable_flop_per_s(enough, 1) > 50 * attainable_flop_per_s(small, 1)


def test_a_device_is_shown_with_its_plot_and_a_cluster_without(call):
    assert attainable_text(load_device("p100")) in call("devices", "p100").out
    with open("pair.toml", "w", encoding="utf-8") as file:
        file.write('[[device]]\nname = "p100"\ncount = 2\n')
    assert "attainable" not in call("devices", "pair.toml").out
