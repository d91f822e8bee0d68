"""A recipe made ready: its rows as model, cluster and schedule, and what decides each run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

import pandas as pd

from ampsim.assets import locate
from ampsim.errors import FileFormatError, OptionError
from ampsim.exploring.axes import Point, Setup, Value, axes_over
from ampsim.exploring.explore import label_at, points_of, values_of
from ampsim.exploring.making import rows_at
from ampsim.exploring.search import aims_of
from ampsim.forecasting.making import require_fit, times_validation
from ampsim.forecasting.tuning import no_trials
from ampsim.hardware import Cluster, load_cluster
from ampsim.metric import Goal
from ampsim.model_parallel import Schedule, placement_of
from ampsim.recipes.recipe import HARDWARE, Exploring, Recipe
from ampsim.runs.task import Row, RunPlan
from ampsim.study.learning_rates import methods_of, rate_of
from ampsim.study.loading import load_model, located
from ampsim.study.model import Model
from ampsim.study.placement_trials import DEFAULT, Trials
from ampsim.study.provenance import cluster_origin, data_files, file_digest, model_origin
from ampsim.study.schedule_names import schedule_of_row
from ampsim.study.simulation import RunOptions
from ampsim.study.training import resolved

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a report, and what they share."""

    rows: tuple[Row, ...]  # in the recipe's order
    goal: Goal  # what is measured, and the value aimed at
    model: Model  # of the first row
    cluster: Cluster  # of all rows that name none of their own
    trials: pd.DataFrame = field(default_factory=no_trials)  # of learning rates; see `Forecast`
    unreached: tuple[str, ...] = ()  # labels of rows of which no trial reached the target

    def with_optimizers(self, names: Sequence[Any]) -> Rows:
        """The rows with the optimizers that tuning chose; a row's own where no name is known."""
        rows: list[Row] = []
        for row, name in zip(self.rows, [*names, *[None] * len(self.rows)], strict=False):
            model = methods_of(row.plan.model).get(str(name), row.plan.model)
            rows.append(replace(row, plan=replace(row.plan, model=model)))
        return replace(self, rows=tuple(rows))

    @property
    def setup(self) -> Setup:
        """The setup around which keys vary."""
        return Setup(self.model, self.cluster, tuple(row.schedule for row in self.rows))

    @property
    def optimizers(self) -> list[str]:
        """The optimizer of each row, by its name."""
        return [row.plan.model.optimizer.name for row in self.rows]

    @property
    def origin(self) -> dict[str, Any]:
        """Model, cluster, rows and data files, as nested plain values."""
        data = {one["file"]: one for row in self.rows for one in row.data}
        return {
            "model": model_origin(self.model),
            "cluster": cluster_origin(self.cluster),
            "schedules": [row.origin for row in self.rows],
            "data": list(data.values()) or None,
        }


def make_rows(recipe: Recipe) -> Rows:
    """Load what a recipe names; of one that explores, its rows at the ends of what varies.

    Raises:
        FileFormatError: a name, option or value of it does not fit; one line says which.
        MissingDataError: a data file that a model needs is not there.
    """
    return _rows(recipe) if recipe.file.explore is None else space_of(recipe).at_ends


@dataclass(frozen=True, slots=True)
class ExploredSpace:
    """The space that a recipe explores."""

    recipe: Recipe
    asked: Exploring  # its keys about the map
    base: Rows  # its rows where nothing varies
    values: dict[str, tuple[Value, ...]]  # of each key, as the recipe names them
    known: dict[str, str] = field(default_factory=dict[str, str])  # files' digests, as of `rows_at`

    @property
    def points(self) -> list[Point]:
        """The points, the last key's values side by side."""
        return points_of(self.values)

    @property
    def at_ends(self) -> Rows:
        """The rows at the first or last value of each key, or any one of a key whose are names.

        Of a row that fits at none of these it is that of the first point at which it does.

        Raises:
            FileFormatError: none fits anywhere.
        """
        kept = {
            key: values if isinstance(values[0], str) else values[:: max(len(values) - 1, 1)]
            for key, values in self.values.items()
        }
        at_ends = [self.rows_at(one) for one in points_of(kept)]
        rows = [row for of in at_ends for row in of if isinstance(row, Row)]
        for place in range(len(self.base.rows)):
            if all(isinstance(of[place], str) for of in at_ends):
                every = (self.rows_at(one)[place] for one in self.points)
                rows += [row for row in every if isinstance(row, Row)][:1]
        if not rows:
            where = f"{self.recipe.label}: explore.over"
            raise FileFormatError(f"{where}: no row fits at any point; the first: {at_ends[0][0]}")
        return replace(self.base, rows=tuple(rows))

    def rows_at(self, point: Point) -> list[Row | str]:
        """The rows of a point; of one that does not fit there, why."""
        there = {key: _beside(self.recipe, key, one) for key, one in point.items()}
        seed = self.recipe.file.seeds[0]
        return rows_at(self.base.rows, there, partial(label_at, point), seed, self.known)


def space_of(recipe: Recipe) -> ExploredSpace:
    """Build the space that a recipe explores, with rows that are ready to run.

    Raises:
        FileFormatError, MissingDataError: as of `make_rows`.
    """
    asked, base = recipe.file.explore, _rows(recipe)
    assert asked is not None, "the recipe explores"
    there = {key: _beside_each(recipe, key, given) for key, given in asked.over.items()}
    values = _told(recipe, "explore.over", lambda: values_of(there, base.setup, asked.points))
    named = {key: _names(given) for key, given in asked.over.items() if key in _FILES}
    return ExploredSpace(recipe, asked, base, values | named)


