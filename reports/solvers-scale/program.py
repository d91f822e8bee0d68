"""Rings, hierarchies and one server, from 64 to 3,200 nodes of a KNL cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

import ampsim
from ampsim.data import ImageBatch
from ampsim.data_parallel import COLLECTIVES
from ampsim.recipes.programs import Curves

TITLE = "Synchronous and asynchronous steps from 64 to 3,200 nodes"
TEXT = """
What one step costs as nodes are added: the 4-layer perceptron of 784 units (7.4 MB of weights) on
KNL 7250, timing alone, with 256 images a node (weak scaling). A link between any two nodes
carries 10 GB/s; a message takes 30 microseconds, which is what software adds on slow days, not
what a fast network takes. Both are assumed; nothing is fitted to a published time.

**A ring takes 193 ms on 3,200 nodes, a hierarchy of groups of 16 a tenth of that.** The runs take
what the formulae say: 2 (P - 1) (a + n / (P B)) for a ring, and for groups of G two trees of 2
log2 G (a + n / B) in all and a ring of P / G. On 64 nodes the ring is faster, as it sends fewer
bytes; from 256 on the hierarchy is. Wongpanich, You and Demmel (HPC Asia 2020), Section 3.2,
found that a ring "performs poorly when we increase the number of machines beyond 1K". The table
`threshold` has, by the formulae and by doubling, from how many nodes on a hierarchy is faster:
over 2 microseconds 2,048, over 30 and 100 128 and 64; of a model of 100 MB, 32,768, 2,048 and
512. So their remark fits a large model over links of tens of microseconds, and is not to be
expected of every network.

**Weak scaling is poor in either way**, as this perceptron has little to compute for its bytes
(two FLOP a weight and image, forward): with 256 images a node a step on one node takes 1.4 ms,
and an all-reduce of 64 nodes 5. The paper trains ResNet-50, with about 150 times as many
operations a weight, on 3,200 nodes (217,600 cores of 68; its Figure 2 says 72) in 15 minutes.
That is one number, without a network or the time of a step: it can be divided by, not derived,
and it is not compared here.

