"""The verdict, in one or two sentences: who is first, who ties, or that seeds are too few.

It says what `ampsim.runs.ranking` found, which stands in the table, and no more. The leading row
is compared with the next and with the best pipeline that drains, unless there are fewer seeds than
could call any order: then nothing is ranked. A last sentence names rows that there is no run of.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ampsim.errors import OVERDUE
from ampsim.metric import ACCURACY, Goal, Metric
from ampsim.report.frames import DataFrame, Row, labelled_rows, number, rows, text
from ampsim.report.table import items_of, speed_ratio
from ampsim.report.words import listed, plain
from ampsim.runs.ranking import SAME, Sureness, seeds_needed
from ampsim.study.learning_rates import COLUMNS as RATE_COLUMNS
from ampsim.units import format_count, format_rate, format_seconds

_NAMED_MAX: Final = 3
"""Rows that a sentence names at most (chosen: of more it says how many; the table has them all)."""

_DRAINS: Final = "the best pipeline that drains"
_ENDED: Final = "medians leave out seeds whose run the limit ended; no call does"


def verdict(
    table: DataFrame,
    target: float | None,
    metric: Metric = ACCURACY,
    manifest: Mapping[str, Any] | None = None,
) -> str:
    """Say who reaches the target first, ties, or cannot be told apart, in plain text.

    Where none reaches it or nothing was measured, it is who has the highest throughput. Schedules
    that missed the target, or must not be compared, are named.

    Args:
        table: a row for each schedule.
        target: value of `metric` aimed at, or None.
        metric: what validation measures.
        manifest: that of the table: how `sure` its ranks are, how many seeds all rows share, and
            the labels of rows `without_runs`, which it lacks, and `lost_runs` in sentences.
    """
    known = {**(manifest or {})}
    if gone := known.pop("without_runs", None):
        return f"{verdict(table, target, metric, known)} There is no run of {listed(_some(gone))}."
    records = labelled_rows(table, 48)
    if not records:
        return "No schedule was finished, so there is nothing to compare."
    if not any(number(row, "train_per_s") > 0 or _has_reached(row) for row in records):
        return "No run of any row finished an epoch, so there is nothing to compare."
    best, column = _best(records), metric.best_column
    if all(math.isnan(number(row, column)) and not _has_reached(row) for row in records):
        return f"{_speed(records)}. No {metric.kind} was computed, so time to a target is unknown."
    if target is None:
        return f"{_speed(records)}{_stale(best)}.{_unranked(records, metric, known)}"
    goal = Goal(metric, target)
    if not _has_reached(best):
        return f"{_speed(records)}{_stale(best)}. {_all_missed(records, goal)}"
    if len(records) == 1:
        epochs = number(best, "epochs_to_target")
        after = f", after {format_count(epochs)} epoch{'s' * (epochs != 1)}" if epochs >= 0 else ""
        return f"{_speed(records)} and reaches {goal.text} in {_when(best)}{after}{_stale(best)}."
    return _answer(records, best, goal, known)


def called_rows(table: DataFrame) -> list[int]:
    """Places of the row that `verdict` calls first, or of those that tie.

    None where it is not known how sure the order is, or there are too few seeds; where none reached
    the target, the row with the highest throughput, if one is known.
    """
    records = rows(table)
    if not {text(row, "standing") for row in records} - {"", "not compared"}:
        return []
    best = _best(records)
    if len(records) > 1 and _has_reached(best):
        is_called = text(best, "standing") in ("first", "tie")
        tied = [row is best or text(row, "standing") == "tie" for row in records]
        return [place for place, is_so in enumerate(tied) if is_so and is_called]
    is_known = number(best, "train_per_s") > 0
    return [place for place, row in enumerate(records) if row is best and is_known]


def _best(records: Sequence[Row]) -> Row:
    """The row with the shortest time of those that may be compared, else the highest throughput."""
    reached = [row for row in _in_order(records) if _has_reached(row)]
    if reached:
        return next((row for row in reached if _is_compared(row)), reached[0])
    known = [row for row in records if not math.isnan(number(row, "train_per_s"))]
    return max(known or records, key=lambda row: number(row, "train_per_s"))


def _has_reached(row: Row) -> bool:
    return not math.isnan(number(row, "time_to_target_s"))


def _is_compared(row: Row) -> bool:
    return text(row, "standing") != "not compared"


def _name(row: Row) -> str:
    return text(row, "schedule")


def _speed(records: Sequence[Row]) -> str:
    """Compare the fastest row's training with the next and the best pipeline that drains."""
    known = [row for row in records if number(row, "train_per_s") > 0]
    best, *others = sorted(known or records, key=lambda row: -number(row, "train_per_s"))
    said = [
        f"{_as_fast(speed_ratio(best, row))} {what}, {_name(row)} ({_rate(row)})"
        for row, what in _rivals(best, others)
    ]
    return f"{_name(best)} trains {_rate(best)}{': ' if said else ''}{', and '.join(said)}"


