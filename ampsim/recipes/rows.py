"""A recipe made ready: its rows as model, cluster and schedule, and what decides each run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ampsim.assets import locate
from ampsim.data import MissingDataError
from ampsim.errors import AmpsimError, FileFormatError
from ampsim.hardware import Cluster, load_cluster
from ampsim.metric import Goal
from ampsim.model_parallel import Placement, Schedule, placement_of
from ampsim.recipes.recipe import Recipe, ScheduleEntry
from ampsim.study.fit import require_fit
from ampsim.study.loading import load_model
from ampsim.study.model import Model
from ampsim.study.provenance import cluster_origin, data_files, model_origin
from ampsim.study.row_plan import PAPER, Row
from ampsim.study.schedule_names import option_names, schedules_of, without_effect
from ampsim.study.source_digest import file_digest
from ampsim.study.task import Plan

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rows:
    """All rows of a report, and what they share.

    Args:
        rows: in the recipe's order.
        goal: what is measured, and the value aimed at.
        model: of the first row.
        cluster: of all rows that name none of their own.
    """

    rows: tuple[Row, ...]
    goal: Goal
    model: Model
    cluster: Cluster

    @property
    def clusters(self) -> list[Cluster]:
        """That of the recipe, and those of single rows."""
        every = [self.cluster, *(row.plan.cluster for row in self.rows)]
        return list({one.digest: one for one in every}.values())

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
    """Load what a recipe names.

    Raises:
        FileFormatError: a name, option or value of it does not fit; one line says which.
        MissingDataError: a data file that a model needs is not there.
    """
    file = recipe.file
    cluster = cluster_of(recipe)
    rows = tuple(_row(recipe, index, cluster) for index in range(len(file.schedules)))
    goal = Goal(rows[0].plan.model.measure, file.target)
    return Rows(rows, goal, rows[0].plan.model, cluster)


def cluster_of(recipe: Recipe, index: int | None = None) -> Cluster:
    """Load the cluster that a recipe names, or one of its rows.

    Raises:
        FileFormatError: the name or an option of it does not fit.
    """
    own = None if index is None else recipe.file.schedules[index].cluster
    if own is None:
        return _told(recipe, "cluster", lambda: _cluster(recipe, recipe.file.cluster))
    return _told(recipe, f"schedules[{index}]: cluster", lambda: _cluster(recipe, own))


def _cluster(recipe: Recipe, name_or_path: str) -> Cluster:
    file = recipe.file
    return load_cluster(
        recipe.beside(name_or_path, ".toml"),
        workers=file.workers,
        latency_s=file.latency_s,
        bandwidth_bytes_per_s=file.bandwidth_bytes_per_s,
    )


def _row(recipe: Recipe, index: int, cluster: Cluster) -> Row:
    file, entry = recipe.file, recipe.file.schedules[index]
    where = f"schedules[{index}]"
    own = cluster if entry.cluster is None else cluster_of(recipe, index)
    if own.workers != cluster.workers:
        raise FileFormatError(
            f"{recipe.label}: {where}: cluster must have {cluster.workers} workers, as the "
            f"recipe's has, got {own.workers}; give all rows as many"
        )
    schedule = _told(recipe, where, lambda: _schedule(entry))
    settings = {**file.set, **entry.set}
    path = recipe.beside(file.model, ".py")
    model = _told(recipe, f"{where}: model", lambda: load_model(path, **settings))
    _told(recipe, "target", lambda: model.measure.require_target(file.target))
    plan = Plan(
        model,
        own,
        file.epochs or file.max_epochs or 1,
        entry.mode or file.mode,
        file.instances,
        file.target if file.max_epochs is not None else None,
        _told(recipe, f"{where}: placement", lambda: _placement(recipe, entry)),
    )
    _told(recipe, where, lambda: require_fit(plan, [schedule], file.seeds[0]))
    code = file_digest(locate("models", path))
    has_own = entry.cluster is not None
    return Row(entry.title, schedule, plan, entry.set, data_files(model), code, has_own)


def _placement(recipe: Recipe, entry: ScheduleEntry) -> Placement:
    return placement_of(recipe.beside(entry.placement or PAPER, ".toml"))


def _schedule(entry: ScheduleEntry) -> Schedule:
    given = {name: getattr(entry, name) for name in option_names()}
    schedules = schedules_of(entry.name, **given)
    for option in without_effect(schedules, [key for key, one in given.items() if one is not None]):
        raise FileFormatError(f"{option} has no effect on {entry.name}; leave it out")
    return schedules[0]


def _told(recipe: Recipe, where: str, make: Callable[[], T]) -> T:
    """What `make` gives; a mistake in it names the recipe's file and place."""
    try:
        return make()
    except MissingDataError:
        raise
    except AmpsimError as error:
        raise FileFormatError(f"{recipe.label}: {where}: {error}") from error
