"""How many activations a node stashes: those of forward steps whose backward has not run."""

from __future__ import annotations

from ampsim.ir import ParameterizedNode, Payload, Sends, State
from ampsim.model_parallel.step import Step


class StashedActivations:
    """Steps of a node with parameters, counted.

    Args:
        node: whose steps they are.
        forward: the forward step.
        backward: the step that frees what the forward step stashed.

    Attributes:
        held: forward steps whose backward step has not run.
        held_max: the most there have been.
    """

    __slots__ = ("_backward", "_forward", "_node", "held", "held_max")

    def __init__(self, node: ParameterizedNode, forward: Step, backward: Step) -> None:
        self._node, self._forward, self._backward = node, forward, backward
        self.held = 0
        self.held_max = 0

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Serve a forward message; one that had to wait for others stashes nothing yet."""
        step = self._forward
        sends = step(port, state, payload)
        if sends and self._node.is_training:
            self.held += 1
            if self.held > self.held_max:
                self.held_max = self.held
        return sends

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Serve a backward message."""
        self.held -= 1
        assert self.held >= 0, f"{self._node.name} freed an activation twice"
        step = self._backward
        return step(port, state, gradient)
