"""The public names, and where they live."""

from . import clock as clock
from . import data as data
from . import dependency as dependency
from . import figures as figures
from . import flow as flow
from . import ir as ir
from . import nodes as nodes
from . import optim as optim
from .data import ArrayDataset as ArrayDataset
from .data_parallel.solvers.registry import *
from .dataflow.registry import *
from .dependency import DependencyEngine as DependencyEngine
from .dependency import EngineResult as EngineResult
from .dependency import Naive as Naive
from .dependency import PerDevice as PerDevice
from .dependency import Pooled as Pooled
from .errors import AmpsimError as AmpsimError
from .exploring.explore import Exploration as Exploration
from .exploring.explore import explore as explore
from .exploring.search import Searched as Searched
from .exploring.search import search as search
from .exploring.solve import Solved as Solved
from .exploring.solve import solve as solve
from .exploring.whatif import WhatIf as WhatIf
from .exploring.whatif import whatif as whatif
from .forecasting import Forecast as Forecast
from .forecasting import forecast as forecast
from .forecasting import stream as stream
from .hardware import Cluster as Cluster
from .hardware import Device as Device
from .hardware import Link as Link
from .hardware import load_cluster as load_cluster
from .interop import from_torch as from_torch
from .interop import to_torch as to_torch
from .ir import Work as Work
from .model_parallel.schedules.registry import *
from .runs import load_run as load_run
from .study import Model as Model
from .study import Result as Result
from .study import load_model as load_model
from .study import simulate as simulate
from .study import try_out as try_out

__version__: str

__all__: list[str]
