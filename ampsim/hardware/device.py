"""A device: what it computes, moves, holds, draws and costs, from its file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from ampsim.errors import FileFormatError
from ampsim.hardware.efficiency import Efficiency, MatrixEfficiency
from ampsim.hardware.record import (
    UNSOURCED,
    Bytes,
    Machine,
    Power,
    Price,
    Rate,
    Seconds,
    Source,
    Variation,
    digest_of,
)
from ampsim.hardware.surface import SURFACES, Surface
from ampsim.toml_file import Record, Text, validate
from ampsim.units import format_bytes, format_flop


class Sources(Record):
    """Where each number of a device comes from, under the number's own key."""

    flop_per_s: Source | None = None
    operation_overhead_s: Source | None = None
    memory_bandwidth_bytes_per_s: Source | None = None
    cache_bytes: Source | None = None
    cache_bandwidth_bytes_per_s: Source | None = None
    efficiency: Source | None = None
    step_overhead_s: Source | None = None
    light_bandwidth_bytes_per_s: Source | None = None
    matrix_efficiency: Source | None = None
    memory_bytes: Source | None = None
    jitter_cv: Source | None = None
    idle_power_w: Source | None = None
    busy_power_w: Source | None = None
    price_usd_per_h: Source | None = None
    message_overhead_s: Source | None = None
    dispatch_s: Source | None = None
    copy_bandwidth_bytes_per_s: Source | None = None
    copy_latency_s: Source | None = None
    forward_efficiency: Source | None = None
    backward_efficiency: Source | None = None
    pass_bandwidth_bytes_per_s: Source | None = None
    functions_per_s: Source | None = None


NUMBERS = tuple(Sources.model_fields)
"""The keys of a device that need a source where a file gives them."""

_ALWAYS_IN_DIGEST: Final = NUMBERS[: NUMBERS.index("efficiency") + 1]
"""Keys that count in a digest even where they are not set, as they did in published manifests."""


_IN_REPR: Final = {"flop_per_s", "memory_bandwidth_bytes_per_s", "memory_bytes"}
"""Numbers that a device's short text has; of the others it has the count."""

FlopFormat = Literal["float64", "float32", "tf32", "bfloat16", "float16", "float8"]
"""Formats of numbers that a FLOP rate may be of."""

Basis = Literal["peak", "measured"]
"""Whether a rate is what the hardware could do at best, or what somebody measured."""

REMARKS: Final = {
    "flop_per_s": "flop_format",
    "memory_bandwidth_bytes_per_s": "memory_bandwidth_basis",
}
"""By number: the key that says what kind of number it is, and changes no time."""


