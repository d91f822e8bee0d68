"""Iterations of one loop under way at a time, on eight devices, beside the closed form."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas as pd

import ampsim
from ampsim import flow
from ampsim.ir import Standin
from ampsim.recipes.programs import Curves

TITLE = "Iterations of a loop that run in parallel"
TEXT = """
The loop of Figure 12 of Yu et al. (2018): on each of eight GPUs of one machine a layer multiplies
what the GPU before it gives by a matrix, which is its own result of the last iteration. What the
last GPU gives is a variable of the loop on the first one. At most `window` iterations are under way
at a time.

**The closed form** (table `closed_form`; links and hosts free, a product takes a second, N = 200).
With κ = min(window, 8), N iterations take ⌊(N - 1) / κ⌋ · 8 + (N - 1) mod κ + 8 seconds, whether
hosts run ahead or not: on the first GPU an iteration is over when the last one's product has come.
Where nothing comes back to it, all windows take N + 7 seconds, for a window is of a frame on one
worker, as in Section 4.3 of the paper, and here each worker has one product an iteration.

**Two machines** (table `machines`; shapes without numbers, 200 iterations). Nothing is fitted. Our
copy of the paper has lost the sizes and the results of Figure 12. Assumed: the rows of the
matrices, in single precision; a host for each GPU, which takes for every step, Sends, Recvs and
control flow included, what the device file calls `operation_overhead_s`, and the device is not
charged that again; links between any two GPUs of 10 GB/s (K40, near its copies over PCIe) and of 25
GB/s (V100, a link of NVLink), with 6 µs of latency. Out of the graph a client runs the graph of the
body once for each iteration, and takes 200 µs to start it.

`over_window_1` is what parallel iterations gain, `over_client` what the loop in the graph gains
over that client. The paper has a factor of 5 in the graph over out of it, with eight GPUs. Here it
is 2.9 to 16.6 at the best window, by the size that is assumed. At 64 and 256 rows the hosts' steps
bound both machines. With large matrices the gain is above 8, for copies overlap with products, too.
No window above 16 gains anything; what the paper calls scheduling noise beyond the best window is
not modelled.

