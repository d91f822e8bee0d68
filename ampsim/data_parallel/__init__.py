"""Data parallelism: copies of a model, and the solvers between them."""

from ampsim.data_parallel.collected import Collected
from ampsim.data_parallel.collectives import COLLECTIVES, Collective, Hop
from ampsim.data_parallel.drawn_groups import FIXED, GROUPS, blocks_of
from ampsim.data_parallel.engine import SolverEngine
from ampsim.data_parallel.inner_names import name_of
from ampsim.data_parallel.meeting import OF_GROUP
from ampsim.data_parallel.served import Served
from ampsim.data_parallel.setting import CENTRE
from ampsim.data_parallel.solver import (
    Locks,
    Meets,
    Sends,
    Solver,
    Step,
    Vector,
    Waits,
)
from ampsim.data_parallel.solvers import (
    EASGD,
    SOLVERS,
    SSP,
    AsyncEASGD,
    AsyncSGD,
    DiLoCo,
    EAWild,
    Hogwild,
    LocalSGD,
    SyncEASGD,
    SyncSGD,
)
from ampsim.data_parallel.sparsified import Sparsified
from ampsim.data_parallel.sub_cluster import cluster_of_rank

__all__ = [
    "CENTRE",
    "COLLECTIVES",
    "EASGD",
    "FIXED",
    "GROUPS",
    "OF_GROUP",
    "SOLVERS",
    "SSP",
    "AsyncEASGD",
    "AsyncSGD",
    "Collected",
    "Collective",
    "DiLoCo",
    "EAWild",
    "Hogwild",
    "Hop",
    "LocalSGD",
    "Locks",
    "Meets",
    "Sends",
    "Served",
    "Solver",
    "SolverEngine",
    "Sparsified",
    "Step",
    "SyncEASGD",
    "SyncSGD",
    "Vector",
    "Waits",
    "blocks_of",
    "cluster_of_rank",
    "name_of",
]
