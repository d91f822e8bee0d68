"""Whether a report that was written still follows from its recipe or program, and the code.

Everything that can be drawn again is: page, tables and figures from the outlines beside the report,
the Gantt chart from tiny runs of its rows, and with `--rerun` all of them from runs made now. What
is drawn goes to a temporary folder, and one comparer says in which file it differs.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from ampsim.assets import locate
from ampsim.data import MissingDataError, data_folder
from ampsim.errors import AmpsimError, FileFormatError
from ampsim.files import read_regular, sha256_of
from ampsim.forecasting.forecast import copies_of
from ampsim.output_folder import MANIFEST
from ampsim.recipes.beside import OUTLINES_FILE as OUTLINES
from ampsim.recipes.beside import WITNESS_FILE as WITNESS
from ampsim.recipes.beside import read_witnesses
from ampsim.recipes.explored import Explored
from ampsim.recipes.recipe import Recipe
from ampsim.recipes.redrawing import edits_of, files_of, read_manifest, read_results
from ampsim.recipes.results import PAGE, TABLE, Reported, Results
from ampsim.recipes.rows import Rows, cluster_of, make_rows
from ampsim.recipes.running import costs_of
from ampsim.report.page.figures import TOGETHER
from ampsim.report.saving import drawn_with, look_alike
from ampsim.runs.compare import Apart, first_apart, is_close
from ampsim.runs.run import Run, run_of
from ampsim.runs.witness import ROUNDING, TOLERANCE, Witness, tiny_run, tiny_task
from ampsim.study.process_settings import linear_algebra
from ampsim.study.provenance import software, source_digest
from ampsim.text import mapping, sequence, short
from ampsim.user_code import told

DRAWN_WITH: Final = "drawn_with"
"""Key of a manifest: the libraries that drew the pictures, whose bytes are theirs."""

ROUNDED: Final = 1e-9
"""Relative difference of a number that is drawn again; chosen: sums in another order."""

FIXED: Final = frozenset(
    {"max_active_keys", "min_update_interval", "replicas", "workers", "repeats"}
)
"""Columns that a recipe decides."""

TIMED: Final = FIXED | {"epoch_s", "train_per_s", "valid_per_s", "staleness_mean", "staleness_max",
                        "train_per_s_low", "train_per_s_high"}  # fmt: skip
"""Columns that only timing decides, where learning does not decide how long a run is."""

LONGER: Final = 10
"""How many times as long tiny runs are for a chart that they are too short for (chosen: as many
instances as any shipped row has in flight)."""

_NUMBER: Final = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.])")
_SHA256: Final = re.compile(r"\b[0-9a-f]{64}\b")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check."""

    faults: tuple[str, ...]  # why the report does not follow, a few words each
    notes: tuple[str, ...] = ()  # what has changed without making it wrong, or is not compared

    @property
    def follows(self) -> bool:
        """Whether nothing speaks against the report."""
        return not self.faults


def check_report(recipe: Recipe, folder: Path) -> Verdict:
    """Check a report without its runs: by hashes, by tiny runs, and by drawing it again.

    Hashes are of the recipe, the device files, the data files as far as they are here, and the
    report's own files, all of which a report of this recipe must have. The tiny runs that its
    witnesses tell of are made again. That ampsim's code or the model file has changed is a note.
    Nothing is written into the folder.
    """
    try:
        manifest = read_manifest(folder)
        changed = " and ".join(_changed_code(recipe, manifest))
        missing = ", ".join(file for file, is_same in _data(manifest) if is_same is None)
        absent = [f"not compared, for they are not here: {missing}"] if missing else []
        notes = tuple(filter(None, [changed, *absent]))
        faults = (*_changes(recipe, manifest), *edits_of(folder, manifest))
        faults += tuple(lacks_of(manifest, (TABLE, PAGE, WITNESS, OUTLINES)))
        if faults:
            return Verdict(faults, notes)
        witnesses, results = read_witnesses(folder), read_results(recipe, folder)
    except AmpsimError as error:
        return Verdict((str(error),))
    tolerance = ROUNDING if _other_kernels(recipe, manifest) else TOLERANCE
    tiny = _tiny_runs(recipe, manifest, witnesses, tolerance)
    drawn = _redrawn(recipe, folder, results, tiny)
    if changed and tiny.are_all:
        notes = (f"{changed}, its behaviour has not", *absent)
    return Verdict((*tiny.faults, *drawn.faults), (*notes, *tiny.notes, *drawn.notes))


