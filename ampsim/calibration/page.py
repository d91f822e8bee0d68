"""A calibration as a folder: page, points, figure, device file, and a manifest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pandas as pd

from ampsim.calibration import texts as machine_text
from ampsim.calibration.fit import Calibration, Fitted, Point, Table, median_error, rank_correlation
from ampsim.calibration.machine import MachineFit
from ampsim.calibration.texts import device_text, this_machine
from ampsim.output_folder import OutputFolder, write_files
from ampsim.report import words as markdown
from ampsim.report.plot.curves import Series, predicted
from ampsim.report.saving import encode
from ampsim.report.table import to_csv
from ampsim.report.words import listed, slug
from ampsim.study.provenance import software
from ampsim.text import finite
from ampsim.units import format_rate

PAGE: Final = "report.md"
POINTS: Final = "points.csv"
FIGURE: Final = "predicted.png"
FILES: Final = (PAGE, POINTS, FIGURE)
"""Files of a table's folder, beside device file and manifest."""

_WORDS: Final = {"train_per_s": "training", "valid_per_s": "validation"}


def write_calibration(found: Calibration, folder: OutputFolder) -> list[Path]:
    """Write the folder, whole or not at all; give the files in the order written.

    Raises:
        OutputError: a file there is not ours, or cannot be written.
    """
    contents = {
        POINTS: points_text(found),
        FIGURE: encode(predicted(series_of(found)), ".png"),
        device_file(found.table): device_text(found),
        PAGE: page(found),
    }
    manifest = {
        **software(),
        "table": {"file": found.table.name, "sha256": found.table.sha256},
        "runs": found.runs,
        "fitted": {
            one.key: {"value": one.value, "low": finite(one.low), "high": finite(one.high)}
            for one in found.fitted
        },
    }
    return write_files(folder, "calibration", contents, manifest)


def write_machine(name: str, fit: MachineFit, folder: OutputFolder) -> list[Path]:
    """Write what was measured on this machine: points, device file, manifest.

    Raises:
        OutputError: a file there is not ours, or cannot be written.
    """
    text = machine_text.machine_text(name, fit, this_machine())
    contents = {POINTS: machine_text.points_text(fit), f"{name}.toml": text}
    return write_files(folder, "calibration", contents, software())


def device_file(table: Table) -> str:
    """Name of the device file that a calibration writes."""
    return f"{slug(table.file.name)}.toml"


def points_text(found: Calibration) -> str:
    """Every point with every digit, as CSV."""
    columns = ("label", "quantity", "published", "simulated", "error", "is_fitted", "bound")
    records = [[getattr(one, key) for key in columns] for one in found.points]
    return to_csv(pd.DataFrame(records, columns=list(columns)))


def series_of(found: Calibration) -> list[Series]:
    """The points of the fit, those that it did not see, and those of other devices."""
    groups: dict[str, list[Point]] = {"fitted": found.seen}
    for quantity, word in _WORDS.items():
        mine = [one for one in found.unseen if one.quantity == quantity]
        groups[f"{word}, not seen by the fit"] = mine
    groups["another device, not seen by the fit"] = found.others
    return [
        Series(name, [one.published for one in of], [one.simulated for one in of], name == "fitted")
        for name, of in groups.items()
        if of
    ]


def page(found: Calibration) -> str:
    """The page in Markdown: the verdict, what was fitted, and every point."""
    file = found.table.file
    placements = dict.fromkeys(one.placement or file.placement for one in file.rows)
    least = "the least near these" if found.is_least else "not known to be least"
    parts = [
        f"# {markdown.escape(file.name)}: fitted to published throughputs",
        markdown.escape(file.description),
        f"**{markdown.paragraph(verdict(found))}**",
        "## What was fitted",
        _fitted_table(found.fitted),
        f"Every other number is as the file gives it. {file.workers} workers, placement "
        f"{markdown.escape(listed([*placements]))}, mode sleep, seed {file.seed}; the sum of "
        f"squared logarithms of simulated over published throughput is {least}, by Gauss-Newton "
        f"with damping, in {found.runs} runs.",
        "## Beside what was published",
        _point_table(found.points),
        f"Bound: the busiest worker of that pass, its share of the time, and the nodes that take "
        f"most of it. Every digit: [{POINTS}]({POINTS}).",
        "## Simulated over published",
        f"![Simulated over published throughput, both logarithmic]({FIGURE})",
        "*A point on the diagonal is met; the band is 10 % to both sides.*",
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def verdict(found: Calibration) -> str:
    """Say in a few sentences what the fit found, and how well it predicts."""
    numbers = "; ".join(
        f"{one.key} = {one.value:.4g}" + (one.interval and f" ({one.interval})")
        for one in found.fitted
    )
    text = f"{numbers}. Median error {median_error(found.seen):.1%} over {len(found.seen)} fitted"
    if found.unseen:
        text += f" and {median_error(found.unseen):.1%} over {len(found.unseen)} unseen numbers"
    if not math.isnan(rank := rank_correlation(found.unseen)):
        text += f", whose rank correlation is {rank:.3f}"
    if found.others:
        errors = ", ".join(f"{one.label} {one.error:+.1%}" for one in found.others)
        text += f". With numbers of their own: {errors}"
    rows = [one for one in found.table.file.rows if one.is_fitted]
    bare = [one.model_copy(update={"label": "", "source": ""}) for one in rows]
    again = [one.label for place, one in enumerate(rows) if bare[place] in bare[:place]]
    if again:
        text += f". With settings and numbers of an earlier row: {listed(again)}; leave out a copy"
        text += ", which counts as one more measurement and narrows the intervals"
    held = [one.key for one in found.fitted if one.is_at_bound]
    if held:
        text = f"Held by a bound of the file, not decided by its rows: {listed(held)}. {text}"
    if not found.is_least:
        text = f"The fit ran out of steps: start it at what it found, or bound it closer. {text}"
    return f"{text}."


def _fitted_table(fitted: Sequence[Fitted]) -> str:
    headings = ["parameter", "value", "95 % from", "to", "note"]
    lines = [
        [one.key, f"{one.value:.4g}",
         *("–" if math.isnan(end) else f"{end:.3g}" for end in (one.low, one.high)),
         "held by a bound" if one.is_at_bound else ""] for one in fitted
    ]  # fmt: skip
    return markdown.table(headings, lines, left=("parameter", "note"))


def _point_table(points: Sequence[Point]) -> str:
    headings = ["row", "pass", "published", "simulated", "error", "fitted", "bound by"]
    lines = [
        [
            one.label, _WORDS[one.quantity], format_rate(one.published), format_rate(one.simulated),
            f"{one.error:+.1%}", "yes" if one.is_fitted else "", one.bound,
        ]
        for one in points
    ]  # fmt: skip
    return markdown.table(headings, lines, left=("row", "pass", "fitted", "bound by"))
