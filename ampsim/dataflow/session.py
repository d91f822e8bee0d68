"""Running a graph on a cluster, and what is read off the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from ampsim.arguments import checked
from ampsim.clock import Clock, SimClock
from ampsim.dataflow.accounted import CountingExecutor, CountingHost
from ampsim.dataflow.executor import Executor
from ampsim.dataflow.frame import DEAD
from ampsim.dataflow.graph import INPUT, Tensor
from ampsim.dataflow.host import Host
from ampsim.dataflow.memory import CATEGORIES
from ampsim.dataflow.operator import standin
from ampsim.dataflow.plan import Plan
from ampsim.dataflow.swapping import SWAP_THRESHOLD
from ampsim.errors import GraphError, OptionError, one_of
from ampsim.hardware import Cluster, Device, load_cluster
from ampsim.ir import Standin
from ampsim.text import shown
from ampsim.trace import Recorder, critical_path, read_only

PARALLEL_ITERATIONS: Final = 32
"""Iterations of a frame under way at a time, unless somebody says otherwise (Yu et al., 4.3)."""


@dataclass(frozen=True)
class FlowResult:
    """What a graph computed, and when, in seconds.

    Attributes:
        values: of what was asked for, in that order; in `sleep` mode floats are their shapes alone.
        makespan_s: when the last step had been computed.
        window_max: the most iterations of one frame that were under way at a time.
    """

    values: list[Any]
    makespan_s: float
    window_max: int
    _executor: Executor = field(repr=False)
    _plan: Plan = field(repr=False)
    _recorder: Recorder = field(repr=False)
    _host: Host = field(repr=False)

    @cached_property
    def spans(self) -> pd.DataFrame:
        """One row a kernel, and one a dispatch where that takes time; columns as of any run."""
        return self._recorder.frame("spans")

    @property
    def critical_path(self) -> pd.DataFrame:
        """What the last span waited for, back to time zero."""
        return pd.DataFrame(critical_path(self._recorder.records()).columns())

    @cached_property
    def memory(self) -> pd.DataFrame:
        """What lay in the device's memory: worker, time_s, bytes, stacks, activations, ...

        One row for the fullest moment of each stretch of time, of which there are some hundreds:
        `bytes` in all, and then those of each category. Empty where the device has no
        `memory_bytes`.
        """
        rows = self._host.memory.rows if isinstance(self._host, CountingHost) else []
        return _table(("worker", "time_s", "bytes", *CATEGORIES), rows)

    @property
    def peak_bytes(self) -> pd.Series[Any]:
        """The most bytes that lay in the device's memory at once, by worker.

        Raises:
            OptionError: nobody counted, as the device has no `memory_bytes`.
        """
        if not len(self.memory):
            raise OptionError(
                "peak_bytes: memory was not counted in this run; take a device with memory_bytes"
            )
        return self.memory.groupby("worker")["bytes"].max().rename("peak_bytes")

    @property
    def swapped_out_bytes(self) -> int:
        """What was copied from stacks to the host."""
        return self._swapped[0]

    @property
    def swapped_in_bytes(self) -> int:
        """What was copied back."""
        return self._swapped[1]

    @property
    def _swapped(self) -> tuple[int, int]:
        swapper = self._host.swapper if isinstance(self._host, CountingHost) else None
        return (0, 0) if swapper is None else (swapper.out_bytes, swapper.in_bytes)

    @cached_property
    def frames(self) -> pd.DataFrame:
        """One row an iteration of a loop: tag, iteration, opened_s, over_s."""
        return _table(("tag", "iteration", "opened_s", "over_s"), self._executor.frames)

    @cached_property
    def decisions(self) -> pd.DataFrame:
        """One row each time that a Switch had a live predicate: node, tag, taken, time_s."""
        return _table(("node", "tag", "taken", "time_s"), self._executor.decisions)

    @cached_property
    def evaluations(self) -> pd.DataFrame:
        """One row a node: node, operator, live and dead: how often it ran."""
        steps = [step for step in self._plan.steps if step.node is not None]
        names = ("node", "operator", "live", "dead")
        rows = [(one.node.name, one.node.operator.name, one.live, one.dead) for one in steps]  # pyright: ignore[reportOptionalMemberAccess]  # chosen so
        return _table(names, rows)


def _table(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> pd.DataFrame:
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    counts = ("iteration", "live", "dead", "worker", "bytes", *CATEGORIES)
    kinds: dict[str, Any] = dict.fromkeys(counts, np.int64)
    made: dict[str, Any] = {}
    for name, values in zip(names, columns, strict=True):
        kind = np.float64 if name.endswith("_s") else kinds.get(name, object)
        made[name] = np.array(list(values), np.bool_ if name == "taken" else kind)
    return read_only(made)


@checked
def run(
    asked: Tensor | Sequence[Tensor],
    feeds: Mapping[str, Any] | None = None,
    *,
    cluster: Cluster | str = "tflops-1",
    mode: Literal["numeric", "sleep"] = "numeric",
    parallel_iterations: int = PARALLEL_ITERATIONS,
    run_ahead: bool = True,
    swap_memory: bool = False,
    swap_threshold: float | None = None,
    seed: int = 0,
    clock: Clock | None = None,
) -> FlowResult:
    """Compute tensors of a graph on the first device of a cluster.

    Args:
        asked: what to compute.
        feeds: values of the graph's inputs, by name.
        cluster: the devices, or the name or path of a cluster or device file.
        mode: "sleep" computes integers, truth values and shapes alone.
        parallel_iterations: iterations of a frame under way at a time; 0 for any number.
        run_ahead: whether a step counts as done once its device has it.
        swap_memory: whether what lies on stacks moves to the host where memory runs short.
        swap_threshold: the share of the memory above which it does; by default 0.7.
        seed: of what varies on the cluster.
        clock: whose time passes; a virtual one unless given.

    Raises:
        GraphError: a tensor was made in a branch or loop.
        OptionError: a feed is missing, or is of no input, or does not fit it.
        OutOfMemoryError: the device has `memory_bytes`, and there is no room for a step's output.
        SimulationError: a step failed; the message names it, its tag and the time.
    """
    if parallel_iterations < 0:
        raise OptionError(f"parallel_iterations must be >= 0, got {parallel_iterations}")
    tensors = [asked] if isinstance(asked, Tensor) else list(asked)
    for one in tensors:
        if one.context.outer is not None:
            raise GraphError(
                f"run: {one.node.told} was made in {one.context.told}; ask for what cond or "
                "while_loop gives"
            )
    cluster = cluster if isinstance(cluster, Cluster) else load_cluster(cluster)
    _require_meaning(cluster)
    threshold = _threshold(cluster.devices[0], swap_threshold, is_swapping=swap_memory)
    plan = Plan(tensors, parallel_iterations)
    fed = _fed(plan, feeds or {}, is_abstract=mode == "sleep")
    clock = SimClock() if clock is None else clock
    has_lanes = bool(cluster.devices[0].dispatch_s) or swap_memory
    recorder = Recorder(plan.names, 1, has_lanes=has_lanes)
    options: dict[str, Any] = {"is_abstract": mode == "sleep", "seed": seed}
    if cluster.devices[0].memory_bytes is None:
        host = Host(cluster, clock, recorder, **options)
        executor = Executor(plan, fed, host, run_ahead=run_ahead)
    else:
        host = CountingHost(cluster, clock, recorder, **options)
        executor = CountingExecutor(plan, fed, host, run_ahead=run_ahead)
        if swap_memory:
            host.swap(threshold)
    host.start(executor)
    clock.run()
    assert executor.is_over, "the run ended before everything had run"
    if isinstance(executor, CountingExecutor):
        executor.finish()
    values = list(executor.result or ())
    assert not any(value is DEAD for value in values), "nothing is dead outside of branches"
    recorder.flush()
    end_s = recorder.summary.end_s
    return FlowResult(values, end_s, executor.window_max, executor, plan, recorder, host)


def _threshold(device: Device, threshold: float | None, *, is_swapping: bool) -> float:
    """The share of the memory above which what lies on stacks is swapped.

    Raises:
        OptionError: it is no share, or is told in vain, or the device cannot swap.
    """
    if threshold is not None and not is_swapping:
        raise OptionError("swap_threshold has no effect without swap_memory=True; leave it out")
    threshold = SWAP_THRESHOLD if threshold is None else threshold
    if not 0 <= threshold < 1:
        raise OptionError(f"swap_threshold must be from 0 to below 1, got {threshold:g}")
    for key in ("memory_bytes", "copy_bandwidth_bytes_per_s"):
        if is_swapping and getattr(device, key) is None:
            raise OptionError(
                f"swap_memory needs {key} of the device, and {device.name} has none; add it to "
                "its file"
            )
    return threshold


def _require_meaning(cluster: Cluster) -> None:
    """The cluster has no key of which a graph would make nothing.

    Raises:
        OptionError: it has.
    """
    overhead_s = cluster.devices[0].message_overhead_s
    if overhead_s:
        raise OptionError(
            f"cluster: message_overhead_s of {overhead_s:g} is of steps that take and send "
            "messages, and steps of a graph do neither; give dispatch_s or step_overhead_s"
        )
    if cluster.checkpoints is not None or cluster.memory is not None:
        raise OptionError(
            "cluster: checkpoints and memory.remedy are of models, and a graph is none; leave "
            "them out"
        )


def _fed(plan: Plan, feeds: Mapping[str, Any], *, is_abstract: bool) -> dict[str, Any]:
    """The values of the inputs that the run needs.

    Raises:
        OptionError: one is missing, or of no input, or does not fit it.
    """
    inputs = {
        step.node.name: step.node.outputs[0]
        for step in plan.steps
        if step.node is not None and step.node.operator is INPUT
    }
    for name in inputs:
        if name not in feeds:
            raise OptionError(f"feeds: input {name!r} has no value; give feeds={{{name!r}: ...}}")
    fed: dict[str, Any] = {}
    for name, value in feeds.items():
        if name not in inputs:
            raise OptionError(f"feeds: {one_of('input', name, inputs)}")
        fed[name] = _fitting(name, value, inputs[name], is_abstract=is_abstract)
    return fed


def _fitting(name: str, value: Any, tensor: Tensor, *, is_abstract: bool) -> Any:
    """A value of the type and shape of an input."""
    if is_abstract and isinstance(value, Standin) and tensor.is_float:
        array: Any = standin(value.shape, tensor.dtype.itemsize)
    else:
        array = np.asarray(value)
        if not np.can_cast(array.dtype, tensor.dtype, "same_kind"):
            raise OptionError(f"feeds: input {name!r} must be {tensor.dtype}, got {shown(value)}")
        array = array.astype(tensor.dtype)
    shape = tensor.shape or ()
    fits = len(array.shape) == len(shape) and all(
        wanted in (None, got) for wanted, got in zip(shape, array.shape, strict=True)
    )
    if not fits:
        raise OptionError(f"feeds: input {name!r} must have shape {shape}, got {array.shape}")
    return standin(array.shape, array.itemsize) if is_abstract and tensor.is_float else array