def check_again(recipe: Recipe, folder: Path, again: Results | Explored) -> Verdict:
    """Compare a report with one that is drawn of runs made now: page, tables, figures, outlines.

    What the manifest says of code and files only becomes a note: the runs decide. Of a report that
    was made with other kernels of linear algebra, those numbers are compared that timing decides,
    for rounding alone may move the epochs to a target by a fifth; the rest is checked as by
    `check_report`. Nothing is written into the folder.
    """
    try:
        manifest, results = read_manifest(folder), read_results(recipe, folder)
    except FileFormatError as error:
        return Verdict((str(error),))
    other = _other_kernels(recipe, manifest)
    if other is None:
        faults = (*edits_of(folder, manifest), *lacks_of(manifest))
        notes = (*_changed_code(recipe, manifest), *_changes(recipe, manifest))
    else:
        checked = check_report(recipe, folder)
        faults = checked.faults
        notes = (*checked.notes, f"what it learned is not compared: {other}")
    if faults:
        return Verdict(faults, notes)
    own = {  # as if the same software had made them
        key: manifest[key] if key in software() else one
        for key, one in again.manifest.items()
        if key not in software() or key in manifest
    }
    now = again.as_before(own, results).contents()
    if other is not None:
        is_timed = recipe.file.max_epochs is None or recipe.file.explore is not None
        exact = TIMED if is_timed else FIXED
        before = _text(read_regular(folder / TABLE, TABLE))
        return Verdict(tuple(_columns_that_differ(before, str(now[TABLE]), exact)), notes)
    skipped = skipped_pictures(manifest)
    drawn = Drawn(now, "what its runs give", TOLERANCE, is_masked=True)
    faults = tuple(differences(folder, manifest, drawn, skipped))
    return Verdict(faults, tuple(filter(None, [*notes, skipped])))


# What is drawn again, and compared


@dataclass(frozen=True, slots=True)
class Drawn:
    """A report that was drawn again."""

    contents: Mapping[str, str | bytes | None]  # of all files, by name; None of what was not drawn
    source: str  # what they were drawn from, in words
    tolerance: float = ROUNDED  # relative difference of numbers that is none
    is_masked: bool = False  # whether hashes within texts do not count, as of code that has changed


def differences(
    folder: Path, manifest: Mapping[str, Any], drawn: Drawn, skipped: str | None = None
) -> Iterator[str]:
    """The files of a report that are not what they are drawn to, a sentence each.

    Pictures are compared unless they are `skipped`, for that reason.
    """
    yield from lacks_of(manifest, drawn.contents)
    for name in files_of(manifest):
        if name not in drawn.contents:
            yield f"{MANIFEST} lists {name}, which no report of this kind has"
            continue
        now = drawn.contents[name]
        if now is None or (skipped and name.endswith(".png")):
            continue
        before = read_regular(folder / name, name)
        if isinstance(now, bytes):
            where = None if before == now or look_alike(before, now) else ""
        else:
            where = _text_that_differs(name, _text(before), now, drawn)
        if where is not None:
            yield f"{name} is not {drawn.source}{where}"


def lacks_of(manifest: Mapping[str, Any], names: Iterable[str] = ()) -> Iterator[str]:
    """Name what a report's manifest lacks: files, and what drew its pictures."""
    if not isinstance(manifest.get(DRAWN_WITH), str):
        yield f"{MANIFEST} lacks {DRAWN_WITH}, the libraries of its pictures; --redraw writes it"
    listed = files_of(manifest)
    for name in names:
        if name not in listed:
            yield f"{MANIFEST} does not list {name}"


