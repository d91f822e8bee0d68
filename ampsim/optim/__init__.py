"""Optimizers as pairs of pure functions, and learning rates; one file per method, or per kind."""

from ampsim.optim.adam import adagrad, adam
from ampsim.optim.base import LearningRate, Optimizer, State, Vector, copied, within_epochs
from ampsim.optim.lars import lars
from ampsim.optim.learning import OPTIMIZERS, Learning, OptimizerName
from ampsim.optim.learning_rate import (
    as_schedule,
    constant,
    exponential,
    multistep,
    polynomial,
    warmup,
)
from ampsim.optim.sgd import momentum, nesterov, sgd
from ampsim.optim.two_stage import two_stage

__all__ = [
    "OPTIMIZERS", "Learning", "LearningRate", "Optimizer", "OptimizerName", "State", "Vector",
    "adagrad", "adam", "as_schedule", "constant", "copied", "exponential", "lars", "momentum",
    "multistep", "nesterov", "polynomial", "sgd", "two_stage", "warmup", "within_epochs",
]  # fmt: skip
