"""Calculon's description of a system: a processor with a matrix engine, and two memories.

Source: calculon-ai/calculon on GitHub, `systems/*.json`, `calculon/processor.py`, `system.py` and
`memory.py`. Its fractions hold from a size of an operation on, in GFLOP or MB, and are steps.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, cast

from ampsim.hardware.foreign.table import NUMBER_MAX, JsonTable, Reading, Taken

PREFERRED: Final = ("float32", "float16", "bfloat16")
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


def is_calculon(table: JsonTable) -> bool:
    """Whether a file is meant as one of Calculon's."""
    return "matrix" in table.content and "mem1" in table.content


def read_calculon(table: JsonTable) -> Reading:
    """What a file of Calculon's says of a device."""
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
    kind = engine.kind if engine.kind in PREFERRED else None
    return Reading("Calculon", numbers, [*left_out, *_rest(table)], kind)


def _engine(matrix: JsonTable) -> _Engine:
    """The engine in any of the three forms that Calculon's files have had."""
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
    """The kind of numbers that is taken, and the others."""
    kinds = list(table.content)
    if not kinds:
        raise table.wrong("float32", "a kind of numbers such as float16", None)
    kind = next((one for one in PREFERRED if one in kinds), kinds[0])
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
    parts = cast("list[Any]", point) if isinstance(point, list) else []
    is_number = len(parts) == 2 and type(parts[0]) in (int, float)
    if not is_number or not 0 <= parts[0] <= NUMBER_MAX:
        raise table.wrong(key, "[size, fraction] in each place", point)
    return float(parts[0]), table.checked(key, parts[1], 1.0)


def _rest(table: JsonTable) -> list[str]:
    """A sentence for each key of the whole that says nothing of a device of ours."""
    told: list[str] = []
    for key in sorted(table.content.keys() - _KNOWN):
        if key == "processing_mode":
            if table.content[key] != "roofline":
                told.append(f"{key}: a step of ours takes the larger of arithmetic and memory")
        else:
            told.append(f"{key}: {_WHY.get(key, 'a device of ours has nothing like it')}")
    return told
