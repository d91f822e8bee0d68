"""Operations, and the variables that they wait for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from ampsim.machine import Channel
from ampsim.trace import START, Cause


class Cost(NamedTuple):
    """What an operation is charged for.

    Args:
        seconds: for how long it occupies a thread; 0 for a copy, which takes what its link takes.
        flop, bytes: what it computes, and what it reads and writes, or sends.
    """

    seconds: float = 0.0
    flop: int = 0
    bytes: int = 0


FREE: Final = Cost()


class Variable:
    """A tag that stands for something that operations read or mutate: an array, a generator, ...

    `DependencyEngine.new_variable` makes one; the engine knows nothing else of what it stands for.

    Attributes:
        name: what messages and records call it.
        number: its place among the engine's variables.
        version: how many mutations of it have ended.
        engine: whose variable it is; None once `delete_variable` was called with it, and nothing
            more can be pushed that uses it.
        readers: how many operations have their turn to read.
        writer: the operation that has its turn to mutate.
        queue: operations whose turn has not come, in push order; None stands before each that
            mutates. It is empty, or begins with a mutation, or somebody mutates at the moment.
        failure: why its value is missing; None while it has one.
    """

    __slots__ = (
        "engine", "failure", "name", "number", "queue", "readers", "version", "writer",
    )  # fmt: skip

    def __init__(self, name: str, number: int, engine: object) -> None:
        self.name = name
        self.number = number
        self.engine: object = engine
        self.version = 0
        self.readers = 0
        self.writer: Operation | None = None
        self.queue: deque[Operation | None] = deque()
        self.failure: OperationFailure | None = None

    def __repr__(self) -> str:
        """Name it."""
        return f"Variable({self.name!r})"

    @property
    def is_deleted(self) -> bool:
        """Whether `delete_variable` was called with it."""
        return self.engine is None


@dataclass(slots=True)
class OperationFailure:
    """What the function of an operation raised."""

    operation: Operation
    time_s: float
    error: BaseException
    is_told: bool = False


class Waiting(Protocol):
    """Where an operation runs: a lane."""

    place: int
    kind: str
    first_row: int

    def put(self, operation: Operation) -> None:
        """Take an operation that is ready and may have a thread."""


class Operation:
    """One push, from then until it has ended; what is kept of it after that is a row of `Log`.

    Attributes:
        number: its place in the order of pushes.
        given_name: what its push called it; None for "operation N".
        function: what runs when it starts; None once it has ended.
        used: its variables: first those that it reads, then those that it mutates.
        read_count: how many of them it reads.
        lane: where it runs.
        cost: what it is charged for.
        priority: of two that are ready the one with more starts first.
        channel: the link that a copy crosses; None where that takes no time.
        transfer: its transfer as a cause; `START` where it crossed no link.
        is_tolerant: whether it runs although a variable of its has no value: deletions and waits.
        is_wait: whether it is a wait of the program's, which costs the host no push.
        waits: how many of its variables have not given it its turn.
        push_start_s: when the host began to push it.
        pushed_s: when that had ended, and it stood in all its queues.
        ready_s: when all its variables had given it its turn.
        start_s: when it started.
        push_cause: what the host pushed it after (`Recorder`'s causes, see `records`).
        waited_for: number of the operation whose end gave it its last turn; `START` where its push
            did.
        waited_variable: number of the variable through which it waited; `START` likewise.
        thread: row of the thread that ran it.
        failure: what it failed on, or another one on whose outcome it depends.
        pushes: what its function pushed, until it ends.
    """

    __slots__ = (
        "cost", "failure", "function", "given_name", "lane", "number", "priority", "push_cause",
        "push_start_s", "pushed_s", "pushes", "read_count", "ready_s", "start_s", "thread", "used",
        "waited_for", "waited_variable", "waits",
    )  # fmt: skip

    channel: Channel | None = None
    transfer: Cause = START
    is_tolerant: ClassVar[bool] = False
    is_wait: ClassVar[bool] = False
    number: int
    waits: int
    push_cause: Cause
    push_start_s: float
    pushed_s: float
    ready_s: float
    start_s: float

    def __init__(
        self,
        function: Callable[[], Any] | None,
        used: tuple[Variable, ...],
        read_count: int,
        lane: Waiting,
        cost: Cost = FREE,
    ) -> None:
        self.given_name: str | None = None
        self.function = function
        self.used, self.read_count = used, read_count
        self.lane = lane
        self.cost = cost
        self.priority: float = 0
        self.waited_for = self.waited_variable = START
        self.thread = lane.first_row
        self.failure: OperationFailure | None = None
        self.pushes: list[Operation] | None = None

    @property
    def reads(self) -> tuple[Variable, ...]:
        """The variables that it reads."""
        return self.used[: self.read_count]

    @property
    def mutates(self) -> tuple[Variable, ...]:
        """The variables that it mutates."""
        return self.used[self.read_count :]

    @property
    def name(self) -> str:
        """What messages and records call it."""
        return self.given_name or default_name(self.number)

    @property
    def push_row(self) -> Cause:
        """Its push as a cause."""
        return 2 * self.number

    @property
    def row(self) -> Cause:
        """Its end as a cause."""
        return 2 * self.number + 1

    @property
    def ready_cause(self) -> Cause:
        """What made it ready: the end of another one, or its push."""
        return 2 * self.number if self.waited_for == START else 2 * self.waited_for + 1


class CopyOperation(Operation):
    """One that sends bytes from a place to another."""

    __slots__ = ("channel", "transfer")

    def __init__(
        self,
        function: Callable[[], Any] | None,
        used: tuple[Variable, ...],
        read_count: int,
        lane: Waiting,
        cost: Cost = FREE,
    ) -> None:
        super().__init__(function, used, read_count, lane, cost)
        self.channel = None
        self.transfer = START


class Deletion(Operation):
    """The end of a variable."""

    __slots__ = ()
    is_tolerant = True


class Wait(Operation):
    """A wait of the program's."""

    __slots__ = ()
    is_tolerant = is_wait = True


def default_name(number: int) -> str:
    """What an operation is called whose push does not say."""
    return f"operation {number}"
