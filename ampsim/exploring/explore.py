"""Explore: who is first at each point of a space of hardware, by how much, and how sure that is.

Every cell, a method at a point, is timed exactly. What is learned there is made where it decides:
the next learning is the one that takes most doubt from the winners (`ampsim.exploring.cells`). As
this depends on what was found and not on the clock, a map that goes on is one that never stopped.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

from annotated_types import Ge, Le

from ampsim.arguments import checked
from ampsim.errors import OptionError
from ampsim.exploring.axes import Axis, Point, Setup, Value, axes_over, setup_at
from ampsim.exploring.cells import Cells, Entrant, stated_wrong
from ampsim.exploring.clock import TimeBudget
from ampsim.exploring.exploration import Exploration
from ampsim.exploring.timing import FirstEpoch, Timer
from ampsim.forecasting.forecast import MAX_EPOCHS
from ampsim.forecasting.making import RunMaker, entries_of
from ampsim.options import REPEATS_MAX, Count, Seed
from ampsim.runs.jobs import opened
from ampsim.runs.ranking import SURE, finite
from ampsim.runs.rows import table_of, times_of
from ampsim.runs.store import Keeping
from ampsim.runs.task import Row, RunPlan
from ampsim.study.progress import OnProgress
from ampsim.study.provenance import model_origin, schedule_origin, software
from ampsim.study.schedule_names import labels_of
from ampsim.study.simulation import (
    ClusterLike,
    ModelLike,
    RunOptions,
    SchedulesLike,
    cluster_of,
    model_of,
    schedules_of,
)

POINTS: Final = 8
"""Points of a range, unless told otherwise (chosen: eight of three decades are a factor of 2.7)."""

REPEATS: Final = 8
"""Seeds of each learning (chosen: two methods are told apart by five at least)."""

POINTS_MAX: Final = 4096
"""Most points of a map (chosen: more are not timed in a day, and fill no page)."""


@checked
def explore(
    model: ModelLike,
    cluster: ClusterLike,
    schedules: SchedulesLike,
    *,
    over: Mapping[str, str | Sequence[Value] | Axis],
    points: Annotated[int, Ge(2), Le(POINTS_MAX)] = POINTS,
    budget_s: float | None = None,
    target: float | None = None,
    max_epochs: Count = MAX_EPOCHS,
    repeats: Annotated[int, Ge(1), Le(REPEATS_MAX)] = REPEATS,
    instances: Count | None = None,
    seed: Seed = 0,
    sure: Annotated[float, Ge(0.5), Le(0.999)] = SURE,
    jobs: Annotated[int, Ge(1), Le(REPEATS_MAX)] = 1,
    on_progress: OnProgress | None = None,
    keeping: Keeping | None = None,
) -> Exploration:
    """Map which schedule reaches the target first at each point of a space, and how sure that is.

    Ctrl-C and the end of the budget keep what has finished; with `keeping`, the same call goes on.

    Args:
        model: what to train: from `load_model`, or its name or path.
        cluster: on what, but for what `over` changes: from `load_cluster`, or its name or path.
        schedules: those compared: objects or names, or names as on the command line.
        over: values of each key, such as {"latency_s": "1e-7..1e-4:log", "workers": [2, 4]}; a
            text is read as on the command line (`ampsim.exploring.axes` says which keys there are).
        points: of each range.
        budget_s: seconds after which it ends; None until it is `sure`.
        target: as in `forecast`; the model must have one.
        max_epochs: end a run that has not reached the target by then.
        repeats: seeds of each cell that is trained: `seed`, `seed` + 1, …
        instances: training items to use; None for all.
        seed: of the first repeat, and of all times.
        sure: ends where at every point the probability is this high that training what is
            predicted would name the same winner.
        jobs: runs to make at a time, each on a core of its own.
        on_progress: told as by `forecast`.
        keeping: where finished runs are kept and those of an earlier call are taken from.

    Raises:
        OptionError: an option has a value that it cannot have, or the model has no target.
        UnknownNameError: a value names nothing that there is.
        SimulationError: a point cannot be timed.
    """
    model, cluster, schedules = model_of(model), cluster_of(cluster), schedules_of(schedules)
    target = model.measure.require_target(target)
    target = model.target if target is None else target
    if target is None:
        raise OptionError(
            f"explore compares times to a target, and {model.name} has none; give target"
        )
    setup = Setup(model, cluster, tuple(schedules))
    values = _values_of(over, setup, points)
    places = [dict(zip(values, one, strict=True)) for one in itertools.product(*values.values())]
    options = RunOptions(epochs=max_epochs, instances=instances, target=target)
    rows = [_rows_at(point, setup_at(setup, point), options) for point in places]
    clock = TimeBudget(budget_s, on_progress)
    with opened(jobs, jobs) as executor:
        maker = RunMaker(executor, clock.tell, keeping)
        timer = Timer(maker, None if keeping is None else keeping.store.folder)
        explorer = _Explorer(rows, range(seed, seed + repeats), max_epochs, maker, timer)
        interrupted = explorer.run(clock, sure)
    asked = {"seeds": [seed, seed + repeats - 1], "target": target, "max_epochs": max_epochs}
    manifest = {
        **software(), **asked, "instances": instances, "sure": sure,
        "model": model_origin(model), "cluster": cluster.name,
        "schedules": [schedule_origin(one) for one in schedules],
        "over": {key: list(one) for key, one in values.items()},
    }  # fmt: skip
    return Exploration(
        **explorer.found(places, labels_of(schedules)),
        over=values,
        target=target, metric=model.measure, model=model.name, cluster=cluster.name,
        interrupted=interrupted, manifest=manifest,
        is_stopped=interrupted is not None and not clock.is_over,
    )  # fmt: skip


def _values_of(
    over: Mapping[str, str | Sequence[Value] | Axis], setup: Setup, points: int
) -> dict[str, tuple[Value, ...]]:
    """The values of each key.

    Raises:
        OptionError: there are none, or too many points, or methods are no two.
    """
    if not over or "schedule" in over:
        raise OptionError(
            f"over must name what varies, such as latency_s, and no schedule, got "
            f"{', '.join(over) or 'nothing'}; schedules are compared at each point"
        )
    if len(setup.schedules) < 2:
        raise OptionError("explore compares schedules, got one; name several")
    values = {axis.key: axis.points(points) for axis in axes_over(over, setup)}
    count = math.prod(map(len, values.values()))
    if count > POINTS_MAX:
        raise OptionError(
            f"over must give at most {POINTS_MAX} points, got {count}; leave some out"
        )
    return values


def _rows_at(point: Point, setup: Setup, options: RunOptions) -> list[Row]:
    """The rows of one point, one for each schedule, with labels that no other point's have."""
    entries = entries_of(RunPlan(setup.model, setup.cluster, options), setup.schedules, None)
    words = ", ".join(f"{key} = {_value_text(value)}" for key, value in point.items())
    return [replace(one, label=f"{one.label}, {words}") for one in entries]


