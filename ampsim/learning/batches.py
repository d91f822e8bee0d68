"""Replay in batches: items of one node, direction and version are served as one product."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from ampsim.ir import Graph, ParameterizedNode
from ampsim.learning.operations import OPERATIONS, ROUTERS, Operation, Pools
from ampsim.learning.rows import VALUE, Item, Life
from ampsim.model_parallel import PassOrder

AHEAD: Final = 48


class Queue:
    """Items of one node and direction.

    Attributes:
        ready: those that can be served with the weights of the moment.
        due: how many are still to be served with these, in the whole pass.
    """

    __slots__ = ("due", "later", "operation", "ready", "back", "counts")

    def __init__(self, operation: Operation, back: bool, counts: Counter[int] | None) -> None:
        self.operation, self.back = operation, back
        self.ready: list[Item] = []
        self.later: dict[int, list[Item]] = {}
        self.counts = counts
        self.due = 0


class Batches:
    def __init__(self, graph: Graph, updater: Any, learners: Any) -> None:
        self.graph = graph
        self.updater, self.learners = updater, learners
        self.pools = Pools()
        self.traces: list[Any] = [None]
        self.operations: list[Operation | None] = [None]
        for place, node in enumerate(graph.nodes[1:], 1):
            kind = OPERATIONS.get(type(node))
            operation = None if kind is None else kind(node, place, self.pools)
            self.operations.append(operation)
            if operation is None:
                self.traces.append(ROUTERS[type(node)](node))
            else:
                self.traces.append(operation.trace)
        self.tape: list[Item] = []
        for one in self.all:
            one.tape = self.tape

    @property
    def all(self) -> list[Operation]:
        return [one for one in self.operations if one is not None]

    def run(self, pumped: Iterator[Sequence[Any]], order: PassOrder | None, totals: Any) -> None:
        is_training = order is not None
        self.is_training = is_training
        self.order = order
        for node in self.graph.nodes:
            node.is_training = False
        forward: list[Any] = [None] * len(self.operations)
        backward: list[Any] = [None] * len(self.operations)
        for place, one in enumerate(self.operations):
            if one is None:
                continue
            one.is_training = is_training
            if one.is_loss:
                one.report = totals
            reads = gradients = None
            if one.learns and order is not None:
                of = order.learners[one.node.name]
                reads, gradients = of.reads, of.gradients
                one.reads, one.gradients = reads, gradients
                fcounts, bcounts = Counter(reads.values()), Counter(u for _r, u in gradients.values())
                forward[place] = Queue(one, False, fcounts)
                backward[place] = Queue(one, True, bcounts)
                forward[place].due = fcounts[one.node.version]
                backward[place].due = bcounts[one.node.version]
            else:
                forward[place], backward[place] = Queue(one, False, None), Queue(one, True, None)
        self.forward, self.backward = forward, backward
        queues = [one for one in (*backward, *forward) if one is not None]
        self.light = [one for one in queues if not one.operation.learns]
        self.heavy = [one for one in queues if one.operation.learns]
        self.alive: list[Life] = []
        is_over = False
        while True:
            if self._serve_light():
                continue
            best = None
            most = 0
            for queue in self.heavy:
                waiting = len(queue.ready)
                if waiting:
                    if waiting == queue.due:
                        best = queue
                        break
                    if waiting > most:
                        best, most = queue, waiting
            else:
                if not is_over:
                    self.alive = [one for one in self.alive if one.left]
                    if best is None or len(self.alive) < AHEAD:
                        sends = next(pumped, None)
                        if sends is None:
                            is_over = True
                        else:
                            self._admit(sends)
                        continue
                if best is None:
                    break
            self._serve(best)
        assert not any(one.left for one in self.alive), "items were not served"

    def _serve_light(self) -> bool:
        found = False
        for queue in self.light:
            if queue.ready:
                self._serve(queue)
                found = True
        return found

    def _admit(self, sends: Sequence[Any]) -> None:
        life = Life()
        life.left = 1
        tape = self.tape
        tape.clear()
        for one in self.all:
            one.life = life
        targets, traces = self.graph.targets, self.traces
        stack: list[Any] = []
        for port, state, payload in sends:
            far, far_port = targets[0][port]
            if isinstance(payload, np.ndarray):
                item = Item(None, life, state, [], len(payload))
                self.pools.values(payload).put(payload, (item,), VALUE)
                payload = (item, 0, len(payload), None)
            stack.append((far, far_port, state, payload))
        while stack:
            place, port, state, ref = stack.pop()
            ends = targets[place]
            for out, onward, sent in traces[place](port, state, ref):
                far, far_port = ends[out]
                stack.append((far, far_port, onward, sent))
        self.alive.append(life)
        self._link(tape, life)

    def _link(self, tape: list[Item], life: Life) -> None:
        is_training = self.is_training
        if is_training:
            for item in reversed(tape):
                operation = item.operation
                if operation.is_loss:
                    refs = item.refs[:1]
                elif item.gradients:
                    refs = item.refs
                    item.owed = len(item.gradients)
                    life.left += 1
                else:
                    continue
                item.back = [0] * len(refs)
                for port, ref in enumerate(refs):
                    source = ref[0]
                    if source.needs:
                        source.gradients.append((item, port, ref[1], ref[2], ref[3]))
        life.left += len(tape) - 1
        for item in tape:
            operation = item.operation
            if is_training and operation.learns:
                item.version = operation.reads[item.state]
                if item.gradients:
                    item.update = operation.gradients[item.state][1]
            missing = 0
            for ref in item.refs:
                source = ref[0]
                if source.pool is None:
                    source.readers.append(item)
                    missing += 1
            item.missing = missing
            if not missing:
                self._ready(item)

    def _ready(self, item: Item) -> None:
        queue = self.forward[item.operation.place]
        if queue.counts is None or item.version == item.operation.node.version:
            queue.ready.append(item)
        else:
            queue.later.setdefault(item.version, []).append(item)

    def _serve(self, queue: Queue) -> None:
        items, queue.ready = queue.ready, []
        operation = queue.operation
        if queue.back:
            operation.backward(items)
            self._go_back(items)
        else:
            operation.forward(items)
            for item in items:
                item.life.left -= 1
                for reader in item.readers:
                    reader.missing -= 1
                    if not reader.missing:
                        self._ready(reader)
            if operation.is_loss and self.is_training:
                self._go_back(items, of_loss=True)
        if queue.counts is not None:
            queue.due -= len(items)
            self._update(operation)

    def _go_back(self, items: list[Item], of_loss: bool = False) -> None:
        for item in items:
            if not of_loss:
                item.life.left -= 1
            for ref in item.refs[:1] if of_loss else item.refs:
                source = ref[0]
                if source.needs:
                    source.owed -= 1
                    if not source.owed:
                        back = self.backward[source.operation.place]
                        if back.counts is None or source.update == source.operation.node.version:
                            back.ready.append(source)
                        else:
                            back.later.setdefault(source.update, []).append(source)

    def _update(self, operation: Operation) -> None:
        forward, backward = self.forward[operation.place], self.backward[operation.place]
        node = operation.node
        while node.gradient_count and not forward.due and not backward.due:
            self.updater.update(self.learners[operation.place], float("nan"))
            for queue in (forward, backward):
                queue.due = queue.counts[node.version]
                queue.ready = queue.later.pop(node.version, [])
