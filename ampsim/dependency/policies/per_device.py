"""PerDevice: threads of its own for each place, and for each direction of its copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Le

from ampsim.arguments import check_fields
from ampsim.dependency.policies.base import LaneKind, Policy

THREADS_MAX = 10_000


@dataclass(frozen=True)
class PerDevice(Policy):
    """Run each operation at its own place, the most urgent first, beside the place's copies.

    Args:
        threads: operations that one place computes at a time. Each has the whole rate of the
            place's device, so that more than one is right where the file describes a core.
        copy_threads: copies that a worker sends at a time, and that it takes in at a time. Those
            of one link share its bandwidth; their latencies overlap.

    Source: MXNet's `ThreadedEnginePerDevice`.

    Raises:
        OptionError: a number is no whole number >= 1.
    """

    threads: Annotated[int, Ge(1), Le(THREADS_MAX)] = 1
    copy_threads: Annotated[int, Ge(1), Le(THREADS_MAX)] = 1
    name: ClassVar[str] = "per-device"

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_fields(self)

    def threads_of(self, kind: LaneKind, *, is_host: bool) -> int:
        """As many as was said."""
        return self.threads if kind == "compute" else self.copy_threads
