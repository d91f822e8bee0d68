"""Checkpoints: what a worker keeps at one, and what its next step takes that it may lose.

It keeps the parameters and the optimizer's state of its nodes. A stop that loses them takes back
updates, and nothing else: messages, activations, and gradients that no update has applied are of
instances that are under way, and survive. Such a stop is looked for before a step begins, since
what a step has computed is not undone (`ampsim.machine.checkpoints`).
`docs/decisions/0012-time-that-varies.md` has the reasons.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ampsim.errors import OptionError
from ampsim.hardware import Cluster
from ampsim.ir import Direction, ParameterizedNode
from ampsim.machine import Begun, Tasks
from ampsim.machine.checkpoints import Lost
from ampsim.machine.pace import loses_weights
from ampsim.model_parallel.message_overhead import messages
from ampsim.model_parallel.placed_node import Message, PlacedNode
from ampsim.model_parallel.price import WAITS, Extents
from ampsim.model_parallel.schedules.base import Schedule
from ampsim.model_parallel.step import StepResult
from ampsim.model_parallel.worker import Worker
from ampsim.trace import Recorder
from ampsim.user_code import OURS_TO_PASS


class _Weights(NamedTuple):
    """The state of one node: parameters, and what optimizer, prediction and stash keep of them."""

    theta: np.ndarray
    optimizer_state: Any
    prediction: Any
    versions: dict[int, np.ndarray] | None


class KeptWeights:
    """The weights of the nodes on one worker, as they are and as they were kept.

    Every version that a node has stashed is lost with the latest one: a step that would have read
    one of them reads what was kept. Versions go on counting, so that staleness counts updates, be
    they lost or not.
    """

    def __init__(self, worker: int, placed: Sequence[PlacedNode], recorder: Recorder) -> None:
        self._worker, self._recorder = worker, recorder
        self._nodes = [(one, one.node) for one in placed if isinstance(one.node, ParameterizedNode)]
        self.size_bytes = sum(
            (1 + node.state_arrays + (one.steps.prediction is not None))
            * (node.parameter_count * node.theta.itemsize)
            for one, node in self._nodes
        )
        self._kept: list[_Weights] = []
        self._kept_s = 0.0
        self._changes = self._changes_now()

    @property
    def has_changed(self) -> bool:
        """Whether an update was made, or replicas were averaged, since all was kept, or lost."""
        return self._changes_now() != self._changes

    def keep(self, at_s: float) -> None:
        """Keep all as it is now, at a checkpoint that is complete at that time."""
        self._kept = [_copied(_now(*one)) for one in self._nodes]
        self._kept_s, self._changes = at_s, self._changes_now()

    def go_back(self) -> Lost:
        """Have the weights of the last checkpoint."""
        before, changes = [_now(*one) for one in self._nodes], self._changes
        now = self._changes_now()
        for (placed, node), kept in zip(self._nodes, self._kept, strict=True):
            again = _copied(kept)
            if placed.steps.stash is not None:
                stashed = dict.fromkeys(placed.steps.stash.versions, again.theta)
                again = again._replace(versions=stashed)
            _set(placed, node, again)
        self._changes = now

        def undo() -> None:
            for (placed, node), was in zip(self._nodes, before, strict=True):
                _set(placed, node, was)
            self._changes = changes

        updates = sum(last - first for (last, _), (first, _) in zip(now, changes, strict=True))
        return Lost(updates, undo)

    def note_loss(self, stop_s: float, updates: int) -> None:
        """Record a stop in which so many updates were lost."""
        self._recorder.losses.append((self._worker, stop_s, self._kept_s, updates))

    def note_checkpoint(self, start_s: float, end_s: float) -> None:
        """Record a checkpoint that took time."""
        self._recorder.checkpoints.append((self._worker, start_s, end_s))

    def _changes_now(self) -> list[tuple[int, int]]:
        return [(node.version, node.averaged) for _placed, node in self._nodes]


def _now(placed: PlacedNode, node: ParameterizedNode) -> _Weights:
    """Return a node's state, which stays as it is until the node is stepped."""
    prediction, stash = placed.steps.prediction, placed.steps.stash
    return _Weights(
        node.theta,
        placed.optimizer_state,
        None if prediction is None else prediction.learned,
        None if stash is None else stash.versions,
    )


