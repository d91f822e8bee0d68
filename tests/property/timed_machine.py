"""A machine of tokens in time: the rules that docs/dataflow.md states, over a plain heap of events.

It shares no code with the executor, its host, its plan, or the links: it has no slots, no counts of
what is outstanding, and scans all that it knows where they count. What it is handed is a graph that
is cut over workers (`Cut`), of which it takes nodes, their places and the pairs of Send and Recv.

A host runs what is ready in its order, `dispatch_s` each; a device computes what it is handed, in
that order, each kernel for as long as any other on it; a link takes one message at a time, for its
bytes over its bandwidth, and the last byte arrives its latency later.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

from ampsim.dataflow.graph import Branch, Node, Tensor
from ampsim.dataflow.partition import Cut

DEAD = object()
Tag = tuple[tuple[str, int], ...]


class Place(NamedTuple):
    """A node on a worker; there are several of a constant."""

    node: Node
    worker: int


class Item(NamedTuple):
    """A node that is ready, runs or waits, in one iteration."""

    place: Place
    tag: Tag
    got: dict[int, Any]


class Frame:
    """A loop on a worker, begun in an iteration of what is around it."""

    def __init__(self, enters: int) -> None:
        self.enters, self.latest = enters, -1
        self.open: dict[int, float] = {}  # when each iteration began
        self.constants: list[tuple[Place, Any]] = []
        self.late: list[tuple[Place, Any]] = []
        self.left: set[Place] = set()


class Times(NamedTuple):
    """What takes time: a dispatch and a kernel, by worker; a message, by both ends."""

    dispatch_s: list[float]
    kernel_s: list[float]
    latency_s: dict[tuple[int, int], float]
    bytes_per_s: float


def told(tag: Tag) -> str:
    return "/".join(f"{name}/{number}" for name, number in tag)


class TimedMachine:
    def __init__(
        self, asked: list[Tensor], cut: Cut, feeds: dict[str, Any], times: Times, *,
        window: int, run_ahead: bool, broadcast_dead: bool,
    ) -> None:  # fmt: skip
        self.asked, self.cut, self.feeds, self.times = asked, cut, feeds, times
        self.window, self.run_ahead, self.broadcast_dead = window, run_ahead, broadcast_dead
        self.told: set[tuple[Any, ...]] = set()
        self.places = [Place(*one) for one in cut.placed]
        self.consumers: dict[tuple[Place, int], list[tuple[Place | None, int]]] = {}
        for place in self.places:
            for number, one in enumerate(place.node.inputs):
                self.feeding(one, place).append((place, number))
            for number, one in enumerate(place.node.controls, len(place.node.inputs)):
                self.feeding(one, place, is_signal=True).append((place, number))
        for number, one in enumerate(asked):
            self.feeding(one, Place(one.node, cut.home(one))).append((None, number))
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers, self.now = count(), 0.0
        workers = sorted({place.worker for place in self.places})
        self.ready: dict[int, list[Item]] = {one: [] for one in workers}
        self.at_work: set[int] = set()
        self.lanes: dict[int, list[Callable[[], None]]] = {one: [] for one in workers}
        self.computing: set[int] = set()
        self.active: list[tuple[int, Tag]] = []
        self.arrived: dict[tuple[Place, Tag], dict[int, Any]] = {}
        self.gone: set[tuple[Place, Tag]] = set()
        self.frames: dict[tuple[int, Tag, str], Frame] = {}
        self.links: dict[tuple[int, int], float] = {}
        self.come: dict[tuple[Place, Tag], Any] = {}
        self.awaited: set[tuple[Place, Tag]] = set()
        self.spans: list[tuple[Any, ...]] = []
        self.transfers: list[tuple[Any, ...]] = []
        self.found: dict[int, Any] = {}
        self.iterations: list[tuple[Any, ...]] = []

    def feeding(self, tensor: Tensor, reader: Place, *, is_signal: bool = False) -> Any:
        one = self.cut.local(tensor, reader.worker, is_signal=is_signal)
        return self.consumers.setdefault((Place(one.node, reader.worker), one.output), [])

    # --- events

    def run(self) -> None:
        for place in self.places:
            if not place.node.inputs and not place.node.controls:
                self.is_ready(Item(place, (), {}))
        self.work()
        while self.events:
            self.now, _number, happen = heapq.heappop(self.events)
            happen()
            self.work()
        assert not self.active and not self.awaited and not self.frames

    def after(self, seconds: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now + seconds, next(self.numbers), happen))

    def is_ready(self, item: Item) -> None:
        self.active.append((item.place.worker, item.tag))
        self.ready[item.place.worker].append(item)

    def work(self) -> None:
        """Let every host go on that is idle."""
        for worker, ready in self.ready.items():
            while ready and worker not in self.at_work:
                item = ready.pop(0)
                if not self.times.dispatch_s[worker]:
                    self.fire(item)
                    continue
                self.at_work.add(worker)
                self.after(self.times.dispatch_s[worker], self.dispatched(item, self.now))

    def dispatched(self, item: Item, start: float) -> Callable[[], None]:
        def happen() -> None:
            self.at_work.remove(item.place.worker)
            self.record("dispatch", item, start)
            self.fire(item)

        return happen

    def record(self, what: str, item: Item, start: float) -> None:
        where = item.place.worker, item.place.node.name, told(item.tag)
        self.spans.append((what, *where, start, self.now))

    def hand(self, worker: int, job: Callable[[], None]) -> None:
        """Let a device do a job when it has done all that it was handed before."""
        self.lanes[worker].append(job)
        self.advance(worker)

    def advance(self, worker: int) -> None:
        while self.lanes[worker] and worker not in self.computing:
            self.lanes[worker].pop(0)()

    # --- firing

    def fire(self, item: Item) -> None:
        place, tag, got = item
        node, kind = place.node, place.node.operator.name
        values = [got[number] for number in sorted(got)]
        is_dead = any(value is DEAD for value in values)
        if kind == "merge":
            values = [value for value in values if value is not DEAD] or [DEAD]
            is_dead = values[0] is DEAD
        rule = getattr(self, "fire_" + kind.replace("-", "_"), None)
        if rule is not None:
            if rule(item, values, is_dead):
                return  # it is not over
        elif is_dead:
            self.emit(place, 0, DEAD, tag)
        elif self.compute(item, values[: len(node.inputs)]):
            return
        self.over(place.worker, tag)

    def over(self, worker: int, tag: Tag) -> None:
        self.active.remove((worker, tag))
        while self.close(worker):
            pass

    def compute(self, item: Item, values: list[Any]) -> bool:
        """Compute a value; whether the node is not over before its device is done with it."""
        place, tag, _got = item
        node, worker = place.node, place.worker
        operator, output = node.operator, node.outputs[0]
        assert operator.kernel is not None
        told = [(node.index, tag)] * operator.needs_tag
        value = operator.kernel(*told, *values, **node.attributes)
        has_float = any(one.is_float for one in (*node.inputs, output))
        if operator.is_stateful or operator.reads_shapes or not has_float:
            self.emit(place, 0, value, tag)
            return False
        is_early = self.run_ahead and output.is_float

        def job() -> None:
            start = self.now
            self.computing.add(worker)

            def done() -> None:
                self.computing.remove(worker)
                self.record("compute", item, start)
                if not is_early:
                    self.emit(place, 0, value, tag)
                    self.over(worker, tag)
                self.advance(worker)

            self.after(self.times.kernel_s[worker], done)

        if is_early:
            self.emit(place, 0, value, tag)
        self.hand(worker, job)
        return not is_early

    def fire_constant(self, item: Item, values: list[Any], is_dead: bool) -> None:
        self.emit(item.place, 0, item.place.node.attributes["value"], item.tag)

    def fire_input(self, item: Item, values: list[Any], is_dead: bool) -> None:
        self.emit(item.place, 0, self.feeds[item.place.node.name], item.tag)

    def fire_trigger(self, item: Item, values: list[Any], is_dead: bool) -> None:
        self.emit(item.place, 0, True, item.tag)

    def fire_switch(self, item: Item, values: list[Any], is_dead: bool) -> None:
        for side in (False, True):
            taken = not is_dead and bool(values[1]) is side
            self.emit(item.place, int(side), values[0] if taken else DEAD, item.tag)

    def fire_merge(self, item: Item, values: list[Any], is_dead: bool) -> None:
        self.emit(item.place, 0, values[0], item.tag)

    def fire_enter(self, item: Item, values: list[Any], is_dead: bool) -> None:
        place, tag = item.place, item.tag
        name = place.node.attributes["loop"].name
        frame = self.frames.get((place.worker, tag, name))
        if frame is None:
            enters = [
                one for one in self.places
                if one.worker == place.worker and one.node.operator.name.startswith("enter")
                and one.node.attributes["loop"].name == name
            ]  # fmt: skip
            frame = self.frames[place.worker, tag, name] = Frame(len(enters))
            self.begin(place.worker, tag, name, frame)
        frame.enters -= 1
        value = DEAD if is_dead else values[0]
        if place.node.operator.name == "enter":
            self.emit(place, 0, value, (*tag, (name, 0)))
        else:
            frame.constants.append((place, value))
            for number in frame.open:
                self.emit(place, 0, value, (*tag, (name, number)))

    fire_enter_constant = fire_enter

    def begin(self, worker: int, tag: Tag, name: str, frame: Frame) -> Tag:
        frame.latest += 1
        frame.open[frame.latest] = self.now
        inside = (*tag, (name, frame.latest))
        for place, value in frame.constants:
            self.emit(place, 0, value, inside)
        return inside

    def fire_exit(self, item: Item, values: list[Any], is_dead: bool) -> None:
        if not is_dead:
            *outer, (name, _number) = item.tag
            self.frames[item.place.worker, tuple(outer), name].left.add(item.place)
            self.emit(item.place, 0, values[0], tuple(outer))

    def fire_next_iteration(self, item: Item, values: list[Any], is_dead: bool) -> None:
        if is_dead:
            return
        *outer, (name, number) = item.tag
        frame = self.frames[item.place.worker, tuple(outer), name]
        if number < frame.latest:
            self.emit(item.place, 0, values[0], (*outer, (name, number + 1)))
        elif self.window and frame.latest - min(frame.open) + 1 >= self.window:
            frame.late.append((item.place, values[0]))
        else:
            inside = self.begin(item.place.worker, tuple(outer), name, frame)
            self.emit(item.place, 0, values[0], inside)

    # --- messages

    def fire_send(self, item: Item, values: list[Any], is_dead: bool) -> None:
        node, tag, worker = item.place.node, item.tag, item.place.worker
        tensor, is_signal = node.inputs[0], node.attributes["is_signal"]
        recvs = [recv := Place(*self.cut.peers[node])]
        branch = (tensor.context, worker, recv.worker)
        if is_dead and self.broadcast_dead and isinstance(tensor.context, Branch):
            if (*branch, tag) in self.told:
                return
            self.told.add((*branch, tag))
            recvs = [
                Place(*self.cut.peers[one.node])
                for one in self.places
                if one.node.operator.name == "send" and self.branch_of(one) == branch
            ]
        value = DEAD if is_dead else True if is_signal else values[0]
        size = 1
        if not (is_dead or is_signal):
            size = math.prod(getattr(value, "shape", ())) * tensor.dtype.itemsize

        def leave() -> None:
            ends = worker, recv.worker
            sent, start = self.now, max(self.now, self.links.get(ends, 0.0))
            self.links[ends] = left = start + size / self.times.bytes_per_s
            there = left + self.times.latency_s[ends]
            self.transfers.append((node.name, *ends, size, sent, start, left, there))
            self.after(there - self.now, lambda: self.arrive(recvs, tag, value))

        if is_dead or is_signal or not tensor.is_float:
            leave()
        else:
            self.hand(worker, leave)

    def fire_recv(self, item: Item, values: list[Any], is_dead: bool) -> bool:
        if (item.place, item.tag) in self.come:
            self.emit(item.place, 0, self.come.pop((item.place, item.tag)), item.tag)
            return False
        self.awaited.add((item.place, item.tag))
        return True

    def branch_of(self, send: Place) -> tuple[Any, ...]:
        return send.node.inputs[0].context, send.worker, self.cut.peers[send.node][1]

    def arrive(self, recvs: list[Place], tag: Tag, value: Any) -> None:
        for recv in recvs:
            if (recv, tag) in self.awaited:
                self.awaited.remove((recv, tag))
                self.emit(recv, 0, value, tag)
                self.over(recv.worker, tag)
            else:
                self.come[recv, tag] = value

    # --- tokens

    def emit(self, place: Place, output: int, value: Any, tag: Tag) -> None:
        for consumer, number in self.consumers.get((place, output), ()):
            if consumer is None:
                self.found[number] = value
            else:
                self.put(consumer, number, value, tag)

    def put(self, place: Place, number: int, value: Any, tag: Tag) -> None:
        key = place, tag
        if key in self.gone:
            return
        got = self.arrived.setdefault(key, {})
        got[number] = value
        node = place.node
        if node.operator.name == "merge":
            is_whole = (
                "loop" in node.attributes or value is not DEAD or len(got) == len(node.inputs)
            )
        else:
            is_whole = len(got) == len(node.inputs) + len(node.controls)
        if is_whole:
            self.gone.add(key)
            self.is_ready(Item(place, tag, self.arrived.pop(key)))

    # --- frames

    def close(self, worker: int) -> bool:
        """End an iteration that is over, and with the last one its frame; whether there was one."""
        for (where, tag, name), frame in self.frames.items():
            if where != worker or (frame.open and not self.is_over(worker, tag, name, frame)):
                continue
            number = min(frame.open)
            inside = told((*tag, (name, number)))
            self.iterations.append((inside, number, worker, frame.open.pop(number), self.now))
            if frame.late:
                late, frame.late = frame.late, []
                inside = self.begin(worker, tag, name, frame)
                for place, value in late:
                    self.emit(place, 0, value, inside)
            if not frame.open:
                del self.frames[worker, tag, name]
                for place in self.places:
                    is_exit = place.worker == worker and place.node.operator.name == "exit"
                    is_its = is_exit and place.node.attributes["loop"].name == name
                    if is_its and place not in frame.left:
                        self.emit(place, 0, DEAD, tag)
            return True
        return False

    def is_over(self, worker: int, tag: Tag, name: str, frame: Frame) -> bool:
        inside = (*tag, (name, min(frame.open)))
        is_busy = (worker, inside) in self.active
        has_child = any(where == worker and one == inside for where, one, _name in self.frames)
        return not (is_busy or has_child or (min(frame.open) == 0 and frame.enters))
