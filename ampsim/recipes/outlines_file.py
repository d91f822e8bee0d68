"""The file beside a report in which the outlines of its runs lie: its page is redrawn from them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ampsim.errors import AmpsimError, FileFormatError
from ampsim.metric import Metric
from ampsim.paths import read_regular
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
    """

    metric: Metric
    runs: tuple[FinishedRun, ...]


def to_text(metric: Metric, runs: Iterable[FinishedRun]) -> str:
    """The file that holds the outlines of a report: JSON, a line a run."""
    measured = json.dumps({"kind": metric.kind, "unit": metric.unit})
    head = f'{{"kind": "{KIND}", "format": {FORMAT}, "metric": {measured}, "runs": [\n'
    return head + ",\n".join(map(_line, runs)) + "\n]}\n"


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
        return Outlines(metric, tuple(_run(one) for one in content["runs"]))
    except (
        AmpsimError, ValueError, TypeError, KeyError, AttributeError, RecursionError,
    ) as error:  # fmt: skip
        raise FileFormatError(f"{FILE} does not hold the outlines of this version") from error


def _line(run: FinishedRun) -> str:
    head = {"label": run.schedule, "repeat": run.repeat, "seed": run.seed, "failure": run.failure}
    content = {**head, **to_plain(run.outline)}
    return json.dumps(content, separators=(",", ":"), allow_nan=False)


def _run(content: Mapping[str, Any]) -> FinishedRun:
    label, repeat, seed = str(content["label"]), int(content["repeat"]), int(content["seed"])
    return FinishedRun(label, repeat, seed, from_plain(content), content["failure"])
