"""The rendezvous of Sends and Recvs: tensors go from worker to worker, by edge and tag.

A Send publishes what it has for one run, one edge and one tag; the Recv of that tag takes it when
both are there. What is on a side of a Switch that was not taken crosses as a dead signal, so that
whoever waits is told. What a device computes leaves when that has done all it had been handed
before, as TensorFlow's copies do (`core/common_runtime/gpu/gpu_util.cc`), and lies in the memory of
its sender until there is room for it at the receiver.

Source: Yu et al. (2018), Sections 4.3 and 4.4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from ampsim.dataflow.graph import Branch, Context
from ampsim.dataflow.plan import DEAD, Iteration, Path, Plan, Step, told
from ampsim.errors import SimulationError
from ampsim.machine import Fabric
from ampsim.trace import Cause

SIGNAL_BYTES: Final = 1
"""Of a dead signal, and of a control edge: as of a truth value."""


class SentValue(NamedTuple):
    """A value on its way, and what to call, with its cause, when the receiver has room for it."""

    value: Any
    release: Callable[[Cause], None] | None = None


class Rendezvous:
    """The messages of a run.

    If it `broadcasts_dead`, a branch that is not taken is told once to each worker that waits for
    something of it, and there to all its Recvs, in place of once for each Recv.
    """

    def __init__(self, plan: Plan, fabric: Fabric, *, broadcasts_dead: bool) -> None:
        self._fabric = fabric
        # takes what has come for a Recv that waits in an iteration, by worker
        self.receivers: dict[int, Callable[[Step, Iteration, SentValue, Cause], None]] = {}
        # what was sent; predicates and all other truth values count alike
        self.counts = {"tensors": 0, "predicates": 0, "signals": 0, "dead": 0}
        self._recvs: dict[tuple[Context, int, int], list[Step]] = {}
        # dead Sends to come of a branch, from worker to worker, with a tag, told by one signal
        self._left: dict[tuple[Context, int, int, Path], int] = {}
        self._awaited: dict[tuple[Step, Path], Iteration] = {}
        self._arrived: dict[tuple[Step, Path], SentValue] = {}
        for step in plan.steps if broadcasts_dead else ():
            if step.kind == "send" and isinstance(step.node.inputs[0].context, Branch):
                key = (step.node.inputs[0].context, step.frame.worker, step.peer.frame.worker)
                self._recvs.setdefault(key, []).append(step.peer)

    def send(
        self, step: Step, path: Path, cause: Cause, value: Any,
        release: Callable[[Cause], None] | None = None,
    ) -> None:  # fmt: skip
        """Send what a Send has, or a dead signal."""
        node, peer = step.node, step.peer
        tensor, recvs = node.inputs[0], [peer]
        ends = (step.frame.worker, peer.frame.worker)
        if value is DEAD and (tensor.context, *ends) in self._recvs:
            recvs = self._recvs[tensor.context, *ends]
            group = (tensor.context, *ends, path)
            left = self._left.pop(group, len(recvs)) - 1
            if left:
                self._left[group] = left
            if left < len(recvs) - 1:
                return  # told already
        is_signal = node.attributes["is_signal"]
        sent = SentValue(True if is_signal and value is not DEAD else value, release)
        size_bytes = SIGNAL_BYTES
        if value is DEAD:
            what = "dead"
        elif is_signal:
            what = "signals"
        else:
            what = "predicates" if tensor.dtype.kind == "b" else "tensors"
            size_bytes = math.prod(getattr(value, "shape", ())) * tensor.dtype.itemsize
        self.counts[what] += 1
        channel = self._fabric.channel(*ends)
        arrive = partial(self._arrive, recvs, path, sent)
        if channel is None:
            arrive(cause)
        else:
            channel.send(size_bytes, (node.index, peer.node.index), cause, arrive)

    def receive(self, step: Step, iteration: Iteration) -> SentValue | None:
        """Take what has arrived for a Recv; None where it has to wait."""
        sent = self._arrived.pop((step, iteration.path), None)
        if sent is None:
            self._awaited[step, iteration.path] = iteration
        return sent

    def _arrive(self, recvs: list[Step], path: Path, sent: SentValue, cause: Cause) -> None:
        for step in recvs:
            iteration = self._awaited.pop((step, path), None)
            if iteration is None:
                self._arrived[step, path] = sent
            else:
                self.receivers[step.frame.worker](step, iteration, sent, cause)

    def require_served(self, seconds: float) -> None:
        """Nobody waits, now that nothing can come any more.

        Raises:
            SimulationError: a Recv waits.
        """
        for step, path in sorted(self._awaited, key=lambda one: one[0].frame.worker):
            tag = f" in {told(path)}" if path else ""
            raise SimulationError(
                f"worker {step.frame.worker}: {step.node.told}{tag} still waits at {seconds:.9g} "
                f"s, and worker {step.peer.frame.worker} has not served it; send that tensor in "
                "every iteration, live or dead"
            )
        assert not self._arrived, "something was sent in vain"
