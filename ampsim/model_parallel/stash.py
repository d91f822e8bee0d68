"""Weights other than the latest, for steps to read: old ones of a stash, and predicted ones.

Weight prediction: a forward step reads the weights that its gradient will probably meet.

Source: C.-C. Chen, C.-L. Yang and H.-Y. Cheng, "Efficient and Robust Parallel DNN Training through
Model Parallelism on Multi-GPU Platform", 2018 (SpecTrain). With v the smoothed gradient,
v <- gamma v + (1 - gamma) g after each update, a step whose gradient will be s updates late reads

    W - s · rate · v

Here v smooths the steps that the optimizer made, rate · g for SGD, so that the rule holds for every
optimizer, and s is what the gradients of the node's last update were late on average: the paper
knows its pipeline, AMP has to look. A backward step reads the latest weights: its gradient is late
no more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from ampsim.errors import OptionError
from ampsim.ir import Direction, ParameterizedNode, Payload, Sends, State, Work
from ampsim.ir.work import Calls
from ampsim.model_parallel.schedules.values import VersionRule
from ampsim.model_parallel.step import Step


class Stash:
    """Steps of a node that read the weights which a rule picks for an instance.

    The backward step of an instance reads what its forward step read. An update replaces a node's
    weights and never writes them, so that to keep a version is to keep a reference. It is kept from
    the update that replaces it to the end of the last step that reads it.

    Args:
        node: whose steps they are.
        forward, backward: the steps.
        rule: which version a forward step reads.
        note: told how many bytes versions other than the latest take, whenever that changes.

    Attributes:
        versions: weights that are kept beside the latest, by the number of their version.
        bytes_max: the most bytes that these took.

    Raises:
        OptionError: the node's updates write its weights.
    """

    def __init__(
        self,
        node: ParameterizedNode,
        forward: Step,
        backward: Step,
        rule: VersionRule,
        note: Callable[[int], None],
    ) -> None:
        if node.is_sparse:
            raise OptionError(
                f"{node.describe()} updates rows of its table in place, so no old version of "
                "it can be kept; take is_sparse=False, or a schedule that stashes no weights"
            )
        self.bytes_max = 0
        self._bytes = 0
        self._note = note
        self._node, self._forward, self._backward = node, forward, backward
        self._rule = rule
        self.versions: dict[int, np.ndarray] = {}
        self._read: dict[int, int] = {}

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Serve a forward message with the version that the rule picks; in validation, the last."""
        node = self._node
        if not node.is_training:
            return self._forward(port, state, payload)
        latest, theta = node.version, node.theta
        picked = self._read[state[0]] = self._rule.pick(state[0], latest)
        self._forget()
        self._use(theta if picked == latest else self.versions[picked], picked)
        try:
            return self._forward(port, state, payload)
        finally:
            self._use(theta, latest)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Serve a backward message with the version that its forward step read."""
        latest, theta = self._node.version, self._node.theta
        read = self._read[state[0]]
        self._use(theta if read == latest else self.versions[read], latest)
        try:
            return self._backward(port, state, gradient)
        finally:
            self._use(theta, latest)

    def version_of(self, instance: int) -> int:
        """The version that the steps of an instance read, from its forward step on."""
        return self._read[instance]

    def ended(self, instance: int) -> None:
        """Note that the time of an instance's backward step has passed: it reads no more."""
        del self._read[instance]
        self._forget()

    def replaced(self, theta: np.ndarray) -> None:
        """Keep weights that an update has just replaced, if a step is to read them.

        Raises:
            OutOfMemoryError: there is no room.
        """
        self.versions = {**self.versions, self._node.version - 1: theta}
        self._forget()

    def _use(self, theta: np.ndarray, version: int) -> None:
        if self._node.theta is not theta:
            self._node.adopt(theta)
        self._node.read_as(version)

    def _forget(self) -> None:
        """Drop the versions that nobody will read, and measure what is left."""
        if not self.versions:
            return
        needed, rule = set(self._read.values()), self._rule
        self.versions = {
            version: theta
            for version, theta in self.versions.items()
            if version in needed or rule.awaits(version)
        }
        kept_bytes = len(self.versions) * self._node.theta.nbytes
        self.bytes_max = max(self.bytes_max, kept_bytes)
        if kept_bytes != self._bytes:
            self._bytes = kept_bytes
            self._note(kept_bytes)


SMOOTHING: Final = 0.9
"""What remains of v after an update: gamma; 0.9 is the usual momentum."""

PREDICTING: Final = Calls(6, 15)
"""A difference, two products and a sum for v, and a product and a difference for the prediction."""

PREDICTING_ARRAYS: Final = 7
"""Arrays of the parameters' size that these read or write at least: four for v, three then."""

PREDICTED_ARRAYS: Final = 2
"""Arrays that are kept for it: the smoothed step, and the prediction."""


class Prediction:
    """Forward steps of a node that read predicted weights, in training.

    Weights are predicted once per update, which counts as many FLOP as the update twice over: for
    v, and for the prediction. What is predicted moves with the weights where something else than an
    update changes them. A table of which an update writes some rows is left as it is.

    Args:
        node: whose steps they are; it has no table of which an update writes some rows.
        forward: the step.
    """

    def __init__(self, node: ParameterizedNode, forward: Step) -> None:
        assert not node.is_sparse
        self._node = node
        self._forward = forward
        self._staleness = 0.0
        self._step: np.ndarray | None = None
        self._base: np.ndarray | None = None
        self._predicted = np.zeros(0)

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Serve a forward message; in validation, with the latest weights."""
        node = self._node
        if self._step is None or not self._staleness or not node.is_training:
            return self._forward(port, state, payload)
        theta = node.theta
        if self._base is not theta:
            self._base, self._predicted = theta, theta - self._staleness * self._step
        node.adopt(self._predicted)
        try:
            return self._forward(port, state, payload)
        finally:
            node.adopt(theta)

    def updated(self, before: np.ndarray, staleness: float) -> None:
        """Note an update of weights that were `before`, with gradients so late on average."""
        step = before - self._node.theta
        step *= 1.0 - SMOOTHING
        if self._step is not None:
            self._step *= SMOOTHING
            step += self._step
        self._step, self._staleness = step, staleness

    @property
    def learned(self) -> tuple[np.ndarray | None, float]:
        """The smoothed step v, a vector or None before the first, and the staleness s."""
        return self._step, self._staleness

    @learned.setter
    def learned(self, learned: tuple[np.ndarray | None, float]) -> None:
        self._step, self._staleness = learned

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Return a step's work; an update's includes v and the prediction."""
        work = self._node.work(direction, shape)
        if direction is not Direction.UPDATE:
            return work
        size_bytes = self._node.parameter_count * self._node.theta.itemsize
        moved, passed = PREDICTING_ARRAYS * size_bytes, PREDICTING.passes * size_bytes
        return work + Work(2 * work.flop, moved, PREDICTING.operations, pass_bytes=passed)
