"""The engine of solvers: ranks, and what they exchange with, trained part by part."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from ampsim.data_parallel.all_reduce import all_reduce_of
from ampsim.data_parallel.batch_queue import BatchQueue, Later
from ampsim.data_parallel.decisions import fault_of
from ampsim.data_parallel.first_ranks import FirstRanks
from ampsim.data_parallel.group import RankMaker
from ampsim.data_parallel.inside import blocks_of
from ampsim.data_parallel.parameters import Parameters, shapes_of
from ampsim.data_parallel.rank import Exchange, ModelCopy, Rank, run, train
from ampsim.data_parallel.servers import PushGradients, PushWeights, Server
from ampsim.data_parallel.setting import Setting
from ampsim.data_parallel.solver import Solver
from ampsim.errors import OptionError, StuckError
from ampsim.hardware import Cluster
from ampsim.hardware.topology import Route
from ampsim.ir import Graph
from ampsim.machine import Fabric, Instant, Tasks, paced
from ampsim.model_parallel import Job, Observer, PassReport, PassTotals, RunSettings, stages_of
from ampsim.model_parallel.memories import WorkerMemories, note_peaks
from ampsim.optim import Vector, sgd
from ampsim.trace import Recorder

BARE: Final = sgd(1.0)
"""Of ranks whose gradients a server applies: they keep nothing of an optimizer."""


class _Ended(NamedTuple):
    """The end of a part of the training: when all was merged, and the centre's weights then."""

    at_s: float
    centre: list[Vector]
    ends_epoch: bool