def _copied(weights: _Weights) -> _Weights:
    """Copy weights: an optimizer may write its state, and a sparse update rows."""
    return copy.deepcopy(weights._replace(versions=None))


def _set(placed: PlacedNode, node: ParameterizedNode, weights: _Weights) -> None:
    """Let a node have these weights; in `sleep` mode there are none."""
    if node.is_abstract:
        return
    node.adopt(weights.theta)
    placed.optimizer_state = weights.optimizer_state
    if placed.steps.prediction is not None:
        placed.steps.prediction.learned = weights.prediction
    if placed.steps.stash is not None and weights.versions is not None:
        placed.steps.stash.versions = weights.versions


def has_checkpoints(cluster: Cluster, worker: int) -> bool:
    """Tell if a worker that has parameters takes time for checkpoints, or may go back to one."""
    checkpoints = cluster.checkpoints
    if checkpoints is None:
        return False
    return not checkpoints.is_free or loses_weights(cluster, worker)


def require_single_steps(cluster: Cluster, schedule: Schedule) -> None:
    """Check that no group of messages is one step where weights may be lost in its middle.

    Raises:
        OptionError: there may be such groups.
    """
    if cluster.checkpoints is not None and schedule.order.max_group > 1:
        raise OptionError(
            f"max_group = {schedule.order.max_group} merges messages, but cluster {cluster.name} "
            "has checkpoints, and a step that a stop takes back is computed again message by "
            "message; take max_group=1, or leave the checkpoints out of the cluster"
        )


class Foretelling:
    """The tasks of a worker, of which it can say what the next one takes.

    Args:
        tasks: the worker's, with what its messages cost.
        worker: whose tasks they are; it serves messages one by one.
        overhead_s: what each message from or to another place costs it.
        charge: lets the next update of a node cost what the optimizer's stage does.
    """

    __slots__ = ("_charge", "_overhead_s", "_tasks", "_worker", "begin", "do_free", "end", "queues")

    def __init__(
        self,
        tasks: Tasks,
        worker: Worker,
        overhead_s: float,
        charge: Callable[[ParameterizedNode], None],
    ) -> None:
        self.queues: dict[Any, deque[Any]] = tasks.queues
        self.begin, self.end, self.do_free = tasks.begin, tasks.end, tasks.do_free
        self._tasks, self._worker, self._overhead_s = tasks, worker, overhead_s
        self._charge = charge

    @property
    def has_free(self) -> bool:
        """See `Worker`."""
        return self._tasks.has_free

    def foretold_s(self, kind: Direction, queue: deque[Message]) -> float:
        """Seconds of the step of the first message, where its node has parameters; else 0.

        The step is taken to send one message by each of its ports. One that turns out only to wait
        for other messages takes none.
        """
        message = queue[0]
        placed, _port, state, _payload, _cause = message
        if placed.learner is None:
            return 0.0
        try:
            if kind is Direction.UPDATE:
                self._charge(placed.learner)
            needed = placed.needed(kind, state)
            seconds = placed.prices.price(kind, _shape(kind, message), needed).seconds
        except OURS_TO_PASS:
            raise
        except BaseException as error:
            raise self._worker.failed(placed, kind, state, error) from error
        if not self._overhead_s:
            return seconds
        sends = [(port, state, None) for port in range(len(placed.routes(kind)))]
        return seconds + self._overhead_s * messages(kind, message, sends)

    def only_waited(self, task: Begun) -> bool:
        """Tell whether a step that has begun only waits for other messages at its node."""
        return StepResult(*task[1][2]).charged is WAITS


def _shape(direction: Direction, message: Message) -> Extents:
    placed, _port, _state, payload, _cause = message
    if direction is Direction.UPDATE:
        assert placed.learner is not None
        rows = placed.learner.rows_touched
        return None if rows is None else (rows,)
    return None if payload is None else payload.shape
