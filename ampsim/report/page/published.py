"""Published numbers beside simulated ones, as a report's page has them."""

from __future__ import annotations

from collections.abc import Callable

from ampsim.report import markdown
from ampsim.report.columns import format_count, format_ratio
from ampsim.report.frames import DataFrame, Row, number, rows, text
from ampsim.units import format_percent, format_rate, format_seconds

PUBLISHED = "published.csv"

_SHOW: dict[str, Callable[[float | None], str]] = {
    "train_per_s": format_rate,
    "valid_per_s": format_rate,
    "time_to_target_s": format_seconds,
    "best_accuracy": format_percent,
}
_WORDS = {
    "train_per_s": "training",
    "valid_per_s": "validation",
    "epochs_to_target": "epochs to target",
    "time_to_target_s": "time to target",
    "best_accuracy": "best accuracy",
    "best_error": "best error",
}


def published_parts(comparison: DataFrame) -> list[str]:
    """Published numbers beside simulated ones, with their ratios."""
    records = rows(comparison)
    if not records:
        return []
    headings = [
        "schedule", "quantity", "published", "simulated", "simulated / published",
        "published, ratio", "simulated, ratio", "source",
    ]  # fmt: skip
    lines = [_line(record) for record in records]
    words = (
        "Simulated / published says how alike the hardware is. The two ratios, each to the first "
        "row of the same quantity here, say how alike the schedules are. "
        f"Every digit: [{PUBLISHED}]({PUBLISHED})."
    )
    table = markdown.table(headings, lines, left=("schedule", "quantity", "source"))
    return ["## Beside what was published", table.rstrip("\n"), words]


def _line(record: Row) -> list[str]:
    quantity = text(record, "quantity")
    show = _SHOW.get(quantity, format_count)
    return [
        text(record, "schedule"),
        _WORDS.get(quantity, quantity),
        show(number(record, "published")),
        show(number(record, "simulated")),
        format_ratio(number(record, "simulated_per_published")),
        format_ratio(number(record, "published_ratio")),
        format_ratio(number(record, "simulated_ratio")),
        text(record, "source"),
    ]
