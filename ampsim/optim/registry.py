"""Every optimizer by its name; by being listed here each gets every shared test."""

from __future__ import annotations

from collections.abc import Callable

from ampsim.optim.adagrad import adagrad
from ampsim.optim.adam import adam
from ampsim.optim.base import Optimizer
from ampsim.optim.lars import lars
from ampsim.optim.momentum import momentum
from ampsim.optim.nesterov import nesterov
from ampsim.optim.sgd import sgd
from ampsim.optim.two_stage import two_stage

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": sgd,
    "momentum": momentum,
    "adam": adam,
    "adagrad": adagrad,
    "nesterov": nesterov,
    "lars": lars,
    "two-stage": two_stage,
}
"""Name to maker; each maker takes the learning rate first and has defaults for the rest."""
