"""Lanes: what a device does beside computing, or the host does, one job after the other.

A device that issues steps, or copies, does so beside what it computes: each lane is a `Processor`
of its own, by the same rules (docs/decisions/0004-instants.md). What a job is, a method says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from ampsim.clock import Clock
from ampsim.hardware import Device
from ampsim.ir import Direction
from ampsim.machine.processor import Begun, Instant, Processor
from ampsim.machine.stoppable import UnawaitedProcessor
from ampsim.trace import COPY_IN_LANE, COPY_OUT_LANE, NO_STALENESS, Cause, Recorder


class NothingFree:
    """Tasks that all wait for their processor, even those that take no time."""

    __slots__ = ()

    @property
    def has_free(self) -> bool:
        """Never."""
        return False

    def do_free(self, now_s: float) -> None:
        """Do nothing."""


class SomeFree:
    """Tasks of which some take no time: they wait only while their device is down.

    Attributes:
        free: what is to be done.
    """

    def __init__(self) -> None:
        self.free: deque[Callable[[], None]] = deque()

    @property
    def has_free(self) -> bool:
        """Whether something is."""
        return bool(self.free)

    def do_free(self, now_s: float) -> None:
        """Do it."""
        while self.free:
            self.free.popleft()()


class LaneTask:
    """A stretch of time on a lane.

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


class Lane(NothingFree):
    """The jobs of one lane; those of a kind first come, first served.

    Args:
        kinds: of jobs, the most urgent first.

    Attributes:
        queues: jobs that have not begun, by kind.
    """

    __slots__ = ("_clock", "processor", "queues")

    def __init__(self, processor: Processor, clock: Clock, kinds: Sequence[Any] = (0,)) -> None:
        self.processor = processor
        self.queues: dict[Any, deque[LaneTask]] = {kind: deque() for kind in kinds}
        self._clock = clock

    def add(self, job: LaneTask, kind: Any = 0) -> None:
        """Let a job wait for the lane."""
        self.queues[kind].append(job)
        self.processor.wake()

    def begin(self, kind: Any, queue: deque[LaneTask]) -> Begun:
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


class RecordedLane(Lane):
    """A lane whose jobs leave a span each."""

    __slots__ = ("recorder",)

    def __init__(
        self, processor: Processor, clock: Clock, recorder: Recorder, kinds: Sequence[Any] = (0,)
    ) -> None:
        super().__init__(processor, clock, kinds)
        self.recorder = recorder

    def record(self, kind: int, start_s: float, state: Any, cause: Cause) -> Cause:
        """Record a job of this number of a kind that ends now; return its span as a cause."""
        row = (kind, start_s, self._clock.now, NO_STALENESS, state, cause)
        self.recorder.spans.append(row)
        return self.recorder.span_number()


_DIRECTIONS: Final = {COPY_OUT_LANE: Direction.FORWARD, COPY_IN_LANE: Direction.BACKWARD}


class CopyLanes:
    """The two lanes of copies between a device and its host, beside what it computes.

    Args:
        worker: the device's number.
        device: says what a copy costs.
        above_bytes: what may leave does where more than this lies in memory.
    """

    def __init__(
        self,
        worker: int,
        device: Device,
        clock: Clock,
        *,
        instant: Instant,
        recorder: Recorder,
        above_bytes: int,
    ) -> None:
        self.device, self.recorder, self.above_bytes = device, recorder, above_bytes
        self.leaving = UnawaitedProcessor(worker, clock, instant)
        self.outward = RecordedLane(self.leaving, clock, recorder)
        self.inward = RecordedLane(Processor(worker, clock, instant), clock, recorder)

    def record(
        self, lane: int, place: int, size_bytes: int, start_s: float, of: tuple[Any, Cause]
    ) -> Cause:
        """Record a copy that ends now, of the node at `place`; return its number."""
        owner = self.outward if lane == COPY_OUT_LANE else self.inward
        key = (owner.processor.index, place, _DIRECTIONS[lane], 0, size_bytes, 0)
        return owner.record(self.recorder.kinds.number(key, lane), start_s, *of)
