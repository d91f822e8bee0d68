"""Two stages: plain gradient descent through the warm-up, then Adam.

Source: Wongpanich, You and Demmel, "Rethinking the value of asynchronous solvers for distributed
deep learning", 2020, Section 4.5.1 and Figure 3. Adam's state starts when its stage does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from ampsim.optim.adam import adam
from ampsim.optim.base import LearningRate, Optimizer, State, Vector, positive, within_epochs
from ampsim.optim.learning_rate import KnownRate, as_schedule
from ampsim.optim.sgd import sgd


def two_stage(
    rate: float | LearningRate,
    epochs: float = 5,
    second_rate: float | LearningRate | None = None,
    weight_decay: float = 0.0,
) -> Optimizer:
    """Gradient descent for so many epochs, then Adam, whose arrays lie in memory from the start.

    A step is charged as its stage's.

    Args:
        rate: learning rate of gradient descent, or a function of the epoch.
        epochs: after which Adam takes over; a fraction does so within an epoch.
        second_rate: learning rate of Adam, or a function of the epoch, which goes on counting;
            None for that of gradient descent.
        weight_decay: times the weights is added to the gradient, in both stages.

    Raises:
        OptionError: an argument is out of its range.
    """
    first = sgd(rate, weight_decay=weight_decay)
    then = rate if second_rate is None else second_rate
    second = adam(then, weight_decay=weight_decay)
    last = positive("two-stage: epochs", epochs, usual=5)
    return Optimizer(
        "two-stage",
        _Rates(first.rate, as_schedule(then), last),
        second.init,
        partial(_update, first=first, second=second),
        is_elementwise=True,
        touches_all=first.touches_all,
        calls=second.calls,
        first=first,
        first_epochs=last,
    )


class StagedRate(float):
    """A learning rate that knows in which stage it is; times or over a number, it still does."""

    is_second: bool

    def __new__(cls, rate: float, *, is_second: bool) -> StagedRate:
        """Make a rate of a stage."""
        made = super().__new__(cls, rate)
        made.is_second = is_second
        return made

    def __mul__(self, factor: float) -> StagedRate:
        return StagedRate(float(self) * factor, is_second=self.is_second)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> StagedRate:
        return StagedRate(float(self) / divisor, is_second=self.is_second)

    def __reduce__(self) -> Any:
        return partial(StagedRate, float(self), is_second=self.is_second), ()


@dataclass(frozen=True, slots=True)
class _Rates(KnownRate):
    first: LearningRate
    second: LearningRate
    epochs: float

    @property
    def is_within_epochs(self) -> bool:
        """Tell whether the rate or the stage changes within an epoch."""
        is_fraction = self.epochs != int(self.epochs)
        return is_fraction or within_epochs(self.first) or within_epochs(self.second)

    def __call__(self, epoch: float) -> StagedRate:
        is_second = epoch >= self.epochs
        stage = self.second if is_second else self.first
        asked = epoch if within_epochs(stage) else math.floor(epoch)
        return StagedRate(stage(asked), is_second=is_second)


def _update(
    gradient: Vector,
    state: State,
    theta: Vector,
    rate: float,
    in_place: bool = False,
    *,
    first: Optimizer,
    second: Optimizer,
) -> tuple[Vector, State]:
    """A step of the stage that the rate is of; a rate that knows of none is of the first."""
    if isinstance(rate, StagedRate) and rate.is_second:
        return second.update(gradient, state, theta, rate, in_place=in_place)
    stepped, _nothing = first.update(gradient, (), theta, rate, in_place=in_place)
    return stepped, state if in_place else tuple(map(_copy, state))


def _copy(part: Any) -> Any:
    """A part of Adam's state that has not begun; what is returned shares nothing with it."""
    return cast("Any", part.copy() if isinstance(part, np.ndarray) else part)
