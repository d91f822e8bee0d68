"""Naive: each push returns when its operation has ended, so that nothing runs in parallel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ampsim.dependency.policies.base import LaneKind, Policy


@dataclass(frozen=True)
class Naive(Policy):
    """Run operations one by one in push order, copies too; the host waits for each.

    Source: MXNet's `NaiveEngine`, the one to debug with. Pushes cost what they cost elsewhere, and
    here nothing hides it.
    """

    name: ClassVar[str] = "naive"
    is_synchronous: ClassVar[bool] = True

    def threads_of(self, kind: LaneKind, *, is_host: bool) -> int:
        """One; more would have nothing to do."""
        return 1
