"""The inverse question: how fast, or how many, must something be until a condition holds?

What is timed alike with each seed is exact: its root is a bracket, as narrow as asked for. What is
learned, or varies, differs with the seed: each has a root of its own, and their median an interval.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Unpack

import numpy as np
import pandas as pd

from ampsim.errors import OptionError, SimulationError
from ampsim.exploring.axes import Axis, axes_over, place_words, require_open, setup_of
from ampsim.exploring.condition import SHORT, Condition, condition_of
from ampsim.exploring.crossings import SEEDS, Crossings, Root, find, first_points
from ampsim.exploring.finding import Figures, Finding, Lines
from ampsim.exploring.making import FirstEpoch, How, Many, PointRuns, Query, question, rows_at
from ampsim.forecasting.making import traced
from ampsim.hardware.load import nearest
from ampsim.model_parallel import Schedule
from ampsim.output_folder import Kind
from ampsim.report.plot.whatif import both_sides
from ampsim.runs.rows import row_of
from ampsim.runs.run import Run, run_of
from ampsim.runs.task import Row
from ampsim.study.bound_words import behind_messages, named
from ampsim.study.schedule_names import labels_of, schedules_of
from ampsim.study.simulation import ClusterLike, Mode, ModelLike, SchedulesLike
from ampsim.study.simulation import schedules_of as schedules_like
from ampsim.units import NO_CHANGE, UNKNOWN, format_as, unit_of

EXACT: Final = 1e-3  # share of its higher end that a bracket has (chosen: none is known better)
LEARNED: Final = 1e-2  # the same of what is learned (chosen: seeds differ by more)
ALONE: Final = "All is of seed {} alone, and others may differ: no bracket is exact."

COLUMNS: Final = (
    "schedule", "value", "low", "high", "unit", "holds", "coverage", "seeds", "seeds_below",
    "seeds_above", "bound_by", "device_below", "device_above",
)  # fmt: skip


@question
def solve(
    model: ModelLike,
    cluster: ClusterLike,
    schedules: SchedulesLike | None = None,
    *,
    over: Mapping[str, Annotated[str, "text such as '1e11..1e14'"]],
    until: str,
    repeats: Many = SEEDS,
    **how: Unpack[How],
) -> Solved:
    """Find where along a range of something a condition begins or ends to hold.

    Args:
        model: as of `forecast`.
        cluster: likewise.
        schedules: whose columns are meant where the condition names no schedule; None for "amp".
        over: one key and its range, such as ``{"device.flop_per_s": "1e11..1e14"}``; keys are those
            of `ampsim.exploring.axes`. From 0 on steps are even, else in the logarithm.
        until: the condition, such as "time_s <= 0.5" or "time_s(pipeline:4) >= 2 * time_s(amp:4)";
            columns are those of `ampsim.exploring.condition`.
        repeats: seeds, from `seed` on, of what is learned, or timed where two seeds differ in that.
        how: as of `forecast`.

    Raises:
        OptionError: an option has a value that it cannot have, or the condition names what no run
            says.
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
    condition = condition_of(until)
    is_learned, topics = condition.is_learned, _topics(condition, schedules)
    setup = setup_of(model, cluster, next(iter(topics.values())))
    axis = _range(axes_over(over, setup))
    require_open([*condition.schedules, schedules], [axis])
    mode: Mode = "numeric" if is_learned else "sleep"
    beside = tuple(one for own in topics.values() for one in own)
    asked = Query(setup=setup, beside=beside, repeats=repeats, mode=mode, **how)
    if asked.aimed_at is None and {*SHORT.values()} & {column for column, _of in condition.values}:
        raise OptionError(f"{setup.model.name} has no target, and {until!r} needs one; give target")
    with asked.runs() as runs:
        about = list[_Points]()
        for label, own in topics.items():
            of = replace(asked, setup=setup._replace(schedules=own))
            about.append(_Points(condition, axis, of, runs, label))
        differ = is_learned or setup.cluster.varies or any(one.differ() for one in about)
        asked = asked if differ else replace(asked, repeats=1)
        narrow = partial(find, axis, asked.seeds, tolerance=LEARNED if is_learned else EXACT)
        found = [one.rows(narrow(one.holds)) for one in about]
    rows, reasons = [*itertools.chain(*found)], [tried.failure for tried in about]
    if all(reasons):
        raise SimulationError(reasons[0])
    failed = [*itertools.chain(*(tried.failed() for tried in about)), *runs.said()]
    failed += [ALONE.format(asked.seed)] if differ and repeats == 1 else []
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    curve = pd.DataFrame([*itertools.chain(*(tried.curve() for tried in about))])
    place = place_words(setup.cluster.name, {axis.key: ()})
    return Solved(
        title=f"{setup.model.name} on {place}: {axis.key} until {condition.text}", cluster=place,
        table=table.astype(dict.fromkeys(("value", "low", "high", "coverage"), float)),
        curve=curve, key=axis.key, until=condition.text, model=setup.model.name,
        sentences=(*(_sentence(row, axis, condition) for row in rows), *failed),
        manifest=asked.manifest(over={axis.key: [axis.low, axis.high]}, until=condition.text),
    )  # fmt: skip