class Device(Record):
    """What one worker computes on.

    The default of each optional number reduces the device to the paper's: a FLOP rate alone.

    Args:
        name: as users type it; the file's name without its suffix.
        description: what it is, in a sentence.
        flop_per_s: sustained rate of floating-point operations, multiply and add counted as two.
        flop_format: the format of the numbers that it computes at that rate; None where nobody
            says.
        operation_overhead_s: what each operation of a step costs before it computes anything.
        memory_bandwidth_bytes_per_s: sustained rate at which a step's bytes are read and written;
            None where memory is free.
        memory_bandwidth_basis: whether that bandwidth is the hardware's peak or was measured; None
            where nobody says.
        cache_bytes: what stays near the device: if the weights that a worker hosts are no more,
            its steps read them at the cache's bandwidth. None where there is no cache.
        cache_bandwidth_bytes_per_s: that bandwidth, at least the memory's.
        efficiency: points (rows, fraction): a step on that many rows reaches that fraction of
            `flop_per_s`; see `ampsim.hardware.efficiency`. None where it always reaches all of it.
        step_overhead_s: what each step that the device serves costs once, before its operations.
        light_bandwidth_bytes_per_s: rate at which light steps read and write their bytes, in place
            of the memory's; None where it is the memory's.
        matrix_efficiency: points (elements, fraction): a heavy step of a node with so many
            parameters reaches that fraction, times that of `efficiency`. None where every size
            reaches the same.
        memory_bytes: capacity; None where it is unlimited.
        jitter_cv: coefficient of variation of a step's seconds, which are lognormal around their
            mean; 0 where a step always takes the same time.
        idle_power_w: electrical power while no step occupies the device.
        busy_power_w: the same while one does, at least `idle_power_w`; None where it is unknown.
        price_usd_per_h: what the device costs for an hour, idle or busy; None where it is unknown.
        message_overhead_s: what each message that the device sends to another place, or takes from
            one, costs its processor.
        dispatch_s: what it takes to issue a step that takes device time, beside the device: a
            device that always has work never waits for it. It stands in place of
            `operation_overhead_s`.
        copy_bandwidth_bytes_per_s: rate of the lane to the host's memory, and of the one from it;
            None where the device has none.
        copy_latency_s: what each copy takes beside its bytes.
        forward_efficiency: points (rows, elements, fraction): a heavy forward step on so many rows
            with so large a weight matrix reaches that fraction of `flop_per_s`; see
            `ampsim.hardware.surface`. It stands in place of the two curves.
        backward_efficiency: the same of backward steps; one needs the other.
        pass_bandwidth_bytes_per_s: rate at which operations that are no product read and write,
            each in a pass of its own over its arrays; None where only bandwidths of memory count.
        functions_per_s: rate of functions of one element, such as exp, tanh, a root or a maximum,
            beside what their pass takes; None where they take nothing.
        measured_on: the machine that its numbers were measured on; None where nobody says.
        sources: where each number comes from; a file must say for each that it gives.

    Source: AMPNet, Appendix C, for `flop_per_s`; overhead and bandwidth make it a roofline.
    """

    name: Text
    description: str = ""
    flop_per_s: Rate
    flop_format: FlopFormat | None = None
    operation_overhead_s: Seconds = 0.0
    memory_bandwidth_bytes_per_s: Rate | None = None
    memory_bandwidth_basis: Basis | None = None
    cache_bytes: Bytes | None = None
    cache_bandwidth_bytes_per_s: Rate | None = None
    efficiency: Efficiency = None
    step_overhead_s: Seconds = 0.0
    light_bandwidth_bytes_per_s: Rate | None = None
    matrix_efficiency: MatrixEfficiency = None
    memory_bytes: Bytes | None = None
    jitter_cv: Variation = 0.0
    idle_power_w: Power | None = None
    busy_power_w: Power | None = None
    price_usd_per_h: Price | None = None
    message_overhead_s: Seconds = 0.0
    dispatch_s: Seconds = 0.0
    copy_bandwidth_bytes_per_s: Rate | None = None
    copy_latency_s: Seconds = 0.0
    forward_efficiency: Surface = None
    backward_efficiency: Surface = None
    pass_bandwidth_bytes_per_s: Rate | None = None
    functions_per_s: Rate | None = None
    measured_on: Machine | None = None
    sources: Sources = Sources()

    @model_validator(mode="after")
    def _check_cache(self) -> Self:
        """A cache has a size and a bandwidth, and lies before a memory that is no faster."""
        rate, memory = self.cache_bandwidth_bytes_per_s, self.memory_bandwidth_bytes_per_s
        self._check_pair("cache_bytes", "cache_bandwidth_bytes_per_s")
        if rate is not None and memory is None:
            raise _wrong(
                "cache_bytes has no effect without memory_bandwidth_bytes_per_s, the rate of what "
                "does not fit; add memory_bandwidth_bytes_per_s"
            )
        if rate is not None and memory is not None and rate < memory:
            raise _wrong(
                f"cache_bandwidth_bytes_per_s must be >= {memory:g}, "
                f"memory_bandwidth_bytes_per_s, got {rate:g}"
            )
        return self

    @model_validator(mode="after")
    def _check_memory(self) -> Self:
        """A cache is no larger than its memory, and what is said of a memory needs one."""
        size, cache = self.memory_bytes, self.cache_bytes
        if size is not None and cache is not None and cache > size:
            raise _wrong(f"cache_bytes must be <= {size}, memory_bytes, got {cache}")
        if self.memory_bandwidth_basis and self.memory_bandwidth_bytes_per_s is None:
            raise _wrong(
                "memory_bandwidth_basis has no effect without memory_bandwidth_bytes_per_s; add "
                "memory_bandwidth_bytes_per_s"
            )
        light = self.light_bandwidth_bytes_per_s
        if light is not None and self.memory_bandwidth_bytes_per_s is None:
            raise _wrong(
                "light_bandwidth_bytes_per_s has no effect without memory_bandwidth_bytes_per_s, "
                "the rate of heavy steps; add memory_bandwidth_bytes_per_s"
            )
        return self

    @model_validator(mode="after")
    def _check_products(self) -> Self:
        """A fraction is said once, and so is the bandwidth of light steps."""
        self._check_pair(*SURFACES)
        for curve in ("efficiency", "matrix_efficiency"):
            if self.forward_efficiency is not None and getattr(self, curve) is not None:
                raise _wrong(
                    f"{curve} and forward_efficiency both say which fraction a product reaches; "
                    "keep one"
                )
        both = (self.pass_bandwidth_bytes_per_s, self.light_bandwidth_bytes_per_s)
        if None not in both:
            raise _wrong(
                "pass_bandwidth_bytes_per_s and light_bandwidth_bytes_per_s both say how fast "
                "light steps move their bytes; keep one"
            )
        return self

    @model_validator(mode="after")
    def _check_power(self) -> Self:
        """Power is known idle and busy, or not at all, and work takes no less than rest."""
        idle, busy = self.idle_power_w, self.busy_power_w
        self._check_pair("idle_power_w", "busy_power_w")
        if idle is not None and busy is not None and busy < idle:
            raise _wrong(f"busy_power_w must be >= {idle:g}, idle_power_w, got {busy:g}")
        return self

    @model_validator(mode="after")
    def _check_lanes(self) -> Self:
        """Nothing is charged twice, and a latency is that of something."""
        if self.dispatch_s and self.operation_overhead_s:
            raise _wrong(
                f"dispatch_s of {self.dispatch_s:g} and operation_overhead_s of "
                f"{self.operation_overhead_s:g} would both charge for issuing a step; keep "
                "dispatch_s where issuing runs ahead of the device, else operation_overhead_s"
            )
        if self.copy_latency_s and self.copy_bandwidth_bytes_per_s is None:
            raise _wrong(
                "copy_latency_s has no effect without copy_bandwidth_bytes_per_s; add "
                "copy_bandwidth_bytes_per_s"
            )
        return self

    def __repr__(self) -> str:
        """Name the device, its rate, and its memory as far as it names one."""
        parts = [f"{format_flop(self.flop_per_s)}/s"]
        if self.flop_format is not None:
            parts[0] += f" in {self.flop_format}"
        if self.memory_bandwidth_bytes_per_s is not None:
            parts.append(f"memory {format_bytes(self.memory_bandwidth_bytes_per_s)}/s")
        if self.memory_bytes is not None:
            parts.append(format_bytes(self.memory_bytes))
        others = len(self.numbers.keys() - _IN_REPR)
        if others:
            parts.append(f"{others} more number{'' if others == 1 else 's'}")
        return f"Device({self.name!r}: {', '.join(parts)})"

    def __str__(self) -> str:
        return repr(self)

    def copy_s(self, size_bytes: int) -> float:
        """Seconds for which a copy of so many bytes occupies a lane to the host or from it."""
        assert self.copy_bandwidth_bytes_per_s is not None, f"{self.name} copies nothing"
        return self.copy_latency_s + size_bytes / self.copy_bandwidth_bytes_per_s

    def _check_pair(self, first: str, second: str) -> None:
        """Two keys are given together or not at all."""
        for given, absent in ((first, second), (second, first)):
            if getattr(self, given) is not None and getattr(self, absent) is None:
                raise _wrong(f"{given} has no effect without {absent}; add {absent}")

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers that differ from the defaults, by key, in the order of the file's keys."""
        fields = type(self).model_fields
        values = {key: getattr(self, key) for key in NUMBERS}
        return {key: value for key, value in values.items() if value != fields[key].default}

    @property
    def digest(self) -> str:
        """SHA-256 of what the device says, 64 hexadecimal digits; independent of its file.

        What kind of number a number is, as `REMARKS` lists, does not count: no run depends on it.
        """
        content = self.model_dump(mode="json", exclude=set(REMARKS.values()))
        given = {*_ALWAYS_IN_DIGEST, *self.numbers}
        sources = {
            key: None if told is None else getattr(self.sources, key).plain()
            for key, told in content["sources"].items()
            if told or key in given
        }
        if self.measured_on is None:
            del content["measured_on"]
        kept = {key: value for key, value in content.items() if key not in NUMBERS or key in given}
        return digest_of({**kept, "sources": sources})

    @model_validator(mode="after")
    def _check_intervals(self) -> Self:
        """An interval is one of a single number, which it holds."""
        for key, (low, high) in self.intervals.items():
            value = getattr(self, key)
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise _wrong(f"sources.{key}: low and high are of one number; leave them out")
            if not low <= value <= high:
                raise _wrong(
                    f"sources.{key}: {key} must lie from low to high, {low:g} to {high:g}, got "
                    f"{value:g}"
                )
        return self

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The 95 % intervals of its numbers, as far as its sources give them, by key."""
        told = {key: getattr(self.sources, key) for key in NUMBERS}
        return {
            key: (one.low, one.high)
            for key, one in told.items()
            if one is not None and one.low is not None
        }

    def source(self, key: str) -> Source:
        """Where the number `key` comes from."""
        return getattr(self.sources, key) or UNSOURCED


def _wrong(text: str) -> PydanticCustomError:
    return PydanticCustomError("device", "{text}", {"text": text})


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
