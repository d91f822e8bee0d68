"""The schedules, one file each; `registry` lists them."""

from ampsim.model_parallel.schedules import registry
from ampsim.model_parallel.schedules.base import Schedule, needs_chain
from ampsim.model_parallel.schedules.registry import *  # noqa: F403  # what is listed
from ampsim.model_parallel.schedules.registry import SCHEDULES
from ampsim.model_parallel.schedules.values import Admission, Order, Updates, Weights

__all__ = [
    "SCHEDULES",
    "Admission",
    "Order",
    "Schedule",
    "Updates",
    "Weights",
    "needs_chain",
]
__all__ += registry.__all__
