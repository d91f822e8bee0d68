"""Where a model, a cluster and a schedule meet: simulate and forecast."""

from ampsim.study import pickling
from ampsim.study.checking import Trial, try_out
from ampsim.study.forecast import Forecast, Run, forecast
from ampsim.study.jobs import jobs_here, require_jobs
from ampsim.study.kept_runs import Keeping
from ampsim.study.loaded_run import LoadedRun, load_run
from ampsim.study.loading import load_model
from ampsim.study.model import Model, parameters_of
from ampsim.study.progress import Progress, Whole
from ampsim.study.result import Result
from ampsim.study.simulation import Simulation, simulate

__all__ = [
    "Forecast",
    "Keeping",
    "LoadedRun",
    "Model",
    "Progress",
    "Result",
    "Run",
    "Simulation",
    "Trial",
    "Whole",
    "forecast",
    "jobs_here",
    "load_model",
    "load_run",
    "parameters_of",
    "pickling",
    "require_jobs",
    "simulate",
    "try_out",
]
