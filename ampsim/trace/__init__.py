"""Records of a run, and what can be read off them."""

from ampsim.trace.bounds import Bounds, Crossing, Crossings, bounds_of
from ampsim.trace.causes import START, Cause, of_admission, of_transfer
from ampsim.trace.critical_path import KINDS as PATH_KINDS
from ampsim.trace.critical_path import critical_path
from ampsim.trace.kinds import (
    COMPUTE_LANE,
    COPY_IN_LANE,
    COPY_OUT_LANE,
    DISPATCH_LANE,
    LANES,
    Kinds,
)
from ampsim.trace.recorder import MEMORY_CATEGORIES, Recorder, Step, read_only, to_frame
from ampsim.trace.records import Records
from ampsim.trace.summary import DIRECTIONS, Summary

__all__ = [
    "COMPUTE_LANE",
    "COPY_IN_LANE",
    "COPY_OUT_LANE",
    "DIRECTIONS",
    "DISPATCH_LANE",
    "LANES",
    "MEMORY_CATEGORIES",
    "PATH_KINDS",
    "START",
    "Bounds",
    "Cause",
    "Crossing",
    "Crossings",
    "Kinds",
    "Recorder",
    "Records",
    "Step",
    "Summary",
    "bounds_of",
    "critical_path",
    "of_admission",
    "of_transfer",
    "read_only",
    "to_frame",
]
