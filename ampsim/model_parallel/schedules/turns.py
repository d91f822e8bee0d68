"""Turns: the fixed order in which a stage of a chain serves forward and backward steps.

The published pipelines of the 1F1B family fix the order in advance; a stage waits for the message
whose turn it is, even while it could serve another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from ampsim.errors import OptionError
from ampsim.ir import Direction

Turn: TypeAlias = "tuple[Direction, int]"
"""Whose turn it is: (direction, stage)."""


@dataclass(slots=True)
class Admitted:
    """The instances that the controller has admitted to training.

    Attributes:
        first: number of the first instance of this pass.
        count: how many instances, in all passes together.
        is_complete: whether no more come before those in flight have drained.
        known_until: number after the last instance that is known to come, in this pass; schedules
            that keep versions of weights know of as many as may be in flight, and come next.
    """

    first: int = 0
    count: int = 0
    is_complete: bool = True
    known_until: int = 0


@dataclass(frozen=True, slots=True)
class WorkerStages:
    """The stages that a worker serves.

    Attributes:
        own: its stages, ascending.
        stages: p, how many there are.
        workers: how many workers the cluster has.
    """

    own: tuple[int, ...]
    stages: int
    workers: int

    @property
    def own_in_words(self) -> str:
        """Its stages, counted from 1."""
        return ", ".join(str(stage + 1) for stage in self.own)


class Turns(Protocol):
    """An order: whose turn it is, given what has been served."""

    def next(self) -> Turn | None:
        """Return the next turn; None while it is not known. To be asked again."""
        ...

    def served(self) -> None:
        """Note that the step whose turn it was has ended."""


class OneForwardOneBackward:
    """Forwards until `depth` of them wait for their backward; then one backward, one forward.

    At the end, when no more forwards come, only backwards (Narayanan et al., 2019, Section 3.2).
    """

    def __init__(self, stage: int, depth: int, admitted: Admitted) -> None:
        self._depth = depth
        self._admitted = admitted
        self._forward: Turn = (Direction.FORWARD, stage)
        self._backward: Turn = (Direction.BACKWARD, stage)
        self._turn: Turn = self._forward
        self._forwards = 0
        self._backwards = 0

    def next(self) -> Turn | None:
        """Forward while the depth allows and more are to come, else backward."""
        admitted = self._admitted
        is_full = self._forwards - self._backwards == self._depth
        is_last = admitted.is_complete and self._forwards == admitted.count
        self._turn = self._backward if is_full or is_last else self._forward
        return self._turn

    def served(self) -> None:
        """Count what has been served."""
        if self._turn is self._forward:
            self._forwards += 1
        else:
            self._backwards += 1


def one_forward_one_backward(
    name: str, in_flight_max: int | None = None
) -> Callable[[WorkerStages, Admitted], OneForwardOneBackward]:
    """Return what makes the turns of 1F1B, for a schedule of this name.

    Stage s of p serves p − s forwards before its first backward; where fewer instances may be in
    flight, as many as those.

    Args:
        name: of the schedule, for messages.
        in_flight_max: instances in flight at most; None for as many as there are stages.
    """

    def turns(placed: WorkerStages, admitted: Admitted) -> OneForwardOneBackward:
        stage = one_stage_a_worker(name, placed)
        depth = min(placed.stages - stage, in_flight_max or placed.stages)
        return OneForwardOneBackward(stage, depth, admitted)

    return turns


class Script:
    """An order written down for each group of instances that drains, once its size is known."""

    def __init__(self, write: Callable[[int], list[Turn]], admitted: Admitted) -> None:
        self._write = write
        self._admitted = admitted
        self._known = 0
        self._place = 0
        self._turns: list[Turn] = []

    def next(self) -> Turn | None:
        """The next line; after the last, the first of the next group's, if there is one."""
        if self._place == len(self._turns):
            size = self._admitted.count - self._known
            if not size:
                return None
            self._turns, self._place = self._write(size), 0
            self._known += size
        return self._turns[self._place]

    def served(self) -> None:
        """Go to the next line."""
        self._place += 1


def one_stage_a_worker(name: str, placed: WorkerStages) -> int:
    """The one stage of a worker.

    Raises:
        OptionError: it has several.
    """
    if len(placed.own) != 1:
        raise OptionError(
            f"{name} gives each stage a worker of its own, got {placed.stages} stages on "
            f"{placed.workers} worker{'s' * (placed.workers != 1)}, one of them with stages "
            f"{placed.own_in_words}; {_remedy(placed)}"
        )
    (stage,) = placed.own
    return stage


def _remedy(placed: WorkerStages) -> str:
    """Say how each stage gets a worker of its own, whatever placement and workers there are."""
    if placed.workers < placed.stages:
        return f"take workers={placed.stages} or more, with the placement 'paper'"
    return "the workers suffice, the placement does not use them; take the placement 'paper'"
