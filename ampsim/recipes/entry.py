"""A row of a recipe: its schedule, and what it has of its own."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from pydantic import Field, create_model

from ampsim.options import Count
from ampsim.study.schedule_names import option_fields
from ampsim.toml_file import Record, Text

ModeName: TypeAlias = Literal["numeric", "sleep"]

HARDWARE: Final = ("cluster", "workers", "latency_s", "bandwidth_bytes_per_s", "topology")
"""Keys of a row that say what it runs on, each instead of the recipe's."""


class _Named(Record):
    name: Text
    label: Text | None = None


_Tuned: type[_Named] = create_model("_Tuned", __base__=_Named, **option_fields())


class ScheduleEntry(_Tuned):
    """One row of the report.

    Beside these it takes every option of a schedule, as on the command line.

    Args:
        name: of the schedule.
        label: of the row; the schedule's name unless given.
        placement: as on the command line; a .toml file by its path from the recipe's folder.
        cluster: instead of the recipe's.
        workers: likewise.
        latency_s: likewise, of the links.
        bandwidth_bytes_per_s: likewise, of the links.
        topology: likewise.
        mode: instead of the recipe's; "sleep" measures throughput only, in one epoch.
        set: options of the model, over those of the recipe.
    """

    placement: Text | None = None
    cluster: Text | None = None
    workers: Count | None = None
    latency_s: float | None = None
    bandwidth_bytes_per_s: float | None = None
    topology: Text | None = None
    mode: ModeName | None = None
    set: dict[str, Any] = Field(default_factory=dict[str, Any])

    @property
    def title(self) -> str:
        """What the row is called."""
        return self.label or self.name

    @property
    def hardware(self) -> dict[str, Any]:
        """What it says of what it runs on, by key."""
        named = {key: getattr(self, key) for key in HARDWARE}
        return {key: value for key, value in named.items() if value is not None}
