"""Programs of operators with `cond` and `while_loop`, run by frames and tags.

`executor.py` is what to read first; `ampsim.flow` has the names with which programs are written.
"""

from ampsim.dataflow.engine import ProgramEngine
from ampsim.dataflow.executor import Executor
from ampsim.dataflow.graph import FlowGraph, Tensor
from ampsim.dataflow.plan import Plan
from ampsim.dataflow.program import Program
from ampsim.dataflow.registry import PROGRAMS
from ampsim.dataflow.schedules import Dataflow, OfProgram, OutOfGraph, Unrolled
from ampsim.dataflow.session import FlowResult, run

__all__ = [
    "PROGRAMS", "Dataflow", "Executor", "FlowGraph", "FlowResult", "OfProgram", "OutOfGraph",
    "Plan", "Program", "ProgramEngine", "Tensor", "Unrolled", "run",
]  # fmt: skip
