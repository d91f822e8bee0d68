"""Descriptions of devices by other simulators, read as devices of ours.

Calculon's has a processor with a matrix engine, and two memories. Its fractions hold from a size of
an operation on, in GFLOP or MB, and are steps. Source: calculon-ai/calculon on GitHub,
`systems/*.json`, `calculon/processor.py`, `system.py` and `memory.py`.

SimuMax's has an accelerator, whose operations have a rate each. Source: MooreThreads/SimuMax on
GitHub, `configs/system/*.json` and `simumax/core/config.py`, by which a GB of memory and of
bandwidth is 2^30 bytes.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from ampsim.errors import FileFormatError
from ampsim.files import expanded, read_limited
from ampsim.hardware.device import REMARKS, Device
from ampsim.text import printable, sequence, short, to_toml
from ampsim.toml_file import validate


class Imported(NamedTuple):
    """A device that was made of a foreign file."""

    device: Device  # with a source for each number, which names the file and the key
    simulator: str  # whose file it was
    left_out: list[str]  # a sentence for each thing that could not be carried over


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
    if "matrix" in table.content and "mem1" in table.content:
        return read_calculon(table)
    if "accelerator" in table.content:
        return read_simumax(table)
    raise FileFormatError(
        f"{table.label}: expected a system file of Calculon, with the keys matrix and mem1, or of "
        "SimuMax, with the key accelerator; got neither"
    )


SIZE_BYTES_MAX = 16_000_000
"""Largest file; chosen: those of SimuMax with a factor for each shape have some 100 kB."""

NUMBER_MAX = 1e12
"""Largest number that is read, in TFLOP/s, GB/s or GiB; chosen, to catch a slip."""


class JsonTable(NamedTuple):
    """A table of a JSON file."""

    label: str  # what to call the file in a message
    path: str  # where in the file the table is, such as "accelerator.op"; empty for the whole
    content: dict[str, Any]  # its keys and values

    def at(self, key: str) -> str:
        """Say where in the file a key of this table is."""
        return f"{self.path}.{printable(key)}" if self.path else printable(key)

    def table(self, key: str) -> JsonTable:
        """The table under a key."""
        value = self._value(key)
        if not isinstance(value, dict):
            raise self.wrong(key, "a table", value)
        return JsonTable(self.label, self.at(key), cast("dict[str, Any]", value))

    def number(self, key: str) -> float:
        """The number under a key, above 0."""
        return self.checked(key, self._value(key), NUMBER_MAX)

    def fraction(self, key: str) -> float:
        """The number under a key, above 0 and at most 1."""
        return self.checked(key, self._value(key), 1.0)

    def checked(self, key: str, value: Any, most: float) -> float:
        """A value as a number above 0 and at most `most`."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value <= most:  # which infinity and NaN are not
            raise self.wrong(key, f"a number above 0 and at most {most:g}", value)
        return float(value)

    def wrong(self, key: str, expected: str, value: Any) -> FileFormatError:
        """The error that a value is not what it must be."""
        return FileFormatError(
            f"{self.label}: {self.at(key)}: expected {expected}, got {short(value)}"
        )

    def _value(self, key: str) -> Any:
        if key not in self.content:
            raise FileFormatError(f"{self.label}: missing key {self.at(key)!r}")
        return self.content[key]


def read_json(path: str | os.PathLike[str]) -> JsonTable:
    """The table that a JSON file holds.

    Raises:
        FileFormatError: it cannot be read, is no JSON, or holds no table.
    """
    label, place = os.fspath(path), expanded(path)
    if os.path.isdir(place):
        raise FileFormatError(f"{label}: expected a .json file, got a folder; name a file in it")
    noun = "a device of another simulator"
    found = read_limited(place, label, size_bytes_max=SIZE_BYTES_MAX, noun=noun)
    content = _parsed(found, label)
    if not isinstance(content, dict):
        raise FileFormatError(f"{label}: expected a table in braces, got {short(content)}")
    return JsonTable(label, "", cast("dict[str, Any]", content))


