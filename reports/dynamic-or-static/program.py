"""A loop in the graph against its unrolled copies, over batch and length: time and memory."""

from __future__ import annotations

from typing import Any

import pandas as pd

import ampsim
from ampsim.recipes.programs import Curves

TITLE = "Dynamic control flow or static unrolling"
TEXT = """
One training step of `dynamic_lstm`, one layer of 512 units, on a K40: as a loop in the graph
(`dataflow`), and as a graph that has a copy of the loop's body for each step (`unrolled`). It is
the subject of Figure 14 of Yu et al. (EuroSys 2018) and of the paragraph behind it. Their numbers,
with the length and all batches, are lost in our copy: shape only.

**What is assumed.** Sequences of 100 steps; float32, Adam, a window of 32 iterations. The host
takes as long for each step of the graph, a kernel, a Switch or a push alike: 5.7 us is what the
K40's file says of a launch, 1 us and nothing are chosen. The device is charged for no launch of its
own. Nothing is fitted.

**What is found.**

* The loop is slower, and less so the larger the batch, as in the paper: 1.9 to 2.0 times with
  batches up to 32, 1.02 with 512. With small batches the host is what all wait for, and of 164
  dispatches for each step of a sequence the unrolled graph needs 70: it has no frames, no stacks
  and no counters. From 256 on the host is ahead of the device and is not seen.
* With a host that takes no time a slowdown is left, 1.21 at most: of the device. The loop adds each
  step's gradient of the weights to what it has of them, 17 MB read and 8 written each time; the
  unrolled graph adds up all of them at the end, each read once.
* The ratio hardly depends on the length with batches of 16; with 128 it falls from 1.39 at 25 steps
  to 1.28 at 200.
* Those gradients are why the unrolled graph is out of memory first: each waits for the last, 8.4 MB
  for each step whatever the batch, where the loop keeps one sum. A batch of 16 has room for 30,000
  steps in the loop and for 1,400 unrolled. With 512 both end at the same length: a step's gradient
  then is as large as what its backward step lets go of. "In some configurations", says the paper,
  the loop handles substantially longer sequences.

The first lengths out of memory follow from what two lengths take, 40 steps apart, as each step
takes as much; of 512 in the loop the report `swapping` has tried the one before and the one that is
told.
"""
UNITS, LENGTH = 512, 100
BATCHES = (16, 32, 64, 128, 256, 512)
K40 = ampsim.load_cluster("k40").devices[0]
LAUNCH_S = K40.operation_overhead_s
DISPATCH_S = (LAUNCH_S, 1e-6, 0.0)
LENGTHS = (25, 50, 100, 200)  # of the table by length
SHORTEST, ROWS, APART = 60, 16_000, 40  # of the two lengths from which memory follows
WITNESS = {
    "BATCHES": (16, 512), "LENGTH": 8, "DISPATCH_S": (LAUNCH_S, 0.0), "LENGTHS": (4, 8),
    "SHORTEST": 6, "ROWS": 0, "APART": 4,
    "WAYS": {"dynamic": ampsim.Dataflow(parallel_iterations=3), "unrolled": ampsim.Unrolled()},
}  # fmt: skip
WAYS = {"dynamic": ampsim.Dataflow(), "unrolled": ampsim.Unrolled()}
CURVES = [
    Curves(
        "slowdown", "Dynamic over unrolled", "times", x="batch", y="slowdown", by="dispatch_us",
        x_label="batch", y_label="times as long", is_log_x=True,
    ),
    Curves(
        "lengths", "The first length that is out of memory", "memory", x="batch",
        y="first_oom_length", by="how", x_label="batch", y_label="length", is_log_x=True,
        is_log_y=True,
    ),
]  # fmt: skip


def run(how: str, batch: int, length: int, dispatch_s: float) -> Any:
    """A training step and a validation step of one batch on a K40."""
    numbers = {"dispatch_s": dispatch_s, "operation_overhead_s": 0.0}
    hardware = ampsim.Cluster(name="k40", devices=(K40.model_copy(update=numbers),))
    model = ampsim.load_model(
        "dynamic_lstm", hidden=UNITS, batch=batch, length=length, shortest=1.0
    )
    return ampsim.simulate(model, hardware, WAYS[how], mode="sleep", instances=batch)


def trained_ms(result: Any) -> float:
    """Milliseconds of the training step."""
    return 1e3 * float(result.epochs["train_s"].iloc[0])


def row(batch: int, length: int, dispatch_s: float) -> dict[str, float]:
    """Both ways at one point."""
    took = {how: trained_ms(run(how, batch, length, dispatch_s)) for how in WAYS}
    return {
        "dispatch_us": 1e6 * dispatch_s, "batch": batch, "length": length,
        "dynamic_ms": took["dynamic"], "unrolled_ms": took["unrolled"],
        "slowdown": took["dynamic"] / took["unrolled"],
    }  # fmt: skip


def dispatches() -> pd.DataFrame:
    """Dispatches for each step of a sequence, the whole training step counted, by what they are."""
    rows: list[dict[str, Any]] = []
    for how in WAYS:
        spans = run(how, 16, LENGTH, LAUNCH_S).spans
        spans = spans[spans["instance"] == 0]
        host = spans[spans["lane"] == "dispatch"]
        kernels = spans[(spans["lane"] == "compute") & (spans["end_s"] > spans["start_s"])]
        rows.append(
            {
                "how": how, "dispatches_a_step": len(host) / LENGTH,
                "kernels_a_step": len(kernels) / LENGTH,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def memory() -> pd.DataFrame:
    """The first length that does not fit, from what two lengths take: each step takes as much.

    In the loop sequences must be long enough for the steps to take more than the weights do.
    """
    assert K40.memory_bytes is not None
    rows: list[dict[str, Any]] = []
    for how in WAYS:
        for batch in BATCHES:
            length = max(SHORTEST, ROWS // batch) if how == "dynamic" else SHORTEST
            lengths = (length, length + APART)
            short, long = (int(run(how, batch, one, 0.0).peak_bytes[0]) for one in lengths)
            each = (long - short) / APART
            rows.append(
                {
                    "how": how, "batch": batch, "mb_a_step": each / 1e6,
                    "first_oom_length": lengths[1] + 1 + int((K40.memory_bytes - long) / each),
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def tables() -> dict[str, pd.DataFrame]:
    """Time by batch and dispatch, by length, what is dispatched, and memory."""
    times = [row(batch, LENGTH, one) for one in DISPATCH_S for batch in BATCHES]
    by_length = [row(batch, one, LAUNCH_S) for batch in (16, 128) for one in LENGTHS]
    return {
        "times": pd.DataFrame(times), "by_length": pd.DataFrame(by_length),
        "dispatches": dispatches(), "memory": memory(),
    }  # fmt: skip
