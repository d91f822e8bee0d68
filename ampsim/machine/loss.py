"""Messages that are lost and sent again, and whose time on the way varies; never out of order.

A link that loses messages, or delays them, is wrapped when a run is wired; any other stays as it
is. `docs/decisions/0012-time-that-varies.md` has the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import numpy as np

from ampsim.clock import Clock
from ampsim.hardware import Messages
from ampsim.machine.channel import Flight
from ampsim.machine.pace import lognormal
from ampsim.rng import stream
from ampsim.trace import Cause

Arrive: TypeAlias = Callable[[Cause], None]


class Unreliable:
    """A channel that loses messages, each sent again until it arrives, and delays them.

    A transmission is lost with the same probability each time, and takes the link each time. It is
    sent again so long after it should have arrived. Messages are handed on in the order in which
    they were sent: one that arrives before an earlier one waits for it.

    Args:
        channel: the link itself, of one direction between two places.
        messages: what befalls them.
        workers: from which worker to which; the host is -1.
        clock: whose time passes.
        seed: the run's.
    """

    __slots__ = (
        "_arrived", "_channel", "_clock", "_due", "_factors", "_latency_s", "_messages", "_random",
        "_sent",
    )  # fmt: skip

    def __init__(
        self,
        channel: Flight,
        messages: Messages,
        workers: tuple[int, int],
        clock: Clock,
        *,
        seed: int,
    ) -> None:
        self._channel = channel
        self._messages = messages
        self._clock = clock
        self._latency_s = channel.latency_s
        self._random: np.random.Generator = stream(seed, "losses", *workers)
        delays = stream(seed, "delays", *workers)
        has_delays = messages.delay_cv and channel.latency_s
        self._factors: Iterator[float] | None = (
            lognormal(delays, messages.delay_cv) if has_delays else None
        )
        self._sent = 0
        self._due = 0
        self._arrived: dict[int, Arrive] = {}

    def send(self, size_bytes: int, nodes: tuple[int, int], cause: Cause, arrive: Arrive) -> None:
        """Send so many bytes until they arrive; each transmission has its own record.

        The cause of what follows is the transmission that arrived last of those waited for.
        """
        number = self._sent
        self._sent += 1
        self._transmit(partial(self._channel.send, size_bytes, nodes), cause, (number, arrive))

    def _transmit(
        self, send: Callable[[Cause, Arrive], None], cause: Cause, message: tuple[int, Arrive]
    ) -> None:
        """Send a message once."""
        if self._factors is not None:
            self._channel.latency_s = self._latency_s * next(self._factors)
        if self._random.random() < self._messages.loss_probability:
            send(cause, partial(self._lose, send, message))
        else:
            send(cause, partial(self._take, message))

    def _lose(
        self,
        send: Callable[[Cause, Arrive], None],
        message: tuple[int, Arrive],
        transfer: Cause,
    ) -> None:
        """Send a message again after a while that should have arrived now."""
        retry_after_s = self._messages.retry_after_s
        assert retry_after_s is not None, "a message is lost where none can be"
        again = partial(self._transmit, send, transfer, message)
        self._clock.call_later(retry_after_s, again)

    def _take(self, message: tuple[int, Arrive], transfer: Cause) -> None:
        """Hand on a message that has arrived, and those that waited for it."""
        number, arrive = message
        self._arrived[number] = arrive
        while (due := self._arrived.pop(self._due, None)) is not None:
            self._due += 1
            due(transfer)
