"""What messages between workers of a cluster cross, by names that people know it by."""

from __future__ import annotations

from dataclasses import dataclass

from ampsim.hardware import HOST, Cluster, Share
from ampsim.trace import Crossing


@dataclass(frozen=True, slots=True)
class ClusterCrossings:
    """Edges, links and ports of a cluster whose messages share bandwidth.

    Args:
        cluster: which.
    """

    cluster: Cluster

    def __call__(self, source: int, target: int) -> list[Crossing]:
        """What a message from one worker, or the host, to another crosses.

        In fair shares it takes of each what its bytes need; first come, first served, it holds
        all of them as long as the narrowest takes.
        """
        holds = self.cluster.sharing == "first-come"
        shares = self.cluster.way_between(source, target).shares
        return [Crossing(name_of(one), None if holds else one.bytes_per_s) for one in shares]


def crossings_of(cluster: Cluster) -> ClusterCrossings | None:
    """What messages cross; None where each pair of workers has a link of its own."""
    return ClusterCrossings(cluster) if cluster.has_shared_bandwidth else None


def name_of(share: Share) -> str:
    """Whose bandwidth it is, in words.

    >>> name_of(Share((0, "hub", "edge"), 1e9)), name_of(Share((3, "egress"), 1e9))
    ('edge 0 to hub', 'egress port of worker 3')
    >>> name_of(Share((-1, "ingress"), 1e9))
    'ingress port of host'
    """
    *places, kind = share.of
    if len(places) > 1:
        return f"{kind} {_place(places[0])} to {_place(places[1])}"
    place = _place(places[0])
    return f"{kind} port of {place if place == 'host' else f'worker {place}'}"


def _place(place: int | str) -> str:
    return "host" if place == HOST else str(place)
