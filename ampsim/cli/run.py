"""`ampsim run`: run one schedule, watch it, and keep its trace; `ampsim compare`: of two such."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import ampsim
from ampsim.cli import options
from ampsim.cli.console import (
    Code,
    answer,
    complain,
    note_no_effect,
    object_of,
    show_traceback,
    write,
    write_json,
)
from ampsim.cli.options import Tuning
from ampsim.cli.progress import shown, title_of
from ampsim.errors import OptionError
from ampsim.units import format_percent, format_rate, format_seconds

if TYPE_CHECKING:
    from rich.console import Console

    from ampsim.clock import WallClock
    from ampsim.model_parallel import Schedule
    from ampsim.runs.folder import Outcome
    from ampsim.study import Model, Progress, Result
    from ampsim.study.simulation import Simulation
    from ampsim.trace import LatestStep, OnRows


CELLS: Final = 60
"""Characters of a worker's row."""

WINDOW_S: Final = 3.0
"""Wall seconds that a row shows (chosen: as long as an eye follows)."""

_PER_SECOND: Final = 10
_STEPS_MAX: Final = 5_000
_IDLE: Final = "·"
_STYLES: Final = {"F": "yellow", "B": "blue", "U": "bold green"}


class LiveView:
    """A row for each worker, which moves on as the wall clock does; in place of a bar.

    Args:
        clock: whose time passes.
    """

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock
        self._simulation: Simulation | None = None
        self._title = ""
        self._live: Any = None

    def start(self, console: Console) -> LiveView:
        """Draw it on this terminal from now on."""
        from rich.live import Live

        self._live = Live(
            console=console, get_renderable=self._drawn, refresh_per_second=_PER_SECOND
        )
        self._live.start()
        return self

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


def rows(
    steps: Sequence[LatestStep], workers: int, window: tuple[float, float], cells: int
) -> list[str]:
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


KEPT: Final = 0.02
"""Share by which a run on the wall may take longer for its times to be kept (chosen)."""

LONG: Final = 2.0
"""Times as long, from which on a percentage says little (chosen)."""


ClockName: TypeAlias = Literal["virtual", "wall"]
"""Whose time passes."""


def run(
    model: str,
    *,
    settings: list[str] | None = None,
    hardware: options.Hardware,
    schedule: str | None = None,
    tuning: Tuning,
    placement: str | None = None,
    epochs: int = 1,
    target: float | None = None,
    validate_every: int | None = None,
    data: str | None = None,
    instances: int | None = None,
    seed: int = 0,
    mode: options.ModeName = "numeric",
    clock: ClockName = "virtual",
    stretch: float | None = None,
    out: Path | None = None,
    json: str | None = None,
    quiet: bool = False,
) -> Code:
    """Run MODEL under one schedule and keep its trace as manifest.toml and *.parquet.

    The folder is --out (run-MODEL unless told). Beside the trace lie index.html and report.md:
    verdict, tables and figures. `ampsim gantt` draws the folder.

    The object of --json: ampsim, model, cluster, seed, rows (one, as of forecast), folder, ended,
    epochs and, with --validate-every, validations (lists, as in epochs.csv and validations.csv).
    """
    from ampsim.output_folder import taken
    from ampsim.report.page.folders import FILES, write_run_folder
    from ampsim.report.words import slug
    from ampsim.runs.folder import run_to_keep, tables_of
    from ampsim.study.simulation import RunOptions

    if mode == "sleep":
        note_no_effect(["target"], "in mode sleep, which measures nothing")
    loaded = options.make_model(model, settings, data)
    cluster = hardware.cluster()
    method = _single(tuning, schedule, loaded)
    with (
        _clock_of(clock, stretch) as time,
        taken(out or Path(f"run-{slug(loaded.name)}"), "run", FILES) as place,
    ):

        def make(on_rows: OnRows) -> Outcome:
            live = None if time is None else LiveView(time)
            with shown(is_quiet=quiet, drawn=live and live.start) as on_progress:
                settled = RunOptions(
                    epochs=epochs, seed=seed, mode=mode, instances=instances, target=target,
                    clock=time, placement=placement, on_start=live and live.watch, on_rows=on_rows,
                    validate_every=validate_every,
                )  # fmt: skip
                return run_to_keep(loaded, cluster, method, settled, on_progress)

        outcome = write_run_folder(make, place, target)
    folder = place.path
    if json is not None:
        write_json(_as_json(outcome, folder, target, seed), json)
    write(_summary(outcome.result))
    if outcome.result.never_met:
        complain(f"note: {outcome.result.never_met}")
    options.note_free_products(loaded, cluster)
    if on_links := options.free_links_line(cluster):
        write(on_links)
    if time is not None:
        write(_kept_time(time))
    *tables, last = tables_of(outcome.result)
    write(f"wrote {folder}: manifest.toml, {', '.join(tables)} and {last} (.parquet), epochs.csv")
    write(f"open {folder / 'index.html'} for table and figures, or report.md beside it")
    return _ended(outcome, folder)


