"""The worker: Algorithm 1 of the paper, for one device.

A worker waits for a message, takes the most urgent one, runs the node's step, keeps its device busy
for what the step costs, and then sends what the step returned. Weights are read when service
starts; results leave when it ends. The loop is that of `ampsim.machine.Processor`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ampsim.clock import Clock
from ampsim.errors import SimulationError
from ampsim.ir import Direction, Sends, State
from ampsim.machine import Begun, Processor
from ampsim.model_parallel.controller import BY_CONTROLLER, Controller
from ampsim.model_parallel.faults import fault_of, fault_of_state, stray_of
from ampsim.model_parallel.placed_node import Accept, Message, PlacedNode, send
from ampsim.model_parallel.schedules.turns import Turn, Turns
from ampsim.model_parallel.schedules.values import Order
from ampsim.model_parallel.step import PlainStepResult
from ampsim.model_parallel.update import Applies
from ampsim.trace import NO_STALENESS, Cause, Recorder
from ampsim.user_code import OURS_TO_PASS, told

UPDATE, BACKWARD, FORWARD = Direction  # names of a module are read faster than those of an Enum


@dataclass(frozen=True, slots=True)
class Shared:
    """The parts that all workers of one engine share."""

    clock: Clock
    recorder: Recorder
    order: Order
    controller: Controller
    updater: Applies


class TurnQueue:
    """Hands its worker one message of a stage at a time in training; in validation, as it comes.

    Attributes:
        waits_for_updates: whether an update that a step asks for ends before the next turn; else it
            is the worker's most urgent message anyway, unless its device has to issue it first.
    """

    def __init__(
        self, processor: Processor, queues: Mapping[Direction, deque[Message]], turns: Turns,
        *, waits_for_updates: bool,
    ) -> None:  # fmt: skip
        self._processor = processor
        self._queues = queues
        self._turns = turns
        self.waits_for_updates = waits_for_updates
        self._is_out = False
        self._waiting: dict[Turn, deque[Message]] = {}
        self._names: dict[Turn, str] = {}

    def acceptor(
        self, placed: PlacedNode, stage: int, direction: Direction
    ) -> Callable[[Message], None]:
        """Return who accepts the messages of `direction` for the node of `stage`."""
        waiting = self._waiting.setdefault((direction, stage), deque())
        self._names[direction, stage] = (
            f"{direction.name.lower()} of {placed.node.describe()}, stage {stage}"
        )
        node, inbox = placed.node, self._queues[direction]

        def accept(message: Message) -> None:
            if node.is_training:
                waiting.append(message)
                self._hand_out()
            else:
                inbox.append(message)
                self._processor.wake()

        return accept

    def served(self) -> None:
        """Note that the worker has ended a step of a stage."""
        if self._is_out:
            self._is_out = False
            self._turns.served()
            self._hand_out()

    def told(self) -> str:
        """Say whose turn it is and what waits out of turn; nothing, where nothing waits."""
        turn = self._turns.next()
        waiting = [
            f"{self._names[place]}: {messages[0][2]}"
            + f" and {len(messages) - 1} more" * (len(messages) > 1)
            for place, messages in self._waiting.items()
            if messages
        ]
        if not waiting:
            return ""
        whose = "nobody's turn" if turn is None else f"the turn of {self._names[turn]}"
        return f"worker {self._processor.index} has {whose}, but holds {', '.join(waiting)}"

    def _hand_out(self) -> None:
        turn = None if self._is_out else self._turns.next()
        if turn is None or not self._waiting[turn]:
            return
        self._is_out = True
        self._queues[turn[0]].append(self._waiting[turn].popleft())
        self._processor.wake()


@dataclass(frozen=True, slots=True)
class Inbox:
    """A worker's queues of messages that take device time.

    It is a queue for each kind of message, most urgent first: serving is then a look at five queues
    instead of a heap, and first come first served within a kind.

    Args:
        accept_update: takes the update messages of the worker's own nodes.
        turn_queue: where messages wait for their turn; None where there are no turns.
    """

    queues: dict[Direction, deque[Message]]
    accept_update: Accept
    turn_queue: TurnQueue | None = None


class Worker:
    """The inbox of one processor, and what is done with its messages.

    Attributes:
        index: the worker's number.
        free_backward, free_forward: messages for nodes that cost nothing.
        queues: messages that take device time, by direction.
        turn_queue: where messages wait for their turn; None where there are no turns.
    """

    def __init__(self, processor: Processor, inbox: Inbox, shared: Shared) -> None:
        self.processor = processor
        self.index = processor.index
        self.free_backward: deque[Message] = deque()
        self.free_forward: deque[Message] = deque()
        self.queues, self.turn_queue = inbox.queues, inbox.turn_queue
        self._accept_update = inbox.accept_update
        self._clock = shared.clock
        self._record = shared.recorder.spans.append
        self._number = shared.recorder.span_number
        self._controller = shared.controller
        self._updater = shared.updater

    def queue(self, placed: PlacedNode, direction: Direction) -> deque[Message]:
        """The queue where messages of `direction` for `placed` wait."""
        if placed.is_free and direction is not UPDATE:
            return self.free_backward if direction is BACKWARD else self.free_forward
        return self.queues[direction]

    def begin(self, kind: Direction, queue: deque[Message]) -> Begun:
        """Run the step of the first message; the device is then busy for what it costs."""
        message = queue.popleft()
        start_s = self._clock.now
        placed = message[0]
        served = self.served(kind, message)
        try:
            price = placed.prices.price(kind, served[1], served[5])
        except OURS_TO_PASS:
            raise
        except BaseException as error:
            raise self.failed(placed, kind, message[2], error) from error
        return price.seconds, (kind, message, served, start_s, price.kind)

    def end(self, task: Begun) -> None:
        """Record a step whose time has passed, and send what it returned."""
        seconds, (direction, message, served, start_s, kind) = task
        placed, _port, state, _payload, cause = message
        sends, _charged, staleness, _report, ended, _needed = served
        end_s = self._clock.now if seconds else start_s
        self._record((kind, start_s, end_s, staleness, state, cause))
        number = self._number()
        if ended is not None and placed.footprint is not None:
            placed.footprint.settle(ended)
        if placed.stash is not None and direction is BACKWARD:
            placed.stash.ended(state[0])
        turns = self.turn_queue if placed.has_turns else None
        if direction is UPDATE:
            if state is BY_CONTROLLER:
                send(placed.training[UPDATE], placed.index, ((0, state, None),), number)
            elif turns is not None and turns.waits_for_updates:
                turns.served()
            return
        self.send_on(placed, direction, state, sends, number)
        is_due = staleness >= 0 and self.update_if_due(placed, state, number)
        if turns is not None and not (is_due and turns.waits_for_updates):
            turns.served()

    def update_if_due(self, placed: PlacedNode, state: State, cause: Cause) -> bool:
        """Send the node of `placed` an update message, if it has accumulated enough gradients."""
        if placed.learner is None or not placed.learner.asks_update():
            return False
        self._accept_update((placed, 0, state, None, cause))
        return True

    @property
    def has_free(self) -> bool:
        """Whether messages wait for nodes that cost nothing."""
        return bool(self.free_backward or self.free_forward)

    def do_free(self, now_s: float) -> None:
        """Serve everything that takes no device time, backward first."""
        backward, forward = self.free_backward, self.free_forward
        if not backward and not forward:
            return
        record, next_number = self._record, self._number
        while True:
            if backward:
                direction, message = BACKWARD, backward.popleft()
            elif forward:
                direction, message = FORWARD, forward.popleft()
            else:
                return
            placed, _port, state, _payload, cause = message
            sends = self.sends_of_free(direction, message)
            record((placed.free_kinds[direction], now_s, now_s, NO_STALENESS, state, cause))
            self.send_on(placed, direction, state, sends, next_number())

    def sends_of_free(self, direction: Direction, message: Message) -> Sends:
        """Run a step that takes no device time, and change the memory as its end does."""
        placed, port, state, payload, _cause = message
        try:
            if placed.is_loss:
                served = self.served(direction, message)
                if served[4] is not None and placed.footprint is not None:
                    placed.footprint.settle(served[4])
                return served[0]
            step = placed.backward if direction is BACKWARD else placed.forward
            return step(port, state, payload)
        except OURS_TO_PASS:
            raise
        except BaseException as error:
            raise self.failed(placed, direction, state, error) from error

    def served(self, direction: Direction, message: Message) -> PlainStepResult:
        """Run the step of a message; an exception tells where and when it happened."""
        placed, port, state, payload, _cause = message
        try:
            if direction is UPDATE:
                charged = self._updater.update(placed, self._clock.now)
                return (), charged, NO_STALENESS, None, None, None
            served = placed.serve(direction, port, state, payload)
            if served[3] is not None:
                self._controller.take_report(placed.node, served[3], state)
        except OURS_TO_PASS:
            raise
        except BaseException as error:
            raise self.failed(placed, direction, state, error) from error
        return served

    def failed(
        self, placed: PlacedNode, direction: Direction, state: State, what: str | BaseException
    ) -> SimulationError:
        """Make the error that tells what failed, where and when; an exception also by its line."""
        if isinstance(what, BaseException):
            what = fault_of_state(state) or told(what)
        sender = "from the controller" if state is BY_CONTROLLER else str(state)
        return SimulationError(
            f"{placed.node.describe()} failed at {self._clock.now:.9g} s serving "
            f"{direction.name.lower()} {sender}: {what}"
        )

    def send_on(
        self, placed: PlacedNode, direction: Direction, state: State, sends: Sends, cause: Cause
    ) -> None:
        """Send what a step returned to the queues of the workers that host the next nodes."""
        table = placed.training
        if placed.is_loss and not placed.node.is_training:  # of others both tables are one
            table = placed.validation
        routes = table[1] if direction is BACKWARD else table[2]  # faster than by the direction
        try:
            if len(sends) != 1:
                self._controller.count_messages(state[0], len(sends) - 1, cause)
                if not sends:
                    return
            send(routes, placed.index, sends, cause)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            fault = fault_of(sends, len(routes)) or fault_of_state(state)
            fault = fault or stray_of(
                error, [state, *(sent[1] for sent in sends)], self._controller.unfinished
            )
            if fault is None:
                raise
            raise self.failed(placed, direction, state, fault) from error
