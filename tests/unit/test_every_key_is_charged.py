"""No key of a device or cluster is read and then ignored: each changes what a run says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ampsim import Amp, Cluster, load_model, simulate
from ampsim.data import ListReduction
from ampsim.errors import AmpsimError
from ampsim.hardware import Device
from ampsim.hardware.device import NUMBERS

PLAIN: dict[str, Any] = {"flop_per_s": 1e12}
BANDWIDTH = {"memory_bandwidth_bytes_per_s": 1e9}
OFFLOAD = {"memory": {"remedy": "offload", "above_bytes": 0}}
COPIES = {"copy_bandwidth_bytes_per_s": 1e12}
TABLES = {"forward_efficiency": ((1, 1, 1.0),), "backward_efficiency": ((1, 1, 1.0),)}
POWERS = {"idle_power_w": 1.0, "busy_power_w": 2.0}
RING = {"topology": {"kind": "ring", "bandwidth_bytes_per_s": 1e6}}

OF_A_DEVICE: dict[str, tuple[dict[str, Any], Any, dict[str, Any]]] = {
    "flop_per_s": ({}, 2e12, {}),
    "operation_overhead_s": ({}, 1e-6, {}),
    "memory_bandwidth_bytes_per_s": ({}, 1e9, {}),
    "cache_bytes": (BANDWIDTH | {"cache_bandwidth_bytes_per_s": 1e10, "cache_bytes": 1}, 10**9, {}),
    "cache_bandwidth_bytes_per_s": (
        BANDWIDTH | {"cache_bytes": 10**9, "cache_bandwidth_bytes_per_s": 2e9}, 1e10, {}
    ),
    "efficiency": ({}, ((1, 0.5),), {}),
    "step_overhead_s": ({}, 1e-6, {}),
    "light_bandwidth_bytes_per_s": (BANDWIDTH, 1e8, {}),
    "matrix_efficiency": ({}, ((1, 0.5),), {}),
    "memory_bytes": ({}, 1000, {}),
    "jitter_cv": ({}, 0.1, {}),
    "idle_power_w": (POWERS, 1.5, {}),
    "busy_power_w": (POWERS, 3.0, {}),
    "price_usd_per_h": ({}, 3.0, {}),
    "message_overhead_s": ({}, 1e-6, {}),
    "dispatch_s": ({}, 1e-6, {}),
    "copy_bandwidth_bytes_per_s": (COPIES, 1e13, OFFLOAD),
    "copy_latency_s": (COPIES, 1e-11, OFFLOAD),
    "forward_efficiency": (TABLES, ((1, 1, 0.5),), {}),
    "backward_efficiency": (TABLES, ((1, 1, 0.5),), {}),
    "pass_bandwidth_bytes_per_s": ({}, 1e9, {}),
    "functions_per_s": ({}, 1e9, {}),
}  # fmt: skip
"""By key: what else the device has, the other value, and what the cluster has."""

OF_A_CLUSTER: dict[str, tuple[dict[str, Any], Any, dict[str, Any]]] = {
    "link": ({}, {"latency_s": 1e-6}, {}),
    "links": ({}, [{"source": 0, "target": 1, "link": {"latency_s": 1e-3}}], {}),
    "ports": ({}, {"egress_bytes_per_s": 1e6}, {}),
    "topology": ({}, RING["topology"], {}),
    "edges": (
        {},
        [{"between": [0, w], "latency_s": 1e-6} for w in (1, 2, 3)],
        {},
    ),
    "sharing": (RING, "first-come", {}),
    "events": (
        {},
        [{"kind": "slow", "worker": "all", "from_s": 0.0, "until_s": 1.0, "factor": 2.0}],
        {},
    ),
    "failures": (
        {},
        {
            "kind": "pause",
            "worker": "all",
            "mean_time_between_s": 1e-6,
            "mean_time_to_repair_s": 1e-6,
        },
        {},
    ),
    "checkpoints": ({}, {"every_s": 1e-8, "takes_s": 1e-9}, {}),
    "messages": ({}, {"loss_probability": 0.3, "retry_after_s": 1e-5}, {}),
    "host": ({}, {"name": "h", "flop_per_s": 1e12, "step_overhead_s": 1e-6}, {}),
    "memory": ({}, OFFLOAD["memory"], COPIES),
}
"""By key: what else the cluster has, the other value, and what the device has."""


def told(device: dict[str, Any], cluster: dict[str, Any]) -> str:
    """Everything that a run says of time, memory, energy and money; or why there is none."""
    data = ListReduction.generate(0, 40, 4, batch=8)
    model = replace(load_model("rnn", hidden=8), make_data=lambda _seed, _count: data)
    one = Device.model_validate({"name": "d", **device})
    made = Cluster.model_validate({"name": "c", "devices": (one,) * 4, **tupled(cluster)})
    try:
        result = simulate(model, made, Amp(4), mode="sleep")
    except AmpsimError as error:
        return str(error)
    times = result.spans[["start_s", "end_s"]].to_string(float_format="%.12g")
    return f"{result.energy_j} {result.cost_usd} {times}"


def tupled(keys: dict[str, Any]) -> dict[str, Any]:
    """Lists as the tuples that a frozen record holds."""
    return {key: tuple(one) if isinstance(one, list) else one for key, one in keys.items()}


@pytest.mark.parametrize("key", NUMBERS)
def test_each_number_of_a_device_changes_what_a_run_says(key):
    others, value, cluster = OF_A_DEVICE[key]
    assert told(PLAIN | others | {key: value}, cluster) != told(PLAIN | others, cluster)


@pytest.mark.parametrize(
    "key", sorted(set(Cluster.model_fields) - {"name", "description", "devices"})
)
def test_each_key_of_a_cluster_changes_what_a_run_says(key):
    others, value, device = OF_A_CLUSTER[key]
    device = PLAIN | device
    assert told(device, others | {key: value}) != told(device, others)
