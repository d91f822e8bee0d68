"""Device and cluster files that say all that such files can say, and what holds of them."""

from __future__ import annotations

from typing import Any

from ampsim.hardware import HOST, Cluster

FULL = {
    "name": "full",
    "description": "everything a device can say",
    "flop_per_s": 2e12,
    "operation_overhead_s": 5e-7,
    "memory_bandwidth_bytes_per_s": 50_000_000_000,
    "cache_bytes": 4_194_304,
    "cache_bandwidth_bytes_per_s": 4e11,
    "efficiency": [[1, 0.1], [16, 0.6], [128, 1]],
    "step_overhead_s": 1e-6,
    "light_bandwidth_bytes_per_s": 4e10,
    "matrix_efficiency": [[1000, 0.5], [1_000_000, 1.0]],
    "memory_bytes": 8_000_000_000,
    "jitter_cv": 0.1,
    "idle_power_w": 10,
    "busy_power_w": 90.5,
    "price_usd_per_h": 0.75,
    "message_overhead_s": 1e-7,
    "dispatch_s": 2e-6,
    "copy_bandwidth_bytes_per_s": 1e10,
    "copy_latency_s": 1e-6,
    "forward_efficiency": [[1, 1000, 0.1], [1, 9000, 0.2], [64, 1000, 0.5], [64, 9000, 1]],
    "backward_efficiency": [[1, 1000, 0.1], [8, 1000, 1.0]],
    "pass_bandwidth_bytes_per_s": 5e10,
    "functions_per_s": 3e9,
}
LEFT_OUT = {
    "edge": {
        *("dispatch_s", "forward_efficiency", "backward_efficiency"),
        "pass_bandwidth_bytes_per_s",
    },
    "issued": {
        *("operation_overhead_s", "efficiency", "matrix_efficiency"),
        "light_bandwidth_bytes_per_s",
    },
}
"""Keys that a device file lacks, for others stand in their place."""

SOURCE = {"kind": "assumed", "text": "for tests"}
RACK = {
    "description": "two kinds",
    "device": [{"file": "edge.toml", "count": 2}, {"name": "tflops-1"}],
    "link": {"latency_s": 1e-6, "bandwidth_bytes_per_s": 1e10, "source": SOURCE},
    "links": [
        {"from": 0, "to": 1, "latency_s": 2e-7, "source": SOURCE},
        {"from": "host", "to": 2, "bandwidth_bytes_per_s": 1e9, "source": SOURCE},
    ],
    "host": {"device": "issued.toml"},
    "memory": {"remedy": "recompute"},
}
FLAKY = {
    "device": [{"name": "tflops-1", "count": 3}],
    "link": {"latency_s": 1e-6, "source": SOURCE},
    "events": [
        {"kind": "slow", "worker": 1, "from_s": 0.5, "until_s": 2, "factor": 3.5, "source": SOURCE},
        {"kind": "pause", "worker": "all", "from_s": 3.0, "until_s": 4.0, "source": SOURCE},
        {
            "kind": "stop", "worker": [0, 2], "from_s": 5.0, "until_s": 6.0,
            "weights": "checkpoint", "source": SOURCE,
        },
    ],
    "failures": {
        "kind": "stop", "worker": [1], "mean_time_between_s": 10.0, "mean_time_to_repair_s": 0.5,
        "loses_step": False, "source": SOURCE,
    },
    "checkpoints": {
        "every_s": 2.0, "takes_s": 0.01, "bandwidth_bytes_per_s": 1e9, "source": SOURCE,
    },
    "messages": {
        "loss_probability": 0.01, "retry_after_s": 1e-3, "delay_cv": 0.2, "source": SOURCE,
    },
}  # fmt: skip
FABRIC = {
    "device": [{"name": "tflops-1", "count": 4}],
    "ports": {
        "egress_bytes_per_s": 1e10, "ingress_bytes_per_s": 2e10, "source": SOURCE,
        "host": {"egress_bytes_per_s": 1e9, "source": SOURCE},
    },
    "sharing": "first-come",
}  # fmt: skip
TORUS = FABRIC | {
    "topology": {
        "kind": "torus", "shape": [2, 2], "latency_s": 1e-6, "bandwidth_bytes_per_s": 1e10,
        "duplex": "half", "source": SOURCE,
    },
}  # fmt: skip
RACKS = FABRIC | {
    "topology": {
        "kind": "hierarchy",
        "levels": [
            {"members": 2, "latency_s": 1e-7, "source": SOURCE},
            {"members": 2, "bandwidth_bytes_per_s": 1e9, "source": SOURCE},
        ],
    },
}
WIRED = FABRIC | {
    "edges": [
        {
            "between": [[0, "switch"], [1, "switch"], [2, "switch"], [3, "switch"]],
            "latency_s": 1e-6, "duplex": "half", "source": SOURCE,
        },
        {"between": ["switch", "host"], "bandwidth_bytes_per_s": 1e9, "source": SOURCE},
    ],
}  # fmt: skip
CLUSTERS: dict[str, dict[str, Any]] = {
    "rack": RACK, "flaky": FLAKY, "torus": TORUS, "racks": RACKS, "wired": WIRED,
}  # fmt: skip


def assert_part_as_written(held: Any, written: Any) -> None:
    """A record, or a list of them, holds what was written, and what was not is as by default."""
    if isinstance(written, list) and isinstance(held, tuple) and written and held:
        if not isinstance(written[0], dict):
            assert list(held) == written
            return
        for one, entry in zip(held, written, strict=True):
            assert_part_as_written(one, entry)
        return
    if not isinstance(written, dict):
        assert (held or None) == (written or None) or held == (written,)
        return
    record: Any = type(held)
    fields: dict[str, Any] = record.model_fields
    for key, field in fields.items():
        value = getattr(held, key)
        if key not in written:
            assert value == field.get_default(call_default_factory=True), key
        elif isinstance(value, float):
            assert value == float(written[key])
        else:
            assert_part_as_written(value, written[key])


def assert_edges_as_written(cluster: Cluster, entries: list[Any]) -> None:
    """Each pair of each entry is an edge that costs what the entry says."""
    pairs = [
        (list(pair), entry)
        for entry in entries
        for pair in (
            entry["between"] if isinstance(entry["between"][0], list) else [entry["between"]]
        )
    ]
    assert len(cluster.edges) == len(pairs)
    for edge, (pair, entry) in zip(cluster.edges, pairs, strict=True):
        assert ["host" if place == HOST else place for place in edge.between] == pair
        for key in ("latency_s", "bandwidth_bytes_per_s", "duplex"):
            if key in entry:
                assert getattr(edge, key) == entry[key]
