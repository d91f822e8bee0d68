"""How much of the synchronization a dependency engine hides, over bandwidth and layers."""

from __future__ import annotations

import pandas as pd

import ampsim
from ampsim.dependency import CaseStudy
from ampsim.recipes.programs import Curves

TITLE = "Synchronization that a dependency engine hides"
TEXT = """
k fully connected layers of 1024 x 1024 on two P100s; each batch of 512 rows is cut in two, the host
adds the gradients, updates, and copies the weights back (`ampsim.dependency.CaseStudy`, float32).
The host computes for free here, so that links alone are judged; each GPU has a link of its own each
way, without latency.

Hidden is the share of the time beyond computing that overlap saves: 1 - (T - C) / (S - C), where an
iteration takes T with overlap, S when the program waits before and after it synchronizes, and C on
links that take no time. Each is the mean of iterations 3 to 6.

Where the link takes far longer than the passes, little can be hidden behind them. Where it takes
far less, all is hidden but one layer: the first one's gradient comes last, and its weights are
needed first. So on fast links more layers hide more. One layer hides nothing but the next batch's
way to its GPU, a ninth of the bytes that come down and go up.
"""
NO_LANES = {"copy_bandwidth_bytes_per_s": None, "copy_latency_s": 0.0}
GPU = ampsim.load_cluster("p100").devices[0].model_copy(update=NO_LANES)  # copies take the links
BANDWIDTHS = tuple(10 ** (9 + step / 3) for step in range(10))
LAYERS = (1, 2, 4, 8, 16)
CURVES = [
    Curves(
        "hidden", "Share of the synchronization that is hidden", "overlap",
        x="bandwidth_bytes_per_s", y="hidden", by="layers",
        x_label="bandwidth of a link (bytes/s)", y_label="hidden share", is_log_x=True,
    )
]  # fmt: skip


def iteration_s(layers: int, bandwidth: float | None, *, has_overlap: bool) -> float:
    """Seconds of an iteration, the mean of the third to the sixth."""
    ends: list[float] = []
    for iterations in (2, 6):
        ways = {} if bandwidth is None else {"bandwidth_bytes_per_s": bandwidth}
        cluster = ampsim.Cluster(name="gpus", devices=(GPU,) * 2, link=ampsim.Link(**ways))
        engine = ampsim.DependencyEngine(cluster)
        study = CaseStudy(
            (1024,) * (layers + 1), batch=512, dtype="float32", has_overlap=has_overlap,
            is_numeric=False,
        )  # fmt: skip
        study.run(engine, iterations)
        ends.append(engine.result.makespan_s)
    return (ends[1] - ends[0]) / 4


def tables() -> dict[str, pd.DataFrame]:
    """One row a bandwidth and a number of layers."""
    rows: list[dict[str, float]] = []
    for layers in LAYERS:
        computing = iteration_s(layers, None, has_overlap=True)
        for bandwidth in BANDWIDTHS:
            both = [iteration_s(layers, bandwidth, has_overlap=each) for each in (True, False)]
            hidden = 1 - (both[0] - computing) / (both[1] - computing)
            rows.append(
                {
                    "layers": layers, "bandwidth_bytes_per_s": bandwidth,
                    "computing_s": computing, "with_overlap_s": both[0],
                    "without_s": both[1], "hidden": hidden,
                }
            )  # fmt: skip
    return {"overlap": pd.DataFrame(rows)}