def _value_text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class _Explorer:
    """Times all cells, then learns one after the other."""

    def __init__(
        self,
        rows: Sequence[Sequence[Row]],
        seeds: range,
        epochs: int,
        maker: RunMaker,
        timer: Timer,
    ) -> None:
        self._rows, self._seeds, self._maker, self._timer = rows, seeds, maker, timer
        self.methods = [
            Entrant(row.schedule.admission.drains, seeds.start, epochs) for row in rows[0]
        ]

    def run(self, clock: TimeBudget, sure: float) -> str | None:
        """Go on until all is sure; say why not, if something came first."""
        try:
            self._time_all()
            while (chosen := self._next(sure)) is not None:
                clock.require_left()
                self._learn(*chosen)
        except KeyboardInterrupt:
            if not any(method.timed for method in self.methods):
                clock.refuse()
                raise
            trained = sum(len(method.learned) for method in self.methods)
            cells = len(self._rows) * len(self.methods)
            timed = sum(len(method.timed) for method in self.methods)
            told = f"{trained} of {cells} cells are trained"
            if timed < cells:
                told = f"{timed} of {cells} cells are timed, none is trained"
            return clock.sentence(told)
        return None

    def _time_all(self) -> None:
        cells = [
            (point, place) for point in range(len(self._rows)) for place in range(len(self.methods))
        ]
        self._time([(point, place, self._seeds.start) for point, place in cells])

    def _time(self, cells: Sequence[tuple[int, int, int]]) -> None:
        """Time cells, each a point, a method and a seed."""
        left = [
            (point, place, seed)
            for point, place, seed in cells
            if seed not in self.methods[place].timed.get(point, {})
        ]

        def take(index: int, found: FirstEpoch) -> None:
            point, place, seed = left[index]
            self.methods[place].timed.setdefault(point, {})[seed] = found

        tasks = [
            self._rows[point][place].task(seed, number, len(left))
            for number, (point, place, seed) in enumerate(left, 1)
        ]
        self._timer.time(tasks, take)

    def _next(self, sure: float) -> tuple[int, int] | None:
        cells = Cells(self.methods)
        is_known = all(method.learned for method in self.methods)
        return None if is_known and cells.doubt <= 1 - sure else cells.next()

    def _learn(self, place: int, point: int) -> None:
        """Train a cell with all seeds, and look which points learn the same with each of them."""
        row, method = self._rows[point][place], self.methods[place]
        count = len(self._seeds)
        made = self._maker.make(
            [row.task(seed, number, count) for number, seed in enumerate(self._seeds, 1)]
        )
        runs = [run for of in made.rows for run in of]
        if made.interrupted is not None:
            raise KeyboardInterrupt
        alike = [] if method.drains else [point, *method.alike(point)]
        self._time([(one, place, seed) for one in dict.fromkeys(alike) for seed in self._seeds])
        method.learned[point] = dict(times_of(row.plan.goal, runs))

    def found(self, points: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> dict[str, Any]:
        """What is known of all cells, as an exploration has it."""
        cells = Cells(self.methods)
        numbers: dict[str, int] = {}
        lines: list[dict[str, Any]] = []
        for point, values in enumerate(points):
            for place, label in enumerate(labels):
                timed = self.methods[place].timed.get(point, {}).get(self._seeds.start)
                line = {**values, "schedule": label}
                lines.append({**line, **_line(cells, point, place, timed, numbers)})
        left_out = cells.left_out()
        return {
            "table": table_of(lines),
            "learnings": sum(len(one.learned) for one in self.methods),
            "wrong": stated_wrong(cells, left_out),
            "left_out": left_out,
        }


def _line(
    cells: Cells, point: int, place: int, timed: FirstEpoch | None, numbers: dict[str, int]
) -> dict[str, Any]:
    """What the table says of a cell beside its keys; unknown is None."""
    of = cells.estimates.get(point)
    found = of[place] if of and cells.methods[place].learned else None
    called = cells.calls.get(point)
    time_s = None if found is None else found.time_s
    low, high = (None, None) if found is None else found.interval_s
    is_called = called is not None and called.best is not None
    return {
        "time_to_target_s": time_s,
        "low": low,
        "high": high,
        "basis": None if found is None else found.basis,
        "is_first": called.best == place if called and is_called else None,
        "doubt": called.doubt if called and is_called else None,
        **_of_epoch(timed, time_s, numbers),
    }


def _of_epoch(
    timed: FirstEpoch | None, time_s: float | None, numbers: dict[str, int]
) -> dict[str, Any]:
    """What the table says of a cell's first epoch."""
    if timed is None:
        timed = FirstEpoch(math.nan, math.nan, "", {})
    ages = timed.staleness.values()
    digest = timed.digest
    return {
        "epoch_s": finite(timed.epoch_s),
        "train_per_s": finite(timed.train_per_s),
        "staleness_mean": sum(ages) / len(ages) if ages else None,
        "peak_bytes": timed.peak_bytes,
        "cost_to_target_usd": _times(timed.usd_per_s, time_s),
        "energy_to_target_j": _times(timed.power_w, time_s),
        "learning": numbers.setdefault(digest, len(numbers) + 1) if digest else None,
    }


def _times(rate: float | None, time_s: float | None) -> float | None:
    return None if rate is None or time_s is None else rate * time_s
