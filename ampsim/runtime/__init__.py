"""Algorithm 1: workers, controller, placement, schedules."""

from ampsim.runtime.controller import Controller, PassTotals, Pump
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
from ampsim.runtime.schedules import SCHEDULES, Amp, Pipeline, Schedule, Sequential
from ampsim.runtime.update import average_replicas

__all__ = [
    "PLACEMENTS",
    "SCHEDULES",
    "Amp",
    "Controller",
    "Engine",
    "Job",
    "PassReport",
    "PassTotals",
    "Pipeline",
    "Placement",
    "Probe",
    "Pump",
    "Schedule",
    "Sequential",
    "Situation",
    "average_replicas",
    "paper_placement",
    "placement_of",
    "probe",
]
