"""Learning rates as functions of the epoch, which counts from 0."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from ampsim.errors import OptionError
from ampsim.optim.base import LearningRate, positive, within_epochs
from ampsim.text import shown
from ampsim.user_code import user_code


def constant(rate: float) -> LearningRate:
    """The same rate in every epoch.

    Raises:
        OptionError: `rate` is no finite number above 0.

    >>> constant(0.1)(7)
    0.1
    """
    return _Constant(positive("learning rate", rate, usual=0.001))


def exponential(initial: float, decay: float) -> LearningRate:
    """`initial * decay**epoch`.

    Raises:
        OptionError: `initial` is no finite number above 0, or `decay` not above 0 and at most 1.

    >>> [round(exponential(2e-3, 0.8)(epoch), 6) for epoch in range(3)]
    [0.002, 0.0016, 0.00128]
    """
    first = positive("initial learning rate", initial, usual=0.001)
    factor = positive("learning rate decay", decay, usual=0.8)
    if factor > 1:
        raise OptionError(f"learning rate decay must be at most 1, got {shown(decay)}; try 0.8")
    return _Exponential(first, factor)


def as_schedule(rate: float | LearningRate) -> LearningRate:
    """A learning rate from what a user gives: a number, or a function of the epoch.

    A user's function is checked each time it is asked. Where it has an attribute `is_within_epochs`
    that is true, it is asked for each update, with a fraction of an epoch.

    Raises:
        OptionError: a number is not above 0 and finite; or, later, what the function gives.

    >>> as_schedule(0.1)(3), as_schedule(lambda epoch: 1 / (1 + epoch))(3)
    (0.1, 0.25)
    """
    if isinstance(rate, KnownRate):
        return rate
    return _Checked(rate) if callable(rate) else constant(rate)


class KnownRate(ABC):
    """A learning rate whose numbers were checked when it was made."""

    __slots__ = ()

    @abstractmethod
    def __call__(self, epoch: float) -> float:
        """The rate of an epoch."""


@dataclass(frozen=True, slots=True)
class _Constant(KnownRate):
    rate: float

    def __call__(self, epoch: float) -> float:
        assert epoch >= 0, f"epochs count from 0, got {epoch}"
        return self.rate


@dataclass(frozen=True, slots=True)
class _Exponential(KnownRate):
    initial: float
    decay: float

    def __call__(self, epoch: float) -> float:
        assert epoch >= 0, f"epochs count from 0, got {epoch}"
        return self.initial * self.decay**epoch


@dataclass(frozen=True, slots=True)
class _Checked(KnownRate):
    schedule: LearningRate

    @property
    def is_within_epochs(self) -> bool:
        return within_epochs(self.schedule)

    def __call__(self, epoch: float) -> float:
        assert epoch >= 0, f"epochs count from 0, got {epoch}"
        with user_code(f"the learning rate of epoch {epoch} failed"):
            rate = self.schedule(epoch)
        return positive(f"learning rate of epoch {epoch}", rate, usual=0.001)