**Memory** (tables `memory` and `no_window`; K40s, 1024 rows, the last GPU at half its rate). A
window of 8 has all of the speed. A larger one lets seven GPUs run ahead of the eighth, and what
they give lies in memory until it has been read: the fullest GPU holds 2.5 times as much at a window
of 32, and without a window the more the longer the loop is.
"""
DEVICES, CLIENT_S, TRIPS = 8, 2e-4, 200
WINDOWS = (1, 2, 4, 8, 16, 32, 64)
SIZES = (64, 256, 1024)
LINKS = {"k40": 10e9, "v100-sxm2": 25e9}
LATENCY_S = 6e-6
WITNESS = {"DEVICES": 4, "TRIPS": 16, "WINDOWS": (1, 2, 8), "SIZES": (64, 1024)}
CURVES = [
    Curves(
        "closed-form", "Eight stages: speed over that of window 1", "closed_form", x="window",
        y="speed", by="way", x_label="iterations under way at a time", y_label="speed",
        is_log_x=True,
    ),
    Curves(
        "machines", "Iterations a second, by machine and rows of the matrices", "machines",
        x="window", y="per_s", by="machine", x_label="iterations under way at a time",
        y_label="iterations/s", is_log_x=True, is_log_y=True,
    ),
    Curves(
        "memory", "Most bytes on a GPU, with a last GPU of half the rate", "memory",
        x="window", y="peak_bytes", by="iterations", x_label="iterations under way at a time",
        y_label="bytes", is_log_x=True,
    ),
]  # fmt: skip


class Loop(NamedTuple):
    """A loop of a product on each device: how long, how large, and whether its end comes back."""

    trips: int
    rows: int
    is_collected: bool = True

    def build(self) -> tuple[list[flow.Tensor], dict[str, Any]]:
        """What it gives, and what it is fed."""
        shape = (self.rows, self.rows)
        x = flow.input("x", shape, "float32")
        kept = [flow.input(f"state-{device}", shape, "float32") for device in range(DEVICES)]

        def body(i: flow.Tensor, states: Any, last: flow.Tensor) -> tuple[Any, ...]:
            after = layers(x, states)
            with flow.device(0):
                return i + 1, after, flow.identity(after[-1]) if self.is_collected else last

        _, states, last = flow.while_loop(lambda i, s, y: i < self.trips, body, (0, kept, x))
        return [*states, last], dict.fromkeys(names(), Standin(shape))


def names() -> list[str]:
    """What a loop or its body is fed."""
    return ["x", *(f"state-{device}" for device in range(DEVICES))]


def layers(x: flow.Tensor, states: Any) -> list[flow.Tensor]:
    """One iteration: what each device gives."""
    given = [x]
    for device, state in enumerate(states):
        with flow.device(device):
            given.append(flow.matmul(given[-1], state))
    return given[1:]


def ran(loop: Loop, cluster: ampsim.Cluster, window: int, **options: Any) -> flow.FlowResult:
    """The loop on a cluster."""
    with flow.FlowGraph():
        asked, feeds = loop.build()
    options |= {"mode": "sleep", "parallel_iterations": window}
    return flow.run(asked, feeds, cluster=cluster, **options)


def client_s(rows: int, cluster: ampsim.Cluster) -> float:
    """What an iteration takes that a client starts."""
    with flow.FlowGraph():
        shape = (rows, rows)
        x, *states = (flow.input(name, shape, "float32") for name in names())
        given = layers(x, states)
        with flow.device(0):
            asked = [*given, flow.identity(given[-1])]
    feeds = dict.fromkeys(names(), Standin(shape))
    return flow.run(asked, feeds, cluster=cluster, mode="sleep").makespan_s + CLIENT_S


def stages() -> ampsim.Cluster:
    """Devices on which a product of two rows and columns takes a second, and nothing else does."""
    device = ampsim.Device(name="stage", flop_per_s=16.0)
    return ampsim.Cluster(name="stages", devices=(device,) * DEVICES)


def closed_form() -> pd.DataFrame:
    """One row a way and a window."""
    trips, n = TRIPS, DEVICES

    def seconds(way: str, window: int) -> float:
        if way == "closed form":
            under_way = min(window, n)
            return (trips - 1) // under_way * n + (trips - 1) % under_way + n
        loop = Loop(trips, 2, is_collected=way != "nothing comes back")
        return ran(loop, stages(), window, run_ahead=way != "without running ahead").makespan_s

    rows: list[dict[str, Any]] = []
    for way in ("closed form", "running ahead", "without running ahead", "nothing comes back"):
        for window in WINDOWS:
            found_s = seconds(way, window)
            rows.append(
                {
                    "way": way, "window": window, "seconds": found_s,
                    "speed": seconds("closed form", 1) / found_s,
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def gpus(name: str) -> ampsim.Cluster:
    """Eight GPUs; launching is of their hosts."""
    gpu = ampsim.load_cluster(name).devices[0]
    host = {"dispatch_s": gpu.operation_overhead_s, "operation_overhead_s": 0.0}
    link = ampsim.Link(latency_s=LATENCY_S, bandwidth_bytes_per_s=LINKS[name])
    return ampsim.Cluster(name=name, devices=(gpu.model_copy(update=host),) * DEVICES, link=link)


def machines() -> pd.DataFrame:
    """One row a machine, a size and a window."""
    rows: list[dict[str, Any]] = []
    for name in LINKS:
        cluster = gpus(name)
        for size in SIZES:
            driven_s = client_s(size, cluster)
            seconds = [ran(Loop(TRIPS, size), cluster, one).makespan_s / TRIPS for one in WINDOWS]
            rows += [
                {
                    "machine": f"{name}, {size} rows", "window": window, "per_s": 1 / each_s,
                    "over_window_1": seconds[0] / each_s, "over_client": driven_s / each_s,
                }
                for window, each_s in zip(WINDOWS, seconds, strict=True)
            ]  # fmt: skip
    return pd.DataFrame(rows)


def memory() -> pd.DataFrame:
    """One row a length and a window."""
    cluster = gpus("k40")
    *others, last = cluster.devices
    slow = last.model_copy(update={"flop_per_s": last.flop_per_s / 2})
    cluster = cluster.model_copy(update={"devices": (*others, slow)})
    rows: list[dict[str, Any]] = []
    for trips in (TRIPS // 4, TRIPS):
        for window in (*WINDOWS, 0):
            result = ran(Loop(trips, 1024), cluster, window)
            rows.append(
                {
                    "iterations": f"{trips} iterations", "window": window,
                    "per_s": trips / result.makespan_s, "peak_bytes": int(result.peak_bytes.max()),
                    "under_way": result.window_max,
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def tables() -> dict[str, pd.DataFrame]:
    """All tables."""
    held = memory()
    has_window = held["window"] > 0
    return {
        "closed_form": closed_form(), "machines": machines(), "memory": held[has_window],
        "no_window": held[~has_window].drop(columns="window"),
    }  # fmt: skip