def _topics(
    condition: Condition, schedules: SchedulesLike | None
) -> dict[str, tuple[Schedule, ...]]:
    """Return the schedules that the answer has rows of, by label: the condition's, and one.

    That one is each that is asked about; none, where the condition names all of its own.
    """
    written = condition.schedules
    own = [schedules_of(one)[0] for one in written]
    if all(schedule for _column, schedule in condition.values):
        if schedules is not None:
            raise OptionError(
                f"schedules (--schedule) have no effect on {condition.text!r}, which names its "
                "own; leave them out"
            )
        return {", ".join(written): tuple(own)}
    bare = schedules_like("amp" if schedules is None else schedules)
    return {label: (*own, one) for one, label in zip(bare, labels_of(bare), strict=True)}


def _range(axes: Sequence[Axis]) -> Axis:
    if len(axes) != 1 or not axes[0].is_range:
        keys = ", ".join(one.key for one in axes)
        raise OptionError(
            "solve varies one key over a range, such as device.flop_per_s=1e11..1e14, got "
            f"{keys or 'none'}{'' if len(axes) != 1 else ' with values by name'}"
        )
    return axes[0]


class _TriedPoint(NamedTuple):
    left: float = math.nan  # side of the condition; NaN where it is unknown
    right: float = math.nan
    is_held: bool = False  # which it is not where a side is unknown
    made: Run | Row | None = None  # the last run, or its row if it is timed; None if one failed
    failure: str = ""  # why, in the first run that did


