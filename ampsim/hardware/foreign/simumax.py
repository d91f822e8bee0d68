"""SimuMax's description of a system: an accelerator, whose operations have a rate each.

Source: MooreThreads/SimuMax on GitHub, `configs/system/*.json` and `simumax/core/config.py`, by
which a GB of memory and of bandwidth is 2^30 bytes.
"""

from __future__ import annotations

from typing import Final

from ampsim.hardware.foreign.table import JsonTable, Reading, Taken

PREFERRED: Final = ("matmul", "default")
"""Operations in the order in which one gives the FLOP rate."""


def is_simumax(table: JsonTable) -> bool:
    """Whether a file is meant as one of SimuMax's."""
    return "accelerator" in table.content


def read_simumax(table: JsonTable) -> Reading:
    """What a file of SimuMax's says of a device."""
    accelerator = table.table("accelerator")
    operations, bandwidths = accelerator.table("op"), accelerator.table("bandwidth")
    name = next((one for one in PREFERRED if one in operations.content), PREFERRED[-1])
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
    """What is said of the operations that a device of ours does not tell apart."""
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
    """What is said of the kinds of access that a device of ours does not tell apart."""
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
