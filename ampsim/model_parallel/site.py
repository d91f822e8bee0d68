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
from ampsim.model_parallel.stashed_activations import StashedActivations
from ampsim.trace import Cause, Kinds

if TYPE_CHECKING:
    from ampsim.machine import Channel
    from ampsim.model_parallel.stash import Stash
    from ampsim.model_parallel.turn_queue import TurnQueue
    from ampsim.model_parallel.worker import Worker

Entry: TypeAlias = "tuple[Site, int, State, Payload, Cause]"
"""A message in an inbox: (site, port, state, payload, cause); the queue says its direction, and the
cause what brought the message there, a number of `ampsim.trace.causes`."""

Route: TypeAlias = "tuple[Callable[[Entry], Any], Site, int, Worker | None, bool, Channel | None]"
"""Where a port's messages go: (accept, site, port, worker, is_free, channel).

`accept` takes the entry (an inbox's ``append``, the controller, or a turn queue); `worker` is whom
to wake for it, None where `accept` sees to that; `is_free` tells whether the step costs nothing;
`channel` is None where the way costs nothing."""

Price: TypeAlias = "tuple[float, int, int, int, int]"
"""(seconds, FLOP, bytes, number of the kind of its span, operations) that one step is charged."""

Step: TypeAlias = Callable[[int, State, Payload], Sends]
"""``step(port, state, payload)`` serves a message."""

Extents: TypeAlias = "tuple[int, ...] | None"
"""Shape of the payload that a step is charged for; None where there is none."""

Needed: TypeAlias = "tuple[bool, ...]"
"""For each input port of a node, whether a gradient is to be sent there."""

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
        activations: counts what a node with parameters stashes; None for others.
        stash: keeps old versions of the node's weights; None where all steps read the latest.
        turn_queue: where messages wait for their turn; None where there are no turns.
        on_served: told the number of each step that has ended, where there are turns; None where
            nobody wants to know.
        resident_bytes: weights that the node's worker hosts; they stay in a cache that has room.
        free: for each direction, the price of a step that costs nothing.
    """

    __slots__ = (
        "_device",
        "_in_general",
        "_kinds",
        "_prices",
        "_prices_by_need",
        "acknowledge_route",
        "activations",
        "after_update",
        "backward",
        "backward_routes",
        "forward",
        "forward_routes",
        "free",
        "index",
        "is_free",
        "is_loss",
        "learner",
        "node",
        "on_served",
        "optimizer_state",
        "resident_bytes",
        "stash",
        "turn_queue",
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
        self.activations = StashedActivations(node) if node.is_parameterized else None
        self.forward: Step = self.activations.forward if self.activations else node.forward
        self.backward: Step = self.activations.backward if self.activations else node.backward
        if node.heeds_need and any(node.decided_by):
            self._in_general, self.backward = self.backward, self._backward_as_needed
        self.work: Callable[[Direction, Extents], Work] = node.work
        self.after_update: Callable[[np.ndarray, float], None] | None = None
        self.stash: Stash | None = None
        self.turn_queue: TurnQueue | None = None
        self.on_served: Callable[[int], None] | None = None
        self.resident_bytes = 0
        self._device = device
        self._kinds = kinds
        self.free = tuple((0.0, 0, 0, self.kind(d, 0, 0, 0), 0) for d in Direction)
        self._prices: dict[tuple[Direction, Extents], Price] = {}
        self._prices_by_need = {node.input_needs_gradient: self._prices}

    @property
    def needed(self) -> Needed:
        """For each input, whether the last backward step was to send a gradient."""
        return self.node.input_needs_gradient

    @needed.setter
    def needed(self, needed: Needed) -> None:
        """Serve, and charge, steps that send gradients to these inputs only."""
        self.node.input_needs_gradient = needed
        self._prices = self._prices_by_need.setdefault(needed, {})

    def _backward_as_needed(self, port: int, state: State, payload: Payload) -> Sends:
        """Serve a backward message of a node that gets messages which need no gradient."""
        self.needed = self.node.gradients_needed(state)
        return self._in_general(port, state, payload)

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

    def kind(self, direction: Direction, flop: int, moved: int, operations: int) -> int:
        """The number of the kind of span of a step that is charged so much."""
        key = (self.worker, self.index, direction, flop, moved, operations)
        return self._kinds.number(key)

    def price(self, direction: Direction, shape: Extents) -> Price:
        """What a step costs here; depends on the shape of its payload alone, and is remembered."""
        key = (direction, shape)
        price = self._prices.get(key)
        if price is None:
            price = self._prices[key] = self._work_out(direction, shape)
        return price

    def price_of_group(
        self, direction: Direction, shapes: Sequence[Extents], needed: Sequence[Needed]
    ) -> Price:
        """What one step costs that is charged for payloads of all these `shapes`.

        Shapes that are equal but for the first axis, the rows, are one payload of all their rows:
        weights are read once, and its operations are issued once. Others are more work in the same
        step, and so are those whose gradients other inputs need. The device is as efficient as with
        all rows together.
        """
        alike: dict[Needed, list[Extents]] = {}
        for shape, inputs in zip(shapes, needed, strict=True):
            alike.setdefault(inputs, []).append(shape)
        works: list[Work] = []
        rows: list[int] = []
        for self.needed, group in alike.items():
            if len(shapes) == 1:
                return self.price(direction, shapes[0])
            whole = _by_rows(group)
            works += [self.work(direction, shape) for shape in whole]
            rows += [_rows(shape) for shape in whole if shape is not None]
        return self._occupancy(direction, reduce(add, works), sum(rows) if rows else None)

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
        flop, moved, operations = work.flop, work.bytes, work.operations
        kind = self.kind(direction, flop, moved, operations)
        return (seconds, flop, moved, kind, operations)


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


def _by_rows(shapes: Sequence[Extents]) -> list[Extents]:
    """Join shapes that are equal but for the rows into one of all their rows."""
    rows_of: dict[tuple[int, ...], int] = {}
    whole: list[Extents] = []
    for shape in shapes:
        if shape:
            rows_of[shape[1:]] = rows_of.get(shape[1:], 0) + shape[0]
        else:
            whole.append(shape)
    return [*whole, *((rows, *rest) for rest, rows in rows_of.items())]


def _size(payload: Payload) -> int:
    return -1 if payload is None else math.prod(payload.shape)


def _rows(shape: tuple[int, ...]) -> int:
    """Return k of a payload of k rows."""
    return shape[0] if shape else 1
