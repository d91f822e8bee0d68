"""A rank trains: it takes batches, computes their gradient, exchanges and updates its weights.

`train` is all that a rank does, whatever the solver. It is a coroutine, read top down, and goes on
within the very call that brings what it awaits: no event of the clock lies between. So what happens
at one instant keeps the order in which it was brought about (docs/decisions/0004-instants.md), on
any clock.
"""

from __future__ import annotations

import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

from ampsim.data_parallel.batch_queue import Assignment
from ampsim.data_parallel.parameters import Parameters, shapes_of
from ampsim.data_parallel.setting import ELASTIC, NOTHING, SELECTION, SUM, Setting, work_in_rank
from ampsim.data_parallel.top_k import ErrorFeedback
from ampsim.ir import Direction, ParameterizedNode
from ampsim.machine import Memory
from ampsim.model_parallel.assembly import assemble
from ampsim.model_parallel.called_off import StoppableWorker
from ampsim.model_parallel.controller import BY_CONTROLLER
from ampsim.model_parallel.footprint import GRADIENTS, OPTIMIZER, STASHES, take_parameters
from ampsim.model_parallel.job import Job, PassTotals
from ampsim.model_parallel.memories import SharedMachine
from ampsim.model_parallel.placed_node import Message, PlacedNode
from ampsim.model_parallel.price import Charge, Charged
from ampsim.model_parallel.update import Updater, gradient_or_fault
from ampsim.optim import Optimizer, Vector
from ampsim.trace import Cause
from ampsim.trace.recorder import NO_STALENESS

Value = TypeVar("Value")

Resume: TypeAlias = Callable[..., None]
"""Lets a coroutine go on, with the value that it awaited."""

VectorStep: TypeAlias = Callable[[int, float], Charged]
"""``step(place, now_s)`` changes the vector at `place`; it returns what this is charged for."""


async def train(rank: Rank, exchange: Exchange, cause: Cause) -> Cause:
    """Train a rank, from `cause` on, until no batches are left for it.

    `with_others` is the rest of a step: the rank waits for its turn, where ranks have turns; it
    pushes and pulls, or reduces with all others; and it updates its weights by what that gave.
    """
    while (batches := rank.next_batches()) is not None:
        exchange.begin(rank, cause)
        cause = await rank.compute(batches, exchange, cause)
        cause = await exchange.with_others(rank, batches, cause)
    exchange.end(rank)
    return cause


def run(
    coroutine: Coroutine[Any, Any, Any],
    ended: Callable[[Any], None] | None = None,
    value: Any = None,
) -> None:
    """Run a coroutine up to what it awaits next.

    Args:
        coroutine: awaits nothing but `until`.
        ended: called with what it returns.
        value: what it awaited; None to begin.
    """
    try:
        begin = coroutine.send(value)
    except StopIteration as end:
        if ended is not None:
            ended(end.value)
        return
    if begin is not None:
        begin(partial(run, coroutine, ended))


@types.coroutine
def until(begin: Callable[[Resume], None], times: int = 1) -> Generator[Any, Any, Any]:
    """Await something that is begun now and ends later, perhaps at once.

    Args:
        begin: called when the coroutine has stopped, with what lets it go on.
        times: how often that is called; the last value is returned.
    """
    value = yield begin
    for _ in range(times - 1):
        value = yield None
    return value


async def all_of(made: Sequence[Callable[[], Coroutine[Any, Any, Value]]]) -> Value:
    """Await what these make, begun in their order; return what the last one to end returns."""

    def begin(resume: Resume) -> None:
        for make in made:  # each when it begins: one before it may fail
            run(make(), resume)

    return await until(begin, len(made))


