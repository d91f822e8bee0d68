"""The solvers; `registry` lists them."""

from ampsim.data_parallel.solvers import registry
from ampsim.data_parallel.solvers.registry import *  # noqa: F403  # what is listed
from ampsim.data_parallel.solvers.registry import SOLVERS

__all__ = ["SOLVERS"]
__all__ += registry.__all__
