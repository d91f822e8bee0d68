"""Hogwild!: asynchronous SGD in which nothing is locked.

Source: B. Recht, C. Ré, S. Wright and F. Niu, "Hogwild!: A Lock-Free Approach to Parallelizing
Stochastic Gradient Descent", NIPS 2011. Here the ranks' memory is a server, and the atom is a node:
the server merges a gradient node by node, in turn with the gradients of other ranks, so that what a
rank reads may have one node's weights before another rank's update and another node's after it.
Each addition is whole, as Hogwild! itself asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ampsim.data_parallel.decisions import Locks, Sends
from ampsim.data_parallel.solver import ParameterServerSolver, Sparsified


@dataclass(frozen=True)
class Hogwild(Sparsified, ParameterServerSolver):
    """Merges of different ranks interleave."""

    name: ClassVar[str] = "hogwild"
    sends: ClassVar[Sends] = "gradient"
    locks: ClassVar[Locks] = "nothing"
