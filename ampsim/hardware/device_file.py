"""A device file: one device, with a source for each of its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ampsim.errors import FileFormatError
from ampsim.hardware.device import NUMBERS, Device
from ampsim.toml_file import validate


def device_of(table: Mapping[str, Any], path: Path, label: str) -> Device:
    """The device that a file's table describes; its name is the file's where none is given.

    Raises:
        FileFormatError: a key or value is wrong, or a number and its source do not pair.
    """
    device = validate(Device, {"name": path.stem, **table}, label)
    for key in NUMBERS:
        has_source = getattr(device.sources, key) is not None
        if key in table and not has_source:
            raise FileFormatError(
                f"{label}: missing key 'sources.{key}'; say where the number comes from, "
                f'as in sources.{key} = {{kind = "assumed", text = "..."}}'
            )
        if has_source and key not in table:
            raise FileFormatError(
                f"{label}: sources.{key} belongs to no number; add {key} or remove its source"
            )
    return device
