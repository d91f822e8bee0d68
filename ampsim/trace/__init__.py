"""Records of a run, and what can be read off them."""

from ampsim.trace.bounds import Bounds, Crossing, Crossings, bounds_of
from ampsim.trace.critical_path import KINDS as PATH_KINDS
from ampsim.trace.critical_path import Path, critical_path
from ampsim.trace.holding import Holding, held_path
from ampsim.trace.kinds import (
    COMPUTE_LANE,
    COPY_IN_LANE,
    COPY_OUT_LANE,
    DISPATCH_LANE,
    LANES,
    START,
    Cause,
    Kinds,
    of_admission,
    of_transfer,
    record_of,
)
from ampsim.trace.recorder import (
    MEMORY_CATEGORIES,
    NO_STALENESS,
    LatestStep,
    OnRows,
    Recorder,
    own_frame,
    read_only,
    to_frame,
)
from ampsim.trace.records import CausalRecords
from ampsim.trace.summary import DIRECTIONS, Summary
from ampsim.trace.table import Columns
from ampsim.trace.tape import Later, Tape

__all__ = [
    "COMPUTE_LANE", "COPY_IN_LANE", "COPY_OUT_LANE", "DIRECTIONS", "DISPATCH_LANE", "LANES",
    "MEMORY_CATEGORIES", "NO_STALENESS", "PATH_KINDS", "START", "Bounds", "CausalRecords", "Cause",
    "Columns", "Crossing", "Crossings", "Holding", "Kinds", "Later", "LatestStep", "OnRows", "Path",
    "Recorder", "Summary", "Tape", "bounds_of", "critical_path", "held_path", "of_admission",
    "of_transfer", "own_frame", "read_only", "record_of", "to_frame",
]  # fmt: skip
