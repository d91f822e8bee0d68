"""Copies of a workspace: operations that may overlap, against the memory that this takes."""

from __future__ import annotations

import random

import pandas as pd

import ampsim
from ampsim.dependency import Workspace
from ampsim.recipes.programs import Curves

TITLE = "Workspace: what overlaps against what lies in memory"
TEXT = """
300 operations on the host, of 1 to 9 ms each, that need 1 to 64 MiB while they run, on 2, 4 or 8
threads. Each mutates the variable of its buffer, so that n buffers let n of them overlap at most;
buffers are handed out in turn and grow to their largest request.

Speed grows with the copies up to the number of threads, and a little beyond, as an operation whose
buffer is in use holds up those that come after it in turn. Memory grows with every copy.
"""
COUNT = 300
CURVES = [
    Curves(
        "workspace", "Operations a second over copies of the workspace", "workspace", x="copies",
        y="operations_per_s", by="threads", x_label="copies", y_label="operations/s",
    ),
    Curves(
        "memory", "Fullest moment of the memory", "workspace", x="copies", y="peak_bytes",
        by="threads", x_label="copies", y_label="bytes",
    ),
]  # fmt: skip


def tables() -> dict[str, pd.DataFrame]:
    """One row a number of copies and of threads."""
    host = ampsim.load_cluster("gflops-10").devices[0]
    rows: list[dict[str, float]] = []
    for threads in (2, 4, 8):
        for copies in (1, 2, 3, 4, 6, 8, 12, 16):
            chosen = random.Random(0)
            engine = ampsim.DependencyEngine("tflops-1", ampsim.PerDevice(threads), host=host)
            workspace = Workspace(engine, "host", copies)
            for _ in range(COUNT):
                buffer = workspace.request(chosen.randint(1, 64) * 2**20)
                work = ampsim.Work(flop=chosen.randint(1, 9) * 10**7)
                engine.push(None, mutates=[buffer], on="host", work=work)
            engine.wait_for_all()
            result = engine.result
            rows.append(
                {
                    "threads": threads, "copies": copies,
                    "operations_per_s": COUNT / result.makespan_s,
                    "peak_bytes": int(result.peak_bytes[-1]),
                }
            )  # fmt: skip
    return {"workspace": pd.DataFrame(rows)}
