"""A model tried out: built, verified, and one smallest instance sent through it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from ampsim.arguments import checked
from ampsim.data import Split
from ampsim.dataflow import Dataflow
from ampsim.errors import OptionError
from ampsim.hardware import load_cluster
from ampsim.ir import Isu
from ampsim.model_parallel import RunSettings, paper_placement
from ampsim.rng import stream
from ampsim.study.model import Model
from ampsim.study.process_settings import fixed_settings
from ampsim.study.schedule_names import schedules_of
from ampsim.study.simulation import ModelLike, model_of
from ampsim.study.training import Training

_BATCHES = 1000  # chosen: among these the smallest is looked for
_WORKERS = 2  # chosen: heavy nodes on both, so that messages cross
_OVERHEAD_S = 1e-9  # chosen: with any, each node is asked for the work of each step


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of it.

    Args:
        mode: "sleep", or "numeric" where control flow reads values, and of a program only.
        items: items of the instance.
        messages: messages served, in training and in validation; of a program only, its steps that
            a device computes.
    """

    mode: str
    items: int
    messages: int


@checked
def try_out(model: ModelLike) -> Trial:
    """Send the smallest of the first instances through the graph, forward and backward.

    Every `Isu` checks its inverse on every state that it meets, and every node says what its steps
    cost. A program, where the model has one, trains on it too.

    Raises:
        GraphError: the graph breaks a rule, or an inverse is none.
        OptionError: there are no data to train on.
        SimulationError: a step failed, or messages were left behind.
    """
    with fixed_settings():
        return _try_out(model_of(model))


def _try_out(model: Model) -> Trial:
    graph = model.graph()
    smallest = _smallest(model, "train")
    trainings: list[tuple[Training, Any]] = []
    if model.make_program is not None:
        settings = RunSettings()
        cluster = load_cluster("tflops-1", workers=model.program.workers)
        training = Training(model, graph, cluster, [], Dataflow(), settings=settings)
        has_own = model.program.train is not None
        trainings.append((training, _smallest(model, "valid") if has_own else smallest))
    if not model.is_program_only:
        trainings.append((_of_messages(model), smallest))
    for training, validated in trainings:
        training.train([smallest])
        training.validate([validated])
    training, _validated = trainings[-1]
    recorder = training.recorder
    recorder.flush()
    mode = "sleep" if training.is_abstract else "numeric"
    return Trial(mode, smallest.rows, recorder.summary.messages)


def _smallest(model: Model, split: Split) -> Any:
    """The smallest of the first batches of a split."""
    batches = model.data(0, None).batches(split, epoch=0, seed=0)
    first = list(itertools.islice(batches, _BATCHES))
    if not first:
        what = "train on" if split == "train" else "validate on"
        raise OptionError(f"the data of model {model.name} must have a batch to {what}, got none")
    return min(first, key=lambda batch: batch.rows)


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
    return Training(model, graph, cluster, workers, schedules_of("sequential")[0])
