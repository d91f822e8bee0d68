"""Running: operations are numbered, start, end and fail; time passes while somebody waits."""

from __future__ import annotations

from collections.abc import Sequence

from ampsim.clock import Clock, Signal
from ampsim.dependency.host import Host
from ampsim.dependency.log import OperationLog
from ampsim.dependency.operation import Failure, Operation, Variable
from ampsim.dependency.places import Places
from ampsim.dependency.policies import Policy
from ampsim.dependency.tracking import enqueue, release
from ampsim.errors import AmpsimError, OptionError, OutOfMemoryError, SimulationError
from ampsim.machine import Processor
from ampsim.trace import START, Cause
from ampsim.user_code import told


class Execution:
    """What an engine does with operations.

    Args:
        clock: whose time passes.
        places: where they run.
        policy: who runs them.
        push_s: what a push costs the host.

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
        self.failures: list[Failure] = []
        self.running: Operation | None = None
        self.after: Cause = START
        self._clock, self._places = clock, places
        self._last: Cause = START
        self._now_s = 0.0
        self._is_interrupted = False
        self._dispatcher = policy.dispatcher(clock, places.instant)
        places.wire(self)
        processor = Processor(0, clock, places.instant)
        self._host = Host(
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
        function = operation.function
        if function is None:
            return True
        self.running = operation
        try:
            function()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a user's code may raise anything
            failure = Failure(operation, operation.start_s, error)
            self.failures.append(failure)
            _spoil(operation, failure)
            return False
        finally:
            self.running = None
        return True

    def will_skip(self, operation: Operation) -> bool:
        """Whether a value is missing that an operation uses."""
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
        """A wait is the program's own.

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
        """Nothing stopped the engine in the middle.

        Raises:
            OptionError: something did, such as Ctrl-C.
        """
        if self._is_interrupted:
            raise OptionError("this engine was interrupted; make a new one")


def error_of(failure: Failure, *others: Failure) -> SimulationError:
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
    """Whether a value is missing that an operation uses; what it mutates is then missing too."""
    for variable in operation.used:
        if variable.failure is not None:
            _spoil(operation, variable.failure)
            return True
    return False


def _spoil(operation: Operation, failure: Failure) -> None:
    """What a failed operation was to mutate has no value from now on."""
    operation.failure = failure
    for variable in operation.mutates:
        variable.failure = failure
