"""Published numbers beside simulated ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pandas as pd

from ampsim.recipes.recipe import Published

COLUMNS: Final = (
    "schedule",
    "quantity",
    "published",
    "simulated",
    "simulated_per_published",
    "published_ratio",
    "simulated_ratio",
    "source",
)


def compare(table: pd.DataFrame, published: Sequence[Published]) -> pd.DataFrame:
    """Put each published number beside that of the table's row; unknown is None.

    The ratios are to the first published number of the same quantity, and to what was simulated
    for that one: they can be compared where the hardware cannot.

    Args:
        table: a row for each schedule.
        published: numbers of some of its rows.
    """
    values: dict[str, dict[str, Any]] = {
        str(row["schedule"]): {str(key): value for key, value in row.items()}
        for row in table.to_dict("records")
    }
    firsts: dict[str, tuple[float, float | None]] = {}
    rows: list[tuple[Any, ...]] = []
    for one in published:
        simulated = _known(values[one.schedule].get(one.quantity))
        first = firsts.setdefault(one.quantity, (one.value, simulated))
        rows.append(
            (
                one.schedule,
                one.quantity,
                one.value,
                simulated,
                _ratio(simulated, one.value),
                _ratio(one.value, first[0]),
                _ratio(simulated, first[1]),
                one.source,
            )
        )
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _known(value: Any) -> float | None:
    return None if value is None or pd.isna(value) else float(value)


def _ratio(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else value / base
