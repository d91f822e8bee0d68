"""An LSTM of eight layers as one loop, cut over one to eight devices."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pandas as pd

import ampsim
from ampsim.recipes.programs import Curves

TITLE = "Eight layers on one to eight devices"
TEXT = """
One training step of `dynamic_lstm`, eight layers of 512 units over 100 steps, in one `while_loop`
that is cut over one to eight K40s, gradient loop and updates included: the subject of Figure 15 of
Yu et al. (EuroSys 2018). Its numbers are lost in our copy, and so are batch and length: shape only.
The paper says that the speed-up is sub-linear for the copies between devices, and that iterations
which overlap make up for some of it.

**What is assumed.** Batches of 512 and 128; float32, Adam, a window of 32 iterations. Layers are
shared out evenly, neighbours together. Each pair of devices has a link of its own each way, as fast
as a K40's copies from and to its host: 10.3 GB/s and 6 us. Each device has an executor of its own
on the host, which takes 5.7 us for each step of the graph, Sends and Recvs included: what the K40's
file says of a launch, which the device is then not charged for. Nothing is fitted.

**What is found.**

* With batches of 512 eight devices are 6.5 times as fast as one, four 3.8 times. Were there nothing
  but products and the wait until the last layer has something to do, N steps on n devices with at
  most m layers on one would be 8 N / (m (N + n - 1)) times as fast (`bound`): 7.5 times. Where
  links and hosts take no time, 7.4 times come out.
* Where links take no time and hosts do, eight devices are 6.5 times as fast: a copy of 1 MB, 0.1 ms
  and a tenth of a forward step of a layer, goes beside the products of other iterations, and is
  waited for only where the next layer has nothing else to do.
* With batches of 128 hosts are what all wait for, and eight devices are 2.8 times as fast as one.
* Six devices are no faster than four: there, too, two layers on one device are what all wait for.
* On the fullest device lie 1.2 GB with eight devices, and 7.4 with one.
"""
LAYERS, UNITS, LENGTH, WINDOW = 8, 512, 100, 32
K40 = ampsim.load_cluster("k40").devices[0]
CURVES = [
    Curves(
        "speed-up", "Speed-up over one device", "times", x="devices", y="speed_up", by="charged",
        x_label="devices", y_label="times as fast",
    ),
]  # fmt: skip


class Costs(NamedTuple):
    """What is charged beside kernels."""

    told: str
    batch: int
    dispatch_s: float
    has_links: bool
    devices: tuple[int, ...]


CASES = (
    Costs("batch 512: hosts and links", 512, K40.operation_overhead_s, True, (1, 2, 3, 4, 6, 8)),
    Costs("batch 512: hosts", 512, K40.operation_overhead_s, False, (1, 2, 4, 8)),
    Costs("batch 512: neither", 512, 0.0, False, (1, 2, 4, 8)),
    Costs("batch 128: hosts and links", 128, K40.operation_overhead_s, True, (1, 2, 4, 8)),
)

WITNESS = {
    "LAYERS": 2, "LENGTH": 8, "WINDOW": 3,
    "CASES": tuple(one._replace(devices=(1, 2)) for one in CASES),
}  # fmt: skip


def run(costs: Costs, devices: int) -> Any:
    """A training step and a validation step of one batch."""
    numbers = {"dispatch_s": costs.dispatch_s, "operation_overhead_s": 0.0}
    gpus = (K40.model_copy(update=numbers),) * devices
    ways = {
        "bandwidth_bytes_per_s": K40.copy_bandwidth_bytes_per_s,
        "latency_s": K40.copy_latency_s,
    }
    link = ampsim.Link(**ways) if costs.has_links else ampsim.Link()
    hardware = ampsim.Cluster(name="k40s", devices=gpus, link=link)
    model = ampsim.load_model(
        "dynamic_lstm", hidden=UNITS, layers=LAYERS, batch=costs.batch, length=LENGTH,
        shortest=1.0, devices=devices,
    )  # fmt: skip
    schedule = ampsim.Dataflow(parallel_iterations=WINDOW)
    return ampsim.simulate(model, hardware, schedule, mode="sleep", instances=costs.batch)


def tables() -> dict[str, pd.DataFrame]:
    """One row for what is charged and a number of devices."""
    rows: list[dict[str, Any]] = []
    for costs in CASES:
        alone = math.nan
        for devices in costs.devices:
            result = run(costs, devices)
            took_s = float(result.epochs["train_s"].iloc[0])
            alone = took_s if devices == 1 else alone
            most = -(-LAYERS // devices)
            bound = LAYERS * LENGTH / (most * (LENGTH + devices - 1))
            rows.append(
                {
                    "charged": costs.told, "devices": devices, "train_ms": 1e3 * took_s,
                    "speed_up": alone / took_s, "bound": bound,
                    "messages": len(result.transfers),
                    "fullest_gb": int(result.peak_bytes.max()) / 1e9,
                }
            )  # fmt: skip
    return {"times": pd.DataFrame(rows)}