def _text_that_differs(name: str, before: str, now: str, drawn: Drawn) -> str | None:
    """Find the first difference of two texts; None where only rounding differs."""
    texts = [_SHA256.sub("", one) if drawn.is_masked else one for one in (before, now)]
    old, new = (one.split("\n") for one in texts)
    apart = first_apart(old, new, partial(are_alike, tolerance=drawn.tolerance))
    if apart is None:
        return None
    if apart.a is None or apart.b is None:
        return f": it has {len(old) - 1} lines in place of {len(new) - 1}"
    cell = _cell_that_differs(old[0], apart.a, apart.b, drawn) if name.endswith("csv") else None
    return cell or f": line {apart.place + 1} has {_words(apart.a, apart.b, drawn.tolerance)}"


def are_alike(before: str, now: str, tolerance: float) -> bool:
    """Tell whether two texts differ by the rounding of numbers at most.

    Whole numbers must be the same; others may differ by the relative tolerance.

    >>> are_alike("in 1.5 s, 3", "in 1.6 s, 3", 1e-6)
    False
    >>> are_alike("in 1.5000000001 s", "in 1.5 s", 1e-6)
    True
    """
    return before == now or _first_part(before, now, tolerance) is None


def _first_part(before: str, now: str, tolerance: float) -> Apart[str] | None:
    """The first of their numbers, or of what stands between numbers, that is not alike."""
    old, new = (re.split(f"({_NUMBER.pattern})", one) for one in (before, now))
    return first_apart(old, new, partial(_is_alike, tolerance=tolerance))


def _words(before: str, now: str, tolerance: float) -> str:
    """Quote what a text has in place of what, where it first differs."""
    apart = _first_part(before, now, tolerance)
    if apart is None or apart.a is None or apart.b is None:
        return f"{before[-60:]!r} in place of {now[-60:]!r}"
    letter = first_apart(apart.a, apart.b)
    start = max(0, letter.place - 30) if letter is not None else 0  # chosen: half of what is shown
    return f"{apart.a[start : start + 60]!r} in place of {apart.b[start : start + 60]!r}"


def _is_alike(before: str, now: str, tolerance: float) -> bool:
    """Tell whether two parts of texts are the same, or numbers that are close and not whole."""
    if before == now:
        return True
    if not _NUMBER.fullmatch(before) or not _NUMBER.fullmatch(now):
        return False
    are_whole = before.lstrip("-").isdigit() and now.lstrip("-").isdigit()
    return not are_whole and is_close(float(before), float(now), tolerance)


def _cell_that_differs(head: str, before: str, now: str, drawn: Drawn) -> str | None:
    """Column and row of the first cell of a table that differs; None where it has other columns."""
    try:
        columns, old, new = (next(iter(csv.reader([one, "-"]))) for one in (head, before, now))
    except csv.Error:
        return None
    is_a_row = len(columns) == len(old) == len(new) and columns != old
    is_same = partial(are_alike, tolerance=drawn.tolerance)
    apart = first_apart(old, new, is_same) if is_a_row else None
    if apart is None:
        return None
    first, second = old[apart.place][:60], new[apart.place][:60]
    return f": {columns[apart.place]} of {old[0][:60]} is {first!r} in place of {second!r}"


def _columns_that_differ(before: str, now: str, columns: Collection[str]) -> Iterator[str]:
    """Numbers in some columns of two tables that are not alike."""
    old, new = (list(csv.DictReader(io.StringIO(one))) for one in (before, now))
    if [row.get("schedule") for row in old] != [row.get("schedule") for row in new]:
        yield "it has other rows"
        return
    for first, second in zip(old, new, strict=True):
        for column in (name for name in second if name in columns and name in first):
            if not are_alike(first[column] or "", second[column] or "", TOLERANCE):
                place = f"{column} of {first['schedule']}"
                yield f"{TABLE}: {place} was {first[column]} and is {second[column]}"