@dataclass(frozen=True)
class _Points:
    """The points that were tried, of one topic, by seed and value."""

    condition: Condition
    axis: Axis
    asked: Query
    runs: PointRuns
    label: str
    known: dict[tuple[int, float], _TriedPoint] = field(default_factory=dict[Any, Any])

    def holds(self, wanted: Sequence[tuple[int, float]]) -> list[bool]:
        """Tell whether the condition holds with these seeds at these values."""
        new = [one for one in dict.fromkeys(wanted) if one not in self.known]
        rows: dict[float, Any] = {x: self._rows_at(x) for x in {x: None for _seed, x in new}}
        unfit = {x: one for x, one in rows.items() if isinstance(one, str)}
        pairs = [(row, seed) for seed, x in new if x not in unfit for row in rows[x]]
        made = iter((self.runs.learn if self.condition.is_learned else self.runs.time)(pairs))
        for seed, x in new:
            self.known[seed, x] = (
                _TriedPoint(failure=unfit[x]) if x in unfit
                else self._tried([(row, next(made)) for row in rows[x]])
            )  # fmt: skip
        return [self.known[one].is_held for one in wanted]

    def differ(self) -> bool:
        """Tell whether two seeds, of groups that are drawn all, differ anywhere at first."""
        points, first = first_points(self.axis), self.asked.seed
        count = max(least := self.asked.compared, self.asked.repeats)
        seeds = range(first, first + count, 1 if least > 2 else count - 1)  # data in unlike orders
        self.holds([(seed, x) for seed in seeds for x in points])
        each = [[self.known[seed, x][:2] for x in points] for seed in seeds]
        return not np.allclose(each, each[:1], rtol=NO_CHANGE, atol=0, equal_nan=True)

    def _rows_at(self, x: float) -> list[Any] | str:
        """The rows at a value, or why one of them does not fit."""
        key, value = self.axis.key, int(x) if self.axis.is_whole else x
        labelled, base = f"{{}}, {key}={value:.6g}".format, self.asked.rows
        rows = rows_at(base, {key: value}, labelled, self.asked.seed, self.asked.known)
        unfit = [place for place, row in enumerate(rows) if isinstance(row, str)]
        return f"{labelled(base[unfit[-1]].label)}: {rows[unfit[-1]]}" if unfit else rows

    @property
    def failure(self) -> str | None:
        """Why a run failed where all did; None where one gave something."""
        found = [*self.known.values()]
        return None if any(one.made for one in found) else found[0].failure

    def _tried(self, made: Sequence[tuple[Any, Run | FirstEpoch | str]]) -> _TriedPoint:
        condition = self.condition
        by_name = dict(zip([*condition.schedules, ""], made, strict=False))
        values = {(of, name): column_of(of, *by_name[name]) for of, name in condition.values}
        failures = [(row, one if isinstance(one, str) else one.failure) for row, one in made]
        why = next((f"{row.label}: {failure}" for row, failure in failures if failure), "")
        row, last = made[-1]
        run = None if why else last if isinstance(last, Run) else row
        return _TriedPoint(*condition.sides(values), condition.holds(values), run, why)

    def failed(self) -> list[str]:
        """At how many points a run failed, in a sentence, and why; else none."""
        failures = [one.failure for one in self.known.values() if one.failure]
        return [
            f"At {len(failures)} of {len(self.known)} points tried a run failed, where the "
            f"condition is taken not to hold: {failure}."
            for failure in failures[:1]
        ]

    def curve(self) -> list[dict[str, Any]]:
        return [
            {"schedule": self.label, "value": x, "seed": seed, "left": one.left,
             "right": one.right, "is_held": one.is_held}
            for (seed, x), one in sorted(self.known.items(), key=lambda one: one[0][::-1])
        ]  # fmt: skip

    def rows(self, found: Crossings) -> list[dict[str, Any]]:
        seeds = len(found.holds)
        if roots := found.roots():
            return [self._row(root, seeds) for root in roots]
        sides = [side for one in self.known.values() for side in (one.left, one.right)]
        if not any(map(math.isfinite, sides)):
            return [self._record("unknown", seeds)]
        apart = {
            abs(one.left - one.right) / (one.left + one.right or 1.0): (x, one.left, one.right)
            for (_seed, x), one in self.known.items()
        }
        near = apart.get(min(filter(math.isfinite, apart), default=-1.0))
        return [self._record("everywhere" if found.most[0] else "nowhere", seeds, near=near)]

    def _row(self, root: Root, seeds: int) -> dict[str, Any]:
        below, above = nearest(self.axis.key, root.value)
        more = {**root._asdict(), "bound_by": self._bound_at(root.value)}
        more |= {"device_below": below, "device_above": above}
        return self._record("above" if more.pop("rises") else "below", seeds, **more)

    def _record(self, holds: str, seeds: int, **more: Any) -> dict[str, Any]:
        known = {"schedule": self.label, "unit": unit_of(self.axis.key), "holds": holds}
        return {**dict.fromkeys(COLUMNS), **known, "seeds": seeds, **more}

    def _bound_at(self, value: float) -> str | None:
        """Name what binds the run at the point tried that is nearest to a value."""
        known = [(key, one.made) for key, one in self.known.items() if one.made is not None]
        (seed, _x), made = min(known, key=lambda one: (abs(one[0][1] - value), one[0][0]))
        run = run_of(traced(made, seed)) if isinstance(made, Row) else made
        at = behind_messages(run.bound_by, run.bound_at, run.path_parts)
        return named(run.bound_by, at) if run.bound_by else None


