"""What a cluster says beside its devices and links, in words."""

from __future__ import annotations

from ampsim.hardware.checkpoints import checkpoints_in_words
from ampsim.hardware.cluster import Cluster
from ampsim.hardware.device import Source
from ampsim.hardware.events import variations_of
from ampsim.units import format_seconds


def host_text(cluster: Cluster) -> str:
    """What the host's steps take, in a few words."""
    host = cluster.host
    if host is None or cluster.is_host_free:
        return "acts at once"
    return (
        f"{format_seconds(host.step_overhead_s)} a step and "
        f"{format_seconds(host.message_overhead_s)} a message"
    )


def variations(cluster: Cluster) -> list[tuple[str, str, Source]]:
    """What varies on a cluster while a run goes on: of what, what, and on what authority."""
    found = variations_of(cluster.events, cluster.failures, cluster.messages)
    kept = cluster.checkpoints
    return found if kept is None else [*found, checkpoints_in_words(kept)]
