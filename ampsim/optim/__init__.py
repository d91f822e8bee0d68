"""Optimizers as pairs of pure functions, and learning rates; one file per method."""

from ampsim.optim.adagrad import adagrad
from ampsim.optim.adam import adam
from ampsim.optim.base import LearningRate, Optimizer, State, Vector
from ampsim.optim.learning_rate import as_schedule, constant, exponential
from ampsim.optim.momentum import momentum
from ampsim.optim.registry import OPTIMIZERS
from ampsim.optim.sgd import sgd

__all__ = [
    "OPTIMIZERS",
    "LearningRate",
    "Optimizer",
    "State",
    "Vector",
    "adagrad",
    "adam",
    "as_schedule",
    "constant",
    "exponential",
    "momentum",
    "sgd",
]