def _as_fast(ratio: float) -> str:
    return "about as fast as" if ratio < 1 + SAME else f"{_times(ratio)} times as fast as"


def _rivals(best: Row, others: Sequence[Row]) -> list[tuple[Row, str]]:
    """Choose whom to compare the best with, of all others, the better first; say what each is."""
    if not others:
        return []
    drained = next((row for row in others if number(row, "is_draining_pipeline") == 1), None)
    if drained is None or number(best, "is_draining_pipeline") == 1:
        return [(others[0], "the next")]
    if drained is others[0]:
        return [(drained, f"the next and {_DRAINS}")]
    return [(others[0], "the next"), (drained, _DRAINS)]


def _unranked(records: Sequence[Row], metric: Metric, known: Mapping[str, Any]) -> str:
    """Say that fewer seeds than could call an order rank no rows; empty where there are enough."""
    count = _shared(records, known)
    if len(records) == 1 or not count < seeds_needed(len(records)):
        return ""
    ranks = f"rank{'s' * (count == 1)} none of {len(records)} rows"
    return f" {_seeds(count)} {ranks} by {metric.kind}."


def _shared(of: Iterable[Row], known: Mapping[str, Any]) -> float:
    return min(known.get("shared_seeds", math.inf), *(number(row, "repeats") for row in of))


def _seeds(count: float) -> str:
    return f"{count:.0f} seed{'s' * (count != 1)}"


def _rate(row: Row) -> str:
    """Training throughput with the name of its items: "2.08 M lists/s"."""
    said, items = format_rate(number(row, "train_per_s")), items_of([row])
    has_items = items and said.endswith("/s")
    return f"{said.removesuffix('/s').rstrip()} {items}/s" if has_items else said


