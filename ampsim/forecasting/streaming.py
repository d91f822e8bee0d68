"""Runs of a forecast as they end, and the table of those that have ended."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pandas as pd

from ampsim.errors import OptionError
from ampsim.forecasting.forecast import Forecast, forecast
from ampsim.metric import Goal
from ampsim.runs.rows import row_of, table_of
from ampsim.runs.run import Run
from ampsim.study.progress import OnProgress, Progress
from ampsim.study.simulation import ClusterLike, ModelLike, SchedulesLike


def stream(
    model: ModelLike, cluster: ClusterLike, schedules: SchedulesLike, **options: Any
) -> Generator[Run, None, Forecast]:
    """Yield the runs of a forecast one by one, each as soon as it has ended.

    Who leaves the loop gives up the runs that are under way, when the next of them tells of its
    progress; those that ended before are kept if they were to be. A run at a learning rate that
    the scaling rule raised, which diverged, is followed by one of the same row and seed at the rate
    as given, which counts.

    Args:
        model: as of `forecast`, as are the others.
        cluster: on what.
        schedules: one row each.
        options: those of `forecast`, but for `on_run`.

    Returns:
        The forecast, as the value of the generator's StopIteration.

    Raises:
        OptionError: `on_run` is given.
        AmpsimError: as of `forecast`.

    Example:
        >>> import ampsim
        >>> arguments = ("rnn", "tflops-1", ["sequential", "amp"])
        >>> few = {"instances": 20, "max_epochs": 1, "executor": 2}
        >>> sorted(run.label for run in ampsim.stream(*arguments, **few))
        ['amp', 'sequential']
    """
    if "on_run" in options:
        raise OptionError("stream yields the runs that on_run would be told of; leave on_run out")
    ended: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
    is_left = threading.Event()
    on_progress: OnProgress | None = options.pop("on_progress", None)

    def tell(progress: Progress) -> None:
        if is_left.is_set():
            raise KeyboardInterrupt  # what ends a forecast early, and keeps what it has
        if on_progress is not None:
            on_progress(progress)

    def make() -> Forecast:
        try:
            told: dict[str, Any] = {**options, "on_progress": tell, "on_run": ended.put}
            return forecast(model, cluster, schedules, **told)
        finally:
            ended.put(None)

    with ThreadPoolExecutor(1, "ampsim-stream") as thread:
        made = thread.submit(make)
        try:
            while (run := ended.get()) is not None:
                yield run
            return made.result()
        finally:
            is_left.set()


def table_so_far(runs: Iterable[Run], goal: Goal) -> pd.DataFrame:
    """The rows of a forecast of which runs have ended, without what comparing them says.

    Of runs of one row and seed the last counts.
    """
    rows: dict[str, dict[int, Run]] = {}
    for run in runs:
        rows.setdefault(run.label, {})[run.seed] = run
    return table_of([row_of(label, goal, [*of.values()]) for label, of in rows.items()])
