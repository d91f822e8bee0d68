"""Options that say how a model learns: a method, its rate over the epochs, and a warm-up.

A model file's `Config` may inherit `Learning`, so that all of it can be set from the command line:
`--set optimizer=lars --set rate_policy=polynomial:90 --set warmup_epochs=5`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

from annotated_types import Ge, Le, Lt

from ampsim.errors import OptionError, one_of
from ampsim.optim.adam import adagrad, adam
from ampsim.optim.base import LearningRate, Optimizer, within_epochs
from ampsim.optim.lars import lars
from ampsim.optim.learning_rate import constant, exponential, multistep, polynomial, warmup
from ampsim.optim.sgd import momentum, nesterov, sgd
from ampsim.optim.two_stage import two_stage
from ampsim.text import shown

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": sgd,
    "momentum": momentum,
    "adam": adam,
    "adagrad": adagrad,
    "nesterov": nesterov,
    "lars": lars,
    "two-stage": two_stage,
}
"""Every optimizer by its name: its maker, which takes the learning rate first."""

OptimizerName: TypeAlias = Literal[
    "sgd", "momentum", "nesterov", "adam", "adagrad", "lars", "two-stage"
]
EPOCHS_MAX: Final = 1e6
"""Most epochs of a warm-up; chosen."""


@dataclass(frozen=True, kw_only=True)
class Learning:
    """Options that say how a model learns.

    Args:
        optimizer: the method, by its name in `OPTIMIZERS`.
        learning_rate: of the method; in "two-stage" of gradient descent.
        momentum: of a method that has it; None for its own default.
        weight_decay: times the weights is added to the gradient.
        rate_policy: how the rate changes: "constant", "exponential:FACTOR" an epoch,
            "polynomial:EPOCHS[:POWER]", or "multistep:EPOCH,EPOCH,…[:FACTOR]"; in "two-stage" that
            of gradient descent.
        warmup_epochs: in which the rate grows from a tenth in a straight line; in "two-stage" those
            of gradient descent, before Adam.
        second_rate: of Adam in "two-stage"; None for 0.001.
    """

    optimizer: OptimizerName = "sgd"
    learning_rate: Annotated[float, Lt(float("inf"))] = 0.1
    momentum: float | None = None
    weight_decay: Annotated[float, Ge(0), Lt(float("inf"))] = 0.0
    rate_policy: str = "constant"
    warmup_epochs: Annotated[float, Ge(0), Le(EPOCHS_MAX)] = 0.0
    second_rate: float | None = None

    def make_optimizer(self) -> Optimizer:
        """Make the method.

        Raises:
            OptionError: a value is out of its range, or of an option that the method has not.
        """
        maker = OPTIMIZERS[self.optimizer]
        rate = rate_of(self.rate_policy, self.learning_rate)
        given: dict[str, Any] = {
            "momentum": self.momentum,
            "weight_decay": self.weight_decay or None,
            "second_rate": self.second_rate,
        }
        options = {key: value for key, value in given.items() if value is not None}
        for option in options:
            able = [n for n, m in OPTIMIZERS.items() if option in inspect.signature(m).parameters]
            if self.optimizer not in able:
                raise OptionError(
                    f"optimizer {self.optimizer} has no {option}, got {shown(given[option])}; "
                    f"leave it out, or take {', '.join(able)}"
                )
        if self.optimizer == "two-stage":
            if not self.warmup_epochs:
                raise OptionError(
                    "optimizer two-stage needs warmup_epochs, those of gradient descent, above 0, "
                    "got 0; try 5"
                )
            last = math.nextafter(self.warmup_epochs, 0.0)
            last = last if within_epochs(rate) else math.floor(last)
            if self.rate_policy != "constant" and rate(last) == rate(0):
                raise OptionError(
                    "rate_policy in optimizer two-stage is of gradient descent alone, and must "
                    f"change its rate within {self.warmup_epochs:g} epochs, got "
                    f"{shown(self.rate_policy)}; leave it out"
                )
            return maker(rate, epochs=self.warmup_epochs, **{"second_rate": SECOND_RATE} | options)
        if self.warmup_epochs:
            rate = warmup(rate, self.warmup_epochs)
        return maker(rate, **options)


SECOND_RATE: Final = 0.001
"""Of Adam in "two-stage"; Kingma and Ba's."""


def rate_of(policy: str, initial: float) -> LearningRate:
    """A learning rate from what a user types: a policy's name and its numbers, after colons.

    Raises:
        OptionError: there is no such policy, or a number is missing, too many, or out of range.

    >>> rate_of("multistep:30,60,80", 0.1)(60)
    0.0010000000000000002
    """
    name, *words = policy.split(":")
    if name not in POLICIES:
        raise OptionError(one_of("rate_policy", name, POLICIES))
    form, make = POLICIES[name]
    try:
        return make(initial, *words)
    except (TypeError, ValueError):
        raise OptionError(f"rate_policy must be {form}, got {shown(policy)}") from None


def _exponential(initial: float, factor: str) -> LearningRate:
    return exponential(initial, float(factor))


def _polynomial(initial: float, epochs: str, power: str = "1") -> LearningRate:
    return polynomial(initial, float(epochs), float(power))


def _multistep(initial: float, epochs: str, factor: str = "0.1") -> LearningRate:
    return multistep(initial, [float(one) for one in epochs.split(",")], float(factor))


POLICIES: Final[dict[str, tuple[str, Callable[..., LearningRate]]]] = {
    "constant": ("constant", constant),
    "exponential": ("exponential:FACTOR", _exponential),
    "polynomial": ("polynomial:EPOCHS or polynomial:EPOCHS:POWER", _polynomial),
    "multistep": ("multistep:EPOCH,EPOCH,… or multistep:EPOCH,EPOCH,…:FACTOR", _multistep),
}
"""What can be typed, and what makes it."""