class Exchange(ABC):
    """The others that a rank exchanges with.

    Args:
        setting: what ranks have in common.
        ranks: all of them.
    """

    def __init__(self, setting: Setting, ranks: Sequence[Rank]) -> None:
        self._setting, self._ranks = setting, ranks

    @abstractmethod
    async def with_others(self, rank: Rank, batches: Assignment, cause: Cause) -> Cause:
        """Exchange the gradient, or the weights, of a rank that has computed; update it by that."""

    def begin(self, rank: Rank, cause: Cause) -> None:  # noqa: B027  # most need not know
        """Note that the rank has taken its batches and has read its weights."""

    def computed(self, rank: Rank, place: int, cause: Cause) -> None:  # noqa: B027  # as above
        """Note that the rank has the gradient of one vector, before it has all."""

    def end(self, rank: Rank) -> None:  # noqa: B027  # as above
        """Note that no batches are left for the rank."""

    def note_unfinished(self, end_s: float) -> None:  # noqa: B027  # as above
        """Record exchanges that the end of the run cuts, where its weights have what they bring."""

    def weights(self, part: int) -> list[Vector]:
        """The weights that are validated after a part of the training: the centre's."""
        return list(self._setting.centre.thetas)


class NodeWeights(Protocol):
    """The weights of one node."""

    @property
    def theta(self) -> Vector:
        """The parameters, flat."""
        ...

    def adopt(self, theta: Vector) -> None:
        """Use other parameters from now on."""
        ...


class Rank(ABC):
    """One rank: its weights, its gradients, its batches, and the steps it makes with them.

    Args:
        numbers: its own among those that it exchanges with, counted from 0, and that of its first
            copy among all copies.
        setting: what it has in common with those that it exchanges with.
        optimizer: makes its own steps.
        nodes: its weights, one for each node that learns; empty vectors in `sleep` mode.
        members: the ranks of a group; none of a rank that is one copy.

    Attributes:
        number, first: the numbers.
        assignment: the batches that it trains now.
        is_idle: whether it has no batches.
        is_cancelled: whether its batches are to have no effect any more.
        gradients: of its batches, for each vector; None where there is none.
        counts: how many gradients are in each vector that has any, also in `sleep` mode.
        own: the weights' optimizer, where the rank makes steps itself.
        centre: the centre's vectors, from an exchange to the step that needs them.
        sent: its own vectors as a server has got them, until that step; None where it sent none.
        ready_s: when its gradient was there.
    """

    def __init__(
        self,
        numbers: tuple[int, int],
        setting: Setting,
        optimizer: Optimizer,
        nodes: Sequence[NodeWeights],
        members: Sequence[Rank] = (),
    ) -> None:
        self.number, self.first = numbers
        self.members, self.nodes = members, nodes
        self._setting = setting
        names, shapes = [node.name for node in setting.nodes], shapes_of(setting.nodes)
        self.own = Parameters(names, setting.centre.thetas, optimizer, shapes)
        self.assignment: Assignment | None = None
        self.is_idle, self.is_cancelled = True, False
        self.gradients: list[Vector | None] = []
        self.counts: dict[int, int] = {}
        self.centre: Mapping[int, Vector | None] | None = None
        self.sent: Sequence[Vector | None] | None = None
        self.ready_s = 0.0

    def next_batches(self) -> Assignment | None:
        """Take the next batches from the queue; None where none are left."""
        self.assignment = self._setting.batches.take(self.number)
        self.is_idle, self.is_cancelled = self.assignment is None, False
        self.gradients, self.counts = [None] * len(self.nodes), {}
        return self.assignment

    @abstractmethod
    async def compute(self, batches: Assignment, exchange: Exchange, cause: Cause) -> Cause:
        """Compute the gradient of these batches; where the schedule inside steps, the steps.

        `exchange` is told of single vectors where a collective begins before the last is there.
        """

    @abstractmethod
    async def update_vectors(
        self, places: Collection[int], step: VectorStep, at: float, cause: Cause
    ) -> Cause:
        """Make a step at `at`, in epochs, with each of these vectors; it takes devices' time."""

    async def broadcast(self, cause: Cause) -> Cause:
        """Give all of its copies what an exchange brought; one copy has it."""
        return cause

    def step(self, centre: Mapping[int, Vector | None] | None, place: int, now_s: float) -> Charged:
        """Step along its own gradient of one vector, pulled towards the centre's where given."""
        setting, gradient = self._setting, self.gradients[place]
        if not setting.is_abstract:
            node, towards = self.nodes[place], None if centre is None else centre[place]
            theta, local = node.theta, setting.solver.local
            if gradient is None:  # has no batch, or has stepped inside: the spring alone
                sent = None if self.sent is None else self.sent[place]
                before = theta if sent is None else sent
                stepped = local(before, before, towards, setting.pull, lambda _g, _w: theta)
            else:
                assert self.assignment is not None
                rate = setting.rate(self.assignment.at)
                step = partial(self.own.step, place, rate, now_s)
                stepped = local(theta, gradient, towards, setting.pull, step)
                self.own.versions[place] += 1
            node.adopt(stepped)
        if place in self.counts:
            row = (setting.places[place], now_s, self.counts[place], 0.0, 0)
            setting.recorder.updates.append(row)
        if centre is None:
            return None
        pulls = 2 if setting.decisions.meets == "all" else 1  # a server pulls the centre itself
        return Charge(ELASTIC, (int(place in self.counts), pulls), 1)

    def stash_centre(
        self, vectors: Mapping[int, Vector | None], sent: Sequence[Vector | None] | None = None
    ) -> None:
        """Keep the centre's vectors, which takes memory, until the step that needs them.

        So long it knows what it has `sent`, too, where the server takes the difference.
        """
        self.centre, self.sent = vectors, sent
        for member in self.members:
            member.stash_centre(vectors)

    def forget_centre(self) -> None:
        """Let the centre's vectors go."""
        self.centre = self.sent = None
        for member in self.members:
            member.forget_centre()

    def note_adoption(self, cause: Cause) -> Cause:
        """Record that all copies have other weights now, which takes no time; return the record.

        Without it a run that ends with an exchange would end, in its trace, before that.
        """
        return [member.note_adoption(cause) for member in self.members][-1]

    @abstractmethod
    def vectors_on(self) -> dict[int, list[int]]:
        """For each worker that exchanges for it, the places of the vectors that lie there."""

    def take_parameters(self) -> None:
        """Let its parameters lie in memory, and what it keeps of a centre that no server has."""
        for member in self.members:
            member.take_parameters()
        decisions = self._setting.decisions
        if decisions.meets == "all" and (decisions.is_elastic or decisions.has_outer_step):
            self.hold(STASHES, 1)
        if decisions.has_outer_step:
            self.hold(OPTIMIZER, self._setting.solver.outer().arrays)

    def hold(self, category: int, arrays: int) -> None:
        """Let so many arrays of the size of all vectors lie in the memory of each copy."""
        for member in self.members:
            member.hold(category, arrays)


