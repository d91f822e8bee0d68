"""The schedules, one file each."""

from ampsim.model_parallel.schedules.amp import Amp
from ampsim.model_parallel.schedules.amp_budget import AmpBudget
from ampsim.model_parallel.schedules.base import Schedule, needs_chain
from ampsim.model_parallel.schedules.gpipe import GPipe
from ampsim.model_parallel.schedules.interleaved import InterleavedOneFOneB
from ampsim.model_parallel.schedules.one_forward_one_backward import OneFOneB
from ampsim.model_parallel.schedules.pipedream import PipeDream
from ampsim.model_parallel.schedules.pipedream_2bw import PipeDream2BW
from ampsim.model_parallel.schedules.pipeline import Pipeline
from ampsim.model_parallel.schedules.registry import SCHEDULES
from ampsim.model_parallel.schedules.sequential import Sequential
from ampsim.model_parallel.schedules.values import Admission, Order, Updates, Weights
from ampsim.model_parallel.schedules.zero_bubble import ZeroBubbleH1

__all__ = [
    "SCHEDULES",
    "Admission",
    "Amp",
    "AmpBudget",
    "GPipe",
    "InterleavedOneFOneB",
    "OneFOneB",
    "Order",
    "PipeDream",
    "PipeDream2BW",
    "Pipeline",
    "Schedule",
    "Sequential",
    "Updates",
    "Weights",
    "ZeroBubbleH1",
    "needs_chain",
]
