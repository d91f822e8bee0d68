"""The schedules, one file each."""

from ampsim.runtime.schedules.amp import Amp
from ampsim.runtime.schedules.base import Schedule
from ampsim.runtime.schedules.pipeline import Pipeline
from ampsim.runtime.schedules.registry import SCHEDULES
from ampsim.runtime.schedules.sequential import Sequential

__all__ = ["SCHEDULES", "Amp", "Pipeline", "Schedule", "Sequential"]
