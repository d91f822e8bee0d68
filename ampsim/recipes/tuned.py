"""Learning rates of a recipe's rows: by rule, by trial, and what page and manifest say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pandas as pd

from ampsim.errors import FileFormatError, SimulationError
from ampsim.forecasting.making import RunMaker
from ampsim.forecasting.tuning import Tuner, no_trials
from ampsim.recipes.recipe import Recipe, RecipeFile
from ampsim.recipes.rows import Rows
from ampsim.runs.store import Keeping
from ampsim.study.learning_rates import COLUMNS
from ampsim.study.progress import OnProgress

TRIALS: Final = "trials.csv"


@dataclass(frozen=True, slots=True)
class TunedRows:
    """Rows with the learning rates that they run with.

    `trials` are as `Forecast.trials`; `unreached` has labels of rows of which no trial reached the
    target.
    """

    rows: Rows
    trials: pd.DataFrame
    unreached: tuple[str, ...] = ()


def tuned_rows(
    recipe: Recipe, rows: Rows, jobs: int, on_progress: OnProgress | None, keeping: Keeping
) -> TunedRows:
    """Try learning rates for each row, if the recipe says so, `jobs` at a time; `keeping` has them.

    Raises:
        KeyboardInterrupt: Ctrl-C; what finished is kept.
        SimulationError: the process of a trial died; what finished is kept.
    """
    if recipe.file.tune is None:
        return TunedRows(rows, no_trials())
    maker = RunMaker(jobs, on_progress, keeping)
    tuned = Tuner(rows.rows, recipe.file.seeds[0], rows.goal, maker).tune(recipe.file.tune)
    if tuned.interrupted is not None:
        raise KeyboardInterrupt(tuned.interrupted)
    if tuned.lost:
        raise SimulationError(f"{tuned.lost[0]}; run again to go on")
    return TunedRows(replace(rows, rows=tuned.entries), tuned.trials, tuple(tuned.untuned))


def has_rates(file: RecipeFile) -> bool:
    """Whether rows may have other learning rates than their models."""
    return file.tune is not None or file.scale_rate != "none"


def rates_of(file: RecipeFile, rows: Rows) -> list[dict[str, Any]]:
    """Columns of each row's learning rate; empty ones where all have their model's."""
    if not has_rates(file):
        return [{} for _row in rows.rows]
    return [row.plan.rate.columns(row.plan.model) for row in rows.rows]


def rates_in(origins: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same, from what a manifest says of the rows."""
    return [{name: one[name] for name in COLUMNS if name in one} for one in origins]


def origin_of(file: RecipeFile, tuned: TunedRows) -> dict[str, Any]:
    """What a manifest says of how rows are compared, none of it where nothing was asked for."""
    asked: dict[str, Any] = {"validate_every": file.validate_every, "tune": file.tune}
    if has_rates(file):
        asked["scale_rate"] = file.scale_rate
    found = {key: value for key, value in asked.items() if value is not None}
    return {**found, **({"unreached": list(tuned.unreached)} if tuned.unreached else {})}


def read_trials(folder: Path, file: RecipeFile) -> pd.DataFrame:
    """The trials beside a report.

    Raises:
        FileFormatError: there should be some, and are none.
    """
    if file.tune is None:
        return no_trials()
    try:
        return pd.read_csv(folder / TRIALS)
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{TRIALS} cannot be read; run it again") from error
