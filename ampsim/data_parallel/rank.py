"""A rank: what takes part in an exchange, one copy of a model or a group of copies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from ampsim.data_parallel.calling_off import CallingOff
from ampsim.data_parallel.dealer import Deal
from ampsim.data_parallel.parameters import Parameters, shapes_of
from ampsim.data_parallel.setting import Setting
from ampsim.data_parallel.solver import Vector
from ampsim.optim import Optimizer
from ampsim.trace import START, Cause


class Exchange(Protocol):
    """What a rank asks of whatever it exchanges with; it is told when to go on."""

    def begun(self, rank: Rank, cause: Cause) -> None:
        """The rank has taken its deal and has read its weights."""
        ...

    def computed(self, rank: Rank, place: int, cause: Cause) -> None:
        """The rank has the gradient of the vector at `place`, where the solver asks for it."""
        ...

    def drained(self, rank: Rank, cause: Cause) -> None:
        """The rank has the gradient of its deal, or has no batch this time."""
        ...

    def updated(self, rank: Rank, cause: Cause) -> None:
        """The rank's own updates have ended."""
        ...

    def ended(self, rank: Rank) -> None:
        """There is no batch left for the rank."""
        ...

    def update(self, rank: Rank, place: int, now_s: float) -> tuple[int, ...] | None:
        """Change the vector at `place`; return the shape that this is charged for."""
        ...


class Rank(ABC):
    """What one rank has, and what is asked of it.

    Args:
        number: among those that it exchanges with, counted from 0.
        first: the number of its first copy among all copies.
        setting: what it has in common with those that it exchanges with.
        optimizer: makes its own steps.

    Attributes:
        exchange: what it exchanges with.
        deal: what it does now.
        steps: deals that it has done.
        rows: items that it has seen since it last met others.
        gradients: of its deal, for each vector; None where there is none.
        touched: the places of vectors that have a gradient, also in `sleep` mode.
        counts: gradients of each vector.
        own: the weights' optimizer, where the rank makes steps itself.
        centre: the centre's vectors, from an exchange to the step that needs them.
        ready_s, ready_cause: when its gradient was there, and what brought the last of it.
        calling_off: calls off its deal; None where nobody does.
    """

    exchange: Exchange

    def __init__(self, number: int, first: int, setting: Setting, optimizer: Optimizer) -> None:
        self.number, self.first = number, first
        self._setting = setting
        names, shapes = [node.name for node in setting.nodes], shapes_of(setting.nodes)
        self.own = Parameters(names, setting.centre.thetas, optimizer, shapes)
        self._begin_empty(len(setting.nodes))

    def _begin_empty(self, count: int) -> None:
        """Have nothing of any deal, for so many vectors."""
        self.deal: Deal | None = None
        self.calling_off: CallingOff | None = None
        self.is_idle = True
        self.steps = self.rows = 0
        self.gradients: list[Vector | None] = [None for _ in range(count)]
        self.touched: set[int] = set()
        self.counts = [0 for _ in range(count)]
        self.centre: list[Vector | None] | None = None
        self.ready_s = 0.0
        self.ready_cause: Cause = START

    def begin(self, cause: Cause) -> None:
        """Take what the dealer has."""
        deal = self.deal = self._setting.dealer.take(self.number)
        self.is_idle = deal is None
        if deal is None:
            self.exchange.ended(self)
            return
        self.exchange.begun(self, cause)
        self._compute(deal, cause)

    def close(self) -> None:
        """Note that what its deal was for is done."""
        assert self.deal is not None
        self._setting.dealer.close(self.deal)

    def forget_gradients(self) -> None:
        """Start its next deal anew."""
        self.touched.clear()
        for place in range(len(self.gradients)):
            self.gradients[place] = None

    def stash_centre(self, vectors: list[Vector | None]) -> None:
        """Keep the centre's vectors, which takes memory, until the step that needs them."""
        self.centre = vectors

    def forget_centre(self) -> None:
        """Let go of them."""
        self.centre = None

    def _ready(self, cause: Cause) -> None:
        """Exchange, or go on, after what came of its deal."""
        self.ready_s, self.ready_cause = self._setting.clock.now, cause
        self.exchange.drained(self, cause)

    @abstractmethod
    def _compute(self, deal: Deal, cause: Cause) -> None:
        """Work on its deal; `_ready` ends that."""

    @abstractmethod
    def vectors_on(self) -> dict[int, list[int]]:
        """For each worker that exchanges for it, the places of the vectors that lie there."""

    @abstractmethod
    def theta(self, place: int) -> Vector:
        """Its weights of one node."""

    @abstractmethod
    def adopt(self, place: int, theta: Vector | None) -> None:
        """Use these weights from now on; None in `sleep` mode, where there are none."""

    @abstractmethod
    def take_parameters(self) -> None:
        """Let its parameters lie in memory."""

    @abstractmethod
    def apply(self, cause: Cause, places: Sequence[int] | set[int]) -> None:
        """Let these vectors be updated, which takes the device's time; then `exchange.updated`."""

    def serve(
        self,
        cause: Cause,
        places: Collection[int],
        step: Callable[[int], tuple[int, ...]],
        then: Callable[[Cause], None],
    ) -> None:
        """Do something for each of these vectors, which takes the device's time; then `then`.

        Only ranks of one copy are asked: `step` does it for one vector, and returns the shape that
        this is charged for.
        """
        raise AssertionError(f"rank {self.number} is a group, and sends whole gradients")

    @abstractmethod
    def hand_out(self, cause: Cause, then: Callable[[Cause], None]) -> None:
        """Give what an exchange brought to all of its copies; then `then`."""
