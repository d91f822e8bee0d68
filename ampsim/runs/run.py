"""A run as rows, pages, stores and comparisons read it: numbers and tables, without the weights.

It outlives the model that was trained, is written as JSON beside a report and as Parquet into the
store of runs, and is the same whether it was made now or read from there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np
import pandas as pd

from ampsim.data_parallel import CENTRE
from ampsim.errors import OptionError
from ampsim.metric import ACCURACY, Metric
from ampsim.study.outages import no_outages
from ampsim.study.read_off import WithRates
from ampsim.study.result import Result
from ampsim.trace import own_frame


def _table(make: Callable[[], pd.DataFrame] = pd.DataFrame, **claims: bool) -> Any:
    """A field that holds a table, what it holds unless told, and what it is beside: see below."""
    return field(
        default=own_frame(lambda _run: make()), repr=False, metadata={"is_table": True, **claims}
    )


def _number(unknown: Any, **claims: bool) -> Any:
    """A field that holds no table, and what says that it is unknown."""
    return field(default=unknown, repr=False, metadata={"is_number": True, **claims})


@dataclass(frozen=True, kw_only=True, eq=False)
class Run(WithRates):
    """One run of a forecast, of a report, or by itself.

    Tables and numbers are those of `Result` of the same names, but for these. Of spans, transfers
    and waits there are the leading ones; NaN, None or an empty text or table is what is unknown.
    """

    schedule: str = ""  # what ran; in a report, the label of its row
    repeat: int = 1  # which of the row's runs, from 1
    seed: int = 0
    failure: str | None = None  # why it ended early; None where it did not
    label: str = ""  # that of its row in a forecast
    made: Result | None = field(default=None, repr=False)  # with weights; None of a kept run

    epochs: pd.DataFrame = _table()
    spans: pd.DataFrame = _table(is_trace=True)
    transfers: pd.DataFrame = _table(is_trace=True)
    staleness: pd.DataFrame = _table()
    utilisation_by_worker: pd.DataFrame = _table()
    time_by_node: pd.DataFrame = _table()
    path_parts: pd.DataFrame = _table()  # as `Result.critical_path_parts`
    outages: pd.DataFrame = _table(no_outages, is_seldom=True)
    peak_memory: pd.DataFrame = _table(is_seldom=True)
    memory: pd.DataFrame = _table(is_trace=True)
    validations: pd.DataFrame = _table(is_seldom=True)  # empty where none is within an epoch
    waits: pd.DataFrame = _table(no_outages, is_trace=True)

    max_active_keys: int = _number(0)
    min_update_interval: int | None = _number(None)  # None where nodes differ
    replicas: int = _number(1)  # of the model
    workers: int = _number(0)
    utilisation: float = _number(math.nan)
    staleness_mean: float = _number(math.nan)
    staleness_max: int | None = _number(None)
    messages: int = _number(0)
    makespan_s: float = _number(math.nan)
    bound_by: str | None = _number(None)  # as of `Result.bounds`, and so the four shares
    worker_share: float = _number(math.nan)
    path_share: float = _number(math.nan)
    link_share: float = _number(math.nan)
    admission_share: float = _number(math.nan)
    placement: dict[str, Any] = field(  # its name and options, and the worker of each node
        default_factory=dict[str, Any], repr=False, metadata={"is_number": True}
    )
    bound_at: str = _number("")  # the nodes at what `bound_by` names
    items: str = _number("")  # what throughput is of, such as "images"
    energy_j: float = _number(math.nan, is_seldom=True)
    cost_usd: float = _number(math.nan, is_seldom=True)
    never_met: str = _number("", is_seldom=True)
    learning_digest: str = _number("", is_seldom=True)

    @property
    def result(self) -> Result:
        """Trace (its leading spans) and numbers, and the model as it was trained.

        Raises:
            OptionError: the run was kept in a folder, or made by another executor than `jobs`;
                results are neither kept nor sent.
        """
        if self.made is None:
            raise OptionError(
                f"{self.label or self.schedule}, seed {self.seed}: a run that is kept in a folder, "
                "or was made on another machine, has no result; read its tables, or forecast with "
                "jobs and without keeping"
            )
        return self.made

    @property
    def looks(self) -> pd.DataFrame:
        """Every validation, a row each; `epoch` is how many lie behind it, and may be broken."""
        within = self.validations
        return within.rename(columns={"epochs": "epoch"}) if len(within) else self.epochs


def _fields_that(claim: str) -> tuple[str, ...]:
    return tuple(one.name for one in fields(Run) if one.metadata.get(claim))


TABLE_FIELDS: Final = _fields_that("is_table")
"""Fields of a run that are tables."""

NUMBER_FIELDS: Final = _fields_that("is_number")
"""Fields of a run that are no tables, but for what it is called by."""

TRACE_FIELDS: Final = _fields_that("is_trace")
"""Tables that have a row for what happens in a run; all others are small."""

SELDOM_FIELDS: Final = _fields_that("is_seldom")
"""Fields that are written only where they say something, as earlier runs have none."""

_SMALL: Final = tuple(name for name in TABLE_FIELDS if name not in TRACE_FIELDS)


SHARES: Final = ("worker_share", "path_share", "link_share", "admission_share")
"""Those of a run's time by which it is said what bounds it."""


