"""A message under way at a fair share of bandwidth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ampsim.trace import Cause


class FairMessage:
    """What is sent.

    Attributes:
        row: its record, once its last byte has left.
        is_noted: whether it was recorded while it was under way.
        latency_s: from its last byte sent to its arrival.
    """

    __slots__ = (
        "arrive", "cause", "is_noted", "latency_s", "nodes", "number", "row", "sent_s",
        "size_bytes", "start_s",
    )  # fmt: skip

    def __init__(
        self,
        size_bytes: int,
        nodes: tuple[int, int],
        cause: Cause,
        arrive: Callable[[Cause], None],
    ) -> None:
        self.size_bytes, self.nodes, self.cause, self.arrive = size_bytes, nodes, cause, arrive
        self.row: tuple[Any, ...] | None = None
        self.is_noted = False
        self.number = 0
        self.sent_s = self.start_s = self.latency_s = 0.0

    def row_of(self, workers: tuple[int, int], held_s: float) -> tuple[Any, ...]:
        """Its record, if its last byte leaves then."""
        times = (self.start_s, held_s + self.latency_s, self.sent_s, held_s)
        return (*self.nodes, self.size_bytes, *times, *workers, self.cause)
