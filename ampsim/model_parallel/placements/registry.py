"""Every placement under its name; what is a path is a file."""

from __future__ import annotations

import os
import re
from typing import Final

from ampsim.errors import OptionError, UnknownNameError, one_of
from ampsim.model_parallel.placements.balanced import Balanced
from ampsim.model_parallel.placements.base import Placement
from ampsim.model_parallel.placements.communication_aware import CommunicationAware
from ampsim.model_parallel.placements.file import FromFile
from ampsim.model_parallel.placements.k_hop import KHop
from ampsim.model_parallel.placements.paper import Paper
from ampsim.model_parallel.placements.search import Search
from ampsim.text import short

PLACEMENTS: Final = {
    kind.name: kind for kind in (Paper, Balanced, KHop, CommunicationAware, Search)
}


def placement_of(placement: str | os.PathLike[str] | Placement) -> Placement:
    """Return the placement that a name, or the path of a file, stands for.

    A path is what has a separator or the suffix ``.toml``. A number in place of the k of ``k-hop``
    is k.

    Raises:
        UnknownNameError: no placement has such a name.
        OptionError: it is neither text nor path nor placement, or k is below 1.

    >>> placement_of("balanced"), placement_of("3-hop"), placement_of("mine.toml")
    (Balanced(), KHop(hops=3), FromFile(path='mine.toml'))
    """
    if not isinstance(placement, str | os.PathLike):
        if not hasattr(placement, "place"):
            raise OptionError(
                f"placement must be a name or the path of a file, got {short(placement)}; "
                f"known: {', '.join(PLACEMENTS)}"
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
