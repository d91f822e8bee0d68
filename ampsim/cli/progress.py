"""Progress on standard error: bars on a terminal, else a line now and then."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ampsim.cli.console import complain
from ampsim.text import printable
from ampsim.units import UNKNOWN, format_rate

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from ampsim.runs.run import Run
    from ampsim.study import Model, Progress
    from ampsim.study.progress import Whole

Show: TypeAlias = "Callable[[Progress], None]"
_Run: TypeAlias = "tuple[str, int]"

SECONDS_BETWEEN_LINES = 5.0  # chosen: a log of ten minutes stays readable
_RUNS_SAID = 16  # chosen: of more, only what ends after so many seconds, and the last
_SECONDS_BETWEEN_LOOKS = 0.05
_SECONDS_OF_PACE = 600.0  # chosen: so long the pace is looked at that tells what is left
_BARS = 8  # chosen: those of the last runs, so that a small terminal holds them


@dataclass(slots=True)
class Filling:
    """The table of a forecast that is under way: its rows fill as runs end."""

    model: Model  # what is trained
    target: float | None  # what is aimed at; None for what the model says
    _runs: list[Run] = field(default_factory=list["Run"], init=False)
    _drawn: tuple[int, Table] | None = field(default=None, init=False)

    def take(self, run: Run) -> None:
        """Take a run that has ended."""
        self._runs.append(run)

    def table(self, width: int) -> Table | None:
        """The rows of which runs have ended, in so many characters; None where none has."""
        from ampsim.forecasting.forecast import table_so_far
        from ampsim.metric import Goal
        from ampsim.report.table import to_rich

        count = len(self._runs)
        if count and (self._drawn is None or self._drawn[0] != count):
            target = self.model.target if self.target is None else self.target
            rows = table_so_far(self._runs[:count], Goal(self.model.measure, target))
            self._drawn = count, to_rich(rows, target, width=width)
        return self._drawn and self._drawn[1]


@contextlib.contextmanager
def shown(
    *, is_quiet: bool, drawn: Callable[[Console], Any] | None = None
) -> Generator[Show | None]:
    """Give a callback that shows progress while the block runs; None where nobody wants it.

    Args:
        is_quiet: whether nobody wants it.
        drawn: makes what moves on a terminal; bars unless given.
    """
    if is_quiet:
        yield None
        return
    from rich.console import Console

    console = Console(stderr=True)
    can_move = console.is_terminal and not console.is_dumb_terminal
    display = (drawn or Bars)(console) if can_move else Lines()
    try:
        yield display.show
    finally:
        display.close()


def title_of(progress: Progress) -> str:
    """Name a run and its epoch."""
    repeat = f" {progress.repeat}/{progress.repeats}" if progress.repeats > 1 else ""
    return f"{printable(progress.schedule)}{repeat}, epoch {progress.epoch}"


class Lines:
    """A line for an epoch that has ended: the very first, the last of each run, others in time.

    Several runs may go on at a time; when another starts, each says its last, unless they are many.
    """

    def __init__(self) -> None:
        self._said_s = -math.inf
        self._held: dict[_Run, Progress | None] = {}

    def show(self, progress: Progress) -> None:
        """Take the news."""
        run = progress.schedule, progress.repeat
        if run not in self._held:
            runs = progress.repeats if progress.whole is None else progress.whole.runs
            if runs > _RUNS_SAID:
                self._held.clear()
            self.close()
            self._held[run] = None
        if progress.is_epoch_end:
            self._held[run] = progress
            if time.monotonic() - self._said_s >= SECONDS_BETWEEN_LINES:
                self._say(run)

    def close(self) -> None:
        """Say what was held back."""
        for run in self._held:
            self._say(run)

    def _say(self, run: _Run) -> None:
        held = self._held[run]
        if held is None:
            return
        score = _score(held)
        complain(f"{title_of(held)} done{score and ', '}{score}")
        self._held[run], self._said_s = None, time.monotonic()


class _Bar:
    def __init__(self, task: Any) -> None:
        self.task = task
        self.epoch = 0
        self.start_s = 0.0
        self.looked_s = 0.0


class Bars:
    """A bar that counts the runs of a forecast or report, and one for each of the last.

    That of a run is for the epoch that it is in or ended with. The table that fills, if there is
    one, stands above the bars until they are closed.
    """

    def __init__(self, console: Any, filling: Filling | None = None) -> None:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._filling = filling
        bars = self

        class BarsBelowTable(RichProgress):
            """Bars below the table, if there is one."""

            def get_renderables(self) -> Iterable[RenderableType]:
                table = bars._filling and bars._filling.table(console.width)
                return [*([table] if table else []), self.make_tasks_table(self.tasks)]

        self._rich = BarsBelowTable(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[rate]:>9}", markup=False),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[score]}", markup=False),
            console=console,
            speed_estimate_period=_SECONDS_OF_PACE,
        )
        self._rich.start()
        self._bars: dict[_Run, _Bar] = {}
        self._whole: Any = None

    def show(self, progress: Progress) -> None:
        """Take the news."""
        now_s = time.monotonic()
        if progress.whole is not None:
            self._show_whole(progress.whole)
        bar = self._bar_of((progress.schedule, progress.repeat))
        if progress.epoch != bar.epoch:
            bar.epoch, bar.start_s = progress.epoch, now_s
            self._rich.reset(bar.task, total=progress.items_total)
        elif not progress.is_epoch_end and now_s - bar.looked_s < _SECONDS_BETWEEN_LOOKS:
            return
        bar.looked_s = now_s
        self._rich.update(
            bar.task,
            completed=progress.items,
            description=title_of(progress),
            rate=_rate(progress, now_s - bar.start_s),
            score=_score(progress),
        )

    def _show_whole(self, whole: Whole) -> None:
        """Draw the bar of all runs."""
        done, said = whole.finished, f"{whole.finished} of {whole.runs} runs"
        if self._whole is None:
            self._whole = self._rich.add_task("", completed=done, rate="", score="")
        self._rich.update(self._whole, total=whole.runs, completed=done, description=said)

    def _bar_of(self, run: _Run) -> _Bar:
        """The run's bar; a new one, where it has none, takes the place of the oldest."""
        if run not in self._bars:
            self._bars[run] = _Bar(self._rich.add_task("", rate="", score=""))
            if len(self._bars) > _BARS:
                oldest = list(self._bars.values())[-_BARS - 1]
                self._rich.update(oldest.task, visible=False)
        return self._bars[run]

    def close(self) -> None:
        """Leave the bar of all runs, or of the only one; the whole table follows."""
        self._filling = None
        for bar in self._bars.values() if self._whole is not None else ():
            self._rich.update(bar.task, visible=False)
        with contextlib.suppress(OSError):  # nobody looks any more
            self._rich.stop()
            sys.stderr.flush()


def _rate(progress: Progress, seconds: float) -> str:
    """Items per second of the wall clock, which is not the virtual rate of the table."""
    return format_rate(progress.items / seconds) if seconds > 0 else UNKNOWN


def _score(progress: Progress) -> str:
    if progress.score is None:
        return ""
    return f"{progress.metric.kind} {progress.metric.text(progress.score)}"
