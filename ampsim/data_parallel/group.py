"""Groups of ranks that act as one, and what makes the ranks of a solver.

Where the solver inside sends gradients, the group has the mean gradient of its ranks' batches;
where it sends weights, the group has made its steps and has the weights that the all-reduce gave.
One rank of the group exchanges for all, the first: what the exchange brings it sends to the others
along a tree, on the group's own links, after whatever their collectives still have under way.
What the solver around makes of weights is worked out once, and each copy is charged for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ampsim.data_parallel.all_reduce import AllReduce, all_reduce_of
from ampsim.data_parallel.batch_queue import Assignment, GroupQueue
from ampsim.data_parallel.parameters import Parameters, shapes_of
from ampsim.data_parallel.rank import (
    Exchange,
    ModelCopy,
    Rank,
    Resume,
    VectorStep,
    all_of,
    run,
    train,
    until,
)
from ampsim.data_parallel.setting import Setting
from ampsim.hardware import HOST
from ampsim.ir import Graph
from ampsim.model_parallel import Job, PassTotals
from ampsim.model_parallel.price import Charged
from ampsim.optim import Optimizer, Vector
from ampsim.trace import Cause


class SharedWeights:
    """The weights of one node that all ranks of a group have.

    Args:
        centre: of the group.
        place: of the node's vector.
        members: the ranks.
    """

    def __init__(self, centre: Parameters, place: int, members: Sequence[Rank]) -> None:
        self._centre, self._place, self._members = centre, place, members

    @property
    def theta(self) -> Vector:
        """The parameters, flat."""
        return self._centre.thetas[self._place]

    def adopt(self, theta: Vector) -> None:
        """Give every member these parameters."""
        self._centre.thetas[self._place] = theta
        for member in self._members:
            member.nodes[self._place].adopt(theta)


class RankGroup(Rank):
    """Several ranks as one.

    Args:
        number: as of `Rank`.
        members: its ranks.
        queue: assigns batches to them.
        settings: as of `Rank`, and what its ranks have in common.
        optimizer: as of `Rank`.
        outer: makes the steps of a solver inside that steps from what its ranks' all-reduce gave.
    """

    def __init__(
        self,
        number: int,
        members: Sequence[Rank],
        queue: GroupQueue,
        settings: tuple[Setting, Setting],
        *,
        optimizer: Optimizer,
        outer: Parameters,
    ) -> None:
        setting, inner = settings
        places = range(len(setting.nodes))
        nodes = [SharedWeights(inner.centre, place, members) for place in places]
        super().__init__((number, members[0].first), setting, optimizer, nodes, members)
        self._queue = queue
        decisions = inner.decisions
        self._adopts = decisions.steps_first and not decisions.has_outer_step  # at no cost
        self._rounds: AllReduce = all_reduce_of(inner, members, outer, self)

    async def compute(self, batches: Assignment, exchange: Exchange, cause: Cause) -> Cause:
        """Let the members train until they have reduced; `exchange` is told of no single vector.

        Where they reduce gradients, the last round has left the mean in `gradients`.
        """
        if batches.batches:
            self._queue.offer(batches)
            cause = await all_of([partial(train, one, self._rounds, cause) for one in self.members])
        self.ready_s = self._setting.clock.now
        return cause

    async def update_vectors(
        self, places: Collection[int], step: VectorStep, at: float, cause: Cause
    ) -> Cause:
        """Update all copies, each on its own device; the first to come works out the weights.

        Where they have stepped inside, and nothing follows, they have what their last round gave.
        """
        if not places and self._adopts and self.assignment is not None and self.assignment.batches:
            return self.note_adoption(cause)
        charges: dict[int, Charged] = {}

        def once(place: int, now_s: float) -> Charged:
            if place not in charges:
                charges[place] = step(place, now_s)
            return charges[place]

        return await all_of(
            [partial(one.update_vectors, places, once, at, cause) for one in self.members]
        )

    async def broadcast(self, cause: Cause) -> Cause:
        """Send what came to the first member on to the others."""
        if not self._rounds.streams:
            return await self.members[0].broadcast(cause)
        return await until(partial(self._spread, cause), len(self.members))

    def _spread(self, cause: Cause, resume: Resume) -> None:
        """Send from the first member; `resume` whenever a member and its copies have all of it."""
        to_come = [len(self._rounds.streams)] * len(self.members)

        def came(number: int, cause: Cause) -> None:
            to_come[number] -= 1
            if not to_come[number]:
                run(self.members[number].broadcast(cause), resume)

        ends = [partial(came, number) for number in range(len(self.members))]
        for stream in self._rounds.streams:
            run(stream.perform(stream.whole, ends, self._setting.clock.now, cause))

    def vectors_on(self) -> dict[int, list[int]]:
        """For each worker of the first member, the places of the vectors that lie there."""
        return self.members[0].vectors_on()


@dataclass(slots=True)
class RankMaker:
    """Makes ranks, copy after copy.

    Args:
        job: the network and how a rank trains it.
        make_graph: gives another graph of the network, without weights.
        placement: for each node, its worker in the first copy.
        blocks: for each copy, which block of `workers_per_rank` workers it lies on.
        totals: take what the losses say, by part of the training.
        copies: those that have been made.
    """

    job: Job
    make_graph: Callable[[], Graph]
    placement: Sequence[int]
    blocks: Sequence[int]
    totals: Mapping[int, PassTotals]
    copies: list[ModelCopy] = field(default_factory=list[ModelCopy])

    def make(self, number: int, setting: Setting) -> Rank:
        """Make a rank of this number among those of `setting`."""
        if setting.solver.group is None:
            return self._copy(number, setting)
        return self._group(number, setting)

    def _copy(self, number: int, setting: Setting) -> ModelCopy:
        graph = self.make_graph()
        for node, theta in zip(graph.parameterized, setting.centre.thetas, strict=True):
            node.adopt(theta)
        each = setting.solver.workers_per_rank
        first = self.blocks[len(self.copies)] * each
        made = ModelCopy(
            (number, len(self.copies)),
            replace(self.job, graph=graph),
            range(first, first + each),
            [worker if worker == HOST else first + worker for worker in self.placement],
            setting,
            totals=self.totals,
        )
        self.copies.append(made)
        return made

    def _group(self, number: int, setting: Setting) -> RankGroup:
        solver = setting.solver.group
        assert solver is not None
        assert solver.ranks is not None
        names = [node.name for node in setting.nodes]
        thetas, optimizer = setting.centre.thetas, self.job.optimizer
        averages = solver.sends == "gradient"
        queue = GroupQueue(solver.ranks, solver.batches_per_assignment, averages=averages)
        inner = replace(
            setting,
            solver=solver,
            decisions=solver.decisions,
            pull=solver.pull(solver.ranks),
            centre=Parameters(names, thetas, optimizer, shapes_of(setting.nodes)),
            batches=queue,
            level=setting.level + 1,
        )
        members = [self.make(one, inner) for one in range(solver.ranks)]
        return RankGroup(
            number,
            members,
            queue,
            (setting, inner),
            optimizer=optimizer,
            outer=Parameters(names, thetas, solver.outer()),
        )
