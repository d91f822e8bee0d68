"""Synchronous EASGD: all ranks exchange with the centre at once, in a collective.

Source: Y. You, A. Buluç and J. Demmel, "Scaling Deep Learning on GPU and Knights Landing clusters",
SC'17: w <- w + alpha sum of (w_j - w), and each rank steps as equation (2) says. Every rank has the
centre, so that the sum of all ranks' weights is all that is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ampsim.data_parallel.solver import Collected
from ampsim.data_parallel.solvers.elastic import Averaging


@dataclass(frozen=True)
class SyncEASGD(Averaging, Collected):
    """Deterministic, whatever the devices' speeds."""

    name: ClassVar[str] = "sync-easgd"
