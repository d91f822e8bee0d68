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
from typing import Annotated, Final

from annotated_types import Ge, Le

from ampsim.arguments import checked
from ampsim.errors import OptionError, SimulationError
from ampsim.exploring.axes import Axis, Point, Setup, Value, axes_over, setup_at
from ampsim.exploring.cells import Cells, Entrant
from ampsim.exploring.exploration import NOT_TUNED, Evidence, Exploration, exploration_of
from ampsim.exploring.making import Asked, FirstEpoch, PointRuns, RunLimit, point_runs
from ampsim.forecasting.forecast import MAX_EPOCHS
from ampsim.options import REPEATS_MAX, Count, Seed
from ampsim.runs.jobs import ExecutorLike
from ampsim.runs.ranking import SURE
from ampsim.runs.rows import times_of
from ampsim.runs.run import Run
from ampsim.runs.store import Keeping
from ampsim.runs.task import Row
from ampsim.study.progress import OnProgress
from ampsim.study.schedule_names import labels_of
from ampsim.study.simulation import (
    ClusterLike,
    ModelLike,
    PlacementLike,
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
    placement: PlacementLike | None = None,
    sure: Annotated[float, Ge(0.5), Le(0.999)] = SURE,
    jobs: Annotated[int, Ge(1), Le(REPEATS_MAX)] = 1,
    on_progress: OnProgress | None = None,
    keeping: Keeping | None = None,
    executor: ExecutorLike = None,
    run_limit_s: RunLimit = None,
) -> Exploration:
    """Map which schedule reaches the target first at each point of a space, and how sure that is.

    Ctrl-C and the end of the budget keep what has finished; with `keeping`, the same call goes on.

    Args:
        model: as of `forecast`.
        cluster: likewise, but for what `over` changes.
        schedules: those compared: objects or names, or names as on the command line.
        over: values of each key, such as {"latency_s": "1e-7..1e-4:log", "workers": [2, 4]}; a
            text is read as on the command line (`ampsim.exploring.axes` says which keys there are).
        points: of each range.
        budget_s: seconds after which it ends; None until it is `sure`.
        target: as of `forecast`; there must be one.
        repeats: seeds of each cell that is trained: `seed`, `seed` + 1, …
        seed: of the first repeat, and of all times.
        placement: as of `forecast`, found anew at each point.
        sure: ends where at every point the probability is this high that training what is
            predicted would name the same winner.
        keeping: where finished runs are kept and those of an earlier call are taken from.
        max_epochs: as of `forecast`.
        instances: as of `forecast`.
        jobs: as of `forecast`.
        on_progress: as of `forecast`.
        executor: as of `forecast`.
        run_limit_s: as of `forecast`.

    Raises:
        OptionError: an option has a value that it cannot have, or the model has no target.
        UnknownNameError: a value names nothing that there is.
        SimulationError: no point can be timed.
    """
    model, cluster = model_of(model), cluster_of(cluster)
    setup = Setup(model, cluster, tuple(schedules_of(schedules)))
    target = model.measure.require_target(target)
    target = model.target if target is None else target
    if target is None:
        raise OptionError(
            f"explore compares times to a target, and {model.name} has none; give target"
        )
    asked = Asked(
        target=target, max_epochs=max_epochs, repeats=repeats, instances=instances, seed=seed,
        placement=placement,
    )  # fmt: skip
    values = values_of(over, setup, points)
    places = [dict(zip(values, one, strict=True)) for one in itertools.product(*values.values())]
    rows = [_rows_at(point, setup_at(setup, point), asked) for point in places]
    with point_runs(
        asked, jobs=jobs, executor=executor, on_progress=on_progress, keeping=keeping,
        run_limit_s=run_limit_s, budget_s=budget_s,
    ) as runs:  # fmt: skip
        explorer = Explorer(rows, asked, runs)
        interrupted = explorer.run(sure)
    over_plain = {key: list(one) for key, one in values.items()}
    found = exploration_of(
        Evidence(values, tuple(labels_of(setup.schedules)), tuple(explorer.methods), repeats),
        target=target, metric=model.measure, model=model.name, cluster=cluster.name,
        manifest=asked.manifest(setup, over=over_plain, sure=sure),
        said=(NOT_TUNED, *runs.said()),
    )  # fmt: skip
    is_stopped = interrupted is not None and not runs.clock.is_over
    return replace(found, interrupted=interrupted, is_stopped=is_stopped)


def values_of(
    over: Mapping[str, str | Sequence[Value] | Axis], setup: Setup, points: int
) -> dict[str, tuple[Value, ...]]:
    """The values of each key.

    Raises:
        OptionError: there are none, or too many points, or methods are no two.
    """
    if not over or "schedule" in over:
        raise OptionError(
            f"over (--for) must name what varies, such as latency_s, and no schedule, got "
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


def label_at(label: str, point: Point) -> str:
    """The label of a row at a point, which no other point's has."""
    told = [
        f"{key} = {value:.4g}" if isinstance(value, float) else f"{key} = {value}"
        for key, value in point.items()
    ]
    return ", ".join([label, *told])


def _rows_at(point: Point, setup: Setup, asked: Asked) -> list[Row]:
    """The rows of one point, one for each schedule."""
    rows = asked.rows(setup, are_many=True)
    return [replace(one, label=label_at(one.label, point)) for one in rows]


class Explorer:
    """Times all cells, then learns one after the other.

    Args:
        rows: of each point, one for each method.
        asked: how their runs are made.
        runs: makes them.
    """

    def __init__(self, rows: Sequence[Sequence[Row]], asked: Asked, runs: PointRuns) -> None:
        """Know nothing yet."""
        self._rows, self._asked, self._runs = rows, asked, runs
        self.methods = [
            Entrant(row.schedule.admission.drains, asked.seed, asked.max_epochs) for row in rows[0]
        ]

    @property
    def learnings(self) -> int:
        """Cells that were trained."""
        return sum(len(method.learned) for method in self.methods)

    def run(self, sure: float) -> str | None:
        """Go on until all is sure; say why not, if something came first."""
        clock, places = self._runs.clock, range(len(self.methods))
        cells = [(point, place) for point in range(len(self._rows)) for place in places]
        try:
            self._time([(point, place, self._asked.seed) for point, place in cells])
            while (chosen := self._next(sure)) is not None:
                clock.require_left()
                self._learn(*chosen)
        except KeyboardInterrupt:
            timed = sum(len(method.timed) for method in self.methods)
            if not timed:
                clock.refuse()
                raise
            told = f"{self.learnings} of {len(cells)} cells are trained"
            if timed < len(cells):
                told = f"{timed} of {len(cells)} cells are timed, none is trained"
            return clock.sentence(told)
        return None

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

        self._runs.time([(self._rows[point][place], seed) for point, place, seed in left], take)
        if not any(method.points for method in self.methods):
            raise SimulationError(self.methods[0].failures[0])

    def _next(self, sure: float) -> tuple[int, int] | None:
        cells = Cells(self.methods)
        return None if cells.is_sure(sure) else cells.next()

    def _learn(self, place: int, point: int) -> None:
        """Train a cell with all seeds, and look which points learn the same with each of them."""
        row, method, seeds = self._rows[point][place], self.methods[place], self._asked.seeds
        made = self._runs.learn([(row, seed) for seed in seeds])
        runs = [one for one in made if isinstance(one, Run)]
        if not runs:
            method.lost |= {point, *method.alike(point)}
            return
        self._time([(one, place, seed) for one in method.alike(point) for seed in seeds])
        method.learned[point] = dict(times_of(row.plan.goal, runs))
