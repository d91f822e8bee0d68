"""The solvers, one file each."""

from ampsim.data_parallel.solvers.async_easgd import AsyncEASGD
from ampsim.data_parallel.solvers.async_sgd import AsyncSGD
from ampsim.data_parallel.solvers.diloco import DiLoCo
from ampsim.data_parallel.solvers.ea_wild import EAWild
from ampsim.data_parallel.solvers.easgd import EASGD
from ampsim.data_parallel.solvers.hogwild import Hogwild
from ampsim.data_parallel.solvers.local_sgd import LocalSGD
from ampsim.data_parallel.solvers.registry import SOLVERS
from ampsim.data_parallel.solvers.ssp import SSP
from ampsim.data_parallel.solvers.sync_easgd import SyncEASGD
from ampsim.data_parallel.solvers.sync_sgd import SyncSGD

__all__ = [
    "EASGD",
    "SOLVERS",
    "SSP",
    "AsyncEASGD",
    "AsyncSGD",
    "DiLoCo",
    "EAWild",
    "Hogwild",
    "LocalSGD",
    "SyncEASGD",
    "SyncSGD",
]
