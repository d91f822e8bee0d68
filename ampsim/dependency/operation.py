"""Operations, the variables that they wait for, and what is kept of them.

An operation is an object while it waits and runs, of which a row is written when it has ended; then
nothing refers to the object any more. The rows lie in push order, a few dozen bytes each.
"""

from __future__ import annotations

import struct
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, Protocol

import numpy as np

from ampsim.machine import Channel
from ampsim.trace import START, Cause


class Cost(NamedTuple):
    """The time, FLOP and bytes that an operation is charged for.

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

    __slots__ = ("engine", "failure", "name", "number", "queue", "readers", "version", "writer")

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
        """Give its name."""
        return f"Variable({self.name!r})"

    @property
    def is_deleted(self) -> bool:
        """Tell whether `delete_variable` was called with it."""
        return self.engine is None


@dataclass(slots=True)
class OperationFailure:
    """An error that the function of an operation raised, and when."""

    operation: Operation
    time_s: float
    error: BaseException
    is_told: bool = False


class Waiting(Protocol):
    """The lane on which an operation runs, as far as operations know it."""

    place: int
    kind: str
    first_row: int

    def put(self, operation: Operation) -> None:
        """Take an operation that is ready and may have a thread."""


class Operation:
    """One push, from then until it has ended; a row of `OperationLog` is kept of it.

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
        push_cause: what the host pushed it after (as of `ampsim.trace`).
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
        """The name in messages and records."""
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
        """The cause that made it ready: the end of another one, or its push."""
        return 2 * self.number if self.waited_for == START else 2 * self.waited_for + 1


class CopyOperation(Operation):
    """An operation that sends bytes from a place to another."""

    __slots__ = ("channel", "transfer")

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
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
    """Return the name of an operation whose push gives none."""
    return f"operation {number}"


STATES: Final = ("done", "failed", "skipped")
"""Names of the codes of how an operation ended."""

SKIPPED: Final = STATES.index("skipped")

UNNAMED: Final = -1
"""In place of the number of a name: the operation has the name that its number gives it."""

_FIELDS: Final[dict[str, tuple[str, str]]] = {
    **dict.fromkeys(("push_start_s", "pushed_s", "ready_s", "start_s", "end_s"), ("d", "<f8")),
    **dict.fromkeys(("push_cause", "waited_for", "transfer", "flop", "bytes"), ("q", "<i8")),
    **dict.fromkeys(("variable", "thread", "reads", "mutates", "name"), ("i", "<i4")),
    "state": ("b", "i1"),
}
ROW: Final = np.dtype([(name, kind) for name, (_letter, kind) in _FIELDS.items()])
"""A row: times in seconds; causes; numbers of an operation, a variable, a thread and a name; how
many variables the operation reads and mutates; a code of `STATES`."""

_STRUCT: Final = struct.Struct("<" + "".join(letter for letter, _kind in _FIELDS.values()))
assert _STRUCT.size == ROW.itemsize
_pack_into = _STRUCT.pack_into

_ROW_BYTES: Final = ROW.itemsize
_FIRST_ROWS, _GROWTH = 64, 8
"""Room for so many rows at first, and for an eighth more where it ends (chosen)."""


class OperationLog:
    """The rows of the operations of one engine."""

    def __init__(self) -> None:
        self.count = 0
        self._rows = bytearray()
        self._variables = array("i")
        self._append_variable = self._variables.append
        self._names: dict[str, int] = {}

    def number(self, operation: Operation) -> None:
        """Give an operation the next number, and keep which variables it uses."""
        operation.number = self.count
        self.count += 1
        if self.count * _ROW_BYTES > len(self._rows):
            self._rows += bytes(_ROW_BYTES * (self.count // _GROWTH + _FIRST_ROWS))
        append = self._append_variable
        for variable in operation.used:
            append(variable.number)

    def end(self, operation: Operation, end_s: float) -> None:
        """Write the row of an operation that has ended."""
        number, name, failure = operation.number, operation.given_name, operation.failure
        state = 0 if failure is None else 1 if failure.operation is operation else SKIPPED
        _seconds, flop, size_bytes = operation.cost if failure is None else FREE
        _pack_into(
            self._rows,
            number * _ROW_BYTES,
            operation.push_start_s,
            operation.pushed_s,
            operation.ready_s,
            operation.start_s,
            end_s,
            operation.push_cause,
            operation.waited_for,
            operation.transfer,
            flop,
            size_bytes,
            operation.waited_variable,
            operation.thread,
            operation.read_count,
            len(operation.used) - operation.read_count,
            UNNAMED if name is None else self._names.setdefault(name, len(self._names)),
            state,
        )

    def columns(self) -> dict[str, Any]:
        """A copy of the rows as columns; `name` and `state` are words."""
        rows = np.frombuffer(self._rows, ROW)[: self.count]
        columns: dict[str, Any] = {
            name: rows[name].astype(np.float64 if letter == "d" else np.int64)
            for name, (letter, _kind) in _FIELDS.items()
        }
        names = list(self._names)
        columns["name"] = _texts(
            default_name(number) if code == UNNAMED else names[code]
            for number, code in enumerate(columns["name"].tolist())
        )
        columns["state"] = _texts(STATES[code] for code in columns["state"].tolist())
        return columns

    def used(self) -> np.ndarray:
        """Numbers of the variables that each operation reads and then mutates, in push order."""
        return np.array(self._variables, np.int64)


def variable_name(number: int) -> str:
    """Return the name of a variable that was made without one."""
    return f"variable {number}"


def _texts(words: Any) -> np.ndarray:
    return np.array(list(words), dtype=object)
