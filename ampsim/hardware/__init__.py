"""Devices, links and clusters, and what they cost, read from files that users edit."""

from ampsim.hardware.cluster import Cluster, MemoryRemedy, host_text, variations
from ampsim.hardware.cost import Charge, charges, light_is_free, occupancy_s
from ampsim.hardware.device import Device
from ampsim.hardware.events import Checkpoints, Event, Failures, Messages
from ampsim.hardware.load import load_cluster, load_device
from ampsim.hardware.plausible import implausible
from ampsim.hardware.record import Source
from ampsim.hardware.topology import (
    FREE_LINK,
    HOST,
    Edge,
    HostPorts,
    Level,
    Link,
    Network,
    Ports,
    Route,
    Share,
    Topology,
    Way,
    place_name,
)

__all__ = [
    "FREE_LINK", "HOST", "Charge", "Checkpoints", "Cluster", "Device", "Edge", "Event", "Failures",
    "HostPorts", "Level", "Link", "MemoryRemedy", "Messages", "Network", "Ports", "Route", "Share",
    "Source", "Topology", "Way", "charges", "host_text", "implausible", "light_is_free",
    "load_cluster", "load_device", "occupancy_s", "place_name", "variations",
]  # fmt: skip
