"""Messages a second in `sleep` mode by what the hardware is asked to be.

    python tests/benchmark/bench_hardware.py [--rounds 5] [--instances 20000]

The RNN of four replicas under AMP on 16 workers, each kind of hardware in turn in one process, by
processor time. Free links, and links of each pair, are what the rest is compared with.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import ampsim
from ampsim.hardware import Cluster, Ports
from ampsim.study import Simulation

WORKERS = 16
LINK = {"latency_s": 1e-7, "bandwidth_bytes_per_s": 1e11}


def free() -> Cluster:
    """Devices as the paper has them."""
    return ampsim.load_cluster("tflops-1", workers=WORKERS)


def linked(topology: str | None = None) -> Cluster:
    """The same with a link for each pair, or over the edges of a topology."""
    return ampsim.load_cluster("tflops-1", workers=WORKERS, topology=topology, **LINK)


def first_come() -> Cluster:
    """A ring whose edges serve one message after the other."""
    return linked("ring").model_copy(update={"sharing": "first-come"})


def ported() -> Cluster:
    """A link for each pair, and ports that all traffic of a place shares."""
    ports = Ports(egress_bytes_per_s=4e11, ingress_bytes_per_s=4e11)
    return linked().model_copy(update={"ports": ports})


def jittery(cluster: Cluster) -> Cluster:
    """A cluster whose steps vary by a tenth."""
    devices = tuple(one.model_copy(update={"jitter_cv": 0.1}) for one in cluster.devices)
    return cluster.model_copy(update={"devices": devices})


CASES: dict[str, tuple[Callable[[], Cluster], bool]] = {
    "free links": (free, False),
    "free links, memory counted": (free, True),
    "free links, jitter": (lambda: jittery(free()), False),
    "a link for each pair": (linked, False),
    "ports, fair": (ported, False),
    "ports, fair, and jitter": (lambda: jittery(ported()), False),
    "ring, first come": (first_come, False),
    "ring, fair": (lambda: linked("ring"), False),
}
"""What is measured: the cluster, and whether memory is counted."""


def messages_per_s(cluster: Cluster, instances: int, *, counts_memory: bool) -> float:
    """One epoch through the whole engine, by the seconds of this process."""
    simulation = Simulation(
        ampsim.load_model("rnn", replicas=4),
        cluster,
        ampsim.Amp(max_active_keys=8),
        mode="sleep",
        instances=instances,
        counts_memory=counts_memory,
    )
    start = time.process_time()
    simulation._training.train(simulation._batches("train"))
    return simulation.result().messages / (time.process_time() - start)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--instances", type=int, default=20_000)
    options = parser.parse_args()
    rates: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(options.rounds):
        for name, (cluster, counts) in CASES.items():
            rate = messages_per_s(cluster(), options.instances, counts_memory=counts)
            rates[name].append(rate)
    base = statistics.median(rates["free links"])
    for name, values in rates.items():
        low, middle, high = min(values), statistics.median(values), max(values)
        print(
            f"{name:28} {middle:10,.0f} a second   ({low:,.0f} to {high:,.0f})"
            f"   {middle / base:5.2f} of free links"
        )


if __name__ == "__main__":
    main()
