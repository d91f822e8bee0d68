"""Replay in batches: items of one node, direction and version of weights are served as one product.

An instance's messages are first led through the graph without numbers: which items there are, and
whose rows each reads (`ampsim.learning.operations`). The backward steps are these in reverse. Then
whatever is ready is served: at once what has no weights; of nodes that learn those of which no more
will come for the version, else those of which most wait. The order depends on what was decided, and
on the data, on nothing else, so that the numbers are the same each time.
"""

from __future__ import annotations

import gc
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from statistics import fmean
from typing import Any, Final, TypeAlias, cast

import numpy as np

from ampsim.errors import SimulationError
from ampsim.ir import Direction, Graph, Node, State
from ampsim.learning.operation import Report, RowOperation, RowPools
from ampsim.learning.operations import operations_of
from ampsim.learning.rows import VALUE, Item, Life, Ref
from ampsim.model_parallel import PassOrder, Updater
from ampsim.user_code import OURS_TO_PASS, told, user_code

AHEAD: Final = 48
"""Instances that are under way at most, unless all of them wait for others; measured: with 24 trees
are as fast, with 12 a tenth slower."""

FEW_ROWS: Final = 8
"""Rows of a learner's messages, in the mean, up to which batches are the faster; measured."""

Pumped: TypeAlias = Sequence[Any]
"""Messages of an instance: number of the controller's port, state, payload."""


class _Queue:
    """Items of one node and direction.

    Attributes:
        ready: those that can be served with the weights of the moment.
        later: others, by the version that they wait for.
        counts: how many there are of each version in a pass; empty where there is but one.
        due: how many are still to be served with the weights of the moment.
    """

    __slots__ = ("counts", "due", "is_back", "later", "operation", "ready")

    def __init__(self, operation: RowOperation, *, is_back: bool) -> None:
        self.operation, self.is_back = operation, is_back
        self.start(Counter())

    def start(self, counts: Counter[int]) -> None:
        """Begin a pass."""
        self.ready: list[Item] = []
        self.later: dict[int, list[Item]] = {}
        self.counts = counts
        self.due = counts[self.operation.node.version] if counts else 0

    def put(self, item: Item, version: int) -> None:
        """Take an item whose inputs are there."""
        if not self.counts or version == self.operation.node.version:
            self.ready.append(item)
        else:
            self.later.setdefault(version, []).append(item)

    def updated(self) -> None:
        """Go on with the next version."""
        version = self.operation.node.version
        self.ready, self.due = self.later.pop(version, []), self.counts[version]


