"""How well the `cpu-core` device foretells what NumPy takes on one core of this machine.

    python tests/benchmark/bench_cpu_core.py [MODEL ...] [--rounds 5] [--nodes]

Foretold: virtual seconds of one epoch on one simulated core; each node updates itself after the
model's own number of gradients, as AMP does with one instance in flight. Taken: processor seconds
of the same epoch in numeric mode, less those in sleep mode, which is the engine without the
numbers. With --nodes, the same for the steps of each node, in microseconds a step.

The device was measured with products and small steps (`bench_core.py`), not with these models, but
for its overhead, which is that of steps within a run. Updates of large matrices take longer than
foretold: NumPy makes more passes over the optimizer's arrays than are charged.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import defaultdict
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import ampsim
from ampsim.ir import LossNode
from ampsim.study import Simulation
from ampsim.study.simulation import Mode

CASES = {
    "rnn": ({"replicas": 1}, 10_000),
    "mlp": ({"data": "synthetic"}, 2_000),
    "tree_lstm": ({"data": "synthetic"}, 300),
    "ggnn": ({"data": "synthetic"}, 300),
    "bilstm_tagger": ({"data": "synthetic"}, 100),
}
Seconds = defaultdict[tuple[str, str], float]
SHOWN = 20  # nodes and directions, those that take the most


def prepared(name: str, mode: Mode, *, spans_kept: int | None = None) -> Simulation:
    """A model on one simulated core."""
    config, instances = CASES[name]
    return Simulation(
        ampsim.load_model(name, **config),
        ampsim.load_cluster("cpu-core", workers=1),
        ampsim.Amp(max_active_keys=1),
        mode=mode,
        instances=instances,
        spans_kept=spans_kept,
    )


def epoch(name: str, mode: Mode) -> tuple[float, float]:
    """Return (processor seconds, virtual seconds) of one training pass."""
    simulation = prepared(name, mode, spans_kept=0)
    start = time.process_time()
    report = simulation._training.train(simulation._batches("train"))
    return time.process_time() - start, report.end_s - report.start_s


def timed(function, taken: Seconds, key: tuple[str, str]):
    """The function, with its processor seconds added up under `key`."""

    def timing(*arguments):
        start = time.process_time()
        result = function(*arguments)
        taken[key] += time.process_time() - start
        return result

    return timing


def steps(name: str, mode: Mode) -> tuple[Seconds, Simulation]:
    """Processor seconds of one training pass by node and direction."""
    simulation, taken = prepared(name, mode), Seconds(float)
    training: Any = simulation._training
    engine = training._method._engine
    for placed in engine.placed_nodes:
        if placed.worker >= 0:
            for step in ("forward", "backward"):
                key = (placed.node.name, step)
                setattr(placed, step, timed(getattr(placed, step), taken, key))
            if isinstance(placed.node, LossNode):
                key = (placed.node.name, "forward")
                timed_loss = timed(placed.node.evaluate, taken, key)
                placed.node.evaluate = timed_loss  # pyright: ignore[reportAttributeAccessIssue]  # to be timed
    update = engine.updater.update
    engine.updater.update = lambda placed, now_s: timed(
        update, taken, (placed.node.name, "update")
    )(placed, now_s)
    simulation._training.train(simulation._batches("train"))
    return taken, simulation


def show_nodes(name: str) -> None:
    """Print what the steps of each node take and what was foretold."""
    taken, simulation = steps(name, "numeric")
    for key, idle_s in steps(name, "sleep")[0].items():
        taken[key] -= idle_s
    spans = simulation.result().spans
    spans["foretold_s"] = spans.end_s - spans.start_s
    by_step = spans[spans.foretold_s > 0].groupby(["node", "direction"]).foretold_s
    foretold, count = by_step.sum(), by_step.count()
    for key, taken_s in sorted(taken.items(), key=lambda item: -item[1])[:SHOWN]:
        if key in count:
            each = [1e6 * total_s / count[key] for total_s in (taken_s, foretold[key])]
            print(
                f"  {key[0]:24} {key[1]:8} {count[key]:6} steps, taken {each[0]:8.1f} us,"
                f" foretold {each[1]:8.1f} us"
            )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nodes", action="store_true")
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
        if options.nodes:
            show_nodes(name)


if __name__ == "__main__":
    main()
