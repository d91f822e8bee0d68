"""Learning rates as functions of the epoch, which counts from 0; 2.5 is the middle of the third.

A rate that changes within an epoch is asked for each update, with the place in its epoch of the
first instance whose gradient is in the update.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ampsim.arguments import as_float
from ampsim.errors import OptionError
from ampsim.optim.base import LearningRate, positive, within_epochs
from ampsim.text import shown
from ampsim.user_code import user_code


def constant(rate: float) -> LearningRate:
    """Return a rate that every epoch has.

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


def polynomial(initial: float, epochs: float, power: float = 1.0) -> LearningRate:
    """`initial * (1 - epoch / epochs)**power`, and 0 from then on.

    Source: policy "poly" of Caffe's solver, where `epochs` is `max_iter`; `PolynomialLR` of
    PyTorch.

    Raises:
        OptionError: an argument is no finite number above 0.

    >>> [polynomial(0.4, epochs=4)(epoch) for epoch in (0, 1, 2.5, 9)]
    [0.4, 0.30000000000000004, 0.15000000000000002, 0.0]
    """
    return _Polynomial(
        positive("initial learning rate", initial, usual=0.001),
        positive("epochs of a polynomial rate", epochs, usual=90),
        positive("power of a polynomial rate", power, usual=1.0),
    )


def multistep(initial: float, epochs: Sequence[float], factor: float = 0.1) -> LearningRate:
    """`initial`, and times `factor` from each of `epochs` on.

    Source: policy "multistep" of Caffe's solver, where `factor` is `gamma`; `MultiStepLR` of
    PyTorch.

    Raises:
        OptionError: a number, or the last rate, is out of its range, or `epochs` are not in order.

    >>> [round(multistep(0.1, [30, 60])(epoch), 6) for epoch in (29, 30, 60)]
    [0.1, 0.01, 0.001]
    """
    if isinstance(epochs, str) or not isinstance(epochs, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]  # whatever a user gives
        raise OptionError(
            f"epochs of a multistep rate must be a list, got {shown(epochs)}; try [30, 60, 80]"
        )
    steps = tuple(positive("epoch of a multistep rate", one, usual=30) for one in epochs)
    if not steps or sorted(set(steps)) != list(steps):
        raise OptionError(
            "epochs of a multistep rate must be one or more, each later than the one before, got "
            f"{', '.join(map(str, epochs)) or 'none'}; try 30, 60, 80"
        )
    times = positive("factor of a multistep rate", factor, usual=0.1)
    made = _Multistep(positive("initial learning rate", initial, usual=0.001), steps, times)
    try:
        is_finite = made(steps[-1]) < math.inf
    except OverflowError:  # of the factor's power alone
        is_finite = False
    if not is_finite:
        raise OptionError(
            f"factor of a multistep rate must leave the rate finite, got {shown(factor)}, "
            f"{len(steps)} times over from {made.initial:g} on; try 0.1"
        )
    return made


def warmup(rate: float | LearningRate, epochs: float, start: float = 0.1) -> LearningRate:
    """A rate times a factor that grows from `start` to 1 in so many epochs, in a straight line.

    Source: the gradual warm-up of Goyal et al., "Accurate, large minibatch SGD", 2017, Section 2.2,
    where `start` is one over the number of times that the batch is larger; `LinearLR` of PyTorch.

    Raises:
        OptionError: `epochs` is no finite number above 0, or `start` not above 0 and at most 1.

    >>> [round(warmup(0.8, epochs=5, start=0.125)(epoch), 6) for epoch in (0, 2.5, 5)]
    [0.1, 0.45, 0.8]
    """
    length = positive("epochs of a warm-up", epochs, usual=5)
    first = as_float(start)
    if not 0 < first <= 1:
        raise OptionError(f"start of a warm-up must be > 0 and <= 1, got {shown(start)}; try 0.1")
    return _Warmup(as_schedule(rate), length, first)


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


@dataclass(frozen=True, slots=True)
class _Polynomial(KnownRate):
    initial: float
    epochs: float
    power: float

    is_within_epochs: ClassVar[bool] = True

    def __call__(self, epoch: float) -> float:
        assert epoch >= 0, f"epochs count from 0, got {epoch}"
        return self.initial * max(0.0, 1 - epoch / self.epochs) ** self.power


@dataclass(frozen=True, slots=True)
class _Multistep(KnownRate):
    initial: float
    epochs: tuple[float, ...]
    factor: float

    @property
    def is_within_epochs(self) -> bool:
        return any(not one.is_integer() for one in self.epochs)

    def __call__(self, epoch: float) -> float:
        assert epoch >= 0, f"epochs count from 0, got {epoch}"
        return self.initial * math.pow(self.factor, sum(epoch >= one for one in self.epochs))


@dataclass(frozen=True, slots=True)
class _Warmup(KnownRate):
    rate: LearningRate
    epochs: float
    start: float

    is_within_epochs: ClassVar[bool] = True

    def __call__(self, epoch: float) -> float:
        factor = min(1.0, self.start + (1 - self.start) * epoch / self.epochs)
        asked = epoch if within_epochs(self.rate) else math.floor(epoch)
        return self.rate(asked) * factor
