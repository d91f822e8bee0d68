"""What carries messages from one worker to another, however it does that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ampsim.trace import Cause


class Channel(Protocol):
    """The way of messages from one worker to another, which they take in the order of sending."""

    def send(
        self,
        size_bytes: int,
        nodes: tuple[int, int],
        cause: Cause,
        arrive: Callable[[Cause], None],
    ) -> None:
        """Send so many bytes when the way allows; record the transfer.

        Args:
            size_bytes: what is sent.
            nodes: numbers of the nodes that send and receive, for the record.
            cause: what made it possible.
            arrive: called when it arrives, with the transfer as the cause of what follows.
        """
        ...


class Flight(Channel, Protocol):
    """One whose latency can be another for each message.

    Attributes:
        latency_s: from the last byte sent to the arrival, of the next message that is sent.
    """

    latency_s: float
