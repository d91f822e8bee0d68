"""Timing first, learning after: a run whose engine sleeps, and whose learning follows its order.

What is learned depends on which version of the weights each step reads and on which gradients each
update holds, on nothing else of the hardware. So the engine runs in `sleep` mode, pass by pass, and
what it decided is learned afterwards (`ampsim.learning`); passes of equal digests are learned once.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

import numpy as np

from ampsim.data_parallel import Solver
from ampsim.dataflow import OfProgram
from ampsim.errors import SimulationError
from ampsim.hardware import Cluster
from ampsim.ir import Graph
from ampsim.learning import Arrays, LearningStore, Replay, pumped, why_by_message
from ampsim.machine.pace import loses_weights
from ampsim.model_parallel import PassOrder, PassTotals, Schedule, average_replicas
from ampsim.optim import Optimizer
from ampsim.study.model import Model, job_of
from ampsim.study.process_settings import fixed_settings, linear_algebra
from ampsim.study.provenance import data_files
from ampsim.study.user_data import UserData

Learning: TypeAlias = Literal["live", "apart", "batched"]
"""How a run with numbers learns: step by step as its clock goes, or from the order afterwards,
message by message, or with those that read the same weights as one product."""

LEARNING: Final = ("live", "apart", "batched")

DEFAULT_APART: Final[Learning] = "apart"
"""How forecasts and reports learn."""

Arithmetic: TypeAlias = Literal["by message", "batched"]
"""Whether products are of one message's rows, or of many messages'. Each gives the same numbers on
the same machine each time; they differ in the order of sums within a product."""


def why_live(graph: Graph, cluster: Cluster, schedule: Schedule) -> str:
    """Why a run has to learn as its clock goes; empty where it need not."""
    if isinstance(schedule, Solver):
        return f"{schedule.name} exchanges between ranks, of which no order is taken down"
    if isinstance(schedule, OfProgram):
        return f"{schedule.name} runs a program, of which no order is taken down"
    for node in graph.nodes:
        if node.reads_values:
            return f"{node.describe()} decides by values"
    if any(loses_weights(cluster, worker) for worker in range(cluster.workers)):
        return "devices come back with the weights of a checkpoint"
    if schedule.order.splits_backward and not schedule.admission.drains:
        return f"{schedule.name} splits backward steps and does not drain"
    return ""


def digest_of_weights(graph: Graph) -> str:
    """SHA-256 over the parameters that a graph has now."""
    hasher = hashlib.sha256()
    for node in graph.parameterized:
        hasher.update(np.ascontiguousarray(node.theta).data)
    return hasher.hexdigest()


@dataclass(frozen=True)
class Subject:
    """What is learned, whatever it runs on: model, first weights, data, and how updates are made.

    Args:
        model: what is trained.
        graph: of it.
        data: what it is trained on.
        seed: of the run.
        schedule: of whose updates it is asked whether they average, and what they predict.
        weights: digest of the first ones.
    """

    model: Model
    graph: Graph
    data: UserData
    seed: int
    schedule: Schedule
    weights: str

    @cached_property
    def digest(self) -> str:
        """SHA-256 over all of it, of the data over counts and the first batch of each split.

        Raises:
            SimulationError: the data's code failed.
        """
        model, hasher = self.model, hashlib.sha256()
        config = {} if model.config is None else dataclasses.asdict(model.config)
        config.pop("folder", None)
        plain = {
            "file": model.origin.get("sha256"),
            "config": config,
            "dtype": model.dtype,
            "seed": self.seed,
            "averages": self.schedule.updates.averages,
            "remedy": self.schedule.weights.remedy,
            "optimizer": model.optimizer.name,
        }
        hasher.update(json.dumps(plain, sort_keys=True, default=str).encode())
        hasher.update(_behaviour(model.optimizer))
        for node in self.graph.nodes:
            hasher.update(f"\0{node.describe()}".encode())
        hasher.update(self.weights.encode())
        for split in ("train", "valid"):
            with fixed_settings():
                first = next(self.data.batches(split, epoch=0, seed=self.seed), None)
            hasher.update(f"\0{split} {self.data.count(split)}".encode())
            _add(hasher, first)
        return hasher.hexdigest()

    def why_by_message(self) -> str:
        """Why messages are served one by one where batches are asked for; empty where they are not.

        Raises:
            SimulationError: code of the data or of the model failed.
        """
        if self.schedule.weights.versions is not None:
            return f"{self.schedule.name} reads weights of several versions"
        if self.schedule.weights.remedy != "none":
            return f"{self.schedule.weights.remedy} reads other weights than the latest"
        with fixed_settings():
            first = next(self.data.batches("train", epoch=0, seed=self.seed), None)
            if first is None:
                return "there are no data"
            pump = job_of(self.model, self.graph).pump
            return why_by_message(self.graph, pumped(self.graph, pump, 0, first))

    def apart(self, folder: Path | None, learning: Learning = DEFAULT_APART) -> LearningApart:
        """Who learns this apart, on its graph, and keeps learnings in a folder if there is one."""
        files = data_files(self.model) if folder else ()
        is_batched = learning == "batched" and not self.why_by_message()
        arithmetic: Arithmetic = "batched" if is_batched else "by message"
        replay = Replay(
            job_of(self.model, self.graph),
            averages=self.schedule.updates.averages,
            stashes=self.schedule.weights.versions is not None,
            predicts=self.schedule.weights.remedy != "none",
            batches=is_batched,
        )
        store = None if folder is None else LearningStore(folder)
        subject = _named(self.digest, files, linear_algebra(), arithmetic)
        return LearningApart(replay, subject, store, arithmetic)


def _behaviour(optimizer: Optimizer) -> bytes:
    """What a method does to a few numbers in a few steps, which tells its options apart."""
    optimizer = optimizer.of_tensors([(2, 2), (2,)])
    theta = np.linspace(-1.0, 1.0, 6)
    state, seen = optimizer.init(theta), list[bytes]()
    for step in range(2):
        gradient = np.cos(np.arange(6.0) + step)
        theta, state = optimizer.update(gradient, state, theta, float(optimizer.rate(step)))
        seen.append(theta.tobytes())
    return b"".join(seen)


def _add(hasher: Any, value: Any) -> None:
    """Hash a batch: its arrays, and what its other parts read as."""
    if isinstance(value, np.ndarray):
        hasher.update(np.ascontiguousarray(cast("np.ndarray[Any, Any]", value)).data)
    elif dataclasses.is_dataclass(value):
        for one in dataclasses.fields(value):
            _add(hasher, getattr(value, one.name))
    elif isinstance(value, list | tuple):
        for one in cast("Iterable[Any]", value):
            _add(hasher, one)
    elif not isinstance(value, np.generic | int | float | str | bytes | None):
        hasher.update(type(value).__name__.encode())
    else:
        hasher.update(repr(cast("object", value)).encode())


class Chain:
    """A digest of all passes of training so far.

    Attributes:
        value: equal where equal passes were made.
    """

    def __init__(self) -> None:
        self.value = ""

    def add(self, order: PassOrder, epoch: int, rate: float, batches: float) -> None:
        """Go on with a pass.

        Args:
            order: of it.
            epoch: which it is, or is a part of.
            rate: the learning rate that the epoch begins with.
            batches: how many the epoch has.
        """
        parts = (order.digest, order.first_instance, epoch, rate, batches)
        self.value = _named(self.value, *parts)


def _named(*what: object) -> str:
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()


def learning_digest(subject: Subject, chain: Chain) -> str:
    """The digest of what was learned: equal ones have equal weights."""
    return _named(subject.digest, chain.value)


class LostLearningError(SimulationError):
    """Weights that were kept are not there any more; who learns alone needs none of them."""


class LearningApart:
    """Learns what a sleeping engine decides, pass by pass.

    Args:
        replay: learns; its graph has the first weights.
        subject: digest of what is learned, with its data.
        store: where learnings are kept and found; None for nowhere.
        arithmetic: of the products.

    Attributes:
        learned: passes of training that were learned here.
        found: passes of training that had been learned before.
    """

    def __init__(
        self, replay: Replay, subject: str, store: LearningStore | None, arithmetic: Arithmetic
    ) -> None:
        self.replay, self._subject, self._store = replay, subject, store
        self.arithmetic = arithmetic
        self._wanted = self._held = (_named(subject, ""), False)
        self.learned = self.found = 0

    def train(self, batches: Iterable[Any], order: PassOrder, chain: Chain) -> PassTotals:
        """Learn the pass that a chain now ends with, or find what it gave."""
        digest, batches = _named(self._subject, chain.value), list(batches)

        def learn() -> tuple[PassTotals, Arrays]:
            self._hold()
            totals = self.replay.train(batches, order)
            self._held = (digest, False)
            self.learned += 1
            return totals, self.replay.weights()

        before, earlier = self.learned, self._wanted[0]
        totals = self._totals(digest, learn)
        self._wanted = (digest, False)
        if self.learned == before:
            self.found += 1
            for batch in batches:
                self.replay.on_items(batch.rows)
        if self._store is not None:  # also where it is found: who learned it may have been killed
            self._store.forget_weights(earlier)
        return totals

    def average(self) -> None:
        """Let replicas have one mean, as at the end of an epoch."""
        base, _is_mean = self._wanted
        self._wanted = (base, True)

    def validate(self, batches: Iterable[Any], first_instance: int) -> PassTotals:
        """Measure the weights of the moment, or find what was measured.

        Instances have numbers from `first_instance` on: a number may decide which replica serves.
        """

        def measure() -> tuple[PassTotals, None]:
            self._hold()
            return self.replay.validate(batches, first_instance), None

        return self._totals(_named(*self._wanted, "valid", first_instance), measure)

    def settle(self) -> None:
        """Let the graph have the weights of the moment.

        Raises:
            LostLearningError: they are not there any more.
        """
        self._hold()

    def _totals(
        self, digest: str, make: Callable[[], tuple[PassTotals, Arrays | None]]
    ) -> PassTotals:
        """What is kept under a digest; else what `make` gives, which is kept from now on."""
        if self._store is None:
            return make()[0]
        known = self._store.totals(digest)
        if known is None:
            with self._store.learning(digest):
                known = self._store.totals(digest)
                if known is None:
                    known, weights = make()
                    self._store.put(digest, known, weights)
        return known

    def _hold(self) -> None:
        base, is_mean = self._wanted
        if self._held[0] != base:
            weights = None if self._store is None else self._store.weights(base)
            if weights is None:
                raise LostLearningError("weights that were kept are not there any more")
            self.replay.adopt(weights)
            self._held = (base, False)
        if is_mean and not self._held[1]:
            average_replicas(self.replay.graph)
        self._held = self._wanted
