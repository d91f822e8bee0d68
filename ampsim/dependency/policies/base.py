"""What a running policy says. Tracking decides when an operation may start, a policy the rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, Protocol, TypeAlias

from ampsim.clock import Clock
from ampsim.dependency.operation import Operation
from ampsim.machine import Instant

LaneKind: TypeAlias = Literal["compute", "copy-in", "copy-out"]


class Dispatcher(Protocol):
    """Brings ready operations to their lanes, for one engine."""

    def ready(self, operation: Operation) -> None:
        """Take an operation that may start; sooner or later put it into its lane."""
        ...

    def ended(self, operation: Operation) -> None:
        """Note that one has ended."""
        ...


class Policy(ABC):
    """Who runs an operation that may start, and where.

    Attributes:
        name: as tables call it.
        is_synchronous: whether a push returns only when its operation has ended.
    """

    name: ClassVar[str]
    is_synchronous: ClassVar[bool] = False

    @abstractmethod
    def threads_of(self, kind: LaneKind, *, is_host: bool) -> int:
        """How many operations of one kind one place runs at a time."""

    def dispatcher(self, clock: Clock, instant: Instant) -> Dispatcher | None:
        """What brings operations to their lanes; None where they go there as soon as ready."""
        return None
