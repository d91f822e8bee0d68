"""The controller: pumps instances, throttles asynchrony, and knows when an instance is done.

It is the paper's "specialized controller loop" (Section 4). It lives on the host, takes no device
time, and speaks to workers over the cluster's links.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias, cast

import numpy as np

from ampsim.clock import Clock
from ampsim.errors import DivergenceError, SimulationError
from ampsim.ir import (
    LossNode,
    LossReport,
    ParameterizedNode,
    Payload,
    Send,
    Sends,
    Standin,
    State,
)
from ampsim.runtime.budget import Budget
from ampsim.runtime.faults import fault_of, told
from ampsim.runtime.schedules.base import Schedule
from ampsim.runtime.schedules.turns import Ledger
from ampsim.runtime.site import Entry, Route, Site
from ampsim.runtime.worker import BY_CONTROLLER, send
from ampsim.trace import Recorder

Pump: TypeAlias = Callable[[int, Any], "list[Send]"]
"""``pump(instance, batch)`` gives the messages that bring one instance into the graph."""


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
        budget: says in training whether another instance may come; None where only the number of
            those in flight matters.
        routes: for each port of the graph's controller node, where its messages go.
        update_routes: the parameterized sites, and how an update message reaches each.
        in_flight_max: instances in flight at most.
        ledger: what has been admitted to training, for schedules that ask.
        on_finish: called with the number of items of each finished instance.
    """

    def __init__(self, schedule: Schedule, pump: Pump, clock: Clock, recorder: Recorder) -> None:
        """Pump instances with `pump` as `schedule` allows."""
        self._schedule = schedule
        self._pump = pump
        self._clock = clock
        self._recorder = recorder
        self.budget: Budget | None = None
        self.routes: list[Route] = []
        self.update_routes: list[tuple[Site, Route]] = []
        self.on_finish: Callable[[int], None] = lambda _items: None
        self.totals = PassTotals()
        self.in_flight_max = schedule.max_active_keys or 1
        self.ledger = Ledger()
        self._alive: dict[int, int] = {}
        self._items: dict[int, int] = {}
        self._next_instance = 0
        self._updating = 0
        self._is_training = True
        self._batches: Iterator[Any] = iter(())
        self._ahead: list[Any] = []
        self._limit = 0

    @property
    def unfinished(self) -> list[int]:
        """Instances in flight."""
        return list(self._alive)

    def start_pass(self, batches: Iterable[Any], is_training: bool) -> None:
        """Begin a pass over `batches`; each is one instance, of ``batch.rows`` items."""
        self._batches = iter(batches)
        self._is_training = is_training
        self.ledger.first = self._next_instance
        self.totals = PassTotals()
        self._admit()

    def _admit(self) -> None:
        if self.budget is None or not self._is_training:
            self._let_in(self.in_flight_max - len(self._alive))
            self._note_limit(self.in_flight_max)
            return
        while len(self._alive) < self.in_flight_max:
            if self._alive and self._ahead and not self.budget.has_room:
                self._note_limit(len(self._alive))
                return
            if not self._let_in(1):
                break
        self._note_limit(self.in_flight_max)

    def _let_in(self, room: int) -> bool:
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
            send(self.routes, 0, sends)
        return bool(batches)

    def _note_limit(self, limit: int) -> None:
        if limit != self._limit:
            self._limit = limit
            self._recorder.limits.append((self._clock.now, limit))

    def _taken(self, room: int) -> list[Any]:
        """Take `room` batches, look for one more, and enter into the ledger what was found."""
        found = self._ahead + list(islice(self._batches, room + 1 - len(self._ahead)))
        taken, self._ahead = found[:room], found[room:]
        if self._is_training:
            self.ledger.admitted += len(taken)
            self.ledger.is_complete = self._schedule.drains or not self._ahead
        return taken

    def _pumped(self, instance: int, batch: Any) -> list[Send]:
        """Ask the model's pump.

        Raises:
            SimulationError: it failed, or gave what is no list of messages of this instance.
        """
        try:
            sends = self._pump(instance, batch)
            states = [state[0] for _port, state, _payload in sends]
        except Exception as error:
            raise SimulationError(
                f"the model's pump failed for instance {instance}: {told(error)}"
            ) from error
        fault = fault_of(sends, len(self.routes))
        if not states:
            fault = "expected at least one message, got none"
        elif fault is None and set(states) != {instance}:
            fault = f"expected states of instance {instance} only, got {sorted(set(states))}"
        if fault is not None:
            raise SimulationError(f"the model's pump failed for instance {instance}: {fault}")
        return sends

    def receive(self, entry: Entry) -> None:
        """Take back one message that was pumped."""
        self.count_messages(entry[2][0], -1)

    def count_messages(self, instance: int, change: int) -> None:
        """Keep count of an instance's messages; it is done when none is left.

        In training that is when all that was pumped has returned, in validation when the last
        loss has been computed.
        """
        left = self._alive[instance] + change
        if left:
            self._alive[instance] = left
        else:
            self._finish(instance)

    def _finish(self, instance: int) -> None:
        del self._alive[instance]
        items = self._items.pop(instance)
        if self.budget is not None and self._is_training:
            self.budget.finished(instance)
        self.totals.instances += items
        self._recorder.flush_if_full()
        self.on_finish(items)
        if not (self._is_training and self._schedule.drains):
            self._admit()
        elif not self._alive:
            self.send_updates()
            if not self._updating:
                self._admit()

    def send_updates(self) -> None:
        """Tell every node that holds gradients to update itself."""
        due = [
            (site, route)
            for site, route in self.update_routes
            if isinstance(site.node, ParameterizedNode) and site.node.gradient_count
        ]
        self._updating = len(due)
        for _site, route in due:
            send([route], 0, ((0, BY_CONTROLLER, None),))

    def acknowledged(self, entry: Entry) -> None:
        """Note that an update has ended, and admit after the last."""
        self._updating -= 1
        if not self._updating:
            self._admit()

    def watch(self, site: Site) -> None:
        """Take what a loss reports at each of its forward steps."""
        node, forward = site.node, site.forward
        assert isinstance(node, LossNode)

        def report(port: int, state: State, payload: Payload) -> Sends:
            sends = forward(port, state, payload)
            if node.report is not None:
                self._take_report(node, node.report, state)
                node.report = None
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


def without_numbers(pump: Pump) -> Pump:
    """Return a pump whose float payloads are stand-ins; integers, which are control, stay."""

    def pump_standins(instance: int, batch: Any) -> list[Send]:
        return [(port, state, _standin(payload)) for port, state, payload in pump(instance, batch)]

    return pump_standins


def _standin(payload: Any) -> Any:
    if not isinstance(payload, np.ndarray):
        return payload
    array = cast("np.ndarray[Any, np.dtype[Any]]", payload)
    return Standin(array.shape, array.itemsize) if array.dtype.kind == "f" else array
