"""This machine, and whether a device's numbers were measured on it."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from datetime import UTC, datetime

from ampsim.hardware import Cluster, Device
from ampsim.hardware.record import Machine
from ampsim.study.process_settings import linear_algebra

_CPU_INFO = "/proc/cpuinfo"


def this_machine() -> Machine:
    """The processor, the library of linear algebra, and today's date."""
    return Machine(
        cpu=cpu_name(),
        linear_algebra=linear_algebra() or "unknown",
        date=datetime.now(UTC).date().isoformat(),
    )


def cpu_name() -> str:
    """The processor's name, as the system gives it; else its architecture."""
    try:
        with open(_CPU_INFO, encoding="utf-8", errors="replace") as file:
            for line in file:
                key, _colon, value = line.partition(":")
                if key.strip() == "model name" and value.strip():
                    return " ".join(value.split())
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown"


def measured_elsewhere(hardware: Device | Cluster, here: Machine | None = None) -> list[str]:
    """A sentence for each device whose numbers another machine gave.

    Args:
        hardware: a device, or a cluster of some.
        here: the machine to compare with; this one unless given.
    """
    devices = [hardware] if isinstance(hardware, Device) else list(dict.fromkeys(hardware.devices))
    return [text for device in devices for text in _of(device, here or this_machine())]


def _of(device: Device, here: Machine) -> Iterator[str]:
    there = device.measured_on
    if there is None:
        return
    for noun, was, now in (
        ("processor", there.cpu, here.cpu),
        ("linear algebra", there.linear_algebra, here.linear_algebra),
    ):
        if was != now:
            yield (
                f"measured with another {noun}, {was}, and this machine has {now}; its times are "
                "not this machine's: try ampsim calibrate machine"
            )
            return
