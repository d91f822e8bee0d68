"""How well the `cpu-core` device foretells what NumPy takes on one core of this machine.

    python tests/benchmark/bench_cpu_core.py [MODEL ...] [--rounds 5]

Foretold: virtual seconds of one epoch on one simulated core; each node updates itself after the
model's own number of gradients, as AMP does with one instance in flight. Taken: processor seconds of
the same epoch in numeric mode, less those in sleep mode, which is the engine without the numbers.
The device was measured on one machine with three shapes and no model
(`ampsim devices cpu-core`). Where steps are small, NumPy's many calls a step take longer than the
one overhead that the device charges.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import ampsim
from ampsim.study import Simulation
from ampsim.study.simulation import Mode

CASES = {
    "rnn": ({"replicas": 1}, 10_000),
    "mlp": ({"data": "synthetic"}, 2_000),
    "tree_lstm": ({"data": "synthetic"}, 300),
    "ggnn": ({"data": "synthetic"}, 300),
    "bilstm_tagger": ({"data": "synthetic"}, 100),
}


def epoch(name: str, mode: Mode) -> tuple[float, float]:
    """Return (wall seconds, virtual seconds) of one training pass."""
    options, instances = CASES[name]
    model = ampsim.load_model(name, **options)
    cluster = ampsim.load_cluster("cpu-core", workers=1)
    simulation = Simulation(
        model, cluster, ampsim.Amp(max_active_keys=1), mode=mode, instances=instances, spans_kept=0
    )
    start = time.process_time()
    report = simulation._run_pass("train")
    return time.process_time() - start, report.end_s - report.start_s


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("models", nargs="*", choices=[*CASES, []])
    options = parser.parse_args()
    for name in options.models or CASES:
        taken = []
        for _ in range(options.rounds):
            numeric_s, foretold_s = epoch(name, "numeric")
            taken.append(numeric_s - epoch(name, "sleep")[0])
        middle, count = statistics.median(taken), CASES[name][1]
        print(
            f"{name:14} foretold {foretold_s:7.3f} s, {count / foretold_s:8.1f}/s; taken"
            f" {middle:7.3f} s ({min(taken):.3f} to {max(taken):.3f}), {count / middle:8.1f}/s;"
            f" ratio {foretold_s / middle:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
