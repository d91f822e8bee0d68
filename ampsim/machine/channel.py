"""Channels between workers, and messages that are lost on them.

All links of a run number what they send here, however they share bandwidth, so that a cause names
one transfer alone. Of some the times are known at once, of others only when the last byte has left;
rows of later ones wait for theirs.

A link that loses messages, or delays them, is wrapped when a run is wired; any other stays as it
is. `docs/decisions/0012-time-that-varies.md` has the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np

from ampsim.clock import Clock
from ampsim.hardware import Messages
from ampsim.machine.pace import lognormal
from ampsim.rng import stream
from ampsim.trace import Cause, Recorder, of_transfer

Row: TypeAlias = "tuple[Any, ...]"
"""What `Recorder.transfers` takes."""


class UnderWay(Protocol):
    """A transfer that has been sent and has no row yet."""

    @property
    def row(self) -> Row:
        """The record of this transfer, as if its last byte left now."""
        ...


class Transfers:
    """Numbers transfers in the order of sending, and records their rows in that order.

    Args:
        recorder: takes the rows; nothing else may add any, but before `skip`.
    """

    __slots__ = ("_append", "_count", "_known", "_recorded", "_table", "_under_way")

    def __init__(self, recorder: Recorder) -> None:
        self._table = recorder.transfers
        self._append = recorder.transfers.append
        self._recorded = self._count = recorder.transfers.count
        self._known: dict[int, Row] = {}
        self._under_way: dict[int, UnderWay] = {}

    def add(self, row: Row) -> Cause:
        """Number a transfer that is sent now and whose times are known; return it as a cause."""
        number = self._count
        if self._recorded == number:
            self._append(row)
            self._recorded = number + 1
        else:
            self._known[number] = row
        self._count = number + 1
        return of_transfer(number)

    def number(self, sent: UnderWay) -> int:
        """Number a transfer that is sent now and whose row is yet to come."""
        number = self._count
        self._under_way[number] = sent
        self._count = number + 1
        return number

    def complete(self, number: int, row: Row) -> None:
        """Take the row of a transfer; what was recorded while it was under way stays as it is."""
        if number > self._recorded:
            self._known[number] = row
        elif number == self._recorded:
            self._append(row)
            self._recorded += 1
            known = self._known
            while known and (row_behind := known.pop(self._recorded, None)) is not None:
                self._append(row_behind)
                self._recorded += 1
        del self._under_way[number]

    def skip(self) -> None:
        """Number on behind all rows that there are; somebody else has added some."""
        assert not self._under_way and not self._known, "transfers are under way"
        self._recorded = self._count = self._table.count

    def record(self, expected: Mapping[int, Row], *, overtaken_only: bool) -> None:
        """Record what is under way, and the rows that waited for it.

        A run may have been interrupted anywhere: what is missing among those expected is recorded
        as it is.

        Args:
            expected: rows of what is under way, by number, as it would go on.
            overtaken_only: leave what no later transfer that has its row has overtaken, as where
                a run may go on.
        """
        until = max(self._known, default=-1) + 1 if overtaken_only else self._count
        for number in range(self._table.count, until):
            row = self._known.pop(number, None) or expected.get(number)
            self._append(self._under_way[number].row if row is None else row)
        self._recorded = self._table.count


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
    """A channel whose latency can be another for each message.

    Attributes:
        latency_s: usually, from the last byte sent to the arrival.
    """

    @property
    def latency_s(self) -> float:
        """The latency of a message that is sent without one of its own."""
        ...

    def send(
        self,
        size_bytes: int,
        nodes: tuple[int, int],
        cause: Cause,
        arrive: Callable[[Cause], None],
        latency_s: float | None = None,
    ) -> None:
        """Send so many bytes, as `Channel.send`, with this latency; None for the usual one."""
        ...


Arrive: TypeAlias = Callable[[Cause], None]

_Send: TypeAlias = Callable[[Cause, Arrive, "float | None"], None]
"""``send(cause, arrive, latency_s)`` of one message, as `Flight.send`."""


class Unreliable:
    """A channel that loses messages, each sent again until it arrives, and delays them.

    A transmission is lost with the same probability each time, and takes the link each time. It is
    sent again so long after it should have arrived. Messages are handed on in the order in which
    they were sent: one that arrives before an earlier one waits for it, and what that one leads to
    without cost comes before it.
    """

    __slots__ = (
        "_arrived", "_channel", "_clock", "_due", "_factors", "_messages", "_random", "_sent",
        "_settle",
    )  # fmt: skip

    def __init__(
        self,
        channel: Flight,
        messages: Messages,
        workers: tuple[int, int],
        clock: Clock,
        settle: Callable[[], None],
        *,
        seed: int,
    ) -> None:
        self._channel, self._settle = channel, settle
        self._messages, self._clock = messages, clock
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

    def _transmit(self, send: _Send, cause: Cause, message: tuple[int, Arrive]) -> None:
        factors = self._factors
        latency_s = None if factors is None else self._channel.latency_s * next(factors)
        if self._random.random() < self._messages.loss_probability:
            send(cause, partial(self._lose, send, message), latency_s)
        else:
            send(cause, partial(self._take, message), latency_s)

    def _lose(
        self,
        send: _Send,
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
            self._settle()
