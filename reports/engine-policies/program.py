"""Running policies on one pushed program."""

from __future__ import annotations

from typing import Any

import pandas as pd

import ampsim
from ampsim.dependency import CaseStudy
from ampsim.recipes.programs import Curves

TITLE = "Running policies on one program"
TEXT = """
The case study (`ampsim.dependency.CaseStudy`): eight layers of 1024 x 1024, a batch of 256 rows a
GPU, float32, over links of 12 GB/s and 5 µs, with a host that computes for free and takes 5 µs for
a push (chosen, not measured). The same program is pushed under each policy, on 1 to 8 P100s.

`naive` runs one operation at a time. A thread of a pool that waits for a copy, or for a device
that another thread's operation occupies, does nothing else meanwhile: 16 threads are enough for
two GPUs and too few for eight, which have 24 lanes beside the host's. A second copy thread hides
latencies of a link alone, and those are short here.
"""
NO_LANES = {"copy_bandwidth_bytes_per_s": None, "copy_latency_s": 0.0}
GPU = ampsim.load_cluster("p100").devices[0].model_copy(update=NO_LANES)  # copies take the links
LINK = ampsim.Link(latency_s=5e-6, bandwidth_bytes_per_s=12e9)
POLICIES: dict[str, Any] = {
    "naive": ampsim.Naive(),
    "pooled, 1 thread": ampsim.Pooled(1),
    "pooled, 4 threads": ampsim.Pooled(4),
    "pooled, 16 threads": ampsim.Pooled(16),
    "per-device": ampsim.PerDevice(),
    "per-device, 2 copy threads": ampsim.PerDevice(copy_threads=2),
}
CURVES = [
    Curves(
        "policies", "Rows trained a second", "policies", x="gpus", y="rows_per_s", by="policy",
        x_label="GPUs", y_label="rows/s",
    )
]  # fmt: skip
ITERATIONS = 4


def tables() -> dict[str, pd.DataFrame]:
    """One row a policy and a number of GPUs."""
    rows: list[dict[str, Any]] = []
    for name, policy in POLICIES.items():
        for gpus in (1, 2, 4, 8):
            cluster = ampsim.Cluster(name="gpus", devices=(GPU,) * gpus, link=LINK)
            engine = ampsim.DependencyEngine(cluster, policy, push_s=5e-6)
            study = CaseStudy(
                (1024,) * 9, gpus=gpus, batch=256 * gpus, dtype="float32", is_numeric=False
            )
            study.run(engine, ITERATIONS)
            result = engine.result
            busy = result.busy
            computes = busy[(busy["kind"] == "compute") & (busy["place"] >= 0)]
            rows.append(
                {
                    "policy": name, "gpus": gpus, "makespan_s": result.makespan_s,
                    "rows_per_s": 256 * gpus * ITERATIONS / result.makespan_s,
                    "gpus_busy": computes["share"].mean(),
                }
            )  # fmt: skip
    return {"policies": pd.DataFrame(rows)}
