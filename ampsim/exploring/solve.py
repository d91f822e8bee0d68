"""The inverse question: how fast, or how many, must something be until a condition holds?

What follows from timing alone is exact: its root is a bracket, as narrow as asked for. What is
learned differs with the seed: each seed has a root of its own, and their median an interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import pandas as pd
from annotated_types import Ge, Le

from ampsim import assets
from ampsim.arguments import checked
from ampsim.data_parallel.inside import inner_named
from ampsim.errors import OptionError, SimulationError
from ampsim.exploring.axes import Axis, Setup, axes_over, setup_at
from ampsim.exploring.axes import Value as AxisValue
from ampsim.exploring.condition import TIMED, Condition, condition_of
from ampsim.exploring.crossings import Crossings, Root, distance, find
from ampsim.exploring.making import Asked, make, sleeping
from ampsim.exploring.whatif import epoch_s, plain_rows
from ampsim.forecasting.making import RunMaker
from ampsim.hardware import load_device
from ampsim.model_parallel import Schedule
from ampsim.options import REPEATS_MAX, Count, Seed
from ampsim.runs.jobs import opened
from ampsim.runs.rows import row_of
from ampsim.runs.run import Run
from ampsim.runs.store import Keeping
from ampsim.runs.task import Row
from ampsim.study.bound_words import named
from ampsim.study.progress import OnProgress
from ampsim.study.schedule_names import labels_of, schedules_of
from ampsim.study.simulation import (
    ClusterLike,
    ModelLike,
    PlacementLike,
    SchedulesLike,
    cluster_of,
    model_of,
)
from ampsim.study.simulation import schedules_of as schedules_like
from ampsim.text import html_table

EXACT: Final = 1e-3
"""Width of a bracket over its higher end, of what is exact (chosen: no device is known better)."""

LEARNED: Final = 1e-2
"""The same of a seed's root (chosen: seeds differ by more)."""

REPEATS: Final = 6
"""Seeds unless told otherwise: the least of which smallest to largest covers a median at 95 %."""

COLUMNS: Final = (
    "schedule", "value", "low", "high", "unit", "holds", "coverage", "seeds", "seeds_below",
    "seeds_above", "bound_by", "device_below", "device_above",
)  # fmt: skip

