"""The workers of different ranks that take part in one collective, and the ways between them."""

from __future__ import annotations

from collections.abc import Sequence

from ampsim.data_parallel.rank import Rank
from ampsim.data_parallel.setting import Setting
from ampsim.hardware import Way


def columns_of(ranks: Sequence[Rank]) -> list[tuple[list[int], list[int]]]:
    """The workers that host the same nodes, one of each rank, and the vectors that lie there."""
    each = [rank.vectors_on() for rank in ranks]
    first = list(each[0].items())
    columns: list[tuple[list[int], list[int]]] = []
    for position, (_worker, places) in enumerate(first):
        columns.append(([list(one)[position] for one in each], places))
    return columns


def uniform_way(setting: Setting, workers: Sequence[int]) -> Way | None:
    """The way between any two, where all are alike and nobody else's messages are on them.

    None where they are not, and only messages tell how long a collective takes.
    """
    cluster = setting.cluster
    if cluster.has_shared_bandwidth or cluster.messages is not None:
        return None
    if len(workers) == 1:
        return Way(0.0, ())
    chosen, pairs = set(workers), len(workers) * (len(workers) - 1)
    own = [one.link for one in cluster.links if one.source in chosen and one.target in chosen]
    is_uniform = not own or (len(own) == pairs and all(one == own[0] for one in own))
    return cluster.way_between(workers[0], workers[1]) if is_uniform else None
