"""A device fitted to what single operations took on a machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ampsim.errors import OptionError
from ampsim.hardware import Device, occupancy_s
from ampsim.study.calibration.least_squares import (
    SingularFit,
    least_squares,
    student_quantile,
)
from ampsim.study.calibration.machine_points import Kind, MachinePoint
from ampsim.study.calibration.surface_fit import Grid, Rated, fit_grid

PASSED: Final[tuple[str, ...]] = (
    "operation_overhead_s",
    "pass_bandwidth_bytes_per_s",
    "functions_per_s",
)
"""The numbers that light operations decide."""

POINTS_MIN: Final[dict[Kind, int]] = {"product": 8, "light": 4, "step": 1}
"""Least points of each kind: more than the numbers that they decide, and products of both ways."""

WAYS: Final = ("forward", "backward")


@dataclass(frozen=True, slots=True)
class MachineFit:
    """What was fitted, and how far each point lies from it.

    Args:
        numbers: of a device, by its keys.
        points: what was measured.
        residuals: fitted over measured seconds, less 1, of each point.
        factors: by which a 95 % interval reaches below and above each of `PASSED`.
    """

    numbers: dict[str, Any]
    points: tuple[MachinePoint, ...]
    residuals: tuple[float, ...]
    factors: dict[str, float]

    def of(self, kind: Kind) -> list[float]:
        """Residuals of the points of one kind."""
        pairs = zip(self.points, self.residuals, strict=True)
        return [residual for point, residual in pairs if point.kind == kind]


def fit_machine(points: Sequence[MachinePoint]) -> MachineFit:
    """Fit a device to measured points.

    Light operations decide an overhead, a bandwidth and a rate of functions, t = operations · o +
    bytes / b + functions / f, by least squares of logarithms. Products, less their overhead,
    decide the fractions of the FLOP rate over rows and elements (`surface_fit`), forward and
    backward; the rate is that of the fastest.

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
    passed, factors = _passes(by_kind["light"])
    numbers: dict[str, Any] = {
        **_rates(by_kind["product"], passed["operation_overhead_s"]),
        **passed,
        "step_overhead_s": by_kind["step"][0].seconds,
    }
    device = Device(name="machine", **numbers)
    residuals = [predicted_s(device, one) / one.seconds - 1 for one in points]
    return MachineFit(numbers, tuple(points), tuple(residuals), factors)


def predicted_s(device: Device, point: MachinePoint) -> float:
    """Seconds of a point on a device, without what a step takes beside its operations."""
    if point.kind == "step":
        return device.step_overhead_s
    rows, elements = None, None
    if point.kind == "product":
        rows, elements = point.shape[0], point.shape[1] * point.shape[2]
    seconds = occupancy_s(
        device,
        point.work,
        is_light=point.kind == "light",
        rows=rows,
        matrix_elements=elements,
        is_backward=point.what == "backward",
    )
    return seconds - device.step_overhead_s


def _passes(points: Sequence[MachinePoint]) -> tuple[dict[str, float], dict[str, float]]:
    """The numbers `PASSED`, and the ends of a 95 % interval as a factor on each."""
    operations, moved, functions, logs = (
        np.array(values, float)
        for values in zip(
            *(
                (
                    one.work.operations,
                    one.work.pass_bytes or one.work.bytes,
                    one.work.functions,
                    math.log(one.seconds),
                )
                for one in points
            ),
            strict=True,
        )
    )

    def residuals(at: Sequence[float]) -> np.ndarray:
        overhead, bandwidth, rate = map(math.exp, at)
        return np.log(operations * overhead + moved / bandwidth + functions / rate) - logs

    start = (math.log(1e-6), math.log(1e10), math.log(1e9))
    bounds = ((-23.0, 0.0), (10.0, 40.0), (10.0, 40.0))
    try:
        found = least_squares(residuals, start, bounds)
    except SingularFit:
        raise OptionError(
            "the light operations do not tell overhead, bandwidth and functions from each other; "
            "measure payloads of more sizes"
        ) from None
    margin = student_quantile(0.975, found.freedom) * np.array(found.error)
    values: dict[str, float] = dict(zip(PASSED, map(math.exp, found.at), strict=True))
    return values, dict(zip(PASSED, np.exp(margin).tolist(), strict=True))


def _rates(points: Sequence[MachinePoint], overhead_s: float) -> dict[str, Any]:
    """The highest FLOP rate of a product, and its fractions forward and backward.

    Raises:
        OptionError: all products are of one way.
    """
    grids: list[Grid] = []
    for way in WAYS:
        products = [
            Rated(
                one.shape[0],
                one.shape[1] * one.shape[2],
                one.work.flop,
                one.seconds,
                one.work.operations * overhead_s,
            )
            for one in points
            if one.what == way
        ]
        if not products:
            raise OptionError(f"a machine's device takes products {way}, got none; measure some")
        grids.append(fit_grid(products))
    fastest = max(one.work.flop / one.seconds for one in points)
    fractions = {
        f"{way}_efficiency": grid.fractions(fastest) for way, grid in zip(WAYS, grids, strict=True)
    }
    return {"flop_per_s": fastest, **fractions}