def _text(content: bytes) -> str:
    return content.decode("utf-8", "backslashreplace").replace("\0", "?")


def _redrawn(recipe: Recipe, folder: Path, results: Reported, tiny: _TinyRuns) -> Verdict:
    """Draw a report from its outlines and the tiny runs, and compare.

    A Gantt chart whose window is longer than the tiny runs is drawn again of longer ones.
    """
    manifest, seed = read_manifest(folder), recipe.file.seeds[0]
    verdict = _drawn_once(folder, manifest, results, tiny.runs if tiny.are_all else None)
    if not any(one.startswith(f"{TOGETHER.file} is not") for one in verdict.faults):
        return verdict
    longer = [
        run_of(*tiny_task(row, seed, LONGER).run(None), schedule=row.label, seed=seed)
        for row in _tuned_rows(recipe, manifest).rows
    ]
    return _drawn_once(folder, manifest, results, longer)


def _drawn_once(
    folder: Path, manifest: Mapping[str, Any], results: Reported, runs: Sequence[Run] | None
) -> Verdict:
    skipped = skipped_pictures(manifest)
    odd = ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError
    try:
        contents = draw_again(results, runs)
    except odd as error:
        return Verdict((f"{OUTLINES} cannot be drawn: {told(error)}",))
    drawn = Drawn({**contents, WITNESS: None, OUTLINES: None}, f"what {OUTLINES} draws to")
    unseen = [name for name, content in contents.items() if content is None]
    notes = [f"{name} is not compared, for tiny runs of all rows would draw it" for name in unseen]
    faults = tuple(differences(folder, manifest, drawn, skipped))
    return Verdict(faults, tuple(filter(None, [skipped, *notes])))


def draw_again(results: Reported, runs: Sequence[Run] | None) -> dict[str, str | bytes | None]:
    """Draw a report's tables, figures and pages again, by name; `runs` are for its charts."""
    charts = results.charts(runs)
    return {**charts, **results.tables(), **results.drawn(charts)}


def skipped_pictures(manifest: Mapping[str, Any]) -> str | None:
    """Why pictures cannot be compared; None where they can."""
    was, now = manifest[DRAWN_WITH], drawn_with()
    if was == now:
        return None
    return f"pictures are not compared: they were drawn with {was}, and here is {now}"


# Tiny runs


@dataclass(slots=True)
class _TinyRuns:
    """Tiny runs of all rows: who behaves otherwise, who was not compared, runs."""

    faults: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    runs: tuple[Run, ...] = ()
    are_all: bool = False  # whether every row has a run, and none behaves otherwise


def _tuned_rows(recipe: Recipe, manifest: Mapping[str, Any]) -> Rows:
    """The rows with the optimizers that they were tuned to, of which witnesses tell."""
    made = sequence(manifest.get("schedules"))
    return make_rows(recipe).with_optimizers([mapping(one).get("optimizer") for one in made])


def _tiny_runs(
    recipe: Recipe, manifest: Mapping[str, Any], kept: Mapping[str, Witness], tolerance: float
) -> _TinyRuns:
    found, seed = _TinyRuns(), recipe.file.seeds[0]
    try:
        rows = _tuned_rows(recipe, manifest)
    except MissingDataError as error:
        found.notes.append(f"what it does is not compared with {WITNESS}: {error}")
        return found
    except AmpsimError as error:
        found.faults.append(str(error))
        return found
    if any(one not in sequence(manifest.get("costs")) for one in costs_of(recipe, rows)):
        found.faults.append(f"{MANIFEST} tells other costs than are charged; make the report again")
    found.faults += _other_copies(rows, manifest, tolerance)
    labels = [row.label for row in rows.rows]
    found.faults += [f"{WITNESS} says nothing of {one}" for one in labels if one not in kept]
    found.faults += [f"{WITNESS} has a row {one}" for one in kept if one not in labels]
    unheard: dict[str, list[str]] = {}
    for row in (row for row in rows.rows if row.label in kept):
        try:
            now = tiny_run(row, rows.goal, seed)
        except MissingDataError as error:
            unheard.setdefault(str(error), []).append(row.label)
            continue
        except AmpsimError as error:
            found.faults.append(f"{row.label}: {error}")
            continue
        difference = now.difference(kept[row.label], tolerance)
        if difference is not None:
            found.faults.append(f"{row.label} behaves otherwise: {difference}")
        found.runs += (now.run,)
    for why, silent in unheard.items():
        who = "it" if len(silent) == len(labels) else ", ".join(silent)
        found.notes.append(f"what {who} does is not compared with {WITNESS}: {why}")
    found.are_all = not found.faults and not unheard
    return found


