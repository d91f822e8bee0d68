"""A forecast as one JSON object (design, section 9): unknown is null, never 0 and never NaN."""

from __future__ import annotations

import json
import math
from typing import Any, Final, Literal

import pandas as pd

from ampsim.study.forecast import Forecast
from ampsim.study.provenance import own_version

KEYS: Final = (
    "schedule",
    "max_active_keys",
    "min_update_interval",
    "replicas",
    "workers",
    "train_per_s",
    "valid_per_s",
    "epochs_to_target",
    "time_to_target_s",
    "time_to_target_low_s",
    "time_to_target_high_s",
    "utilisation",
    "staleness_mean",
    "staleness_max",
    "messages",
    "makespan_s",
)
"""The keys of a row that stay stable, in their order; others may follow."""

_COUNTS: Final = frozenset(
    {
        "max_active_keys",
        "min_update_interval",
        "replicas",
        "workers",
        "epochs_to_target",
        "staleness_max",
        "messages",
        "repeats",
        "repeats_reached",
        "ranks",
        "servers",
    }
)


def to_json(forecast: Forecast, *, seed: int) -> str:
    """Return the forecast as JSON text that ends with a newline.

    Under `epochs` stands each epoch of each run, under `validations` each validation if some are
    within epochs, and under `trials` what was tried by tuning, if anything.

    Args:
        forecast: what to say.
        seed: of its first repeat.
    """
    content: dict[str, Any] = {
        "ampsim": own_version(),
        "model": forecast.model,
        "cluster": forecast.cluster,
        "seed": seed,
        "rows": [row_values(record) for record in forecast.table.to_dict("records")],
    }
    content["epochs"] = _of_runs(forecast, "epochs")
    if within := _of_runs(forecast, "validations"):
        content["validations"] = within
    if len(forecast.trials):
        trials = forecast.trials.to_dict("records")
        content["trials"] = [
            {str(key): _value(str(key), value) for key, value in one.items()} for one in trials
        ]
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _of_runs(forecast: Forecast, name: Literal["epochs", "validations"]) -> list[dict[str, Any]]:
    """The rows of a table of all runs, each with whose it is."""
    return [
        {"schedule": run.label or run.schedule, "repeat": run.repeat, "seed": run.seed}
        | {str(key): _value(str(key), value) for key, value in record.items()}
        for run in forecast.runs
        for record in getattr(run, name).to_dict("records")
    ]


def row_values(record: dict[Any, Any]) -> dict[str, Any]:
    """The values of one row of a forecast's table, the keys that stay stable first."""
    keys = [*KEYS, *(key for key in record if key not in KEYS)]
    return {key: _value(key, record.get(key)) for key in keys}


def _is_count(key: str) -> bool:
    return key in _COUNTS or key.endswith("_bytes")


def _value(key: str, value: Any) -> Any:
    """One value as JSON knows it; a column with a gap has turned its whole numbers into floats."""
    if hasattr(value, "item"):  # a NumPy scalar
        value = value.item()
    if value is None or value is pd.NA:
        return None
    if isinstance(value, str | bool):
        return value
    if not math.isfinite(value):
        return None
    return int(value) if _is_count(key) and value == int(value) else value
