"""Links at work: what is sent queues for a link's bandwidth and then flies for its latency."""

from __future__ import annotations

from collections.abc import Callable

from ampsim.clock import Clock
from ampsim.hardware import Cluster, Link, serialization_s
from ampsim.trace import Cause, Recorder, of_transfer


class Fabric:
    """The links of a cluster, each made when something is first sent over it.

    Args:
        cluster: which links there are.
        clock: whose time passes.
        recorder: takes a record of each transfer.
        settle: called after each arrival, to do at once what has become possible.
    """

    def __init__(
        self, cluster: Cluster, clock: Clock, recorder: Recorder, settle: Callable[[], None]
    ) -> None:
        self._cluster = cluster
        self._settle = settle
        self._clock = clock
        self._recorder = recorder
        self._channels: dict[tuple[int, int], Channel | None] = {}

    def channel(self, source: int, target: int) -> Channel | None:
        """The way from one worker, or the host, to another; None where it takes no time."""
        pair = (source, target)
        if pair not in self._channels:
            link = self._cluster.link_between(source, target)
            self._channels[pair] = None if link.is_free else self._made(link, pair)
        return self._channels[pair]

    def _made(self, link: Link, pair: tuple[int, int]) -> Channel:
        return Channel(link, pair, self._clock, self._recorder, settle=self._settle)


class Channel:
    """One direction between two workers, first come first served.

    What has b bytes holds the channel for b / bandwidth and arrives a latency after that, so that
    two never share the bandwidth and the channel never reorders.

    Args:
        link: its latency and bandwidth.
        workers: from which worker to which; the host is -1.
        clock: whose time passes.
        recorder: takes a record of each transfer.
        settle: called after each arrival.
    """

    __slots__ = ("_clock", "_free_at_s", "_link", "_recorder", "_settle", "_workers")

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
        """Send so many bytes when the link allows; record the transfer.

        Args:
            size_bytes: what is sent.
            nodes: numbers of the nodes that send and receive, for the record.
            cause: what made it possible.
            arrive: called when it arrives, with the transfer as the cause of what follows.
        """
        now = self._clock.now
        wait_s = max(0.0, self._free_at_s - now)
        held_s = serialization_s(self._link, size_bytes)
        self._free_at_s = now + wait_s + held_s
        delay_s = wait_s + held_s + self._link.latency_s
        start_s = now + wait_s
        times = (start_s, now + delay_s, now, start_s + held_s)
        transfer = of_transfer(self._recorder.transfers.count)
        self._recorder.transfers.append((*nodes, size_bytes, *times, *self._workers, cause))
        self._clock.call_later(delay_s, lambda: self._deliver(arrive, transfer))

    def _deliver(self, arrive: Callable[[Cause], None], transfer: Cause) -> None:
        arrive(transfer)
        self._settle()
