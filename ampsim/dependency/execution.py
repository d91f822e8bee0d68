"""Execution of operations: their turns on variables, their lanes, and the host.

Each variable has a queue. What reads at its head may go all at once, what mutates goes alone, and
no reader overtakes a mutation that was pushed before it. An operation counts the variables that
have not given it its turn; at none it is ready. The rules are those of MXNet's engine
(`src/engine/threaded_engine.cc`), which "Dependency Engine for Deep Learning" describes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ampsim.clock import Clock, Signal
from ampsim.dependency.lane import Gated
from ampsim.dependency.operation import Operation, OperationFailure, OperationLog, Variable
from ampsim.dependency.places import Places
from ampsim.dependency.policies import Policy
from ampsim.dependency.refusals import require_ended
from ampsim.errors import AmpsimError, OptionError, OutOfMemoryError, SimulationError
from ampsim.machine import Begun, NothingFree, Processor
from ampsim.trace import START, Cause
from ampsim.user_code import told

Ready: TypeAlias = Callable[[Operation], None]


def enqueue(operation: Operation, ready: Ready) -> None:
    """Put an operation into the queues of its variables; call `ready` if it need not wait.

    One more than its variables is counted until it stands in all of the queues, so that it never
    starts half registered.
    """
    used, reads = operation.used, operation.read_count
    waits = len(used)
    for variable in used[:reads]:
        if variable.writer is not None or variable.queue:
            variable.queue.append(operation)
        else:
            variable.readers += 1
            waits -= 1
    for variable in used[reads:]:
        if variable.writer is not None or variable.readers or variable.queue:
            variable.queue.append(None)
            variable.queue.append(operation)
        else:
            variable.writer = operation
            waits -= 1
    operation.waits = waits
    if not waits:
        ready(operation)


def release(operation: Operation, ready: Ready) -> None:
    """Take an operation that has ended out of its queues, and give others their turn."""
    used, reads = operation.used, operation.read_count
    for variable in used[:reads]:
        variable.readers -= 1
        if variable.queue and not variable.readers:
            _let_mutate(variable, operation, ready)
    for variable in used[reads:]:
        variable.version += 1
        variable.writer = None
        queue = variable.queue
        while queue and (reader := queue[0]) is not None:
            queue.popleft()
            variable.readers += 1
            reader.waits -= 1
            if not reader.waits:
                _note_ready(reader, operation, variable, ready)
        if queue and not variable.readers:
            _let_mutate(variable, operation, ready)


def _let_mutate(variable: Variable, ended: Operation, ready: Ready) -> None:
    """The first in the queue mutates, alone."""
    mark, following = variable.queue.popleft(), variable.queue.popleft()
    assert mark is None and following is not None, f"{variable}: its queue begins with a reader"
    variable.writer = following
    following.waits -= 1
    if not following.waits:
        _note_ready(following, ended, variable, ready)


def _note_ready(operation: Operation, ended: Operation, variable: Variable, ready: Ready) -> None:
    """The last variable has given an operation its turn."""
    operation.waited_for = ended.number
    operation.waited_variable = variable.number
    ready(operation)


class PushThread(NothingFree):
    """Pushes, one after the other, even those that cost nothing: the `Tasks` of its processor.

    Args:
        is_synchronous: whether a push returns only when its operation has ended.

    Attributes:
        is_immediate: whether pushes take no time and never wait.
        awaited: the operation whose end it waits for.
    """

    def __init__(
        self,
        processor: Processor,
        clock: Clock,
        push_s: float,
        enqueue: Callable[[Operation], None],
        *,
        is_synchronous: bool,
    ) -> None:
        self._processor, self._clock = processor, clock
        self._push_s, self._enqueue = push_s, enqueue
        self._is_synchronous = is_synchronous
        self.is_immediate = not push_s and not is_synchronous
        self._pushes: deque[Operation] = deque()
        self.awaited: Operation | None = None
        self._since_s = -1.0
        self._cause: Cause = START
        self.queues: dict[Any, Any] = {0: Gated(self._pushes, lambda: self.awaited is None)}

    def put(self, operation: Operation) -> None:
        """Take an operation to push; not called where that `is_immediate`."""
        self._pushes.append(operation)
        self._processor.wake()

    def begin(self, kind: Any, queue: Any) -> Begun:
        """Push the first; a wait costs nothing but the time that it lasts."""
        operation = self._pushes.popleft()
        operation.push_start_s = now_s = self._clock.now
        if self._since_s == now_s:
            operation.push_cause = self._cause
        return (0.0 if operation.is_wait else self._push_s), operation

    def end(self, task: Begun) -> None:
        """The push has ended: the operation stands in its queues."""
        operation: Operation = task[1]
        operation.pushed_s = self._since_s = self._clock.now
        self._cause = operation.push_row
        if self._is_synchronous:
            self.awaited = operation
        self._enqueue(operation)

    def go_on(self) -> None:
        """Push the next: the operation has ended that the host waits for."""
        assert self.awaited is not None, "the host waits for no operation"
        self._since_s, self._cause = self._clock.now, self.awaited.row
        self.awaited = None
        if self._pushes:
            self._processor.wake()


class Execution:
    """Numbers, queues, starts and ends the operations of an engine.

    Attributes:
        log: what is kept of all operations that were pushed.
        pending: how many of them have not ended.
        failures: those whose function raised.
        running: whose function runs at the moment.
        after: what the program waited for last, as a cause.
    """

    def __init__(self, clock: Clock, places: Places, policy: Policy, push_s: float) -> None:
        self.log = OperationLog()
        self.pending = 0
        self.failures: list[OperationFailure] = []
        self.running: Operation | None = None
        self.after: Cause = START
        self._clock, self._places = clock, places
        self._last: Cause = START
        self._now_s = 0.0
        self._is_interrupted = False
        self._dispatcher = policy.dispatcher(clock, places.instant)
        places.wire(self, self._dispatcher)
        processor = Processor(0, clock, places.instant)
        self._host = PushThread(
            processor, clock, push_s, self._enqueue, is_synchronous=policy.is_synchronous
        )
        self._is_immediate = self._host.is_immediate
        clock.start(processor.work(self._host), "push")
        clock.run()

    def push(self, operation: Operation) -> None:
        """Let the host push an operation; within a function, when that operation ends."""
        if self._is_interrupted:
            self.require_whole()
        running = self.running
        if running is None:
            self._number(operation, self.after)
        elif running.pushes is None:
            running.pushes = [operation]
        else:
            running.pushes.append(operation)

    def _number(self, operation: Operation, cause: Cause) -> None:
        """Give an operation its place in the order of pushes, and let the host push it."""
        self.log.number(operation)
        operation.push_cause = cause
        self.pending += 1
        if self._is_immediate:
            self._now_s = operation.push_start_s = operation.pushed_s = self._clock.now
            enqueue(operation, self._ready)
        else:
            self._host.put(operation)

    def _enqueue(self, operation: Operation) -> None:
        self._now_s = self._clock.now
        enqueue(operation, self._ready)

    def _ready(self, operation: Operation) -> None:
        operation.ready_s = self._now_s
        if self._dispatcher is None:
            operation.lane.put(operation)
        else:
            self._dispatcher.ready(operation)

    def start(self, operation: Operation) -> bool:
        """Run the function of an operation now; tell whether it did what it should."""
        operation.start_s = self._clock.now
        if self.failures and not operation.is_tolerant and _is_spoilt(operation):
            return False
        function: Callable[[], object] | None = operation.function
        if function is None:
            return True
        self.running = operation
        try:
            returned = function()
            if returned is not None:
                require_ended(returned)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a user's code may raise anything
            failure = OperationFailure(operation, operation.start_s, error)
            self.failures.append(failure)
            _spoil(operation, failure)
            return False
        finally:
            self.running = None
        return True

    def will_skip(self, operation: Operation) -> bool:
        """Tell whether a value is missing that an operation uses."""
        return any(variable.failure is not None for variable in operation.used)

    def finish(self, operation: Operation) -> None:
        """Note that an operation has ended now, and give others their turn."""
        self._now_s = now_s = self._clock.now
        self.log.end(operation, now_s)
        operation.function = None
        self._last = 2 * operation.number + 1
        self.pending -= 1
        if operation.transfer != START:
            self._places.recorder.transfers.flush_if_full()
        release(operation, self._ready)
        if self._dispatcher is not None:
            self._dispatcher.ended(operation)
        if operation.pushes is not None:
            for pushed in operation.pushes:
                self._number(pushed, operation.row)
            operation.pushes = None
        if operation is self._host.awaited:
            self._host.go_on()

    def run(self, until: Signal | None = None) -> None:
        """Let time pass, until a signal fires or everything has ended."""
        instant = self._places.instant
        if instant.waiting:
            self._clock.call_later(0.0, instant.settle)
        try:
            self._clock.run(until)
        except BaseException:
            self._is_interrupted = True
            raise
        if until is None:
            assert not self.pending, f"{self.pending} operations never ended"
            if self._last != START:
                self.after = self._last

    def require_outside(self) -> None:
        """Require that a wait is the program's own.

        Raises:
            OptionError: a function waits that the engine runs.
        """
        if self.running is not None:
            raise OptionError(
                f"{self.running.name} waits inside the function that the engine runs, and would "
                "wait for itself; push what is to come after it"
            )
        self.require_whole()

    def require_whole(self) -> None:
        """Require that nothing stopped the engine in the middle.

        Raises:
            OptionError: something did, such as Ctrl-C.
        """
        if self._is_interrupted:
            raise OptionError("this engine was interrupted; make a new one")


def error_of(failure: OperationFailure, *others: OperationFailure) -> SimulationError:
    """The line on a failure, and on how many others; all of them are told then."""
    failure.is_told = True
    for other in others:
        other.is_told = True
    operation = failure.operation
    more = f"; {len(others)} more operations failed" if others else ""
    kind = OutOfMemoryError if isinstance(failure.error, OutOfMemoryError) else SimulationError
    what = " ".join(str(failure.error).split()) if isinstance(failure.error, AmpsimError) else ""
    told_of = kind(
        f"{operation.name} (reads {_names(operation.reads)}; mutates "
        f"{_names(operation.mutates)}) failed at {failure.time_s:.9g} s: "
        f"{what or told(failure.error)}{more}"
    )
    told_of.__cause__ = failure.error
    return told_of


def _names(variables: Sequence[Variable]) -> str:
    return ", ".join(one.name for one in variables) or "nothing"


def _is_spoilt(operation: Operation) -> bool:
    """Tell whether an operation uses a missing value; what it mutates is then missing too."""
    for variable in operation.used:
        if variable.failure is not None:
            _spoil(operation, variable.failure)
            return True
    return False


def _spoil(operation: Operation, failure: OperationFailure) -> None:
    """Mark what a failed operation was to mutate as without value from now on."""
    operation.failure = failure
    for variable in operation.mutates:
        variable.failure = failure
