"""Devices that stop and come back with what they kept at their last checkpoint.

What is kept there, such as weights, a method of training says. A device that has nothing to lose,
and takes no time for checkpoints, has its tasks as `ampsim.machine.pace` wraps them.
`docs/decisions/0012-time-that-varies.md` has the reasons.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ampsim.clock import Clock
from ampsim.errors import SimulationError
from ampsim.hardware import Checkpoints, Cluster
from ampsim.machine.pace import Ahead, Pace, Paced, has_come, lognormal, outages_of
from ampsim.machine.processor import Begun, Processor, Tasks
from ampsim.rng import stream


class Foretold(Tasks, Protocol):
    """Tasks of which one can say what the next one takes."""

    def foretold_s(self, kind: Any, queue: deque[Any]) -> float:
        """Seconds of the next task of a queue, if it reads or changes what is kept; else 0.

        One that turns out to wait for others reads and changes nothing, whatever it takes.
        """
        ...

    def only_waited(self, task: Begun) -> bool:
        """Tell whether a task that has begun only waits for others."""
        ...


class Lost(NamedTuple):
    """The updates that a device has lost."""

    updates: int  # of what is kept, since it was kept, and not lost before
    undo: Callable[[], None]  # gives all of it back


class Restorable(Protocol):
    """The state that a device keeps at a checkpoint."""

    @property
    def size_bytes(self) -> int:
        """Bytes of a checkpoint."""
        ...

    @property
    def has_changed(self) -> bool:
        """Whether anything has changed since it was kept, or lost."""
        ...

    def keep(self, at_s: float) -> None:
        """Keep all as it is now, at a checkpoint that is complete at that time."""

    def go_back(self) -> Lost:
        """Be as at the last checkpoint."""
        ...

    def note_loss(self, stop_s: float, updates: int) -> None:
        """Record a stop in which so many updates were lost."""

    def note_checkpoint(self, start_s: float, end_s: float) -> None:
        """Record a checkpoint that took time."""


class _Copying(NamedTuple):
    """A checkpoint under way: from when until when, and whether the device stops in its middle."""

    start_s: float
    end_s: float
    is_lost: bool


def checkpointed(
    tasks: Foretold,
    processor: Processor,
    clock: Clock,
    cluster: Cluster,
    kept: Restorable,
    *,
    seed: int,
) -> tuple[Paced, Checkpointed]:
    """The tasks of a processor, and what looks after its checkpoints."""
    worker, checkpoints = processor.index, cluster.checkpoints
    assert checkpoints is not None
    cv = cluster.devices[worker].jitter_cv
    jitter = Ahead(lognormal(stream(seed, "jitter", worker), cv)) if cv else None
    pace = Pace(Ahead(outages_of(cluster, worker, seed)), jitter)
    looked_after = Checkpointed(tasks, pace, clock, checkpoints, kept)
    return Paced(looked_after, looked_after, processor, clock), looked_after


class Checkpointed:
    """Tasks of a device that keeps checkpoints, at its pace; some stops take it back to the last.

    A checkpoint is due at every multiple of `every_s`. One that is due in the middle of a task, or
    while the device is down, is taken when that is over; one since whose last nothing has changed
    is left out. One in whose middle the device stops, and loses what it has, is lost as well.

    A task in the middle of such a stop is done again from its start, with what the device came back
    with. Its first try leaves no trace, so that it is computed once, with that.

    Args:
        pace: of the device; it can look ahead.
        checkpoints: when they are due, and what they take.
    """

    def __init__(
        self, tasks: Foretold, pace: Pace, clock: Clock, checkpoints: Checkpoints, kept: Restorable
    ) -> None:
        self.queues: dict[Any, deque[Any]] = tasks.queues
        self.do_free = tasks.do_free
        self._tasks, self._pace, self._clock, self._kept = tasks, pace, clock, kept
        self._checkpoints, self._every_s = checkpoints, checkpoints.every_s
        self._due = 1
        self._free_s = 0.0
        self._copying: _Copying | None = None

    @property
    def has_free(self) -> bool:
        """Whether one of the tasks takes no time."""
        return self._tasks.has_free

    def up_at_s(self, now_s: float) -> float:
        """When the device can begin a task: now, or after a checkpoint, or when it is up again."""
        self._advance(now_s)
        if self._copying is not None:
            return self._copying.end_s
        up_s = self._pace.up_at_s(max(now_s, self._free_s))  # a clock's tick before a stop is in it
        return now_s if has_come(up_s, now_s) else up_s

    def lasting_s(self, now_s: float, seconds: float) -> float:
        """Seconds as `begin` gave them."""
        return seconds

    def begin(self, kind: Any, queue: deque[Any]) -> Begun:
        """Take a task, with what the device has when it is done for good."""
        now_s, pace, kept = self._clock.now, self._pace, self._kept
        foretold_s = self._tasks.foretold_s(kind, queue)
        losses = pace.losses_within(now_s, foretold_s, jitters=True) if foretold_s else []
        lost = kept.go_back() if losses else None
        task = self._tasks.begin(kind, queue)
        seconds, what = task
        if lost is not None and self._tasks.only_waited(task):
            lost.undo()
            lost, foretold_s = None, 0.0
        if not seconds:
            return task
        lasting_s = pace.lasting_s(now_s, seconds)
        if foretold_s and pace.losses != losses:
            raise SimulationError(
                f"a step at {now_s:.9g} s takes {seconds:.9g} s, but {foretold_s:.9g} s were "
                'expected of it, so that a stop of weights = "checkpoint" in its middle is not '
                'computed right; try weights = "kept"'
            )
        if lost is not None:
            self._note(lost.updates)
        else:
            self._lose()
        return lasting_s, what

    def end(self, task: Begun) -> None:
        """Finish a task whose seconds have passed."""
        self._free_s = self._clock.now
        self._tasks.end(task)

    def start(self) -> None:
        """Keep what there is at first."""
        self._kept.keep(0.0)

    def settle(self) -> None:
        """Let all be as it is now, at the end of a pass: whoever asks afterwards reads that."""
        self._advance(math.nextafter(self._clock.now, 0.0))

    def _advance(self, now_s: float) -> None:
        """Do what was due until now while no task was in the middle: checkpoints, and losses."""
        while self._has_copied(now_s) and self._is_due(now_s):
            up_s = self._pace.up_at_s(max(self._due * self._every_s, self._free_s))
            self._lose()
            if not has_come(up_s, now_s):
                return
            if self._kept.has_changed:
                self._copy(up_s)
        if self._copying is None:
            self._pace.up_at_s(max(now_s, self._free_s))
            self._lose()

    def _has_copied(self, now_s: float) -> bool:
        """Tell whether no checkpoint is under way; one that has ended by now is kept."""
        copying = self._copying
        if copying is None:
            return True
        if not has_come(copying.end_s, now_s):
            return False
        self._copying, self._free_s = None, copying.end_s
        if not copying.is_lost:
            self._kept.keep(copying.end_s)
            self._kept.note_checkpoint(copying.start_s, copying.end_s)
        return True

    def _is_due(self, now_s: float) -> bool:
        if not self._kept.has_changed:
            self._due = self._due_after(now_s)
            return False
        return has_come(max(self._due * self._every_s, self._free_s), now_s)

    def _copy(self, start_s: float) -> None:
        self._due = self._due_after(start_s)
        seconds = self._checkpoints.seconds(self._kept.size_bytes)
        if not seconds:
            self._kept.keep(start_s)
            return
        losses = self._pace.losses_within(start_s, seconds, jitters=False)
        end_s = losses[0] if losses else start_s + self._pace.stretched_s(start_s, seconds)
        self._copying = _Copying(start_s, end_s, bool(losses))

    def _due_after(self, at_s: float) -> int:
        due = max(self._due, int(at_s / self._every_s))
        while has_come(due * self._every_s, at_s):
            due += 1
        return due

    def _lose(self) -> None:
        """Go back to the last checkpoint, if an outage that was met takes what there was."""
        if self._pace.losses:
            self._note(self._kept.go_back().updates)

    def _note(self, updates: int) -> None:
        """Record all losses that were met: the first takes the updates, others have none left."""
        for stop_s in self._pace.losses:
            self._kept.note_loss(stop_s, updates)
            updates = 0
        self._pace.losses.clear()
