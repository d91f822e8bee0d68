"""A link: what a message between two workers waits for."""

from __future__ import annotations

from ampsim.hardware.record import Rate, Seconds, Source
from ampsim.toml_file import Record


class Link(Record):
    """One direction between two workers; the default costs nothing.

    Args:
        latency_s: from the last byte sent to the message's arrival; it occupies nothing.
        bandwidth_bytes_per_s: rate at which bytes enter, one message after the other; None where
            it is infinite.
        source: where the numbers come from; a file must say.
    """

    latency_s: Seconds = 0.0
    bandwidth_bytes_per_s: Rate | None = None
    source: Source | None = None

    @property
    def is_free(self) -> bool:
        """Whether every message arrives at the moment it is sent."""
        return self.latency_s == 0 and self.bandwidth_bytes_per_s is None


FREE_LINK = Link()
"""The link of a message that stays within its worker."""
