"""The dependency engine: a program that is written in order, and runs as its variables allow.

Source: "Dependency Engine for Deep Learning", the design notes of MXNet; what they leave open is
settled as in MXNet's source. docs/decisions/0017-dependency-engine.md has the reasons.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from ampsim.arguments import checked
from ampsim.clock import Clock, SimClock
from ampsim.dependency.execution import Execution, error_of
from ampsim.dependency.operation import (
    CopyOperation,
    Cost,
    Deletion,
    Operation,
    Variable,
    Wait,
    variable_name,
)
from ampsim.dependency.places import Place, Places
from ampsim.dependency.policies import PerDevice, Policy
from ampsim.dependency.refusals import (
    require_function,
    require_name,
    require_priority,
    require_usable,
    size_of,
    variables_of,
)
from ampsim.dependency.result import EngineResult, result_of
from ampsim.errors import OptionError
from ampsim.hardware import Cluster, Device, load_cluster
from ampsim.ir.work import Work
from ampsim.machine import Memory
from ampsim.options import Seconds


class DependencyEngine:
    """Runs functions in virtual time, each when the variables that it reads and mutates allow it.

    The functions compute real numbers; devices, copies and links charge what they cost. What was
    pushed comes to the result of running it in push order, whatever runs in parallel.

    Args:
        cluster: the devices and links, or the name or path of a cluster or device file.
        policy: who runs what: `PerDevice()`, `Pooled(threads)` or `Naive()`.
        host: the device that the host computes on; the cluster's unless given, and where neither
            is, computing there takes no time.
        push_s: what a push costs the host's thread, in seconds; `message_overhead_s` of the host's
            device unless given, and nothing without one.
        seed: of what varies on the cluster.
        clock: whose time passes; a virtual one unless given.

    Raises:
        OptionError: an argument is none of these.
    """

    @checked
    def __init__(
        self,
        cluster: Cluster | str | os.PathLike[str],
        policy: Annotated[Policy, "a policy such as ampsim.PerDevice()"] | None = None,
        *,
        host: Device | None = None,
        push_s: Seconds | None = None,
        seed: int = 0,
        clock: Clock | None = None,
    ) -> None:
        policy = PerDevice() if policy is None else policy
        self.cluster = cluster if isinstance(cluster, Cluster) else load_cluster(cluster)
        self.policy = policy
        host = self.cluster.host if host is None else host
        if push_s is None:
            push_s = 0.0 if host is None else host.message_overhead_s
        self._clock: Clock = SimClock() if clock is None else clock
        self._places = Places(self.cluster, host, policy, self._clock, seed=seed)
        self._execution = Execution(self._clock, self._places, policy, push_s)
        self._names: list[str | None] = []

    @property
    def now_s(self) -> float:
        """The engine's time, in seconds."""
        return self._clock.now

    def new_variable(self, name: str | None = None) -> Variable:
        """Make a variable: a tag for whatever operations are to read or mutate.

        Args:
            name: what messages and records call it; "variable N" unless given.

        Raises:
            OptionError: the name is no text.
        """
        require_name(name)
        number = len(self._names)
        self._names.append(name)
        return Variable(name or variable_name(number), number, self)

    def push(
        self,
        function: Callable[[], Any] | None,
        reads: Sequence[Variable] = (),
        mutates: Sequence[Variable] = (),
        *,
        on: Place = 0,
        work: Work | None = None,
        name: str | None = None,
        priority: float = 0,
        rows: int | None = None,
        matrix_elements: int | None = None,
        is_backward: bool = False,
    ) -> None:
        """Push an operation: it starts when all its variables have given it their turn.

        Nothing runs before a wait. The function runs when the operation starts; what it pushes
        itself is pushed when it ends.

        Args:
            function: what runs, without arguments; None for what only takes time.
            reads: variables of what it uses and leaves as it is.
            mutates: variables of what it changes; it may read that, too.
            on: the worker whose device it occupies, or "host".
            work: what its device is charged for; None for nothing.
            name: what messages and records call it; "operation N" unless given.
            priority: of two that wait for one thread the one with more starts first.
            rows: of what it works on, for devices that name an efficiency of them.
            matrix_elements: likewise, of its matrix.
            is_backward: whether these devices take it for a backward step.

        Raises:
            OptionError: an argument is none of these, or a variable is not this engine's, was
                deleted, or is named twice.
        """
        lane = self._places.compute_lane(on)
        if function is not None:
            require_function(function, is_optional=True)
        operation = self._operation(function, reads, mutates, lane)
        if work is not None:
            operation.cost = self._places.cost(work, lane.place, rows, matrix_elements, is_backward)
        if name is not None or priority:
            _label(operation, name, priority)
        self._execution.push(operation)

    def push_copy(
        self,
        function: Callable[[], Any] | None,
        reads: Sequence[Variable] = (),
        mutates: Sequence[Variable] = (),
        *,
        source: Place,
        target: Place,
        size_bytes: int,
        name: str | None = None,
        priority: float = 0,
    ) -> None:
        """Push a copy from one place to another: it takes a copy lane and the link between them.

        The lane is the sender's for what leaves a worker, the taker's for what comes from the host.

        Args:
            function: what copies the numbers; it runs when the first byte may leave.
            reads: as for `push`.
            mutates: as for `push`.
            source: where the bytes come from.
            target: where they go, another place.
            size_bytes: how many there are.
            name: as for `push`.
            priority: as for `push`.

        Raises:
            OptionError: as for `push`; or both places are the same.
        """
        places = (self._places.index(source, "source"), self._places.index(target, "target"))
        if places[0] == places[1]:
            raise OptionError(
                f"source and target must be two places, got {source!r} twice; within a place use "
                "push with work=Work(bytes=...)"
            )
        require_function(function, is_optional=True)
        lane = self._places.copy_lane(*places)
        operation = self._operation(function, reads, mutates, lane, CopyOperation)
        operation.channel = self._places.fabric.channel(*places)
        operation.cost = Cost(bytes=size_of(size_bytes))
        if name is not None or priority:
            _label(operation, name, priority)
        self._execution.push(operation)

    def delete_variable(
        self, variable: Variable, function: Callable[[], Any] | None = None
    ) -> None:
        """Push the end of a variable: once all that use it have ended, `function` runs.

        It takes no time and no thread. From now on nothing can be pushed that uses the variable.

        Raises:
            OptionError: the variable is not this engine's, or was deleted already.
        """
        require_function(function, is_optional=True)
        operation = self._operation(function, (), [variable], self._places.engine, Deletion)
        variable.engine = None
        operation.given_name = f"delete {variable.name}"
        self._execution.push(operation)

    def wait_for(self, variable: Variable) -> None:
        """Let time pass until everything has ended that was pushed before and mutates a variable.

        What is pushed from then on is pushed at that time, before idle threads take up more.

        Raises:
            SimulationError: an operation failed that the variable's value depends on; the message
                names it, its variables and the time.
            OutOfMemoryError: likewise, for want of memory.
            OptionError: the variable is not this engine's or was deleted, or a function that the
                engine runs waits.
        """
        self._execution.require_outside()
        signal = self._clock.signal()
        operation = self._operation(signal.fire_first, [variable], (), self._places.engine, Wait)
        operation.given_name = f"wait for {variable.name}"
        self._execution.push(operation)
        self._execution.run(signal)
        assert operation.function is None, f"the wait for {variable.name} never ended"
        self._execution.after = operation.row
        if variable.failure is not None:
            raise error_of(variable.failure)

    def wait_for_all(self) -> None:
        """Let time pass until everything has ended that was pushed.

        Raises:
            SimulationError: an operation failed, and no wait has told of it.
            OutOfMemoryError: likewise, for want of memory.
            OptionError: a function that the engine runs waits.
        """
        self._execution.require_outside()
        self._execution.run()
        untold = [failure for failure in self._execution.failures if not failure.is_told]
        if untold:
            raise error_of(*untold)

    def place(self, on: Place) -> int:
        """A place as a worker's index, or -1 for the host.

        Raises:
            OptionError: there is no such place.
        """
        return self._places.index(on, "place")

    def memory(self, on: Place) -> Memory:
        """The memory of a place, in which operations take bytes and give them back.

        Raises:
            OptionError: there is no such place.
        """
        return self._places.memories[self._places.index(on, "on")]

    @property
    def result(self) -> EngineResult:
        """The record of what ran so far: tables, the critical path, memory.

        Raises:
            OptionError: not everything that was pushed has ended.
        """
        pending = self._execution.pending
        if pending:
            raise OptionError(
                f"{pending} operations have not ended; call wait_for_all() before result"
            )
        return result_of(self._execution.log, self._names, self._places, self.policy)

    def _operation(
        self,
        function: Callable[[], Any] | None,
        reads: Sequence[Variable],
        mutates: Sequence[Variable],
        lane: Any,
        kind: type[Operation] = Operation,
    ) -> Operation:
        """An operation on variables that are fit to be used."""
        if reads.__class__ is not list and reads.__class__ is not tuple:
            reads = variables_of(reads, "reads")
        if mutates.__class__ is not list and mutates.__class__ is not tuple:
            mutates = variables_of(mutates, "mutates")
        used = (*reads, *mutates)
        is_usable = True
        for one in used:
            if one.__class__ is not Variable or one.engine is not self:
                is_usable = False
        if not is_usable or (len(used) > 1 and len(set(used)) < len(used)):
            require_usable(self, variables_of(reads, "reads"), variables_of(mutates, "mutates"))
        return kind(function, used, len(reads), lane)


def _label(operation: Operation, name: str | None, priority: float) -> None:
    """Give an operation its name and its priority.

    Raises:
        OptionError: one of them is none.
    """
    require_priority(priority)
    require_name(name)
    operation.priority, operation.given_name = priority, name
