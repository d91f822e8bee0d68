"""Whether a report that was written still follows from its recipe and the code."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd

from ampsim.assets import locate
from ampsim.csv_text import from_cell
from ampsim.data import MissingDataError, data_folder
from ampsim.errors import AmpsimError, FileFormatError, UnknownNameError
from ampsim.files import sha256_of
from ampsim.output_folder import MANIFEST, read_table
from ampsim.paths import read_regular
from ampsim.recipes.outlines_file import FILE as OUTLINES
from ampsim.recipes.recipe import Recipe
from ampsim.recipes.rows import cluster_of, make_rows
from ampsim.recipes.running import FORMAT, KIND, Findings
from ampsim.recipes.witness_file import FILE, read_witnesses
from ampsim.study.process_settings import linear_algebra
from ampsim.study.row import TEXTS
from ampsim.study.source_digest import source_digest
from ampsim.study.tiny_run import tiny_run
from ampsim.study.witness import ROUNDING, Witness
from ampsim.study.witness import TOLERANCE as WITNESS_TOLERANCE
from ampsim.toml_text import mapping, sequence

TABLE: Final = "report.csv"

TOLERANCE: Final = 1e-6
"""Relative difference of a number that only timing decides; chosen: far above rounding."""

LEARNED_TOLERANCE: Final = 0.05
"""The same of one that learning decides; chosen: other libraries round, and updates amplify it."""

FIXED: Final = frozenset(
    {"max_active_keys", "min_update_interval", "replicas", "workers", "repeats"}
)
"""Columns that a recipe decides."""

TIMED: Final = FIXED | {"train_per_s", "valid_per_s", "staleness_mean", "staleness_max",
                        "train_per_s_low", "train_per_s_high"}  # fmt: skip
"""Columns that only timing decides, where learning does not decide how long a run is."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found.

    Args:
        faults: why the report does not follow, a few words each; empty where it does.
        notes: what has changed without making it wrong, or could not be compared.
    """

    faults: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def follows(self) -> bool:
        """Whether nothing speaks against the report."""
        return not self.faults


def check_report(recipe: Recipe, folder: Path) -> Verdict:
    """Compare the hashes in a report's manifest with those of now, and witnesses at need.

    Hashes are of the recipe, the device files, the data files as far as they are here, and the
    report's own files; that it has no outlines is only noted. Where ampsim's own code or the model
    file is not what it was, the tiny runs that the report's witnesses tell of are made again: a
    report follows as long as they are the same.

    Args:
        recipe: what the report was made from.
        folder: where it lies.
    """
    try:
        manifest = read_manifest(folder)
        faults = (*_changes(recipe, manifest), *edits_of(folder, manifest))
        changed = tuple(_changed_code(recipe, manifest))
        before = read_witnesses(folder) if changed and not faults else None
    except (FileFormatError, UnknownNameError) as error:
        return Verdict((str(error),))
    absent = (*_absent_data(manifest), *_absent_outlines(manifest))
    if faults or not changed:
        return Verdict((*faults, *changed), absent)
    if before is None:
        lacks = f"it has no {FILE} to tell whether what it does has, too; run it again"
        return Verdict((f"{' and '.join(changed)}, and {lacks}",), absent)
    tolerance = ROUNDING if _other_kernels(recipe, manifest) else WITNESS_TOLERANCE
    return _compare(recipe, before, " and ".join(changed), absent, tolerance)


def _compare(
    recipe: Recipe,
    before: Mapping[str, Witness],
    changed: str,
    absent: tuple[str, ...],
    tolerance: float,
) -> Verdict:
    """Make the tiny runs of every row again, and compare."""
    try:
        rows = make_rows(recipe)
    except MissingDataError as error:
        return Verdict((), (f"{changed}; what it does could not be compared: {error}",))
    except FileFormatError as error:
        return Verdict((str(error),), absent)
    faults: list[str] = []
    unheard: dict[str, list[str]] = {}
    for row in rows.rows:
        if row.label not in before:
            faults.append(f"{row.label}: {FILE} says nothing of it")
            continue
        try:
            now = tiny_run(row, rows.goal, recipe.file.seeds[0])
        except MissingDataError as error:
            unheard.setdefault(str(error), []).append(row.label)
            continue
        difference = now.difference(before[row.label], tolerance)
        if difference is not None:
            faults.append(f"{row.label} behaves otherwise: {difference}")
    silent = sum(map(len, unheard.values()))
    told = (
        f"what {'it' if len(labels) == len(rows.rows) else ', '.join(labels)} does"
        f" could not be compared: {why}"
        for why, labels in unheard.items()
    )
    if faults:
        return Verdict(tuple(faults), (changed, *told, *absent))
    same = "" if silent == len(rows.rows) else ", its behaviour has not"
    return Verdict((), (f"{changed}{same}", *told, *absent))


def check_numbers(recipe: Recipe, folder: Path, again: Findings) -> Verdict:
    """Compare a report's numbers with those of runs made now.

    What the manifest says of code and files only becomes a note: the numbers decide. Of a report
    that was made with other kernels of linear algebra, those that learning decides are left out:
    rounding alone may move the epochs to a target by a fifth.

    Args:
        recipe: what the report was made from.
        folder: where it lies.
        again: what the recipe gives now.
    """
    try:
        manifest = read_manifest(folder)
    except FileFormatError as error:
        return Verdict((str(error),))
    edits = tuple(edits_of(folder, manifest))
    if edits:
        return Verdict(edits)
    before = pd.read_csv(io.BytesIO(read_regular(folder / TABLE)))
    exact = TIMED if recipe.file.max_epochs is None else FIXED
    other = _other_kernels(recipe, manifest)
    differences = _differences(before, again.table, exact, is_exact_only=other is not None)
    changed = (*_changed_code(recipe, manifest), *_changes(recipe, manifest))
    left_out = (f"what it learned is not compared: {other}",) if other else ()
    return Verdict(tuple(differences), (*changed, *left_out, *_absent_outlines(manifest)))


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a report.

    Raises:
        FileFormatError: it is missing or is that of something else.
    """
    path = folder / MANIFEST
    try:
        manifest = read_table(path, MANIFEST)
    except FileNotFoundError:
        raise FileFormatError(f"it was never made: there is no {MANIFEST}") from None
    except (OSError, ValueError) as error:
        raise FileFormatError(
            f"{MANIFEST} cannot be read: {' '.join(str(error).split())}"
        ) from error
    if manifest.get("kind") != KIND or manifest.get("format") != FORMAT:
        raise FileFormatError(f"{MANIFEST} is not that of a report of this version")
    return manifest