class SolverEngine:
    """Trains copies of a model under a solver.

    Args:
        job: the network and how to train it; its graph holds the centre's weights after each
            part, and is what is validated.
        make_graph: gives another graph of the network, without weights.
        cluster: the devices and links.
        placement: for each node, its worker in rank 0; other ranks are placed alike.
        solver: what happens between them.
        recorder: who writes down what happens; its last node is the centre.
        settings: of the run.

    Raises:
        OptionError: the solver does not fit the model or the cluster.
    """

    def __init__(
        self,
        job: Job,
        make_graph: Callable[[], Graph],
        cluster: Cluster,
        placement: Sequence[int],
        solver: Solver,
        *,
        recorder: Recorder,
        settings: RunSettings,
    ) -> None:
        """Put everything together; no time passes yet."""
        clock, seed = settings.clock, settings.seed
        require_fit(job.graph, solver, is_abstract=settings.is_abstract)
        require_plain(cluster, solver)
        self._graph, self._clock, self._recorder, self._solver = job.graph, clock, recorder, solver
        self._count = solver.ranks_on(cluster.workers)
        self._begin_empty()
        nodes, instant = job.graph.parameterized, Instant(clock)
        optimizer = solver.optimizer(job.optimizer)
        job = replace(job, optimizer=optimizer)
        names, thetas = [node.name for node in nodes], [node.theta for node in nodes]
        self._queue = BatchQueue(
            self._count, solver.batches_per_assignment, on_part=self._end_part,
            in_rounds=solver.meets == "all", averages=solver.sends == "gradient",
            whole_of=settings.batches_of,
        )  # fmt: skip
        self._setting = Setting(
            solver=solver,
            decisions=solver.decisions,
            pull=solver.pull(self._count),
            cluster=cluster,
            run=settings,
            recorder=recorder,
            instant=instant,
            fabric=Fabric(cluster, clock, recorder, instant.settle, seed=seed),
            memories=WorkerMemories(cluster, clock, is_counting=settings.counts_memory),
            centre=Parameters(names, thetas, optimizer, shapes_of(nodes)),
            nodes=nodes,
            places=[job.graph.index(node) for node in nodes],
            centre_place=len(job.graph.nodes),
            batches=self._queue,
            rate=optimizer.rate,
            clock=clock,
            is_abstract=settings.is_abstract,
            steps_at_server=solver.meets == "server" and solver.sends == "gradient",
        )
        self._observer = Observer(job, settings.is_abstract)  # which tells nodes their optimizer
        self._make_ranks(job, make_graph, placement)
        self._connect(Parameters(names, thetas, solver.outer()))
        self._start_processors()

    def _begin_empty(self) -> None:
        """Set all that training changes to its beginning."""
        self._totals: defaultdict[int, PassTotals] = defaultdict(PassTotals)
        self._ended: dict[int, _Ended] = {}
        self._closed: dict[int, bool] = {}
        self._next_end = 0
        self._end = self._clock.signal()
        self._is_going_on = False
        self._part = 0
        self._last_end_s = 0.0
        self._has_begun = False

    def _connect(self, outer: Parameters) -> None:
        """Make what ranks exchange with; `outer` makes the centre's own steps."""
        solver, setting = self._solver, self._setting
        decisions = setting.decisions
        self._servers: Sequence[Server] = ()
        self._exchange: Exchange
        if decisions.meets == "server":
            first = len(self._copies) * solver.workers_per_rank
            servers = range(first, first + solver.server_count)
            kind = PushGradients if decisions.sends == "gradient" else PushWeights
            if setting.steps_at_server:
                setting.recorder.summary.count_merged(setting.centre_place)
            self._exchange = exchange = kind(setting, self._ranks, servers)
            self._servers = exchange.servers
        elif decisions.backup_ranks:
            self._exchange = FirstRanks(setting, self._copies, self._queue)
        else:
            self._exchange = all_reduce_of(setting, self._ranks, outer)

    def parts(
        self, epoch: int, batches: Iterable[Any], every: int | None, later: Later | None
    ) -> Iterator[tuple[PassReport, bool]]:
        """Train until all of each part is merged; what it did, and whether the epoch ends with it.

        Args:
            epoch: counted from 0, one after the other.
            batches: of the epoch.
            every: items of the epoch after which a part ends; ranks go on. None: it is one part.
            later: gives the batches of later epochs, with which ranks go on at once; None lets them
                stop, until they are given others.

        Raises:
            StuckError: nothing is left to do, but batches are not merged.
            DivergenceError: a loss or a weight stopped being finite.
            OutOfMemoryError: a device's memory has no room for what has to lie there.
            SimulationError: a node's step failed; the message says where and when.
        """
        is_over = False
        while not is_over:
            report, is_over = self._train(epoch, batches, every, later)
            yield report, is_over

    def _train(
        self, epoch: int, batches: Iterable[Any], every: int | None, later: Later | None
    ) -> tuple[PassReport, bool]:
        setting = self._setting
        part = self._part
        self._is_going_on = later is not None
        self._end = self._clock.signal()
        self._queue.offer(epoch, batches, later, every)
        start_s = self._last_end_s
        try:
            self._take_parameters()
            if not self._queue.has_any(part) and part not in self._ended:
                self._end_part(part, ends_epoch=True)
            if part not in self._ended:
                self._begin_idle()
                setting.instant.settle()
                self._clock.run(self._end)
        except BaseException:
            setting.fabric.note_unfinished()  # only then: others go on in the next epoch
            raise
        finally:
            nodes = (one for copy in self._copies for one in copy.assembly.placed_nodes)
            note_peaks(self._recorder, setting.memories.all, nodes)
        if part not in self._ended:
            self._require_done(epoch)
        for copy in self._copies:
            if not copy.controller.unfinished:  # others are at the next part
                copy.require_drained()
        ended = self._ended.pop(part)
        self._part += 1
        self._last_end_s = ended.at_s
        if not setting.is_abstract:
            for node, theta in zip(setting.nodes, ended.centre, strict=True):
                node.adopt(theta)
        report = PassReport(start_s, ended.at_s, self._totals.pop(part, PassTotals()))
        return report, ended.ends_epoch

    def tell_items(self, on_items: Callable[[int], None]) -> None:
        """Call `on_items` with the number of items of each instance that finishes.

        Of a rank that is cancelled, nothing comes of them.
        """
        self._observer.tell_items(on_items)
        for copy in self._copies:
            copy.controller.on_finish = partial(_tell_of, copy, on_items)

    def note_overtaken(self) -> None:
        """Record transfers under way, as far as later ones are recorded, and exchanges."""
        self._setting.fabric.note_overtaken()
        self._exchange.note_unfinished(self._last_end_s)
        for note in self._setting.at_end:
            note(self._last_end_s)

    def validate(self, batches: Iterable[Any]) -> PassReport:
        """Measure the centre, off the clock: no virtual time passes."""
        return self._observer.validate(batches, self._last_end_s)

    def _make_ranks(
        self, job: Job, make_graph: Callable[[], Graph], placement: Sequence[int]
    ) -> None:
        solver, seed = replace(self._solver, ranks=self._count), self._setting.run.seed or 0
        blocks = blocks_of(solver.levels, solver.copies or 0, seed)
        if self._setting.steps_at_server:
            job = replace(job, optimizer=BARE)
        maker = RankMaker(job, make_graph, placement, blocks, self._totals)
        self._ranks: list[Rank] = [maker.make(one, self._setting) for one in range(self._count)]
        self._copies: list[ModelCopy] = maker.copies

    def _start_processors(self) -> None:
        setting, seed = self._setting, self._setting.run.seed
        for copy in self._copies:
            for processor, tasks in copy.assembly.tasks:
                self._clock.start(processor.work(tasks), f"worker-{processor.index}")
        for server in self._servers:
            tasks: Tasks = server
            if seed is not None:
                who = server, server.processor, self._clock, setting.cluster
                tasks = paced(*who, seed=seed, is_beside=True)  # it answers while it merges
            self._clock.start(server.processor.work(tasks), f"server-{server.worker}")
        self._clock.run()

    def _take_parameters(self) -> None:
        """Let all parameters lie in memory, before the first epoch."""
        if self._has_begun:
            return
        self._has_begun = True
        for rank in self._ranks:
            rank.take_parameters()
        for server in self._servers:
            server.take_parameters()

    def _begin_idle(self) -> None:
        """Let ranks go on that had no batch left."""
        cause, _end_s = self._recorder.latest_span()
        for rank in self._ranks:
            if rank.is_idle:
                run(train(rank, self._exchange, cause))

    def _end_part(self, part: int, ends_epoch: bool) -> None:
        """Keep the centre as it is when all of a part, and of those before, has been merged."""
        self._closed[part] = ends_epoch
        while self._next_end in self._closed:  # a slow rank may still be at one before it
            last = self._closed.pop(self._next_end)
            self._ended[self._next_end] = _Ended(
                self._clock.now, self._exchange.weights(self._next_end), ends_epoch=last
            )
            if self._next_end == self._part and (self._is_going_on or not last):
                self._end.fire()
            self._next_end += 1

    def _require_done(self, epoch: int) -> None:
        """Check that all of an epoch has been merged.

        Raises:
            StuckError: it has not, and nothing is left to do.
        """
        left = self._queue.open_assignments
        if left:
            busy = [rank.number for rank in self._ranks if not rank.is_idle]
            raise StuckError(
                f"{self._graph.name}: nothing is left to do at {self._clock.now:.9g} s, but {left} "
                f"batches of epoch {epoch + 1} are not merged; ranks {busy} wait"
            )


