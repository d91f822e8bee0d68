"""Shared bandwidth in max-min fair shares: messages under way at the same time all go on.

A message in flight has a rate, which changes when another one starts or ends on bandwidth that
decides it. Between two changes its bytes enter at that rate; the last byte's entry ends it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final, cast

from ampsim.clock import Clock
from ampsim.hardware import Way
from ampsim.machine.fair_message import FairMessage
from ampsim.machine.max_min import ROUNDING, Capacity, Flow, shares_of, undisturbed
from ampsim.trace import Cause, Recorder, of_transfer

_TICK_S: Final = 1e-18  # to which the clock rounds


class FairChannel(Flow):
    """One way between two workers; its messages enter one after the other, so none overtakes.

    Args:
        shares: the flows of all ways.
        way: what it crosses.
        workers: from which worker to which; the host is -1.

    Attributes:
        latency_s: that of the next message; the way's, unless somebody sets it.
        queue: what was sent and has not left, the first of it entering.
        remaining_bytes: what of it had not entered at `since_s`.
        entry: when it ends at its present rate, for the heap of ends.
    """

    __slots__ = ("_shares", "entry", "latency_s", "queue", "remaining_bytes", "since_s", "workers")

    def __init__(self, shares: FairShares, way: Way, workers: tuple[int, int]) -> None:
        super().__init__(shares.capacity(share.of, share.bytes_per_s) for share in way.shares)
        self._shares = shares
        self.latency_s = way.latency_s
        self.workers = workers
        self.queue: deque[FairMessage] = deque()
        self.remaining_bytes = self.since_s = 0.0
        self.entry: tuple[float, int, FairChannel] | None = None
        shares.add(self)

    def send(
        self,
        size_bytes: int,
        nodes: tuple[int, int],
        cause: Cause,
        arrive: Callable[[Cause], None],
    ) -> None:
        """Send so many bytes, as `Channel.send`; the transfer has its number from now on."""
        self._shares.send(self, FairMessage(size_bytes, nodes, cause, arrive))


class FairShares:
    """All messages under way, and the bandwidth that each has.

    Args:
        clock: whose time passes.
        recorder: takes a record of each transfer, in the order of sending.
        settle: called after each arrival.
    """

    def __init__(self, clock: Clock, recorder: Recorder, settle: Callable[[], None]) -> None:
        self._clock, self._recorder, self._settle = clock, recorder, settle
        self._capacities: dict[Hashable, Capacity] = {}
        self._channels: list[FairChannel] = []
        self._ends: list[tuple[float, int, FairChannel]] = []
        self._entries = self._divisions = 0
        self._alarm_s = math.inf
        self._take_back: Callable[[], None] | None = None
        self._sent: deque[FairMessage] = deque()
        self._count = 0

    def add(self, channel: FairChannel) -> None:
        """Take in another way."""
        self._channels.append(channel)

    def capacity(self, of: Hashable, bytes_per_s: float) -> Capacity:
        """The bandwidth of an edge, link or port, one for all ways that share it."""
        if of not in self._capacities:
            self._capacities[of] = Capacity(bytes_per_s)
        return self._capacities[of]

    def send(self, channel: FairChannel, message: FairMessage) -> None:
        """Let a message follow what its channel has to send."""
        now_s = self._clock.now
        message.sent_s = now_s
        message.latency_s = channel.latency_s
        message.number = self._count
        self._count += 1
        self._sent.append(message)
        channel.queue.append(message)
        if len(channel.queue) > 1:
            return
        if self._begin(channel, now_s):
            self._activate(channel, now_s)
            if self._ends[0][0] < self._alarm_s:
                self._set_alarm(now_s)

    def _begin(self, channel: FairChannel, now_s: float) -> bool:
        """Let the first message of a channel enter; tell whether that takes time.

        Those that take none, for want of bytes or of a limit, leave at once.
        """
        queue = channel.queue
        while queue:
            message = queue[0]
            message.start_s = now_s
            if message.size_bytes and channel.capacities:
                channel.remaining_bytes, channel.since_s = float(message.size_bytes), now_s
                return True
            self._leave(channel, now_s)
        return False

    def _leave(self, channel: FairChannel, now_s: float) -> None:
        """The last byte of a channel's first message has entered: record it, and let it arrive.

        Rows are added in the order of sending, each when no earlier one is missing, so that a
        transfer's number is that of its row.
        """
        message, sent = channel.queue.popleft(), self._sent
        row = message.row_of(channel.workers, now_s)
        if message.is_noted:
            pass
        elif message is sent[0]:
            sent.popleft()
            self._recorder.transfers.append(row)
            while sent and sent[0].row is not None:
                self._recorder.transfers.append(sent.popleft().row)  # pyright: ignore[reportArgumentType]  # asked just now
        else:
            message.row = row
        self._clock.call_later(message.latency_s, partial(self._deliver, message))

    def note_unfinished(self) -> None:
        """Record what has not left yet, with the times that its channel's rate would give it."""
        rows = self._rows_under_way()
        for message in self._sent:
            self._recorder.transfers.append(rows.get(message.number, message.row))  # pyright: ignore[reportArgumentType]  # all have one
        self._sent.clear()

    def note_overtaken(self) -> None:
        """Record likewise what later messages have overtaken that have left, and these.

        For a run that is cut while messages are under way: what a later one led to is recorded, and
        names it by its row. What was recorded as under way is not recorded again when it leaves.
        """
        sent, rows = self._sent, self._rows_under_way()
        while any(message.row is not None for message in sent):
            message = sent.popleft()
            if message.row is None:
                message.row, message.is_noted = rows[message.number], True
            self._recorder.transfers.append(message.row)

    def _rows_under_way(self) -> dict[int, tuple[Any, ...]]:
        """The rows of what has not left, by number, as things are."""
        rows: dict[int, tuple[Any, ...]] = {}
        for channel in self._channels:
            end_s = 0.0
            for message in channel.queue:
                if message is channel.queue[0]:
                    assert channel.entry is not None, "the first of a queue is entering"
                    end_s = channel.entry[0]
                else:
                    message.start_s = end_s
                    end_s += message.size_bytes / channel.limit_bytes_per_s
                rows[message.number] = message.row_of(channel.workers, end_s)
        return rows

    def _deliver(self, message: FairMessage) -> None:
        message.arrive(of_transfer(message.number))
        self._settle()

    def _activate(self, channel: FairChannel, now_s: float) -> None:
        """Give a channel that starts to send its share."""
        is_undisturbed = undisturbed(channel)
        for capacity in channel.capacities:
            capacity.flows[channel] = None
        narrowest = channel.narrowest
        if is_undisturbed and narrowest is not None:
            narrowest.bound += 1
            channel.bottleneck = narrowest
            channel.rate_bytes_per_s = channel.limit_bytes_per_s
            self._note_end(channel)
        else:
            self._share_anew(channel.capacities, now_s)

    def _share_anew(self, changed: Iterable[Capacity], now_s: float) -> None:
        """Divide capacities, and those that hang together with them, among their flows."""
        self._divisions += 1
        for flow, rate, bottleneck in shares_of(changed, self._divisions):
            channel = cast("FairChannel", flow)
            former = channel.bottleneck
            if former is not bottleneck:
                if former is not None:
                    former.bound -= 1
                bottleneck.bound += 1
                channel.bottleneck = bottleneck
            if rate != channel.rate_bytes_per_s:  # else nothing is rounded
                if now_s != channel.since_s:
                    entered = channel.rate_bytes_per_s * (now_s - channel.since_s)
                    channel.remaining_bytes -= entered
                    channel.since_s = now_s
                channel.rate_bytes_per_s = rate
                self._note_end(channel)

    def _note_end(self, channel: FairChannel) -> None:
        """Put the time at which a channel's first message ends, as things are, into the heap."""
        self._entries += 1
        end_s = channel.since_s + channel.remaining_bytes / channel.rate_bytes_per_s
        channel.entry = entry = (end_s, self._entries, channel)
        heappush(self._ends, entry)

    def _set_alarm(self, now_s: float) -> None:
        """Be called no later than at the next end."""
        ends = self._ends
        while ends and ends[0][2].entry is not ends[0]:
            heappop(ends)
        if not ends:
            assert self._take_back is None, "time would pass for nothing"
            return
        end_s = ends[0][0]
        if self._take_back is not None:
            if self._alarm_s <= end_s:
                return
            self._take_back()
        self._alarm_s = end_s
        self._take_back = self._clock.set_alarm(max(0.0, end_s - now_s), self._end_those_due)

    def _end_those_due(self) -> None:
        """End every message whose last byte enters now; what waits behind it goes on.

        Now is give or take what the clock rounds.
        """
        self._alarm_s, self._take_back = math.inf, None
        now_s, ends = self._clock.now, self._ends
        last_s = now_s + _TICK_S + 4 * math.ulp(now_s)
        changed: list[Capacity] = []
        while ends and ends[0][0] <= last_s:
            entry = heappop(ends)
            channel = entry[2]
            if channel.entry is entry:
                self._check_bytes(channel, entry[0])
                self._leave(channel, now_s)
                if channel.queue and self._begin(channel, now_s):
                    self._note_end(channel)  # at the same rate: the shares are what they were
                else:
                    self._deactivate(channel, changed)
        if changed:
            self._share_anew(changed, now_s)
        self._set_alarm(now_s)

    def _deactivate(self, channel: FairChannel, changed: list[Capacity]) -> None:
        """Take a channel's share from it; note what others may have more of."""
        assert channel.bottleneck is not None
        channel.bottleneck.bound -= 1
        channel.bottleneck = channel.entry = None
        channel.rate_bytes_per_s = 0.0
        for capacity in channel.capacities:
            del capacity.flows[channel]
            if capacity.bound:
                changed.append(capacity)

    def _check_bytes(self, channel: FairChannel, end_s: float) -> None:
        """What was sent has entered by then, no more and no less."""
        rate = channel.rate_bytes_per_s
        left = channel.remaining_bytes - rate * (end_s - channel.since_s)
        rounding = ROUNDING * channel.queue[0].size_bytes
        if not -rounding <= left <= rounding:
            rounding += rate * 4 * math.ulp(end_s)
            assert -rounding <= left <= rounding, f"{left} bytes were lost on the way"
