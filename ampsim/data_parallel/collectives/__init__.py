"""Collectives: how all ranks get the sum of what they have, one algorithm a file."""

from typing import Final

from ampsim.data_parallel.collectives.base import Collective, Hop
from ampsim.data_parallel.collectives.halving_doubling import HalvingDoubling
from ampsim.data_parallel.collectives.hierarchical import Hierarchical
from ampsim.data_parallel.collectives.ring import Ring
from ampsim.data_parallel.collectives.star import Star
from ampsim.data_parallel.collectives.tree import Tree

COLLECTIVES: Final[dict[str, Collective]] = {
    one.name: one for one in (Ring(), Tree(), HalvingDoubling(), Hierarchical(), Star())
}

__all__ = ["COLLECTIVES", "Collective", "Hop"]
