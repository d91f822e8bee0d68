"""Every placement under its name; what is a path is a file, and a user's own is checked."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from numbers import Integral
from typing import Any, Final

from ampsim.errors import OptionError, UnknownNameError, one_of
from ampsim.hardware import HOST
from ampsim.model_parallel.placements.balanced import Balanced
from ampsim.model_parallel.placements.base import Placement, Situation
from ampsim.model_parallel.placements.communication_aware import CommunicationAware
from ampsim.model_parallel.placements.file import FromFile
from ampsim.model_parallel.placements.k_hop import KHop
from ampsim.model_parallel.placements.paper import Paper
from ampsim.model_parallel.placements.search import Search
from ampsim.text import short, shown
from ampsim.user_code import user_code

PLACEMENTS: Final = {
    kind.name: kind for kind in (Paper, Balanced, KHop, CommunicationAware, Search)
}


def placement_of(placement: str | os.PathLike[str] | Placement) -> Placement:
    """Return the placement that a name, or the path of a file, stands for.

    A path is what has a separator or the suffix ``.toml``. A number in place of the k of ``k-hop``
    is k.

    Raises:
        UnknownNameError: no placement has such a name.
        OptionError: it is neither text nor path nor placement, or one without a name, or k
            is below 1.

    >>> placement_of("balanced"), placement_of("3-hop"), placement_of("mine.toml")
    (Balanced(), KHop(hops=3), FromFile(path='mine.toml'))
    """
    if not isinstance(placement, str | os.PathLike):
        if not hasattr(placement, "place"):
            raise OptionError(
                f"placement must be a name or the path of a file, got {short(placement)}; "
                f"known: {', '.join(PLACEMENTS)}"
            )
        origin: Any = placement.origin
        if not isinstance(origin, Mapping) or not isinstance(origin.get("name"), str):  # pyright: ignore[reportUnknownMemberType]  # of any type
            raise OptionError(
                f"placement {type(placement).__name__}: origin must be a property, a dictionary "
                f"with its name, got {shown(origin)}"
            )
        return placement
    text = os.fspath(placement)
    is_path = "/" in text or os.sep in text or text.endswith(".toml")
    if is_path or not isinstance(placement, str):
        return FromFile(text)
    hops = re.fullmatch(r"(\d{1,9})-hop", text)
    if hops:
        return KHop(int(hops[1]))
    if text not in PLACEMENTS:
        raise UnknownNameError(f"{one_of('placement', text, PLACEMENTS)}, or a .toml file")
    return PLACEMENTS[text]()


def workers_by(placement: Placement, situation: Situation) -> list[int]:
    """The worker of each node, and the controller's -1, as a placement of anybody's gives them.

    Raises:
        OptionError: it failed, or gives anything else.
    """
    told, last = f"placement {type(placement).__name__}", situation.cluster.workers - 1
    nodes = situation.graph.nodes
    with user_code(f"{told} failed", OptionError):
        given: list[Any] = list(placement.place(situation))
    if len(given) != len(nodes):
        raise OptionError(
            f"{told} must give {len(nodes)} numbers, a worker's for each of situation.graph.nodes "
            f"and -1 for the first, the controller, got {len(given)}"
        )
    for node, worker in zip(nodes[1:], given[1:], strict=True):
        is_whole = type(worker) is not bool and isinstance(worker, Integral)
        if not (is_whole and 0 <= int(worker) <= last):
            raise OptionError(
                f"{told} must give {node.name} a worker, 0 to {last}, got {shown(worker)}; take "
                "one of range(situation.cluster.workers)"
            )
    return [HOST, *map(int, given[1:])]
