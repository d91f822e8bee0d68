"""Iterations a second of one loop over 1 to 64 machines, with and without a barrier."""

from __future__ import annotations

from typing import Any

import pandas as pd

import ampsim
from ampsim import flow
from ampsim.ir import Standin
from ampsim.recipes.programs import Curves

TITLE = "A loop over many machines"
TEXT = """
The loop of Figure 11 of Yu et al. (2018): a GPU on each of m machines multiplies a tiny matrix of
its own in every iteration. Either that is all, or a barrier follows: the first machine, which also
has the predicate, puts together what all of them made, and each needs the sum before its next
product. Each further machine has the loop's state machine, and is sent the predicate once an
iteration. Nobody waits at an iteration's end but for the barrier.

Our copy of the paper has lost the figure's axes and numbers, so that only its shape can be
compared. It says that the rate falls as machines are added, that the barrier lowers it, and that it
is then within a factor of two of Naiad's. Nothing is fitted. Assumed: every step, Sends, Recvs and
control flow included, takes a host h = 5.7 µs, the launch of a kernel in `k40.toml`; a message
takes the latency L that a row names, and a bandwidth without end; a kernel takes no time to speak
of; 8 iterations are under way at a time. Seconds an iteration are those between iterations 100 and
200.

**The closed form.** The first machine runs 10 steps of its own and a Send for each other one; these
run 9 each. So an iteration takes h (10 + m - 1), whatever L is, for predicates run ahead. With the
barrier the first machine runs 13 steps alone, and 16 + 3 (m - 1) with others, for a state machine
of its own and, of each other one, a Recv and two Sends. Or the way to the first machine and back is
the longer: 2 L, and the 12 + m steps that lie on it, of which m - 1 are receipts. The longer of the
two is `expected_s`; the runs meet it.

Without a barrier the rate falls by 7.3 times from 1 machine to 64, all of it on the first machine's
host, which tells each other one the predicate. The barrier costs a factor of 1.3 alone, and 2.8 on
64 machines where L is 10 µs. Where L is 100 µs it takes 4.5 times as long as the loop without on 2
machines, and the network is hidden behind the first machine's host from 32 machines on.
"""
DISPATCH_S = 5.7e-6
MACHINES = (1, 2, 4, 8, 16, 32, 64)
WAYS = {"no barrier": 1e-5, "barrier, 10 µs": 1e-5, "barrier, 100 µs": 1e-4}
WINDOW, SPAN = 8, (100, 200)
WITNESS = {"MACHINES": (1, 2, 12), "SPAN": (24, 48)}
CURVES = [
    Curves(
        "rates", "Iterations a second over machines", "rates", x="machines", y="per_s", by="way",
        x_label="machines", y_label="iterations/s", is_log_x=True, is_log_y=True,
    )
]  # fmt: skip


def loop(trips: int, machines: int, *, has_barrier: bool) -> list[flow.Tensor]:
    """What the loop gives: the matrix of each machine."""

    def body(i: flow.Tensor, states: Any) -> tuple[Any, ...]:
        after: list[flow.Tensor] = []
        for device, state in enumerate(states):
            with flow.device(device):
                after.append(flow.matmul(state, state))
        return i + 1, barrier(after) if has_barrier else after

    states = [flow.input(f"state-{device}", (2, 2)) for device in range(machines)]
    return flow.while_loop(lambda i, _states: i < trips, body, (0, states))[1]


def barrier(states: list[flow.Tensor]) -> list[flow.Tensor]:
    """Let each state wait for all of them."""
    with flow.device(0):
        together = flow.sum(flow.concat(states))
    after: list[flow.Tensor] = []
    for device, state in enumerate(states):
        with flow.device(device):
            after.append(state * together)
    return after


def ran(trips: int, machines: int, latency_s: float, *, has_barrier: bool) -> flow.FlowResult:
    """The loop on so many machines."""
    with flow.FlowGraph():
        asked = loop(trips, machines, has_barrier=has_barrier)
    device = ampsim.Device(name="gpu", flop_per_s=4.29e12, dispatch_s=DISPATCH_S)
    link = ampsim.Link(latency_s=latency_s)
    cluster = ampsim.Cluster(name="machines", devices=(device,) * machines, link=link)
    feeds = {f"state-{device}": Standin((2, 2)) for device in range(machines)}
    return flow.run(asked, feeds, cluster=cluster, mode="sleep", parallel_iterations=WINDOW)


def expected_s(machines: int, latency_s: float, *, has_barrier: bool) -> float:
    """What an iteration takes by the closed form."""
    if not has_barrier:
        return DISPATCH_S * (10 + machines - 1)
    if machines == 1:
        return DISPATCH_S * 13
    host_s = DISPATCH_S * (16 + 3 * (machines - 1))
    return max(host_s, 2 * latency_s + DISPATCH_S * (12 + machines))


def tables() -> dict[str, pd.DataFrame]:
    """One row a way and a number of machines."""
    rows: list[dict[str, Any]] = []
    first, last = SPAN
    for way, latency_s in WAYS.items():
        has_barrier = way != "no barrier"
        for machines in MACHINES:
            short, long = (ran(n, machines, latency_s, has_barrier=has_barrier) for n in SPAN)
            iteration_s = (long.makespan_s - short.makespan_s) / (last - first)
            rows.append(
                {
                    "way": way, "machines": machines, "per_s": 1 / iteration_s,
                    "iteration_s": iteration_s,
                    "expected_s": expected_s(machines, latency_s, has_barrier=has_barrier),
                    "predicates": (long.sent["predicates"] - short.sent["predicates"])
                    / (last - first),
                    "tensors": (long.sent["tensors"] - short.sent["tensors"]) / (last - first),
                }
            )  # fmt: skip
    return {"rates": pd.DataFrame(rows)}
