"""A device: what it computes, moves, holds, draws and costs, from its file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import create_model

from ampsim.errors import FileFormatError
from ampsim.hardware.efficiency import CURVES, SURFACES, Efficiency, MatrixEfficiency, Surface
from ampsim.hardware.record import (
    UNSOURCED,
    Bytes,
    Consistent,
    Machine,
    Power,
    Price,
    Rate,
    Seconds,
    Source,
    Variation,
    digest_of,
)
from ampsim.toml_file import Record, Text, validate
from ampsim.units import format_bytes, format_flop


@dataclass(frozen=True, slots=True)
class Key:
    """A key's row on the page on devices; its range and default stand beside it.

    Args:
        text: what it is.
        absent: what holds where a file does not give it; "0" and "needed" follow from the default.
        unit: where the key's name does not end with it.
    """

    text: str
    absent: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Sourced(Key):
    """A key that needs a source.

    Args:
        of_messages: whether it is of messages that steps take and send; who has none refuses it.
        of_host: whether a host's steps take it.
    """

    of_messages: bool = False
    of_host: bool = False


FlopFormat = Literal["float64", "float32", "tf32", "bfloat16", "float16", "float8"]
"""Formats of numbers that a FLOP rate may be of."""

Basis = Literal["peak", "measured"]
"""Whether a rate is what the hardware could do at best, or what somebody measured."""

REMARKS: Final = {
    "flop_per_s": "flop_format",
    "memory_bandwidth_bytes_per_s": "memory_bandwidth_basis",
}
"""By number: the key that says what kind of number it is, and changes no time."""


class _Keys(Consistent):
    """The keys of a device file but for those on how its numbers were found.

    A further number is a field here, and has its cost where it is charged.
    """

    name: Annotated[Text, Key("how results call the device", "the file's name")]
    description: Annotated[str, Key("what it is, in a sentence", "none")] = ""
    flop_per_s: Annotated[Rate, Sourced("the rate that large matrix products reach")]
    flop_format: Annotated[
        FlopFormat | None,
        Key(
            'the format of the numbers at that rate: `"float32"`, `"bfloat16"`, `"tf32"`, ...',
            "nobody says",
        ),
    ] = None
    operation_overhead_s: Annotated[
        Seconds, Sourced("what each operation of a step takes before it computes")
    ] = 0.0
    memory_bandwidth_bytes_per_s: Annotated[
        Rate | None,
        Sourced("the rate at which a step's bytes are read and written", "memory is free"),
    ] = None
    memory_bandwidth_basis: Annotated[
        Basis | None,
        Key('whether that rate is the hardware\'s `"peak"`, or was `"measured"`', "nobody says"),
    ] = None
    cache_bytes: Annotated[
        Bytes | None, Sourced("room for weights near the device, and for updates", "no cache")
    ] = None
    cache_bandwidth_bytes_per_s: Annotated[
        Rate | None, Sourced("the rate at which they are read and written there", "no cache")
    ] = None
    efficiency: Annotated[
        Efficiency,
        Sourced(
            "fractions of `flop_per_s` that steps on few rows reach",
            "all rows alike",
            "rows, fraction",
        ),
    ] = None
    step_overhead_s: Annotated[
        Seconds,
        Sourced(
            "what each step that the device serves takes once, before its operations", of_host=True
        ),
    ] = 0.0
    light_bandwidth_bytes_per_s: Annotated[
        Rate | None,
        Sourced("the rate at which a light step's bytes are read and written", "as the memory's"),
    ] = None
    matrix_efficiency: Annotated[
        MatrixEfficiency,
        Sourced(
            "fractions that heavy steps with a small weight matrix reach",
            "all sizes alike",
            "elements, fraction",
        ),
    ] = None
    memory_bytes: Annotated[
        Bytes | None, Sourced("how much fits into the device's memory", "unlimited")
    ] = None
    jitter_cv: Annotated[
        Variation,
        Sourced("how much the time of a step varies: standard deviation over mean, at most 10"),
    ] = 0.0
    idle_power_w: Annotated[
        Power | None, Sourced("electrical power while no step occupies the device", "unknown")
    ] = None
    busy_power_w: Annotated[Power | None, Sourced("the same while one does", "unknown")] = None
    price_usd_per_h: Annotated[
        Price | None, Sourced("what the device costs for an hour, idle or busy", "unknown")
    ] = None
    message_overhead_s: Annotated[
        Seconds,
        Sourced(
            "what each message from or to another worker or the host takes the device",
            of_messages=True,
            of_host=True,
        ),
    ] = 0.0
    dispatch_s: Annotated[
        Seconds, Sourced("what issuing a step takes, beside what the device computes")
    ] = 0.0
    copy_bandwidth_bytes_per_s: Annotated[
        Rate | None,
        Sourced("the rate at which activations are copied to the host, and back", "no copies"),
    ] = None
    copy_latency_s: Annotated[Seconds, Sourced("what each copy takes beside its bytes")] = 0.0
    forward_efficiency: Annotated[
        Surface,
        Sourced(
            "fractions of `flop_per_s` that heavy forward steps reach",
            "as the two curves",
            "rows, elements, fraction",
        ),
    ] = None
    backward_efficiency: Annotated[
        Surface,
        Sourced(
            "the same of heavy backward steps", "as the two curves", "rows, elements, fraction"
        ),
    ] = None
    pass_bandwidth_bytes_per_s: Annotated[
        Rate | None,
        Sourced(
            "the rate at which operations other than products read and write, each by itself",
            "passes are free",
        ),
    ] = None
    functions_per_s: Annotated[
        Rate | None,
        Sourced(
            "elements a second that go through `exp`, `tanh`, a root or a maximum",
            "functions are free",
        ),
    ] = None


DECLARED: Final[Mapping[str, Sourced]] = {
    key: one
    for key, field in _Keys.model_fields.items()
    for one in field.metadata
    if isinstance(one, Sourced)
}
"""By key: what is declared of each number of a device."""

NUMBERS: Final = tuple(DECLARED)
"""The keys of a device that need a source where a file gives them."""

HOST_NUMBERS: Final = tuple(key for key, one in DECLARED.items() if one.of_host)
"""Those of them that a host's steps take."""


