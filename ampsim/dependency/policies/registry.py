"""The shipped policies by name; by being listed each gets every shared test."""

from __future__ import annotations

from typing import Final

from ampsim.dependency.policies.base import Policy
from ampsim.dependency.policies.naive import Naive
from ampsim.dependency.policies.per_device import PerDevice
from ampsim.dependency.policies.pooled import Pooled

POLICIES: Final[dict[str, type[Policy]]] = {
    policy.name: policy for policy in (Naive, Pooled, PerDevice)
}
