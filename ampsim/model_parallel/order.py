"""The order that a run decides: which weights each step of training reads, and whom updates hold.

What is learned depends, beside model, data and seed, on nothing else: not on times, workers or
links. A learner's forward step reads a version of its weights; its backward step reads one, and
brings a gradient that enters the update after so many. Within an update gradients are summed in the
order of their states (`ampsim.nodes.linear`), so that sets, not sequences, are the order.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final, TypeAlias

import numpy as np

from ampsim.ir import ParameterizedNode, State

Read: TypeAlias = "tuple[State, int]"
"""A forward step: its state, and the version of the weights that it read."""

Gradient: TypeAlias = "tuple[State, int, int]"
"""A backward step: its state, how many updates came before the one that its gradient is in, and how
many of these are younger than the weights that it read; 0 where it read the latest."""

SETTLED_EVERY: Final = 2048
"""Finished instances after which their rows are hashed and let go; chosen."""


class LearnerOrder:
    """The steps of one learner in one pass of training.

    Attributes:
        reads: forward steps, a `Read` each, as they came.
        gradients: backward steps that brought a gradient, a `Gradient` each, as they came.
        first: updates before the pass.
    """

    __slots__ = ("_of_gradients", "_of_reads", "first", "gradients", "node", "reads")

    def __init__(self, node: ParameterizedNode) -> None:
        self.node = node
        self.reads: list[Read] = []
        self.gradients: list[Gradient] = []
        self.start()

    def start(self) -> None:
        """Begin a pass."""
        self.first = self.node.version
        self.reads.clear()
        self.gradients.clear()
        self._of_reads, self._of_gradients = hashlib.blake2b(), hashlib.blake2b()

    def settle(self, until: float) -> None:
        """Hash the rows of instances before `until`, all of whose steps are over; forget them."""
        for rows, hasher in ((self.reads, self._of_reads), (self.gradients, self._of_gradients)):
            _sort_by_state(rows)
            cut = len(rows) if until == math.inf else bisect_left(rows, until, key=_instance)
            if cut:
                _state, *columns = zip(*rows[:cut], strict=True)
                numbers = np.array(columns, np.int64)
                numbers[0] -= self.first
                hasher.update(numbers.tobytes("F"))  # row by row, however they are cut
                del rows[:cut]

    def digest(self) -> bytes:
        """Hash the rest, and return what tells this pass from others; rows are forgotten."""
        self.settle(math.inf)
        return self._of_reads.digest() + self._of_gradients.digest()


def _instance(row: tuple[Any, ...]) -> int:
    return row[0][0]


def _sort_by_state(rows: list[Any]) -> None:
    """Sort in place, by instance first; states that cannot be compared by what they read as."""
    try:
        rows.sort(key=itemgetter(0))
    except TypeError:
        rows.sort(key=lambda row: (row[0][0], repr(row[0])))


@dataclass(frozen=True, slots=True)
class LearnerPass:
    """The record of a learner's steps in one pass, from which `ampsim.learning` replays them.

    Args:
        reads: for each state the version that its forward step read.
        gradients: for each state that brought a gradient, the version that its backward step read,
            and the update that the gradient is in.
        first, last: updates before the pass, and after it.
    """

    reads: Mapping[State, int]
    gradients: Mapping[State, tuple[int, int]]
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class PassOrder:
    """The order of one pass of training.

    Args:
        digest: equal for passes that read the same versions and update with the same gradients.
        first_instance: number of its first instance.
        learners: by name; empty where only the digest was asked for.
    """

    digest: str
    first_instance: int
    learners: Mapping[str, LearnerPass] = field(default_factory=dict[str, LearnerPass])


class OrderLog:
    """Notes the order of a pass, learner by learner.

    Args:
        learners: the nodes with parameters.
        is_kept: whether the order itself is asked for, not its digest alone.
    """

    def __init__(self, learners: Iterable[ParameterizedNode], *, is_kept: bool) -> None:
        self._of = {node.name: LearnerOrder(node) for node in learners}
        self._is_kept = is_kept
        self._first_instance = self._finished = 0

    def of(self, node: ParameterizedNode) -> LearnerOrder:
        """Return the log of a node's steps."""
        return self._of[node.name]

    def start(self, first_instance: int) -> None:
        """Begin a pass."""
        self._first_instance = first_instance
        for one in self._of.values():
            one.start()

    def finished(self, unfinished: Iterable[int]) -> None:
        """Note that an instance has; a long pass is to take no more memory than a short one."""
        self._finished += 1
        if self._is_kept or self._finished % SETTLED_EVERY:
            return
        until = min(unfinished, default=math.inf)
        for one in self._of.values():
            one.settle(until)

    def end(self) -> PassOrder:
        """End the pass; return its order."""
        learners: dict[str, LearnerPass] = {}
        hasher = hashlib.blake2b(digest_size=32)
        for name in sorted(self._of):
            one = self._of[name]
            if self._is_kept:
                learners[name] = LearnerPass(
                    dict(one.reads),
                    {state: (update - lag, update) for state, update, lag in one.gradients},
                    one.first,
                    one.node.version,
                )
            hasher.update(name.encode() + b"\0" + one.digest())
        return PassOrder(hasher.hexdigest(), self._first_instance, learners)