def _times(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 9.95 else f"{ratio:.2f}"


def _stale(row: Row) -> str:
    mean = number(row, "staleness_mean")
    said = f"{mean:.2g}" if mean < 99.5 else format_count(mean)
    told = f", with a mean staleness of {said} updates" if mean else ", with no staleness"
    return "" if math.isnan(mean) else told


def _when(row: Row) -> str:
    """Time to the target, and in how many repeats if not in all."""
    reached, repeats = number(row, "repeats_reached"), number(row, "repeats")
    if not _has_reached(row):
        return f"in {reached:.0f} of {repeats:.0f} repeats only" if reached else "in no repeat"
    some = f", {reached:.0f} of {repeats:.0f} repeats" if reached < repeats else ""
    return f"{format_seconds(number(row, 'time_to_target_s'))}{some}"


def _answer(records: Sequence[Row], best: Row, goal: Goal, known: Mapping[str, Any]) -> str:
    """One of the three answers, then how far ahead the best is, and who is left out."""
    sureness = Sureness(**{key: known[key] for key in ("sure", "looks") if key in known})
    count = _shared(filter(_is_compared, records), known)
    seeds = _seeds(count)
    others = [row for row in _in_order(records) if row is not best and _is_compared(row)]
    alike = [row for row in others if text(row, "standing") == text(best, "standing")]
    arrived = [row for row in others if _has_reached(row) and number(row, "time_ratio") > 0]
    ahead = _ahead(best, arrived)
    clauses: list[str] = []
    match text(best, "standing"):
        case "first":
            how = f"first, in {_when(best)}: {ahead}" if ahead else f"alone, in {_when(best)}"
            said = f"With {seeds}, {_name(best)} reaches {goal.text} {how}"
        case "tie":
            said = (
                f"With {seeds}, {_names([best, *alike])} tie: they reach {goal.text} within "
                f"{100 * SAME:.0f} % of each other's time{_spread(alike)}"
            )
            ahead = _ahead(best, [row for row in arrived if row not in alike])
            clauses = [f"of these {_name(best)} is {ahead}"]
        case "too few seeds":
            said = _too_few(seeds, best, alike, goal)
            raced = [row for row in others if text(row, "standing") != "not reached"]
            if count < seeds_needed(1 + len(raced), sureness):
                said, ahead = f"{said}, and fewer rank nothing", ""
            clauses = [f"in the median {_name(best)} is {ahead}"]
        case _:
            said = f"{_name(best)} reaches {goal.text} in {_when(best)}"
            said += ", and nothing is sure of others"
    ended = [_ENDED] * any(OVERDUE in one for one in known.get("lost_runs", ()))
    behind = "; ".join([*(clauses if ahead else []), *_left_out(records, goal), *ended])
    return f"{said}. {behind[0].upper()}{behind[1:]}." if behind else f"{said}."


def _too_few(seeds: str, best: Row, alike: Sequence[Row], goal: Goal) -> str:
    few = f"{seeds} {'is' if seeds == '1 seed' else 'are'} too few"
    needed = number(best, "seeds_needed")
    enough = "" if math.isnan(needed) else f"; about {needed:.0f} would do"
    if not alike:
        return f"{few} to say that {_name(best)} ({_when(best)}) alone reaches {goal.text}{enough}"
    return f"{few} to say which of {_names([best, *alike])} reaches {goal.text} first{enough}"


def _ahead(best: Row, others: Sequence[Row]) -> str:
    """Compare the best row's time with the next and the best pipeline that drains."""
    return ", and ".join(
        f"{_sooner(row)} as soon as {what}, {_name(row)}" for row, what in _rivals(best, others)
    )


def _sooner(row: Row) -> str:
    """The ratio of a row's time to that of the best, with its interval."""
    ratio, low, high = (number(row, f"time_ratio{end}") for end in ("", "_low", "_high"))
    if math.isnan(low):
        return f"{_times(ratio)} times"
    ends = f"{_times(low)} or more" if math.isnan(high) else f"{_times(low)} to {_times(high)}"
    if math.isnan(high) and low == 0:  # some seeds of each did not arrive
        ends = "with these seeds it may be any other"
    return f"{_times(ratio)} times ({ends})"


def _spread(tied: Sequence[Row]) -> str:
    """Between which ratios the times of tied rows lie."""
    low = min(number(row, "time_ratio_low") for row in tied)
    high = max(number(row, "time_ratio_high") for row in tied)
    return f" (ratios of {_times(low)} to {_times(high)})"


def _names(named: Sequence[Row]) -> str:
    return listed(_some([f"{_name(row)} ({_when(row)})" for row in named]))


def _some(told: Sequence[str]) -> list[str]:
    """Give as many as a sentence names, and how many more there are."""
    more = len(told) - _NAMED_MAX
    return [*told[:_NAMED_MAX], f"{more} more"] if more > 0 else list(told)


def _in_order(records: Sequence[Row]) -> list[Row]:
    """The soonest first; of equal ones that with which others were compared, which has no flip."""
    known = sorted(records, key=lambda row: number(row, "order_flip_probability") >= 0)
    return sorted(known, key=lambda row: (not _has_reached(row), number(row, "time_to_target_s")))


def _left_out(records: Sequence[Row], goal: Goal) -> list[str]:
    """Name the rows that missed the target, and those that must not be compared."""
    missed = [row for row in records if not _has_reached(row) and _is_compared(row)]
    apart = [row for row in records if not _is_compared(row)]
    said = {
        f"{goal.text} is not reached by ": [
            f"{_name(row)} ({_shortfall(row, goal)})" for row in missed
        ],
        "not compared: ": [f"{_name(row)} ({_why_apart(row)})" for row in apart],
    }
    return [f"{what}{', '.join(_some(names))}" for what, names in said.items() if names]


def _why_apart(row: Row) -> str:
    rule = text(row, RATE_COLUMNS[2])
    if rule.startswith("not tuned"):
        return plain(rule.partition(":")[0].replace("(", "as ").replace(")", ""), 80)
    return "it diverged at the learning rate that the scaling rule raised"


def _shortfall(row: Row, goal: Goal) -> str:
    """The repeats of a row that reached the target, if any; otherwise the row's best value."""
    reached = number(row, "repeats_reached")
    if reached > 0:
        return f"only in {reached:.0f} of {number(row, 'repeats'):.0f} repeats"
    best = number(row, goal.metric.best_column)
    return "no run was validated" if math.isnan(best) else f"best {goal.score_text(best)}"


def _all_missed(records: Sequence[Row], goal: Goal) -> str:
    """A sentence for the case that no row reached the target in more than half of its runs."""
    some = [row for row in records if 0 < number(row, "repeats_reached") < number(row, "repeats")]
    if some:
        names = listed(_some([f"{_name(row)} {_when(row)}" for row in some]))
        return f"In the median no schedule reached {goal.text}; {names}."
    column = goal.metric.best_column
    known = [score for row in records if not math.isnan(score := number(row, column))]
    nearest = (max if goal.metric.is_rising else min)(known)
    closest = [row for row in records if number(row, column) == nearest]  # of which several may be
    best = goal.score_text(nearest)
    if len(records) == 1:
        return f"It did not reach {goal.text}; its best {goal.metric.kind} was {best}."
    names = listed(_some([_name(row) for row in closest]))
    return f"No schedule reached {goal.text}; {names} came closest with {best}."
