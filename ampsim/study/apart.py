"""Timing first, learning after: a run whose engine sleeps, and whose learning follows its order.

What is learned depends on which version of the weights each step reads and on which gradients each
update holds, on nothing else of the hardware. So the engine runs in `sleep` mode, pass by pass, and
what it decided is learned afterwards (`ampsim.learning`); passes of equal digests are learned once.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from ampsim.data import DATASETS
from ampsim.data_parallel import Solver
from ampsim.dataflow import OfProgram
from ampsim.errors import SimulationError
from ampsim.hardware import Cluster
from ampsim.ir import Graph, ParameterizedNode
from ampsim.learning import WHY_ALONE, Arrays, LearningStore, Replay, pumped, why_by_message
from ampsim.machine.pace import loses_weights
from ampsim.model_parallel import PassOrder, PassTotals, Schedule, average_replicas
from ampsim.optim import Optimizer, copied
from ampsim.study.model import Model, job_of
from ampsim.study.process_settings import fixed_settings, linear_algebra
from ampsim.study.provenance import code_digest, data_files
from ampsim.study.user_data import UserData
from ampsim.user_code import add_value, digest_of_value, own_code

Learning: TypeAlias = Literal["live", "apart", "batched"]
"""How a run with numbers learns: step by step as its clock goes, or from the order afterwards,
message by message, or with those that read the same weights as one product."""

DEFAULT_APART: Final[Learning] = "batched"
"""How forecasts and reports learn; message by message where batches do not pay."""

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


def digest_of_graph(model: Model, graph: Graph) -> str:
    """SHA-256 over nodes and first weights; to be taken before anything is served.

    A file's hash and its options say what else nodes are. Of a model of no file, it is also over
    their options and own code, the edges between them, and what brings batches in.
    """
    hasher, seen = hashlib.sha256(), dict[int, Any]()
    for node in graph.nodes:
        hasher.update(f"\0{node.describe()}".encode())
        if isinstance(node, ParameterizedNode):
            hasher.update(np.ascontiguousarray(node.theta).data)
        if not model.origin.get("sha256"):
            add_value(hasher, node, seen)
            add_value(hasher, list(own_code(type(node))), seen)
    if not model.origin.get("sha256"):
        add_value(hasher, (graph.targets, model.pump), seen)
    return hasher.hexdigest()


@dataclass(frozen=True)
class Subject:
    """The facts that decide a learning, whatever it runs on."""

    model: Model  # what is trained
    graph: Graph  # of it
    data: UserData  # what it is trained on
    seed: int  # of the run
    schedule: Schedule  # of whose updates it is asked whether they average, and what they predict
    start: str  # digest of the graph, as of `digest_of_graph`

    @cached_property
    def digest(self) -> str:
        """SHA-256 over all of it, of the data over counts and the first batch of each split.

        Raises:
            SimulationError: the data's code failed.
        """
        model, hasher = self.model, hashlib.sha256()
        fields = () if model.config is None else dataclasses.fields(model.config)
        config = {one.name: getattr(model.config, one.name) for one in fields}
        if config.get("data") in DATASETS or not config.get("folder"):
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
        hasher.update(json.dumps(plain, sort_keys=True, default=digest_of_value).encode())
        hasher.update(_behaviour(model.optimizer))
        hasher.update((self.start + model.origin.get("modules", "")).encode())
        for split in ("train", "valid"):
            with fixed_settings():
                first = next(self.data.batches(split, epoch=0, seed=self.seed), None)
            hasher.update(f"\0{split} {self.data.count(split)}".encode())
            add_value(hasher, first, {})
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
        for node in self.graph.nodes[1:]:
            why = WHY_ALONE.get(type(node), lambda _node: "has no operation of many rows")(node)
            if why:
                return f"{node.describe()} {why}"
        with fixed_settings():
            first = next(self.data.batches("train", epoch=0, seed=self.seed))
            pump = job_of(self.model, self.graph).pump
            return why_by_message(self.graph, pumped(self.graph, pump, 0, first))

    def apart(self, folder: Path | None, learning: Learning = DEFAULT_APART) -> LearningApart:
        """Build what learns this apart, on its graph, and keeps learnings in the folder, if any."""
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
        code = code_digest(), linear_algebra(), np.__version__, sys.version_info[:2]
        subject = _named(self.digest, files, arithmetic, code)
        return LearningApart(replay, subject, store, arithmetic)


def _behaviour(optimizer: Optimizer) -> bytes:
    """Try an optimizer's stages for some steps: equal methods, but for rates, give equal bytes."""
    optimizer = copied(optimizer).of_tensors([(2, 2), (2,)])
    theta = np.linspace(-1.0, 1.0, 6)
    switch = [] if optimizer.first is None else [optimizer.first_epochs] * 2
    state, seen = optimizer.init(theta), [np.array(switch).tobytes()]
    for step, epoch in enumerate([0, 1, *switch]):
        gradient = np.cos(np.arange(6.0) + step)
        theta, state = optimizer.update(gradient, state, theta, optimizer.rate(epoch))
        seen.append(theta.tobytes())
    return b"".join(seen)


def chained(chain: str, order: PassOrder, epoch: int, rates: list[float], batches: float) -> str:
    """A digest of all passes of training so far: equal where equal passes were made.

    Args:
        chain: that of the passes before; empty of none.
        order: of the pass.
        epoch: which it is, or is a part of.
        rates: the epoch's learning rate, or those of each batch where it changes within the epoch.
        batches: how many the epoch has.
    """
    return _named(chain, order.digest, order.first_instance, epoch, *rates, batches)


def _named(*what: object) -> str:
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()


def learning_digest(subject: Subject, chain: str) -> str:
    """The digest of what was learned: equal ones have equal weights."""
    return _named(subject.digest, chain)


class LostLearningError(SimulationError):
    """Weights that were kept are not there any more; who learns alone needs none of them."""


class LearningApart:
    """Learns what a sleeping engine decides, pass by pass.

    Args:
        replay: learns; its graph has the first weights.
        subject: digest of what is learned, with its data.
        store: where learnings are kept and found; None for nowhere.
        arithmetic: of the products.
    """

    def __init__(
        self, replay: Replay, subject: str, store: LearningStore | None, arithmetic: Arithmetic
    ) -> None:
        self.replay, self._subject, self._store = replay, subject, store
        self.arithmetic = arithmetic
        self._wanted = self._held = (_named(subject, ""), False)
        self.learned = self.found = 0  # passes of training, here and before

    def train(self, batches: Iterable[Any], order: PassOrder, chain: str) -> PassTotals:
        """Learn the pass that a chain now ends with, or find what it gave."""
        digest, batches = _named(self._subject, chain), list(batches)

        def learn() -> tuple[PassTotals, Arrays]:
            self.settle()
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
        self._wanted = (self._wanted[0], True)

    def validate(self, batches: Iterable[Any], first_instance: int) -> PassTotals:
        """Measure the weights of the moment, or find what was measured.

        Instances have numbers from `first_instance` on: a number may decide which replica serves.
        """

        def measure() -> tuple[PassTotals, None]:
            self.settle()
            return self.replay.validate(batches, first_instance), None

        return self._totals(_named(*self._wanted, "valid", first_instance), measure)

    def _totals(
        self, digest: str, make: Callable[[], tuple[PassTotals, Arrays | None]]
    ) -> PassTotals:
        """Return the totals that are kept under a digest; else call `make`, and keep its own."""
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

    def settle(self) -> None:
        """Let the graph have the weights of the moment.

        Raises:
            LostLearningError: they are not there any more.
        """
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
