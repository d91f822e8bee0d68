"""A lane: what a device does beside computing, or the host does, one job after the other.

A device that issues steps, or copies, does so beside what it computes: each lane is a `Processor`
of its own, by the same rules (docs/decisions/0004-instants.md). What a job is, a method says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ampsim.clock import Clock
from ampsim.machine.processor import Begun, Processor


class Job:
    """What occupies a lane for a while.

    Args:
        seconds: for how long.
        done: called at its end with the time at which it began.
        begun: called when it begins; None where nobody asks.

    Attributes:
        is_dropped: whether nobody wants it any more; it then never begins.
    """

    __slots__ = ("begun", "done", "is_dropped", "seconds")

    def __init__(
        self,
        seconds: float,
        done: Callable[[float], None],
        begun: Callable[[], None] | None = None,
    ) -> None:
        self.seconds, self.done, self.begun = seconds, done, begun
        self.is_dropped = False


class Lane:
    """The jobs of one lane; those of a kind first come, first served.

    Args:
        processor: does them.
        clock: whose time passes.
        kinds: of jobs, the most urgent first.

    Attributes:
        queues: jobs that have not begun, by kind.
    """

    __slots__ = ("_clock", "processor", "queues")

    def __init__(self, processor: Processor, clock: Clock, kinds: Sequence[Any] = (0,)) -> None:
        self.processor = processor
        self.queues: dict[Any, deque[Job]] = {kind: deque() for kind in kinds}
        self._clock = clock

    def add(self, job: Job, kind: Any = 0) -> None:
        """Let a job wait for the lane."""
        self.queues[kind].append(job)
        self.processor.wake()

    @property
    def now_s(self) -> float:
        """The present time."""
        return self._clock.now

    def begin(self, kind: Any, queue: deque[Job]) -> Begun:
        """Begin the first job; one that was dropped takes no time and does nothing."""
        job = queue.popleft()
        if job.is_dropped:
            return 0.0, None
        if job.begun is not None:
            job.begun()
        return job.seconds, (job, self._clock.now)

    def end(self, task: Begun) -> None:
        """Tell whose job it was that it has ended."""
        if task[1] is not None:
            job, start_s = task[1]
            job.done(start_s)

    @property
    def has_free(self) -> bool:
        """Never."""
        return False

    def do_free(self, now_s: float) -> None:
        """Do nothing: every job waits for its lane."""
