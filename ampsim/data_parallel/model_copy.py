"""A rank that is one copy of a model on workers of its own, run inside by a schedule."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple

from ampsim.data_parallel.calling_off import CallingOff
from ampsim.data_parallel.dealer import Deal
from ampsim.data_parallel.rank import Rank
from ampsim.data_parallel.setting import (
    ELASTIC,
    NOTHING,
    PULL,
    SELECTION,
    Setting,
    work_in_rank,
)
from ampsim.data_parallel.solver import Vector
from ampsim.data_parallel.top_k import ErrorFeedback
from ampsim.machine import Memory
from ampsim.model_parallel.assembly import Assembly
from ampsim.model_parallel.footprint import GRADIENTS, STASHES, take_parameters
from ampsim.model_parallel.job import Job
from ampsim.model_parallel.passes import PassTotals
from ampsim.model_parallel.placed_node import Message, PlacedNode
from ampsim.model_parallel.shared_machine import SharedMachine
from ampsim.model_parallel.update import Updater
from ampsim.trace import Cause, Recorder


class _Serving(NamedTuple):
    """What a copy does beside its passes and updates, as of `Rank.serve`."""

    step: Callable[[int], tuple[int, ...]]
    then: Callable[[Cause], None]


class ModelCopy(Rank):
    """One copy of the model.

    Args:
        numbers: its own as of `Rank`, and that among all copies.
        job: the network of this copy.
        workers: those that are its own.
        placement: for each node, its worker.
        setting: as of `Rank`.
        totals: takes what the losses say, by part of the training.

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
        totals: Callable[[int], PassTotals],
    ) -> None:
        super().__init__(*numbers, setting, job.optimizer)
        self._totals = totals
        solver = setting.solver
        drains = solver.inside.admission.drains
        shared = SharedMachine(
            setting.instant,
            setting.fabric,
            setting.memories,
            workers,
            self,
            work_in_rank if setting.is_pulled or not drains or setting.share is not None else None,
            self._computed if solver.overlaps_backward else None,
            is_stoppable=solver.spare_ranks > 0,
        )
        self.assembly = Assembly(
            job,
            setting.cluster,
            list(placement),
            solver.inside,
            recorder=_recorder_of(setting),
            settings=setting.run,
            shared=shared,
        )
        self.controller = self.assembly.controller
        self.controller.between = self
        placed = self.assembly.placed_nodes
        self.learners: list[PlacedNode] = [placed[place] for place in setting.places]
        self._vector_of = {place: index for index, place in enumerate(setting.places)}
        self._averages = solver.inside.updates.averages
        self._updater = None if drains else _updater(setting, job, averages=self._averages)
        self._is_inside = False
        self.feedback: ErrorFeedback | None = None
        if setting.share is not None:
            self.feedback = ErrorFeedback([node.name for node in setting.nodes])
        self._serving: _Serving | None = None
        self._centre_bytes: dict[int, int] = {}
        self._begin_training()

    def _begin_training(self) -> None:
        """Let losses start backward passes."""
        for one in self.assembly.placed_nodes:
            one.node.is_training = True
            if one.is_loss:
                one.forward_routes = one.gradient_routes
        if self._setting.solver.spare_ranks:
            self.calling_off = CallingOff(self.assembly)

    def _computed(self, message: Message) -> None:
        """Note that a node has the gradients of all instances of the deal."""
        placed, _port, _state, _payload, cause = message
        self.exchange.computed(self, self._vector_of[placed.index], cause)

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

    def _compute(self, deal: Deal, cause: Cause) -> None:
        if self._updater is not None:
            self._updater.start_epoch(deal.epoch, deal.first - deal.passed, deal.whole)
            self._is_inside = True
        if self._setting.solver.overlaps_backward:
            for placed in self.learners:
                assert placed.learner is not None
                placed.learner.min_update_interval = len(deal.batches) or None
        if deal.batches:
            self.controller.start_pass(deal.batches, True, cause, first_instance=deal.first)
        else:
            self._ready(cause)

    def drained(self, cause: Cause) -> None:
        """Take the gradients of its deal, and what the losses said."""
        assert self.deal is not None
        if self.calling_off is not None and self.calling_off.is_on:
            self.calling_off.end(cause)
            return
        self._totals(self.deal.part).include(self.controller.totals)
        self.rows += self.deal.rows
        if self._updater is not None:  # a node may be about to send itself an update
            self._setting.clock.call_later(0.0, partial(self._update_last, cause))
            return
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
        if self.feedback is None:
            self._ready(cause)
        else:
            self.serve(cause, self.touched, self._select, self._ready)

    def _select(self, place: int) -> tuple[int, ...]:
        """Choose what is sent of one vector, and keep the rest."""
        count, gradient = self._setting.kept_count(place), self.gradients[place]
        if gradient is not None:
            assert self.feedback is not None
            now_s = self._setting.clock.now
            self.gradients[place] = self.feedback.sent(place, gradient, count, now_s)
        return SELECTION, count

    def _update_last(self, cause: Cause) -> None:
        """Let nodes apply what gradients are left, after the updates that they sent themselves."""
        self.controller.send_updates(cause, set(self._setting.places))
        self._setting.instant.settle()

    def _ready(self, cause: Cause) -> None:
        """Exchange, or go on, after what came of its deal."""
        self._is_inside = False
        super()._ready(cause)

    def apply(self, cause: Cause, places: Sequence[int] | set[int]) -> None:
        """Let these vectors be updated, which takes the device's time; then `exchange.updated`."""
        if places:
            chosen = {self._setting.places[place] for place in places}
            self.controller.send_updates(cause, chosen)
        else:
            self.updated(cause)

    def serve(
        self,
        cause: Cause,
        places: Collection[int],
        step: Callable[[int], tuple[int, ...]],
        then: Callable[[Cause], None],
    ) -> None:
        """As of `Rank`; the messages are those of updates."""
        if not places:
            then(cause)
            return
        self._serving = _Serving(step, then)
        self.controller.send_updates(cause, {self._setting.places[place] for place in places})

    def hand_out(self, cause: Cause, then: Callable[[Cause], None]) -> None:
        """One copy has what there is."""
        then(cause)

    def update(self, placed: PlacedNode, now_s: float) -> tuple[int, ...] | None:
        """Serve an update message."""
        assert placed.learner is not None
        if self._is_inside and self._updater is not None:
            is_due = placed.learner.gradient_count > 0
            return self._updater.update(placed, now_s) if is_due else NOTHING
        place = self._vector_of[placed.index]
        if self._serving is not None:
            return self._serving.step(place)
        shape = self.exchange.update(self, place, now_s)
        placed.learner.updated()
        return PULL if shape == ELASTIC and self._updater is not None else shape

    def updated(self, cause: Cause) -> None:
        """Go on after its updates."""
        serving, self._serving = self._serving, None
        if serving is not None:
            serving.then(cause)
        elif self._is_inside:
            self._ready(cause)
        else:
            self.exchange.updated(self, cause)

    def forget_gradients(self) -> None:
        """Start its next deal anew."""
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
        """Let go of them."""
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
