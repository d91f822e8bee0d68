"""Frames and their iterations: where steps run, and when an iteration is over.

A frame is one run of a loop. Within an iteration a step runs at most once, so (frame, iteration)
is the tag that tells the instances of a tensor apart; frames nest, so tags are paths.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

from ampsim.dataflow.plan import FramePlan, Step
from ampsim.trace import Cause

Path: TypeAlias = "tuple[tuple[str, int], ...]"
"""A tag: (name of the loop, number of the iteration), from the outermost loop inward."""


Ready: TypeAlias = "tuple[Step, Iteration, Cause]"
"""A step whose inputs have come, where it runs, and what made it ready."""


class _Dead:
    """The one dead value."""

    def __repr__(self) -> str:
        """Say so."""
        return "DEAD"


DEAD: Final = _Dead()
"""In place of a tensor that lies on a side of a Switch that was not taken."""


class Tag(NamedTuple):
    """The state of a span: the instance, and the tag in words."""

    instance: int
    tag: str


class Iteration:
    """One iteration of a frame.

    Attributes:
        path, state: its tag, and the same as spans have it.
        inputs: for each slot what has come.
        pending: for each step how many inputs have not come.
        is_dead: for each step whether one that came is dead.
        outstanding: steps that can run or are running.
        children: frames that steps of it have opened and that are not over.
        opened_s: when it began.
    """

    __slots__ = (
        "children", "frame", "inputs", "is_dead", "number", "opened_s", "outstanding", "path",
        "pending", "state",
    )  # fmt: skip

    def __init__(self, frame: Frame, number: int, path: Path, opened_s: float) -> None:
        plan = frame.plan
        self.frame, self.number, self.path, self.opened_s = frame, number, path, opened_s
        self.state = Tag(frame.instance, told(path))
        self.inputs: list[Any] = [None] * plan.slots
        self.pending = plan.pending.copy()
        self.is_dead = bytearray(len(plan.pending))
        self.outstanding = self.children = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to run in it, and nothing more can come into it."""
        if self.outstanding or self.children or self.number != self.frame.first:
            return False
        return self.number > 0 or not self.frame.enters


class Frame:
    """One run of a loop, or the graph itself.

    Attributes:
        plan: what it has in common with other runs of the loop.
        parent: the iteration in which it was opened; None of the graph itself.
        instance: number of the run.
        iterations: those that are not over, by number.
        first, latest: numbers of the oldest of these and of the newest.
        enters: how many Enters have not run.
        constants: what every iteration is given: (the Enter, the value).
        deferred: what waits for the window to let the next iteration begin.
        left: Exits that have let something live out.
    """

    __slots__ = (
        "constants", "deferred", "enters", "first", "instance", "iterations", "latest", "left",
        "parent", "path", "plan",
    )  # fmt: skip

    def __init__(self, plan: FramePlan, parent: Iteration | None, instance: int) -> None:
        self.plan, self.parent, self.instance = plan, parent, instance
        self.path: Path = () if parent is None else parent.path
        self.iterations: dict[int, Iteration] = {}
        self.first, self.latest = 0, -1
        self.enters = plan.enters
        self.constants: list[tuple[Step, Any]] = []
        self.deferred: list[tuple[Step, Any]] = []
        self.left: set[int] = set()

    def open(self, now_s: float) -> Iteration:
        """Begin the next iteration."""
        self.latest += 1
        name = self.plan.name
        path = (*self.path, (name, self.latest)) if name else self.path
        iteration = self.iterations[self.latest] = Iteration(self, self.latest, path, now_s)
        return iteration

    @property
    def is_full(self) -> bool:
        """Whether as many iterations are under way as the window lets."""
        window = self.plan.window
        return bool(window) and self.latest - self.first + 1 >= window


def told(path: Path) -> str:
    """A tag in words.

    >>> told((("while-1", 3), ("inner-1", 0)))
    'while-1/3/inner-1/0'
    """
    return "/".join(f"{name}/{number}" for name, number in path)
