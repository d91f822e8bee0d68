"""A report as it was written: its manifest, and its results from what lies beside it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pandas as pd

from ampsim.errors import FileFormatError
from ampsim.files import read_regular, sha256_of
from ampsim.forecasting.tuning import no_trials
from ampsim.metric import Goal
from ampsim.output_folder import MANIFEST, read_table, write_files
from ampsim.recipes.beside import OUTLINES_FILE, WITNESS_FILE, read_beside, read_outlines
from ampsim.recipes.explored import Explored, read_explored
from ampsim.recipes.recipe import Recipe
from ampsim.recipes.results import Reported, Results
from ampsim.recipes.running import FORMAT, KIND, TRIALS, recipe_origin, tables_of
from ampsim.report.page.figures import TOGETHER
from ampsim.runs.run import Run
from ampsim.text import mapping, sequence, short
from ampsim.user_code import told

_TABLES: Final = ("recipe", "model", "cluster", "program", "files")
_LISTS: Final = ("schedules", "data", "costs")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a report.

    Raises:
        FileFormatError: it is missing, is that of something else, or one of its tables is none.
    """
    missing = f"it was never made: there is no {MANIFEST}"
    manifest = read_beside(lambda: read_table(folder / MANIFEST, MANIFEST), MANIFEST, missing)
    if manifest.get("kind") != KIND or manifest.get("format") != FORMAT:
        raise FileFormatError(f"{MANIFEST} is not that of a report of this version")
    for fault in _faults(manifest):
        raise FileFormatError(f"{MANIFEST}: {fault}; run it again")
    return manifest