def column_of(column: str, row: Row, made: Run | FirstEpoch | str) -> float:
    """The value of a column of a run; infinite of one to the target that does not arrive.

    NaN of a run that failed, and an OptionError where nobody says it, as a price that is none.
    """
    if isinstance(made, str) or made.failure:
        return math.nan
    if isinstance(made, FirstEpoch):
        value = made.columns[column]
    elif column == "epoch_s":
        value = float(made.epochs["time_s"].iloc[0])
    else:
        found = row_of(row.label, row.plan.goal, [made])
        value = found[column]
        if column in SHORT.values() and found["time_to_target_s"] is None:
            return math.inf
    if value is not None and not math.isnan(value):
        return float(value)
    raise OptionError(f"until: {row.label} says no {column}; ask for another column")


def _sentence(row: Mapping[str, Any], axis: Axis, condition: Condition) -> str:
    start, holds = f"{row['schedule']}: {condition.text}", row["holds"]
    if row["value"] is None:
        found = "is unknown" if holds == "unknown" else f"holds {holds}"
        near = "; nearest at {} = {:.4g}, with {:.4g} against {:.4g}"
        told = near.format(axis.key, *row["near"]) if holds == "nowhere" and row["near"] else ""
        return f"{start} {found} from {axis.key} = {axis.low:g} to {axis.high:g}{told}."
    way = "from" if holds == "above" else "up to"
    said = f"{start} holds {way} {axis.key} = {row['value']:.4g}"
    low, high = ("?" if row[name] is None else f"{row[name]:.4g}" for name in ("low", "high"))
    if row["coverage"] is None:
        said += f" (between {low} and {high})" if low != high else ""  # as far as is printed
    else:
        said += f" ({low} to {high}, {100 * row['coverage']:.3g} % by {row['seeds']} seeds)"
    outside = row["seeds_below"] + row["seeds_above"]
    said += f"; {outside} of {row['seeds']} seeds do not cross in the range" if outside else ""
    named = condition.schedules if all(name for _column, name in condition.values) else ()
    whose = f"{named[-1]} " if len(named) > 1 else ""
    said += f"; what binds {whose}there: {row['bound_by']}" if row["bound_by"] else ""
    words = {"device_below": "less", "device_above": "more" if holds == "below" else "enough"}
    bought = [f"{row[name]} has {word}" for name, word in words.items() if row[name]]
    return f"{said}; {' and '.join(bought)}." if bought else f"{said}."


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Solved(Finding):
    """The result of `solve`: the values of a key at which a condition begins or ends to hold.

    Attributes:
        table: one row a crossing of a schedule, or of the schedules that the condition names:
            `value` of the key, from which on, or up to which, the condition `holds` ("above" or
            "below"; or, with no value, "everywhere" or "nowhere", or "unknown" where no run reaches
            the target that both sides ask for). Of what is exact, `low` and `high` bracket it; of
            others they are the interval of the median over `seeds`, with its `coverage`, and
            `seeds_below` and `seeds_above` have their root outside of the range. `bound_by` is
            what binds the run there; `device_below` and `device_above` are the shipped devices
            whose number is nearest on either side. Unknown is missing.
        curve: one row a point that was tried: schedule, value, seed, left and right side of the
            condition, is_held.
        key: what varies.
        until: the condition.
    """

    kind: ClassVar[Kind] = "solve"
    files: ClassVar = {
        "report.md": "page", "solve.csv": "table", "curve.csv": "curve", "solve.png": "figure",
    }  # fmt: skip
    told = ("sentences", "rows", "curve")

    curve: pd.DataFrame
    key: str
    until: str

    @property
    def cells(self) -> Lines:
        """Its rows."""
        names = ["schedule", "holds", "value", "low", "high", "unit", "seeds", "bound_by"]
        rows: Any = self.table.astype(object).where(self.table.notna(), UNKNOWN).to_dict("records")
        return [*names[:-1], "binds"], [[format_as("", row[one]) for one in names] for row in rows]

    def figures(self) -> Figures:
        """Both sides of the condition over what varies."""
        is_log = bool((self.curve["value"] > 0).all())
        return {"solve.png": both_sides(self.curve, self.key, self.until, is_log=is_log)}
