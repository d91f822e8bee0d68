"""Names where objects are meant: a model, a cluster or a schedule as users type it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated, TypeAlias

from ampsim.errors import OptionError
from ampsim.hardware import Cluster, load_cluster
from ampsim.model_parallel import Schedule
from ampsim.study.loading import load_model
from ampsim.study.model import Model
from ampsim.study.schedule_names import schedules_of as schedules_named

ModelLike: TypeAlias = Annotated[
    Model | str | os.PathLike[str], "a model, or the name or path of one"
]
ClusterLike: TypeAlias = Annotated[
    Cluster | str | os.PathLike[str], "a cluster, or the name or path of one or of a device"
]
ScheduleLike: TypeAlias = Annotated[
    Schedule | str, "a schedule such as ampsim.Amp(), or the name of one"
]
SchedulesLike: TypeAlias = Annotated[
    Sequence[ScheduleLike] | str, "a list such as [ampsim.Sequential(), ampsim.Amp()]"
]


def model_of(model: ModelLike) -> Model:
    """The model itself, or the one of that name or path."""
    return model if isinstance(model, Model) else load_model(model)


def cluster_of(cluster: ClusterLike) -> Cluster:
    """The cluster itself, or the one of that name or path."""
    return cluster if isinstance(cluster, Cluster) else load_cluster(cluster)


def schedule_of(schedule: ScheduleLike) -> Schedule:
    """The schedule itself, or the one of that name.

    Raises:
        OptionError: there are several names.
    """
    if not isinstance(schedule, str):
        return schedule
    made = schedules_named(schedule)
    if len(made) > 1:
        raise OptionError(f"schedule must be one, got {schedule!r}; forecast takes several")
    return made[0]


def schedules_of(schedules: SchedulesLike) -> list[Schedule]:
    """The schedules themselves, or those of the names.

    Raises:
        OptionError: there is none.
    """
    if isinstance(schedules, str):
        return schedules_named(schedules)
    if not schedules:
        raise OptionError("schedules must name at least one schedule, got none")
    return [schedule_of(one) for one in schedules]
