"""Algorithm 1: workers, controller, placement, schedules."""

from ampsim.model_parallel.engine import Engine, Observer
from ampsim.model_parallel.job import Job, PassReport, PassTotals, Pump, RunSettings
from ampsim.model_parallel.order import LearnerPass, PassOrder
from ampsim.model_parallel.placements import (
    PLACEMENTS,
    Placement,
    Probe,
    Search,
    Settled,
    Situation,
    paper_placement,
    placement_of,
    probe,
    workers_by,
)
from ampsim.model_parallel.price import free_products
from ampsim.model_parallel.repeat import Repeater, repeater_of
from ampsim.model_parallel.schedules import (
    SCHEDULES,
    Admission,
    Order,
    Schedule,
    Updates,
    Weights,
    needs_chain,
    registry,
)
from ampsim.model_parallel.schedules.registry import *  # noqa: F403  # what is listed
from ampsim.model_parallel.stages import stages_of
from ampsim.model_parallel.stash import Prediction
from ampsim.model_parallel.update import Updater, average_replicas

__all__ = [
    "PLACEMENTS",
    "SCHEDULES",
    "Admission",
    "Engine",
    "Job",
    "LearnerPass",
    "Observer",
    "Order",
    "PassOrder",
    "PassReport",
    "PassTotals",
    "Placement",
    "Prediction",
    "Probe",
    "Pump",
    "Repeater",
    "RunSettings",
    "Schedule",
    "Search",
    "Settled",
    "Situation",
    "Updater",
    "Updates",
    "Weights",
    "average_replicas",
    "free_products",
    "needs_chain",
    "paper_placement",
    "placement_of",
    "probe",
    "repeater_of",
    "stages_of",
    "workers_by",
]
__all__ += registry.__all__
