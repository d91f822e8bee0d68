"""A rank trains: it takes batches, computes their gradient, exchanges and updates its weights.

`train` is all that a rank does, whatever the solver; what it awaits there is its own (`ModelCopy`,
or `Group`) and of what it exchanges with (`AllReduce`, `FirstRanks`, `PushPull`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from ampsim.data_parallel.batch_queue import Assignment
from ampsim.data_parallel.decisions import Vector
from ampsim.data_parallel.parameters import Parameters, shapes_of
from ampsim.data_parallel.setting import Setting
from ampsim.model_parallel.price import Charged
from ampsim.optim import Optimizer
from ampsim.trace import Cause

VectorStep: TypeAlias = "Callable[[Rank, int, float], Charged]"
"""``step(rank, place, now_s)`` changes the vector at `place`; it returns the shape that this is
charged for."""


async def train(rank: Rank, exchange: Exchange, cause: Cause) -> Cause:
    """Train a rank, from `cause` on, until no batches are left for it."""
    while (batches := rank.next_batches()) is not None:
        exchange.begin(rank, cause)
        cause = await rank.compute(batches, exchange, cause)
        answer = await exchange.with_others(rank, cause)
        cause = await rank.apply(answer)
        exchange.finish(rank)
    exchange.end(rank)
    return cause


@dataclass(frozen=True, slots=True)
class Answer:
    """What a rank has to do with its weights before it takes its next batches.

    Args:
        cause: what brought the answer.
        places: of the vectors that are updated, which takes the devices' time; perhaps none.
        step: updates one of them.
    """

    cause: Cause
    places: Collection[int] = ()
    step: VectorStep | None = None


class Exchange(Protocol):
    """What a rank exchanges with."""

    def begin(self, rank: Rank, cause: Cause) -> None:
        """Note that the rank has taken its batches and has read its weights."""
        ...

    def computed(self, rank: Rank, place: int, cause: Cause) -> None:
        """Note that the rank has the gradient of one vector, where the solver asks for it."""
        ...

    async def with_others(self, rank: Rank, cause: Cause) -> Answer:
        """Exchange the gradient, or the weights, of a rank that has computed its batches."""
        ...

    def finish(self, rank: Rank) -> None:
        """Note that the rank has applied the answer."""
        ...

    def end(self, rank: Rank) -> None:
        """Note that no batches are left for the rank."""
        ...


class Rank(ABC):
    """What one rank has, and what it can do.

    Args:
        number: among those that it exchanges with, counted from 0.
        first: the number of its first copy among all copies.
        setting: what it has in common with those that it exchanges with.
        optimizer: makes its own steps.
        members: the ranks of a group; none of a rank that is one copy.

    Attributes:
        assignment: the batches that it trains now.
        is_idle: whether it has no batches.
        is_cancelled: whether its batches are to have no effect any more.
        steps: assignments that it has finished since it last reduced with others.
        rows: items that it has seen since then.
        gradients: of its batches, for each vector; None where there is none.
        touched: the places of vectors that have a gradient, also in `sleep` mode.
        counts: gradients of each vector.
        own: the weights' optimizer, where the rank makes steps itself.
        centre: the centre's vectors, from an exchange to the step that needs them.
        ready_s: when its gradient was there.
    """

    def __init__(
        self,
        number: int,
        first: int,
        setting: Setting,
        optimizer: Optimizer,
        members: Sequence[Rank] = (),
    ) -> None:
        self.number, self.first, self.members = number, first, members
        self._setting = setting
        names, shapes = [node.name for node in setting.nodes], shapes_of(setting.nodes)
        self.own = Parameters(names, setting.centre.thetas, optimizer, shapes)
        count = len(setting.nodes)
        self.assignment: Assignment | None = None
        self.is_idle, self.is_cancelled = True, False
        self.steps = self.rows = 0
        self.gradients: list[Vector | None] = [None] * count
        self.touched: set[int] = set()
        self.counts = [0] * count
        self.centre: list[Vector | None] | None = None
        self.ready_s = 0.0

    def next_batches(self) -> Assignment | None:
        """Take the next batches from the queue; None where none are left."""
        self.assignment = self._setting.batches.take(self.number)
        self.is_idle, self.is_cancelled = self.assignment is None, False
        return self.assignment

    @abstractmethod
    async def compute(self, batches: Assignment, exchange: Exchange, cause: Cause) -> Cause:
        """Compute the gradient of these batches; where the schedule inside steps, the steps.

        `exchange` is told of single vectors where a collective begins before the last is there.
        """

    @abstractmethod
    async def apply(self, answer: Answer) -> Cause:
        """Update the vectors of an answer, which takes the devices' time."""

    async def broadcast(self, cause: Cause) -> Cause:
        """Give all of its copies what an exchange brought; one copy has it."""
        return cause

    async def serve(
        self, cause: Cause, places: Collection[int], step: Callable[[int, float], Charged]
    ) -> Cause:
        """Do something else for each of these vectors, which takes the device's time.

        Only ranks of one copy are asked: `step` does it for one vector, at a time, and returns the
        shape that this is charged for.
        """
        raise AssertionError(f"rank {self.number} is a group, and sends whole gradients")

    def step(self, place: int, now_s: float, centre: Vector | None) -> None:
        """Step along its own gradient of one vector, pulled towards the centre's where given."""
        setting, gradient = self._setting, self.gradients[place]
        if not setting.is_abstract:
            theta = self.theta(place)
            if gradient is None:  # a rank without a batch: the spring alone
                stepped = setting.solver.local(theta, theta, centre, setting.pull, lambda _g, w: w)
            else:
                assert self.assignment is not None
                step = self.own.step(place, setting.rate(self.assignment.at), now_s)
                stepped = setting.solver.local(theta, gradient, centre, setting.pull, step)
                self.own.versions[place] += 1
            self.adopt(place, stepped)
        if place in self.touched:
            row = (setting.places[place], now_s, self.counts[place], 0.0, 0)
            setting.recorder.updates.append(row)

    def forget_gradients(self) -> None:
        """Let the gradients go that it has sent or applied."""
        self.touched.clear()
        for place in range(len(self.gradients)):
            self.gradients[place] = None
        for member in self.members:
            member.forget_gradients()

    def stash_centre(self, vectors: list[Vector | None]) -> None:
        """Keep the centre's vectors, which takes memory, until the step that needs them."""
        self.centre = vectors
        for member in self.members:
            member.stash_centre(vectors)

    def forget_centre(self) -> None:
        """Let the centre's vectors go."""
        self.centre = None
        for member in self.members:
            member.forget_centre()

    @abstractmethod
    def vectors_on(self) -> dict[int, list[int]]:
        """For each worker that exchanges for it, the places of the vectors that lie there."""

    @abstractmethod
    def theta(self, place: int) -> Vector:
        """Its weights of one node."""

    @abstractmethod
    def adopt(self, place: int, theta: Vector | None) -> None:
        """Use these weights from now on; None in `sleep` mode, where there are none."""

    def take_parameters(self) -> None:
        """Let its parameters lie in memory."""
        for member in self.members:
            member.take_parameters()
