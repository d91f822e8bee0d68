"""What was measured on a machine, as a device file and as a table of its points."""

from __future__ import annotations

import io
import statistics
from typing import Any, Final

import pandas as pd

from ampsim.hardware.record import Machine
from ampsim.study.calibration.device_text import ends, rounded
from ampsim.study.calibration.machine_fit import MachineFit
from ampsim.study.calibration.machine_points import STACKED, Kind
from ampsim.toml_text import to_toml
from ampsim.units import format_percent

_LIGHT: Final = "light operations after a product, at shapes of the shipped models"

_NOUNS: Final[dict[str, tuple[Kind, str]]] = {
    "flop_per_s": ("product", "the fastest product of one thread in single precision"),
    "forward_efficiency": ("product", "products of forward steps, by rows and elements"),
    "backward_efficiency": (
        "product",
        f"both products of backward steps, that of the weight's gradient for {STACKED} messages of "
        "few rows at once",
    ),
    "operation_overhead_s": ("light", _LIGHT),
    "pass_bandwidth_bytes_per_s": ("light", _LIGHT),
    "functions_per_s": ("light", _LIGHT),
    "step_overhead_s": ("step", "what a plain loop takes for a message beside its operations"),
}


def machine_text(name: str, fit: MachineFit, machine: Machine) -> str:
    """The device file, as TOML."""
    numbers = {key: _plain(value) for key, value in fit.numbers.items()}
    sources = {
        key: {"kind": "measured", "text": _source(key, fit), **_ends(key, fit)} for key in numbers
    }
    description = f"One thread of {machine.cpu}, as NumPy uses it"
    return to_toml(
        {
            "name": name,
            "description": description,
            **numbers,
            "measured_on": machine.model_dump(),
            "sources": sources,
        }
    )


def points_text(fit: MachineFit) -> str:
    """Every point with what it took and what the fit gives for it, as CSV."""
    records = [
        {
            "kind": point.kind,
            "operation": point.what,
            "shape": " x ".join(map(str, point.shape)),
            "flop": point.work.flop,
            "bytes": point.work.pass_bytes or point.work.bytes,
            "operations": point.work.operations,
            "functions": point.work.functions,
            "seconds": point.seconds,
            "spread": point.spread,
            "residual": residual,
        }
        for point, residual in zip(fit.points, fit.residuals, strict=True)
    ]
    text = io.StringIO()
    pd.DataFrame(records).to_csv(text, index=False, lineterminator="\n")
    return text.getvalue()


def summary(fit: MachineFit) -> str:
    """How far the fit lies from the points, in a line."""
    parts = [_errors(fit, kind) for kind in ("product", "light")]
    return "; ".join(parts)


def _source(key: str, fit: MachineFit) -> str:
    kind, noun = _NOUNS[key]
    text = f"{noun}; lower quartiles of rounds; {_errors(fit, kind)}"
    if key in fit.factors:
        factor, value = fit.factors[key], fit.numbers[key]
        text += f"; 95 % interval {value / factor:.3g} to {value * factor:.3g}"
    return text


def _ends(key: str, fit: MachineFit) -> dict[str, float]:
    if key not in fit.factors:
        return {}
    value, factor = fit.numbers[key], fit.factors[key]
    return ends(value, value / factor, value * factor)


def _errors(fit: MachineFit, kind: Kind) -> str:
    sizes = [abs(one) for one in fit.of(kind)]
    if len(sizes) == 1:
        return f"one {kind} point"
    middle, most = format_percent(statistics.median(sizes)), format_percent(max(sizes))
    return f"{len(sizes)} {kind} points, fitted over measured less 1: median {middle}, most {most}"


def _plain(value: Any) -> Any:
    return rounded(value) if isinstance(value, float) else [list(point) for point in value]