def _tell_of(rank: Rank, on_items: Callable[[int], None], items: int) -> None:
    """Tell of items, unless nothing comes of them."""
    if not rank.is_cancelled:
        on_items(items)


def cluster_of_rank(cluster: Cluster, solver: Solver) -> Cluster:
    """The workers of rank 0, and the links between them as idle ones are.

    Its devices are not checked again: what makes one faster may leave what its file vouches for.

    Raises:
        OptionError: ranks and servers do not fit the cluster.
    """
    solver.ranks_on(cluster.workers)
    each = solver.workers_per_rank
    links = [
        Route(source=source, target=target, link=cluster.link_between(source, target))
        for source, target in itertools.permutations(range(each), 2)
    ]
    return Cluster.model_construct(
        name=cluster.name,
        description=cluster.description,
        devices=cluster.devices[:each],
        links=tuple(links),
    )


def with_groups(solver: Solver) -> list[Solver]:
    """The solver, and those of groups inside it, the outermost first."""
    return [solver] if solver.group is None else [solver, *with_groups(solver.group)]


def require_fit(graph: Graph, solver: Solver, *, is_abstract: bool) -> None:
    """Check that copies of a network can be trained.

    Raises:
        OptionError: an update writes weights in place, nodes are replicas of each other, layers are
            no chain where gradients are sent as soon as they are there, or a decision is not read.
    """
    for node in graph.parameterized:
        if node.is_sparse:
            raise OptionError(
                f"{solver.name}: {node.describe()} updates rows of its table in place, so that "
                "ranks cannot share its versions; take is_sparse=False, or a model without it"
            )
    for one in with_groups(solver):
        fault = fault_of(one.decisions)
        if fault is not None:
            raise OptionError(f"{one.name}: {fault}")
        if is_abstract and one.decisions.reads_values:
            raise OptionError(
                f"mode 'sleep' has no numbers, but {one.name} decides by them; use mode 'numeric'"
            )
        if one.decisions.overlap:
            stages_of(graph, f"{one.name} with overlap", "leave overlap out")
    if graph.replica_groups:
        names = ", ".join(node.name for node in graph.replica_groups[0])
        raise OptionError(
            f"{solver.name}: ranks are copies already, but nodes {names} are replicas within one; "
            "take replicas=1"
        )


def require_plain(cluster: Cluster, solver: Solver) -> None:
    """Check that a cluster charges for nothing that servers and collectives know nothing of.

    Raises:
        OptionError: it does.
    """
    if cluster.checkpoints is not None:
        raise OptionError(
            f"{solver.name}: cluster {cluster.name} has checkpoints, which are of the nodes of one "
            "copy of a model, and ranks exchange their weights; leave them out, or take a schedule"
        )
    fault = None
    if cluster.host is not None and not cluster.is_host_free:
        fault = "a host that takes time"
    elif cluster.memory is not None:
        fault = "a remedy for memory"
    elif cluster.has_lanes:
        fault = "dispatch lanes"
    else:
        fault = next((key for one in cluster.devices for key in one.message_numbers), None)
    if fault is not None:
        raise OptionError(
            f"{solver.name}: cluster {cluster.name} has {fault}, which is not charged for "
            "exchanges between ranks; leave it out, or take a schedule"
        )