class Batches:
    """Passes over data, in batches.

    Args:
        graph: whose nodes learn.
        learners: what the updater updates, by place.
        updater: applies gradients.
        report: takes what a loss says.
    """

    def __init__(
        self, graph: Graph, learners: Mapping[int, Any], updater: Updater | None, report: Report
    ) -> None:
        self._targets, self._nodes = graph.targets, graph.nodes
        self._learners, self._updater = learners, updater
        self._pools = RowPools()
        self._tape: list[Item] = []
        self._operations, self._traces = operations_of(graph, self._pools, self._tape)
        for operation in self._operations.values():
            operation.report = report
        each = self._operations.items()
        self._forward = {place: _Queue(one, is_back=False) for place, one in each}
        self._backward = {place: _Queue(one, is_back=True) for place, one in each}
        queues = [*self._backward.values(), *self._forward.values()]
        self._light = [one for one in queues if not one.operation.learns]
        self._heavy = [one for one in queues if one.operation.learns]
        self._is_training = False

    def run(self, pumped: Iterator[Pumped], order: PassOrder | None) -> None:
        """Serve a pass: of training in its order, or of validation where there is none.

        Raises:
            DivergenceError: a loss or a weight stopped being finite.
            SimulationError: a node's step failed; the message says which.
        """
        self._start(order)
        was_enabled = gc.isenabled()
        gc.disable()  # thousands of items are made and let go, none of them in a circle
        try:
            self._serve_all(pumped)
        finally:
            if was_enabled:
                gc.enable()
        for place, learner in self._learners.items():
            node = learner.node
            last = node.version if order is None else order.learners[node.name].last
            assert node.version == last, f"{node.name}: {node.version} updates, not {last}"
            for queue in (self._forward[place], self._backward[place]):
                assert not queue.later, f"{node.name}: items wait for versions {queue.later.keys()}"

    def _start(self, order: PassOrder | None) -> None:
        self._is_training = order is not None
        for node in self._nodes:
            node.is_training = False  # what a backward step needs is not kept by state
        for place, operation in self._operations.items():
            operation.is_training = self._is_training
            reads, updates = Counter[int](), Counter[int]()
            if order is not None and operation.learns:
                operation.order = order.learners[operation.node.name]
                reads.update(operation.order.reads.values())
                updates.update([update for _read, update in operation.order.gradients.values()])
            self._forward[place].start(reads)
            self._backward[place].start(updates)

    def _serve_all(self, pumped: Iterator[Pumped]) -> None:
        """Serve items, and bring in instances, until there are no more."""
        alive: list[Life] = []
        is_more = True
        while True:
            self._serve_light()
            best = self._best()
            if is_more and (best is None or len(best.ready) != best.due):
                alive = [one for one in alive if one.left]
                if best is None or len(alive) < AHEAD:
                    sends = next(pumped, None)
                    is_more = sends is not None
                    if sends is not None:
                        alive.append(self._admit(sends))
                    continue
            if best is None:
                break
            self._serve(best)
        assert not any(one.left for one in alive), "items were not served"

    def _serve_light(self) -> None:
        """Serve what has no weights until nothing of it is ready."""
        is_left = True
        while is_left:
            is_left = False
            for queue in self._light:
                if queue.ready:
                    self._serve(queue)
                    is_left = True

    def _best(self) -> _Queue | None:
        """The queue of a learner to serve, a complete one if there is one; None where all wait."""
        best, most = None, 0
        for queue in self._heavy:
            waiting = len(queue.ready)
            if waiting:
                if waiting == queue.due:
                    return queue
                if waiting > most:
                    best, most = queue, waiting
        return best

    def _admit(self, sends: Pumped) -> Life:
        life = self.trace(sends)
        left = self.pending()
        assert not left, f"{left} waits for another instance"
        self._link(life)
        return life

    def trace(self, sends: Pumped) -> Life:
        """Lead an instance's messages through the graph; its items are then on the tape."""
        life, traces = Life(), self._traces
        targets: Any = self._targets
        life.left = 1
        self._tape.clear()
        for operation in self._operations.values():
            operation.life = life
        stack: list[tuple[int, int, State, Any]] = []
        for port, state, payload in sends:
            far, far_port = targets[0][port]
            if isinstance(payload, np.ndarray):
                payload = self._brought_in(life, state, cast("np.ndarray", payload))
            stack.append((far, far_port, state, payload))
        while stack:
            place, port, state, ref = stack.pop()
            ends = targets[place]
            try:
                for out, onward, sent in traces[place](port, state, ref):
                    far, far_port = ends[out]
                    stack.append((far, far_port, onward, sent))
            except OURS_TO_PASS:
                raise
            except BaseException as error:
                raise failed(self._nodes[place], Direction.FORWARD, state, error) from error
        return life

    def _brought_in(self, life: Life, state: State, payload: np.ndarray) -> Ref:
        item = Item(None, life, state, [], len(payload))
        self._pools.values(payload).put(payload, (item,), VALUE)
        return (item, 0, item.rows, None)

    def pending(self) -> str:
        """A node where messages wait for others; empty where there is none."""
        for operation in self._operations.values():
            if operation.waits:
                return str(operation.node.describe())
        return ""

    def rows_of_learners(self) -> list[int]:
        """Rows of each message of the last instance to a node that learns."""
        return [item.rows for item in self._tape if item.operation.learns]

    def _link(self, life: Life) -> None:
        """Find out what each item waits for, forward and backward."""
        tape = self._tape
        if self._is_training:
            for item in reversed(tape):
                self._link_back(item)
        life.left += len(tape) - 1
        for item in tape:
            operation = item.operation
            if self._is_training and operation.learns:
                item.version = operation.order.reads[item.state]
                if item.owed:
                    item.update = operation.order.gradients[item.state][1]
            missing = 0
            for ref in item.refs:
                source = ref[0]
                if source.pool is None:
                    source.readers.append(item)
                    missing += 1
            item.missing = missing
            if not missing:
                self._forward[operation.place].put(item, item.version)

    def _link_back(self, item: Item) -> None:
        refs = item.refs
        if item.operation.is_loss:
            refs = refs[:1]
        elif item.gradients:
            item.owed = len(item.gradients)
            item.life.left += 1
        else:
            return
        item.back = [0] * len(refs)
        for port, ref in enumerate(refs):
            source = ref[0]
            if source.needs:
                source.gradients.append((item, port, ref[1], ref[2], ref[3]))

    def _serve(self, queue: _Queue) -> None:
        items, operation = queue.ready, queue.operation
        queue.ready = []
        try:
            if queue.is_back:
                operation.backward(items)
            else:
                operation.forward(items)
        except OURS_TO_PASS:
            raise
        except BaseException as error:
            direction = Direction.BACKWARD if queue.is_back else Direction.FORWARD
            raise failed(operation.node, direction, items[0].state, error) from error
        if queue.is_back:
            self._went_back(items)
        else:
            self._went_forward(items)
            if operation.is_loss and self._is_training:
                self._gradients_are_there(items, 1)
        if queue.counts:
            queue.due -= len(items)
            self._update(operation, items[0].state)

    def _went_forward(self, items: list[Item]) -> None:
        for item in items:
            item.life.left -= 1
            for reader in item.readers:
                reader.missing -= 1
                if not reader.missing:
                    self._forward[reader.operation.place].put(reader, reader.version)
            item.readers = []

    def _went_back(self, items: list[Item]) -> None:
        for item in items:
            item.life.left -= 1
            item.gradients = []
        self._gradients_are_there(items, None)

    def _gradients_are_there(self, items: list[Item], ports: int | None) -> None:
        for item in items:
            for ref in item.refs[:ports]:
                source = ref[0]
                if source.needs:
                    source.owed -= 1
                    if not source.owed:
                        self._backward[source.operation.place].put(source, source.update)

    def _update(self, operation: RowOperation, state: State) -> None:
        """Update a node whose gradients are all there, if nobody needs what that replaces."""
        forward, backward = self._forward[operation.place], self._backward[operation.place]
        assert self._updater is not None
        while operation.node.gradient_count and not forward.due and not backward.due:
            with failing(operation.node, Direction.UPDATE, state):
                self._updater.update(self._learners[operation.place], math.nan)
            forward.updated()
            backward.updated()


