"""Data parallelism: copies of a model, and the solvers between them."""

from ampsim.data_parallel.all_reduce import OF_GROUP
from ampsim.data_parallel.collectives import COLLECTIVES, Collective, Hop
from ampsim.data_parallel.decisions import Decisions, Locks, Meets, Sends, Waits
from ampsim.data_parallel.engine import SolverEngine, cluster_of_rank, with_groups
from ampsim.data_parallel.inside import FIXED, GROUPS, blocks_of, kind_named, name_of
from ampsim.data_parallel.setting import CENTRE
from ampsim.data_parallel.solver import Solver, Step
from ampsim.data_parallel.solver_bases import (
    Collected,
    CollectiveSolver,
    ParameterServerSolver,
    Served,
    Sparsified,
)
from ampsim.data_parallel.solvers import SOLVERS, registry
from ampsim.data_parallel.solvers.registry import *  # noqa: F403  # what is listed
from ampsim.optim import Vector

__all__ = [
    "CENTRE", "COLLECTIVES", "FIXED", "GROUPS", "OF_GROUP", "SOLVERS", "Collected", "Collective",
    "CollectiveSolver", "Decisions", "Hop", "Locks", "Meets", "ParameterServerSolver", "Sends",
    "Served", "Solver", "SolverEngine", "Sparsified", "Step", "Vector", "Waits", "blocks_of",
    "cluster_of_rank", "kind_named", "name_of", "with_groups",
]  # fmt: skip
__all__ += registry.__all__
