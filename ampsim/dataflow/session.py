"""Running a graph on a cluster, and what is read off the run."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, Final, Literal, TypeAlias

import numpy as np
import pandas as pd
from annotated_types import Ge, Lt

from ampsim.arguments import checked
from ampsim.clock import Clock, SimClock
from ampsim.dataflow import operator as op
from ampsim.dataflow.accounted import CountingExecutor, CountingHost
from ampsim.dataflow.executor import Executor
from ampsim.dataflow.graph import Tensor
from ampsim.dataflow.host import Host
from ampsim.dataflow.memory import CATEGORIES, SWAP_THRESHOLD
from ampsim.dataflow.partition import Placement
from ampsim.dataflow.plan import DEAD, Plan
from ampsim.dataflow.rendezvous import Rendezvous
from ampsim.dataflow.variable import array_of
from ampsim.errors import GraphError, OptionError, one_of
from ampsim.hardware import Cluster, load_cluster
from ampsim.ir import Standin, standin
from ampsim.machine import Fabric, Instant
from ampsim.trace import Recorder, critical_path, own_frame, read_only

Share: TypeAlias = Annotated[float, Ge(0), Lt(1)]
"""A share of the memory."""

PARALLEL_ITERATIONS: Final = 32
"""Iterations of a frame under way at a time, unless somebody says otherwise (Yu et al., 4.3)."""


@dataclass(frozen=True, slots=True)
class Running:
    """Options of running graphs; `run` explains them by the same names.

    With `parallel_iterations` of None loops are unrolled; with a `round_trip_s` a client makes each
    decision, which takes that long.
    """

    parallel_iterations: int | None = PARALLEL_ITERATIONS
    run_ahead: bool = True
    round_trip_s: float | None = None
    swap_memory: bool = False
    swap_threshold: float = SWAP_THRESHOLD
    broadcast_dead: bool = False

    def __post_init__(self) -> None:
        if self.swap_threshold != SWAP_THRESHOLD and not self.swap_memory:
            raise OptionError(
                f"swap_threshold of {self.swap_threshold:g} has no effect without "
                "swap_memory=True; leave it out"
            )


@dataclass(frozen=True, eq=False)
class FlowResult:
    """The values that a graph computed, and its trace in seconds.

    Attributes:
        values: of what was asked for, in that order; in `sleep` mode floats are their shapes alone.
        sent: how many messages went between workers: `tensors`; `predicates`, all truth values;
            `signals` of control edges; `dead` signals.
    """

    values: list[Any]
    sent: Mapping[str, int]
    _plan: Plan = field(repr=False)
    _executors: Mapping[int, Executor] = field(repr=False)
    _recorder: Recorder = field(repr=False)
    _hosts: Mapping[int, Host] = field(repr=False)

    @property
    def makespan_s(self) -> float:
        """When the last step had been computed."""
        return self._recorder.summary.end_s

    @property
    def window_max(self) -> int:
        """The most iterations of one frame that were under way at a time."""
        return max((one.window_max for one in self._executors.values()), default=0)

    @property
    def stack_depth_max(self) -> int:
        """The most values that lay on one stack at a time, which loops save for their gradients."""
        return max((one.stack_depth_max for one in self._executors.values()), default=0)

    @own_frame
    def spans(self) -> pd.DataFrame:
        """One row a kernel, and one a dispatch where that takes time; columns as of any run."""
        return self._recorder.frame("spans")

    @own_frame
    def transfers(self) -> pd.DataFrame:
        """One row a message between workers whose way takes time; columns as of any run."""
        return self._recorder.frame("transfers")

    @property
    def critical_path(self) -> pd.DataFrame:
        """The chain of spans that ends with the last one: each waited for the one before."""
        return pd.DataFrame(critical_path(self._recorder.records()).columns())

    @own_frame
    def memory(self) -> pd.DataFrame:
        """Bytes in the device's memory: worker, time_s, bytes, stacks, activations, ...

        One row for the fullest moment of each stretch of time, of which there are some hundreds:
        `bytes` in all, and then those of each category. Empty where no device has
        `memory_bytes`.
        """
        rows = [row for host in counting(self._hosts) for row in host.memory_rows]
        return _table(f"worker time_s bytes {' '.join(CATEGORIES)}", rows)

    @property
    def peak_bytes(self) -> pd.Series[Any]:
        """The most bytes that lay in the device's memory at once, by worker.

        Raises:
            OptionError: nobody counted, as no device has `memory_bytes`.
        """
        if not len(self.memory):
            raise OptionError(
                "peak_bytes: memory was not counted in this run; take a device with memory_bytes"
            )
        return self.memory.groupby("worker")["bytes"].max().rename("peak_bytes")

    @property
    def swapped_out_bytes(self) -> int:
        """Bytes copied from stacks to the host."""
        return sum(one.swapper.out_bytes for one in counting(self._hosts) if one.swapper)

    @property
    def swapped_in_bytes(self) -> int:
        """Bytes copied back from the host."""
        return sum(one.swapper.in_bytes for one in counting(self._hosts) if one.swapper)

    @own_frame
    def frames(self) -> pd.DataFrame:
        """One row an iteration of a loop on a worker: tag, iteration, opened_s, over_s, worker."""
        return _table("tag iteration opened_s over_s worker", self._rows("frames"))

    @own_frame
    def decisions(self) -> pd.DataFrame:
        """One row a Switch with a live predicate: node, tag, taken, time_s, worker."""
        return _table("node tag taken time_s worker", self._rows("decisions"))

    def _rows(self, what: str) -> list[tuple[Any, ...]]:
        """The rows of a table of all executors, each with its worker."""
        named = self._executors.items()
        return [(*row, worker) for worker, one in named for row in getattr(one, what)]

    @own_frame
    def evaluations(self) -> pd.DataFrame:
        """One row a node on a worker: node, operator, live and dead: how often it ran; worker."""
        rows = [
            (one.node.name, one.node.operator.name, one.live, one.dead, one.frame.worker)
            for one in self._plan.steps
        ]
        return _table("node operator live dead worker", rows)


def counting(hosts: Mapping[int, Host]) -> list[CountingHost]:
    """The hosts that count what lies in their devices' memory."""
    return [host for host in hosts.values() if isinstance(host, CountingHost)]


_KINDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("node", "tag", "operator"), object), "taken": np.bool_,
    **dict.fromkeys(("opened_s", "over_s", "time_s"), np.float64),
}  # fmt: skip
"""Types of columns that are no counts."""


def _table(names: str, rows: Sequence[tuple[Any, ...]]) -> pd.DataFrame:
    columns = list(zip(*rows, strict=True)) or [()] * len(names.split())
    named = zip(names.split(), columns, strict=True)
    return read_only({name: np.array(list(one), _KINDS.get(name, np.int64)) for name, one in named})


@checked
def run(
    asked: Tensor | Sequence[Tensor], feeds: Mapping[str, Any] | None = None, *,
    cluster: Cluster | str | os.PathLike[str] = "tflops-1",
    mode: Literal["numeric", "sleep"] = "numeric",
    parallel_iterations: Annotated[int, Ge(0)] = PARALLEL_ITERATIONS, run_ahead: bool = True,
    swap_memory: bool = False, swap_threshold: Share = SWAP_THRESHOLD,
    placement: Placement | None = None, broadcast_dead: bool = False, seed: int = 0,
    clock: Clock | None = None,
) -> FlowResult:  # fmt: skip
    """Compute tensors of a graph on the devices of a cluster.

    What nobody has placed runs on worker 0.

    Args:
        asked: what to compute.
        feeds: values of the graph's inputs, by name.
        cluster: the devices, or the name or path of a cluster or device file.
        mode: "sleep" computes integers, truth values and shapes alone.
        parallel_iterations: iterations of a frame under way at a time; 0 for any number.
        run_ahead: whether a step counts as done once its device has it.
        swap_memory: whether what lies on stacks moves to the host where memory runs short.
        swap_threshold: the share of the memory above which it does.
        placement: devices by the names of operators; goes before `flow.device`.
        broadcast_dead: whether a branch that is not taken is told once to each worker that waits
            for it, in place of once for each tensor.
        seed: of what varies on the cluster.
        clock: whose time passes; a virtual one unless given.

    Raises:
        GraphError: a tensor was made in a branch or loop.
        OptionError: a feed is missing, or is of no input, or does not fit it.
        OutOfMemoryError: the device has `memory_bytes`, and there is no room for a step's output.
        SimulationError: a step failed; the message names it, its tag and the time.
    """
    tensors = [asked] if isinstance(asked, Tensor) else list(asked)
    for one in tensors:
        if one.context.outer is not None:
            raise GraphError(
                f"run: {one.node.told} was made in {one.context.told}; ask for what cond or "
                "while_loop gives"
            )
    cluster = cluster if isinstance(cluster, Cluster) else load_cluster(cluster)
    plan = Plan(tensors, parallel_iterations, cluster, placement)
    running = Running(
        parallel_iterations, run_ahead, None, swap_memory, swap_threshold, broadcast_dead
    )
    clock = SimClock() if clock is None else clock
    recorder = Recorder(plan.names, 1 + max(plan.roots, default=0))
    session = Session(
        cluster, clock, recorder, running, is_abstract=mode == "sleep",
        counts_memory=cluster.limits_memory, seed=seed,
    )  # fmt: skip
    result = session.run(plan, feeds or {})
    assert not any(one is DEAD for one in result.values), "nothing is dead outside of branches"
    recorder.flush()
    return result


