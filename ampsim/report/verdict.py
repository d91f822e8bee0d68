"""The verdict, in one or two sentences: the fastest schedule, its speed-up, its staleness."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ampsim.metric import ACCURACY, Goal, Metric
from ampsim.report.columns import format_count, items_of, speed_ratio
from ampsim.report.frames import DataFrame, Row, labelled_rows, number, rows, text
from ampsim.report.words import listed, plain
from ampsim.study.ranking import seeds_needed
from ampsim.units import format_percent, format_rate, format_seconds

_SAME = 0.05  # chosen: throughputs that differ by less are called about equal


def verdict(table: DataFrame, target: float | None, metric: Metric = ACCURACY) -> str:
    """The best schedule against the first row, in plain text.

    The best schedule reaches the target first; where none reaches it or nothing was measured, it
    has the highest throughput. Schedules that missed the target are named.

    Args:
        table: a row for each schedule.
        target: value of `metric` aimed at, or None.
        metric: what validation measures.
    """
    records = labelled_rows(table)
    if not records:
        return "No schedule was finished, so there is nothing to compare."
    first, best = records[0], _best(records)
    if _is_blind(records, metric):
        what = f"No {metric.kind} was computed, so time to a target is unknown."
        return f"{_speed(best, first)}. {what}"
    if target is None:
        return f"{_speed(best, first)}{_stale(best)}."
    goal = Goal(metric, target)
    if not _has_reached(best):
        return f"{_speed(best, first)}{_stale(best)}. {_all_missed(records, goal)}"
    if best is first and any(map(_is_tied, records)):
        said = f"{_name(best)} has the smallest median, training {_rate(best)}{_stale(best)}."
    elif best is first and len(records) > 1:
        said = _first_wins(records, goal)
    else:
        said = _reaching(best, first, goal)
    return f"{_tie(records, best, goal)}{said}{_sureness(records, best)}{_missed(records, goal)}"


def best_rows(table: DataFrame) -> list[int]:
    """Places of the row that `verdict` calls the best, and of those that tie with it.

    None where there is no row, or where one seed each says nothing of their order.
    """
    records = rows(table)
    if not records:
        return []
    best = _best(records)
    if _is_ranked(records):
        return [index for index, row in enumerate(records) if row is best or _is_tied(row)]
    if _has_reached(best) and len(records) > 1 and number(best, "repeats") == 1:
        return []
    return [index for index, row in enumerate(records) if row is best]


def called_rows(table: DataFrame) -> list[int]:
    """The same, but only where it is known how sure their order is."""
    return best_rows(table) if _is_ranked(rows(table)) else []


def _best(records: Sequence[Row]) -> Row:
    reached = [row for row in records if _has_reached(row)]
    if reached:
        return min(reached, key=lambda row: number(row, "time_to_target_s"))
    known = [row for row in records if not math.isnan(number(row, "train_per_s"))]
    return max(known or records, key=lambda row: number(row, "train_per_s"))


def _has_reached(row: Row) -> bool:
    return not math.isnan(number(row, "time_to_target_s"))


def _is_blind(records: Sequence[Row], metric: Metric) -> bool:
    """Whether nothing was measured of any row, as in mode sleep."""
    return all(
        math.isnan(number(row, metric.best_column)) and not _has_reached(row) for row in records
    )


def _name(row: Row) -> str:
    return plain(text(row, "schedule"), 32)


def _speed(row: Row, first: Row) -> str:
    """How fast `row` trains, alone or against `first`."""
    rate = _rate(row)
    ratio = speed_ratio(row, first)
    if row is first or math.isnan(ratio):
        return f"{_name(row)} trains {rate}"
    against = f"({rate} against {_rate(first)})"
    name, other = _name(row), _name(first)
    if abs(ratio - 1.0) < _SAME:
        return f"{name} trains about as fast as {other} {against}"
    return f"{name} trains {_times(ratio)} times as fast as {other} {against}"


def _rate(row: Row) -> str:
    """Training throughput with the name of its items: "2.08 M lists/s"."""
    said, items = format_rate(number(row, "train_per_s")), items_of([row])
    if not items or not said.endswith("/s"):
        return said
    return f"{said.removesuffix('/s').rstrip()} {items}/s"


def _times(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 9.95 else f"{ratio:.2g}"


def _stale(row: Row) -> str:
    """The mean staleness, where it is known."""
    mean = number(row, "staleness_mean")
    if math.isnan(mean):
        return ""
    return f", with a mean staleness of {mean:.2g} updates" if mean else ", with no staleness"


def _when(row: Row) -> str:
    """Time to the target, and in how many repeats if not in all."""
    reached, repeats = number(row, "repeats_reached"), number(row, "repeats")
    if not _has_reached(row):
        return f"in {reached:.0f} of {repeats:.0f} repeats only" if reached else "in no repeat"
    some = f" (in {reached:.0f} of {repeats:.0f} repeats)" if reached < repeats else ""
    return f"{format_seconds(number(row, 'time_to_target_s'))}{some}"


def _reaching(best: Row, first: Row, goal: Goal) -> str:
    """Sentence on a row that reached the target, against the first row."""
    epochs = number(best, "epochs_to_target")
    if best is first:
        counted = "" if math.isnan(epochs) else f", after {format_count(epochs)} epochs"
        when = f"in {_when(best)}{counted}"
    elif _has_reached(first):
        when = f"in {_when(best)} instead of {_when(first)}"
    else:
        when = f"in {_when(best)}"
    return f"{_speed(best, first)} and reaches {goal.text} {when}{_stale(best)}."


def _first_wins(records: Sequence[Row], goal: Goal) -> str:
    """A sentence for the case that the first row is the best."""
    first = records[0]
    others = [row for row in records[1:] if _has_reached(row)]
    start = f"{_name(first)} reaches {goal.text} first, in {_when(first)}"
    if not others:
        return f"{start}, training {_rate(first)}{_stale(first)}."
    second = min(others, key=lambda row: number(row, "time_to_target_s"))
    ratio = speed_ratio(second, first)
    although = f", although it trains {_times(ratio)} times as fast" if ratio > 1 + _SAME else ""
    if _is_ranked(records):  # the next best is named with how sure that is
        although = although.replace("it trains", f"{_name(second)} trains")
        return f"{start}{although}."
    return f"{start}; next comes {_name(second)} in {_when(second)}{although}."


def _is_ranked(records: Sequence[Row]) -> bool:
    return any(text(row, "is_tied_with_best") for row in records)


def _is_tied(row: Row) -> bool:
    return number(row, "is_tied_with_best") == 1


def _tie(records: Sequence[Row], best: Row, goal: Goal) -> str:
    """A sentence that names the rows that are as good as the best; empty where there is none."""
    tied = [row for row in _in_order(records) if row is not best and _is_tied(row)]
    if not tied:
        return ""
    seeds = f"{number(best, 'repeats'):.0f} seeds"
    names = listed([f"{_name(row)} ({_when(row)})" for row in (best, *tied)])
    return f"It is a tie: {seeds} do not tell which of {names} reaches {goal.text} first. "


def _sureness(records: Sequence[Row], best: Row) -> str:
    """A sentence on the next best row, and on how sure it is that it is not the best."""
    if len(records) < 2:
        return ""
    seeds, needed = number(best, "repeats"), seeds_needed(len(records))
    if not _is_ranked(records):
        once = f" One seed does not say how sure this order is; --repeats {needed} can."
        return once if seeds == 1 else ""
    surer = ""
    if any(map(_is_tied, records)):
        surer = f" --repeats {max(needed, 2 * seeds):.0f} can tell more."
    behind = [row for row in _in_order(records) if row is not best and not _is_tied(row)]
    if not behind:
        return surer
    following = behind[0]
    flip = format_percent(number(following, "order_flip_probability"))
    when = f" in {_when(following)}" if _has_reached(following) else ""
    next_best = f" Next comes {_name(following)}{when}"
    return (
        f"{next_best}; the probability that with other seeds it would not be behind the best is "
        f"{flip}.{surer}"
    )


def _in_order(records: Sequence[Row]) -> list[Row]:
    """The rows by their time to the target; those without one last."""
    times = (number(row, "time_to_target_s") for row in records)
    known = [math.inf if math.isnan(time_s) else time_s for time_s in times]
    return [records[place] for place in sorted(range(len(records)), key=known.__getitem__)]


def _missed(records: Sequence[Row], goal: Goal) -> str:
    """A sentence that names the rows that missed the target; empty where none did."""
    names = [f"{_name(row)} ({_shortfall(row, goal)})" for row in records if not _has_reached(row)]
    start = f" {goal.text[0].upper()}{goal.text[1:]}"
    return f"{start} is not reached by {', '.join(names)}." if names else ""


def _shortfall(row: Row, goal: Goal) -> str:
    """The repeats of a row that reached the target, if any; otherwise the row's best value."""
    reached = number(row, "repeats_reached")
    if reached > 0:
        return f"only in {reached:.0f} of {number(row, 'repeats'):.0f} repeats"
    return f"best {_best_text(row, goal)}"


def _best_text(row: Row, goal: Goal) -> str:
    return goal.metric.text(number(row, goal.metric.best_column))


def _all_missed(records: Sequence[Row], goal: Goal) -> str:
    """A sentence for the case that no row reached the target in more than half of its runs."""
    some = [row for row in records if 0 < number(row, "repeats_reached") < number(row, "repeats")]
    if some:
        names = listed([f"{_name(row)} {_when(row)}" for row in some])
        return f"In the median no schedule reached {goal.text}; {names}."
    column = goal.metric.best_column
    known = [row for row in records if not math.isnan(number(row, column))]
    closest = (max if goal.metric.is_rising else min)(known, key=lambda row: number(row, column))
    best = _best_text(closest, goal)
    if len(records) == 1:
        return f"It did not reach {goal.text}; its best {goal.metric.kind} was {best}."
    return f"No schedule reached {goal.text}; {_name(closest)} came closest with {best}."
