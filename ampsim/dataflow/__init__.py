"""Programs of operators with `cond` and `while_loop`, run by frames and tags.

`executor.py` is what to read first; `ampsim.flow` has the names with which programs are written.
"""

from ampsim.dataflow.engine import ProgramEngine
from ampsim.dataflow.registry import PROGRAMS
from ampsim.dataflow.schedules import Dataflow, OfProgram, OutOfGraph, Unrolled

__all__ = ["PROGRAMS", "Dataflow", "OfProgram", "OutOfGraph", "ProgramEngine", "Unrolled"]
