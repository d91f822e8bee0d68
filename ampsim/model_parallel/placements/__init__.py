"""The placements, one file each: which worker hosts which node (paper, Section 3.1)."""

from ampsim.model_parallel.placements.balanced import Balanced
from ampsim.model_parallel.placements.base import (
    Placement,
    Probe,
    Settled,
    Situation,
    Trial,
    probe,
)
from ampsim.model_parallel.placements.communication_aware import CommunicationAware
from ampsim.model_parallel.placements.k_hop import KHop
from ampsim.model_parallel.placements.paper import Paper, paper_placement
from ampsim.model_parallel.placements.registry import PLACEMENTS, placement_of, workers_by
from ampsim.model_parallel.placements.search import Search

__all__ = [
    "PLACEMENTS",
    "Balanced",
    "CommunicationAware",
    "KHop",
    "Paper",
    "Placement",
    "Probe",
    "Search",
    "Settled",
    "Situation",
    "Trial",
    "paper_placement",
    "placement_of",
    "probe",
    "workers_by",
]