_EXPLAINING: Final = {"bound_by", *SHARES, "bound_at", "path_parts", "peak_memory", "memory"}
"""Fields that say why a run takes so long, and what it holds: a tenth of a small run's time."""


def run_of(result: Result, failure: str | None = None, **called: Any) -> Run:
    """The run that a simulation gave, without its weights; of a trial, what is asked of one."""
    model, validations = result.model, result.validations
    are_within = len(validations) > len(result.epochs)
    otherwise: dict[str, Any] = {
        "min_update_interval": result.update_interval,
        "replicas": model.replicas,
        "items": model.items,
        "placement": result.origin["placement"],
        "learning_digest": result.learning_digest or "",
        "validations": validations if are_within else pd.DataFrame(),
    }
    names = {*TABLE_FIELDS, *NUMBER_FIELDS} - (set() if result.is_explained else _EXPLAINING)
    if result.is_explained:
        otherwise |= {name: getattr(result.bounds, name) for name in ("bound_by", *SHARES)}
        otherwise["path_parts"] = result.critical_path_parts
    same = {name: getattr(result, name) for name in names if name not in otherwise}
    return Run(failure=failure, **called, **same, **otherwise)


def whole_run_of(result: Result, failure: str | None = None) -> Run:
    """The run with its result, which an executor of this machine alone gives."""
    return run_of(result, failure, made=result)


@dataclass(frozen=True, kw_only=True, eq=False)
class RunTable:
    """A table with a row for each schedule, and the runs behind its rows."""

    table: pd.DataFrame  # one row a schedule; unknown is missing (None or NaN), never 0
    runs: tuple[Run, ...] = field(repr=False)  # in the order of the rows, a row's side by side
    target: float | None  # value of the metric that is aimed at; None without one
    model: str  # its name
    cluster: str  # likewise
    workers: int  # how many
    manifest: dict[str, Any] = field(repr=False)  # where the numbers come from, as plain values
    metric: Metric = ACCURACY  # what the model is measured by, with its unit
    interrupted: str | None = None  # a sentence where Ctrl-C, or a failure, ended it
    # one row a trial of a learning rate; empty without tuning
    trials: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False)
    # one row a number of the hardware that a row's time hangs on; empty without a budget
    buys: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False)

    @property
    def failures(self) -> list[str]:
        """One sentence for each run that failed."""
        return [f"{run.label or run.schedule}: {run.failure}" for run in self.runs if run.failure]