def search_of(recipe: Recipe) -> tuple[Setup, dict[str, Any]]:
    """Around what a recipe searches, and all else as `ampsim.search` takes it.

    Raises:
        FileFormatError: it does not say what is searched; else as of `make_rows`.
        MissingDataError: as of `make_rows`.
    """
    file, asked = recipe.file, recipe.file.search
    if asked is None:
        raise FileFormatError(
            f"{recipe.label}: missing key 'search', a table with over and what else "
            "`ampsim search` takes; add it, or make its report by `ampsim report`"
        )
    setup = _rows(recipe).setup
    over = {key: _beside_each(recipe, key, given) for key, given in asked.over.items()}
    _told(recipe, "search.over", lambda: axes_over(over, setup))
    _told(recipe, "search", lambda: aims_of(asked.minimise, asked.subject_to))
    how = {name: getattr(asked, name) for name in type(asked).model_fields} | {"over": over}
    how |= {"target": file.target, "max_epochs": file.max_epochs, "instances": file.instances}
    return setup, how | {"seed": file.seeds[0], "repeats": len(file.seeds)}


_FILES: Final = ("cluster", "device")
"""Keys whose values may be paths from the recipe's folder."""


def _names(given: str | Sequence[Any]) -> tuple[str, ...]:
    return tuple(map(str, given.split(",") if isinstance(given, str) else given))


def _beside_each(recipe: Recipe, key: str, given: str | list[Any]) -> str | list[Any]:
    return [_beside(recipe, key, one) for one in _names(given)] if key in _FILES else given


def _beside(recipe: Recipe, key: str, value: Value) -> Value:
    return recipe.beside(str(value), ".toml") if key in _FILES else value


def _rows(recipe: Recipe) -> Rows:
    file = recipe.file
    cluster = cluster_of(recipe)
    made = (partial(schedule_of_row, entry.name, entry) for entry in file.schedules)
    schedules = [_told(recipe, at.where, one) for at, one in zip(recipe.cells, made, strict=True)]
    known: dict[str, Any] = {}
    rows = tuple(_row(recipe, index, cluster, schedules, known) for index in range(len(schedules)))
    goal = Goal(rows[0].plan.model.measure, file.target)
    return Rows(rows, goal, rows[0].plan.model, cluster)


def cluster_of(recipe: Recipe, index: int | None = None) -> Cluster:
    """Load the cluster that a recipe names, or one of its rows.

    Raises:
        FileFormatError: the name or an option of it does not fit.
    """
    own: dict[str, Any] = {} if index is None else recipe.file.schedules[index].hardware
    where = f"{recipe.cells[index].where}: cluster" if index is not None and own else "cluster"
    asked = {key: own.get(key, getattr(recipe.file, key)) for key in HARDWARE}
    path = recipe.beside(asked.pop("cluster"), ".toml")
    return _told(recipe, where, lambda: load_cluster(path, **asked))


def _row(
    recipe: Recipe, index: int, cluster: Cluster, schedules: list[Schedule], known: dict[str, Any]
) -> Row:
    """One row; `known` has, by options, models of earlier rows, what they read, and trials."""
    file, entry, where = recipe.file, recipe.file.schedules[index], recipe.cells[index].where
    own = cluster_of(recipe, index) if entry.hardware else cluster
    schedule = schedules[index]
    settings = {**file.set, **entry.set}
    path = recipe.beside(file.model, ".py")
    if (asked := repr(settings)) not in known:
        model = _told(recipe, f"{where}: model", lambda: load_model(path, **settings))
        known[asked] = model, data_files(model), file_digest(locate("models", path))
    model, data, code = known[asked]
    located(recipe.label, lambda: model.measure.require_target(file.target))
    if file.tune_optimizer:
        _told(recipe, f"{where}: tune_optimizer", lambda: _require_choice(model, file.tune))
    placement = recipe.beside(entry.placement or DEFAULT, ".toml")
    options = RunOptions(
        epochs=file.epochs or file.max_epochs or 1,
        mode=entry.mode or file.mode,
        instances=file.instances,
        target=file.target if file.max_epochs is not None else None,
        placement=_told(recipe, f"{where}: placement", lambda: placement_of(placement)),
        validate_every=file.validate_every,
    )
    scaling = "none" if "learning_rate" in entry.set else file.scale_rate
    plan = RunPlan(model, own, options, rate_of(model, schedule, own, options, scaling))
    if not (file.explore or file.search):  # else it need not fit where nothing varies
        _told(recipe, where, lambda: resolved(schedule, own))
        trials = Trials(model, own, options.instances, options.epochs)
        shared = known.setdefault(f"{asked} {entry.hardware}", trials)
        fit = partial(require_fit, plan, [schedule], file.seeds[0], trials=shared)
        (placed,) = _told(recipe, where, fit)
        plan = plan.having(placement=placed)
    plan = times_validation(plan, schedule, schedules)
    return Row(entry.title, schedule, plan, entry.set, data, code, bool(entry.hardware))


def _require_choice(model: Model, tune: int | None) -> None:
    names = list(methods_of(model))
    if len(names) == 1:
        raise OptionError(f"{model.name} knows the optimizer {names[0]} alone; leave it out")
    if tune is not None and tune < len(names):
        raise OptionError(
            f"tune must be >= {len(names)}, for a rate of each of {', '.join(names)}, got {tune}; "
            f"try {4 * len(names)}"
        )


def _told(recipe: Recipe, where: str, make: Callable[[], T]) -> T:
    return located(f"{recipe.label}: {where}", make)
