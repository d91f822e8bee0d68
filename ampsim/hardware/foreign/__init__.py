"""Descriptions of devices by other simulators, read as devices of ours."""

from ampsim.hardware.foreign.importing import Imported, device_toml, import_device

__all__ = ["Imported", "device_toml", "import_device"]
