"""The controller: pumps instances, throttles asynchrony, and knows when an instance is done.

It is the paper's "specialized controller loop" (Section 4). It lives on the host, takes no device
time, and speaks to workers over the cluster's links. Where the cluster names a device for the host,
what it takes and sends takes that one time (`ampsim.model_parallel.lanes`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from ampsim.clock import Clock
from ampsim.errors import LOWER_RATE, DivergenceError, SimulationError
from ampsim.ir import LossReport, Node, ParameterizedNode, Send, Sends, State
from ampsim.model_parallel.budget import Budget
from ampsim.model_parallel.faults import fault_of, misfit_of
from ampsim.model_parallel.job import PassTotals, Pump, by_number
from ampsim.model_parallel.order import OrderLog
from ampsim.model_parallel.placed_node import Message, PlacedNode, Route, Routes, send
from ampsim.model_parallel.schedules.turns import Admitted
from ampsim.trace import START, Cause, Recorder, of_admission
from ampsim.user_code import user_code

BY_CONTROLLER: Final = (-1,)
"""State of an update message that the controller sent; it belongs to no instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitting:
    """When a controller admits instances, and what it does around that.

    Args:
        in_flight_max: instances in flight at most.
        drains: whether all in flight finish, and all nodes are updated, before it admits others.
        budget: says in training whether another instance may come; None where only the number of
            those in flight matters.
        look_ahead: how many instances of training it knows of before they may come.
        admitted: takes what has been admitted to training, for schedules that ask.
        order: is told of each instance of training that finishes; None where nobody asks.
        send: puts messages on their way, as `placed_node.send`; the host's, where that takes time.
    """

    in_flight_max: int
    drains: bool
    budget: Budget | None = None
    look_ahead: int = 1
    admitted: Admitted = field(default_factory=Admitted)
    order: OrderLog | None = None
    send: Callable[[Routes, int, Sends, Cause], None] = send


