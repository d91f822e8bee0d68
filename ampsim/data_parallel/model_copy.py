"""A rank that is one copy of a model on workers of its own, run inside by a schedule."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from ampsim.data_parallel.batch_queue import Assignment
from ampsim.data_parallel.coroutine import Resume, until
from ampsim.data_parallel.decisions import Vector
from ampsim.data_parallel.rank import Answer, Exchange, Rank
from ampsim.data_parallel.setting import NOTHING, SELECTION, Setting, work_in_rank
from ampsim.data_parallel.top_k import ErrorFeedback
from ampsim.ir import ParameterizedNode
from ampsim.machine import Memory
from ampsim.model_parallel.assembly import Assembly, assemble
from ampsim.model_parallel.called_off import StoppableWorker
from ampsim.model_parallel.footprint import GRADIENTS, STASHES, take_parameters
from ampsim.model_parallel.job import Job, PassTotals
from ampsim.model_parallel.memories import SharedMachine
from ampsim.model_parallel.placed_node import Message, PlacedNode
from ampsim.model_parallel.price import Charge, Charged
from ampsim.model_parallel.update import Updater
from ampsim.trace import Cause, Recorder


class Cancellation:
    """Cancels the pass of one copy.

    Args:
        assembly: the copy's, in training; its workers can be stopped.
    """

    def __init__(self, assembly: Assembly) -> None:
        self._workers = [one for one in assembly.workers if isinstance(one, StoppableWorker)]
        self._placed_nodes = assembly.placed_nodes

    def begin(self) -> None:
        """Let what is left of the pass go through without time."""
        for placed in self._placed_nodes:
            placed.leave_links()
        for worker in self._workers:
            worker.call_off()

    def end(self) -> None:
        """Be as before the pass, of which nothing is in flight any more."""
        for worker in self._workers:
            worker.resume()
        for placed in self._placed_nodes:
            placed.rejoin_links()
            node = placed.node
            assert not [*node.pending()], f"{node.name} still holds what was cancelled"
            if isinstance(node, ParameterizedNode):
                if node.gradient_count and not node.is_abstract:
                    node.take_gradient()
                node.reset_accumulation()


class ModelCopy(Rank):
    """One copy of the model.

    Args:
        numbers: its own as of `Rank`, and that among all copies.
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
        super().__init__(*numbers, setting, job.optimizer)
        self._totals = totals
        solver, decisions = setting.solver, setting.decisions
        drains = solver.inside.admission.drains
        shared = SharedMachine(
            setting.instant,
            setting.fabric,
            setting.memories,
            workers,
            self,
            work_in_rank,
            self._computed if decisions.overlap else None,
            between=self,
            is_stoppable=decisions.backup_ranks > 0,
        )
        self.assembly = assemble(
            job,
            setting.cluster,
            list(placement),
            solver.inside,
            recorder=_recorder_of(setting),
            settings=setting.run,
            shared=shared,
        )
        self.controller = self.assembly.controller
        placed = self.assembly.placed_nodes
        self.learners: list[PlacedNode] = [placed[place] for place in setting.places]
        self._vector_of = {place: index for index, place in enumerate(setting.places)}
        self._averages = solver.inside.updates.averages
        self._updater = None if drains else _updater(setting, job, averages=self._averages)
        self.feedback: ErrorFeedback | None = None
        if setting.decisions.compression is not None:
            self.feedback = ErrorFeedback([node.name for node in setting.nodes])
        self._resume: Resume
        self._tells: Exchange
        self._step: Callable[[int, float], Charged] | None = None
        self._is_applying = False
        self._centre_bytes: dict[int, int] = {}
        self._begin_training()

    def _begin_training(self) -> None:
        """Let losses start backward passes."""
        for one in self.assembly.placed_nodes:
            one.node.is_training = True
        if self._setting.decisions.backup_ranks:
            self._cancellation = Cancellation(self.assembly)

    # what it awaits: its passes and its updates

    async def compute(self, batches: Assignment, exchange: Exchange, cause: Cause) -> Cause:
        """Compute the gradient of these batches; where the schedule inside steps, the steps."""
        self._prepare(batches, exchange)
        if batches.batches:
            cause = await until(partial(self._start_pass, batches, cause))
            if self.is_cancelled:
                self._cancellation.end()
                return cause
            self._totals[batches.part].include(self.controller.totals)
            self.rows += batches.rows
            if self._updater is not None:
                cause = await until(partial(self._start_last_updates, cause))
            else:
                self._take_gradients()
                if self.feedback is not None:
                    cause = await self.serve(cause, self.touched, self._select)
        self.ready_s = self._setting.clock.now
        return cause

    async def apply(self, answer: Answer) -> Cause:
        """Update the vectors of an answer, which takes the devices' time."""
        if answer.step is None or not answer.places:
            return answer.cause
        self._step, self._is_applying = partial(answer.step, self), True
        return await until(partial(self._send_updates, answer.cause, answer.places))

    async def serve(
        self, cause: Cause, places: Collection[int], step: Callable[[int, float], Charged]
    ) -> Cause:
        """Do something else for each of these vectors; the messages are those of updates."""
        if not places:
            return cause
        self._step, self._is_applying = step, False
        return await until(partial(self._send_updates, cause, places))

    def cancel(self) -> None:
        """Cancel its pass; it is over when nothing of it is in flight any more."""
        self.is_cancelled = True
        self._cancellation.begin()

    # what its controller and its workers tell

    def drained(self, cause: Cause) -> None:
        """Go on after the pass."""
        self._resume(cause)

    def updated(self, cause: Cause) -> None:
        """Go on after the updates."""
        self._resume(cause)

    def update(self, placed: PlacedNode, now_s: float) -> Charged:
        """Serve an update message."""
        learner = placed.learner
        assert learner is not None
        if self._step is None:
            return self._update_inside(placed, now_s)
        shape = self._step(self._vector_of[placed.index], now_s)
        if self._is_applying:
            learner.updated()
        return shape

    def _computed(self, message: Message) -> None:
        """Note that a node has the gradients of all instances of the batches."""
        placed, _port, _state, _payload, cause = message
        self._tells.computed(self, self._vector_of[placed.index], cause)

    # the pass

    def _prepare(self, batches: Assignment, exchange: Exchange) -> None:
        """Let nodes know of the pass that is to come."""
        self._tells = exchange
        if self._updater is not None:
            self._updater.start_epoch(batches.epoch, batches.first - batches.passed, batches.whole)
            self._step = None
        if self._setting.decisions.overlap:
            for placed in self.learners:
                assert placed.learner is not None
                placed.learner.min_update_interval = len(batches.batches) or None

    def _start_pass(self, batches: Assignment, cause: Cause, resume: Resume) -> None:
        self._resume = resume
        self.controller.start_pass(batches.batches, True, cause, first_instance=batches.first)

    def _send_updates(self, cause: Cause, places: Collection[int], resume: Resume) -> None:
        self._resume = resume
        self.controller.send_updates(cause, {self._setting.places[one] for one in places})

    def _update_inside(self, placed: PlacedNode, now_s: float) -> Charged:
        """Make the step of a node that updates itself."""
        assert self._updater is not None
        assert placed.learner is not None
        is_due = placed.learner.gradient_count > 0
        return self._updater.update(placed, now_s) if is_due else NOTHING

    def _start_last_updates(self, cause: Cause, resume: Resume) -> None:
        """Let nodes apply what gradients are left, after the updates that they sent themselves."""

        def send() -> None:
            self.controller.send_updates(cause, set(self._setting.places))
            self._setting.instant.settle()

        self._resume = resume
        self._setting.clock.call_later(0.0, send)

    def _take_gradients(self) -> None:
        """Take the gradients of the pass from the nodes."""
        for place, placed in enumerate(self.learners):
            node = placed.learner
            assert node is not None
            self.counts[place] = node.gradient_count
            if not node.gradient_count:
                continue
            self.touched.add(place)
            if not node.is_abstract:
                gradient = node.take_gradient()
                if self._averages and len(node.instances) > 1:
                    gradient *= gradient.dtype.type(1.0 / len(node.instances))
                self.gradients[place] = gradient

    def _select(self, place: int, now_s: float) -> Charged:
        """Choose what is sent of one vector, and keep the rest."""
        count, gradient = self._setting.kept_count(place), self.gradients[place]
        if gradient is not None:
            assert self.feedback is not None
            self.gradients[place] = self.feedback.sent(place, gradient, count, now_s)
        return Charge(SELECTION, (count,))

    # what it has

    def vectors_on(self) -> dict[int, list[int]]:
        """For each worker of its own, the places of the vectors that lie there."""
        found: dict[int, list[int]] = {}
        for place, placed in enumerate(self.learners):
            found.setdefault(placed.worker, []).append(place)
        return found

    def theta(self, place: int) -> Vector:
        """Its weights of one node."""
        learner = self.learners[place].learner
        assert learner is not None
        return learner.theta

    def adopt(self, place: int, theta: Vector | None) -> None:
        """Use these weights from now on; None in `sleep` mode, where there are none."""
        learner = self.learners[place].learner
        assert learner is not None
        if theta is not None and theta is not learner.theta:
            learner.adopt(theta)

    def take_parameters(self) -> None:
        """Let its parameters lie in memory."""
        for placed in self.learners:
            if placed.footprint is not None and placed.learner is not None:
                take_parameters(placed.learner, placed.footprint.memory, is_predicted=False)
        if self.feedback is not None:
            for worker, places in self.vectors_on().items():
                memory = self._setting.memories.of(worker)
                if memory is not None:
                    memory.take(GRADIENTS, sum(map(self._setting.bytes_of, places)))

    def forget_gradients(self) -> None:
        """Let the gradients go that it has sent or applied, and those that nodes still count."""
        super().forget_gradients()
        for placed in self.learners:
            if placed.learner is not None and placed.learner.gradient_count:
                placed.learner.updated()

    def stash_centre(self, vectors: list[Vector | None]) -> None:
        """Keep the centre's vectors, which takes memory, until the step that needs them."""
        super().stash_centre(vectors)
        for worker, places in self.vectors_on().items():
            memory = self._setting.memories.of(worker)
            if memory is not None:
                size_bytes = sum(map(self._setting.bytes_of, places))
                self._centre_bytes[worker] = size_bytes
                memory.take(STASHES, size_bytes)

    def forget_centre(self) -> None:
        """Let the centre's vectors go, and the memory that they took."""
        super().forget_centre()
        for worker, size_bytes in self._centre_bytes.items():
            memory: Memory | None = self._setting.memories.of(worker)
            assert memory is not None
            memory.give(STASHES, size_bytes)
        self._centre_bytes = {}


def _updater(setting: Setting, job: Job, *, averages: bool) -> Updater:
    """What makes the steps of a rank whose nodes update themselves."""
    return Updater(job.optimizer, setting.recorder, averages_instances=averages)


def _recorder_of(setting: Setting) -> Recorder:
    """Who records a rank's steps; where a server applies gradients, they have no staleness yet."""
    recorder = setting.recorder
    return recorder.without_staleness() if setting.steps_at_server else recorder
