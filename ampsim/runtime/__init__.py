"""Algorithm 1: workers, controller, placement, schedules."""

from ampsim.runtime.controller import Controller, PassTotals
from ampsim.runtime.engine import Engine, Job, PassReport
from ampsim.runtime.placements import (
    PLACEMENTS,
    Placement,
    Probe,
    Situation,
    paper_placement,
    placement_of,
    probe,
)
from ampsim.runtime.pump import Pump
from ampsim.runtime.schedules import (
    SCHEDULES,
    Amp,
    AmpBudget,
    ChainSchedule,
    GPipe,
    InterleavedOneFOneB,
    OneFOneB,
    PipeDream,
    PipeDream2BW,
    Pipeline,
    Schedule,
    Sequential,
    ZeroBubbleH1,
)
from ampsim.runtime.update import average_replicas

__all__ = [
    "PLACEMENTS",
    "SCHEDULES",
    "Amp",
    "AmpBudget",
    "ChainSchedule",
    "Controller",
    "Engine",
    "GPipe",
    "InterleavedOneFOneB",
    "Job",
    "OneFOneB",
    "PassReport",
    "PassTotals",
    "PipeDream",
    "PipeDream2BW",
    "Pipeline",
    "Placement",
    "Probe",
    "Pump",
    "Schedule",
    "Sequential",
    "Situation",
    "ZeroBubbleH1",
    "average_replicas",
    "paper_placement",
    "placement_of",
    "probe",
]
