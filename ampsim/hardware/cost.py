"""Seconds for which a step occupies its device.

The default is the paper's: heavy work lasts FLOP / rate, and everything else is free (AMPNet,
Appendix C). A device that names its memory bandwidth or an overhead departs from it: each step,
heavy or light, then lasts its own overhead and those of its operations plus the larger of
arithmetic and memory traffic (the roofline of Williams, Waterman and Patterson, 2009). A device may
name which fraction of its rate a step on few rows or with a small matrix reaches, a bandwidth of
light steps, and a cache: where the weights that a worker hosts fit into it, its steps read them at
the cache's bandwidth. A device that names a bandwidth of passes is charged for operations other
than products one by one. `docs/decisions/0003-costs.md` has the reasons.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ampsim.hardware.device import REMARKS, Device
from ampsim.hardware.efficiency import CURVES, SURFACES, fraction_at, fraction_on
from ampsim.ir.work import NO_WORK, Work


class Charge(NamedTuple):
    """A cost that a device charges, or does not, and the authority for it.

    Args:
        what: the cost, with its number where it has one.
        kind: "formula", "measured", "assumed", "datasheet" or "fitted".
        text: the formula, or where the number comes from.
    """

    what: str
    kind: str
    text: str


def light_is_free(device: Device) -> bool:
    """Tell whether steps without heavy work cost nothing, as in the paper."""
    return (
        device.memory_bandwidth_bytes_per_s is None
        and device.pass_bandwidth_bytes_per_s is None
        and device.functions_per_s is None
        and not (device.operation_overhead_s > 0 or device.step_overhead_s > 0)
    )


def occupancy_s(
    device: Device,
    work: Work,
    *,
    is_light: bool,
    rows: int | None = None,
    resident_bytes: int | None = None,
    matrix_elements: int | None = None,
    is_backward: bool = False,
    updated_bytes: int | None = None,
    again: Work = NO_WORK,
) -> float:
    """Seconds for which a step of one node keeps its device from taking the next.

    Args:
        device: what the step runs on.
        work: what the step does, of the whole message.
        is_light: whether the step is none of those that Appendix C prices.
        rows: k, the rows of the step's payload; None where it has none, as in an update, which
            then reaches the whole FLOP rate.
        resident_bytes: weights that must fit into the device's cache for the step to read its own
            from there; None where no cache helps it.
        matrix_elements: size of the step's weight matrix; None where it has none, as in a light
            step, or multiplies by none, as in an update.
        is_backward: whether the step's products are those of a backward step.
        updated_bytes: weights, gradients and optimizer's arrays that updates on the worker pass
            over; the part of them that the device's cache has room for is the part of the passes
            that moves at the cache's bandwidth. None where the step is no update.
        again: of a backward step, the work of the forward step if it does that again.

    Source: AMPNet, Appendix C; Williams, Waterman and Patterson (2009) where bandwidth is named;
    Ilic, Pratas and Sousa, "Cache-aware roofline model" (2014) for the cache's.
    """
    if is_light and light_is_free(device):
        return 0.0
    rate = rate_flop_per_s(device, rows, matrix_elements, is_backward=is_backward)
    memory_s = _memory_s(device, work, resident_bytes, is_light=is_light)
    is_view = device.pass_bandwidth_bytes_per_s is not None and work == NO_WORK
    operations = 0 if is_view else work.operations
    overhead_s = device.step_overhead_s + operations * device.operation_overhead_s
    passes_s = _passes_s(device, work, updated_bytes, is_light=is_light)
    seconds = overhead_s + max(work.flop / rate, memory_s) + passes_s
    if again == NO_WORK:
        return seconds
    forward_s = occupancy_s(
        device, again, is_light=is_light, rows=rows, resident_bytes=resident_bytes,
        matrix_elements=matrix_elements,
    )  # fmt: skip
    return seconds + forward_s - device.step_overhead_s


def rate_flop_per_s(
    device: Device,
    rows: int | None,
    matrix_elements: int | None = None,
    *,
    is_backward: bool = False,
) -> float:
    """Return the FLOP per second that a step reaches on `rows` rows with a matrix of that size.

    None stands for any number of them.
    """
    rate = device.flop_per_s
    surface = device.backward_efficiency if is_backward else device.forward_efficiency
    if surface is not None and rows is not None and matrix_elements is not None:
        return rate * fraction_on(surface, rows, matrix_elements)
    if device.efficiency is not None and rows is not None:
        rate *= fraction_at(device.efficiency, rows)
    if device.matrix_efficiency is not None and matrix_elements is not None:
        rate *= fraction_at(device.matrix_efficiency, matrix_elements)
    return rate


def charges(device: Device) -> list[Charge]:
    """List what the device charges for, what it does not, and where that comes from.

    Returns: the rule for heavy steps, the rule for light steps, then one row for each number.
    """
    formula, is_free = _formula(device, is_light=False), light_is_free(device)
    light = "free, as no bandwidth or overhead is named"
    if messages := ", ".join(device.message_numbers):
        light = f"free but for {messages}, as no bandwidth or other overhead is named"
    rows = [
        Charge(
            "heavy steps",
            "formula",
            f"{formula} (AMPNet, Appendix C)"
            if is_free
            else f"roofline over the FLOP of AMPNet, Appendix C: {formula}",
        ),
        Charge("light steps", "assumed", light)
        if is_free
        else Charge("light steps", "formula", _formula(device, is_light=True)),
    ]
    kinds = {None: "", "peak": ", a peak", "measured": ", measured"}  # as far as the device says it
    for key, value in device.numbers.items():
        source = device.source(key)
        kind = getattr(device, REMARKS[key]) if key in REMARKS else None
        what = f"{key} = {_told(key, value)}{kinds.get(kind, f', in {kind}')}"
        rows.append(Charge(what, source.kind, source.text))
    return rows


def _memory_s(device: Device, work: Work, resident_bytes: int | None, *, is_light: bool) -> float:
    """Seconds in which a step's bytes are read and written, its weights from the cache if kept."""
    memory, cache = device.memory_bandwidth_bytes_per_s, device.cache_bandwidth_bytes_per_s
    if memory is None or (is_light and device.pass_bandwidth_bytes_per_s is not None):
        return 0.0
    if is_light and device.light_bandwidth_bytes_per_s is not None:
        return work.bytes / device.light_bandwidth_bytes_per_s
    size = device.cache_bytes
    if size is None or cache is None or resident_bytes is None or resident_bytes > size:
        return work.bytes / memory
    return (work.bytes - work.weight_bytes) / memory + work.weight_bytes / cache


