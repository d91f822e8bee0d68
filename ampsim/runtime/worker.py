"""The worker: Algorithm 1 of the paper, for one device.

A worker waits for a message, takes the most urgent one, runs the node's step, keeps its device busy
for what the step costs, and then sends what the step returned. Weights are read when service
starts; results leave when it ends.

A step that costs nothing occupies no device: an idle worker does it the moment its message comes,
a busy worker as soon as it is through. All free steps of an instant are done before any worker
takes up new work, so that what it takes up never depends on which of two simultaneous messages was
delivered first (docs/decisions/0004-instants.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from ampsim.clock import Clock
from ampsim.errors import AmpsimError, SimulationError
from ampsim.ir import Direction, LossNode, Sends, State
from ampsim.runtime.faults import fault_of, stray_of, told
from ampsim.runtime.site import WAITS, Entry, Route, Site
from ampsim.trace import Recorder

if TYPE_CHECKING:
    from ampsim.runtime.controller import Controller
    from ampsim.runtime.update import Updater

UPDATE, BACKWARD, FORWARD = Direction  # names of a module are read faster than those of an Enum

NO_STALENESS: Final = -1

BY_CONTROLLER: Final = (-1,)
"""State of an update message that the controller sent; it belongs to no instance."""

Occupy: TypeAlias = "Callable[[Direction, deque[Entry]], Awaitable[None]]"
"""``occupy(direction, queue)`` serves what has waited longest in a queue of that direction."""


class Agenda:
    """Idle workers to which free messages have come, served in that order, at once."""

    __slots__ = ("_is_serving", "_workers")

    def __init__(self) -> None:
        """Start empty."""
        self._workers: deque[Worker] = deque()
        self._is_serving = False

    def add(self, worker: Worker) -> None:
        """Note that `worker` has free messages; it is idle and not on the agenda."""
        worker.is_listed = True
        self._workers.append(worker)

    def serve(self) -> None:
        """Let every worker on the agenda serve its free messages, and those that they lead to."""
        if self._is_serving:
            return
        self._is_serving = True
        workers = self._workers
        while workers:
            worker = workers.popleft()
            worker.is_listed = False
            worker.serve_free()
        self._is_serving = False


class Worker:
    """One device, its inbox, and the loop that serves it.

    The inbox is a queue for each kind of message, most urgent first: serving is then a look at
    five queues instead of a heap, and first come first served within a kind.

    Attributes:
        index: the worker's number.
        is_busy: whether its device is occupied.
        is_waiting: whether it waits for a signal that nobody has fired.
        is_listed: whether it is on the agenda.
        free_backward, free_forward: messages for nodes that cost nothing.
        queues: messages that take device time, by direction.
        occupy: serves the next message of a queue; `ampsim.runtime.grouping` puts its own here.
    """

    def __init__(
        self,
        index: int,
        clock: Clock,
        recorder: Recorder,
        agenda: Agenda,
        order: tuple[Direction, ...],
    ) -> None:
        """Serve messages in `order`, once started."""
        self.index = index
        self.is_busy = False
        self.is_waiting = False
        self.is_listed = False
        self.free_backward: deque[Entry] = deque()
        self.free_forward: deque[Entry] = deque()
        self.queues: dict[Direction, deque[Entry]] = {direction: deque() for direction in order}
        self._by_urgency = tuple((direction, self.queues[direction]) for direction in order)
        self._clock = clock
        self.agenda = agenda
        self._record = recorder.spans.append
        self._signal = clock.signal()
        self.occupy: Occupy = self._occupy
        self.controller: Controller
        self.updater: Updater

    def queue(self, site: Site, direction: Direction) -> deque[Entry]:
        """The queue where messages of `direction` for `site` wait."""
        if site.is_free and direction is not UPDATE:
            return self.free_backward if direction is BACKWARD else self.free_forward
        return self.queues[direction]

    def wake(self) -> None:
        """Look into the inbox when this instant has settled."""
        self.is_waiting = False
        self._signal.fire()

    async def serve(self) -> None:
        """Serve messages that take device time, for ever.

        Where its own signal would be the next thing to happen, the worker goes on without it.
        """
        (_, first), (_, second), (_, third) = self._by_urgency
        clock = self._clock
        while True:
            has_work = first or second or third
            if not has_work or not clock.is_settled:
                self._signal = clock.signal()
                self.is_waiting = True
                if has_work:
                    self.wake()
                await self._signal
            for direction, queue in self._by_urgency:
                if queue:
                    await self.occupy(direction, queue)
                    break
            self.serve_free()
            self.agenda.serve()

    async def _occupy(self, direction: Direction, queue: deque[Entry]) -> None:
        """Run one step, keep the device busy for what it costs, and send what it returned."""
        entry = queue.popleft()
        site, _port, state, payload = entry
        learner = site.learner
        start_s = self._clock.now
        staleness = NO_STALENESS
        sends: Sends = ()
        price = (0.0, 0, 0)
        if direction is UPDATE:
            price = site.price(direction, self._update(site, state))
        else:
            sends = self.step(direction, entry)
            try:
                shape = site.charged(payload, sends)
                if shape is not WAITS:
                    price = site.price(direction, shape)
            except Exception as error:
                raise self.failed(site, direction, state, told(error)) from error
            if direction is BACKWARD and learner is not None:
                staleness = learner.last_staleness
        seconds, flop, moved = price
        end_s = start_s
        if seconds:
            self.is_busy = True
            await self._clock.sleep(seconds)
            self.is_busy = False
            end_s = self._clock.now
        self._record(
            (
                self.index, site.index, direction, state[0], start_s, end_s, flop, moved,
                staleness, state,
            )
        )  # fmt: skip
        if direction is not UPDATE:
            self.send_on(site, direction, state, sends)
            if staleness >= 0 and learner is not None and learner.is_update_due:
                self.queues[UPDATE].append((site, 0, state, None))
            if site.desk is not None:
                site.desk.served()
        elif state is BY_CONTROLLER:
            send([site.acknowledge_route], site.index, ((0, state, None),))

    def serve_free(self) -> None:
        """Serve everything that takes no device time, backward first."""
        backward, forward = self.free_backward, self.free_forward
        if not backward and not forward:
            return
        now, index, record = self._clock.now, self.index, self._record
        while True:
            if backward:
                direction, entry = BACKWARD, backward.popleft()
            elif forward:
                direction, entry = FORWARD, forward.popleft()
            else:
                return
            site, _port, state, _payload = entry
            sends = self.step(direction, entry)
            record((index, site.index, direction, state[0], now, now, 0, 0, NO_STALENESS, state))
            self.send_on(site, direction, state, sends)

    def step(self, direction: Direction, entry: Entry) -> Sends:
        """Run the node's step; an exception tells where and when it happened."""
        site, port, state, payload = entry
        try:
            if direction is BACKWARD:
                return site.backward(port, state, payload)
            sends = site.forward(port, state, payload)
        except AmpsimError:
            raise
        except Exception as error:
            raise self.failed(site, direction, state, told(error)) from error
        if site.is_loss:
            self.controller.take_report(cast("LossNode", site.node), state, self._clock.now)
        return sends

    def _update(self, site: Site, state: State) -> tuple[int, ...] | None:
        """Apply what the node has accumulated; an exception tells where and when it happened."""
        try:
            return self.updater.update(site, self._clock.now)
        except AmpsimError:
            raise
        except Exception as error:
            raise self.failed(site, UPDATE, state, told(error)) from error

    def failed(self, site: Site, direction: Direction, state: State, what: str) -> SimulationError:
        """Make the error that tells what failed, where and when."""
        sender = "from the controller" if state is BY_CONTROLLER else str(state)
        return SimulationError(
            f"{site.node.describe()} failed at {self._clock.now:.9g} s serving "
            f"{direction.name.lower()} {sender}: {what}"
        )

    def send_on(self, site: Site, direction: Direction, state: State, sends: Sends) -> None:
        """Send what a step returned to the queues of the workers that host the next nodes."""
        routes = site.backward_routes if direction is BACKWARD else site.forward_routes
        try:
            surplus = len(sends) - 1
            if surplus:
                self.controller.count_messages(state[0], surplus)
            send(routes, site.index, sends)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            fault = fault_of(sends, len(routes)) or stray_of(
                error, [state, *(sent[1] for sent in sends)], self.controller.unfinished
            )
            if fault is None:
                raise
            raise self.failed(site, direction, state, fault) from error


def send(routes: list[Route], source: int, sends: Sends) -> None:
    """Put messages on their way; whoever sends sees that the agenda is served after."""
    for port, state, payload in sends:
        route = routes[port]
        channel = route[5]
        if channel is None:
            deliver(route, (route[1], route[2], state, payload))
        else:
            channel.carry(source, route, (route[1], route[2], state, payload))


def deliver(route: Route, entry: Entry) -> None:
    """Put one message into the inbox at the end of `route`, and see that it is looked at."""
    accept, _site, _port, worker, is_free, _channel = route
    accept(entry)
    if worker is None:
        return
    if is_free:
        if not worker.is_busy and not worker.is_listed:
            worker.agenda.add(worker)
    elif worker.is_waiting:
        worker.wake()
