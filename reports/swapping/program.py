"""Memory swapping on a K40: Table 1 of Yu et al. (2018), and what follows from it."""

from __future__ import annotations

from typing import Any

import pandas as pd

import ampsim
from ampsim.errors import OutOfMemoryError
from ampsim.recipes.programs import Curves, Timeline

TITLE = "Swapping memory between a GPU and its host"
TEXT = """
One training step of `dynamic_lstm`, one layer of 512 units, on a K40, by the length of its
sequences: Table 1 of Yu et al., "Dynamic control flow in large-scale machine learning" (EuroSys
2018). Times are of the whole step, gradients and update included, divided by the length.

**What is assumed.** Our copy of the paper has lost the batch: 512 is assumed. So are data and loss,
of which it says nothing: symbols are embedded in 512 numbers, and what the layer says at each step
is classified, so that `dynamic_rnn` gives all of its outputs. float32, Adam, a window of 32
iterations. The host takes 5.7 us for each step of the graph, control flow included: what the K40's
file says of a launch, which the device is then not charged for. What lies in memory is counted as
`docs/dataflow.md` says, and nothing is lost to fragments; the host's memory has no end.

**What is fitted.** One number, to one time: the share of the K40's efficiency curve that products
reach, so that length 100 without swapping takes the paper's 5.81 ms. All else in the table is held
out.

**What is found.**

* Swapping costs no time, at any length up to 1,000: copies of what the steps push go beside the
  products. Up to 600 nothing moves here, as no more than 0.7 of the memory is used. The paper's
  times with and without differ by 0.9 % at most, ours not at all. No time that is held out is
  missed by more than 1.5 %.
* **With a batch of 512, memory without swapping is full too late**: here length 950 is the first
  that does not fit, there one between 500 and 600. Counted are, for each step, 12 arrays of batch x
  units: eight on stacks ([x h], which is two, the gates, the cell before, and tanh of the cell
  after), the embedded input, the outputs in their TensorArray, stacked, and the gradient of these.
  The paper's bracket means 19 to 23, and nothing known of TensorFlow explains seven more. Time is
  missed alike: with nothing fitted it is half of the paper's.
* **A batch of 1,024 brackets both**, with nothing fitted. A step takes 5.40 ms, 6 to 7 % less
  than the paper's. The first length that does not fit lies between two ends, 475 and 570,
  and the paper's lies between 500 and 600. The lower end is our count, in which an array keeps
  what is read. In the upper one an array lets go of what is read, which is TensorFlow's default
  (`clear_after_read` in `tensor_array_ops.py`, `LockedRead` in `tensor_array.h`): the input, and
  the outputs in their array, are gone when the backward loop begins, and ten arrays are left for
  each step. TensorFlow copies the rows that it unstacks, here of the outputs' gradient, where ours
  are parts of what was there: that makes eleven, and 518. The upper end is worked out from the
  lower one, not run. What the table with 512 misses is so the batch, and that the paper had another
  one is a guess, as long as its own is lost.
* Beyond the table swapping carries to between 1,800 and 2,000 steps, not for ever: what
  TensorArrays hold and stacked outputs are not on stacks and stay. The paper names the host's
  memory as the limit.

The chart is of Figure 13's subject, in shape only, as its numbers are lost: while three steps of
the forward loop are computed, tensors that were pushed 760 steps before leave; nothing comes back.
Numbers in boxes are iterations. A step pushes less than can leave meanwhile, so that the lane to
the host is busy for half of the time.
"""
PAPER = {
    "off": {100: 5.81, 200: 5.78, 500: 5.75},
    "on": {100: 5.76, 200: 5.76, 500: 5.73, 600: 5.72, 700: 5.77, 900: 5.74, 1000: 5.74},
}
LENGTHS = tuple(PAPER["on"])
FITTED = 100
UNITS, BATCH, WINDOW = 512, 512, 32
K40 = ampsim.load_cluster("k40").devices[0]
BATCHES, APART = (256, 512, 768, 896, 1024), 40
READ = 2  # the input, and the outputs before they were stacked
BEYOND = (("off", 949), ("off", 950), ("on", 1500), ("on", 1800), ("on", 2000))
SHOWN = (900, 902)  # steps of the forward loop
WITNESS = {
    "PAPER": {"off": {10: 5.8}, "on": {10: 5.8, 20: 5.8}}, "LENGTHS": (10, 20), "FITTED": 10,
    "WINDOW": 3, "BATCHES": (512,), "APART": 8, "BEYOND": (("off", 28), ("on", 28)),
    "SHOWN": (16, 18),
    "K40": K40.model_copy(update={"memory_bytes": 320_000_000}),
}  # fmt: skip
CURVES = [
    Curves(
        "memory", "Bytes on the device, swapping off and on", "times", x="length", y="peak_gb",
        by="swap", x_label="length of the sequences", y_label="most bytes at once (GB)",
    ),
]  # fmt: skip
TIMELINES = [Timeline("timeline", "Three steps of the forward loop of length 1,000", "timeline")]


