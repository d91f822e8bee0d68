"""What a device attains over rows, as bars of plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ampsim.units import format_flop, format_percent

if TYPE_CHECKING:
    from ampsim.hardware import Device

WIDTH: Final = 1024
"""Rows and columns of the weight matrix; chosen: that of a large layer, 4 MiB in float32."""

ROWS: Final = tuple(2**power for power in range(13))
"""Rows of the payload that are shown: 1 to 4096."""

FLOAT32_BYTES: Final = 4
BAR_CHARACTERS: Final = 44
"""Length of a bar that reaches all of `flop_per_s`; chosen: the rows then fit 80 columns."""


def attainable_flop_per_s(device: Device, rows: int) -> float:
    """FLOP per second of one product of `rows` float32 rows with a 1024 x 1024 weight matrix.

    It is one operation of one step that reads its rows and its weights once and writes its result,
    on a worker that hosts no other weights.
    """
    from ampsim.hardware import occupancy_s
    from ampsim.ir import Work

    weight_bytes = WIDTH * WIDTH * FLOAT32_BYTES
    work = Work(
        flop=2 * rows * WIDTH * WIDTH,
        bytes=weight_bytes + 2 * rows * WIDTH * FLOAT32_BYTES,
        weight_bytes=weight_bytes,
    )
    seconds = occupancy_s(
        device,
        work,
        is_light=False,
        rows=rows,
        resident_bytes=weight_bytes,
        matrix_elements=WIDTH * WIDTH,
    )
    return work.flop / seconds


def attainable_text(device: Device) -> str:
    """A line for each count of rows: what is attained, and which part of `flop_per_s` that is."""
    title = f"attainable FLOP/s over rows, for a float32 matrix of {WIDTH} x {WIDTH}"
    return "\n".join([title, *(_line(device, rows) for rows in ROWS)])


def _line(device: Device, rows: int) -> str:
    rate = attainable_flop_per_s(device, rows)
    fraction = rate / device.flop_per_s
    bar = "#" * round(BAR_CHARACTERS * fraction)
    return (
        f"  {rows:>4}  {format_flop(rate) + '/s':>14} {format_percent(fraction):>8}  {bar}".rstrip()
    )
