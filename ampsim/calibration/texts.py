"""Device files written of what was fitted, and words on the machine."""

from __future__ import annotations

import contextlib
import math
import platform
import re
import statistics
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pandas as pd

from ampsim.calibration.fit import Calibration, Fitted, median_error, rank_correlation
from ampsim.calibration.machine import REACH_MAX, STACKED, Kind, MachineFit
from ampsim.hardware import Cluster, Device
from ampsim.hardware.device import REMARKS
from ampsim.hardware.efficiency import SURFACES
from ampsim.hardware.record import Machine
from ampsim.study.process_settings import linear_algebra
from ampsim.text import to_toml
from ampsim.units import format_percent


def this_machine() -> Machine:
    """The processor, the library of linear algebra, and today's date."""
    return Machine(
        cpu=cpu_name(),
        linear_algebra=linear_algebra() or "unknown",
        date=datetime.now(UTC).date().isoformat(),
    )


def cpu_name() -> str:
    """The processor's name, as the system gives it; else its architecture."""
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        if found := re.search(r"^model name[ \t]*:[ \t]*(\S.*)$", text, re.MULTILINE):
            return " ".join(found[1].split())
    return platform.processor() or platform.machine() or "unknown"


def measured_elsewhere(hardware: Device | Cluster, here: Machine | None = None) -> list[str]:
    """A sentence for each device whose numbers another machine gave than `here`, or this one."""
    devices = [hardware] if isinstance(hardware, Device) else list(dict.fromkeys(hardware.devices))
    here, found = here or this_machine(), list[str]()
    for there in (one.measured_on for one in devices if one.measured_on is not None):
        noun, was, now = "processor", there.cpu, here.cpu
        if was == now:
            noun, was, now = "linear algebra", there.linear_algebra, here.linear_algebra
        if was != now:
            found.append(
                f"measured with another {noun}, {was}, and this machine has {now}; its times are "
                "not this machine's: try ampsim calibrate machine"
            )
    return found


DIGITS = 4
"""Significant digits of a fitted number in a file (chosen: far more than its interval has)."""


def device_text(found: Calibration) -> str:
    """The device file, as TOML."""
    file = found.table.file
    content: dict[str, Any] = {"name": file.name, "description": file.description or None}
    sources: dict[str, Any] = {}
    content |= {key: getattr(found.device, key) for key in REMARKS.values()}
    for key, value in found.device.numbers.items():
        fitted = next((one for one in found.fitted if one.key == key), None)
        content[key] = value if fitted is None else written(fitted)
        sources[key] = {"kind": "assumed", "text": f"given, not fitted, in {found.table.name}"}
        if fitted is not None:
            sources[key] = _source_of_published(found, fitted)
    return to_toml({**content, "sources": sources})


def written(fitted: Fitted) -> float:
    """The number as a file has it: at a bound, which may be another number's, that itself."""
    return fitted.value if fitted.is_at_bound else rounded(fitted.value)


def rounded(value: float) -> float:
    """The value as a file has it.

    >>> rounded(22311940386.76)
    22310000000.0
    """
    return float(f"{value:.{DIGITS - 1}e}")


def _source_of_published(found: Calibration, fitted: Fitted) -> dict[str, Any]:
    seen, unseen = found.seen, found.unseen
    rows = {point.label: point.source for point in seen}
    where = f"{'; '.join(rows)} ({'; '.join(dict.fromkeys(rows.values()))})"
    interval = fitted.interval or "no interval, for no number is left over"
    text = (
        f"fitted to {len(seen)} published numbers, {where}: {interval}; simulated over published, "
        f"less 1: median {median_error(seen):.1%} in size"
    )
    if unseen:
        error = median_error(unseen)
        text += f", {error:.1%} over numbers that the fit did not see ({len(unseen)})"
    if not math.isnan(rank := rank_correlation(unseen)):
        text += f", rank correlation {rank:.2f}"
    if fitted.is_at_bound:
        text += "; held by a bound of the file"
    text += f"; ampsim calibrate table {found.table.name}"
    return {"kind": "fitted", "text": text, **ends(written(fitted), fitted.low, fitted.high)}


def ends(value: float, low: float, high: float) -> dict[str, float]:
    """The ends, which hold the value, of an interval in a file; none if unknown or one number.

    >>> ends(2.0, 1.00004, 3.0), ends(2.0, math.nan, math.nan), ends(2.0, 2.00001, 2.00002)
    ({'low': 1.0, 'high': 3.0}, {}, {})
    """
    if math.isnan(low) or rounded(low) >= rounded(high):
        return {}
    return {"low": min(rounded(low), value), "high": max(rounded(high), value)}


_LIGHT: Final = "light operations after a product, at shapes of the shipped models"
_UPDATES: Final = "updates by gradient descent and Adam, after the product that gives the gradient"

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
    "cache_bytes": ("update", f"{_UPDATES}; what one of them passes over"),
    "cache_bandwidth_bytes_per_s": ("update", _UPDATES),
    "step_overhead_s": ("step", "what a plain loop takes for a message beside its operations"),
}


def machine_text(name: str, fit: MachineFit, machine: Machine) -> str:
    """The device file, as TOML."""
    content = {
        "name": name,
        "description": f"One thread of {machine.cpu}, as NumPy uses it",
        "flop_format": "float32",
        **{key: _plain(value) for key, value in fit.numbers.items()},
        "measured_on": machine.model_dump(),
        "sources": {key: _source_of_machine(key, fit) for key in fit.numbers},
    }
    return to_toml(content)


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
    return pd.DataFrame(records).to_csv(index=False, lineterminator="\n")


def summary(fit: MachineFit) -> str:
    """Tell in a line how far the fit lies from the points."""
    return "; ".join(_errors(fit, kind) for kind in ("product", "light", "update"))


def _source_of_machine(key: str, fit: MachineFit) -> dict[str, Any]:
    kind, noun = _NOUNS[key]
    way = key.removesuffix("_efficiency") if key in SURFACES else None
    text = f"{noun}; lower quartiles of rounds; {_errors(fit, kind, way)}"
    if key not in fit.factors:
        return {"kind": "measured", "text": text}
    value, factor = fit.numbers[key], fit.factors[key]
    low, high = value / factor, value * factor
    wider = ", or wider: the points say nothing of it" if factor >= REACH_MAX else ""
    text += f"; 95 % interval {low:.3g} to {high:.3g}{wider}"
    return {"kind": "measured", "text": text, **ends(rounded(value), low, high)}


def _errors(fit: MachineFit, kind: Kind, what: str | None = None) -> str:
    sizes = [abs(one) for one in fit.of(kind, what)]
    if len(sizes) == 1:
        return f"one {kind} point"
    middle, most = format_percent(statistics.median(sizes)), format_percent(max(sizes))
    return f"{len(sizes)} {kind} points, fitted over measured less 1: median {middle}, most {most}"


def _plain(value: Any) -> Any:
    if isinstance(value, int):
        return value
    return rounded(value) if isinstance(value, float) else [list(point) for point in value]
