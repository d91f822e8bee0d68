"""Steps of a node: its backward step split or not, with the weights that a schedule asks for.

A step is built here once, from the inside out, and nothing is changed afterwards: the node's step,
what it computes again, the version of the weights that it reads, what it owes to a staleness
budget, the weights that are predicted for it. `PlacedNode.serve` counts the activations that it
keeps, and charges for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ampsim.errors import OptionError
from ampsim.ir import Direction, Node, ParameterizedNode, Payload, Sends, State, Work
from ampsim.model_parallel.budget import Debt, GradientsOutstanding
from ampsim.model_parallel.footprint import Activations
from ampsim.model_parallel.price import Extents, WorkOf
from ampsim.model_parallel.schedules.values import VersionRule
from ampsim.model_parallel.stash import Prediction, Stash
from ampsim.model_parallel.step import Step
from ampsim.nodes import Conv2d, Linear


class SplitBackward:
    """The two halves of a node's backward step.

    The first half sends the input's gradient, and to one port more than the node has inputs the
    message that the second half serves later. An instance is done when both have run. Each half is
    a backward step in the trace; the second is the one with a staleness.

    Raises:
        OptionError: the node is neither.
    """

    def __init__(self, node: Node) -> None:
        if not isinstance(node, Linear | Conv2d):
            raise OptionError(
                "zb-h1 splits the backward steps of Linear and Conv2d nodes, and has no rule for "
                f"{node.describe()}; take 1f1b"
            )
        self._node = node
        self._second_half = len(node.inputs)

    def of_input(self, port: int, state: State, gradient: Payload) -> Sends:
        """Serve the first half: the gradient of the input."""
        return [*self._node.backward_input(state, gradient), (self._second_half, state, gradient)]

    def of_weight(self, port: int, state: State, gradient: Payload) -> Sends:
        """Serve the second half: the gradient of the weight; word of it goes to the controller."""
        self._node.backward_weight(state, gradient)
        return ((0, state, None),)

    def work_of_input(self, direction: Direction, shape: Extents) -> Work:
        """Return a step's work; a backward step's is that of its first half."""
        if direction is not Direction.BACKWARD:
            return self._node.work(direction, shape)
        return self._node.work_of_halves(shape)[0]

    def work_of_weight(self, direction: Direction, shape: Extents) -> Work:
        """Return the work of the second half."""
        return self._node.work_of_halves(shape)[1]


class ComputedAgain:
    """Steps of a node whose backward step computes again what its forward step has not kept.

    With the weights of the forward step that gives the same bits, so that it is not done. Where a
    stop has taken these back meanwhile, the forward step is done once more, with those that the
    device came back with; the gradient is as late as it would have been.
    """

    def __init__(self, node: ParameterizedNode) -> None:
        self._node = node
        self._taken: dict[State, list[tuple[int, Payload]]] = {}
        self._read: dict[State, tuple[np.ndarray, int]] = {}

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Serve a forward message; in training, note it and the weights that it met."""
        node = self._node
        if node.is_training:
            self._taken.setdefault(state, []).append((port, payload))
            self._read[state] = node.theta, node.version
        return node.forward(port, state, payload)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Serve a backward message, with what the weights of the moment make of the inputs."""
        node, latest = self._node, self._node.version
        taken, (theta, version) = self._taken.pop(state), self._read.pop(state)
        if gradient is not None and theta is not node.theta:
            node.read_as(version)
            for its_port, payload in taken:
                node.forward(its_port, state, payload)
            node.read_as(latest)
        return node.backward(port, state, gradient)


class Steps(NamedTuple):
    """The functions that serve the messages of one node at one place.

    Args:
        forward: serves a forward message.
        backward: serves a backward message.
        work: says what a step costs.
        keeps: counts what forward steps of a node with parameters keep.
        frees: the same, where backward steps free it.
        stash: keeps versions of the weights; to be told of each update, and of the end of each
            backward step.
        prediction: is told of each update.
    """

    forward: Step
    backward: Step
    work: WorkOf
    keeps: Activations | None = None
    frees: Activations | None = None
    stash: Stash | None = None
    prediction: Prediction | None = None


def steps_of(
    node: Node,
    *,
    rule: VersionRule | None = None,
    note_stash: Callable[[int], None] | None = None,
    debt: Debt | None = None,
    predicts: bool = False,
    computes_again: bool = False,
) -> Steps:
    """Build the pipeline of a node's steps.

    Args:
        node: whose steps they are.
        rule: which version of the weights a forward step reads; None for the latest.
        note_stash: told how many bytes of other versions are kept, where there is a `rule`.
        debt: counts the gradients that instances owe to the node; None where nobody asks.
        predicts: whether forward steps read predicted weights.
        computes_again: whether backward steps compute again what forward steps have not kept, and
            may have other weights by then.

    Raises:
        OptionError: the node's updates write its weights, of which versions are asked for.
    """
    forward, backward, work = node.forward, node.backward, node.work
    if not isinstance(node, ParameterizedNode):
        return Steps(forward, backward, work)
    stash = prediction = None
    if computes_again:
        again = ComputedAgain(node)
        forward, backward = again.forward, again.backward
    if rule is not None:
        assert note_stash is not None, "nobody is told how many bytes are stashed"
        stash = Stash(node, forward, backward, rule, note_stash)
        forward, backward = stash.forward, stash.backward
    if debt is not None:
        owed = GradientsOutstanding(node, forward, backward, debt)
        forward, backward = owed.forward, owed.backward
    if predicts and not node.is_sparse:
        prediction = Prediction(node, forward)
        forward, work = prediction.forward, prediction.work
    activations = Activations()
    return Steps(forward, backward, work, activations, activations, stash, prediction)


def split_steps_of(node: Node) -> tuple[Steps, Steps]:
    """Build the pipelines of a node whose backward steps are two: the first's, and the second's.

    Raises:
        OptionError: there is no rule for splitting the node's backward steps.
    """
    split = SplitBackward(node)
    activations = Activations()
    first = Steps(node.forward, split.of_input, split.work_of_input, keeps=activations)
    second = Steps(node.forward, split.of_weight, split.work_of_weight, frees=activations)
    return first, second
