"""Links shared by messages, max-min fair; and a message on its way.

A message in flight has a rate, which changes when another one starts or ends on bandwidth that
decides it. Between two changes its bytes enter at that rate; the last byte's entry ends it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from heapq import heappop, heappush
from typing import Final, cast

from ampsim.clock import Clock
from ampsim.hardware import Way
from ampsim.machine.channel import Row, Transfers
from ampsim.machine.max_min import ROUNDING, Capacity, Flow, shares_of, undisturbed
from ampsim.trace import Cause, of_transfer


class FairMessage:
    """A message on a link whose bandwidth is shared.

    Attributes:
        workers: from which worker to which; the host is -1.
        number: its place in the order of sending, among all transfers of the run.
        latency_s: from its last byte sent to its arrival.
    """

    __slots__ = (
        "arrive", "cause", "latency_s", "nodes", "number", "sent_s", "size_bytes", "start_s",
        "workers",
    )  # fmt: skip

    def __init__(
        self,
        size_bytes: int,
        nodes: tuple[int, int],
        cause: Cause,
        arrive: Callable[[Cause], None],
        workers: tuple[int, int],
        *,
        latency_s: float,
    ) -> None:
        self.size_bytes, self.nodes, self.cause, self.arrive = size_bytes, nodes, cause, arrive
        self.workers, self.latency_s = workers, latency_s
        self.number = 0
        self.sent_s = self.start_s = 0.0

    @property
    def row(self) -> Row:
        """Its record, if it leaves as soon as it starts."""
        return self.row_of(self.start_s)

    def row_of(self, held_s: float) -> Row:
        """Its record, if its last byte leaves then."""
        times = (self.start_s, held_s + self.latency_s, self.sent_s, held_s)
        return (*self.nodes, self.size_bytes, *times, *self.workers, self.cause)


_TICK_S: Final = 1e-18  # to which the clock rounds


class FairChannel(Flow):
    """One way between two workers; its messages enter one after the other, so none overtakes.

    Attributes:
        latency_s: the way's.
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
        latency_s: float | None = None,
    ) -> None:
        """Send so many bytes, as `Flight.send`; the transfer has its number from now on."""
        latency_s = self.latency_s if latency_s is None else latency_s
        message = FairMessage(size_bytes, nodes, cause, arrive, self.workers, latency_s=latency_s)
        self._shares.send(self, message)


class FairShares:
    """Shares bandwidth among all messages under way."""

    def __init__(self, clock: Clock, transfers: Transfers, settle: Callable[[], None]) -> None:
        self._clock, self._transfers, self._settle = clock, transfers, settle
        self._capacities: dict[Hashable, Capacity] = {}
        self._channels: list[FairChannel] = []
        self._ends: list[tuple[float, int, FairChannel]] = []
        self._entries = self._divisions = 0
        self._alarm_s = math.inf
        self._take_back: Callable[[], None] | None = None

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
        message.sent_s = message.start_s = now_s
        message.number = self._transfers.number(message)
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
        """The last byte of a channel's first message has entered: record it, and let it arrive."""
        message = channel.queue.popleft()
        self._transfers.complete(message.number, message.row_of(now_s))
        self._clock.call_later(message.latency_s, partial(self._deliver, message))

    def rows_under_way(self) -> dict[int, Row]:
        """The rows of what has not left, by number, with the times that present rates give.

        A channel that was interrupted before its first message began to enter is left out.
        """
        rows: dict[int, Row] = {}
        for channel in self._channels:
            if channel.entry is None:
                continue
            end_s = channel.entry[0]
            for place, message in enumerate(channel.queue):
                if place:
                    message.start_s = end_s
                    end_s += message.size_bytes / channel.limit_bytes_per_s
                rows[message.number] = message.row_of(end_s)
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
        """Assert that just the bytes of the message have entered by then."""
        rate = channel.rate_bytes_per_s
        left = channel.remaining_bytes - rate * (end_s - channel.since_s)
        rounding = ROUNDING * channel.queue[0].size_bytes
        if not -rounding <= left <= rounding:
            rounding += rate * 4 * math.ulp(end_s)
            assert -rounding <= left <= rounding, f"{left} bytes were lost on the way"
