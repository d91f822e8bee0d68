"""Updates: what a node does with the gradients that it has accumulated."""

from __future__ import annotations

import math

from ampsim.errors import DivergenceError
from ampsim.ir import Graph, ParameterizedNode
from ampsim.optim import Optimizer
from ampsim.runtime.site import Site
from ampsim.trace import Recorder


class Updater:
    """Applies accumulated gradients with an optimizer, and records each update.

    Attributes:
        rate: the learning rate of the present epoch.
        averages_instances: divide a gradient by the number of instances in it (a mini-batch's
            mean, for schedules that drain) instead of applying the sum of its messages.
    """

    def __init__(self, optimizer: Optimizer, recorder: Recorder, averages_instances: bool) -> None:
        """Use `optimizer` from its first epoch on."""
        self._optimizer = optimizer
        self._recorder = recorder
        self.averages_instances = averages_instances
        self.rate = optimizer.rate(0)

    def start_epoch(self, epoch: int) -> None:
        """Take the learning rate of `epoch`, counted from 0."""
        self.rate = self._optimizer.rate(epoch)

    def update(self, site: Site, now_s: float) -> None:
        """Apply and forget what `site` has accumulated.

        Raises:
            DivergenceError: a weight would stop being finite; it is not adopted.
        """
        node = site.node
        assert isinstance(node, ParameterizedNode)
        if not node.is_abstract:
            self._apply(site, node, now_s)
        count = node.gradient_count
        self._recorder.updates.append(
            (site.index, now_s, count, node.staleness_sum / max(count, 1), node.staleness_max)
        )
        node.updated()

    def _apply(self, site: Site, node: ParameterizedNode, now_s: float) -> None:
        gradient = node.take_gradient()
        if self.averages_instances and len(node.instances) > 1:
            gradient *= gradient.dtype.type(1.0 / len(node.instances))
        if site.optimizer_state is None:
            site.optimizer_state = self._optimizer.init(node.theta)
        theta, site.optimizer_state = self._optimizer.update(
            gradient, site.optimizer_state, node.theta, self.rate
        )
        if not math.isfinite(float(theta.dot(theta))):
            raise DivergenceError(
                f"weights of {node.describe()} stopped being finite in update {node.version + 1} "
                f"with gradients of instance {max(node.instances)} at {now_s:.9g} s; "
                "try a lower learning rate"
            )
        node.adopt(theta)


def average_replicas(graph: Graph) -> None:
    """Set the parameters of each group of replicas to their mean (Section 5).

    It happens between epochs and takes no virtual time ("negligible communication cost").
    """
    for group in graph.replica_groups:
        if group[0].is_abstract:
            continue
        total = group[0].theta.copy()
        for replica in group[1:]:
            total += replica.theta
        total /= len(group)
        for replica in group:
            replica.adopt(total.copy())
