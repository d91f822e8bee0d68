"""What results, forecasts and models look like in a notebook: small tables with units."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ampsim.html_table import html_table
from ampsim.study.bound_words import bound_words
from ampsim.units import UNKNOWN, format_percent, format_rate, format_seconds

if TYPE_CHECKING:
    from ampsim.study.forecast import Forecast
    from ampsim.study.model import Model
    from ampsim.study.result import Result


def result_html(result: Result) -> str:
    """A run in a dozen numbers."""
    metric, epochs, items = result.model.measure, result.epochs, result.model.items
    score = float(epochs[metric.kind].iloc[-1]) if len(epochs) else None
    rows = [
        ["epochs", str(len(epochs))],
        ["virtual time", format_seconds(result.makespan_s)],
        [f"training ({items}/s)", _rate(result.train_per_s)],
        [f"validation ({items}/s)", _rate(result.valid_per_s)],
        [f"validation {metric.kind}, last epoch", metric.text(score)],
        ["workers busy", format_percent(result.utilisation)],
        ["staleness, mean", _count(result.staleness_mean)],
        ["staleness, max", _count(result.staleness_max)],
        ["instances in flight, at most", str(result.max_active_keys)],
        ["messages", f"{result.messages:,}"],
    ]
    workers = f"{result.workers} worker{'' if result.workers == 1 else 's'}"
    caption = f"{result.model.name}, {result.schedule.name}, {workers}"
    return html_table(caption, rows, note="tables: spans, transfers, updates, epochs")


def forecast_html(forecast: Forecast) -> str:
    """A row for each schedule; every column and digit is in `table`."""
    metric = forecast.metric
    items = str(forecast.manifest.get("model", {}).get("items", "items"))
    columns: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "schedule": lambda row: str(row["schedule"]),
        "in flight": lambda row: _count(row["max_active_keys"]),
        f"training ({items}/s)": lambda row: _rate(_known(row["train_per_s"])),
        "busy": lambda row: format_percent(_known(row["utilisation"])),
        "staleness, mean": lambda row: _count(row["staleness_mean"]),
        f"best {metric.kind}": lambda row: metric.text(_known(row[metric.best_column])),
        "epochs to target": lambda row: _count(row["epochs_to_target"]),
        "time to target": lambda row: format_seconds(_known(row["time_to_target_s"])),
        "bound by": _bound,
        "note": lambda row: row["note"],
    }
    records: list[Any] = forecast.table.to_dict("records")
    rows = [[show(record) for show in columns.values()] for record in records]
    aim = "" if forecast.target is None else f", target {metric.target_text(forecast.target)}"
    caption = f"{forecast.model} on {forecast.cluster}{aim}"
    note = forecast.interrupted or ""
    return html_table(caption, rows, headings=list(columns), note=note)


def model_html(model: Model) -> str:
    """The options that it was built with, and how it is trained and measured."""
    options: Any = model.config
    known = dataclasses.fields(options) if dataclasses.is_dataclass(options) else ()
    target = "none" if model.target is None else model.measure.target_text(model.target)
    rows = [
        *([field.name, str(getattr(options, field.name))] for field in known),
        ["optimizer", model.optimizer.name],
        ["measured by", f"validation {model.metric}, target {target}"],
    ]
    return html_table(f"model {model.name}", rows)


def _rate(per_s: float | None) -> str:
    """A rate whose unit stands in the heading."""
    return format_rate(per_s).removesuffix("/s").rstrip()


def _bound(row: Mapping[str, Any]) -> str:
    shares = [_known(row[f"{one}_share"]) for one in ("worker", "path", "link", "admission")]
    largest = max((share for share in shares if share is not None), default=math.nan)
    return bound_words(row["bound_largest"] or "", row["bound_at"], largest) or UNKNOWN


def _known(value: Any) -> float | None:
    """A number, or None where it is None or NaN."""
    return None if value is None or math.isnan(value) else float(value)


def _count(value: Any) -> str:
    number = _known(value)
    return UNKNOWN if number is None else f"{number:,.3g}" if number % 1 else f"{number:,.0f}"
