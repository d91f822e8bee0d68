"""A site: one node where it runs, with everything that serving a message there needs at hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from ampsim.hardware import Device, light_is_free, occupancy_s
from ampsim.ir import (
    Direction,
    LossNode,
    Node,
    ParameterizedNode,
    Payload,
    Sends,
    State,
    Work,
)
from ampsim.runtime.tally import Tally
from ampsim.trace import Kinds

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

Price: TypeAlias = "tuple[float, int, int, int]"
"""(seconds, FLOP, bytes) charged for one step, and the number of the kind of its span."""

Step: TypeAlias = Callable[[int, State, Payload], Sends]
"""``step(port, state, payload)`` serves a message."""

Extents: TypeAlias = "tuple[int, ...] | None"
"""Shape of the payload that a step is charged for; None where there is none."""

WAITS: Final = (-1,)
"""In place of a shape: the step only waited, which costs nothing."""


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
        free: for each direction, the price of a step that costs nothing.
    """

    __slots__ = (
        "_device",
        "_kinds",
        "_prices",
        "acknowledge_route",
        "after_update",
        "backward",
        "backward_routes",
        "desk",
        "forward",
        "forward_routes",
        "free",
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

    def __init__(
        self, node: Node, index: int, worker: int, device: Device | None, kinds: Kinds
    ) -> None:
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
        self.work: Callable[[Direction, Extents], Work] = node.work
        self.after_update: Callable[[np.ndarray, float], None] | None = None
        self.stash: Stash | None = None
        self.desk: Desk | None = None
        self.resident_bytes = 0
        self._device = device
        self._kinds = kinds
        self.free = tuple((0.0, 0, 0, self.kind(direction, 0, 0)) for direction in Direction)
        self._prices: dict[tuple[Direction, Extents], Price] = {}

    def charged(self, payload: Payload, sends: Sends) -> Extents:
        """Shape that a forward or backward step is charged for, or `WAITS`; ask once a step.

        Args:
            payload: what the step took.
            sends: what it returned.

        A step that only waits costs nothing. A light step is charged for the largest payload that
        it took or sends, whichever message came last.
        """
        node = self.node
        if self.is_loss:
            assert isinstance(node, LossNode)
            payload, node.completed = node.completed, None
            if payload is None:
                return WAITS
        elif not sends:
            return WAITS
        elif self.learner is None:
            payload = max((payload, *(sent for _port, _state, sent in sends)), key=_size)
        return None if payload is None else payload.shape

    def kind(self, direction: Direction, flop: int, moved: int) -> int:
        """The number of the kind of span of a step that is charged so many FLOP and bytes."""
        return self._kinds.number((self.worker, self.index, direction, flop, moved))

    def price(self, direction: Direction, shape: Extents) -> Price:
        """What a step costs here; depends on the shape of its payload alone, and is remembered."""
        key = (direction, shape)
        price = self._prices.get(key)
        if price is None:
            price = self._prices[key] = self._work_out(direction, shape)
        return price

    def price_of_group(self, direction: Direction, shapes: Sequence[Extents]) -> Price:
        """What one step costs that is charged for payloads of all these `shapes`.

        Shapes that are equal but for the first axis, the rows, are one payload of all their rows:
        weights are read once, and its operations are issued once. Others are more work in the same
        step. The device is as efficient as with all rows together.
        """
        if len(shapes) == 1:
            return self.price(direction, shapes[0])
        rows_of: dict[tuple[int, ...], int] = {}
        whole: list[Extents] = []
        for shape in shapes:
            if shape:
                rows_of[shape[1:]] = rows_of.get(shape[1:], 0) + shape[0]
            else:
                whole.append(shape)
        whole += [(rows, *rest) for rest, rows in rows_of.items()]
        work = reduce(add, (self.work(direction, shape) for shape in whole))
        rows = [_rows(shape) for shape in whole if shape is not None]
        return self._occupancy(direction, work, sum(rows) if rows else None)

    def _work_out(self, direction: Direction, shape: Extents) -> Price:
        rows = None if direction is Direction.UPDATE or shape is None else _rows(shape)
        return self._occupancy(direction, self.work(direction, shape), rows)

    def _occupancy(self, direction: Direction, work: Work, rows: int | None) -> Price:
        if self._device is None:
            return self.free[direction]
        is_light = not self.node.is_parameterized
        seconds = occupancy_s(
            self._device, work, is_light=is_light, rows=rows, resident_bytes=self.resident_bytes
        )
        return (seconds, work.flop, work.bytes, self.kind(direction, work.flop, work.bytes))


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
