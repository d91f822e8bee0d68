"""A device of ours from somebody else's file, whichever of the known ones it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from ampsim.errors import FileFormatError
from ampsim.hardware.device import REMARKS, Device
from ampsim.hardware.foreign.calculon import is_calculon, read_calculon
from ampsim.hardware.foreign.simumax import is_simumax, read_simumax
from ampsim.hardware.foreign.table import JsonTable, Reading, read_json
from ampsim.text import printable, to_toml
from ampsim.toml_file import validate


class Imported(NamedTuple):
    """A device that was made of a foreign file.

    Args:
        device: with a source for each number, which names the file and the key.
        simulator: whose file it was.
        left_out: a sentence for each thing that could not be carried over.
    """

    device: Device
    simulator: str
    left_out: list[str]


def import_device(path: str | os.PathLike[str]) -> Imported:
    """The device that a system file of Calculon or SimuMax describes.

    Raises:
        FileFormatError: it is neither, or a value in it is wrong.
    """
    table = read_json(path)
    reading = _reading(table)
    place = Path(path)
    sources = {
        key: {
            "kind": "assumed",
            "text": f"{place.name}, a file of {reading.simulator}: {taken.how}",
        }
        for key, taken in reading.numbers.items()
    }
    content: dict[str, Any] = {
        "name": place.stem or "imported",
        "description": f"From {place.name}, a file of {reading.simulator}",
        **{key: taken.value for key, taken in reading.numbers.items()},
        "flop_format": reading.flop_format,
        "sources": sources,
    }
    device = validate(Device, content, table.label)
    return Imported(device, reading.simulator, [printable(one) for one in reading.left_out])


def device_toml(device: Device) -> str:
    """The device file of a device: what it sets, and the source of each number."""
    sources = {key: device.source(key).model_dump() for key in device.numbers}
    head = {
        "name": device.name,
        "description": device.description or None,
        **{key: getattr(device, key) for key in REMARKS.values()},
    }
    return to_toml({**head, **device.numbers, "sources": sources})


def _reading(table: JsonTable) -> Reading:
    if is_calculon(table):
        return read_calculon(table)
    if is_simumax(table):
        return read_simumax(table)
    raise FileFormatError(
        f"{table.label}: expected a system file of Calculon, with the keys matrix and mem1, or of "
        "SimuMax, with the key accelerator; got neither"
    )
