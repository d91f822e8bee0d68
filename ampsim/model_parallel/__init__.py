"""Algorithm 1: workers, controller, placement, schedules."""

from ampsim.model_parallel.controller import Controller
from ampsim.model_parallel.engine import Engine
from ampsim.model_parallel.job import Job
from ampsim.model_parallel.observer import Observer
from ampsim.model_parallel.passes import PassReport, PassTotals
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
from ampsim.model_parallel.run_settings import RunSettings
from ampsim.model_parallel.schedules import (
    SCHEDULES,
    Admission,
    Amp,
    AmpBudget,
    GPipe,
    InterleavedOneFOneB,
    OneFOneB,
    Order,
    PipeDream,
    PipeDream2BW,
    Pipeline,
    Schedule,
    Sequential,
    Updates,
    Weights,
    ZeroBubbleH1,
    needs_chain,
)
from ampsim.model_parallel.stages import stages_of
from ampsim.model_parallel.update import average_replicas

__all__ = [
    "PLACEMENTS",
    "SCHEDULES",
    "Admission",
    "Amp",
    "AmpBudget",
    "Controller",
    "Engine",
    "GPipe",
    "InterleavedOneFOneB",
    "Job",
    "Observer",
    "OneFOneB",
    "Order",
    "PassReport",
    "PassTotals",
    "PipeDream",
    "PipeDream2BW",
    "Pipeline",
    "Placement",
    "Probe",
    "Pump",
    "RunSettings",
    "Schedule",
    "Sequential",
    "Situation",
    "Updates",
    "Weights",
    "ZeroBubbleH1",
    "average_replicas",
    "needs_chain",
    "paper_placement",
    "placement_of",
    "probe",
    "stages_of",
]
