"""Operator evaluations a second of in-graph control flow, in `sleep` mode, on one core.

    python tests/benchmark/bench_dataflow.py [--length 1000] [--rounds 5]

* loop: an LSTM of 512 units over so many steps, one `while_loop`, forward alone.
* gradients: the same with its backward loop, stacks and sums.
* counted: that on a device whose memory has an end, all of it counted.
* swapping: that on a K40 too small for it, with 5.7 microseconds for each dispatch on the host,
  which leaves a span, too.
* nested: loops of ten iterations within a loop.

Processor time, medians of rounds, garbage collected as rarely as in all runs of models; what is
asked is 150,000 evaluations a second.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time

from ampsim import flow
from ampsim.dataflow.plan import needed
from ampsim.hardware import Cluster, load_cluster
from ampsim.ir import Standin
from ampsim.study.process_settings import fixed_settings

UNITS = 512


def lstm(length: int, *, has_gradients: bool) -> list[flow.Tensor]:
    """The loss of an LSTM, and its gradient by the weights."""
    with flow.FlowGraph():
        weight = flow.input("weight", (2 * UNITS, 4 * UNITS))
        rows = flow.TensorArray().unstack(flow.input("x", (None, UNITS, UNITS)))

        def body(i: flow.Tensor, h: flow.Tensor, c: flow.Tensor) -> tuple[flow.Tensor, ...]:
            gates = flow.matmul(flow.concat([rows.read(i), h]), weight)
            cuts = [flow.cut(gates, one * UNITS, (one + 1) * UNITS) for one in range(4)]
            into, forget, out = (flow.sigmoid(one) for one in cuts[:3])
            c = forget * c + into * flow.tanh(cuts[3])
            return i + 1, out * flow.tanh(c), c

        zeros = flow.zeros((UNITS, UNITS))
        _, h, _ = flow.while_loop(lambda i, h, c: i < length, body, (0, zeros, zeros))
        loss = flow.sum(h)
        return [loss, *(flow.gradients(loss, [weight]) if has_gradients else ())]


def nested(length: int) -> list[flow.Tensor]:
    """A loop in a loop."""
    with flow.FlowGraph():

        def body(i: flow.Tensor, y: flow.Tensor) -> tuple[flow.Tensor, ...]:
            _, z = flow.while_loop(lambda j, z: j < 10, lambda j, z: (j + 1, z * 1.5), (0, y))
            return i + 1, z

        return [flow.while_loop(lambda i, y: i < length // 10, body, (0, 1.0))[1]]


def device(**numbers: float) -> Cluster:
    """A K40 with other numbers."""
    k40 = load_cluster("k40").devices[0]
    return Cluster(name="k40", devices=(k40.model_copy(update=numbers),))


def evaluated(
    asked: list[flow.Tensor], length: int, cluster: Cluster, *, swaps: bool
) -> tuple[int, float]:
    """Evaluations of a run, and the seconds that they took."""
    shapes = {"weight": (2 * UNITS, 4 * UNITS), "x": (length, UNITS, UNITS)}
    named = {node.name for node in needed(asked)}
    feeds = {name: Standin(shape) for name, shape in shapes.items() if name in named}
    gc.collect()
    with fixed_settings():
        start_s = time.process_time()
        result = flow.run(asked, feeds, cluster=cluster, mode="sleep", swap_memory=swaps)
        seconds = time.process_time() - start_s
    return int(result.evaluations[["live", "dead"]].sum().sum()), seconds


def main() -> None:
    """Print one line a program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    length = options.length
    free, large = load_cluster("tflops-1"), device(memory_bytes=10**12)
    small = device(
        memory_bytes=20_000_000 * length, dispatch_s=5.7e-6, operation_overhead_s=0.0,
    )  # fmt: skip
    made: dict[str, tuple[list[flow.Tensor], Cluster]] = {
        "loop": (lstm(length, has_gradients=False), free),
        "gradients": (lstm(length, has_gradients=True), free),
        "counted": (lstm(length, has_gradients=True), large),
        "swapping": (lstm(length, has_gradients=True), small),
        "nested": (nested(length), free),
    }
    for name, (asked, cluster) in made.items():
        rounds = [
            evaluated(asked, length, cluster, swaps=name == "swapping")
            for _ in range(options.rounds)
        ]
        count, seconds = rounds[0][0], statistics.median(one for _, one in rounds)
        rate = f"{count / seconds:9,.0f} a second"
        print(f"{name:10} {count:9,} evaluations  {seconds:7.3f} s  {rate}")


if __name__ == "__main__":
    main()
