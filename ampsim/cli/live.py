"""The live view of a run on the wall clock: what each worker has just done, on a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ampsim.cli.progress import Show, is_drawn_on, shown, title_of
from ampsim.units import format_percent, format_seconds

if TYPE_CHECKING:
    from ampsim.clock import WallClock
    from ampsim.study import Progress
    from ampsim.study.simulation import Simulation
    from ampsim.trace import Step

Watch: TypeAlias = "Callable[[Simulation], None] | None"

CELLS: Final = 60
"""Characters of a worker's row."""

WINDOW_S: Final = 3.0
"""Wall seconds that a row shows (chosen: as long as an eye follows)."""

_PER_SECOND: Final = 10
_STEPS_MAX: Final = 5_000
_IDLE: Final = "·"
_STYLES: Final = {"F": "yellow", "B": "blue", "U": "bold green"}


@contextlib.contextmanager
def watching(clock: WallClock | None, *, is_quiet: bool) -> Generator[tuple[Show | None, Watch]]:
    """Whom to tell of progress, and whom of the run, while the block runs.

    A run on the wall clock is drawn on a terminal; all others have bars or lines.
    """
    from rich.console import Console

    console = Console(stderr=True)
    if clock is None or is_quiet or not is_drawn_on(console):
        with shown(is_quiet=is_quiet) as show:
            yield show, None
        return
    view = LiveView(console, clock)
    try:
        yield view.show, view.watch
    finally:
        view.close()


class LiveView:
    """A row for each worker, which moves on as the wall clock does; in place of a bar.

    Args:
        console: a terminal.
        clock: whose time passes.
    """

    def __init__(self, console: Any, clock: WallClock) -> None:
        from rich.live import Live

        self._clock = clock
        self._simulation: Simulation | None = None
        self._title = ""
        self._live = Live(
            console=console, get_renderable=self._drawn, refresh_per_second=_PER_SECOND
        )
        self._live.start()

    def watch(self, simulation: Simulation) -> None:
        """Show this run from now on."""
        self._simulation = simulation

    def show(self, progress: Progress) -> None:
        """Take the news."""
        share = progress.items / progress.items_total if progress.items_total else 0.0
        self._title = f"{title_of(progress)}, {format_percent(share)}"

    def close(self) -> None:
        """Leave the last picture as it is."""
        with contextlib.suppress(OSError):  # nobody looks any more
            self._live.stop()
            sys.stderr.flush()

    def _drawn(self) -> Any:
        """The picture of this moment."""
        from rich.text import Text

        clock = self._clock
        text = Text(f"{self._title}  at {format_seconds(clock.now)}\n", no_wrap=True)
        if self._simulation is None:
            return text
        window_s = WINDOW_S / clock.stretch
        end_s = clock.passed_s
        steps = self._simulation.latest_steps(_STEPS_MAX)
        for worker, row in enumerate(
            rows(steps, self._simulation.workers, (end_s - window_s, end_s), CELLS)
        ):
            text.append(f"{worker:5} ")
            for letter in row:
                text.append(letter, _STYLES.get(letter, "dim"))
            text.append("\n")
        text.append(f"F forward, B backward, U update; {format_seconds(window_s)} a row", "dim")
        return text


def rows(steps: Sequence[Step], workers: int, window: tuple[float, float], cells: int) -> list[str]:
    """A row of letters for each worker: what it did last in each part of a window of time.

    Args:
        steps: that have ended, in the order of their ends.
        workers: how many there are.
        window: from and to when, in seconds.
        cells: letters of a row.
    """
    start_s, end_s = window
    width_s = (end_s - start_s) / cells
    letters = [[_IDLE] * cells for _ in range(workers)]
    for step in steps:
        if step.end_s <= start_s or step.start_s >= end_s or step.end_s == step.start_s:
            continue
        first = max(0, int((step.start_s - start_s) / width_s))
        last = min(cells - 1, int((step.end_s - start_s) / width_s))
        letter = step.direction[0].upper()
        letters[step.worker][first : last + 1] = [letter] * (last + 1 - first)
    return ["".join(row) for row in letters]
