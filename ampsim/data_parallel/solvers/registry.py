"""Every solver under its name; by being listed here it gets every shared test."""

from typing import Final

from ampsim.data_parallel.solver import Solver
from ampsim.data_parallel.solvers.async_easgd import AsyncEASGD
from ampsim.data_parallel.solvers.async_sgd import AsyncSGD
from ampsim.data_parallel.solvers.diloco import DiLoCo
from ampsim.data_parallel.solvers.ea_wild import EAWild
from ampsim.data_parallel.solvers.easgd import EASGD
from ampsim.data_parallel.solvers.hogwild import Hogwild
from ampsim.data_parallel.solvers.local_sgd import LocalSGD
from ampsim.data_parallel.solvers.ssp import SSP
from ampsim.data_parallel.solvers.sync_easgd import SyncEASGD
from ampsim.data_parallel.solvers.sync_sgd import SyncSGD

SOLVERS: Final[dict[str, type[Solver]]] = {
    kind.name: kind
    for kind in (
        SyncSGD,
        AsyncSGD,
        Hogwild,
        EASGD,
        AsyncEASGD,
        EAWild,
        SyncEASGD,
        SSP,
        LocalSGD,
        DiLoCo,
    )
}