def _faults(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Find what is not of the type that every report's manifest has there."""
    for key in _TABLES:
        if not isinstance(manifest.get(key, {}), dict):
            yield f"{key} must be a table, got {short(manifest[key])}"
    for key in _LISTS:
        entries = manifest.get(key, [])
        if not isinstance(entries, list) or any(not isinstance(one, dict) for one in entries):  # pyright: ignore[reportUnknownVariableType]  # any TOML
            yield f"{key} must be a list of tables, got {short(entries)}"
    for one in sequence(manifest.get("data")):
        if not isinstance(one.get("file"), str) or not isinstance(one.get("sha256"), str):
            yield f"an entry of data must have file and sha256, got {short(one)}"
    for name, digest in mapping(manifest.get("files", {})).items():
        if Path(name).name != name or "\0" in name or name == MANIFEST:
            yield f"files must be names of files beside it, got {short(name)}"
        if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
            yield f"files.{name} must be a SHA-256, got {short(digest)}"


def files_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """The hash of each file that a manifest lists, by its name."""
    return {name: str(digest) for name, digest in mapping(manifest.get("files", {})).items()}


def edits_of(folder: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Files that the manifest lists and that are not as they were written."""
    for name, digest in files_of(manifest).items():
        path = folder / name
        if not os.path.isfile(path):
            yield f"{name} is missing"
            continue
        try:
            if sha256_of(path) != digest:
                yield f"{name} is not as it was written"
        except OSError as error:
            yield f"{name} cannot be read: {error.strerror}"


_READ: Final = (OUTLINES_FILE, TRIALS)
"""Files of a report that it is drawn of again."""

_WRITTEN: Final = ("files", "drawn_with")
"""Keys of a manifest that are of its files, not of what was run."""

_LAST: Final = (
    "recipe", "seeds", "epochs", "max_epochs", "target", "metric", "instances", "validate_every",
    "tune", "scale_rate", "unreached", "model", "cluster", "schedules", "data",
    "assumptions", "costs",
)  # fmt: skip
"""Keys of a manifest that come last, in this order, when a report is made."""


def read_results(recipe: Recipe, folder: Path) -> Results | Explored:
    """The results that the report in `folder` was made of, by what it was made from.

    Raises:
        FileFormatError: there are no outlines, they were edited, or they do not fit the recipe.
    """
    manifest = read_manifest(folder)
    try:
        return _read(recipe, folder, manifest)
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise FileFormatError(
            f"{MANIFEST}, {OUTLINES_FILE} or {TRIALS} "
            f"is not that of a report of this version: {told(error)}"
        ) from error


def _read(recipe: Recipe, folder: Path, manifest: dict[str, Any]) -> Results | Explored:
    kept = {name: digest for name, digest in files_of(manifest).items() if name in _READ}
    if OUTLINES_FILE not in kept:
        raise FileFormatError(f"it has no {OUTLINES_FILE} to redraw it from; run it again")
    outlines = None if recipe.file.explore else read_outlines(folder)
    for fault in edits_of(folder, {"files": kept}):
        raise FileFormatError(f"{fault}; run it again")
    before, now = manifest["recipe"], recipe_origin(recipe)
    if all(before.get(key) != now[key] for key in ("sha256", "asked_sha256")):
        raise FileFormatError(
            f"the recipe has changed since {OUTLINES_FILE} was written; run it again"
        )
    manifest["recipe"] = now  # of which title and text may have changed
    own = {key: one for key, one in manifest.items() if key not in _WRITTEN}
    if outlines is None:
        return read_explored(recipe, folder, own)
    _require_fit(recipe, outlines.runs)
    file = recipe.file
    goal = Goal(outlines.metric, file.target)
    spreads = [outlines.spreads.get(entry.title) for entry in file.schedules]
    origins = manifest["schedules"]
    of_runs, _ = tables_of(recipe, goal, outlines.runs, origins, spreads=spreads)
    cluster, read_trials = manifest["cluster"], partial(pd.read_csv, folder / TRIALS)
    return Results(
        **of_runs,
        model=str(manifest["model"]["name"]),
        cluster=str(cluster["name"]),
        workers=int(cluster["workers"]),
        trials=no_trials() if file.tune is None else read_beside(read_trials, TRIALS),
        spreads=outlines.spreads,
        manifest=_as_made(own),
    )


def _require_fit(recipe: Recipe, runs: Sequence[Run]) -> None:
    """Refuse outlines of other runs than the recipe asks for."""
    wanted = [
        (entry.title, repeat, seed)
        for entry in recipe.file.schedules
        for repeat, seed in enumerate(recipe.file.seeds, 1)
    ]
    if [(run.schedule, run.repeat, run.seed) for run in runs] != wanted:
        other = f"{OUTLINES_FILE} has other runs than the recipe asks for"
        raise FileFormatError(f"{other}; run it again")


def _as_made(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest in the order in which a page tells of it; TOML has tables behind plain values.

    >>> list(_as_made({"code": "c", "seeds": [0], "recipe": {}, "cluster": {}, "schedules": []}))
    ['code', 'recipe', 'seeds', 'cluster', 'schedules']
    """
    rows: list[dict[str, Any]] = [{**row} for row in manifest["schedules"]]
    made: dict[str, Any] = {**manifest, "schedules": rows}
    for table in (made, *rows):
        if "cluster" in table:  # rows have one if it is their own
            table["cluster"] = _with_last(table["cluster"], ("devices", "groups"))
    return _with_last(made, _LAST)


def _with_last(table: dict[str, Any], last: Sequence[str]) -> dict[str, Any]:
    """The table with some keys, as far as it has them, behind all others."""
    first = [name for name in table if name not in last]
    return {name: table[name] for name in (*first, *(one for one in last if one in table))}


def redraw_report(
    results: Reported, folder: str | os.PathLike[str], before: Mapping[str, str]
) -> list[Path]:
    """Write page, tables, figures and outlines of a report again, and their hashes.

    Witnesses and the Gantt chart, which needs spans, stay as they are, and so does all else that
    the manifest says, which had hashes of files `before`, by name. Gives the files that were drawn,
    and last the manifest.

    Raises:
        OutputError: as of `Reported.save`.
    """
    kept = {name: before[name] for name in (WITNESS_FILE, TOGETHER.file) if name in before}
    own: dict[str, bytes] = {}  # those that are as they were written
    for name, digest in kept.items():
        path = Path(folder) / name
        if os.path.isfile(path) and sha256_of(path) == digest:
            own[name] = read_regular(path)
    charts = {TOGETHER.file: own.pop(TOGETHER.file, None)} if TOGETHER.file in kept else {}
    drawn = {**results.tables(), OUTLINES_FILE: results.outlines, **results.drawn(charts)}
    listed = {name: digest for name, digest in before.items() if name in {*kept, *drawn}}
    written = write_files(folder, results.kind, {**own, **drawn}, results.origin(), listed)
    return [path for path in written if path.name not in kept]