class ModelCopy(Rank):
    """A rank that is one copy of the model, on workers of its own, run inside by a schedule.

    Args:
        numbers: as of `Rank`.
        job: the network of this copy.
        workers: those that are its own.
        placement: for each node, its worker.
        setting: as of `Rank`.
        totals: take what the losses say, by part of the training.

    Attributes:
        feedback: what it has kept back of its gradients; None where it sends all of them.
    """

    def __init__(
        self,
        numbers: tuple[int, int],
        job: Job,
        workers: range,
        placement: Sequence[int],
        setting: Setting,
        *,
        totals: Mapping[int, PassTotals],
    ) -> None:
        inside, decisions, recorder = setting.solver.inside, setting.decisions, setting.recorder
        shared = SharedMachine(
            setting.instant,
            setting.fabric,
            setting.memories,
            workers,
            self,
            work_in_rank,
            self._computed if decisions.overlap else None,
            is_stoppable=decisions.backup_ranks > 0,
            updates_by_itself=setting.steps_at_server,  # of what it is to send
        )
        # where a server applies gradients, they have no staleness before
        self.assembly = assemble(
            job,
            setting.cluster,
            list(placement),
            inside,
            recorder=recorder.without_staleness() if setting.steps_at_server else recorder,
            settings=setting.run,
            shared=shared,
        )
        self.controller = self.assembly.controller
        placed = self.assembly.placed_nodes
        self._placed: list[PlacedNode] = [placed[place] for place in setting.places]
        self._name, self._epoch = f"{job.graph.name}, rank {numbers[1]}", 0
        self._nodes = job.graph.parameterized
        super().__init__(numbers, setting, job.optimizer, self._nodes)
        self._vector_of = {place: index for index, place in enumerate(setting.places)}
        self._totals, self._averages = totals, inside.updates.averages
        self._updater: Updater | None = None
        if not inside.admission.drains:
            self._updater = Updater(job.optimizer, recorder, averages_instances=self._averages)
        self.feedback: ErrorFeedback | None = None
        if decisions.compression is not None:
            self.feedback = ErrorFeedback([node.name for node in setting.nodes])
        self._ready = self._made_ready()
        self._exchange: Exchange
        self._step: VectorStep | None = None
        for one in placed:  # losses start backward passes
            one.node.is_training = True

    def _made_ready(self) -> VectorStep | None:
        """Say what makes of a gradient what is sent; None where nothing does that takes time."""
        if self.feedback is not None:
            return self._select
        sums = self._setting.steps_at_server and any(one.takes_time(SUM) for one in self._placed)
        return (lambda _place, _now_s: SUM) if sums else None

    # what it awaits: its passes and its updates

    async def compute(self, batches: Assignment, exchange: Exchange, cause: Cause) -> Cause:
        """Compute the gradient of these batches; where the schedule inside steps, the steps."""
        if batches.batches:
            self._prepare(batches, exchange)
            start, given = self.controller.start_pass, batches.batches
            cause = await until(partial(start, given, True, cause, first_instance=batches.first))
            if self.is_cancelled:
                self._end_cancellation()
                return cause
            self._totals[batches.part].include(self.controller.totals)
            if self._updater is not None:
                cause = await until(partial(self._send_last_updates, cause))
            for place, node in enumerate(self._nodes):
                if node.gradient_count:
                    self.counts[place] = node.gradient_count
                    if not node.is_abstract:
                        self.gradients[place] = gradient = gradient_or_fault(node)
                        if self._averages and len(node.instances) > 1:
                            gradient *= gradient.dtype.type(1.0 / len(node.instances))
            if self._ready is not None:
                cause = await self.update_vectors(self.counts, self._ready, batches.at, cause)
        self.ready_s = self._setting.clock.now
        return cause

    async def update_vectors(
        self, places: Collection[int], step: VectorStep, at: float, cause: Cause
    ) -> Cause:
        """Make a step with each of these vectors, when its message has come."""
        if not places:
            return cause
        self._step, self._at = step, at
        nodes = {self._setting.places[place] for place in places}
        return await until(partial(self.controller.send_updates, cause, nodes))

    # what its workers ask

    def update(self, placed: PlacedNode, now_s: float) -> Charged:
        """Serve an update message."""
        assert placed.learner is not None
        if self._step is not None:
            self.own.optimizer.charge(placed.learner, self._setting.rate(self._at))
            return self._step(self._vector_of[placed.index], now_s)
        assert self._updater is not None
        return self._updater.update(placed, now_s) if placed.learner.gradient_count else NOTHING

    def _computed(self, message: Message) -> None:
        """Note that a node has the gradients of all instances of the batches."""
        placed, _port, _state, _payload, cause = message
        self._exchange.computed(self, self._vector_of[placed.index], cause)

    # its passes

    def require_drained(self) -> None:
        """Check that its passes have left nothing.

        Raises:
            StuckError: a cache is not empty.
        """
        self.assembly.require_drained(self._name, self._setting.clock.now)

    def _prepare(self, batches: Assignment, exchange: Exchange) -> None:
        """Let nodes know of the pass that is to come."""
        self._exchange = exchange
        if batches.epoch != self._epoch:
            self._epoch = batches.epoch
            self.require_drained()
        for node in self._nodes:
            if node.gradient_count:  # the last pass's, which has been exchanged
                node.updated()
        if self._updater is not None:
            self._updater.start_epoch(batches.epoch, batches.first - batches.passed, batches.whole)
            self._step = None
        if self._setting.decisions.overlap:
            for node in self._nodes:
                node.min_update_interval = len(batches.batches)

    def _send_last_updates(self, cause: Cause, resume: Resume) -> None:
        """Let nodes apply what gradients are left, after the updates that they sent themselves."""

        def send() -> None:
            self.controller.send_updates(cause, set(self._setting.places), resume)
            self._setting.instant.settle()

        self._setting.clock.call_later(0.0, send)

    def _select(self, place: int, now_s: float) -> Charged:
        """Choose what is sent of one vector, and keep the rest."""
        count, gradient = self._setting.kept_count(place), self.gradients[place]
        if gradient is not None:
            assert self.feedback is not None
            assert self.assignment is not None
            self.feedback.weigh(place, self.assignment.share)
            self.gradients[place] = self.feedback.sent(place, gradient, count, now_s)
        return Charge(SELECTION, (count, int(self._setting.steps_at_server)), 1)

    def cancel(self) -> None:
        """Let what is left of its pass go through without time; its gradient is not wanted."""
        self.is_cancelled = True
        for placed in self.assembly.placed_nodes:
            placed.leave_links()
        for worker in self._stoppable_workers():
            worker.call_off()

    def _end_cancellation(self) -> None:
        """Be as before the pass, of which nothing is in flight any more."""
        self.require_drained()
        for worker in self._stoppable_workers():
            worker.resume()
        for placed in self.assembly.placed_nodes:
            placed.rejoin_links()
            node = placed.node
            if isinstance(node, ParameterizedNode):
                if node.gradient_count and not node.is_abstract:
                    node.take_gradient()
                node.reset_accumulation()

    def _stoppable_workers(self) -> list[StoppableWorker]:
        return [one for one in self.assembly.workers if isinstance(one, StoppableWorker)]

    # what it has

    def note_adoption(self, cause: Cause) -> Cause:
        """Record a step without time of each node that learns."""
        recorder, now_s, noted = self._setting.recorder, self._setting.clock.now, cause
        for placed in self._placed:
            of = placed.worker, placed.index, Direction.UPDATE, 0, 0, 0
            kind = recorder.kinds.number(of)
            recorder.spans.append((kind, now_s, now_s, NO_STALENESS, BY_CONTROLLER, cause))
            noted = recorder.span_number()
        return noted

    def vectors_on(self) -> dict[int, list[int]]:
        """For each worker of its own, the places of the vectors that lie there."""
        found: dict[int, list[int]] = {}
        for place, placed in enumerate(self._placed):
            found.setdefault(placed.worker, []).append(place)
        return found

    def take_parameters(self) -> None:
        """Let its parameters lie in memory, and what is kept beside them."""
        super().take_parameters()
        for node, placed in zip(self._nodes, self._placed, strict=True):
            if placed.footprint is not None:
                is_predicted = placed.prediction is not None
                take_parameters(node, placed.footprint.memory, is_predicted=is_predicted)
        if self.feedback is not None:
            self.hold(GRADIENTS, 1)

    def hold(self, category: int, arrays: int) -> None:
        """Let so many arrays of the size of all vectors lie in the memory of each worker."""
        for memory, size_bytes in self._vector_bytes():
            memory.take(category, arrays * size_bytes)

    def stash_centre(
        self, vectors: Mapping[int, Vector | None], sent: Sequence[Vector | None] | None = None
    ) -> None:
        """Keep the centre's vectors, which takes memory, until the step that needs them."""
        super().stash_centre(vectors, sent)
        self.hold(STASHES, 1)

    def forget_centre(self) -> None:
        """Let the centre's vectors go, and the memory that they took."""
        super().forget_centre()
        for memory, size_bytes in self._vector_bytes():
            memory.give(STASHES, size_bytes)

    def _vector_bytes(self) -> list[tuple[Memory, int]]:
        """The memory of each worker, where that is counted, and the size of its vectors."""
        setting = self._setting
        each = [(setting.memories.of(one), places) for one, places in self.vectors_on().items()]
        return [
            (memory, sum(map(setting.bytes_of, places)))
            for memory, places in each
            if memory is not None
        ]
