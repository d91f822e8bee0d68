"""Weight prediction: a forward step reads the weights that its gradient will probably meet.

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

from typing import Final

import numpy as np

from ampsim.ir import Direction, ParameterizedNode, Payload, Sends, State, Work
from ampsim.model_parallel.step import Step

SMOOTHING: Final = 0.9
"""What remains of v after an update: gamma; 0.9 is the usual momentum."""


class Prediction:
    """Forward steps of a node that read predicted weights, in training.

    Weights are predicted once per update, which costs as much as the update twice over: for v, and
    for the prediction. What is predicted moves with the weights where something else than an
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
        """What a step costs; an update thrice."""
        work = self._node.work(direction, shape)
        if direction is Direction.UPDATE:
            passed = 3 * (work.pass_bytes or work.bytes)
            return Work(3 * work.flop, 3 * work.bytes, pass_bytes=passed)
        return work
