"""The learning rate of a row: the model's own, scaled by the gradients that one update averages.

A schedule that applies the mean of m instances' gradients takes one step where one that updates
after each takes m. At the same rate it is then m times slower, whatever the hardware. So the rate
grows with m: m times for plain and momentum gradient descent (Krizhevsky, "One weird trick for
parallelizing convolutional neural networks", 2014; Goyal et al., "Accurate, large minibatch SGD",
2017), and the root of m for methods that scale each step by the gradients' own size (Hoffer et al.,
"Train longer, generalize better", 2017; Malladi et al., "On the SDEs and scaling rules for adaptive
gradient algorithms", 2022). Which one is the optimizer's `scaling`. A schedule that sums gradients
makes the larger step already, and keeps the rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, get_args

from ampsim.data_parallel import Solver
from ampsim.errors import UnknownNameError, one_of
from ampsim.model_parallel import Schedule
from ampsim.optim import LearningRate, within_epochs
from ampsim.study.model import Model

Scaling: TypeAlias = Literal["none", "linear", "sqrt"]
SCALINGS: Final[tuple[Scaling, ...]] = get_args(Scaling)
AS_GIVEN: Final = "as given"
COLUMNS: Final = ("learning_rate", "learning_rate_given", "learning_rate_rule")
"""What a table says of a row's rate: that of the first epoch, the model's own, and the rule."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What a row's learning rate is, and why.

    Args:
        factor: times the model's own rate.
        rule: a few words.
    """

    factor: float = 1.0
    rule: str = AS_GIVEN

    def columns(self, model: Model) -> dict[str, Any]:
        """`COLUMNS`."""
        given = model.optimizer.rate(0)
        return dict(zip(COLUMNS, (given * self.factor, given, self.rule), strict=True))

    def tuned(self, factor: float) -> Rate:
        """The rate that tuning chose: so many times this one."""
        words = "" if self.rule == AS_GIVEN else f" × {self.rule}"
        return Rate(self.factor * factor, f"tuned: {factor:g}{words}")


def averaged(schedule: Schedule) -> int | None:
    """Instances whose mean gradient is one update, as the schedule's values say.

    Returns:
        1 where gradients are summed; None where the number differs by node or is not known
        without the graph.
    """
    if isinstance(schedule, Solver):
        inside, ranks = averaged(schedule.inside), schedule.averaged_ranks
        return None if inside is None or ranks is None else inside * ranks
    updates, admission = schedule.updates, schedule.admission
    if not updates.averages:
        return 1
    if updates.is_at_drain:
        return admission.in_flight_max
    return None if isinstance(updates.interval, Mapping) else updates.interval


def rate_of(model: Model, schedule: Schedule, scaling: Scaling | None = None) -> Rate:
    """The learning rate of a row.

    Args:
        model: whose optimizer says which rule it takes.
        schedule: which says how many gradients are averaged.
        scaling: a rule instead of the optimizer's.

    Raises:
        UnknownNameError: there is no such rule.
    """
    if scaling is not None and scaling not in SCALINGS:
        raise UnknownNameError(one_of("scale_rate", scaling, SCALINGS))
    rule, count = scaling or model.optimizer.scaling, averaged(schedule)
    if rule == "none" or count is None or count == 1:
        return Rate()
    if rule == "linear":
        return Rate(float(count), f"linear: {count} averaged gradients")
    return Rate(math.sqrt(count), f"square root of {count} averaged gradients")


def with_rate(model: Model, factor: float) -> Model:
    """The model with its learning rate so many times as large; itself where that is 1."""
    if factor == 1:
        return model
    optimizer = replace(model.optimizer, rate=_Scaled(model.optimizer.rate, factor))
    return replace(model, optimizer=optimizer)


@dataclass(frozen=True, slots=True)
class _Scaled:
    rate: LearningRate
    factor: float

    @property
    def is_within_epochs(self) -> bool:
        return within_epochs(self.rate)

    def __call__(self, epoch: float) -> float:
        return self.rate(epoch) * self.factor
