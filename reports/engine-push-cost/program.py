"""What pushing one by one costs, over the size of the operations."""

from __future__ import annotations

from typing import Any

import pandas as pd

import ampsim
from ampsim.recipes.programs import Curves

TITLE = "What a push costs, over the size of operations"
TEXT = """
"Dynamic scheduling can require more overhead than static declarations" (the design notes of MXNet's
engine). Here 400 independent operations of s seconds go to four devices in turn, and the host takes
p for each push. Speed is the time that they would take without push costs, over the time taken.

With asynchronous pushes it is near min(1, s / (4 p)): the host is hidden as long as it pushes
faster than four devices finish, and bounds the program below. `expected` is this with the start and
the end of the program, 100 s / max(100 s + 4 p, 400 p + s), and `speed` is what the engine gave.
Under `naive`, where each push waits, speed is 100 s / (400 (p + s)), whatever s is.
"""
COUNT, DEVICES = 400, 4
PUSHES_S = (1e-6, 5e-6, 20e-6)
SECONDS = tuple(10 ** (-6 + step / 3) for step in range(10))
CURVES = [
    Curves(
        "push-cost", "Speed beside pushes that cost nothing", "push_cost", x="operation_s",
        y="speed", by="pushes", x_label="an operation (s)", y_label="speed", is_log_x=True,
    )
]  # fmt: skip


def row(policy: Any, push_s: float, operation_s: float) -> dict[str, Any]:
    """One program."""
    cluster = ampsim.load_cluster("tflops-1", workers=DEVICES)
    engine = ampsim.DependencyEngine(cluster, policy, push_s=push_s)
    work = ampsim.Work(flop=round(operation_s * 1e12))
    for number in range(COUNT):
        engine.push(None, on=number % DEVICES, work=work)
    engine.wait_for_all()
    each = COUNT // DEVICES
    free_s, operation_s = each * operation_s, work.flop / 1e12
    if policy.is_synchronous:
        expected = free_s / (COUNT * (push_s + operation_s))
    else:
        expected = free_s / max(each * operation_s + DEVICES * push_s, COUNT * push_s + operation_s)
    return {
        "pushes": f"{policy.name}, {push_s * 1e6:g} µs",
        "operation_s": operation_s,
        "speed": free_s / engine.result.makespan_s,
        "expected": expected,
    }


def tables() -> dict[str, pd.DataFrame]:
    """One row a policy, a cost and a size."""
    ways = [(ampsim.PerDevice(), push_s) for push_s in PUSHES_S] + [(ampsim.Naive(), PUSHES_S[1])]
    rows = [row(policy, push_s, each) for policy, push_s in ways for each in SECONDS]
    return {"push_cost": pd.DataFrame(rows)}
