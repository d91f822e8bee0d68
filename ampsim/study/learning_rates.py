"""The learning rate of a row: the model's own, scaled by the gradients that one update averages.

A schedule that applies the mean of m instances' gradients takes one step where one that updates
after each takes m. At the same rate it is then m times slower, whatever the hardware. So the rate
grows with m: m times for plain and momentum gradient descent (Krizhevsky, "One weird trick for
parallelizing convolutional neural networks", 2014; Goyal et al., "Accurate, large minibatch SGD",
2017), and the root of m for methods that scale each step by the gradients' own size (Hoffer et al.,
"Train longer, generalize better", 2017; Malladi et al., "On the SDEs and scaling rules for adaptive
gradient algorithms", 2022). Which one is the optimizer's `scaling`. A schedule that sums gradients
makes the larger step already, and keeps the rate. No update holds more gradients than an epoch has
batches, or, but for solvers, than come up to a validation within it, whatever may be in flight.

The rule is a guess, and may be a bad one: a run that diverges at a rate that it raised says so, and
a forecast runs such a row again at the rate as given.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from ampsim.data_parallel import Solver
from ampsim.errors import AmpsimError, OptionError
from ampsim.hardware import Cluster
from ampsim.model_parallel import Schedule
from ampsim.optim import Learning, LearningRate, within_epochs
from ampsim.optim.learning_rate import KnownRate
from ampsim.study.model import Model
from ampsim.study.simulation import RunOptions
from ampsim.study.training import PROBE_SEED, Parts, resolved

Scaling: TypeAlias = Literal["none", "linear", "sqrt"]
AS_GIVEN: Final = "as given"
_RAISED: Final = "the scaling rule for averaged gradients raised it"
_NOT_TUNED: Final = "not tuned"
COLUMNS: Final = ("learning_rate", "learning_rate_given", "learning_rate_rule")
"""What a table says of a row's rate: that of the first epoch, the model's own, and the rule."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A row's learning rate, and the reason for it."""

    factor: float = 1.0  # times the model's own rate
    rule: str = AS_GIVEN  # a few words
    is_by_rule: bool = False  # whether the scaling rule alone made it
    decay: float = 1.0  # times which it is multiplied after each epoch, beside the model's own

    def columns(self, model: Model) -> dict[str, Any]:
        """`COLUMNS`."""
        given = model.optimizer.rate(0)
        return dict(zip(COLUMNS, (given * self.factor, given, self.rule), strict=True))

    def applied(self, model: Model) -> Model:
        """The model at this rate; itself where it has it already."""
        if self.factor == self.decay == 1:
            return model
        rate = _Scaled(model.optimizer.rate, self.factor, self.decay)
        return replace(model, optimizer=replace(model.optimizer, rate=rate))

    def tuned(self, factor: float, why_not: str | None = None) -> Rate:
        """The rate that tuning left: so many times this one, and why it is not tuned, if it is not.

        >>> Rate(8.0, "linear: 8 averaged gradients").tuned(0.125, "no trial reached 97 %").rule
        'not tuned (no trial reached 97 %): 0.125 × linear: 8 averaged gradients'
        """
        words = "" if self.rule == AS_GIVEN else f" × {self.rule}"
        words += "" if self.decay == 1 else f", and {self.decay:.3g} times as much each epoch"
        start = "tuned" if why_not is None else f"{_NOT_TUNED} ({why_not})"
        rule = f"{start}: {factor:.4g}{words}"
        return replace(self, factor=self.factor * factor, rule=rule, is_by_rule=False)

    def why_high(self, model: Model) -> str:
        """Words behind the error of a run that diverged: who raised the rate; empty if nobody."""
        if not self.is_by_rule or self.factor <= 1:
            return ""
        rate, given, rule = self.columns(model).values()
        return f"; {_RAISED} from {given:.3g} to {rate:.3g} ({rule})"

    def as_given(self, model: Model) -> Rate:
        """The model's own rate, for a row that diverged at this one."""
        rate, _given, rule = self.columns(model).values()
        return Rate(rule=f"{AS_GIVEN}; it diverged at {rate:.3g} ({rule})")


def diverged_by_rule(failure: str | None) -> bool:
    """Tell whether a run failed because it diverged at a rate that the scaling rule raised."""
    return failure is not None and _RAISED in failure


def is_fair(rule: str, failures: Iterable[str | None]) -> bool:
    """Tell if a row may be compared: not if our rule broke it, nor if others alone were tuned."""
    return not rule.startswith(_NOT_TUNED) and not any(map(diverged_by_rule, failures))


def averaged(schedule: Schedule) -> int | None:
    """Instances whose mean gradient is one update, as a resolved schedule's values say.

    Returns:
        1 where gradients are summed; None where the number differs by node or needs the graph.
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


def rate_of(
    model: Model, schedule: Schedule, cluster: Cluster, options: RunOptions,
    scaling: Scaling | None = None,
) -> Rate:  # fmt: skip
    """The rate of a row on a cluster, with these options of its runs: by a rule, or as given."""
    with contextlib.suppress(OptionError):  # as its run says itself
        schedule = resolved(schedule, cluster)
    rule, count = scaling or model.optimizer.scaling, averaged(schedule) or 1
    if rule != "none" and count > 1:
        with contextlib.suppress(AmpsimError):  # so does it where there are no data
            data = model.data(PROBE_SEED, options.instances)
            every = None if isinstance(schedule, Solver) else options.validate_every
            epoch = options.epochs - 1 if data.grows else 0  # of the largest batches
            part = Parts(data.batches("train", epoch=epoch, seed=PROBE_SEED), every)
            count = sum(1 for _ in itertools.islice(part.next_part(), count))
    if rule == "none" or count <= 1:
        return Rate()
    if rule == "linear":
        return Rate(float(count), f"linear: {count} averaged gradients", is_by_rule=True)
    return Rate(math.sqrt(count), f"square root of {count} averaged gradients", is_by_rule=True)


USUAL: Final[Mapping[str, float]] = {"sgd": 0.1, "momentum": 0.01, "adam": 0.001}
"""Optimizers that a row is tried with, and where their rates are looked for: the perceptron's of
AMPNet's Appendix B.1, that times 1 - 0.9, for a gradient counts 1 / (1 - momentum) times, and
Kingma and Ba's (2014)."""


def methods_of(model: Model) -> dict[str, Model]:
    """A model with each optimizer that it knows of `USUAL`, its own first.

    A model knows them whose options are `ampsim.optim.Learning`. From plain gradient descent to
    momentum, and back, the rate keeps what a gradient changes in all.
    """
    own, config = model.optimizer.name, model.config
    found = {own: model}
    if not isinstance(config, Learning) or own not in USUAL or config.momentum is not None:
        return found
    for name, usual in USUAL.items():
        if name == own:
            continue
        rate = usual
        if {name, own} == {"sgd", "momentum"}:
            rate *= config.learning_rate / USUAL[own]
        other = replace(config, optimizer=name, learning_rate=rate)
        found[name] = model.told_by_config(config=other, optimizer=other.make_optimizer())
    return found


@dataclass(frozen=True, slots=True)
class _Scaled(KnownRate):
    rate: LearningRate
    factor: float
    decay: float

    @property
    def is_within_epochs(self) -> bool:
        return within_epochs(self.rate)

    def __call__(self, epoch: float) -> float:
        return self.rate(epoch) * self.factor * self.decay**epoch
