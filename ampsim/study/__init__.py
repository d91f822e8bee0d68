"""One run, in which a model, a cluster and a method meet."""

from ampsim.study.checking import Trial, try_out
from ampsim.study.loading import load_model
from ampsim.study.model import Model, parameters_of
from ampsim.study.progress import Progress, Whole
from ampsim.study.result import Result
from ampsim.study.simulation import Simulation, simulate

__all__ = [
    "Model",
    "Progress",
    "Result",
    "Simulation",
    "Trial",
    "Whole",
    "load_model",
    "parameters_of",
    "simulate",
    "try_out",
]
