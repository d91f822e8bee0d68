"""ampsim calibrate machine: the fit finds what made the points, and files name the machine."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from ampsim.errors import OptionError
from ampsim.hardware import Device, load_device
from ampsim.hardware.record import Machine
from ampsim.study.calibration.here import cpu_name, measured_elsewhere, this_machine
from ampsim.study.calibration.machine_fit import fit_machine, predicted_s
from ampsim.study.calibration.machine_points import MachinePoint, measure
from ampsim.study.calibration.machine_text import machine_text

RATE, OVERHEAD_S, LIGHT, MEMORY, STEP_S = 1e11, 5e-7, 2e10, 1e10, 3e-7
BY_ROWS = {1: 0.1, 10: 0.5, 100: 1.0}
BY_ELEMENTS = {10_000: 0.4, 1_000_000: 1.0}


def made_up() -> list[MachinePoint]:
    """Points of a machine whose every number is known, by the formula of the documents."""
    points = [
        MachinePoint("memory", "sum", (8,), 0, 10**9, 1, 10**9 / MEMORY),
        MachinePoint("step", "message", (), 0, 0, 0, STEP_S),
    ]
    for rows, fraction in BY_ROWS.items():
        for elements, other in BY_ELEMENTS.items():
            width = round(elements**0.5)
            flop = 2 * rows * elements
            seconds = OVERHEAD_S + flop / (RATE * fraction * other)
            shape = (rows, width, width)
            points.append(MachinePoint("product", "forward", shape, flop, 0, 1, seconds))
    for size, operations in ((10**3, 1), (10**5, 1), (10**4, 4), (10**6, 2)):
        seconds = operations * OVERHEAD_S + size / LIGHT
        points.append(MachinePoint("light", "sum", (1, size), 0, size, operations, seconds))
    return points


def test_the_fit_finds_the_numbers_that_made_the_points():
    fit = fit_machine(made_up())
    found = fit.numbers
    assert found["operation_overhead_s"] == pytest.approx(OVERHEAD_S, rel=1e-3)
    assert found["light_bandwidth_bytes_per_s"] == pytest.approx(LIGHT, rel=1e-3)
    assert found["memory_bandwidth_bytes_per_s"] == pytest.approx(MEMORY)
    assert found["step_overhead_s"] == STEP_S
    assert found["flop_per_s"] == pytest.approx(RATE, rel=1e-3)
    assert dict(found["efficiency"]) == pytest.approx(BY_ROWS, rel=1e-3)
    assert dict(found["matrix_efficiency"]) == pytest.approx(BY_ELEMENTS, rel=1e-3)
    assert max(map(abs, fit.of("product") + fit.of("light"))) < 1e-3


def test_a_shape_that_was_not_measured_is_interpolated():
    """At the middle of 1 and 100 in logarithms, half way between the fractions there."""
    device = Device(name="d", flop_per_s=RATE, efficiency=[(1, 0.2), (100, 1.0)])
    point = MachinePoint("product", "forward", (10, 10, 10), 2000, 0, 1, 1.0)
    assert predicted_s(device, point) == pytest.approx(2000 / (RATE * 0.6))


@pytest.mark.parametrize(("kind", "kept"), [("product", 3), ("light", 2), ("step", 0)])
def test_too_few_points_are_refused(kind, kept):
    mine = [one for one in made_up() if one.kind == kind][:kept]
    others = [one for one in made_up() if one.kind != kind]
    with pytest.raises(OptionError, match=rf"points of kind {kind}, got {kept}; measure more"):
        fit_machine([*mine, *others])


def test_light_operations_of_one_size_tell_nothing_apart():
    points = [one for one in made_up() if one.kind != "light"]
    alike = MachinePoint("light", "sum", (1, 10), 0, 1000, 1, 1e-6)
    with pytest.raises(OptionError, match="do not tell overhead from bandwidth; measure payloads"):
        fit_machine([*points, alike, alike, alike])


def test_points_are_what_the_operations_do():
    points = measure(rounds=1, matrices=[(20, 30)], rows=[2], payloads=[(4, 5)])
    products = [one for one in points if one.kind == "product"]
    assert [one.what for one in products] == ["forward", "input gradient", "weight gradient"]
    assert {one.flop for one in products} == {2 * 2 * 20 * 30}
    by_name = {one.what: one for one in points if one.kind == "light"}
    assert by_name["sum"].bytes == 3 * 4 * 20 and by_name["sigmoid"].operations == 4
    assert all(one.seconds > 0 for one in points)


def test_a_device_file_names_the_machine_and_check_tells_another(call, tmp_path):
    text = machine_text("mine", fit_machine(made_up()), this_machine())
    Path(tmp_path / "mine.toml").write_text(text)
    device = load_device(tmp_path / "mine.toml")
    assert device.measured_on is not None and device.measured_on.cpu == cpu_name()
    assert measured_elsewhere(device) == []
    ended = call("check", str(tmp_path / "mine.toml"))
    assert ended.code == 0 and ended.err == ""
    other = text.replace(f'cpu = "{cpu_name()}"', 'cpu = "A Chip"')
    Path(tmp_path / "other.toml").write_text(other)
    ended = call("check", str(tmp_path / "other.toml"))
    assert ended.code == 0
    assert "measured with another processor, A Chip, and this machine has" in ended.err


def test_other_kernels_of_linear_algebra_are_told():
    here = this_machine()
    there = Machine(cpu=here.cpu, linear_algebra="a library", date="2020-01-01")
    device = Device(name="d", flop_per_s=1e9, measured_on=there)
    (text,) = measured_elsewhere(device, here)
    assert text.startswith("measured with another linear algebra, a library, and this machine has")


def test_where_nobody_says_the_digest_is_as_it_was():
    """As published manifests have it."""
    device = Device(name="d", flop_per_s=1e9)
    there = Machine(cpu="a", linear_algebra="b", date="2020-01-01")
    assert device.digest == "e56d44293ef6d366add0a87c3aaadb2c4b0e241ef5d9b3b5d65ae2f618a72c60"
    assert Device(name="d", flop_per_s=1e9, measured_on=there).digest != device.digest


@pytest.mark.slow
def test_the_command_measures_this_machine(call):
    ended = call("calibrate", "machine", "--out", "made", "--rounds", "1", "--quiet")
    assert ended.code == 0 and ended.err == ""
    device = load_device("made/this-machine.toml")
    assert 1e8 < device.flop_per_s < 1e13 and device.source("flop_per_s").kind == "measured"
    with open("made/points.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) > 200


def test_rounds_belong_to_the_machine(mistake):
    assert "--rounds concerns calibrate machine" in mistake(
        "calibrate", "table", "x.toml", "--rounds", "3"
    )
    assert "rounds must be a whole number >= 1, got 0" in mistake(
        "calibrate", "machine", "--rounds", "0"
    )
