"""What the report reads of a finished forecast: two protocols, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from ampsim.metric import Metric
from ampsim.report.frames import DataFrame, distinct, row_labels
from ampsim.report.kept import kept_of


class Run(Protocol):
    """One training run of one schedule."""

    @property
    def schedule(self) -> str:
        """Name in the table's row."""
        ...

    @property
    def repeat(self) -> int:
        """Which of the schedule's repeats, counted up."""
        ...

    @property
    def epochs(self) -> DataFrame:
        """One row per epoch."""
        ...

    @property
    def spans(self) -> DataFrame:
        """A leading window of the training's spans."""
        ...

    @property
    def staleness(self) -> DataFrame:
        """Gradients counted in columns node, staleness, count."""
        ...

    @property
    def utilisation_by_worker(self) -> DataFrame:
        """Shares of the run, a row a worker: worker, update, backward, forward."""
        ...


class Forecast(Protocol):
    """A table with a row per schedule, the runs of each row, and a manifest.

    A forecast that was interrupted may have an attribute `interrupted`, a sentence. A run may have
    `messages`, how many spans there were in all, and `transfers`. The manifest may have the
    workers' devices in `cluster.groups`.
    """

    @property
    def table(self) -> DataFrame:
        """One row per schedule that finished."""
        ...

    @property
    def target(self) -> float | None:
        """Value of the metric aimed at."""
        ...

    @property
    def metric(self) -> Metric:
        """What validation measures."""
        ...

    @property
    def runs(self) -> Sequence[Run]:
        """In the order of the table's rows, repeats of a row beside each other and counting up."""
        ...

    @property
    def workers(self) -> int:
        """How many workers the cluster has."""
        ...

    @property
    def model(self) -> str:
        """Name of the model."""
        ...

    @property
    def cluster(self) -> str:
        """Name of the cluster."""
        ...

    @property
    def manifest(self) -> Mapping[str, Any]:
        """Origin of the numbers, nested plain values.

        Two keys have sections of their own: `assumptions`, a list of sentences, and `costs`, a
        list of tables with the same keys, which name each cost that was charged and its source.
        """
        ...


def devices_of(forecast: Forecast) -> list[str]:
    """The name of each worker's device; none where the manifest does not say."""
    groups = forecast.manifest.get("cluster", {}).get("groups", ())
    return [str(one["device"]) for one in groups for _ in range(int(one["workers"]))]


def known_until_s(runs: Iterable[Run]) -> float:
    """Time until which the spans of all these runs were kept; infinity where all were."""
    ends = [kept.until_s for run in runs if (kept := kept_of(run)) is not None]
    return min(ends, default=math.inf)


def transfers_of(run: Run) -> list[DataFrame]:
    """The leading transfers of a run, in a list, which is empty where the run has none."""
    kept = getattr(run, "transfers", None)
    return [] if kept is None or not len(kept) else [kept]


def looks_of(run: Run) -> DataFrame:
    """The validations of a run, a row each, with `epoch`, those behind it, which may be broken."""
    within: Any = getattr(run, "validations", None)
    if within is None or not len(within):
        return run.epochs
    return within.rename(columns={"epochs": "epoch"})


def runs_by_row(forecast: Forecast) -> dict[str, list[Run]]:
    """The runs of each row of the table under the row's label (`row_labels`)."""
    groups: list[list[Run]] = []
    for run in forecast.runs:
        last = groups[-1][-1] if groups else None
        if last is None or last.schedule != run.schedule or last.repeat >= run.repeat:
            groups.append([])
        groups[-1].append(run)
    labels = row_labels(forecast.table)
    if len(labels) != len(groups):
        labels = distinct([runs[0].schedule for runs in groups])
    return dict(zip(labels, groups, strict=True))
