"""The list-reduction RNN by messages, as a program, unrolled, and driven by a client."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from statistics import median
from typing import Any, Final

import numpy as np
import pandas as pd

import ampsim
from ampsim.data import ListBatch
from ampsim.errors import OutOfMemoryError
from ampsim.hardware.topology import Route
from ampsim.recipes.programs import Curves
from ampsim.runs.ranking import Pair, finite, rank

TITLE = "One model four ways"
TEXT = """
The RNN of list reduction (hidden width 64, one replica) as AMPNet's messages (`sequential`,
`pipeline`, `amp`), as a program with its loop in the graph (`dataflow`), with the loop as copies of
its body (`unrolled`), and driven by a client (`out-of-graph`, 200 µs a decision). All have the same
names of parameters, first weights and data, and are charged the same FLOP. `sequential` and the
three programs have the same weights after 20 steps, to 1e-12
(`tests/oracle/test_dataflow_models.py`), so one learning stands for all of them. Numbers are of
double precision, so that what is learned is the same on every machine that makes this report again;
FLOP rates are those of `p100.toml`, which are of single precision.

**Table `rows`.** P100s as in `p100.toml`, between any two of them 10 GB/s and 6 µs of latency, both
assumed; the way to and from the data is free. Programs run on one device; of messages, `sequential`
has one and four, and with four devices the pipeline and AMP have four buckets in flight. 4,000
lists, to half of the validation lists, which is far from the model's 97 % on 100,000 lists: medians
over 32 seeds, with the soonest and the latest. Each way of learning tried the same four learning
rates with two other seeds, and has the best of them. `lists_per_s` is of training. `standing` is by
a paired bootstrap over seeds (docs/decisions/0015).

**Two are soonest, and 32 seeds do not say which**: `sequential` on one device is 1.14 times as soon
as AMP on four (0.97 to 1.22, `over_soonest` with its 90 % interval), which has the lowest of the
rates, by two seeds. All others are behind for sure: `unrolled`, the pipeline, `dataflow`,
`out-of-graph` and `sequential` on four devices. Those that learn alike
differ by a factor that no seed changes: `unrolled` takes 1.07 and `dataflow` 1.11 times as long
as `sequential`, for what one node does in a step are several operators, each launched by itself;
`out-of-graph` takes 8.4 times as long, with a predicate for each token there and back, forward
and backward; and `sequential` 1.9 times as long on four devices as on one.

**Table `hosts`.** In `p100.toml` a launch takes the device 2.2 µs, and what a host does is free.
Where that time is the host's for each step instead, Switches, Merges, stacks and arrays are charged
as any step, and a node's step once, however much it launches: then `unrolled` has 3.5 times the
lists a second of `dataflow`, as kernels this small hide no host. What the table above says of
`dataflow` is as good as that charge.

**Memory** (table `lengths`, and `first_out_of_memory`: the least length of a list that does not fit
into 16 MB on a device, for buckets of 100). For each token messages keep less than the program's
stacks and arrays, and the unrolled graph keeps most. Four buckets in flight need 3.1 to 3.5 times
as much as one on as many devices. Swapping takes the program from 76 tokens to 77 (table
`swapping`): its peak is at the end of the backward loop, in the arrays of embedded tokens and of
their gradients, which no stack has.

