"""A device: how fast it computes, and where each of its numbers comes from."""

from __future__ import annotations

from ampsim.hardware.efficiency import Efficiency
from ampsim.hardware.record import UNSOURCED, Rate, Seconds, Source, digest_of
from ampsim.toml_file import Record, Text


class Sources(Record):
    """Where each number of a device comes from, under the number's own key."""

    flop_per_s: Source | None = None
    operation_overhead_s: Source | None = None
    memory_bandwidth_bytes_per_s: Source | None = None
    efficiency: Source | None = None


NUMBERS = tuple(Sources.model_fields)
"""The keys of a device that need a source where a file gives them."""


class Device(Record):
    """What one worker computes on.

    The default of each optional number reduces the device to the paper's: a FLOP rate alone.

    Args:
        name: as users type it; the file's name without its suffix.
        description: what it is, in a sentence.
        flop_per_s: sustained rate of floating-point operations, multiply and add counted as two.
        operation_overhead_s: what each step of a node costs before it computes anything.
        memory_bandwidth_bytes_per_s: sustained rate at which a step's bytes are read and written;
            None where memory is free.
        efficiency: points (rows, fraction): a step on that many rows reaches that fraction of
            `flop_per_s`; see `ampsim.hardware.efficiency`. None where it always reaches all of it.
        sources: where each number comes from; a file must say for each that it gives.

    Source: AMPNet, Appendix C, for `flop_per_s`; overhead and bandwidth make it a roofline.
    """

    name: Text
    description: str = ""
    flop_per_s: Rate
    operation_overhead_s: Seconds = 0.0
    memory_bandwidth_bytes_per_s: Rate | None = None
    efficiency: Efficiency = None
    sources: Sources = Sources()

    @property
    def digest(self) -> str:
        """SHA-256 of what the device says, 64 hexadecimal digits; independent of its file."""
        return digest_of(self.model_dump(mode="json"))

    def source(self, key: str) -> Source:
        """Where the number `key` comes from."""
        return getattr(self.sources, key) or UNSOURCED
