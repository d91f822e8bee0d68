"""A model tried out: built, verified, and one smallest instance sent through it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ampsim.arguments import checked
from ampsim.dataflow import Dataflow
from ampsim.errors import GraphError, OptionError
from ampsim.hardware import load_cluster
from ampsim.ir import Isu
from ampsim.learning import Replay
from ampsim.model_parallel import PassOrder, Pipeline, RunSettings, paper_placement
from ampsim.model_parallel.faults import require_sound
from ampsim.rng import stream
from ampsim.study.model import Model, job_of
from ampsim.study.process_settings import fixed_settings
from ampsim.study.simulation import ModelLike, model_of
from ampsim.study.training import Training

_BATCHES = 1000  # chosen: among these the smallest is looked for
_WORKERS = 2  # chosen: heavy nodes on both, so that messages cross
_OVERHEAD_S = 1e-9  # chosen: with any, each node is asked for the work of each step
_TOGETHER = 4  # chosen: a sum of so many gradients tells in which order they were added


@dataclass(frozen=True, slots=True)
class Trial:
    """A model that was tried out: how, and with how much."""

    mode: str  # "sleep", or "numeric" where control flow reads values, and of a program only
    items: int  # of the instance
    messages: int  # served, in training and validation; of a program only, steps of a device
    is_measured: bool  # whether there are data to validate on


@checked
@fixed_settings()
def try_out(model: ModelLike) -> Trial:
    """Send the smallest of the first instances through the graph, forward and backward.

    Every `Isu` checks its inverse on every state that it meets, and every node says what its steps
    cost. A program, where the model has one, trains on it too. A few instances are learned in one
    order and in the reverse, which must not change a bit of a weight; what is sent is not written.
    All data of an epoch are looked at.

    Raises:
        GraphError: the graph breaks a rule, an inverse is none, or the order of messages counts.
        OptionError: there are no data to train on, data are not sound, or losses do not report what
            the model is measured by.
        SimulationError: a step failed, or messages were left behind.
    """
    model = model_of(model)
    graph, data = model.graph(), model.data(0)
    batches = partial(data.batches, epoch=0, seed=0)
    smallest, *others = _smallest(model, batches("train"))
    require_sound(graph.nodes, model.pump, model.make_program, data)
    trainings: list[tuple[Training, Any]] = []
    if model.make_program is not None:
        on = model.program.cluster
        training = Training(model, graph, on, [], Dataflow(), settings=RunSettings())
        has_own = model.program.train is not None
        trainings.append((training, _smallest(model, batches("valid"))[0] if has_own else smallest))
    if not model.is_program_only:
        trainings.append((_of_messages(model), smallest))
    for training, validated in trainings:
        training.train([smallest])
        training.validate([validated])
    training, _validated = trainings[-1]
    training.recorder.flush()
    mode = "sleep" if training.is_abstract else "numeric"
    trial = Trial(mode, smallest.rows, training.recorder.summary.messages, data.count("valid") > 0)
    if mode == "sleep" and not any(node.is_shape_only for node in graph.nodes):
        order = training.train([smallest, *others]).order
        assert order is not None, "a pass of training has an order"
        _require_one_learning(model, [smallest, *others], order)
    return trial


def _smallest(model: Model, batches: Iterable[Any]) -> list[Any]:
    """The smallest of the first batches of a split, the smallest first."""
    first = list(itertools.islice(batches, _BATCHES))
    if not first:
        raise OptionError(f"the data of model {model.name} must have a batch to validate on")
    return sorted(first, key=lambda batch: batch.rows)[:_TOGETHER]


def _of_messages(model: Model) -> Training:
    """Its graph of messages on two workers, ready for training."""
    graph = model.graph()
    for node in graph.nodes:
        if isinstance(node, Isu):
            node.checks_all = True
    cluster = load_cluster("tflops-1", workers=_WORKERS)
    charging = cluster.devices[0].model_copy(update={"operation_overhead_s": _OVERHEAD_S})
    cluster = cluster.model_copy(update={"devices": (charging,) * _WORKERS})
    workers = paper_placement(graph, _WORKERS, stream(0, "placement"))
    settings = replace(RunSettings.of_trial(graph), keeps_order=True)
    return Training(model, graph, cluster, workers, Pipeline(_TOGETHER), settings=settings)


def _require_one_learning(model: Model, batches: Sequence[Any], order: PassOrder) -> None:
    """Refuse nodes that learn something else where messages come in another order.

    Runs that read and update the same versions share what one of them learned, on any hardware.
    """
    graphs, ends = (model.graph(), model.graph()), 2 * order.first_instance + len(batches) - 1
    there, back = (job_of(model, graph) for graph in graphs)

    def turned(instance: int, batch: Any) -> Any:
        return there.pump(ends - instance, batch)

    replay = Replay(there, averages=True)
    replay.freezes = True
    aimed_at = model.target if model.measure.is_rising else 0.0  # an error is asked for by name
    replay.train(batches, order).require_measured(model.measure, aimed_at)
    Replay(replace(back, pump=turned), averages=True).train(batches[::-1], order)
    for node, other in zip(*(one.parameterized for one in graphs), strict=True):
        if not np.array_equal(node.theta, other.theta, equal_nan=True):
            raise GraphError(
                f"{node.describe()} learns something else where messages come in another order; "
                "add gradients in the order of their states, and read no clock, no counter and no "
                "random numbers of the process (docs/own-node.md)"
            )