def sign_of(key: str) -> int:
    """Say how steps follow a number: 1 where it is a rate, -1 a duration, 0 where neither."""
    return 1 if key.endswith("_per_s") else -1 if key.endswith("_s") else 0


if TYPE_CHECKING:
    Sources: TypeAlias = Record
else:
    Sources = create_model(
        "Sources",
        __base__=Record,
        __doc__="Where each number of a device comes from, under the number's own key.",
        **dict.fromkeys(NUMBERS, (Source | None, None)),
    )

_ALWAYS_IN_DIGEST: Final = NUMBERS[: NUMBERS.index("efficiency") + 1]
"""Keys that count in a digest even where they are not set, as they did in published manifests."""

_IN_REPR: Final = {"flop_per_s", "memory_bandwidth_bytes_per_s", "memory_bytes"}
"""Numbers that a device's short text has; of the others it has the count."""


class Device(_Keys):
    """A device computes one worker's steps.

    The default of each optional number reduces the device to the paper's: a FLOP rate alone. Each
    key is declared once, with its range, its default and what it is; docs/own-device-and-cluster.md
    says how they work together.

    Source: AMPNet, Appendix C, for `flop_per_s`; overhead and bandwidth make it a roofline.
    """

    IN_PYTHON: ClassVar = "an ampsim.Device, such as ampsim.load_cluster('a100').devices[0]"

    measured_on: Annotated[
        Machine | None,
        Key("the machine of the numbers: its `cpu`, `linear_algebra` and a `date`", "nobody says"),
    ] = None
    sources: Annotated[Sources, Key("where the numbers come from", "needed for each number")] = (
        Sources()
    )

    def _faults(self) -> Iterator[str]:
        """No number is said twice, contradicts another, or has no effect."""
        memory, passes = "memory_bandwidth_bytes_per_s", "pass_bandwidth_bytes_per_s"
        yield from self._unpaired("cache_bytes", "cache_bandwidth_bytes_per_s")
        if self.pass_bandwidth_bytes_per_s is None:
            yield from self._lacks(memory, "cache_bytes", ", the rate of what does not fit")
        for slower in (memory, passes):
            yield from self._above(slower, "cache_bandwidth_bytes_per_s")
        size, cache = self.memory_bytes, self.cache_bytes
        if size is not None and cache is not None and cache > size:
            yield f"cache_bytes must be <= {size}, memory_bytes, got {cache}"
        yield from self._lacks(memory, "memory_bandwidth_basis")
        yield from self._lacks(memory, "light_bandwidth_bytes_per_s", ", the rate of heavy steps")
        yield from self._unpaired(*SURFACES)
        for curve in CURVES:
            yield from self._twice(curve, "forward_efficiency", "which fraction a product reaches")
        yield from self._twice(
            passes, "light_bandwidth_bytes_per_s", "how fast light steps move their bytes"
        )
        yield from self._unpaired("idle_power_w", "busy_power_w")
        yield from self._above("idle_power_w", "busy_power_w")
        if self.dispatch_s and self.operation_overhead_s:
            yield (
                f"dispatch_s of {self.dispatch_s:g} and operation_overhead_s of "
                f"{self.operation_overhead_s:g} would both charge for issuing a step; keep "
                "dispatch_s where issuing runs ahead of the device, else operation_overhead_s"
            )
        yield from self._lacks("copy_bandwidth_bytes_per_s", "copy_latency_s")
        for key, (low, high) in self.intervals.items():
            value = getattr(self, key)
            if not isinstance(value, int | float) or isinstance(value, bool):
                yield f"sources.{key}: low and high are of one number; leave them out"
            elif not low <= value <= high:
                yield (
                    f"sources.{key}: {key} must lie from low to high, {low:g} to {high:g}, got "
                    f"{value:g}"
                )

    def _lacks(self, needed: str, key: str, what: str = "") -> Iterator[str]:
        if getattr(self, key) and getattr(self, needed) is None:
            yield f"{key} has no effect without {needed}{what}; add {needed}"

    def _unpaired(self, first: str, second: str) -> Iterator[str]:
        for given, absent in ((first, second), (second, first)):
            if getattr(self, given) is not None and getattr(self, absent) is None:
                yield f"{given} has no effect without {absent}; add {absent}"

    def _above(self, least: str, key: str) -> Iterator[str]:
        low, value = getattr(self, least), getattr(self, key)
        if low is not None and value is not None and value < low:
            yield f"{key} must be >= {low:g}, {least}, got {value:g}"

    def _twice(self, one: str, other: str, what: str) -> Iterator[str]:
        if getattr(self, one) is not None and getattr(self, other) is not None:
            yield f"{one} and {other} both say {what}; keep one"

    def __repr__(self) -> str:
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

    __str__ = __repr__

    def copy_s(self, size_bytes: int) -> float:
        """Seconds for which a copy of so many bytes occupies a lane to the host or from it."""
        assert self.copy_bandwidth_bytes_per_s is not None, f"{self.name} copies nothing"
        return self.copy_latency_s + size_bytes / self.copy_bandwidth_bytes_per_s

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

    @property
    def message_numbers(self) -> dict[str, Any]:
        """Its numbers that are of messages, as far as they differ from the defaults."""
        return {key: one for key, one in self.numbers.items() if DECLARED[key].of_messages}

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
        """Return the source of the number `key`."""
        return getattr(self.sources, key) or UNSOURCED


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
