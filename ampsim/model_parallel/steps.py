"""The pipeline of a step: a node's own, and what a schedule asks for around it.

It is built here once, from the inside out, and nothing is changed afterwards: the node's step, the
activations that it stashes, the version of the weights that it reads, what it owes to a staleness
budget, the weights that are predicted for it. `PlacedNode.serve` charges for the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ampsim.ir import Node, ParameterizedNode
from ampsim.model_parallel.budget import Debt, Owed
from ampsim.model_parallel.prediction import Prediction
from ampsim.model_parallel.price import WorkOf
from ampsim.model_parallel.schedules.values import PickVersion
from ampsim.model_parallel.split_backward import SplitBackward
from ampsim.model_parallel.stash import Stash
from ampsim.model_parallel.stashed_activations import StashedActivations
from ampsim.model_parallel.step import Step


@dataclass(frozen=True, slots=True)
class Asked:
    """What a schedule asks of the steps of one node.

    Args:
        pick: which version of the weights a forward step reads; None for the latest.
        note_stash: told how many bytes of other versions are kept, where there is `pick`.
        debt: counts the gradients that instances owe to the node; None where nobody asks.
        predicts: whether forward steps read predicted weights.
        work_of: what steps cost, by the node and what they cost otherwise; None for just that.
    """

    pick: PickVersion | None = None
    note_stash: Callable[[int], None] | None = None
    debt: Debt | None = None
    predicts: bool = False
    work_of: Callable[[ParameterizedNode, WorkOf], WorkOf] | None = None


class Steps(NamedTuple):
    """What serves the messages of one node at one place.

    Args:
        forward: serves a forward message.
        backward: serves a backward message.
        work: says what a step costs.
        activations: counts what a node with parameters stashes.
        stash: keeps versions of the weights.
        prediction: is told of each update.
    """

    forward: Step
    backward: Step
    work: WorkOf
    activations: StashedActivations | None = None
    stash: Stash | None = None
    prediction: Prediction | None = None


def steps_of(node: Node, asked: Asked) -> Steps:
    """Build the pipeline of a node's steps.

    Raises:
        OptionError: the node's updates write its weights, of which versions are asked for.
    """
    forward, backward, work = node.forward, node.backward, node.work
    if not isinstance(node, ParameterizedNode):
        return Steps(forward, backward, work)
    activations = StashedActivations(node, forward, backward)
    forward, backward = activations.forward, activations.backward
    stash = prediction = None
    if asked.pick is not None:
        assert asked.note_stash is not None
        stash = Stash(node, forward, backward, asked.pick, asked.note_stash)
        forward, backward = stash.forward, stash.backward
    if asked.debt is not None:
        owed = Owed(node, forward, backward, asked.debt)
        forward, backward = owed.forward, owed.backward
    if asked.predicts and not node.is_sparse:
        prediction = Prediction(node, forward)
        forward, work = prediction.forward, prediction.work
    if asked.work_of is not None:
        work = asked.work_of(node, work)
    return Steps(forward, backward, work, activations, stash, prediction)


def split_steps_of(node: Node) -> tuple[Steps, Steps]:
    """Build the pipelines of a node whose backward steps are two: the first's, and the second's.

    Raises:
        OptionError: there is no rule for splitting the node's backward steps.
    """
    split = SplitBackward(node)
    assert isinstance(node, ParameterizedNode)
    activations = StashedActivations(node, node.forward, split.of_weight)
    first = Steps(activations.forward, split.of_input, split.work_of_input, activations)
    return first, Steps(node.forward, activations.backward, split.work_of_weight, activations)