def why_by_message(graph: Graph, sends: Pumped) -> str:
    """Why a graph's messages are served one by one; empty where batches are the faster.

    Args:
        graph: with weights; its nodes can all serve messages together (`WHY_ALONE`).
        sends: messages of an instance of training, the first one.
    """
    for _port, _state, payload in sends:
        axes = (
            1 if getattr(payload, "dtype", None) is not None and payload.dtype.kind in "iu" else 2
        )
        if getattr(payload, "ndim", axes) > axes:
            return f"a payload has {payload.ndim} axes"
    were = [node.is_training for node in graph.nodes]
    batches = Batches(graph, {}, None, lambda _node, _state, _report: None)
    for node in graph.nodes:
        node.is_training = False
    batches.trace(sends)
    for node, was in zip(graph.nodes, were, strict=True):
        node.is_training = was
    if left := batches.pending():
        return f"{left} waits for other instances"
    rows = fmean(batches.rows_of_learners())
    if rows > FEW_ROWS:
        return f"learners' messages have {rows:.3g} rows in the mean, more than {FEW_ROWS}"
    return ""


def failed(
    node: Node, direction: Direction, state: State, what: str | BaseException
) -> SimulationError:
    """Make the error that tells what failed, and where."""
    what = told(what) if isinstance(what, BaseException) else what
    return SimulationError(f"{_which(node, direction, state)}: {what}")


def failing(node: Node, direction: Direction, state: State) -> AbstractContextManager[None]:
    """Tell what goes wrong in a block as the node's; for what is rarer than a message."""
    return user_code(_which(node, direction, state))


def _which(node: Node, direction: Direction, state: State) -> str:
    return f"{node.describe()} failed serving {direction.name.lower()} {state}"
