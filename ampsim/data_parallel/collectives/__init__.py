"""Collectives: how all ranks get the sum of what they have, one algorithm a file."""

from ampsim.data_parallel.collectives.all_gather import ALL_GATHER
from ampsim.data_parallel.collectives.base import Collective, Hop
from ampsim.data_parallel.collectives.broadcast import BROADCAST
from ampsim.data_parallel.collectives.registry import COLLECTIVES

__all__ = ["ALL_GATHER", "BROADCAST", "COLLECTIVES", "Collective", "Hop"]
