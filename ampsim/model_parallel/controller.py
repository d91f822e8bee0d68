"""The controller: pumps instances, throttles asynchrony, and knows when an instance is done.

It is the paper's "specialized controller loop" (Section 4). It lives on the host, takes no device
time, and speaks to workers over the cluster's links.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ampsim.clock import Clock
from ampsim.errors import DivergenceError, GraphError, SimulationError
from ampsim.ir import (
    SINGLE_BYTES,
    LossNode,
    LossReport,
    ParameterizedNode,
    Payload,
    Send,
    Sends,
    State,
)
from ampsim.model_parallel.budget import Budget
from ampsim.model_parallel.faults import fault_of, misfit_of
from ampsim.model_parallel.pump import Pump, by_number
from ampsim.model_parallel.schedules.base import Schedule
from ampsim.model_parallel.schedules.turns import Admitted
from ampsim.model_parallel.sending import send
from ampsim.model_parallel.site import Entry, Route, Site
from ampsim.model_parallel.worker import BY_CONTROLLER
from ampsim.trace import START, Cause, Recorder, of_admission
from ampsim.user_code import user_code


@dataclass(slots=True)
class PassTotals:
    """What the losses reported during one pass over a split."""

    instances: int = 0
    rows: int = 0
    loss_sum: float = 0.0
    correct: float = 0
    absolute_error_sum: float = 0.0

    @property
    def loss(self) -> float:
        """Mean loss per row; NaN where nothing was reported."""
        return self.loss_sum / self.rows if self.rows else math.nan

    @property
    def accuracy(self) -> float:
        """Fraction of rows classified rightly; NaN where nothing was reported."""
        return self.correct / self.rows if self.rows else math.nan

    @property
    def absolute_error(self) -> float:
        """Mean absolute error per row of a regression; NaN where nothing was reported."""
        return self.absolute_error_sum / self.rows if self.rows else math.nan

    def add(self, report: LossReport) -> None:
        """Add what a loss reported; what it does not know is NaN in the sum."""
        self.loss_sum += report.loss_sum
        self.correct += math.nan if report.correct is None else report.correct
        error = report.absolute_error
        self.absolute_error_sum += math.nan if error is None else error
        self.rows += report.rows


class Controller:
    """Admits instances by a schedule; the engine gives it its routes.

    Attributes:
        ports: names of the ports of the graph's controller node.
        budget: says in training whether another instance may come; None where only the number of
            those in flight matters.
        routes: for each port of the graph's controller node, where its messages go.
        update_routes: the parameterized sites, and how an update message reaches each.
        in_flight_max: instances in flight at most.
        admitted: what has been admitted to training, for schedules that ask.
        on_finish: called with the number of items of each finished instance.
        element_bytes: of a number in every array of floats that is pumped.
        last_received: the cause of the last message to the controller, and when it came.
    """

    def __init__(
        self, ports: Sequence[str], schedule: Schedule, pump: Pump, clock: Clock, recorder: Recorder
    ) -> None:
        """Pump instances with `pump`, to the `ports` of these names, as `schedule` allows."""
        self.ports = ports
        self._places: dict[Any, Any] = {name: place for place, name in enumerate(ports)}
        self._pump = pump
        self._clock = clock
        self._recorder = recorder
        self.budget: Budget | None = None
        self.routes: list[Route] = []
        self.update_routes: list[tuple[Site, Route]] = []
        self.on_finish: Callable[[int], None] = lambda _items: None
        self.element_bytes = SINGLE_BYTES
        self.totals = PassTotals()
        self.in_flight_max = schedule.admission.in_flight_max or 1
        self._drains = schedule.admission.drains
        self.admitted = Admitted()
        self._alive: dict[int, int] = {}
        self._items: dict[int, int] = {}
        self._next_instance = 0
        self._updating = 0
        self._is_training = True
        self._batches: Iterator[Any] = iter(())
        self._ahead: list[Any] = []
        self._was_closed = False
        self.last_received: tuple[Cause, float] = (START, 0.0)

    @property
    def unfinished(self) -> list[int]:
        """Instances in flight."""
        return list(self._alive)

    def start_pass(self, batches: Iterable[Any], is_training: bool, cause: Cause) -> None:
        """Begin a pass after `cause`; a batch is one instance, of ``batch.rows`` items."""
        self._batches = iter(batches)
        self._is_training = is_training
        self.admitted.first = self._next_instance
        self.totals = PassTotals()
        self._admit(cause)

    def _admit(self, cause: Cause, *, is_limited: bool = False) -> None:
        """Pump as many instances as may come; `is_limited` if the limit kept them out so far."""
        admission = of_admission(self._recorder.admissions.count)
        before = self._next_instance
        if self.budget is None or not self._is_training:
            self._let_in(self.in_flight_max - len(self._alive), admission)
        else:
            while len(self._alive) < self.in_flight_max:
                if self._alive and self._ahead and not self.budget.has_room:
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
            if self.budget is not None and self._is_training:
                self.budget.pumped(instance)
            send(self.routes, 0, sends, cause)
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
        """Take `room` batches, look for one more, and note what was found."""
        found = self._ahead + list(islice(self._batches, room + 1 - len(self._ahead)))
        taken, self._ahead = found[:room], found[room:]
        if self._is_training:
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
        fault = fault_of(sends, self.ports) or misfit_of(sends, self.element_bytes)
        if fault is None and not sends:
            fault = "expected at least one message, got none"
        elif fault is None and any(state[0] != instance for _port, state, _payload in sends):
            found = sorted({state[0] for _port, state, _payload in sends}, key=str)
            fault = f"expected states of instance {instance} only, got {found}"
        if fault is not None:
            raise SimulationError(f"the model's pump failed for instance {instance}: {fault}")
        return sends

    def receive(self, entry: Entry) -> None:
        """Take back one message that was pumped."""
        self.last_received = entry[4], self._clock.now
        self.count_messages(entry[2][0], -1, entry[4])

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
        if self.budget is not None and self._is_training:
            self.budget.finished(instance)
        self.totals.instances += items
        self._recorder.flush_if_full()
        self.on_finish(items)
        if not (self._is_training and self._drains):
            self._admit(cause, is_limited=True)
        elif not self._alive:
            self.send_updates(cause)
            if not self._updating:
                self._admit(cause)

    def send_updates(self, cause: Cause) -> None:
        """Tell every node that holds gradients to update itself."""
        due = [
            (site, route)
            for site, route in self.update_routes
            if isinstance(site.node, ParameterizedNode) and site.node.gradient_count
        ]
        self._updating = len(due)
        for _site, route in due:
            send([route], 0, ((0, BY_CONTROLLER, None),), cause)

    def acknowledged(self, entry: Entry) -> None:
        """Note that an update has ended, and admit after the last."""
        self.last_received = entry[4], self._clock.now
        self._updating -= 1
        if not self._updating:
            self._admit(entry[4])

    def watch(self, site: Site) -> None:
        """Take what a loss reports at each of its forward steps.

        In training the gradients tell the controller that an instance is done, since they return to
        it. In validation nothing returns, so that the loss sends a message of its own, of no bytes,
        by the route that stands behind those of its inputs.
        """
        node, forward = site.node, site.forward
        assert isinstance(node, LossNode)
        to_controller = len(node.inputs)

        def report(port: int, state: State, payload: Payload) -> Sends:
            node.completed = None
            sends = forward(port, state, payload)
            if node.report is not None:
                self._take_report(node, node.report, state)
                node.report = None
            if not node.is_training and node.completed is not None:
                return ((to_controller, state, None),)
            fault = fault_of(sends, to_controller)
            if fault is not None:
                raise GraphError(f"{node.describe()} failed serving forward {state}: {fault}")
            return sends

        site.forward = report

    def _take_report(self, node: LossNode, report: LossReport, state: State) -> None:
        """Add what a loss reported.

        Raises:
            DivergenceError: the loss is not a finite number.
        """
        if not math.isfinite(report.loss_sum):
            raise DivergenceError(
                f"the loss at {node.describe()} became {report.loss_sum} for instance {state[0]} "
                f"at {self._clock.now:.9g} s; try a lower learning rate"
            )
        self.totals.add(report)
