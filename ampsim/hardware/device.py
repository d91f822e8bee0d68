"""A device: how fast it computes, and where each of its numbers comes from."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from ampsim.hardware.efficiency import Efficiency
from ampsim.hardware.record import UNSOURCED, Bytes, Rate, Seconds, Source, digest_of
from ampsim.toml_file import Record, Text


class Sources(Record):
    """Where each number of a device comes from, under the number's own key."""

    flop_per_s: Source | None = None
    operation_overhead_s: Source | None = None
    memory_bandwidth_bytes_per_s: Source | None = None
    cache_bytes: Source | None = None
    cache_bandwidth_bytes_per_s: Source | None = None
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
        operation_overhead_s: what each operation of a step costs before it computes anything.
        memory_bandwidth_bytes_per_s: sustained rate at which a step's bytes are read and written;
            None where memory is free.
        cache_bytes: what stays near the device: if the weights that a worker hosts are no more,
            its steps read them at the cache's bandwidth. None where there is no cache.
        cache_bandwidth_bytes_per_s: that bandwidth, at least the memory's.
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
    cache_bytes: Bytes | None = None
    cache_bandwidth_bytes_per_s: Rate | None = None
    efficiency: Efficiency = None
    sources: Sources = Sources()

    @model_validator(mode="after")
    def _check_cache(self) -> Self:
        """A cache has a size and a bandwidth, and lies before a memory that is no faster."""
        size, rate = self.cache_bytes, self.cache_bandwidth_bytes_per_s
        memory = self.memory_bandwidth_bytes_per_s
        if (size is None) != (rate is None):
            given, absent = "cache_bytes", "cache_bandwidth_bytes_per_s"
            if size is None:
                given, absent = absent, given
            raise _wrong_cache(f"{given} has no effect without {absent}; add {absent}")
        if rate is not None and memory is None:
            raise _wrong_cache(
                "cache_bytes has no effect without memory_bandwidth_bytes_per_s, the rate of what "
                "does not fit; add memory_bandwidth_bytes_per_s"
            )
        if rate is not None and memory is not None and rate < memory:
            raise _wrong_cache(
                f"cache_bandwidth_bytes_per_s must be >= {memory:g}, "
                f"memory_bandwidth_bytes_per_s, got {rate:g}"
            )
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of what the device says, 64 hexadecimal digits; independent of its file."""
        return digest_of(self.model_dump(mode="json"))

    def source(self, key: str) -> Source:
        """Where the number `key` comes from."""
        return getattr(self.sources, key) or UNSOURCED


def _wrong_cache(text: str) -> PydanticCustomError:
    return PydanticCustomError("cache", "{text}", {"text": text})
