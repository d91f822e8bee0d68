"""Files beside a report's manifest: witnesses, and outlines of its runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from ampsim.errors import AmpsimError, FileFormatError
from ampsim.files import read_regular
from ampsim.forecasting.intervals import Spread, Spreading
from ampsim.forecasting.intervals import from_plain as spread_from_plain
from ampsim.forecasting.intervals import to_plain as spread_to_plain
from ampsim.metric import Metric
from ampsim.runs.run import Run, from_plain, to_plain
from ampsim.runs.witness import Witness, witness_from_plain

OUTLINES_FILE: Final = "outlines.json"
OUTLINES_KIND: Final = "outlines"

FORMAT: Final = 1
"""Version of these files, and of what a map was made of."""

T = TypeVar("T")

_NOT_IT: Final = (
    AmpsimError, ValueError, TypeError, LookupError, AttributeError, RecursionError,
    ArithmeticError,
)  # fmt: skip
"""What taking JSON apart raises where it is of another shape."""


@dataclass(frozen=True, slots=True)
class Outlines:
    """The contents of the file of outlines."""

    metric: Metric  # what was measured
    runs: tuple[Run, ...]  # every run, in order, without spans and transfers
    spreads: dict[str, Spread] = field(default_factory=dict[str, Spread])  # of rows, by label


def outlines_to_text(
    metric: Metric, runs: Iterable[Run], spreads: Mapping[str, Spreading] | None = None
) -> str:
    """The file that holds `Outlines`: JSON, a line a run, and behind them one for each spread."""
    measured = json.dumps({"kind": metric.kind, "unit": metric.unit})
    head = f'{{"kind": "{OUTLINES_KIND}", "format": {FORMAT}, "metric": {measured}, "runs": [\n'
    of_rows = (spreads or {}).items()
    known = {label: spread_to_plain(one) for label, one in of_rows if one is not None}
    at_ends = f', "at_ends": {_by_label(known)}' if known else ""
    return head + ",\n".join(map(_line, runs)) + f"\n]{at_ends}}}\n"


def read_outlines(folder: Path) -> Outlines:
    """The outlines beside a report.

    Raises:
        FileFormatError: there are none, the file is something else, or not as `to_text` writes it.
    """
    return read_json(folder, OUTLINES_FILE, OUTLINES_KIND, _outlines)


def _outlines(content: Any) -> tuple[Outlines, str]:
    """Outlines, and the text that says the same; where it is none, any error of an operation."""
    metric = Metric(content["metric"]["kind"], content["metric"]["unit"])
    of_rows = content.get("at_ends", {}).items()
    spreads = {str(label): spread_from_plain(one) for label, one in of_rows}
    runs = tuple(
        from_plain(
            one,
            schedule=str(one["label"]),
            repeat=int(one["repeat"]),
            seed=int(one["seed"]),
            failure=one["failure"],
        )
        for one in content["runs"]
    )
    return Outlines(metric, runs, spreads), outlines_to_text(metric, runs, spreads)


def read_json(folder: Path, name: str, kind: str, parse: Callable[[Any], tuple[T, str]]) -> T:
    """Read a file of JSON beside a report; `parse` also gives the text that ampsim writes.

    Raises:
        FileFormatError: it is missing, something else, or not as ampsim writes it.
    """
    text = read_beside(lambda: read_regular(folder / name, name).decode("utf-8"), name)
    try:
        content = json.loads(text)
        if (content["kind"], content["format"]) != (kind, FORMAT):
            raise KeyError
        found, again = parse(content)
    except _NOT_IT as error:
        raise FileFormatError(f"{name} does not hold the {kind} of this version") from error
    if again != text:
        raise FileFormatError(f"{name} is not as ampsim writes it; run the report again")
    return found


def read_beside(read: Callable[[], T], name: str, missing: str | None = None) -> T:
    """Read a file of a report; `missing` is what to say where there is none.

    Raises:
        FileFormatError: there is none, or it cannot be read.
    """
    try:
        return read()
    except FileNotFoundError:
        raise FileFormatError(missing or f"{name} is missing") from None
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{name} cannot be read: {' '.join(str(error).split())}") from error


def _line(run: Run) -> str:
    head = {"label": run.schedule, "repeat": run.repeat, "seed": run.seed, "failure": run.failure}
    return _compact({**head, **to_plain(run)})


def _by_label(contents: Mapping[str, Any]) -> str:
    """A JSON object with a line for each row."""
    lines = [f"{json.dumps(label)}: {_compact(one)}" for label, one in contents.items()]
    return "{\n" + ",\n".join(lines) + "\n}"


def _compact(content: Any) -> str:
    return json.dumps(content, separators=(",", ":"), allow_nan=False)


WITNESS_FILE: Final = "witness.json"
WITNESS_KIND: Final = "witnesses"


def witnesses_to_text(witnesses: Mapping[str, Witness]) -> str:
    """The file that holds the witnesses of a report, by its rows: JSON, a line a row."""
    rows = _by_label({label: one.plain() for label, one in witnesses.items()})
    return f'{{"kind": "{WITNESS_KIND}", "format": {FORMAT}, "rows": {rows}}}\n'


def read_witnesses(folder: Path) -> dict[str, Witness]:
    """The witnesses beside a report, by its rows.

    Raises:
        FileFormatError: the file is missing, something else, or not as `to_text` writes it.
    """
    return read_json(folder, WITNESS_FILE, WITNESS_KIND, _witnesses)


def _witnesses(content: Any) -> tuple[dict[str, Witness], str]:
    """Witnesses, and the text that says the same; where it is none, any error of an operation."""
    found = {str(label): witness_from_plain(one) for label, one in content["rows"].items()}
    return found, witnesses_to_text(found)