def placed_alike(runs: Mapping[str, Run]) -> list[tuple[list[str], bool, dict[str, int]]]:
    """Group runs by where their nodes are: names, whether other ranks have more, worker by node.

    A program has other nodes than the graph that was placed, and is left out.
    """
    found: dict[str, tuple[list[str], bool, dict[str, int]]] = {}
    for name, run in runs.items():
        placed: dict[str, int] = run.placement.get("workers", {})
        busy = run.time_by_node[["node", "worker"]].to_numpy() if len(run.time_by_node) else ()
        if placed and all(node in placed or node == CENTRE for node, _worker in busy):
            is_rank = any(worker != placed.get(node, worker) for node, worker in busy)
            found.setdefault(f"{placed} {is_rank}", ([], is_rank, placed))[0].append(name)
    return [*found.values()]


_CATEGORY: Final = "category"
_TEXT: Final = "str"
_UNBOUNDED: Final = ("nan", "inf", "-inf")
_PANDAS: Any = pd


def to_plain(run: Run) -> dict[str, Any]:
    """A run without its traces, as JSON can hold it: numbers, and tables by their columns."""
    names, small = ([name for name in of if _says(run, name)] for of in (NUMBER_FIELDS, _SMALL))
    tables = {
        name: {str(key): _column_to_plain(one) for key, one in getattr(run, name).items()}
        for name in small
    }
    return {"numbers": numbers_to_plain(run, names), "tables": tables}


def from_plain(content: Mapping[str, Any], **called: Any) -> Run:
    """The run that `to_plain` gave this for; its traces are empty.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: it is something else.
    """
    plain: dict[str, Any] = content["tables"]
    tables = {
        name: pd.DataFrame({key: _column(*one) for key, one in plain[name].items()})
        for name in _SMALL
        if name in plain or name not in SELDOM_FIELDS
    }
    return Run(**numbers_from_plain(content["numbers"]), **tables, **called)


def numbers_to_plain(run: Run, names: Iterable[str] = NUMBER_FIELDS) -> dict[str, Any]:
    """Numbers of a run by their names, as JSON can hold them."""
    return {name: number_to_plain(getattr(run, name)) for name in names}


def numbers_from_plain(told: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers of a run by their names; what an earlier version did not have is left out.

    Raises:
        KeyError: one is missing that every version has.
    """
    names = [name for name in NUMBER_FIELDS if name in told or name not in SELDOM_FIELDS]
    return {name: number_from_plain(told[name]) for name in names}


def _says(run: Run, name: str) -> bool:
    """Tell whether a field is to be written."""
    if name not in SELDOM_FIELDS:
        return True
    value = getattr(run, name)
    return bool(len(value)) if hasattr(value, "__len__") else not math.isnan(value)


def number_to_plain(value: Any) -> Any:
    """A number as JSON has it; NaN is the text "nan", for null means that there is none."""
    if hasattr(value, "item"):  # a NumPy scalar
        value = value.item()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def number_from_plain(value: Any) -> Any:
    """The number that `number_to_plain` gave this for."""
    return float(value) if value in _UNBOUNDED else value


def _column_to_plain(column: Any) -> list[Any]:
    """Type and values of a column; of categories, the type, their codes, and what these mean."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return [_CATEGORY, column.cat.codes.tolist(), column.cat.categories.tolist()]
    kind = str(column.dtype) if column.dtype.kind in "biuf" else _TEXT
    values: list[Any] = column.tolist()  # unknown ones are null, and NaN is not itself
    return [kind, [None if one != one else number_to_plain(one) for one in values]]


def _column(kind: str, values: list[Any], meanings: list[Any] | None = None) -> Any:
    if kind == _CATEGORY:
        return _PANDAS.Categorical.from_codes(values, categories=meanings)
    if kind == _TEXT:
        return pd.Series(values, dtype=kind)
    # A frame is made of arrays in half the time that reading all takes where it is made of series.
    return np.array([number_from_plain(one) for one in values], dtype=kind)