Control messages are those of one epoch, the validation included. On one device in-graph control
flow sends none, and AMPNet's nodes decide by the state that a message brings.
"""
HIDDEN, LISTS, TARGET, EPOCHS_MAX = 64, 4000, 0.5, 20
RATES, TRIAL_EPOCHS = (1.5e-3, 3e-3, 6e-3, 1.2e-2), 12
SEEDS, TUNING_SEEDS = range(32), (100, 101)
SMALL_BYTES = 16_000_000
LENGTHS = (10, 20, 40, 80, 160)
WAYS: Final[dict[str, tuple[Any, int]]] = {
    "sequential": (ampsim.Sequential(), 1),
    "sequential on 4": (ampsim.Sequential(), 4),
    "pipeline on 4": (ampsim.Pipeline(max_active_keys=4), 4),
    "amp on 4": (ampsim.Amp(max_active_keys=4), 4),
    "dataflow": (ampsim.Dataflow(), 1),
    "unrolled": (ampsim.Unrolled(), 1),
    "out-of-graph": (ampsim.OutOfGraph(), 1),
}
"""Schedules, and how many devices each has; four instances are in flight under the two that may."""

HAS_LOSSES = False  # whether a table tells of them, which are the witness of what is learned
WITNESS = {
    "LISTS": 800, "TARGET": 0.01, "EPOCHS_MAX": 2, "RATES": (3e-3, 1.2e-2), "TRIAL_EPOCHS": 1,
    "SEEDS": range(2), "TUNING_SEEDS": (100,), "SMALL_BYTES": 4_000_000, "LENGTHS": (5, 10),
    "HAS_LOSSES": True,
}  # fmt: skip

SWAPPING = (ampsim.Dataflow(swap_memory=True), 1)
LEARNERS = ("sequential", "pipeline on 4", "amp on 4")
"""Who learns in a way of its own; all others learn as `sequential`."""

CURVES = [
    Curves(
        "peaks", "Most bytes in memory over the length of the lists", "lengths", x="tokens",
        y="peak_bytes", by="way", x_label="tokens of a list", y_label="bytes", is_log_x=True,
        is_log_y=True,
    )
]  # fmt: skip


def model_of(rate: float) -> ampsim.Model:
    """The model; only its learning rate differs between rows."""
    options = {"hidden": HIDDEN, "replicas": 1, "dtype": "float64"}
    return ampsim.load_model("rnn", learning_rate=rate, **options)


@cache
def gpus(count: int, **more: Any) -> ampsim.Cluster:
    """So many P100s; the way to and from the data is free."""
    gpu = ampsim.load_cluster("p100").devices[0].model_copy(update=more)
    link = ampsim.Link(latency_s=6e-6, bandwidth_bytes_per_s=1e10)
    ways = tuple(
        Route(source=source, target=target, link=link)
        for source in range(count)
        for target in range(count)
        if source != target
    )
    return ampsim.Cluster(name=f"{count} P100", devices=(gpu,) * count, links=ways)


# --- time to the target


def learned(way: str, rate: float, seed: int, epochs: int = EPOCHS_MAX) -> tuple[int, float]:
    """Epochs until the target is reached, and when; infinity where it is not."""
    schedule, devices = WAYS[way]
    result = ampsim.simulate(
        model_of(rate), gpus(devices), schedule, instances=LISTS, seed=seed, target=TARGET,
        epochs=epochs,
    )  # fmt: skip
    is_there = result.epochs["accuracy"].iloc[-1] >= TARGET
    return len(result.epochs), float(result.epochs["time_s"].iloc[-1]) if is_there else math.inf


def losses() -> pd.DataFrame:
    """Those of each way that learns in its own, after the last epoch."""
    made: list[dict[str, Any]] = []
    for way in LEARNERS:
        schedule, devices = WAYS[way]
        result = ampsim.simulate(
            model_of(RATES[0]), gpus(devices), schedule, instances=LISTS, epochs=EPOCHS_MAX
        )
        made.append({"way": way, **result.epochs[["loss", "valid_loss"]].iloc[-1].to_dict()})
    return pd.DataFrame(made)


def tuned(way: str) -> float:
    """The rate with the smallest median time to the target, with seeds that no row has."""
    times = {
        rate: median(learned(way, rate, seed, TRIAL_EPOCHS)[1] for seed in TUNING_SEEDS)
        for rate in RATES
    }
    return min(times, key=lambda rate: times[rate])


def slept(way: str, seed: int, **more: Any) -> ampsim.Result:
    """An epoch without numbers; it takes as long as one with them."""
    schedule, devices = WAYS[way]
    cluster = gpus(devices, **more)
    return ampsim.simulate(
        model_of(RATES[0]), cluster, schedule, instances=LISTS, seed=seed, mode="sleep"
    )


def rows() -> pd.DataFrame:
    """One row a way."""
    rates = {way: tuned(way) for way in LEARNERS}
    met = {way: [learned(way, rate, seed) for seed in SEEDS] for way, rate in rates.items()}
    made: list[dict[str, Any]] = []
    times: list[dict[int, float]] = []
    for way in WAYS:
        source = way if way in LEARNERS else "sequential"
        runs = [slept(way, seed) for seed in SEEDS]
        if source == way:
            times.append(dict(zip(SEEDS, (time_s for _, time_s in met[way]), strict=True)))
        else:
            times.append(
                {
                    seed: epochs * run.epochs["time_s"].iloc[0] if time_s < math.inf else math.inf
                    for seed, (epochs, time_s), run in zip(SEEDS, met[source], runs, strict=True)
                }
            )
        made.append(row(way, rates[source], met[source], runs, times[-1]))
    ranking = rank(times)
    assert ranking is not None, "some row arrives"
    pairs = [one or Pair(1.0, None, None, None, "first") for one in ranking.pairs]
    return pd.DataFrame(made).assign(
        standing=ranking.standings,
        over_soonest=[one.ratio for one in pairs],
        low=[finite(one.low) or math.nan for one in pairs],
        high=[finite(one.high) or math.nan for one in pairs],
    )


def row(
    way: str, rate: float, met: list[tuple[int, float]], runs: list[ampsim.Result],
    times: dict[int, float],
) -> dict[str, Any]:  # fmt: skip
    """What is told of a way."""
    arrived = sorted(times.values())
    controls = [len(run.transfers) if way == "out-of-graph" else 0 for run in runs]
    return {
        "way": way,
        "devices": WAYS[way][1],
        "lists_per_s": median(run.train_per_s for run in runs),
        "learning_rate": rate,
        "epochs": median(epochs for epochs, _time_s in met),
        "time_to_target_s": median(arrived),
        "soonest_s": arrived[0],
        "latest_s": arrived[-1],
        "peak_bytes": int(median(run.peak_bytes.max() for run in runs)),
        "control_messages": int(median(controls)),
        "first_out_of_memory": first_out_of_memory(*WAYS[way]),
    }


# --- memory over lengths


@dataclass(frozen=True)
class Alike:
    """Buckets of a hundred lists of one length: so many to train on, and one to validate on."""

    tokens: int
    buckets: int
    name = "lists of one length"
    description = "what they hold is of no matter"

    def count(self, split: str) -> int:
        """Lists that a split has."""
        return 100 * self.batch_count(split)

    def batch_count(self, split: str) -> int:
        """Buckets that it has."""
        return self.buckets if split == "train" else 1

    def batches(self, split: str, *, epoch: int, seed: int) -> Iterator[ListBatch]:
        """All of them."""
        batch = ListBatch(np.zeros((self.tokens, 100), np.int64), np.zeros(100, np.int64))
        return iter([batch] * self.batch_count(split))


def peak_bytes(schedule: Any, devices: int, tokens: int, **more: Any) -> int | None:
    """The most bytes on a device with lists of so many tokens; None where that is too much."""
    buckets = 4 if devices > 1 else 1
    model = replace(model_of(RATES[0]), make_data=lambda _seed, _count: Alike(tokens, buckets))
    try:
        result = ampsim.simulate(model, gpus(devices, **more), schedule, mode="sleep")
    except OutOfMemoryError:
        return None
    return int(result.peak_bytes.max())


def first_out_of_memory(schedule: Any, devices: int) -> int:
    """The least length that does not fit into `SMALL_BYTES` on each device."""

    def fits(tokens: int) -> bool:
        return peak_bytes(schedule, devices, tokens, memory_bytes=SMALL_BYTES) is not None

    short, long = LENGTHS[0], 2 * LENGTHS[0]
    while fits(long):
        short, long = long, 2 * long
    while long > short + 1:
        middle = (short + long) // 2
        short, long = (middle, long) if fits(middle) else (short, middle)
    return long


def hosts() -> pd.DataFrame:
    """Lists a second where launching takes the host's time in place of the device's."""
    gpu = ampsim.load_cluster("p100").devices[0]
    more = {"dispatch_s": gpu.operation_overhead_s, "operation_overhead_s": 0.0}
    return pd.DataFrame(
        {
            "way": list(WAYS),
            "device_launches_per_s": [slept(way, 0).train_per_s for way in WAYS],
            "host_launches_per_s": [slept(way, 0, **more).train_per_s for way in WAYS],
        }
    )


def tables() -> dict[str, pd.DataFrame]:
    """The rows, what hosts take, and peaks by length."""
    lengths = [
        {"way": way, "tokens": tokens, "peak_bytes": peak_bytes(*WAYS[way], tokens)}
        for way in WAYS
        for tokens in LENGTHS
    ]
    swapping = {"way": ["dataflow, swapping"], "tokens": [first_out_of_memory(*SWAPPING)]}
    return {
        "rows": rows(), "hosts": hosts(), "lengths": pd.DataFrame(lengths),
        "swapping": pd.DataFrame(swapping), **({"losses": losses()} if HAS_LOSSES else {}),
    }  # fmt: skip