def _parsed(content: bytes, label: str) -> Any:
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{label}: expected UTF-8 text; save it as UTF-8") from error
    except RecursionError as error:
        raise FileFormatError(f"{label}: is nested too deeply") from error
    except ValueError as error:  # of json, and of int for a number of thousands of digits
        reason = " ".join(str(error).split())
        raise FileFormatError(f"{label}: is not valid JSON: {reason}") from error


class Taken(NamedTuple):
    """A number of ours, and how it follows from the foreign file."""

    value: float | int  # in our unit
    how: str  # which keys it comes from, and what was done with them


class Reading(NamedTuple):
    """A foreign file's numbers of a device.

    Args:
        simulator: whose file it is.
        numbers: by our keys.
        left_out: a sentence for each thing that a device of ours cannot say.
        flop_format: of the numbers of its FLOP rate, by our word; None where nobody says.
    """

    simulator: str
    numbers: dict[str, Taken]
    left_out: list[str]
    flop_format: str | None = None


_FORMATS: Final = ("float32", "float16", "bfloat16")
"""Kinds of numbers in the order in which one is taken; ours are float32 where there is a choice."""

_KNOWN: Final = {"matrix", "mem1"}
_WHY: Final = {
    "vector": "our light steps have a bandwidth and no rate of their own",
    "mem2": "a device of ours has one memory",
    "networks": "links stand in a cluster file of ours",
}


class _Engine(NamedTuple):
    """The matrix engine: its table, the kind of its numbers, and the key of its fractions."""

    table: JsonTable
    kind: str | None
    others: list[str]
    fractions: Any
    key: str


def read_calculon(table: JsonTable) -> Reading:
    """Read a device from a file of Calculon's."""
    engine, memory = _engine(table.table("matrix")), table.table("mem1")
    left_out: list[str] = []
    rate = engine.table.number("tflops")
    part = _largest(engine.table, engine.key, engine.fractions, left_out, "GFLOP")
    bandwidth, key = memory.number("GBps"), "MB_efficiency"
    share = _largest(memory, key, memory.content.get(key, 1.0), left_out, "MB")
    gibibytes = memory.number("GiB")
    numbers = {
        "flop_per_s": Taken(
            rate * 1e12 * part,
            f"{engine.table.at('tflops')}, {rate:g} x 10^12, times {part:g} of "
            f"{engine.table.at(engine.key)}",
        ),
        "memory_bandwidth_bytes_per_s": Taken(
            bandwidth * 1e9 * share,
            f"mem1.GBps, {bandwidth:g} x 10^9, times {share:g} of {memory.at(key)}",
        ),
        "memory_bytes": Taken(round(gibibytes * 2**30), f"mem1.GiB, {gibibytes:g} x 2^30"),
    }
    if engine.others:
        told = ", ".join(engine.others)
        left_out.append(f"matrix: {told}: one kind of numbers is taken, {engine.kind}")
    kind = engine.kind if engine.kind in _FORMATS else None
    return Reading("Calculon", numbers, [*left_out, *_rest(table)], kind)


def _engine(matrix: JsonTable) -> _Engine:
    if "tflops" not in matrix.content:
        kind, others = _chosen(matrix)
        inner = matrix.table(kind)
        key = "gflops_efficiency"
        return _Engine(inner, kind, others, inner.content.get(key, 1.0), key)
    if isinstance(matrix.content.get("gflops_efficiency"), dict):
        fractions = matrix.table("gflops_efficiency")
        kind, others = _chosen(fractions)
        key = f"gflops_efficiency.{kind}"
        return _Engine(matrix, kind, others, fractions.content[kind], key)
    key = "gflops_efficiency" if "gflops_efficiency" in matrix.content else "efficiency"
    return _Engine(matrix, None, [], matrix.content.get(key, 1.0), key)


def _chosen(table: JsonTable) -> tuple[str, list[str]]:
    kinds = list(table.content)
    if not kinds:
        raise table.wrong("float32", "a kind of numbers such as float16", None)
    kind = next((one for one in _FORMATS if one in kinds), kinds[0])
    return kind, [one for one in kinds if one != kind]


