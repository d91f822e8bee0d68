"""Algorithm 1: workers, controller, placement, schedules."""

from ampsim.model_parallel.controller import Controller, PassTotals
from ampsim.model_parallel.engine import Engine, Job, PassReport
from ampsim.model_parallel.placements import (
    PLACEMENTS,
    Placement,
    Probe,
    Situation,
    paper_placement,
    placement_of,
    probe,
)
from ampsim.model_parallel.pump import Pump
from ampsim.model_parallel.schedules import (
    SCHEDULES,
    Amp,
    AmpBudget,
    GPipe,
    InterleavedOneFOneB,
    OneFOneB,
    PipeDream,
    PipeDream2BW,
    Pipeline,
    Schedule,
    Sequential,
    ZeroBubbleH1,
    needs_chain,
)
from ampsim.model_parallel.update import average_replicas

__all__ = [
    "PLACEMENTS",
    "SCHEDULES",
    "Amp",
    "AmpBudget",
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
    "needs_chain",
    "paper_placement",
    "placement_of",
    "probe",
]
