"""Links at work: what is sent queues for bandwidth and then flies for its latency."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from ampsim.clock import Clock
from ampsim.hardware import Cluster
from ampsim.machine.channel import Channel, Flight, Transfers, Unreliable
from ampsim.machine.fair_share import FairChannel, FairShares
from ampsim.machine.first_come import Holder, QueuedChannel
from ampsim.trace import Cause, Recorder


class Fabric:
    """The links of a cluster, each made when something is first sent over it.

    Args:
        cluster: which links there are, or which edges and ports, and how they are shared.
        settle: called after each arrival, to do at once what has become possible.
        seed: of what befalls messages; None lets all of them arrive in time.
        by_lane: whether what a worker and the host send each other takes the worker's copy lane.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        recorder: Recorder,
        settle: Callable[[], None],
        *,
        seed: int | None = None,
        by_lane: bool = False,
    ) -> None:
        self._cluster, self._by_lane = cluster, by_lane
        self._seed = seed
        self._settle = settle
        self._clock = clock
        self.transfers = Transfers(recorder)
        self._channels: dict[tuple[int, int], Channel | None] = {}
        self._holders: dict[Hashable, Holder] = {}
        self._fair = FairShares(clock, self.transfers, settle)

    def channel(self, source: int, target: int) -> Channel | None:
        """The way from one worker, or the host, to another; None where it takes no time."""
        pair = (source, target)
        if pair not in self._channels:
            self._channels[pair] = self._made(pair)
        return self._channels[pair]

    def send(
        self,
        workers: tuple[int, int],
        size_bytes: int,
        nodes: tuple[int, int],
        cause: Cause,
        arrive: Callable[[Cause], None],
    ) -> None:
        """Send so many bytes from one worker to another; at once, where the way takes no time.

        As of `Channel.send`; without a transfer, `cause` itself is the cause of what follows.
        """
        channel = self.channel(*workers)
        if channel is None:
            arrive(cause)
        else:
            channel.send(size_bytes, nodes, cause, arrive)

    def note_unfinished(self) -> None:
        """Record what is still under way, as when a run has failed; none is after a whole pass."""
        self.transfers.record(self._fair.rows_under_way(), overtaken_only=False)

    def note_overtaken(self) -> None:
        """Record what is under way and was sent before something that has its row already.

        As when a run is cut: what a later one led to is recorded, and names it by its row.
        """
        self.transfers.record(self._fair.rows_under_way(), overtaken_only=True)

    def _made(self, pair: tuple[int, int]) -> Channel | None:
        """The way itself, or what stands around one that loses or delays messages."""
        channel = self._flight(pair)
        messages = self._cluster.messages
        if channel is None or self._seed is None or messages is None:
            return channel
        return Unreliable(channel, messages, pair, self._clock, self._settle, seed=self._seed)

    def _flight(self, pair: tuple[int, int]) -> Flight | None:
        """The way without losses; None where it takes no time, and nothing is lost there either."""
        source, target = pair
        way = self._cluster.way_between(source, target, by_lane=self._by_lane)
        messages = None if self._seed is None else self._cluster.messages
        loses = messages is not None and messages.loss_probability > 0
        if way.is_free and (source == target or not loses):
            return None
        if self._cluster.shares_fairly and not way.is_free:
            return FairChannel(self._fair, way, pair)
        holders = [self._holders.setdefault(share.of, Holder()) for share in way.shares]
        transfers, settle = self.transfers, self._settle
        return QueuedChannel(way, holders, pair, self._clock, transfers=transfers, settle=settle)
