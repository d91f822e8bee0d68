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
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ampsim.clock import Clock
from ampsim.errors import SimulationError
from ampsim.ir import Direction, Sends, State
from ampsim.model_parallel.faults import fault_of, fault_of_state, stray_of
from ampsim.model_parallel.sending import send
from ampsim.model_parallel.site import WAITS, Entry, Site
from ampsim.trace import Cause, Recorder
from ampsim.user_code import OURS_TO_PASS, told

if TYPE_CHECKING:
    from ampsim.model_parallel.controller import Controller
    from ampsim.model_parallel.update import Updater

UPDATE, BACKWARD, FORWARD = Direction  # names of a module are read faster than those of an Enum

NO_STALENESS: Final = -1

BY_CONTROLLER: Final = (-1,)
"""State of an update message that the controller sent; it belongs to no instance."""

Begun: TypeAlias = tuple[float, Any]
"""A step in the middle: (the seconds that it takes, what its end needs to know)."""

Begin: TypeAlias = "Callable[[Direction, deque[Entry]], Begun]"
"""``begin(direction, queue)`` takes from a queue of that direction what is to be served next."""

End: TypeAlias = "Callable[[Begun], None]"
"""``end(step)`` is called once the seconds of that step have passed."""


class Agenda:
    """Idle workers to which free messages have come, served in that order, at once.

    Attributes:
        workers: those that are yet to be served.
    """

    __slots__ = ("_is_serving", "workers")

    def __init__(self) -> None:
        """Start empty."""
        self.workers: deque[Worker] = deque()
        self._is_serving = False

    def add(self, worker: Worker) -> None:
        """Note that `worker` has free messages; it is idle and not on the agenda."""
        worker.is_listed = True
        self.workers.append(worker)

    def serve(self) -> None:
        """Let every worker on the agenda serve its free messages, and those that they lead to."""
        if self._is_serving:
            return
        self._is_serving = True
        workers = self.workers
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
        begin, end: serve the next message of a queue; grouping puts its own here.
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
        self._number = recorder.span_number
        self._signal = clock.signal()
        self.begin: Begin = self._begin
        self.end: End = self._end
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
        clock, agenda, begin, end = self._clock, self.agenda, self.begin, self.end
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
                    step = begin(direction, queue)
                    if step[0]:
                        await clock.sleep(step[0])
                    end(step)
                    break
            self.serve_free()
            if agenda.workers:
                agenda.serve()

    def _begin(self, direction: Direction, queue: deque[Entry]) -> Begun:
        """Run one step; the device is then busy for what it costs."""
        entry = queue.popleft()
        site, _port, state, payload, cause = entry
        start_s = self._clock.now
        staleness = NO_STALENESS
        sends: Sends = ()
        price = site.free[direction]
        if direction is UPDATE:
            price = site.price(direction, self._update(site, state))
        else:
            sends = self.step(direction, entry)
            try:
                shape = site.charged(payload, sends)
                if shape is not WAITS:
                    price = site.price(direction, shape)
            except OURS_TO_PASS:
                raise
            except BaseException as error:
                raise self.failed(site, direction, state, error) from error
            if direction is BACKWARD and site.learner is not None:
                staleness = site.learner.last_staleness
        if price[0]:
            self.is_busy = True
        return price[0], (site, direction, state, sends, start_s, price[3], staleness, cause)

    def _end(self, step: Begun) -> None:
        """Record a step whose time has passed, and send what it returned."""
        site, direction, state, sends, start_s, kind, staleness, cause = step[1]
        end_s = self._clock.now if step[0] else start_s
        self.is_busy = False
        self._record((kind, start_s, end_s, staleness, state, cause))
        number = self._number()
        if direction is not UPDATE:
            self.send_on(site, direction, state, sends, number)
            if staleness >= 0 and site.learner is not None and site.learner.is_update_due:
                self.queues[UPDATE].append((site, 0, state, None, number))
            if site.turn_queue is not None:
                if site.on_served is not None:
                    site.on_served(number)
                site.turn_queue.served()
        elif state is BY_CONTROLLER:
            send([site.acknowledge_route], site.index, ((0, state, None),), number)

    def serve_free(self) -> None:
        """Serve everything that takes no device time, backward first."""
        backward, forward = self.free_backward, self.free_forward
        if not backward and not forward:
            return
        now, record, next_number = self._clock.now, self._record, self._number
        while True:
            if backward:
                direction, entry = BACKWARD, backward.popleft()
            elif forward:
                direction, entry = FORWARD, forward.popleft()
            else:
                return
            site, state = entry[0], entry[2]
            sends = self.step(direction, entry)
            record((site.free[direction][3], now, now, NO_STALENESS, state, entry[4]))
            self.send_on(site, direction, state, sends, next_number())

    def step(self, direction: Direction, entry: Entry) -> Sends:
        """Run the node's step; an exception tells where and when it happened."""
        site, port, state, payload, _cause = entry
        try:
            if direction is BACKWARD:
                return site.backward(port, state, payload)
            return site.forward(port, state, payload)
        except OURS_TO_PASS:
            raise
        except BaseException as error:
            raise self.failed(site, direction, state, error) from error

    def _update(self, site: Site, state: State) -> tuple[int, ...] | None:
        """Apply what the node has accumulated; an exception tells where and when it happened."""
        try:
            return self.updater.update(site, self._clock.now)
        except OURS_TO_PASS:
            raise
        except BaseException as error:
            raise self.failed(site, UPDATE, state, error) from error

    def failed(
        self, site: Site, direction: Direction, state: State, what: str | BaseException
    ) -> SimulationError:
        """Make the error that tells what failed, where and when; an exception also by its line."""
        if isinstance(what, BaseException):
            what = fault_of_state(state) or told(what)
        sender = "from the controller" if state is BY_CONTROLLER else str(state)
        return SimulationError(
            f"{site.node.describe()} failed at {self._clock.now:.9g} s serving "
            f"{direction.name.lower()} {sender}: {what}"
        )

    def send_on(
        self, site: Site, direction: Direction, state: State, sends: Sends, cause: Cause
    ) -> None:
        """Send what a step returned to the queues of the workers that host the next nodes."""
        routes = site.backward_routes if direction is BACKWARD else site.forward_routes
        try:
            surplus = len(sends) - 1
            if surplus:
                self.controller.count_messages(state[0], surplus, cause)
            send(routes, site.index, sends, cause)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            fault = fault_of(sends, len(routes)) or fault_of_state(state)
            fault = fault or stray_of(
                error, [state, *(sent[1] for sent in sends)], self.controller.unfinished
            )
            if fault is None:
                raise
            raise self.failed(site, direction, state, fault) from error
