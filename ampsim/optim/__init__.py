"""Optimizers as pairs of pure functions, and learning rates; one file per method."""

from ampsim.optim.adagrad import adagrad
from ampsim.optim.adam import adam
from ampsim.optim.base import LearningRate, Optimizer, State, Vector, within_epochs
from ampsim.optim.lars import lars
from ampsim.optim.learning import Learning, OptimizerName
from ampsim.optim.learning_rate import as_schedule, constant, exponential
from ampsim.optim.momentum import momentum
from ampsim.optim.nesterov import nesterov
from ampsim.optim.rates import multistep, polynomial, warmup
from ampsim.optim.registry import OPTIMIZERS
from ampsim.optim.sgd import sgd
from ampsim.optim.two_stage import two_stage

__all__ = [
    "OPTIMIZERS",
    "Learning",
    "LearningRate",
    "Optimizer",
    "OptimizerName",
    "State",
    "Vector",
    "adagrad",
    "adam",
    "as_schedule",
    "constant",
    "exponential",
    "lars",
    "momentum",
    "multistep",
    "nesterov",
    "polynomial",
    "sgd",
    "two_stage",
    "warmup",
    "within_epochs",
]