def _other_copies(rows: Rows, manifest: Mapping[str, Any], tolerance: float) -> Iterator[str]:
    """Find what a manifest says of a row's copies, which no run tells, and what is not so now."""
    told_before = sequence(manifest.get("schedules"))
    for row, now, said in zip(rows.rows, copies_of(rows.rows), told_before, strict=False):
        copies = mapping(said).get("copies")
        before = mapping(copies) if isinstance(copies, dict) else {}
        for key in (one for one in now if None not in (now[one], before.get(one))):
            if not is_close(before[key], now[key], tolerance):
                is_number = isinstance(before[key], int | float)
                was = f"{before[key]:.6g}" if is_number else short(before[key])
                yield f"{key} of {row.label} was {was}, and is {now[key]:.6g}"


# Hashes


def _changes(recipe: Recipe, manifest: dict[str, Any]) -> Iterator[str]:
    """Name all that the report rests on and that has changed."""
    if manifest.get("recipe", {}).get("sha256") != recipe.sha256:
        yield "the recipe has changed"
    yield from dict.fromkeys(_changed_clusters(recipe, manifest))
    for file, is_same in _data(manifest):
        if is_same is False:
            yield f"the data file {file} is another one"


def _changed_clusters(recipe: Recipe, manifest: dict[str, Any]) -> Iterator[str]:
    """The recipe's cluster, and those of rows that have their own."""
    entries, before = recipe.file.schedules, sequence(manifest.get("schedules"))
    for index in (None, *(place for place, one in enumerate(entries) if one.hardware)):
        name, origin = recipe.file.cluster, manifest
        if index is not None:
            name = entries[index].cluster or name
            origin = mapping(before[index]) if index < len(before) else {}
        try:
            now = cluster_of(recipe, index).digest
        except (AmpsimError, OSError) as error:
            yield str(error)
            if index is None:
                return
            continue
        if origin.get("cluster", {}).get("sha256") != now:
            yield f"the device or cluster file of {name} has changed"


def _changed_code(recipe: Recipe, manifest: dict[str, Any]) -> Iterator[str]:
    """Name the code that has changed; what it does may be the same."""
    if manifest.get("code") != source_digest():
        yield "ampsim's code has changed"
    model = locate("models", recipe.beside(recipe.file.model, ".py"))
    if manifest.get("model", {}).get("sha256") != sha256_of(model):
        yield f"the model file of {recipe.file.model} has changed"


def _other_kernels(recipe: Recipe, manifest: dict[str, Any]) -> str | None:
    """Name the kernels that made the report, where those of here may round otherwise."""
    if recipe.file.is_asleep:
        return None  # nothing was learned
    was, now = manifest.get("linear_algebra", "kernels it does not name"), linear_algebra()
    return f"it was made with {was}, and here is {now or 'none known'}" if was != now else None


def _data(manifest: dict[str, Any]) -> Iterator[tuple[str, bool | None]]:
    """Each data file, and whether it is the same; None where it is not here."""
    for entry in sequence(manifest.get("data")):
        path = data_folder() / str(entry["file"])
        yield entry["file"], sha256_of(path) == entry["sha256"] if os.path.isfile(path) else None
