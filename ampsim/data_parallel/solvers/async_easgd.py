"""Asynchronous EASGD: first come, first served; an exchange goes on beside the gradient.

Source: Y. You, A. Buluç and J. Demmel, "Scaling Deep Learning on GPU and Knights Landing clusters",
SC'17: a rank sends its weights, the master returns the centre's, and the rank computes its gradient
while it waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ampsim.data_parallel.decisions import Locks
from ampsim.data_parallel.solvers.elastic import Elastic


@dataclass(frozen=True)
class AsyncEASGD(Elastic):
    """A merge excludes other merges at the same server; the answer comes after it."""

    name: ClassVar[str] = "async-easgd"
    locks: ClassVar[Locks] = "update"
    overlaps: ClassVar[bool] = True
