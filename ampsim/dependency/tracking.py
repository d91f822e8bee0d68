"""Tracking: when an operation may start. Who then runs it, and where, is a policy's affair.

Each variable has a queue. What reads at its head may go all at once, what mutates goes alone, and
no reader overtakes a mutation that was pushed before it. An operation counts the variables that
have not given it its turn; at none it is ready. The rules are those of MXNet's engine
(`src/engine/threaded_engine.cc`), which "Dependency Engine for Deep Learning" describes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ampsim.dependency.operation import Operation, Variable

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
