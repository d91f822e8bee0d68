"""Links at work: what is sent queues for bandwidth and then flies for its latency."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from ampsim.clock import Clock
from ampsim.hardware import FREE_LINK, Cluster, Link, Way, serialization_s
from ampsim.machine.channel import Channel, Flight
from ampsim.machine.fair_share import FairChannel, FairShares
from ampsim.machine.first_come import Holder, QueuedChannel
from ampsim.machine.loss import Unreliable
from ampsim.trace import Cause, Recorder, of_transfer


class Fabric:
    """The links of a cluster, each made when something is first sent over it.

    Args:
        cluster: which links there are, or which edges and ports, and how they are shared.
        clock: whose time passes.
        recorder: takes a record of each transfer.
        settle: called after each arrival, to do at once what has become possible.
        seed: of what befalls messages; None lets all of them arrive in time.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        recorder: Recorder,
        settle: Callable[[], None],
        *,
        seed: int | None = None,
    ) -> None:
        self._cluster = cluster
        self._seed = seed
        self._settle = settle
        self._clock = clock
        self._recorder = recorder
        self._channels: dict[tuple[int, int], Channel | None] = {}
        self._holders: dict[Hashable, Holder] = {}
        self._fair = FairShares(clock, recorder, settle)

    def channel(self, source: int, target: int) -> Channel | None:
        """The way from one worker, or the host, to another; None where it takes no time."""
        pair = (source, target)
        if pair not in self._channels:
            self._channels[pair] = self._made(pair)
        return self._channels[pair]

    def note_unfinished(self) -> None:
        """Record what is still under way, as when a run has failed; none is after a whole pass."""
        self._fair.note_unfinished()

    def _made(self, pair: tuple[int, int]) -> Channel | None:
        """The way itself, or what stands around one that loses or delays messages."""
        channel = self._flight(pair)
        messages = self._cluster.messages
        if channel is None or self._seed is None or messages is None:
            return channel
        return Unreliable(channel, messages, pair, self._clock, seed=self._seed)

    def _flight(self, pair: tuple[int, int]) -> Flight | None:
        """The way without losses; None where it takes no time, and nothing is lost there either."""
        source, target = pair
        keeps_free = self._loses and source != target
        if not self._cluster.has_shared_bandwidth:
            link = self._cluster.link_between(source, target)
            return None if link.is_free and not keeps_free else self._pairwise(link, pair)
        way = self._cluster.way_between(source, target)
        if way.is_free:
            return self._pairwise(FREE_LINK, pair) if keeps_free else None
        if self._cluster.sharing == "first-come":
            return self._queued(way, pair)
        return FairChannel(self._fair, way, pair)

    @property
    def _loses(self) -> bool:
        """Whether messages are lost, which takes time on a free link, too."""
        messages = None if self._seed is None else self._cluster.messages
        return messages is not None and messages.loss_probability > 0

    def _pairwise(self, link: Link, pair: tuple[int, int]) -> PairwiseChannel:
        return PairwiseChannel(link, pair, self._clock, self._recorder, settle=self._settle)

    def _queued(self, way: Way, pair: tuple[int, int]) -> QueuedChannel:
        holders = [self._holders.setdefault(share.of, Holder()) for share in way.shares]
        channel = QueuedChannel(way, holders, pair, self._clock, recorder=self._recorder)
        channel.settle = self._settle
        return channel


class PairwiseChannel:
    """One direction between two workers, first come first served.

    What has b bytes holds the channel for b / bandwidth and arrives a latency after that, so that
    two never share the bandwidth and the channel never reorders.

    Args:
        link: its latency and bandwidth.
        workers: from which worker to which; the host is -1.
        clock: whose time passes.
        recorder: takes a record of each transfer.
        settle: called after each arrival.

    Attributes:
        latency_s: that of the next message; the link's, unless somebody sets it.
    """

    __slots__ = ("_clock", "_free_at_s", "_link", "_recorder", "_settle", "_workers", "latency_s")

    def __init__(
        self,
        link: Link,
        workers: tuple[int, int],
        clock: Clock,
        recorder: Recorder,
        *,
        settle: Callable[[], None],
    ) -> None:
        self._settle = settle
        self._link = link
        self.latency_s = link.latency_s
        self._workers = workers
        self._clock = clock
        self._recorder = recorder
        self._free_at_s = 0.0

    def send(
        self,
        size_bytes: int,
        nodes: tuple[int, int],
        cause: Cause,
        arrive: Callable[[Cause], None],
    ) -> None:
        """Send so many bytes, as `Channel.send`; all times are known at once."""
        now = self._clock.now
        wait_s = max(0.0, self._free_at_s - now)
        held_s = serialization_s(self._link, size_bytes)
        self._free_at_s = now + wait_s + held_s
        delay_s = wait_s + held_s + self.latency_s
        start_s = now + wait_s
        times = (start_s, now + delay_s, now, start_s + held_s)
        transfer = of_transfer(self._recorder.transfers.count)
        self._recorder.transfers.append((*nodes, size_bytes, *times, *self._workers, cause))
        self._clock.call_later(delay_s, lambda: self._deliver(arrive, transfer))

    def _deliver(self, arrive: Callable[[Cause], None], transfer: Cause) -> None:
        arrive(transfer)
        self._settle()
