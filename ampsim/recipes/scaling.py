"""The law by which a run on other devices follows from one that was made.

Where devices have nothing but a FLOP rate, and links nothing but a latency, a step takes FLOP over
FLOP rate and a message its latency. With FLOP rates times c and latencies over c every time is that
over c: every message meets every other as before, and the weights are the same. So only FLOP rate
times latency, the FLOP of a latency, decides who wins; `tests/unit/test_scaling_law.py` holds it to
the bit for powers of two.
"""

from __future__ import annotations

from typing import Final

from ampsim.hardware import Cluster, Device

_FREE: Final = frozenset(
    {"name", "description", "flop_per_s", "memory_bytes", "idle_power_w",
     "busy_power_w", "price_usd_per_h", "sources"}
)  # fmt: skip
"""Fields of a device that the law does not ask about: they cost no time."""


def flop_rate_of(cluster: Cluster) -> float:
    """The one FLOP rate of a cluster that the law holds for.

    Raises:
        ValueError: it does not; the message says what is in its way.
    """
    rates = {device.flop_per_s for device in cluster.devices}
    if len(rates) > 1:
        raise ValueError("its devices have several FLOP rates")
    for device in dict.fromkeys(cluster.devices):
        for key, field in Device.model_fields.items():
            if key not in _FREE and getattr(device, key) != field.default:
                raise ValueError(f"{device.name} names {key}")
    links = (cluster.link, *(route.link for route in cluster.links))
    edges = () if cluster.network is None else cluster.network.edges
    if any(one.bandwidth_bytes_per_s is not None for one in (*links, *edges)):
        raise ValueError("a link has a bandwidth")
    for key in ("ports", "events", "failures", "checkpoints", "messages"):
        if getattr(cluster, key):
            raise ValueError(f"it names {key}")
    return rates.pop()