def _largest(table: JsonTable, key: str, points: Any, left_out: list[str], unit: str) -> float:
    """The fraction of the largest operations; those of smaller ones cannot be carried over."""
    if not isinstance(points, list):
        return table.checked(key, points, 1.0)
    pairs = [_pair(table, key, point) for point in cast("list[Any]", points)]
    if not pairs:
        raise table.wrong(key, f"a list of [{unit}, fraction]", points)
    least, fraction = max(pairs)
    if len(pairs) > 1:
        left_out.append(
            f"{table.at(key)}: ours do not depend on the {unit} of an operation; {fraction:g}, "
            f"from {least:g} {unit} on, is taken for all"
        )
    return fraction


def _pair(table: JsonTable, key: str, point: Any) -> tuple[float, float]:
    parts = sequence(point)
    is_number = len(parts) == 2 and type(parts[0]) in (int, float)
    if not is_number or not 0 <= parts[0] <= NUMBER_MAX:
        raise table.wrong(key, "[size, fraction] in each place", point)
    return float(parts[0]), table.checked(key, parts[1], 1.0)


def _rest(table: JsonTable) -> list[str]:
    told: list[str] = []
    for key in sorted(table.content.keys() - _KNOWN):
        if key == "processing_mode":
            if table.content[key] != "roofline":
                told.append(f"{key}: a step of ours takes the larger of arithmetic and memory")
        else:
            told.append(f"{key}: {_WHY.get(key, 'a device of ours has nothing like it')}")
    return told


_OPERATIONS: Final = ("matmul", "default")
"""Operations in the order in which one gives the FLOP rate."""


def read_simumax(table: JsonTable) -> Reading:
    """Read a device from a file of SimuMax's."""
    accelerator = table.table("accelerator")
    operations, bandwidths = accelerator.table("op"), accelerator.table("bandwidth")
    name = next((one for one in _OPERATIONS if one in operations.content), _OPERATIONS[-1])
    operation = operations.table(name)
    has_kinds = "gbps" not in bandwidths.content
    memory = bandwidths.table("default") if has_kinds else bandwidths
    rate, part = operation.number("tflops"), operation.fraction("efficient_factor")
    bandwidth, share = memory.number("gbps"), memory.fraction("efficient_factor")
    gibibytes = accelerator.number("mem_gbs")
    numbers = {
        "flop_per_s": Taken(
            rate * 1e12 * part,
            f"{operation.at('tflops')}, {rate:g} x 10^12, times efficient_factor, {part:g}",
        ),
        "memory_bandwidth_bytes_per_s": Taken(
            bandwidth * 2**30 * share,
            f"{memory.at('gbps')}, {bandwidth:g} x 2^30, times efficient_factor, {share:g}",
        ),
        "memory_bytes": Taken(
            round(gibibytes * 2**30), f"{accelerator.at('mem_gbs')}, {gibibytes:g} x 2^30"
        ),
    }
    left_out = [*_of_operations(operations, name, operation), *_of_memory(bandwidths, memory)]
    if accelerator.content.get("mode", "roofline") != "roofline":
        left_out.append(
            f"{accelerator.at('mode')}: a step of ours takes the larger of arithmetic and memory"
        )
    if "networks" in table.content:
        left_out.append("networks: links stand in a cluster file of ours")
    return Reading("SimuMax", numbers, left_out)


def _of_operations(operations: JsonTable, name: str, operation: JsonTable) -> list[str]:
    told: list[str] = []
    exact = operation.content.get("accurate_efficient_factor")
    if exact:
        key = operation.at("accurate_efficient_factor")
        told.append(f"{key}: fractions of single shapes; ours are over rows and elements")
    others = sorted(operations.content.keys() - {name})
    if others:
        told.append(f"{operations.path}: {', '.join(others)}: heavy steps of ours have one rate")
    return told


def _of_memory(bandwidths: JsonTable, memory: JsonTable) -> list[str]:
    told: list[str] = []
    if memory.content.get("latency_us"):
        told.append(
            f"{memory.at('latency_us')}: it delays memory alone, beside arithmetic; "
            "operation_overhead_s of ours delays both"
        )
    if memory is not bandwidths:
        others = sorted(bandwidths.content.keys() - {"default"})
        if others:
            told.append(f"{bandwidths.path}: {', '.join(others)}: memory of ours has one bandwidth")
    return told