class Session:
    """Runs of plans on a cluster, one after the other; floats are shapes if it `is_abstract`.

    What does not fit is refused with the name of a schedule, if it is `of` one.
    """

    def __init__(
        self, cluster: Cluster, clock: Clock, recorder: Recorder, running: Running, *,
        is_abstract: bool, counts_memory: bool, seed: int, light_is_free: bool = False,
        of: str = "",
    ) -> None:  # fmt: skip
        self._cluster, self._clock, self._recorder = cluster, clock, recorder
        self._whose = f"{of}: " * bool(of)
        self._running = running
        instant = Instant(clock)
        self._fabric = Fabric(cluster, clock, recorder, instant.settle, seed=seed)
        self._is_abstract = is_abstract
        self._counts_memory = counts_memory or running.swap_memory
        self._how: dict[str, Any] = {
            "instant": instant, "transfers": self._fabric.transfers, "asked": deque(),
            "is_abstract": is_abstract, "seed": seed, "round_trip_s": running.round_trip_s,
            "light_is_free": light_is_free,
        }  # fmt: skip
        self.hosts: dict[int, Host] = {}  # of workers that have taken part
        self._host(0)
        clock.run()

    def _host(self, worker: int) -> Host:
        if worker not in self.hosts:
            running, device = self._running, self._cluster.devices[worker]
            is_swapping = running.swap_memory and device.memory_bytes is not None
            threshold = running.swap_threshold if is_swapping else None
            kind = partial(CountingHost, threshold=threshold) if self._counts_memory else Host
            self.hosts[worker] = kind(
                worker, self._cluster, self._clock, self._recorder, **self._how
            )
        return self.hosts[worker]

    def _run_clock(self) -> None:
        """Run until everything is done; what copies to the host then go on make room for nobody."""
        self._clock.run()
        while copying := [one for one in counting(self.hosts) if one.is_copying]:
            for host in [one for one in copying if one.is_waiting] or copying:
                host.end_copy()
            self._clock.run()

    def require_fit(self, workers: Iterable[int]) -> None:
        """The cluster can run a graph on some workers, and has no key that means nothing there.

        Raises:
            OptionError: it has, or a device cannot swap.
        """
        cluster = self._cluster
        for device in (cluster.devices[worker] for worker in workers):
            for key, value in device.message_numbers.items():
                raise OptionError(
                    f"{self._whose}cluster: {key} of {value:g} is of steps that take and send "
                    "messages, and steps of a graph do neither; give dispatch_s or step_overhead_s"
                )
            for key in ("memory_bytes", "copy_bandwidth_bytes_per_s"):
                if self._running.swap_memory and getattr(device, key) is None:
                    raise OptionError(
                        f"{self._whose}swap_memory needs {key} of the device, and {device.name} "
                        "has none; add it to its file"
                    )
        for key, of in {"checkpoints": cluster.checkpoints, "memory": cluster.memory}.items():
            if of is not None:
                raise OptionError(
                    f"{self._whose}cluster: {key} has no effect on a graph, which is no model; "
                    f"leave {key} out"
                )
        if cluster.host is not None and not cluster.is_host_free:
            raise OptionError(
                f"{self._whose}cluster: a host that takes time is a controller's, and a graph has "
                "none; give dispatch_s in the device file, which a step of the graph takes on its "
                "host"
            )

    def run(self, plan: Plan, feeds: Mapping[str, Any], instance: int = 0) -> FlowResult:
        """Run a plan on values of its inputs; variables then have what was assigned.

        Raises:
            OptionError: an input has no value, or none that fits it, or the cluster does not fit.
            OutOfMemoryError: a worker waits for memory.
            SimulationError: a Recv waits for what nobody sends.
        """
        self.require_fit(plan.roots)
        fed = _fed_to(plan, feeds, is_abstract=self._is_abstract)
        changing = (one.node for one in plan.steps if one.node.operator is not op.VARIABLE)
        held = dict.fromkeys(one.attributes["held"] for one in changing if "held" in one.attributes)
        for one in held:
            one.forget()
        rendezvous = Rendezvous(plan, self._fabric, broadcasts_dead=self._running.broadcast_dead)
        told: dict[str, Any] = {"run_ahead": self._running.run_ahead, "instance": instance}
        executors: dict[int, Executor] = {}
        last = max(self.hosts.values(), key=attrgetter("caused_s")).cause  # the run before is over
        for worker, sources in plan.sources.items():
            host = self._host(worker)
            host.cause = last
            host.hold([one.node for one in sources])  # variables wait for nothing
            host.has_others = len(plan.sources) > 1
            kind = CountingExecutor if isinstance(host, CountingHost) else Executor
            executors[worker] = kind(plan, rendezvous, fed, host, **told)
            host.start(executors[worker].run)
        self._run_clock()
        is_over = all(one.is_over for one in executors.values())
        for worker in executors:  # a host that ran ahead may be over before its device
            host = self.hosts[worker]
            if isinstance(host, CountingHost):
                host.require_room()
        rendezvous.require_served(self._clock.now)
        assert is_over, "the run ended before everything had run"
        for one in executors.values():
            if isinstance(one, CountingExecutor):
                one.finish()
        for one in held:
            one.commit()
        parts = {place: each for one in executors.values() for place, each in one.result.items()}
        values = [parts[place] for place in range(plan.asked)]
        return FlowResult(values, rendezvous.counts, plan, executors, self._recorder, self.hosts)


