"""The placements, one file each: which worker hosts which node (paper, Section 3.1)."""

from ampsim.runtime.placements.balanced import Balanced
from ampsim.runtime.placements.base import Placement, Situation
from ampsim.runtime.placements.communication_aware import CommunicationAware
from ampsim.runtime.placements.file import FromFile
from ampsim.runtime.placements.k_hop import KHop
from ampsim.runtime.placements.paper import Paper, paper_placement
from ampsim.runtime.placements.probe import Probe, probe
from ampsim.runtime.placements.registry import PLACEMENTS, placement_of

__all__ = [
    "PLACEMENTS",
    "Balanced",
    "CommunicationAware",
    "FromFile",
    "KHop",
    "Paper",
    "Placement",
    "Probe",
    "Situation",
    "paper_placement",
    "placement_of",
    "probe",
]