class Controller:
    """Admits instances.

    Args:
        node: the graph's controller node, of whose ports and precision are the messages.

    Attributes:
        ports: names of the ports of the graph's controller node.
        admitted: as of `Admitting`.
        on_finish: called with the number of items of each finished instance.
        last_received: the cause of the last message to the controller, and when it came.
    """

    def __init__(
        self, node: Node, pump: Pump, admitting: Admitting, clock: Clock, recorder: Recorder
    ) -> None:
        self.ports = node.outputs
        self._places: dict[Any, Any] = {name: place for place, name in enumerate(self.ports)}
        self._element_bytes = node.element_bytes
        self._pump = pump
        self._clock = clock
        self._recorder = recorder
        self._budget = admitting.budget
        self._on_drained: Callable[[Cause], None] | None = None
        self._on_updated: Callable[[Cause], None] | None = None
        self._order = admitting.order
        self._send, self._drains = admitting.send, admitting.drains
        self._in_flight_max, self._look_ahead = admitting.in_flight_max, admitting.look_ahead
        self.admitted = admitting.admitted
        self._routes: Routes = ()
        self._update_routes: Sequence[tuple[PlacedNode, Route]] = ()
        self.on_finish: Callable[[int], None] = lambda _items: None
        self.totals = PassTotals()
        self._alive: dict[int, int] = {}
        self._items: dict[int, int] = {}
        self._next_instance = 0
        self._updating = 0
        self._is_training = True
        self._batches: Iterator[Any] = iter(())
        self._ahead: list[Any] = []
        self._was_closed = False
        self.last_received: tuple[Cause, float] = (START, 0.0)

    def connect(self, routes: Routes, updates: Sequence[tuple[PlacedNode, Route]]) -> None:
        """Send messages by these routes."""
        self._routes, self._update_routes = routes, updates

    @property
    def unfinished(self) -> list[int]:
        """Instances in flight."""
        return list(self._alive)

    @property
    def next_instance(self) -> int:
        """The number of the instance that is admitted next."""
        return self._next_instance

    def start_pass(
        self,
        batches: Iterable[Any],
        is_training: bool,
        cause: Cause,
        drained: Callable[[Cause], None] | None = None,
        *,
        first_instance: int | None = None,
    ) -> None:
        """Begin a pass after `cause`; a batch is one instance, of ``batch.rows`` items.

        Args:
            batches: of the pass.
            is_training: whether it trains.
            cause: what it waited for.
            drained: takes over when all in flight have finished and nodes hold the gradients of all
                of it; None where the controller itself sends updates and admits others.
            first_instance: from which on instances are numbered; None from the last one on.
        """
        self._on_drained = drained
        if first_instance is not None:
            self._next_instance = first_instance
        self._batches = iter(batches)
        self._is_training = is_training
        self.admitted.first = self._next_instance
        self.totals = PassTotals()
        self._admit(cause)

    def skip(self, instances: int, received: tuple[Cause, float]) -> None:
        """Go on as after a pass of so many instances, whose last message was `received`."""
        self._next_instance += instances
        self.last_received = received

    def _admit(self, cause: Cause, *, is_limited: bool = False) -> None:
        """Pump as many instances as may come; `is_limited` if the limit kept them out so far."""
        admission = of_admission(self._recorder.admissions.count)
        before = self._next_instance
        if self._budget is None or not self._is_training:
            self._let_in(self._in_flight_max - len(self._alive), admission)
        else:
            while len(self._alive) < self._in_flight_max:
                if self._alive and self._ahead and not self._budget.has_room:
                    break
                if not self._let_in(1, admission):
                    break
        if self._next_instance > before:
            self._recorder.admissions.append((self._clock.now, cause, is_limited))
        self.note_closure()

    def _let_in(self, room: int, cause: Cause) -> bool:
        """Pump as many instances as there is `room` for; return whether there was any."""
        batches = self._taken(room)
        for batch in batches:
            instance = self._next_instance
            self._next_instance += 1
            sends = self._pumped(instance, batch)
            self._alive[instance] = len(sends)
            self._items[instance] = batch.rows
            if self._budget is not None and self._is_training:
                self._budget.pumped(instance)
            self._send(self._routes, 0, sends, cause)
        return bool(batches)

    @property
    def is_closed(self) -> bool:
        """Whether instances are kept out that there are."""
        return bool(self._ahead)

    def note_closure(self) -> None:
        """Record from when on instances are kept out that there are, or are not any more."""
        if self.is_closed != self._was_closed:
            self._was_closed = self.is_closed
            self._recorder.note_closure(self._clock.now, self.is_closed)

    def _taken(self, room: int) -> list[Any]:
        ahead = self._look_ahead if self._is_training else 1
        found = self._ahead + list(islice(self._batches, max(room + ahead - len(self._ahead), 0)))
        taken, self._ahead = found[:room], found[room:]
        if self._is_training:
            self.admitted.known_until = self._next_instance + len(found)
            self.admitted.count += len(taken)
            self.admitted.is_complete = self._drains or not self._ahead
        return taken

    def _pumped(self, instance: int, batch: Any) -> list[Send]:
        """Ask the model's pump.

        Raises:
            SimulationError: it failed, or gave what is no list of messages of this instance.
        """
        with user_code(f"the model's pump failed for instance {instance}"):
            pumped = self._pump(instance, batch)
        sends = by_number(pumped, self._places)
        fault = fault_of(sends, self.ports) or misfit_of(sends, self._element_bytes)
        if fault is None and not sends:
            fault = "expected at least one message, got none"
        elif fault is None and any(state[0] != instance for _port, state, _payload in sends):
            found = sorted({state[0] for _port, state, _payload in sends}, key=str)
            fault = f"expected states of instance {instance} only, got {found}"
        if fault is not None:
            raise SimulationError(f"the model's pump failed for instance {instance}: {fault}")
        return sends

    def receive(self, message: Message) -> None:
        """Take back one message that was pumped."""
        self.last_received = message[4], self._clock.now
        self.count_messages(message[2][0], -1, message[4])

    def count_messages(self, instance: int, change: int, cause: Cause) -> None:
        """Keep count of an instance's messages; it is done when none is left.

        In training that is when all that was pumped has returned, in validation when word of the
        last loss has arrived; then `cause` is why others may come.
        """
        left = self._alive[instance] + change
        if left:
            self._alive[instance] = left
        else:
            self._finish(instance, cause)

    def _finish(self, instance: int, cause: Cause) -> None:
        del self._alive[instance]
        items = self._items.pop(instance)
        if self._budget is not None and self._is_training:
            self._budget.finished(instance)
        self.totals.instances += items
        if self._order is not None and self._is_training:
            self._order.finished(self._alive)
        self._recorder.flush_if_full()
        self.on_finish(items)
        if not (self._is_training and self._drains):
            self._admit(cause, is_limited=True)
            if self._on_drained is not None and not self._alive:
                self._on_drained(cause)
        elif self._alive:
            return
        elif self._on_drained is not None:
            self._on_drained(cause)
        else:
            self.send_updates(cause)
            if not self._updating:
                self._admit(cause)

    def send_updates(
        self,
        cause: Cause,
        places: Collection[int] | None = None,
        updated: Callable[[Cause], None] | None = None,
    ) -> None:
        """Tell every node that holds gradients, or those at these `places`, to update itself.

        `updated` takes over when the last update has ended; None to admit others then.
        """
        self._on_updated = updated
        due = [
            (placed, route)
            for placed, route in self._update_routes
            if (_holds_gradients(placed) if places is None else placed.index in places)
        ]
        self._updating = len(due)
        for _placed_node, route in due:
            self._send([route], 0, ((0, BY_CONTROLLER, None),), cause)

    def acknowledged(self, message: Message) -> None:
        """Note that an update has ended, and admit after the last."""
        self.last_received = message[4], self._clock.now
        self._updating -= 1
        if self._updating:
            return
        if self._on_updated is not None:
            self._on_updated(message[4])
        else:
            self._admit(message[4])

    def take_report(self, node: Node, report: LossReport, state: State) -> None:
        """Add what a loss reported.

        Raises:
            DivergenceError: the loss is not a finite number.
        """
        if not math.isfinite(report.loss_sum):
            raise DivergenceError(
                f"the loss at {node.describe()} became {report.loss_sum} for instance {state[0]} "
                f"at {self._clock.now:.9g} s; {LOWER_RATE}"
            )
        self.totals.add(report)


def _holds_gradients(placed: PlacedNode) -> bool:
    return isinstance(placed.node, ParameterizedNode) and placed.node.gradient_count > 0
