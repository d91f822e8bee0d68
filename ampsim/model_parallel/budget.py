"""A staleness budget: how old a gradient would be that an instance brings which is pumped now.

While the instance is on its way, those in flight bring gradients of their own, and every
`min_update_interval` of them are an update. So the gradient of a newly pumped instance at a node
will probably have met

    (gradients that the instances in flight still owe to the node) / (the node's interval)

updates. What an instance owes is what instances brought on average so far, or, where that is more,
what its own forward steps at the node have announced, less what it has brought. Of replicas each
takes its share: what is owed to all of them, over the sum of their intervals.

The node looked at is the oldest: the one that no other node with parameters comes before, where a
gradient is the last to arrive. Of several the most stale counts; where a loop leads from every
node to every other, all are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable

from ampsim.ir import Graph, ParameterizedNode, Payload, Sends, State
from ampsim.model_parallel.step import Step


class Debt:
    """The gradients that instances in flight owe to one node, or to the replicas of one.

    Args:
        interval: gradients between updates, of all replicas together.
    """

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._announced: dict[int, int] = {}
        self._brought: dict[int, int] = {}
        self._finished = 0
        self._gradients = 0

    def pumped(self, instance: int) -> None:
        """Note that `instance` is in flight."""
        self._announced[instance] = self._brought[instance] = 0

    def announce(self, instance: int) -> None:
        """Note a forward step of `instance`, which a gradient will follow."""
        self._announced[instance] += 1

    def bring(self, instance: int, gradients: int) -> None:
        """Note gradients of `instance`."""
        self._brought[instance] += gradients

    def finished(self, instance: int) -> None:
        """Note that `instance` owes nothing any more."""
        del self._announced[instance]
        self._finished += 1
        self._gradients += self._brought.pop(instance)

    @property
    def expected_staleness(self) -> float:
        """Foretell the staleness, in updates, of the gradient of an instance that is pumped now."""
        usual = self._gradients / self._finished if self._finished else 1.0
        owed = sum(
            max(0.0, max(usual, announced) - brought)
            for announced, brought in zip(
                self._announced.values(), self._brought.values(), strict=True
            )
        )
        return owed / self._interval


class GradientsOutstanding:
    """Steps of a node whose forward steps and gradients of training enter a debt."""

    def __init__(self, node: ParameterizedNode, forward: Step, backward: Step, debt: Debt) -> None:
        self._node, self._forward, self._backward, self._debt = node, forward, backward, debt

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Serve a forward message; one that had to wait for others announces no gradient yet."""
        sends = self._forward(port, state, payload)
        if sends and self._node.is_training:
            self._debt.announce(state[0])
        return sends

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Serve a backward message, which brings a gradient, or none."""
        before = self._node.gradient_count
        sends = self._backward(port, state, gradient)
        self._debt.bring(state[0], self._node.gradient_count - before)
        return sends


class Budget:
    """Says whether another instance may come.

    Counts reach the controller at once, though on a device they would take a message.

    Args:
        staleness: updates that a gradient may be old, as far as one can tell.
        debts: of the oldest nodes.
    """

    def __init__(self, staleness: float, debts: Iterable[Debt]) -> None:
        self._staleness = staleness
        self._debts = tuple(debts)

    @property
    def has_room(self) -> bool:
        """Whether the gradients of an instance pumped now would be young enough."""
        return all(debt.expected_staleness <= self._staleness for debt in self._debts)

    def pumped(self, instance: int) -> None:
        """Note that `instance` is in flight."""
        for debt in self._debts:
            debt.pumped(instance)

    def finished(self, instance: int) -> None:
        """Note that `instance` is done."""
        for debt in self._debts:
            debt.finished(instance)


def debts_of(graph: Graph) -> dict[ParameterizedNode, Debt]:
    """Make a debt for each of the oldest nodes of a graph; replicas share one.

    Each node has its interval already.
    """
    debts: dict[ParameterizedNode, Debt] = {}
    for nodes in oldest_of(graph):
        debt = Debt(sum(node.min_update_interval or 1 for node in nodes))
        debts |= dict.fromkeys(nodes, debt)
    return debts


def oldest_of(graph: Graph) -> list[list[ParameterizedNode]]:
    """The nodes with parameters that no other comes before, replicas together; else all nodes."""
    nodes = graph.parameterized
    first = [node for node in nodes if not any(node.input_needs_gradient)] or nodes
    groups = [group for group in graph.replica_groups if group[0] in first]
    grouped = {node.name for group in groups for node in group}
    return [*groups, *([node] for node in first if node.name not in grouped)]
