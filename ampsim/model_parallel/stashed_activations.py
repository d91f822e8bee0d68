"""How many activations a node stashes: those of forward steps whose backward has not run."""

from __future__ import annotations

from ampsim.ir import Node, Payload, Sends, State


class StashedActivations:
    """Serves as its node does, and counts.

    Attributes:
        held: instances' forward steps whose backward step has not run.
        held_max: the most there have been.
    """

    __slots__ = ("_node", "held", "held_max")

    def __init__(self, node: Node) -> None:
        self._node = node
        self.held = 0
        self.held_max = 0

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Serve a forward message; one that had to wait for others stashes nothing yet."""
        sends = self._node.forward(port, state, payload)
        if sends and self._node.is_training:
            self.held += 1
            if self.held > self.held_max:
                self.held_max = self.held
        return sends

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Serve a backward message, which frees what its forward step stashed."""
        self.held -= 1
        return self._node.backward(port, state, gradient)
