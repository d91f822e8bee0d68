"""A placed node: one node where it runs, and the messages on their way to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast

from ampsim.ir import (
    Direction,
    LossNode,
    LossReport,
    Node,
    ParameterizedNode,
    Payload,
    Sends,
    State,
)
from ampsim.machine import Channel, Memory, Processor
from ampsim.model_parallel.faults import uncounted
from ampsim.model_parallel.footprint import MESSAGES, Footprint
from ampsim.model_parallel.order import LearnerOrder
from ampsim.model_parallel.price import WAITS, Charged, Needed, Prices, largest, largest_but
from ampsim.model_parallel.stash import Prediction
from ampsim.model_parallel.step import PlainStepResult
from ampsim.model_parallel.steps import Steps
from ampsim.trace import NO_STALENESS, Cause

UPDATE, BACKWARD, FORWARD = Direction  # names of a module are read faster than those of an Enum

Message: TypeAlias = "tuple[PlacedNode, int, State, Payload, Cause]"
"""A message that has arrived: (placed node, port, state, payload, cause). The queue where it lies
says its direction; the cause is what brought it there, a number of `ampsim.trace.kinds`. It is a
plain tuple because one is made for every message: a class of its own takes three times as long."""

Accept: TypeAlias = Callable[[Message], Any]
"""Takes a message."""

Memories: TypeAlias = "tuple[Memory | None, Memory | None]"
"""Where a message lies: with its sender until it has arrived, and then with its receiver."""


class Route(NamedTuple):
    """The destination of one port's messages.

    Args:
        accept: takes the message: an inbox's ``append``, the controller, or a turn queue.
        placed: the node that they go to.
        port: of that node.
        processor: whom to wake for them; None where `accept` sees to that.
        is_free: whether serving them there costs nothing.
        channel: what they cross; None where the way costs nothing.
        memories: those of the sender and of the receiver, None for a host's; None where nobody
            counts what lies there.
    """

    accept: Accept
    placed: PlacedNode
    port: int
    processor: Processor | None
    is_free: bool
    channel: Channel | None
    memories: Memories | None = None


_Plain: TypeAlias = (
    "tuple[Accept, PlacedNode, int, Processor | None, bool, Channel | None, Memories | None]"
)

Routes: TypeAlias = "Sequence[_Plain]"
"""A `Route` for each port, as a plain tuple: `send` takes one apart for every message, and a plain
one in a third of the time."""


def plain(routes: Iterable[Route]) -> Routes:
    """Routes as `send` reads them."""
    return [
        (accept, placed, port, processor, is_free, channel, memories)
        for accept, placed, port, processor, is_free, channel, memories in routes
    ]


RouteTable: TypeAlias = "tuple[Routes, Routes, Routes]"
"""For each direction, where what a step that serves such a message sends goes: a `Route` for each
port. An update sends the controller word that it has ended."""

FarPorts: TypeAlias = "Mapping[Direction, Sequence[bool]]"
"""For each port of a node, by direction, whether what it takes comes from another place."""


class PlacedNode:
    """One node on one worker.

    Args:
        worker: the worker's index; -1 for the host.
        footprint: what it holds of the worker's memory; None where nobody counts.
        order: where the steps of a learner are noted; None where nobody asks.
        far: which of its messages come from other places, where that costs; else None.
        has_turns: whether its steps have turns in training.

    Attributes:
        learner: the node, where it is one that learns.
        is_loss: whether the node is a loss.
        is_free: whether no step of the node ever takes device time.
        training, validation: where its messages go; the node's `is_training` says which counts.
        optimizer_state: what the optimizer remembers of this node's parameters.
        stash: keeps versions of its weights; None where all steps read the latest.
        forward, backward: serve a message.
        free_kinds: for each direction, the number of the kind of a span that costs nothing.
    """

    __slots__ = (
        "_asks_need", "_backward", "_brought", "_frees", "_joins", "_keeps", "_largest", "_linked",
        "_read", "backward", "far", "footprint", "forward", "free_kinds", "has_turns", "index",
        "is_free", "is_loss", "learner", "node", "optimizer_state", "prices", "stash", "steps",
        "training", "validation", "worker",
    )  # fmt: skip

    def __init__(
        self,
        node: Node,
        place: int,
        worker: int,
        steps: Steps,
        prices: Prices,
        *,
        footprint: Footprint | None,
        order: LearnerOrder | None = None,
        far: FarPorts | None = None,
        has_turns: bool = False,
    ) -> None:
        nowhere = deque[Any](maxlen=0)
        self._read = nowhere.append if order is None else order.reads.append
        self._brought = nowhere.append if order is None else order.gradients.append
        self.node, self.index, self.worker = node, place, worker
        self.is_loss = node.is_loss
        self.learner = node if isinstance(node, ParameterizedNode) else None
        self.steps, self.prices = steps, prices
        self.footprint, self.far, self.has_turns = footprint, far, has_turns
        self.is_free = prices.is_free and far is None
        self.free_kinds = tuple(price.kind for price in prices.free)
        self.training: RouteTable = ((), (), ())
        self.validation: RouteTable = ((), (), ())
        self.optimizer_state: Any = None
        self.stash, self._keeps, self._frees = steps.stash, steps.keeps, steps.frees
        mask = node.uncharged_port
        self._largest = largest if mask < 0 else partial(largest_but, mask)
        self.forward = steps.forward
        self.backward = self._backward = steps.backward
        self._asks_need = node.heeds_need and any(node.decided_by)
        if self._asks_need:
            self.backward = self._backward_as_needed
        self._joins = None if footprint is None else footprint.joins
        if footprint is not None and self.is_free:
            self.forward, self.backward = footprint.around(self.forward, self.backward)

    def _backward_as_needed(self, port: int, state: State, payload: Payload) -> Sends:
        """Serve a backward message of a node that gets messages which need no gradient."""
        node, step = self.node, self._backward
        node.input_needs_gradient = node.gradients_needed(state)
        return step(port, state, payload)

    def serve(
        self, direction: Direction, port: int, state: State, payload: Payload
    ) -> PlainStepResult:
        """Run a forward or backward step; say what it sends and what it is charged for.

        A step that only waits costs nothing. A light step is charged for the largest payload that
        it took or sends, whichever message came last.

        Raises:
            SimulationError: a learner counted no gradient of its backward step.
        """
        footprint, learner = self.footprint, self.learner
        name = state if self._joins is None else self._joins(direction, state)
        staleness, report = NO_STALENESS, None
        if self.is_loss:
            sends, charged, report = self._evaluated(port, state, payload)
        elif learner is None:
            step = self.backward if direction is BACKWARD else self.forward
            sends = step(port, state, payload)
            charged = WAITS if not sends else self._largest(port, payload, sends)
        else:
            gradients, staleness_sum = learner.gradient_count, learner.staleness_sum
            if direction is BACKWARD:
                if self._frees is not None:
                    self._frees.free(learner.name)
                step = self.backward
                sends = step(port, state, payload)
            else:
                step = self.forward
                sends = step(port, state, payload)
                if sends and learner.is_training:
                    if self._keeps is not None:
                        self._keeps.keep()
                    stash, read = self.stash, learner.version
                    self._read((state, read if stash is None else stash.version_of(state[0])))
            if learner.gradient_count > gradients:
                staleness = learner.staleness_sum - staleness_sum
                assert staleness >= 0, f"{learner.name}: its version has fallen"
                lag = 0 if self.stash is None else staleness
                self._brought((state, learner.version, lag))
            elif (
                self._frees is not None and sends and direction is BACKWARD and payload is not None
            ):
                raise uncounted(learner, state)
            charged = WAITS if not sends else None if payload is None else payload.shape
        ended = None
        if footprint is not None:
            ended = footprint.ended(direction, name, state, payload, sends)
        needed = self.node.input_needs_gradient if self._asks_need else None
        return sends, charged, staleness, report, ended, needed

    @property
    def prediction(self) -> Prediction | None:
        """Predicts the weights of its forward steps; None where they are read as they are."""
        return self.steps.prediction

    def needed(self, direction: Direction, state: State) -> Needed | None:
        """The inputs that a step will send gradients to; None where these are always the same."""
        is_asked = direction is BACKWARD and self._asks_need
        return self.node.gradients_needed(state) if is_asked else None

    def takes_time(self, charged: Charged) -> bool:
        """Tell whether an update takes time that is charged for this."""
        return self.prices.price(UPDATE, charged).seconds > 0

    def routes(self, direction: Direction) -> Routes:
        """Return the destinations of a step, in training or in validation."""
        return (self.training if self.node.is_training else self.validation)[direction]

    def connect(self, training: RouteTable, validation: RouteTable) -> None:
        """Send messages by these routes."""
        self.training, self.validation = training, validation

    def leave_links(self) -> None:
        """Let what steps of training send cross no link until `rejoin_links`."""
        self._linked = word, backward, forward = self.training
        self.training = word, _without_links(backward), _without_links(forward)

    def rejoin_links(self) -> None:
        """Send by the same routes as before `leave_links`."""
        self.training = self._linked

    def _evaluated(
        self, port: int, state: State, payload: Payload
    ) -> tuple[Sends, Charged, LossReport | None]:
        """Evaluate a loss: what it sends, what it is charged for, what it reports.

        In validation its one message tells the controller that it has ended.
        """
        node = cast("LossNode", self.node)
        evaluated = node.evaluate(port, state, payload)
        if evaluated is None:
            return (), WAITS, None
        prediction, gradients, report = evaluated
        sends = gradients if node.is_training else ((0, state, None),)
        return sends, None if prediction is None else prediction.shape, report


def _without_links(routes: Routes) -> Routes:
    return plain(Route(*route)._replace(channel=None) for route in routes)


def send(routes: Routes, source: int, sends: Sends, cause: Cause) -> None:
    """Put messages of the node at place `source` on their way; then the instant is to be settled.

    What costs nothing arrives at once, and its worker is told; what crosses a channel is delivered
    by the same route without it.
    """
    for port, state, payload in sends:
        accept, placed, far_port, processor, is_free, channel, memories = routes[port]
        if channel is not None:
            size_bytes = 0 if payload is None else payload.nbytes
            if memories is not None and memories[0] is not None:
                memories[0].take(MESSAGES, size_bytes)
            arrive = partial(_arrive, routes[port], state, payload)
            channel.send(size_bytes, (source, placed.index), cause, arrive)
            continue
        if memories is not None and payload is not None:
            memory = memories[1]
            if memory is not None:
                memory.take(MESSAGES, payload.nbytes)
        accept((placed, far_port, state, payload, cause))
        if processor is None:
            continue
        if not is_free:
            if processor.is_idle:
                processor.wake()
        elif not processor.is_busy and not processor.is_listed:
            processor.is_listed = True  # as `Instant.add`, without the call
            processor.instant.waiting.append(processor)


def _arrive(route: _Plain, state: State, payload: Payload, cause: Cause) -> None:
    """Deliver a message that has crossed the channel of its route."""
    accept, placed, port, processor, is_free, _channel, memories = route
    if memories is not None and payload is not None:
        sender, receiver = memories
        if sender is not None:
            sender.give(MESSAGES, payload.nbytes)
        if receiver is not None:
            receiver.take(MESSAGES, payload.nbytes)
    accept((placed, port, state, payload, cause))
    if processor is None:
        return
    if is_free:
        processor.instant.add(processor)
    else:
        processor.wake()
