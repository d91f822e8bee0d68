"""Running policies: who runs an operation that may start, and where."""

from ampsim.dependency.policies.base import Dispatcher, Policy
from ampsim.dependency.policies.naive import Naive
from ampsim.dependency.policies.per_device import PerDevice
from ampsim.dependency.policies.pooled import Pooled
from ampsim.dependency.policies.registry import POLICIES

__all__ = [
    "POLICIES", "Dispatcher", "Naive", "PerDevice", "Policy", "Pooled",
]  # fmt: skip