def _single(tuning: Tuning, named: str | None, model: Model) -> Schedule:
    """The one schedule that is named, or the usual one of a model."""
    from ampsim.study.schedule_names import labels_of

    usual = "amp" if model.make_graph else "dataflow"
    schedules = tuning.schedules(usual if named is None else named)
    if len(schedules) > 1:
        several = "; ".join(labels_of(schedules))
        raise OptionError(f"run takes one schedule, got {several}; forecast compares several")
    return schedules[0]


def _clock_of(
    name: ClockName, stretch: float | None
) -> contextlib.AbstractContextManager[WallClock | None]:
    """The clock that the command line names, until it is left; None for a new virtual one."""
    from ampsim.clock import WallClock

    if name == "wall":
        return contextlib.closing(WallClock(1.0 if stretch is None else stretch))
    if stretch is not None:
        raise OptionError("--stretch stretches the wall clock only; add --clock wall")
    return contextlib.nullcontext()


def _as_json(outcome: Outcome, folder: Path, target: float | None, seed: int) -> str:
    """The run as a forecast of one row, with its epochs."""
    from ampsim.forecasting.forecast import row_values
    from ampsim.report.page.folders import view_of

    view = view_of(outcome, target)
    within = looks.to_dict("records") if len(looks := view.runs[0].validations) else None
    return object_of(
        model=view.model,
        cluster=view.cluster,
        seed=seed,
        rows=[row_values(record) for record in view.table.to_dict("records")],
        folder=str(folder),
        ended=outcome.ended,
        epochs=outcome.result.epochs.to_dict("records"),
        **({} if within is None else {"validations": within}),
    )


def _summary(result: Result) -> str:
    epochs, metric = result.epochs, result.model.measure
    score = float(epochs[metric.kind].iloc[-1]) if len(epochs) else None
    count = f"{len(epochs)} epoch{'' if len(epochs) == 1 else 's'}"
    workers = f"{result.workers} worker{'s' * (result.workers != 1)}"
    return (
        f"{result.model.name}, {result.schedule.name}, {workers}: {count} in "
        f"{format_seconds(result.makespan_s)}, training {format_rate(result.train_per_s)}, "
        f"{metric.kind} {metric.text(score)}, busy {format_percent(result.utilisation)}"
        f"{_between_workers(result.sent)}"
    )


def _between_workers(sent: Mapping[str, int]) -> str:
    """Count in a line the messages between a program's workers, by kind, if there are any."""
    if not any(sent.values()):
        return ""
    tensors, predicates, signals, dead = (f"{count:,}" for count in sent.values())
    return (
        f"\nBetween workers went {tensors} tensors, {predicates} predicates, {signals} signals of "
        f"control edges and {dead} dead signals."
    )


def _kept_time(clock: WallClock) -> str:
    """Tell how well the wall kept the times of the trace, and what to do where it did not."""
    passes_s = clock.now
    ratio = clock.elapsed_s / passes_s if passes_s else 1.0
    longer = f"{ratio:.3g} times as long" if ratio >= LONG else f"{100 * (ratio - 1):.2g} % longer"
    said = (
        f"on the wall: {format_seconds(clock.elapsed_s * clock.stretch)} for "
        f"{format_seconds(passes_s)} x {clock.stretch:g}, {longer}; events came "
        f"at most {format_seconds(clock.late_max_s)} late"
    )
    if ratio < 1 + KEPT:
        return said
    return (
        f"{said}. This machine computes and wakes up more slowly than the devices would; --stretch "
        f"{float(f'{clock.stretch * (ratio - 1) / KEPT:.1e}'):g} leaves it the time"
    )


def _ended(outcome: Outcome, folder: Path) -> Code:
    if outcome.is_interrupted:
        complain(f"{outcome.ended}; the trace until then is in {folder}")
        return Code.INTERRUPTED
    if outcome.failure:
        show_traceback(outcome.failure)
        complain(f"{outcome.failure}; the trace until then is in {folder}")
        return Code.FAILED
    return Code.FINE


def compare(run_a: Path, run_b: Path, *, json: str | None = None) -> Code:
    """Compare two runs: where they come from, their numbers, and where their traces first part.

    Traces are compared to the bit, row by row in the order in which things ended. It ends with 0
    whether they differ or not. The object of --json: ampsim, a, b, is_identical, origin, numbers,
    tables.
    """
    from ampsim.report.compare_text import to_text
    from ampsim.runs.compare import compare_runs

    a, b = ampsim.load_run(run_a), ampsim.load_run(run_b)
    compared = compare_runs(a, b)
    answer(json, lambda: object_of(**compared), lambda: to_text(compared))
    return Code.FINE