**One server is full at 1,350 exchanges a second**, which is 10 GB/s over 7.4 MB, whatever the
number of ranks; a synchronous step of 64 nodes by a ring is 64 gradients in 6.6 ms, 9,700 a
second. Links are shared fairly here, so that ranks which come at once all wait for each other:
throughput bends before the port is full, between 2 and 16 ranks. More ranks than that only make
gradients older. The paper's asynchronous runs on ResNet-50 have one server and 16 to 64 workers.
"""
RANKS = (64, 256, 1024, 3200)
SERVED = (1, 2, 4, 8, 16, 32, 64)
WITNESS = {"RANKS": (32, 64), "SERVED": (1, 8)}
LATENCIES_S = (2e-6, 30e-6, 100e-6)
SIMULATED_S = 30e-6
BANDWIDTH = 1e10
ROWS = 256
GROUP = 16
CURVES = [
    Curves(
        "step", "A synchronous step", "weak_scaling", x="nodes", y="step_s", by="collective",
        x_label="nodes", y_label="step (s)", is_log_x=True, is_log_y=True,
    ),
    Curves(
        "efficiency", "Weak scaling", "weak_scaling", x="nodes", y="efficiency", by="collective",
        x_label="nodes", y_label="step of one node / step", is_log_x=True,
    ),
    Curves(
        "in-cast", "Exchanges with one server", "one_server", x="ranks", y="per_s", by="what",
        x_label="ranks", y_label="exchanges a second", is_log_x=True, is_log_y=True,
    ),
]  # fmt: skip


@dataclass(frozen=True)
class Blank:
    """So many images that take no memory: timing reads their shape alone."""

    images: int
    name: str = "blank"
    description: str = "images of zeros"

    def batches(self, split: str, *, epoch: int, seed: int) -> Iterator[ImageBatch]:
        """All of them, or one batch for validation."""
        zeros = np.broadcast_to(np.float32(0), (ROWS, 784))
        for _ in range(self.batch_count(split)):
            yield ImageBatch(zeros, np.zeros(ROWS, np.int64))

    def count(self, split: str) -> int:
        """Images."""
        return self.images if split == "train" else ROWS

    def batch_count(self, split: str) -> int:
        """Batches."""
        return self.count(split) // ROWS


def run(solver: Any, batches: int, **cluster: Any) -> ampsim.Result:
    """Timing of so many batches."""
    model = ampsim.load_model("mlp", data="synthetic", batch=ROWS)
    model = replace(model, make_data=lambda _seed, _count: Blank(batches * ROWS))
    hosts = ampsim.load_cluster("knl-7250", bandwidth_bytes_per_s=BANDWIDTH, **cluster)
    return ampsim.simulate(model, hosts, solver, mode="sleep")


def weak_scaling() -> pd.DataFrame:
    """A step of every number of nodes, by ring and by hierarchy."""
    alone_s = run(ampsim.SyncSGD(ranks=1), 1, workers=1, latency_s=SIMULATED_S).makespan_s
    rows: list[dict[str, Any]] = []
    for nodes in RANKS:
        for name, group in (("ring", None), ("hierarchical", GROUP)):
            solver = ampsim.SyncSGD(ranks=nodes, collective=name, ranks_per_group=group)
            result = run(solver, nodes, workers=nodes, latency_s=SIMULATED_S)
            lasting = result.collectives["end_s"] - result.collectives["start_s"]
            rows.append(
                {
                    "nodes": nodes,
                    "collective": name if group is None else f"{name}, groups of {group}",
                    "step_s": result.makespan_s,
                    "collective_s": float(lasting.iloc[0]),
                    "efficiency": alone_s / result.makespan_s,
                }
            )
    return pd.DataFrame(rows)


def thresholds() -> pd.DataFrame:
    """From how many nodes on, by doubling, a hierarchy is faster than a ring."""
    rows: list[dict[str, Any]] = []
    for latency_s in LATENCIES_S:
        for size_bytes in (7.4e6, 100e6):
            nodes = GROUP
            while not _is_faster(nodes, size_bytes, latency_s):
                nodes *= 2
            rows.append({"latency_s": latency_s, "model_bytes": size_bytes, "from_nodes": nodes})
    return pd.DataFrame(rows)


def _is_faster(nodes: int, size_bytes: float, latency_s: float) -> bool:
    way = (size_bytes, latency_s, BANDWIDTH)
    ring = COLLECTIVES["ring"].seconds(nodes, None, *way)
    return COLLECTIVES["hierarchical"].seconds(nodes, GROUP, *way) < ring


def one_server() -> pd.DataFrame:
    """Exchanges a second through the port of one server, and what bounds them."""
    rows: list[dict[str, Any]] = []
    for ranks in SERVED:
        result = run(
            ampsim.AsyncSGD(ranks=ranks), 24 * ranks, workers=ranks + 1, latency_s=1e-6,
            topology="star",
        )  # fmt: skip
        ends = np.sort(result.exchanges["merge_end_s"].to_numpy())
        first = 8 * ranks
        found = (len(ends) - first - 1) / (ends[-1] - ends[first])
        bound = BANDWIDTH / float(result.exchanges["bytes"].iloc[0])
        if ranks == 1:
            alone = found
        rows += [
            {"ranks": ranks, "what": "simulated", "per_s": found},
            {"ranks": ranks, "what": "as many as one alone, times ranks", "per_s": ranks * alone},
            {"ranks": ranks, "what": "the port is full", "per_s": bound},
        ]
    return pd.DataFrame(rows)


def tables() -> dict[str, pd.DataFrame]:
    """All three."""
    return {
        "weak_scaling": weak_scaling(),
        "threshold": thresholds(),
        "one_server": one_server(),
    }
