"""A forecast's rows with what the intervals of its devices' numbers do to them, and words on it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ampsim.hardware import Cluster
from ampsim.study.device_spread import End, Spread, combined, ends_of, spread_of
from ampsim.study.forecast_runs import Run
from ampsim.study.repeats import Entry
from ampsim.units import format_rate, format_seconds

COLUMNS: Final = (
    "train_per_s_low", "train_per_s_high", "time_to_target_device_low_s",
    "time_to_target_device_high_s",
)  # fmt: skip
"""What a table says of a row: 95 % intervals that come of the device's numbers alone."""


def with_devices(
    rows: Sequence[Mapping[str, Any]],
    runs: Sequence[Sequence[Run]],
    entries: Sequence[Entry],
    seed: int,
) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of a forecast with what the intervals of its devices' numbers do to them.

    Args:
        rows: of the table.
        runs: those of each row.
        entries: of what was to run, by the labels of the runs' rows.
        seed: of the short runs.

    Returns:
        The rows, as they were where no number has an interval, and sentences on what is assumed.
    """
    if not rows or not ends_of(entries[0].plan.cluster):
        return [dict(row) for row in rows], []
    by_label = {one.label: one for one in entries}
    spreads = [spread_of(by_label[of[0].label], seed) for of in runs]
    items = [
        _items(of, times_validation=by_label[of[0].label].plan.times_validation) for of in runs
    ]
    made = [widened(row, one, count) for row, one, count in zip(rows, spreads, items, strict=True)]
    return made, assumption_of(entries[0].plan.cluster, rows, spreads, items)


def _items(runs: Sequence[Run], *, times_validation: bool) -> tuple[float, float]:
    """Items of an epoch that take time: training and validation ones, or the former alone."""
    first = next((run.epochs.iloc[0] for run in runs if len(run.epochs)), None)
    if first is None:
        return 1.0, 0.0
    return first["instances"], first["valid_instances"] if times_validation else 0.0


def widened(
    row: Mapping[str, Any], spread: Spread | None, items: tuple[float, float]
) -> dict[str, Any]:
    """A row with the columns of its device's intervals, and its own interval widened by them.

    The interval over seeds and that of the device are independent of one another: the logarithms of
    their ends over the median are added as the root of their squares.

    Args:
        row: of the table.
        spread: what the ends of the intervals do to it; None where that is unknown.
        items: training and validation items of an epoch.
    """
    if spread is None:
        return {**row, **dict.fromkeys(COLUMNS)}
    rate, time_s = row["train_per_s"], row["time_to_target_s"]
    slow, fast = spread.train_ratios()
    less, more = combined(spread.time_ratios(*items))
    ends = (None, None) if time_s is None else (time_s * less, time_s * more)
    told: dict[str, Any] = dict(
        zip(
            COLUMNS,
            (None if rate is None else rate * slow, None if rate is None else rate * fast, *ends),
            strict=True,
        )
    )
    if time_s is not None and row["time_to_target_coverage"]:
        low, high = row["time_to_target_low_s"], row["time_to_target_high_s"]
        told["time_to_target_low_s"] = None if low is None else time_s / _joint(time_s / low, less)
        told["time_to_target_high_s"] = (
            None if high is None else time_s * _joint(high / time_s, more)
        )
    return {**row, **told, "note": "; ".join(filter(None, [row["note"], _words(told)]))}


def _joint(first: float, second: float) -> float:
    """The factor of two independent causes, each a factor; whether it is above 1 does not count."""
    return math.exp(math.hypot(math.log(first), math.log(second)))


def _words(told: Mapping[str, Any]) -> str:
    """What a row's note says of its device's intervals."""
    slow, fast, less, more = (told[name] for name in COLUMNS)
    if slow is None:
        return ""
    time = (
        "" if less is None else f", time to target {format_seconds(less)} to {format_seconds(more)}"
    )
    return f"of the device alone, 95 %: training {format_rate(slow)} to {format_rate(fast)}{time}"


def assumption_of(
    cluster: Cluster,
    rows: Sequence[Mapping[str, Any]],
    spreads: Sequence[Spread | None],
    items: Sequence[tuple[float, float]],
) -> list[str]:
    """Sentences on the intervals of a cluster's devices, and what they do to the order of rows.

    Args:
        cluster: of all rows.
        rows: of the table.
        spreads: of each.
        items: training and validation items of an epoch of each.
    """
    ends = ends_of(cluster)
    if not ends:
        return []
    pairs = zip(ends[::2], ends[1::2], strict=True)
    numbers = [
        f"{one.key} of {one.device} {one.value:.3g} to {two.value:.3g}" for one, two in pairs
    ]
    said = (
        f"95 % intervals of fitted numbers: {', '.join(numbers)}. Each row was run shortly in mode "
        "sleep at both ends of each, and its intervals have what that changes; numbers are taken "
        "to err independently, and epochs to stay."
    )
    blind = [str(row["schedule"]) for row, one in zip(rows, spreads, strict=True) if one is None]
    if blind:
        return [
            said,
            f"Mode sleep cannot run {', '.join(blind)}; what intervals do there is unknown.",
        ]
    return [said, *_order(ends, rows, spreads, items)]


def _order(
    ends: Sequence[End],
    rows: Sequence[Mapping[str, Any]],
    spreads: Sequence[Spread | None],
    items: Sequence[tuple[float, float]],
) -> list[str]:
    """At which ends another row would be the first at the target; nothing of a single row."""
    times = [row["time_to_target_s"] for row in rows]
    arrived = [place for place, time_s in enumerate(times) if time_s is not None]
    if len(arrived) < 2:
        return []
    ratios = {
        place: one.time_ratios(*items[place])
        for place in arrived
        if (one := spreads[place]) is not None
    }
    first = min(arrived, key=times.__getitem__)
    others: list[str] = []
    for index, end in enumerate(ends):
        best = min(arrived, key=lambda place: times[place] * ratios[place][index])
        if best != first:
            others.append(f"{rows[best]['schedule']} at {end.key} = {end.value:.3g}")
    told = f"{', '.join(others)} would be first" if others else "the same row is first"
    at = "At these ends" if others else "At each of these ends"
    return [f"Ranks are of the numbers themselves. {at}, {told}."]
