"""Progress on standard error: bars on a terminal, else a line now and then."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeAlias

from ampsim.cli.say import complain
from ampsim.units import UNKNOWN, format_rate

if TYPE_CHECKING:
    from ampsim.study import Progress

Show: TypeAlias = "Callable[[Progress], None]"

_SECONDS_BETWEEN_LINES = 5.0  # chosen: a log of ten minutes stays readable
_SECONDS_BETWEEN_LOOKS = 0.05
_BARS = 8  # chosen: those of the last runs, so that a small terminal holds them


@contextlib.contextmanager
def shown(*, is_quiet: bool) -> Generator[Show | None]:
    """Whom to tell of progress while the block runs; None where nobody wants to know."""
    if is_quiet:
        yield None
        return
    from rich.console import Console

    console = Console(stderr=True)
    display = Bars(console) if console.is_terminal and not console.is_dumb_terminal else Lines()
    try:
        yield display.show
    finally:
        display.close()


def title_of(progress: Progress) -> str:
    """Which run it is, and in which epoch."""
    repeat = f" {progress.repeat}/{progress.repeats}" if progress.repeats > 1 else ""
    return f"{progress.schedule}{repeat}, epoch {progress.epoch}"


class Lines:
    """A line for an epoch that has ended: the very first, the last of each run, others in time."""

    def __init__(self) -> None:
        """Say nothing yet."""
        self._said_s = -math.inf
        self._held: Progress | None = None

    def show(self, progress: Progress) -> None:
        """Take the news."""
        held = self._held
        if held is not None and (held.schedule, held.repeat) != (
            progress.schedule,
            progress.repeat,
        ):
            self._say()
        if progress.is_epoch_end:
            self._held = progress
            if time.monotonic() - self._said_s >= _SECONDS_BETWEEN_LINES:
                self._say()

    def close(self) -> None:
        """Say what was held back."""
        self._say()

    def _say(self) -> None:
        if self._held is None:
            return
        score = _score(self._held)
        complain(f"{title_of(self._held)} done{score and ', '}{score}")
        self._held, self._said_s = None, time.monotonic()


class Bars:
    """A bar for each of the last runs, for the epoch that it is in or ended with."""

    def __init__(self, console: Any) -> None:
        """Draw on `console`, a terminal."""
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._rich = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[rate]:>9}", markup=False),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[score]}", markup=False),
            console=console,
        )
        self._rich.start()
        self._run: tuple[str, int] | None = None
        self._task: Any = None
        self._tasks: list[Any] = []
        self._epoch = 0
        self._start_s = 0.0
        self._looked_s = 0.0

    def show(self, progress: Progress) -> None:
        """Take the news."""
        now_s = time.monotonic()
        if (progress.schedule, progress.repeat) != self._run:
            self._start_run((progress.schedule, progress.repeat))
        if progress.epoch != self._epoch:
            self._epoch, self._start_s = progress.epoch, now_s
            self._rich.reset(self._task, total=progress.items_total)
        elif not progress.is_epoch_end and now_s - self._looked_s < _SECONDS_BETWEEN_LOOKS:
            return
        self._looked_s = now_s
        self._rich.update(
            self._task,
            completed=progress.items,
            description=title_of(progress),
            rate=_rate(progress, now_s - self._start_s),
            score=_score(progress),
        )

    def _start_run(self, run: tuple[str, int]) -> None:
        self._run, self._epoch = run, 0
        self._task = self._rich.add_task("", rate="", score="")
        self._tasks.append(self._task)
        if len(self._tasks) > _BARS:
            self._rich.update(self._tasks[-_BARS - 1], visible=False)

    def close(self) -> None:
        """Leave the bars as they are."""
        with contextlib.suppress(BrokenPipeError):
            self._rich.stop()
        sys.stderr.flush()


def _rate(progress: Progress, seconds: float) -> str:
    """Items per second of the wall clock, which is not the virtual rate of the table."""
    return format_rate(progress.items / seconds) if seconds > 0 else UNKNOWN


def _score(progress: Progress) -> str:
    if progress.score is None:
        return ""
    return f"{progress.metric.kind} {progress.metric.text(progress.score)}"