ABOVE, BELOW, EVERYWHERE, NOWHERE = "above", "below", "everywhere", "nowhere"
"""Where along the range the condition holds, of a row."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Solved:
    """What `solve` returns.

    Attributes:
        table: one row a crossing of a schedule, or of the schedules that the condition names:
            `value` of the key, from which on, or up to which, the condition `holds` ("above" or
            "below"; or "everywhere" or "nowhere", with no value). Of what is exact, `low` and
            `high` bracket it; of what is learned they are the interval of the median over `seeds`,
            with its `coverage`, and `seeds_below` and `seeds_above` have their root outside of the
            range. `bound_by` is what binds the run there; `device_below` and `device_above` are the
            shipped devices whose number is nearest on either side. Unknown is missing.
        curve: one row a point that was tried: schedule, value, seed, left and right side of the
            condition, is_held.
        sentences: one a row.
        key: what varies.
        until: the condition.
        model: the model's name.
        cluster: the cluster's name.
    """

    table: pd.DataFrame
    curve: pd.DataFrame
    sentences: tuple[str, ...]
    key: str
    until: str
    model: str
    cluster: str

    def __repr__(self) -> str:
        return f"Solved({self.until} over {self.key}: {' '.join(self.sentences)})"

    def _repr_html_(self) -> str:
        """The rows, and what they say."""
        headings, rows = cells(self.table)
        caption = f"{self.model} on {self.cluster}: {self.key} until {self.until}"
        return html_table(caption, rows, headings=headings, note=" ".join(self.sentences))


@checked
def solve(
    model: ModelLike,
    cluster: ClusterLike,
    schedules: SchedulesLike | None = None,
    *,
    over: Mapping[str, str],
    until: str,
    target: float | None = None,
    max_epochs: Count = 40,
    repeats: Annotated[int, Ge(1), Le(REPEATS_MAX)] = REPEATS,
    instances: Count | None = None,
    seed: Seed = 0,
    placement: PlacementLike | None = None,
    jobs: Annotated[int, Ge(1), Le(REPEATS_MAX)] = 1,
    on_progress: OnProgress | None = None,
    keeping: Keeping | None = None,
) -> Solved:
    """Find where along a range of something a condition begins or ends to hold.

    Args:
        model: as of `forecast`.
        cluster: as of `forecast`.
        schedules: whose columns are meant where the condition names no schedule; None for "amp".
        over: one key and its range, such as ``{"device.flop_per_s": "1e11..1e14"}``; keys are those
            of `ampsim.exploring.axes`. From 0 on steps are even, else in the logarithm.
        until: the condition, such as "time_s <= 0.5" or "time_s(pipeline:4) >= 2 * time_s(amp:4)";
            columns are those of `ampsim.exploring.condition`.
        target: as of `forecast`.
        max_epochs: as of `forecast`.
        repeats: seeds, from `seed` on, of what is learned.
        instances: training items to use; None for all.
        seed: the first.
        placement: as of `forecast`.
        jobs: runs to make at a time.
        on_progress: as of `forecast`.
        keeping: as of `forecast`.

    Raises:
        OptionError: an option has a value that it cannot have, the condition is none, or names what
            no run says.
        UnknownNameError: a name is not known.
        SimulationError: a run could not go on.
        KeyboardInterrupt: Ctrl-C came; what finished is kept, if runs are.

    Example:
        >>> import ampsim
        >>> model = ampsim.load_model("mlp", hidden=16, data="synthetic")
        >>> found = ampsim.solve(model, "tflops-1", "sequential", instances=400,
        ...     over={"device.flop_per_s": "1e9..1e12"}, until="epoch_s <= 0.01")
        >>> found.table["holds"].tolist(), found.table["unit"].tolist()
        (['above'], ['FLOP/s'])
    """
    loaded, on = model_of(model), cluster_of(cluster)
    condition = condition_of(until)
    cases = _cases(condition, schedules)
    setup = Setup(loaded, on, cases[0].schedules)
    axis = _range(axes_over(over, setup))
    asked = Asked(
        target=loaded.measure.require_target(target), max_epochs=max_epochs,
        repeats=repeats if condition.is_learned else 1, instances=instances, seed=seed,
        is_numeric=condition.is_learned, placement=placement,
    )  # fmt: skip
    with opened(jobs, jobs) as executor:
        maker = RunMaker(executor, on_progress, keeping)
        rows: list[dict[str, Any]] = []
        curves: list[dict[str, Any]] = []
        for case in cases:
            tried = _Points(condition, case, _Where(setup, axis, asked), maker)
            width = LEARNED if condition.is_learned else EXACT
            found = find(axis, asked.seeds, tried.holds, width)
            rows += tried.rows(found)
            curves += tried.curve()
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    return Solved(
        table=table.astype(dict.fromkeys(("value", "low", "high", "coverage"), float)),
        curve=pd.DataFrame(curves),
        sentences=tuple(_sentence(row, axis, condition) for row in rows),
        key=axis.key,
        until=condition.text,
        model=loaded.name,
        cluster=on.name,
    )


@dataclass(frozen=True, slots=True)
class _Topic:
    """What one row of the answer is about.

    Args:
        label: the schedule's, or those that the condition names.
        schedules: that run.
        places: for each schedule of the condition as written, which of them it is.
    """

    label: str
    schedules: tuple[Schedule, ...]
    places: Mapping[str, int]


def _cases(condition: Condition, schedules: SchedulesLike | None) -> list[_Topic]:
    """A case for each schedule asked about; one, where the condition names all of its own.

    Raises:
        OptionError: schedules are given that have no effect.
    """
    written = [one for one in dict.fromkeys(name for _column, name in condition.values) if one]
    own = [_named(one) for one in written]
    places = {name: place for place, name in enumerate(written)}
    if all(schedule for _column, schedule in condition.values):
        if schedules is not None:
            raise OptionError(
                f"schedules have no effect on {condition.text!r}, which names its own; leave them "
                "out"
            )
        return [_Topic(", ".join(written), tuple(own), places)]
    bare = schedules_like("amp" if schedules is None else schedules)
    return [
        _Topic(label, (*own, one), {**places, "": len(own)})
        for one, label in zip(bare, labels_of(bare), strict=True)
    ]


def _named(text: str) -> Schedule:
    """The schedule that stands in a condition, such as "amp:8".

    Raises:
        OptionError, UnknownNameError: none does.
    """
    return inner_named(text) if ":" in text or "/" in text else schedules_of(text)[0]


def _range(axes: Sequence[Axis]) -> Axis:
    """The one range.

    Raises:
        OptionError: it is none.
    """
    if len(axes) != 1 or not axes[0].is_range:
        keys = ", ".join(one.key for one in axes)
        raise OptionError(
            "solve varies one key over a range, such as device.flop_per_s=1e11..1e14, got "
            f"{keys or 'none'}{'' if len(axes) != 1 else ' by named values'}"
        )
    return axes[0]


_Sides: TypeAlias = "tuple[float, float, bool, Run]"
"""Both sides of the condition, whether it holds, and the last of the runs that say so."""


class _Where(NamedTuple):
    """What varies, from where on, and how runs are made."""

    setup: Setup
    axis: Axis
    asked: Asked


class _Points:
    """The points that were tried, of one case."""

    def __init__(self, condition: Condition, case: _Topic, where: _Where, maker: RunMaker) -> None:
        self._condition, self._case, self._maker = condition, case, maker
        self._setup, self._axis, self._asked = where
        self._rows: dict[float, list[Row]] = {}
        self._known: dict[tuple[int, float], _Sides] = {}

    def holds(self, wanted: Sequence[tuple[int, float]]) -> list[bool]:
        """Whether the condition holds with these seeds at these values."""
        new = [one for one in dict.fromkeys(wanted) if one not in self._known]
        pairs = [(row, seed) for seed, x in new for row in self._rows_at(x)]
        runs = iter(make(self._maker, self._asked, pairs))
        for seed, x in new:
            own = [(row, next(runs)) for row in self._rows_at(x)]
            self._known[seed, x] = self._sides(own)
        return [self._known[one][2] for one in wanted]

    def _rows_at(self, x: float) -> list[Row]:
        """The rows at a value, one for each schedule."""
        if x not in self._rows:
            value: AxisValue = int(x) if self._axis.is_whole else x
            start = self._setup._replace(schedules=self._case.schedules)
            rows = self._asked.rows(setup_at(start, {self._axis.key: value}))
            names = [f"{place + 1}" for place in range(len(rows))]
            self._rows[x] = [
                replace(
                    one if self._condition.is_learned else sleeping(one),
                    label=f"{one.label}, {self._axis.key}={value!r} ({name})",
                )
                for one, name in zip(rows, names, strict=True)
            ]
        return self._rows[x]

    def _sides(self, runs: Sequence[tuple[Row, Run]]) -> _Sides:
        values = {
            (column, name): column_of(column, *runs[self._case.places[name]])
            for column, name in self._condition.values
        }
        left, right = self._condition.left.of(values), self._condition.right.of(values)
        return left, right, self._condition.holds(values), runs[-1][1]

    def curve(self) -> Iterator[dict[str, Any]]:
        """Every point that was tried, in order."""
        for (seed, x), (left, right, is_held, _run) in sorted(
            self._known.items(), key=lambda one: (one[0][1], one[0][0])
        ):
            yield {
                "schedule": self._case.label, "value": x, "seed": seed, "left": left,
                "right": right, "is_held": is_held,
            }  # fmt: skip

    def rows(self, found: Crossings) -> list[dict[str, Any]]:
        """The rows of the answer."""
        roots = found.roots()
        if roots:
            return [self._row(root) for root in roots]
        held = [2 * sum(one) > len(one) for one in zip(*found.holds.values(), strict=True)]
        where = EVERYWHERE if held[0] else NOWHERE
        return [self._record(where, None, None, None)]

    def _row(self, root: Root) -> dict[str, Any]:
        value = root.value if math.isfinite(root.value) else None
        where = ABOVE if root.rises else BELOW
        found = self._record(where, value, root.low, root.high)
        more: dict[str, Any] = {
            "coverage": root.coverage or None,
            "seeds_below": root.below,
            "seeds_above": root.above,
        }
        if value is not None:
            more |= dict(zip(_NEAREST, nearest(self._axis.key, value), strict=True))
            more["bound_by"] = self._bound_at(value)
        return found | more

    def _record(
        self, where: str, value: float | None, low: float | None, high: float | None
    ) -> dict[str, Any]:
        known = {
            "schedule": self._case.label, "value": value, "low": low, "high": high,
            "unit": unit_of(self._axis.key), "holds": where, "seeds": self._asked.repeats,
        }  # fmt: skip
        return {**dict.fromkeys(COLUMNS), **known}

    def _bound_at(self, value: float) -> str | None:
        """What binds the run at the point tried that is nearest to a value."""
        near = min(self._known, key=lambda key: (distance(key[1], value), key[0]))
        run = self._known[near][3]
        return named(run.bound_by, run.bound_at) if run.bound_by else None


_NEAREST: Final = ("device_below", "device_above")
_TO_TARGET: Final = (
    "time_to_target_s", "epochs_to_target", "cost_to_target_usd", "energy_to_target_j",
)  # fmt: skip


def column_of(column: str, row: Row, run: Run) -> float:
    """The value of a column of a run; infinite of one to the target that does not arrive.

    Raises:
        SimulationError: a run that was to be timed ended early.
        OptionError: nobody says it, as the price of a device that has none.
    """
    if column in TIMED and run.failure:
        raise SimulationError(f"{row.label}: {run.failure}")
    if column == "epoch_s":
        return epoch_s(run)
    found = row_of(row.label, row.plan.goal, [run])
    value = found[column]
    if column in _TO_TARGET and found["time_to_target_s"] is None:
        return math.inf
    if value is None or math.isnan(value):
        if run.failure:
            return math.nan
        raise OptionError(f"until: {row.label} says no {column}; ask for another column")
    return float(value)


def nearest(key: str, value: float) -> tuple[str | None, str | None]:
    """The shipped devices whose number is nearest below a value, and at it or above."""
    room, _dot, number = key.partition(".")
    if room != "device":
        return None, None
    devices = [load_device(name) for name in assets.names("devices")]
    known = [(getattr(one, number), one.name) for one in devices if getattr(one, number)]
    below = max((one for one in known if one[0] < value), default=(0, None))
    above = min((one for one in known if one[0] >= value), default=(0, None))
    return below[1], above[1]


_UNITS: Final = {
    "flop_per_s": "FLOP/s", "bytes_per_s": "bytes/s", "functions_per_s": "1/s", "_s": "s",
    "_bytes": "bytes", "_w": "W", "_usd_per_h": "USD/h",
}  # fmt: skip


def unit_of(key: str) -> str:
    """The unit that a key's name ends with; empty of a count.

    >>> unit_of("device.flop_per_s"), unit_of("latency_s"), unit_of("workers")
    ('FLOP/s', 's', '')
    """
    return next((unit for end, unit in _UNITS.items() if key.endswith(end)), "")


def _sentence(row: Mapping[str, Any], axis: Axis, condition: Condition) -> str:
    """What a row says."""
    start = f"{row['schedule']}: {condition.text}"
    ends = f"{axis.low:g} to {axis.high:g}"
    if row["value"] is None:
        where = {EVERYWHERE: f"holds everywhere from {ends}", NOWHERE: f"holds nowhere from {ends}"}
        beyond = f"begins or ends to hold outside of {ends} with most seeds"
        return f"{start} {where.get(row['holds'], beyond)}, in {axis.key}."
    way = "from" if row["holds"] == ABOVE else "up to"
    said = f"{start} holds {way} {axis.key} = {row['value']:.4g}"
    low, high = ("?" if row[name] is None else f"{row[name]:.4g}" for name in ("low", "high"))
    if row["coverage"] is None:
        said += f" (between {low} and {high})"
    else:
        covered = f"{100 * row['coverage']:.3g} %"
        said += f" ({low} to {high}, {covered} by {row['seeds']} seeds)"
    outside = row["seeds_below"] + row["seeds_above"]
    said += f"; {outside} of {row['seeds']} seeds do not cross in the range" if outside else ""
    said += f"; there {row['bound_by']} binds" if row["bound_by"] else ""
    bought = [
        f"{row[name]} has {word}" for name, word in zip(_NEAREST, ("less", "enough"), strict=True)
        if row[name]
    ]  # fmt: skip
    if row["holds"] == BELOW:
        bought = [one.replace("enough", "more") for one in bought]
    return f"{said}; {' and '.join(bought)}." if bought else f"{said}."


def cells(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Headings and rows for a person."""
    headings = ["schedule", "holds", "value", "low", "high", "unit", "seeds", "binds"]
    rows = [
        [
            str(one["schedule"]), str(one["holds"]),
            *("–" if one[name] is None or math.isnan(one[name]) else f"{one[name]:.4g}"
              for name in ("value", "low", "high")),
            str(one["unit"]), str(one["seeds"]), str(one["bound_by"] or "–"),
        ]
        for one in table.to_dict("records")
    ]  # fmt: skip
    return headings, rows


def to_plain(found: Solved) -> dict[str, Any]:
    """The answer as JSON can hold it; unknown and infinite are None."""
    return {"rows": plain_rows(found.table), "curve": plain_rows(found.curve)}
