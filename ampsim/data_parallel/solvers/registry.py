"""The list of solvers: one that is here has its name, options and public name everywhere.

It gets every shared test, too.
"""

from typing import Final

from ampsim.data_parallel.solver import Solver
from ampsim.data_parallel.solvers.async_sgd import SSP, AsyncSGD, Hogwild
from ampsim.data_parallel.solvers.elastic import EASGD, AsyncEASGD, EAWild, SyncEASGD
from ampsim.data_parallel.solvers.local_sgd import DiLoCo, LocalSGD
from ampsim.data_parallel.solvers.sync_sgd import SyncSGD

__all__ = [  # noqa: RUF022  # in the order of tables and figures
    "SyncSGD",
    "AsyncSGD",
    "Hogwild",
    "EASGD",
    "AsyncEASGD",
    "EAWild",
    "SyncEASGD",
    "SSP",
    "LocalSGD",
    "DiLoCo",
]

SOLVERS: Final[dict[str, type[Solver]]] = {
    globals()[kind].name: globals()[kind] for kind in __all__
}
