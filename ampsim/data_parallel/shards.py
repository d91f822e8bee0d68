"""Which server has which part of the centre."""

from __future__ import annotations

from ampsim.data_parallel.setting import Setting
from ampsim.errors import OptionError


def shards_of(setting: Setting, servers: int) -> list[list[int]]:
    """The vectors of each server: the largest first, to who has the fewest parameters.

    Raises:
        OptionError: there are more servers than nodes that learn.
    """
    count = len(setting.nodes)
    if servers > count:
        raise OptionError(
            f"{setting.solver.name}: each server needs a node that learns, got servers={servers} "
            f"and {count} node{'s' * (count != 1)}; take fewer servers"
        )
    sizes = [setting.bytes_of(place) for place in range(count)]
    shards: list[list[int]] = [[] for _ in range(servers)]
    for place in sorted(range(count), key=lambda one: (-sizes[one], one)):
        least = min(range(servers), key=lambda one: (sum(sizes[p] for p in shards[one]), one))
        shards[least].append(place)
    return [sorted(shard) for shard in shards]