def _passes_s(device: Device, work: Work, updated_bytes: int | None, *, is_light: bool) -> float:
    """Seconds that operations other than products take beside their overhead."""
    seconds, near = 0.0, 0.0
    if device.pass_bandwidth_bytes_per_s is not None:
        is_all_passes = is_light or not work.flop
        passed = work.pass_bytes or (work.bytes if is_all_passes else 0)
        if updated_bytes and device.cache_bytes and device.cache_bandwidth_bytes_per_s:
            near = passed * min(1.0, device.cache_bytes / updated_bytes)
            seconds += near / device.cache_bandwidth_bytes_per_s
        seconds += (passed - near) / device.pass_bandwidth_bytes_per_s
    if device.functions_per_s is not None:
        seconds += work.functions / device.functions_per_s
    return seconds


def _formula(device: Device, *, is_light: bool) -> str:
    has_own_bandwidth = is_light and device.light_bandwidth_bytes_per_s is not None
    has_passes = device.pass_bandwidth_bytes_per_s is not None
    memory = "light" if has_own_bandwidth else "memory"
    step = f"FLOP / {_rate(device, is_light=is_light)}"
    if device.memory_bandwidth_bytes_per_s is not None and not (is_light and has_passes):
        step = f"max({step}, bytes / {memory}_bandwidth_bytes_per_s)"
        if device.cache_bytes is not None and not has_own_bandwidth:
            step += (
                "; weights with cache_bandwidth_bytes_per_s instead, if all weights on the worker, "
                "without sparse tables, fit into cache_bytes"
            )
    if has_passes:
        step += " + bytes of passes / pass_bandwidth_bytes_per_s"
        if device.cache_bytes is not None and not is_light:
            step += (
                ", an update's with cache_bandwidth_bytes_per_s instead, as far as what updates on "
                "the worker pass over fits into cache_bytes"
            )
    if device.functions_per_s is not None:
        step += " + functions / functions_per_s"
    if device.operation_overhead_s:
        step = f"operations x operation_overhead_s + {step}"
    return f"step_overhead_s + {step}" if device.step_overhead_s else step


def _rate(device: Device, *, is_light: bool) -> str:
    parts = ["flop_per_s"]
    if device.efficiency is not None:
        parts.append("efficiency of the rows")
    if device.matrix_efficiency is not None and not is_light:
        parts.append("matrix_efficiency of the elements")
    if device.forward_efficiency is not None and not is_light:
        parts.append("forward_ or backward_efficiency of rows and elements")
    return parts[0] if len(parts) == 1 else f"({' x '.join(parts)})"


def _told(key: str, value: Any) -> str:
    if key in CURVES:
        (few, low), (many, high) = value[0], value[-1]
        return f"{low:g} at {few} to {high:g} at {many} {CURVES[key]}"
    if key in SURFACES:
        fractions = [fraction for _rows, _elements, fraction in value]
        return f"{min(fractions):g} to {max(fractions):g} at {len(value)} rows and elements"
    return str(value) if isinstance(value, int) else f"{value:g}"
