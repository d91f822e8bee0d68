"""The four values that make a schedule: admission, order, updates, weights.

Every published schedule is a choice of these (design, section 6). A schedule is a frozen dataclass
whose fields are its options and whose four properties, of these names, are what the engine reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ampsim.arguments import fitting
from ampsim.errors import OptionError, UnknownNameError, one_of
from ampsim.ir import Direction
from ampsim.model_parallel.schedules.turns import Admitted, Turns, WorkerStages
from ampsim.options import Seconds, require_count

BACKWARD_FIRST: Final = (Direction.UPDATE, Direction.BACKWARD, Direction.FORWARD)
"""Update before backward before forward, then first come (paper, Appendix A)."""

REMEDIES: Final = ("none", "weight-prediction")
"""What can be done about delayed gradients: nothing, as in the paper, or SpecTrain's prediction
(`ampsim.model_parallel.stash`)."""


class VersionRule:
    """The rule for the version that one stage's forward steps read; this one: the latest."""

    def pick(self, instance: int, latest: int) -> int:
        """The version that the forward step of an instance reads: the latest, or one kept."""
        return latest

    def awaits(self, version: int) -> bool:
        """Tell whether a forward step that is to come reads a version that is not the latest.

        If not, the version is kept only for backward steps of instances that have read it.
        """
        return False


@dataclass(frozen=True, slots=True)
class Admission:
    """When the controller admits another instance.

    Args:
        in_flight_max: instances in flight at most; None for as many as there are stages.
        drains: whether all in flight must finish, and all nodes be updated, before it admits more.
        staleness_budget: it admits only while it expects gradients at most this many updates old,
            in training and at the oldest nodes (`ampsim.model_parallel.budget`); None: no matter.
    """

    in_flight_max: int | None
    drains: bool = False
    staleness_budget: float | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """The order in which a worker serves messages that wait.

    Args:
        kinds: directions, the most urgent first.
        holds_gradients: whether no backward step may start before all forward steps of all in
            flight have ended.
        turns: makes the fixed order in which a worker serves its stages, in training; None where
            it serves what is most urgent. Turns need a chain of stages.
        splits_backward: whether a backward step is two, whose second half, the weight gradient,
            has turns as if stage s of p were stage p + s.
        max_group: messages for one node that a worker merges into one step at most.
        group_wait_s: seconds that a worker waits, once, before it starts a smaller group.

    Raises:
        OptionError: a number is out of its range, nothing is merged that could be waited for, or
            turns leave nothing to merge.
    """

    kinds: tuple[Direction, ...] = BACKWARD_FIRST
    holds_gradients: bool = False
    turns: Callable[[WorkerStages, Admitted], Turns] | None = None
    splits_backward: bool = False
    max_group: int = 1
    group_wait_s: float = 0.0

    def __post_init__(self) -> None:
        """Check the values against each other."""
        require_count("max_group", self.max_group)
        fitting("group_wait_s", self.group_wait_s, Seconds)
        if self.group_wait_s and self.max_group == 1:
            raise OptionError(
                f"group_wait_s = {self.group_wait_s!r} waits for a group, but max_group = 1 forms "
                "none; take max_group=2 or more, or group_wait_s=0"
            )
        if self.max_group > 1 and self.turns is not None:
            raise OptionError(
                "an order with turns serves one message in its turn after the other and merges "
                f"none, got max_group = {self.max_group}; take max_group=1"
            )
        if self.splits_backward and self.turns is None:
            raise OptionError("an order that splits backward steps needs turns for both halves")


@dataclass(frozen=True, slots=True)
class Updates:
    """When a node applies the gradients that it has accumulated, and how many count as one.

    Args:
        is_at_drain: whether the controller sends the updates when all in flight have finished;
            otherwise each node updates itself.
        interval: gradients after which a node updates itself: one number for all nodes, or a
            mapping from node names; None, and nodes that a mapping omits, take what the model
            prefers.
        averages: whether the instances of one update are a mini-batch, whose mean gradient counts,
            instead of the sum of their messages'.

    Raises:
        OptionError: an interval is below 1, or there is one that the controller would not heed.
    """

    is_at_drain: bool = False
    interval: int | Mapping[str, int] | None = None
    averages: bool = False

    def __post_init__(self) -> None:
        """Check the intervals."""
        if isinstance(self.interval, Mapping):
            for node, interval in self.interval.items():
                require_count(f"min_update_interval of {node}", interval)
        elif self.interval is not None:
            require_count("min_update_interval", self.interval)
        if self.is_at_drain and self.interval is not None:
            raise OptionError(
                "updates at the drain are sent by the controller and have no interval, "
                f"got {self.interval!r}"
            )

    def interval_of(self, node: str, preferred: int) -> int | None:
        """Gradients after which `node` updates itself; None where the controller decides."""
        if self.is_at_drain:
            return None
        if isinstance(self.interval, Mapping):
            return self.interval.get(node, preferred)
        return preferred if self.interval is None else self.interval


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights that a step reads.

    Args:
        versions: makes the rules for which version a forward step reads, one for each stage in
            turn, from the number of stages and what has been admitted; the backward step of an
            instance reads what its forward step has read. None where each step reads the latest.
            Versions need a chain of stages.
        remedy: what is done about delayed gradients, one of `REMEDIES`.

    Raises:
        UnknownNameError: there is no such remedy.
    """

    versions: Callable[[int, Admitted], Sequence[VersionRule]] | None = None
    remedy: str = "none"

    def __post_init__(self) -> None:
        """Check the remedy's name."""
        if self.remedy not in REMEDIES:
            raise UnknownNameError(one_of("remedy", self.remedy, REMEDIES))


AT_DRAIN: Final = Updates(is_at_drain=True, averages=True)
"""The controller sends the updates when a mini-batch has drained; its mean gradient counts."""

LATEST: Final = Weights()
"""Every step reads the latest weights."""
