"""A device fitted to what single operations took on a machine."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ampsim.errors import OptionError
from ampsim.hardware import Device
from ampsim.hardware.cost import rate_flop_per_s
from ampsim.study.calibration.least_squares import (
    SingularFit,
    least_squares,
    student_quantile,
)
from ampsim.study.calibration.machine_points import Kind, MachinePoint

PASSES: Final = 20
"""Of the median polish (chosen: it stands after a few)."""

POINTS_MIN: Final[dict[Kind, int]] = {"product": 4, "light": 3, "memory": 1, "step": 1}
"""Least points of each kind: more than the numbers that they decide."""


@dataclass(frozen=True, slots=True)
class MachineFit:
    """What was fitted, and how far each point lies from it.

    Args:
        numbers: of a device, by its keys.
        points: what was measured.
        residuals: fitted over measured seconds, less 1, of each point.
        factors: by which a 95 % interval reaches below and above `operation_overhead_s` and
            `light_bandwidth_bytes_per_s`.
    """

    numbers: dict[str, Any]
    points: tuple[MachinePoint, ...]
    residuals: tuple[float, ...]
    factors: tuple[float, float]

    def of(self, kind: Kind) -> list[float]:
        """Residuals of the points of one kind."""
        pairs = zip(self.points, self.residuals, strict=True)
        return [residual for point, residual in pairs if point.kind == kind]


def fit_machine(points: Sequence[MachinePoint]) -> MachineFit:
    """Fit a device to measured points.

    Light operations decide overhead and bandwidth, t = operations · o + bytes / b, by least squares
    of logarithms. Products, less their overhead, decide the FLOP rate and its fractions by
    rows and by elements of the matrix, whose logarithms add up, by Tukey's median polish.

    Raises:
        OptionError: there are too few points of a kind.
    """
    by_kind: dict[Kind, list[MachinePoint]] = {
        kind: [one for one in points if one.kind == kind] for kind in POINTS_MIN
    }
    for kind, least in POINTS_MIN.items():
        if len(by_kind[kind]) < least:
            raise OptionError(
                f"a machine's device takes at least {least} points of kind {kind}, got "
                f"{len(by_kind[kind])}; measure more shapes"
            )
    overhead_s, bandwidth, factors = _light(by_kind["light"])
    memory = statistics.median(one.bytes / one.seconds for one in by_kind["memory"])
    numbers: dict[str, Any] = {
        **_rates(by_kind["product"], overhead_s),
        "operation_overhead_s": overhead_s,
        "step_overhead_s": by_kind["step"][0].seconds,
        "memory_bandwidth_bytes_per_s": memory,
        "light_bandwidth_bytes_per_s": bandwidth,
    }
    device = Device(name="machine", **numbers)
    residuals = [predicted_s(device, one) / one.seconds - 1 for one in points]
    return MachineFit(numbers, tuple(points), tuple(residuals), factors)


def predicted_s(device: Device, point: MachinePoint) -> float:
    """Seconds of a point on a device, without what a step takes beside its operations."""
    if point.kind == "step":
        return device.step_overhead_s
    overhead_s = point.operations * device.operation_overhead_s
    if point.kind == "product":
        k, d_in, d_out = point.shape
        return overhead_s + point.flop / rate_flop_per_s(device, k, d_in * d_out)
    memory = device.memory_bandwidth_bytes_per_s
    light = device.light_bandwidth_bytes_per_s
    bandwidth = memory if point.kind == "memory" else light
    assert bandwidth is not None
    return overhead_s + point.bytes / bandwidth


def _light(points: Sequence[MachinePoint]) -> tuple[float, float, tuple[float, float]]:
    """Overhead, bandwidth, and the ends of a 95 % interval as a factor on each."""
    operations, moved, logs = (
        np.array(values, float)
        for values in zip(
            *((p.operations, p.bytes, math.log(p.seconds)) for p in points), strict=True
        )
    )

    def residuals(at: Sequence[float]) -> np.ndarray:
        return np.log(operations * math.exp(at[0]) + moved * math.exp(-at[1])) - logs

    start, bounds = (math.log(1e-6), math.log(1e10)), ((-23.0, 0.0), (10.0, 40.0))
    try:
        found = least_squares(residuals, start, bounds)
    except SingularFit:
        raise OptionError(
            "the light operations do not tell overhead from bandwidth; measure payloads of more "
            "sizes"
        ) from None
    margin = student_quantile(0.975, found.freedom) * np.array(found.error)
    factors = (float(np.exp(margin[0])), float(np.exp(margin[1])))
    return math.exp(found.at[0]), math.exp(found.at[1]), factors


def _rates(points: Sequence[MachinePoint], overhead_s: float) -> dict[str, Any]:
    """The FLOP rate, and its fractions by rows and by elements."""
    rates = [one.flop / max(one.seconds - overhead_s, 0.1 * one.seconds) for one in points]
    logs = np.log(rates)
    rows = np.array([one.shape[0] for one in points])
    elements = np.array([one.shape[1] * one.shape[2] for one in points])
    by_rows, by_elements = dict.fromkeys(rows.tolist(), 0.0), dict.fromkeys(elements.tolist(), 0.0)
    for _ in range(PASSES):
        for places, effects, others, of_others in (
            (rows, by_rows, elements, by_elements),
            (elements, by_elements, rows, by_rows),
        ):
            left = logs - np.array([of_others[one] for one in others.tolist()])
            for value in effects:
                effects[value] = float(np.median(left[places == value]))
    top = max(by_rows.values()) + max(by_elements.values())
    return {
        "flop_per_s": float(np.exp(top)),
        "efficiency": _curve(by_rows),
        "matrix_efficiency": _curve(by_elements),
    }


def _curve(effects: dict[int, float]) -> list[tuple[int, float]]:
    """Fractions of the largest, at ascending counts."""
    top = max(effects.values())
    return [(count, round(float(np.exp(effects[count] - top)), 4)) for count in sorted(effects)]
