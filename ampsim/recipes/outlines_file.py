"""The file beside a report in which the outlines of its runs lie: its page is redrawn from them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ampsim.errors import AmpsimError, FileFormatError
from ampsim.metric import Metric
from ampsim.paths import read_regular
from ampsim.study.device_spread import Spread, Spreading, Unspread
from ampsim.study.device_spread import from_plain as spread_from_plain
from ampsim.study.device_spread import to_plain as spread_to_plain
from ampsim.study.finished_run import FinishedRun
from ampsim.study.outline import from_plain, to_plain

FILE: Final = "outlines.json"
KIND: Final = "outlines"
FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Outlines:
    """What the file holds.

    Args:
        metric: what was measured.
        runs: every run, in order, without spans and transfers.
        spreads: what the intervals of its devices do to each row on such devices, by its label.
    """

    metric: Metric
    runs: tuple[FinishedRun, ...]
    spreads: dict[str, Spread | Unspread] = field(default_factory=dict[str, Spread | Unspread])


def to_text(
    metric: Metric, runs: Iterable[FinishedRun], spreads: Mapping[str, Spreading] | None = None
) -> str:
    """The file that holds the outlines of a report: JSON, a line a run.

    Args:
        metric: what was measured.
        runs: every run.
        spreads: as of `Outlines`, or None for a row; a line each behind the runs.
    """
    measured = json.dumps({"kind": metric.kind, "unit": metric.unit})
    head = f'{{"kind": "{KIND}", "format": {FORMAT}, "metric": {measured}, "runs": [\n'
    return head + ",\n".join(map(_line, runs)) + f"\n]{_at_ends(spreads or {})}}}\n"


def _at_ends(spreads: Mapping[str, Spreading]) -> str:
    """The rows on devices with intervals; empty where there is none."""
    lines = [
        f"{json.dumps(label)}: {_compact(spread_to_plain(one))}"
        for label, one in spreads.items()
        if one is not None
    ]
    return ', "at_ends": {\n' + ",\n".join(lines) + "\n}" if lines else ""


def read_outlines(folder: Path) -> Outlines:
    """The outlines beside a report.

    Raises:
        FileFormatError: there are none, or the file is something else.
    """
    try:
        text = read_regular(folder / FILE, FILE).decode("utf-8")
    except FileNotFoundError:
        raise FileFormatError(f"{FILE} is missing") from None
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{FILE} cannot be read: {' '.join(str(error).split())}") from error
    try:
        content = json.loads(text)
        if (content["kind"], content["format"]) != (KIND, FORMAT):
            raise KeyError
        metric = Metric(content["metric"]["kind"], content["metric"]["unit"])
        spreads = {
            str(label): spread_from_plain(one) for label, one in content.get("at_ends", {}).items()
        }
        return Outlines(metric, tuple(_run(one) for one in content["runs"]), spreads)
    except (
        AmpsimError, ValueError, TypeError, KeyError, AttributeError, RecursionError,
    ) as error:  # fmt: skip
        raise FileFormatError(f"{FILE} does not hold the outlines of this version") from error


def _line(run: FinishedRun) -> str:
    head = {"label": run.schedule, "repeat": run.repeat, "seed": run.seed, "failure": run.failure}
    content = {**head, **to_plain(run.outline)}
    return _compact(content)


def _compact(content: Any) -> str:
    return json.dumps(content, separators=(",", ":"), allow_nan=False)


def _run(content: Mapping[str, Any]) -> FinishedRun:
    label, repeat, seed = str(content["label"]), int(content["repeat"]), int(content["seed"])
    return FinishedRun(label, repeat, seed, from_plain(content), content["failure"])