def _fed_to(plan: Plan, feeds: Mapping[str, Any], *, is_abstract: bool) -> dict[str, Any]:
    """The values of the inputs and variables that the run needs.

    Raises:
        OptionError: one is missing, or of no input, or does not fit it.
    """
    fed: dict[str, Any] = {}
    for node in (step.node for step in plan.steps):
        name = node.name
        if node.operator is op.VARIABLE:
            value = node.attributes["held"].value
            if value is None:
                raise OptionError(
                    f"variable {name!r} has no value; give one with flow.set_variables"
                )
        elif node.operator is op.INPUT:
            if name not in feeds:
                raise OptionError(
                    f"feeds: input {name!r} has no value; give feeds={{{name!r}: ...}}"
                )
            value = _fitting(name, feeds[name], node.outputs[0], is_abstract=is_abstract)
        else:
            continue
        is_shape = is_abstract and node.outputs[0].is_float and "is_number" not in node.attributes
        fed[name] = standin(value.shape, value.itemsize) if is_shape else value
    for name in feeds:
        if name not in plan.inputs:
            raise OptionError(f"feeds: {one_of('needed input', name, plan.inputs, label='needed')}")
    return fed


def _fitting(name: str, value: Any, tensor: Tensor, *, is_abstract: bool) -> Any:
    if is_abstract and isinstance(value, Standin) and tensor.is_float:
        array: Any = standin(value.shape, tensor.dtype.itemsize)
    else:
        array = array_of(f"feeds: input {name!r}", value, tensor.dtype)
    shape = tensor.shape or ()
    if not op.fits(array.shape, shape):
        raise OptionError(f"feeds: input {name!r} must have shape {shape}, got {array.shape}")
    return array
