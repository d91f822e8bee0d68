"""What was measured on a machine, as a device file and as a table of its points."""

from __future__ import annotations

import io
import statistics
from typing import Any, Final

import pandas as pd

from ampsim.hardware.record import Machine
from ampsim.study.calibration.device_text import rounded
from ampsim.study.calibration.machine_fit import MachineFit
from ampsim.study.calibration.machine_points import Kind
from ampsim.toml_text import to_toml
from ampsim.units import format_percent

_NOUNS: Final[dict[str, tuple[Kind, str]]] = {
    "flop_per_s": ("product", "products of one thread in single precision"),
    "efficiency": ("product", "medians over matrices of the same products, by rows"),
    "matrix_efficiency": ("product", "medians over rows of the same products, by elements"),
    "operation_overhead_s": ("light", "light operations at shapes of the shipped models"),
    "light_bandwidth_bytes_per_s": ("light", "the same light operations"),
    "memory_bandwidth_bytes_per_s": ("memory", "numpy.add of arrays of 64 MiB in place"),
    "step_overhead_s": ("step", "what a plain loop takes for a message beside its operations"),
}


def machine_text(name: str, fit: MachineFit, machine: Machine) -> str:
    """The device file, as TOML."""
    numbers = {key: _plain(value) for key, value in fit.numbers.items()}
    sources = {key: {"kind": "measured", "text": _source(key, fit)} for key in numbers}
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
            "flop": point.flop,
            "bytes": point.bytes,
            "operations": point.operations,
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
    text = f"{noun}; medians of rounds, processor time; {_errors(fit, kind)}"
    for place, own in enumerate(("operation_overhead_s", "light_bandwidth_bytes_per_s")):
        if key == own:
            factor, value = fit.factors[place], fit.numbers[key]
            text += f"; 95 % interval {value / factor:.3g} to {value * factor:.3g}"
    return text


def _errors(fit: MachineFit, kind: Kind) -> str:
    sizes = [abs(one) for one in fit.of(kind)]
    if len(sizes) == 1:
        return f"one {kind} point"
    middle, most = format_percent(statistics.median(sizes)), format_percent(max(sizes))
    return f"{len(sizes)} {kind} points, fitted over measured less 1: median {middle}, most {most}"


def _plain(value: Any) -> Any:
    return rounded(value) if isinstance(value, float) else [list(point) for point in value]
