"""Replay: learn what a run in `sleep` mode decided, without a clock.

A run's order says which version of its weights each step of a learner reads, and which update each
gradient is in (`ampsim.model_parallel.order`). Whoever heeds that learns the same numbers to the
bit, in whichever order else steps are served: within an update gradients are summed in the order of
their states. So messages wait here for versions, not for devices, and a learner is updated as soon
as all gradients of an update are there and all steps have read what it replaces.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, cast

import numpy as np

from ampsim.errors import LOWER_RATE, DivergenceError, StuckError
from ampsim.ir import (
    Direction,
    Graph,
    LossNode,
    LossReport,
    Node,
    ParameterizedNode,
    Payload,
    Sends,
    State,
)
from ampsim.learning.batches import Batches, failed, failing
from ampsim.model_parallel import Job, LearnerPass, PassOrder, PassTotals, Prediction, Updater
from ampsim.model_parallel.faults import fault_of, uncounted, why_stuck
from ampsim.model_parallel.job import Pump, by_number
from ampsim.model_parallel.step import Step
from ampsim.trace import Recorder
from ampsim.user_code import OURS_TO_PASS, user_code

BACKWARD, FORWARD = Direction.BACKWARD, Direction.FORWARD

Item: TypeAlias = "tuple[int, Direction, int, State, Payload]"
"""A message: place of the node that it goes to, direction, port, state, payload."""

_PLAIN: Final[dict[str, Callable[[np.ndarray], Any]]] = {"int": int, "float": float}
"""Types of Python that a part of an optimizer's state may have; others are arrays or NumPy's."""


class Learner:
    """A node that learns, and the versions of its weights that steps are still to read.

    Args:
        node: it.
        place: in the graph.
        stashes: whether its steps may read older weights than the latest.
        predicts: whether its forward steps read predicted weights.

    Attributes:
        optimizer_state: what the optimizer remembers of its parameters.
        prediction: predicts weights; None where steps read them as they are.
    """

    stash = None

    def __init__(
        self, node: ParameterizedNode, place: int, *, stashes: bool, predicts: bool
    ) -> None:
        self.node, self.index = node, place
        self._stashes = stashes
        self.optimizer_state: Any = None
        self.prediction = (
            Prediction(node, node.forward) if predicts and not node.is_sparse else None
        )
        self._forward = node.forward if self.prediction is None else self.prediction.forward
        self.start(LearnerPass({}, {}, node.version, node.version))

    def start(self, order: LearnerPass) -> None:
        """Begin a pass of that order; the node has the weights that it begins with."""
        self.node.version = order.first
        self._reads, self._gradients = order.reads, order.gradients
        self._unread = Counter(order.reads.values())
        self._unread.update(read for read, _update in order.gradients.values())
        self._expected = Counter(update for _read, update in order.gradients.values())
        self._older: dict[int, np.ndarray] = {}
        self._waiting: dict[int, list[Item]] = {}

    def must_wait(self, item: Item) -> bool:
        """Keep a message before whose step updates are still to come; say whether there are any."""
        _place, direction, _port, state, payload = item
        if direction is FORWARD:
            version = self._reads[state]
        elif payload is None:  # it needs no weights
            return False
        elif state in self._gradients:
            version = self._gradients[state][1]
        else:
            raise uncounted(self.node, state)
        if version <= self.node.version:
            return False
        self._waiting.setdefault(version, []).append(item)
        return True

    def forward(self, port: int, state: State, payload: Payload) -> Any:
        """Serve a forward message with the version that its state reads."""
        version = self._reads[state]
        if version == self.node.version:
            sends = self._forward(port, state, payload)
        else:
            sends = self._with_older(version, version, self._forward, (port, state, payload))
        if sends:
            self._read(version)
        return sends

    def backward(self, port: int, state: State, gradient: Payload) -> Any:
        """Serve a backward message; its gradient enters the update after so many."""
        step = self.node.backward
        if gradient is None or state not in self._gradients:
            return step(port, state, gradient)
        version, update = self._gradients[state]
        before = self.node.gradient_count
        if version == self.node.version:
            sends = step(port, state, gradient)
        else:
            sends = self._with_older(version, update, step, (port, state, gradient))
        if self.node.gradient_count > before:
            self._expected[update] -= 1
            self._read(version)
        return sends

    def _with_older(self, version: int, told: int, step: Any, message: tuple[Any, ...]) -> Any:
        """Take a step with older weights; the node says that it is of version `told`."""
        node, latest, theta = self.node, self.node.version, self.node.theta
        node.adopt(self._older[version])
        node.version = told
        try:
            return step(*message)
        finally:
            node.adopt(theta)
            node.version = latest

    def _read(self, version: int) -> None:
        self._unread[version] -= 1
        if not self._unread[version]:
            del self._unread[version]
            self._older.pop(version, None)

    def weights(self) -> dict[str, np.ndarray]:
        """The state with which the next pass begins: parameters, optimizer's and prediction's.

        A part that is a number is kept under a name that ends with its type.
        """
        found: dict[str, np.ndarray] = {"theta": self.node.theta}
        kept: Iterable[Any] = self.optimizer_state or ()
        for number, part in enumerate(kept):
            kind = "" if isinstance(part, np.ndarray) else f".{type(part).__name__}"
            found[f"state.{number}{kind}"] = np.asarray(cast("Any", part))
        step, staleness = (None, 0.0) if self.prediction is None else self.prediction.learned
        if step is not None:
            found |= {"step": step, "staleness": np.asarray(staleness)}
        return found

    def adopt(self, weights: Mapping[str, np.ndarray]) -> None:
        """Begin the next pass with these; the inverse of `weights`."""
        self.node.adopt(weights["theta"])
        parts: dict[int, Any] = {}
        for name, part in weights.items():
            stem, _, rest = name.partition(".")
            number, _, kind = rest.partition(".")
            if stem == "state":
                parts[int(number)] = _PLAIN.get(kind, _item)(part) if kind else part
        self.optimizer_state = tuple(parts[number] for number in sorted(parts)) if parts else None
        if self.prediction is not None:
            step = weights.get("step")
            self.prediction.learned = step, float(weights["staleness"]) if step is not None else 0.0

    @property
    def is_due(self) -> bool:
        """Whether all gradients of the next update are there, and nobody needs what it replaces."""
        version = self.node.version
        is_whole = self.node.gradient_count > 0 and not self._expected[version]
        return is_whole and (self._stashes or version not in self._unread)

    def update(self, updater: Updater) -> list[Item]:
        """Apply the gradients; return the messages that waited for that."""
        version, theta = self.node.version, self.node.theta
        updater.update(self, math.nan)
        if version in self._unread:
            self._older[version] = theta
        return self._waiting.pop(version + 1, [])

    def require_done(self, order: LearnerPass) -> None:
        """Check that all has happened that was to happen."""
        name, version = self.node.name, self.node.version
        assert not self._unread, f"{name}: versions {sorted(self._unread)} were not read"
        assert not self._waiting, f"{name}: messages wait for versions {sorted(self._waiting)}"
        assert version == order.last, f"{name}: {version} updates, where the run had {order.last}"


def _item(part: np.ndarray) -> Any:
    return part[()]


class Replay:
    """Passes over data, of one copy of a model.

    Args:
        job: graph with the weights to start from, pump, optimizer.
        averages: whether an update takes the mean of its instances' gradients, as of
            `ampsim.model_parallel.Updates`.
        stashes: whether steps may read older weights than the latest.
        predicts: whether forward steps read predicted weights.
        batches: whether messages that read the same weights are served as one product (`Batches`),
            which is another arithmetic; only where `why_by_message` is empty, and all steps read
            the latest weights.

    Attributes:
        on_items: called with the number of items of each instance that is brought in.
        freezes: whether payloads cannot be written to, as of a trial, which so finds who does.
    """

    def __init__(
        self,
        job: Job,
        *,
        averages: bool,
        stashes: bool = False,
        predicts: bool = False,
        batches: bool = False,
    ) -> None:
        self.graph: Graph = job.graph
        self._pump = job.pump
        nodes = self.graph.nodes
        recorder = Recorder([node.name for node in nodes], 1, 0)
        self.updater = Updater(job.optimizer, recorder, averages_instances=averages)
        self.learners: dict[int, Learner] = {}
        for place, node in enumerate(nodes):
            node.is_abstract = False
            if isinstance(node, ParameterizedNode):
                node.step_by(job.optimizer.arrays, job.optimizer.calls)
                learner = Learner(node, place, stashes=stashes, predicts=predicts)
                self.learners[place] = learner
        self.on_items: Callable[[int], None] = lambda _items: None
        self.freezes = False
        self._steps = {each: self._steps_of(is_training=each) for each in (True, False)}
        targets, sources = self.graph.targets, self.graph.sources
        ends = [sources[i] if node.is_loss else targets[i] for i, node in enumerate(nodes)]
        after = [BACKWARD if node.is_loss else FORWARD for node in nodes]
        self._routes: dict[Direction, list[tuple[Any, Direction]]] = {
            FORWARD: list(zip(ends, after, strict=True)),
            BACKWARD: [(one, BACKWARD) for one in sources],
        }
        self._ready: deque[Item] = deque()
        self._totals = PassTotals()
        self._batches = None
        if batches:
            assert not stashes and not predicts, "batches read the latest weights"
            self._batches = Batches(self.graph, self.learners, self.updater, self._report)

    def _steps_of(self, *, is_training: bool) -> tuple[list[Step], list[Step]]:
        """Return the functions that serve each node's forward and backward messages, by place."""
        forward: list[Step] = []
        backward: list[Step] = []
        for place, node in enumerate(self.graph.nodes):
            one = self.learners.get(place, node) if is_training else node
            forward.append(partial(self._evaluate, place) if node.is_loss else one.forward)
            decides = node.heeds_need and any(node.decided_by)
            backward.append(partial(_as_needed, node, one.backward) if decides else one.backward)
        return forward, backward

    def weights(self) -> dict[str, np.ndarray]:
        """The state with which the next pass begins, by ``PLACE/PART``; nobody writes into it."""
        return {
            f"{place}/{name}": part
            for place, learner in self.learners.items()
            for name, part in learner.weights().items()
        }

    def adopt(self, weights: Mapping[str, np.ndarray]) -> None:
        """Begin the next pass with these weights; the inverse of `weights`."""
        by_place: dict[int, dict[str, np.ndarray]] = {}
        for name, part in weights.items():
            place, _, of_place = name.partition("/")
            by_place.setdefault(int(place), {})[of_place] = part
        for place, learner in self.learners.items():
            learner.adopt(by_place[place])

    def train(self, batches: Iterable[Any], order: PassOrder) -> PassTotals:
        """Learn a pass in its order; the nodes then have the weights that it ends with.

        Raises:
            DivergenceError: a loss or a weight stopped being finite.
            SimulationError: a node's step failed; the message says which.
        """
        for learner in self.learners.values():
            learner.start(order.learners[learner.node.name])
        if self._batches is not None:
            return self._in_batches(self._batches, batches, order.first_instance, order)
        totals = self._passed(batches, order.first_instance, is_training=True)
        for learner in self.learners.values():
            learner.require_done(order.learners[learner.node.name])
        return totals

    def validate(self, batches: Iterable[Any], first_instance: int) -> PassTotals:
        """Send `batches` through the graph with the weights that it has; learn nothing.

        Raises:
            DivergenceError: a loss is not finite.
            SimulationError: a node's step failed; the message says which.
        """
        if self._batches is not None:
            return self._in_batches(self._batches, batches, first_instance, None)
        return self._passed(batches, first_instance, is_training=False)

    def _in_batches(
        self, served: Batches, batches: Iterable[Any], first: int, order: PassOrder | None
    ) -> PassTotals:
        self._totals = PassTotals()
        served.run(self._pumped(batches, first), order)
        return self._totals

    def _passed(
        self, batches: Iterable[Any], first_instance: int, *, is_training: bool
    ) -> PassTotals:
        for node in self.graph.nodes:
            node.is_training = is_training
        self._totals = PassTotals()
        for sends in self._pumped(batches, first_instance):
            self._send(0, FORWARD, (), sends)
            self._serve_all(is_training=is_training)
        why = why_stuck(self.graph.nodes, (), [])
        if why is not None:
            raise StuckError(f"{self.graph.name}: nothing is left to do, but {why}")
        return self._totals

    def _pumped(self, batches: Iterable[Any], first_instance: int) -> Iterator[Sequence[Any]]:
        """The messages of one instance after the other."""
        for instance, batch in enumerate(batches, start=first_instance):
            self._totals.instances += batch.rows
            self.on_items(batch.rows)
            yield pumped(self.graph, self._pump, instance, batch)

    def _serve_all(self, *, is_training: bool) -> None:
        """Serve messages until all that are left wait for versions or for other instances."""
        ready, learners = self._ready, self.learners if is_training else {}
        forward, backward = self._steps[is_training]
        while ready:
            item = ready.pop()
            place, direction, port, state, payload = item
            learner = learners.get(place)
            if learner is not None and learner.must_wait(item):
                continue
            try:
                step = forward[place] if direction is FORWARD else backward[place]
                sends = step(port, state, payload)
            except OURS_TO_PASS:
                raise
            except BaseException as error:
                raise failed(self.graph.nodes[place], direction, state, error) from error
            self._send(place, direction, state, sends)
            while learner is not None and learner.is_due:
                with failing(learner.node, Direction.UPDATE, state):
                    ready.extend(learner.update(self.updater))

    def _evaluate(self, place: int, port: int, state: State, payload: Payload) -> Sends:
        """Serve a message of a loss; return the gradients of its inputs."""
        node = self.graph.nodes[place]
        assert isinstance(node, LossNode)
        evaluated = node.evaluate(port, state, payload)
        if evaluated is None:
            return ()
        assert evaluated.report is not None, f"{node.name} reports nothing"
        self._report(node, state, evaluated.report)
        return evaluated.gradients if node.is_training else ()

    def _report(self, node: LossNode, state: State, report: LossReport) -> None:
        """Add what a loss says of the message of that state, or of it and others."""
        if not math.isfinite(report.loss_sum):
            raise DivergenceError(
                f"the loss at {node.describe()} became {report.loss_sum} for instance {state[0]}"
                f"; {LOWER_RATE}"
            )
        self._totals.add(report)

    def _send(self, place: int, direction: Direction, state: State, sends: Sequence[Any]) -> None:
        """Put messages that a step returned where they go; at the controller they have ended."""
        ends, onward = self._routes[direction][place]
        if self.freezes:
            _freeze(sends)
        try:
            for port, sent, payload in sends:
                far, far_port = ends[port]
                if far:
                    self._ready.append((far, onward, far_port, sent, payload))
        except (LookupError, TypeError, ValueError) as error:
            fault = fault_of(sends, len(ends)) or error
            raise failed(self.graph.nodes[place], direction, state, fault) from error


def _freeze(sends: Any) -> None:
    """Let nobody write to the arrays that were sent; what is no messages is told elsewhere."""
    for sent in cast("Sequence[Any]", sends) if isinstance(sends, tuple | list) else ():
        if isinstance(sent, tuple) and isinstance(payload := cast("Any", sent)[-1], np.ndarray):
            payload.flags.writeable = False


def _as_needed(node: Node, step: Step, port: int, state: State, gradient: Payload) -> Sends:
    """Serve a backward message of a node that gets messages which need no gradient."""
    node.input_needs_gradient = node.gradients_needed(state)
    return step(port, state, gradient)


def pumped(graph: Graph, pump: Pump, instance: int, batch: Any) -> Sequence[Any]:
    """The messages of an instance, with the numbers of the controller's ports.

    Raises:
        SimulationError: the model's pump failed.
    """
    ports: dict[Any, Any] = {name: port for port, name in enumerate(graph.nodes[0].outputs)}
    with user_code(f"the model's pump failed for instance {instance}"):
        return by_number(pump(instance, batch), ports)