def cluster(efficiency: float = 1.0) -> ampsim.Cluster:
    """A K40 whose products reach this share of what its file says; launches are the host's."""
    assert K40.efficiency is not None
    changes = {
        "efficiency": tuple((rows, share * efficiency) for rows, share in K40.efficiency),
        "dispatch_s": K40.operation_overhead_s,
        "operation_overhead_s": 0.0,
    }
    return ampsim.Cluster(name="k40", devices=(K40.model_copy(update=changes),))


def run(length: int, swap: str, hardware: ampsim.Cluster, batch: int = BATCH) -> Any:
    """A training step and a validation step of one batch; None where memory is full."""
    model = ampsim.load_model(
        "dynamic_lstm", hidden=UNITS, batch=batch, length=length, shortest=1.0
    )
    schedule = ampsim.Dataflow(swap_memory=swap == "on", parallel_iterations=WINDOW)
    try:
        return ampsim.simulate(model, hardware, schedule, mode="sleep", instances=batch)
    except OutOfMemoryError:
        return None


def step_ms(result: Any, length: int) -> float:
    """Milliseconds of training for each step of the sequences."""
    return 1e3 * float(result.epochs["train_s"].iloc[0]) / length


def fitted() -> float:
    """The share at which length 100 without swapping takes the paper's time.

    Time is a + b / share, as long as products are bound by arithmetic.
    """
    whole, half = (step_ms(run(FITTED, "off", cluster(share)), FITTED) for share in (1.0, 0.5))
    products = half - whole
    return products / (PAPER["off"][FITTED] - (whole - products))


def times(hardware: ampsim.Cluster) -> tuple[pd.DataFrame, Any]:
    """Table 1 beside the paper's, and the run of the longest sequences."""
    rows: list[dict[str, Any]] = []
    result: Any = None
    for swap in ("off", "on"):
        for length in LENGTHS:
            result = run(length, swap, hardware)
            paper: Any = PAPER[swap].get(length, "OOM")
            is_fitted = (swap, length) == ("off", FITTED)
            rows.append(
                {
                    "swap": swap, "length": length, "paper_ms": paper,
                    "ampsim_ms": "OOM" if result is None else step_ms(result, length),
                    "which": "fitted" if is_fitted else "held out",
                    "peak_gb": float("nan") if result is None else result.peak_bytes[0] / 1e9,
                }
            )  # fmt: skip
    return pd.DataFrame(rows), result


def batches() -> pd.DataFrame:
    """With nothing fitted: time, and the first length that does not fit, by batch.

    That length also where arrays let go of what is read, which are `READ` arrays of batch x units.
    """
    rows: list[dict[str, Any]] = []
    assert K40.memory_bytes is not None
    for batch in BATCHES:
        short, long = (run(length, "off", cluster(), batch) for length in (APART, 2 * APART))
        peaks = [int(one.peak_bytes[0]) for one in (short, long)]
        each, array = (peaks[1] - peaks[0]) // APART, 4 * batch * UNITS
        fixed, cleared = peaks[1] - 2 * APART * each, each - READ * array
        rows.append(
            {
                "batch": batch, "unfitted_ms": step_ms(long, 2 * APART),
                "arrays_a_step": each / array, "mb_a_step": each / 1e6,
                "first_oom_length": 2 * APART + 1 + (K40.memory_bytes - peaks[1]) // each,
                "first_oom_if_cleared": 1 + (K40.memory_bytes - fixed) // cleared,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def timeline(result: Any) -> pd.DataFrame:
    """Kernels and copies while three steps of the forward loop are computed, late in it."""
    spans = result.spans
    iteration = spans["state"].astype(str).str.extract(r"while-1/(\d+)$")[0]
    spans = spans.assign(step=pd.to_numeric(iteration))
    spans = spans[(spans["end_s"] > spans["start_s"]) & (spans["instance"] == 0)]
    shown = spans[(spans["lane"] == "compute") & spans["step"].between(*SHOWN)]
    start_s, end_s = shown["start_s"].min(), shown["end_s"].max()
    spans = spans[(spans["start_s"] < end_s) & (spans["end_s"] > start_s)]
    spans = spans[spans["lane"] != "dispatch"].sort_values(["lane", "start_s"])
    told = spans[["worker", "lane", "node", "direction"]].astype({"lane": str, "node": str})
    told = told.astype({"direction": str})
    return told.assign(
        instance=spans["step"].astype(int),
        start_s=spans["start_s"].clip(lower=start_s),
        end_s=spans["end_s"].clip(upper=end_s),
    )


def tables() -> dict[str, pd.DataFrame]:
    """Table 1, the fit, what batches would give, longer sequences, and a window of a run."""
    share = fitted()
    table, longest = times(cluster(share))
    beyond: list[dict[str, Any]] = []
    for swap, length in BEYOND:
        result = run(length, swap, cluster(share))
        beyond.append(
            {
                "swap": swap,
                "length": length,
                "ampsim_ms": "OOM" if result is None else step_ms(result, length),
                "peak_gb": float("nan") if result is None else result.peak_bytes[0] / 1e9,
            }
        )
    fit = pd.DataFrame([{"what": "share of the K40's efficiency curve", "value": share}])
    return {
        "times": table, "fit": fit, "batches": batches(), "beyond": pd.DataFrame(beyond),
        "timeline": timeline(longest),
    }  # fmt: skip
