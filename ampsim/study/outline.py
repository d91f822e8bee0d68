"""What tables and figures take from a run: it can be kept when the weights are long gone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

import pandas as pd

from ampsim.study.outages import no_outages
from ampsim.study.read_off import Rates


@dataclass(frozen=True)
class Outline(Rates):
    """The numbers and tables of one run.

    Args:
        max_active_keys: instances in flight at most.
        min_update_interval: gradients between updates; None where nodes differ.
        replicas: of the model.
        workers: how many there were.
        utilisation: seconds of service over workers times makespan; NaN where no time passed.
        staleness_mean: over all gradients; NaN where there was none.
        staleness_max: of all gradients; None where there was none.
        messages: served, updates among them.
        makespan_s: end of the last span.
        bound_by: what bounds the run, as `Result.bounds`; None where unknown.
        worker_share: of the makespan, that of the busiest worker; as `Result.bounds`, all four.
        path_share: that of the critical path.
        link_share: that of the busiest link.
        admission_share: that in which the limit on what is in flight holds it up.
        placement: its name and options, and the worker of each node.
        epochs: as `Result.epochs`.
        spans: as `Result.spans`, the leading ones.
        transfers: as `Result.transfers`, the leading ones.
        staleness: as `Result.staleness`.
        utilisation_by_worker: as `Result.utilisation_by_worker`.
        time_by_node: as `Result.time_by_node`.
        path_parts: as `Result.critical_path_parts`.
        bound_at: the nodes at what `bound_by` names; empty without one.
        items: what throughput is of, such as "images"; empty where unknown.
        peak_memory: as `Result.peak_memory`; empty where nobody counted.
        memory: as `Result.memory`, likewise.
        energy_j: as `Result.energy_j`; NaN where unknown.
        cost_usd: as `Result.cost_usd`; NaN where unknown.
        outages: as `Result.outages`.
        validations: as `Result.validations`; empty where none is within an epoch.
        waits: as `Result.waits`, the leading ones.
    """

    max_active_keys: int
    min_update_interval: int | None
    replicas: int
    workers: int
    utilisation: float
    staleness_mean: float
    staleness_max: int | None
    messages: int
    makespan_s: float
    bound_by: str | None
    worker_share: float
    path_share: float
    link_share: float
    admission_share: float
    placement: dict[str, Any] = field(repr=False)
    epochs: pd.DataFrame = field(repr=False)
    spans: pd.DataFrame = field(repr=False)
    transfers: pd.DataFrame = field(repr=False)
    staleness: pd.DataFrame = field(repr=False)
    utilisation_by_worker: pd.DataFrame = field(repr=False)
    time_by_node: pd.DataFrame = field(repr=False)
    path_parts: pd.DataFrame = field(repr=False)
    bound_at: str = ""
    items: str = ""
    peak_memory: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False)
    memory: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False)
    energy_j: float = math.nan
    cost_usd: float = math.nan
    outages: pd.DataFrame = field(default_factory=no_outages, repr=False)
    validations: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False)
    waits: pd.DataFrame = field(default_factory=no_outages, repr=False)


TABLE_FIELDS: Final = (
    "epochs", "spans", "transfers", "staleness", "utilisation_by_worker", "time_by_node",
    "path_parts", "outages", "peak_memory", "memory", "validations", "waits",
)  # fmt: skip
"""Fields of an outline that are tables."""

TRACE_FIELDS: Final = ("spans", "transfers", "memory", "waits")
"""Those of them that have a row for what happens in a run; all others are small."""

NUMBER_FIELDS: Final = tuple(one.name for one in fields(Outline) if one.name not in TABLE_FIELDS)
"""Fields of an outline that are no tables."""

SELDOM_FIELDS: Final = ("energy_j", "cost_usd", "outages", "peak_memory", "validations")
"""Fields that are written only where they say something, as earlier outlines have none."""

_SMALL: Final = tuple(name for name in TABLE_FIELDS if name not in TRACE_FIELDS)
_CATEGORY: Final = "category"
_TEXT: Final = "str"
_INFINITE: Final = ("inf", "-inf")
_PANDAS: Any = pd


def to_plain(outline: Outline) -> dict[str, Any]:
    """An outline without its traces, as JSON can hold it: numbers, and tables by their columns."""
    names, small = ([name for name in of if _says(outline, name)] for of in (NUMBER_FIELDS, _SMALL))
    numbers = {name: number_to_plain(getattr(outline, name)) for name in names}
    tables = {name: _table_to_plain(getattr(outline, name)) for name in small}
    return {"numbers": numbers, "tables": tables}


def from_plain(content: Mapping[str, Any]) -> Outline:
    """The outline that `to_plain` gave this for; its traces are empty.

    Of an earlier version's, what it did not have is unknown, if an outline can be without it.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: it is something else.
    """
    plain: dict[str, Any] = content["tables"]
    tables: dict[str, Any] = {name: pd.DataFrame() for name in TRACE_FIELDS}
    for name in _SMALL:
        if name in SELDOM_FIELDS and name not in plain:
            continue
        tables[name] = pd.DataFrame({key: _column(*one) for key, one in plain[name].items()})
    told: dict[str, Any] = content["numbers"]
    names = [name for name in NUMBER_FIELDS if name in told or name not in SELDOM_FIELDS]
    numbers = {name: number_from_plain(told[name]) for name in names}
    return Outline(**numbers, **tables)


def _says(outline: Outline, name: str) -> bool:
    """Whether a field is to be written."""
    if name not in SELDOM_FIELDS:
        return True
    value = getattr(outline, name)
    return bool(len(value)) if name in TABLE_FIELDS else not math.isnan(value)


def number_to_plain(value: Any) -> Any:
    """A number as JSON has it; NaN is the text "nan", for null means that there is none."""
    if hasattr(value, "item"):  # a NumPy scalar
        value = value.item()
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def number_from_plain(value: Any) -> Any:
    """The number that `number_to_plain` gave this for."""
    return math.nan if value == "nan" else value


def _table_to_plain(frame: pd.DataFrame) -> dict[str, Any]:
    return {str(name): _column_to_plain(column) for name, column in frame.items()}


def _column_to_plain(column: Any) -> list[Any]:
    """Type and values of a column; of categories, the type, their codes, and what these mean."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return [_CATEGORY, column.cat.codes.tolist(), column.cat.categories.tolist()]
    kind = str(column.dtype) if column.dtype.kind in "biuf" else _TEXT
    return [kind, [_value_to_plain(one) for one in column.tolist()]]


def _value_to_plain(value: Any) -> Any:
    """A value of a column; null is an unknown one, infinity a text."""
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return None if math.isnan(value) else str(value)


def _column(kind: str, values: list[Any], meanings: list[Any] | None = None) -> Any:
    if kind == _CATEGORY:
        return _PANDAS.Categorical.from_codes(values, categories=meanings)
    if kind != _TEXT:
        values = [float(one) if one in _INFINITE else one for one in values]
    return pd.Series(values, dtype=kind)