def _changes(recipe: Recipe, manifest: dict[str, Any]) -> Iterator[str]:
    """What the report rests on and is not any more what it was."""
    if _at(manifest, "recipe", "sha256") != recipe.sha256:
        yield "the recipe has changed"
    try:
        cluster = cluster_of(recipe).digest
    except (AmpsimError, OSError) as error:
        yield str(error)
        return
    if _at(manifest, "cluster", "sha256") != cluster:
        yield f"the device or cluster file of {recipe.file.cluster} has changed"
    yield from dict.fromkeys(_changed_clusters(recipe, manifest))
    for file, is_same in _data(manifest):
        if is_same is False:
            yield f"the data file {file} is another one"


def _changed_clusters(recipe: Recipe, manifest: dict[str, Any]) -> Iterator[str]:
    """Clusters of single rows that are not what they were."""
    before = sequence(manifest.get("schedules"))
    for index, entry in enumerate(recipe.file.schedules):
        if not entry.hardware:
            continue
        own = mapping(before[index]) if index < len(before) else {}
        try:
            now = cluster_of(recipe, index).digest
        except (AmpsimError, OSError) as error:
            yield str(error)
            continue
        if _at(own, "cluster", "sha256") != now:
            name = entry.cluster or recipe.file.cluster
            yield f"the device or cluster file of {name} has changed"


def _changed_code(recipe: Recipe, manifest: dict[str, Any]) -> Iterator[str]:
    """Which code is not any more what it was; what it does may be the same."""
    if manifest.get("code") != source_digest():
        yield "ampsim's code has changed"
    model = locate("models", recipe.beside(recipe.file.model, ".py"))
    if _at(manifest, "model", "sha256") != sha256_of(model):
        yield f"the model file of {recipe.file.model} has changed"


def _other_kernels(recipe: Recipe, manifest: dict[str, Any]) -> str | None:
    """Which kernels of linear algebra made the report, where those of here may round otherwise."""
    file = recipe.file
    if all((entry.mode or file.mode) == "sleep" for entry in file.schedules):
        return None  # nothing was learned
    was, now = manifest.get("linear_algebra", "kernels it does not name"), linear_algebra()
    return f"it was made with {was}, and here is {now or 'none known'}" if was != now else None


def edits_of(folder: Path, manifest: dict[str, Any], needed: str = TABLE) -> Iterator[str]:
    """Files of the report that are not as they were written, or of which there must be one."""
    files = mapping(manifest.get("files") or {})
    for name in (*files, *({needed} - set(files))):
        path = folder / name
        if not os.path.isfile(path):
            yield f"{name} is missing"
        elif sha256_of(path) != files.get(name):
            yield f"{name} is not as it was written"


def _data(manifest: dict[str, Any]) -> Iterator[tuple[str, bool | None]]:
    """Each data file, and whether it is the same; None where it is not here."""
    for entry in sequence(manifest.get("data")):
        path = data_folder() / str(entry["file"])
        yield entry["file"], sha256_of(path) == entry["sha256"] if os.path.isfile(path) else None


def _absent_data(manifest: dict[str, Any]) -> Iterator[str]:
    absent = [file for file, is_same in _data(manifest) if is_same is None]
    if absent:
        yield f"not compared, for they are not here: {', '.join(absent)}"


def _absent_outlines(manifest: dict[str, Any]) -> Iterator[str]:
    if OUTLINES not in mapping(manifest.get("files") or {}):
        yield f"it has no {OUTLINES} to redraw it from"


def _differences(
    before: pd.DataFrame, now: pd.DataFrame, exact: frozenset[str], *, is_exact_only: bool
) -> Iterator[str]:
    """Numbers that are not what they were, one sentence each."""
    if [from_cell(str(one)) for one in before["schedule"]] != now["schedule"].tolist():
        yield "it has other rows"
        return
    old, new = before.to_dict("records"), now.to_dict("records")
    for label, first, second in zip(now["schedule"], old, new, strict=True):
        for column in now.columns:
            if column in TEXTS or column not in before:  # an earlier version may lack it
                continue
            if is_exact_only and column not in exact:
                continue
            values = _float(first.get(column)), _float(second[column])
            tolerance = TOLERANCE if column in exact else LEARNED_TOLERANCE
            if not _is_close(*values, tolerance):
                yield f"{column} of {label} was {values[0]:.6g} and is {values[1]:.6g}"


def _is_close(before: float, now: float, tolerance: float) -> bool:
    if math.isnan(before) or math.isnan(now):
        return math.isnan(before) and math.isnan(now)
    return math.isclose(before, now, rel_tol=tolerance)


def _float(value: Any) -> float:
    return math.nan if value is None or pd.isna(value) else float(value)


def _at(manifest: dict[str, Any], table: str, key: str) -> Any:
    return mapping(manifest.get(table) or {}).get(key)
