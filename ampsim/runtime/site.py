"""A site: one node where it runs, with everything that serving a message there needs at hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ampsim.hardware import Device, light_is_free, occupancy_s
from ampsim.ir import Direction, LossNode, Node, ParameterizedNode, Payload, Sends, State, Work
from ampsim.runtime.tally import Tally

if TYPE_CHECKING:
    from ampsim.runtime.desk import Desk
    from ampsim.runtime.network import Channel
    from ampsim.runtime.stash import Stash
    from ampsim.runtime.worker import Worker

Entry: TypeAlias = "tuple[Site, int, State, Payload]"
"""A message in an inbox: (site, port, state, payload); the queue says its direction."""

Route: TypeAlias = "tuple[Callable[[Entry], Any], Site, int, Worker | None, bool, Channel | None]"
"""Where a port's messages go: (accept, site, port, worker, is_free, channel).

`accept` takes the entry (a queue's ``append``, the controller, or a desk); `worker` is whom to wake
for it, None where `accept` sees to that; `is_free` tells whether the step will cost nothing;
`channel` is None where the way costs nothing."""

Price: TypeAlias = "tuple[float, int, int]"
"""(seconds, FLOP, bytes) charged for one step."""

Step: TypeAlias = Callable[[int, State, Payload], Sends]
"""``step(port, state, payload)`` serves a message."""

NOTHING: Price = (0.0, 0, 0)


class Site:
    """One node on one worker.

    Attributes:
        node: the operation.
        index: the node's place in the graph.
        worker: the worker's index; -1 for the host.
        learner: the node, where it is one that learns.
        is_free: whether no step of this node ever takes device time.
        forward_routes: for each output port, where its messages go.
        backward_routes: for each input port, where its gradients go.
        acknowledge_route: where word goes that an update of the controller's has ended.
        optimizer_state: what the optimizer remembers of this node's parameters.
        forward, backward: serve a message: the node's own methods, or what counts or changes
            weights around them.
        work: says what a step costs: the node's own method, or what stands for it.
        after_update: told after each update of the weights before it and of the mean staleness of
            its gradients; None where nobody wants to know.
        tally: counts what a node with parameters stashes; None for others.
        stash: keeps old versions of the node's weights; None where all steps read the latest.
        desk: where messages wait for their turn; None where there are no turns.
        resident_bytes: weights that the node's worker hosts; they stay in a cache that has room.
    """

    __slots__ = (
        "_device",
        "_prices",
        "acknowledge_route",
        "after_update",
        "backward",
        "backward_routes",
        "desk",
        "forward",
        "forward_routes",
        "index",
        "is_free",
        "is_loss",
        "learner",
        "node",
        "optimizer_state",
        "resident_bytes",
        "stash",
        "tally",
        "work",
        "worker",
    )

    def __init__(self, node: Node, index: int, worker: int, device: Device | None) -> None:
        """Put `node` on `worker`, whose device is `device`; the host has none."""
        self.node = node
        self.index = index
        self.worker = worker
        self.is_loss = node.is_loss
        self.learner = node if isinstance(node, ParameterizedNode) else None
        self.is_free = device is None or (not node.is_parameterized and light_is_free(device))
        self.forward_routes: list[Route] = []
        self.backward_routes: list[Route] = []
        self.acknowledge_route: Route
        self.optimizer_state: Any = None
        self.tally = Tally(node) if node.is_parameterized else None
        self.forward: Step = self.tally.forward if self.tally else node.forward
        self.backward: Step = self.tally.backward if self.tally else node.backward
        self.work: Callable[[Direction, tuple[int, ...] | None], Work] = node.work
        self.after_update: Callable[[np.ndarray, float], None] | None = None
        self.stash: Stash | None = None
        self.desk: Desk | None = None
        self.resident_bytes = 0
        self._device = device
        self._prices: dict[tuple[Direction, tuple[int, ...] | None], Price] = {}

    def price_of_step(self, direction: Direction, payload: Payload, sends: Sends) -> Price:
        """What a forward or backward step costs that took `payload` and returned `sends`.

        A step that only waits costs nothing. A light step is charged for the largest payload that
        it took or sends, whichever message came last.
        """
        node = self.node
        if self.is_loss:
            assert isinstance(node, LossNode)
            payload, node.completed = node.completed, None
            if payload is None:
                return NOTHING
        elif not sends:
            return NOTHING
        elif self.learner is None:
            payload = max((payload, *(sent for _port, _state, sent in sends)), key=_size)
        return self.price(direction, None if payload is None else payload.shape)

    def price(self, direction: Direction, shape: tuple[int, ...] | None) -> Price:
        """What a step costs here; depends on the shape of its payload alone, and is remembered."""
        key = (direction, shape)
        price = self._prices.get(key)
        if price is None:
            price = self._prices[key] = self._work_out(direction, shape)
        return price

    def _work_out(self, direction: Direction, shape: tuple[int, ...] | None) -> Price:
        if self._device is None:
            return NOTHING
        work = self.work(direction, shape)
        is_light = not self.node.is_parameterized
        rows = None if direction is Direction.UPDATE or shape is None else _rows(shape)
        seconds = occupancy_s(
            self._device, work, is_light=is_light, rows=rows, resident_bytes=self.resident_bytes
        )
        return (seconds, work.flop, work.bytes)


def keep_weights(sites: Sequence[Site]) -> None:
    """Tell each site what its worker would keep in a cache: the weights of all nodes placed there.

    Every step of a node reads them, so they stay. Sparse tables are left out, because a step
    touches few of their rows.
    """
    resident_bytes: dict[int, int] = {}
    for site in sites:
        kept_bytes = resident_bytes.get(site.worker, 0) + _kept_bytes(site)
        resident_bytes[site.worker] = kept_bytes
    for site in sites:
        site.resident_bytes = resident_bytes[site.worker]


def _kept_bytes(site: Site) -> int:
    """Bytes of a node's own weights that stay in a cache."""
    node = site.learner
    if node is None or node.is_sparse:
        return 0
    return node.parameter_count * node.theta.itemsize


def _size(payload: Payload) -> int:
    return -1 if payload is None else math.prod(payload.shape)


def _rows(shape: tuple[int, ...]) -> int:
    """Return k of a payload of k rows."""
    return shape[0] if shape else 1
