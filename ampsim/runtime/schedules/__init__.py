"""The schedules, one file each."""

from ampsim.runtime.schedules.amp import Amp
from ampsim.runtime.schedules.amp_budget import AmpBudget
from ampsim.runtime.schedules.base import ChainSchedule, Schedule
from ampsim.runtime.schedules.gpipe import GPipe
from ampsim.runtime.schedules.interleaved import InterleavedOneFOneB
from ampsim.runtime.schedules.one_forward_one_backward import OneFOneB
from ampsim.runtime.schedules.pipedream import PipeDream
from ampsim.runtime.schedules.pipedream_2bw import PipeDream2BW
from ampsim.runtime.schedules.pipeline import Pipeline
from ampsim.runtime.schedules.registry import SCHEDULES
from ampsim.runtime.schedules.sequential import Sequential
from ampsim.runtime.schedules.zero_bubble import ZeroBubbleH1

__all__ = [
    "SCHEDULES",
    "Amp",
    "AmpBudget",
    "ChainSchedule",
    "GPipe",
    "InterleavedOneFOneB",
    "OneFOneB",
    "PipeDream",
    "PipeDream2BW",
    "Pipeline",
    "Schedule",
    "Sequential",
    "ZeroBubbleH1",
]
