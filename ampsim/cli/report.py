"""`ampsim report`: make a recipe's report, or check one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ampsim.cli import options
from ampsim.cli.console import (
    Code,
    complain,
    in_columns,
    object_of,
    require_effect,
    write,
    write_json,
)
from ampsim.errors import FileFormatError, OptionError
from ampsim.files import expanded

if TYPE_CHECKING:
    from ampsim.recipes.checking import Verdict
    from ampsim.recipes.explored import Explored
    from ampsim.recipes.programs import ReportProgram
    from ampsim.recipes.recipe import Recipe
    from ampsim.recipes.results import Results

_Way: TypeAlias = Literal["write", "redraw", "check", "rerun"]
"""What is done with a report."""


def report(
    names: list[str] | None = None,
    *,
    list_only: bool = False,
    check: bool = False,
    rerun: bool = False,
    redraw: bool = False,
    out: Path | None = None,
    jobs: int | None = None,
    executor: str | None = None,
    run_limit: str | None = None,
    json: str | None = None,
    quiet: bool = False,
) -> Code:
    """Run recipes and write their reports: page, tables, figures and manifest.

    Finished runs are kept beside the report, so that an interrupted one goes on where it was.
    Without a name, or with --list, it lists the recipes. --check ends with 1 where a report does
    not follow any more. The object of --json: ampsim, reports (a list: name, title, folder, state,
    faults, notes; the state is listed, written, redrawn, failed, follows, stale or interrupted).
    """
    from ampsim.recipes.recipe import report_names
    from ampsim.recipes.running import InterruptedReport

    way = _what_to_do(check=check, rerun=rerun, redraw=redraw)
    every = names or report_names()
    runs = ["jobs", "executor", "run_limit"]
    if list_only or not every or (way == "write" and not names):
        require_effect(["check", "rerun", "redraw", "out", *runs], "where recipes are listed")
        how = _How(1, quiet)
        _list(every, how)
        return how.told(json, Code.FINE)
    found, programs = _split(every)
    searches = [one for one in found if one.file.search is not None]
    if names and searches:
        label, place = searches[0].label, searches[0].folder
        raise OptionError(f"{label}: a report has no search; make it with `ampsim search {place}`")
    recipes = [one for one in found if one not in searches]
    if way in ("check", "redraw") or not recipes:
        why = "beside --redraw" if way == "redraw" else "beside --check without --rerun"
        require_effect(runs, why if recipes else "on reports of programs, which make no such runs")
    makes = options.make_executor(jobs, executor)
    limit_s = options.seconds("--run-limit", run_limit)
    how = _How(makes, quiet, limit_s)
    codes: list[Code] = []
    for recipe in recipes:
        target = recipe.folder if out is None else expanded(out) / recipe.name
        try:
            codes.append(_WAYS[way](recipe, target, how))
        except InterruptedReport as error:
            said = error if way == "write" else "interrupted; the runs of a check are not kept"
            complain(f"{recipe.name}: {said}")
            how.note(recipe, target, "interrupted")
            return how.told(json, Code.INTERRUPTED)
    for folder in programs:
        target = folder if out is None else expanded(out) / folder.resolve().name
        codes.append(_do_program(folder, target, way, how))
    return how.told(json, max(codes, default=Code.FINE))


def _what_to_do(*, check: bool, rerun: bool, redraw: bool) -> _Way:
    if rerun and not check:
        raise OptionError("--rerun belongs to --check; add it, or leave --rerun out")
    if redraw and check:
        raise OptionError("--redraw writes and --check does not; leave one of them out")
    if redraw:
        return "redraw"
    if check:
        return "rerun" if rerun else "check"
    return "write"


def _split(names: list[str]) -> tuple[list[Recipe], list[Path]]:
    """The recipes of these names, and the folders of the programs."""
    from ampsim.recipes.recipe import PROGRAM, folder_with, read_recipe, recipe_folder

    folders = {name: folder_with(PROGRAM, name) for name in names}
    recipes = [read_recipe(recipe_folder(name)) for name in names if folders[name] is None]
    return recipes, [folder for name in names if (folder := folders[name]) is not None]


def _list(names: list[str], how: _How) -> None:
    from ampsim.recipes.programs import read_program

    recipes, programs = _split(names)
    for one in (*recipes, *map(read_program, programs)):
        how.note(one, one.folder, "listed")
    told = ((row["name"], row["title"]) for row in how.rows)
    write(in_columns(told) or "no recipes here")


@dataclass(frozen=True, slots=True)
class _How:
    """Options of running recipes, and what came of it."""

    executor: int | str
    is_quiet: bool
    run_limit_s: float | None = None
    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])  # of the JSON object

    def note(
        self, report: Recipe | ReportProgram, folder: Path, state: str, **said: tuple[str, ...]
    ) -> None:
        """Keep for --json what became of a report."""
        row = {"name": report.name, "title": report.title, "folder": str(folder)}
        self.rows.append({**row, "state": state, "faults": [], "notes": [], **said})

    def told(self, json: str | None, code: Code) -> Code:
        """Write the JSON object, if one is wanted; give the code."""
        if json is not None:
            write_json(object_of(reports=self.rows), json)
        return code


def _run(recipe: Recipe, folder: Path, how: _How, *, is_fresh: bool = False) -> Results | Explored:
    """Run a recipe."""
    from ampsim.cli.progress import shown
    from ampsim.recipes.explored import run_exploration
    from ampsim.recipes.running import RecipeOptions, run_recipe

    def say(line: str) -> None:
        if not how.is_quiet:
            complain(f"{recipe.name}: {line}")

    with shown(is_quiet=how.is_quiet) as on_progress:
        options = RecipeOptions(how.executor, is_fresh, on_progress, say, how.run_limit_s)
        make = run_exploration if recipe.file.explore else run_recipe
        return make(recipe, folder, options)


def _do_program(folder: Path, target: Path, way: _Way, how: _How) -> Code:
    """Make, check or draw the report of a program, which is drawn from what the program gave."""
    from ampsim.recipes.programs import (
        check_program,
        read_program,
        redraw_program,
        write_program_report,
    )

    program = read_program(folder)
    if way in ("check", "rerun"):
        verdict = check_program(program, target, is_again=way == "rerun")
        return _say(program, target, verdict, how)
    if way == "write" or not program.witness:
        written = write_program_report(program, program.tables(), target)
    else:
        try:
            written = redraw_program(program, target)
        except FileFormatError as error:
            return _not_redrawn(program, target, error, how)
    state, verb = ("written", "wrote") if way == "write" else ("redrawn", "redrew")
    how.note(program, target, state)
    write(f"{verb} {written[-2]} with its figures, tables and manifest")
    return Code.FINE


def _not_redrawn(
    report: Recipe | ReportProgram, folder: Path, error: FileFormatError, how: _How
) -> Code:
    how.note(report, folder, "failed", faults=(str(error),))
    complain(f"{report.name}: is not redrawn: {error}")
    return Code.FAILED


def _write(recipe: Recipe, folder: Path, how: _How) -> Code:
    from ampsim.output_folder import taken
    from ampsim.recipes.results import FILES

    with taken(folder, "report", FILES) as place:
        findings = _run(recipe, place.path, how)
        written = findings.save(place)
    state = "failed" if findings.failures else "written"
    how.note(recipe, folder, state, faults=tuple(findings.failures))
    write(f"wrote {written[-2]} with its figures, tables and manifest")
    for failure in findings.failures:
        complain(f"{recipe.name}: {failure}")
    return Code.FAILED if findings.failures else Code.FINE


def _redraw(recipe: Recipe, folder: Path, how: _How) -> Code:
    """Write a report again from its outlines; where that cannot be, say why."""
    from ampsim.output_folder import taken
    from ampsim.recipes.redrawing import files_of, read_manifest, read_results, redraw_report
    from ampsim.recipes.results import FILES

    try:
        results = read_results(recipe, folder)
        before = files_of(read_manifest(folder))
    except FileFormatError as error:
        return _not_redrawn(recipe, folder, error, how)
    with taken(folder, "report", FILES) as place:
        written = redraw_report(results, place, before)
    how.note(recipe, folder, "redrawn")
    write(f"redrew {written[-2]} with its figures and tables")
    return Code.FINE


def _check(recipe: Recipe, folder: Path, how: _How, *, is_again: bool = False) -> Code:
    """Check a report, `is_again` by runs made now."""
    from ampsim.recipes.checking import check_again, check_report

    if not is_again:
        return _say(recipe, folder, check_report(recipe, folder), how)
    with tempfile.TemporaryDirectory() as temporary:
        findings = _run(recipe, Path(temporary), how, is_fresh=True)
        verdict = check_again(recipe, folder, findings)
    return _say(recipe, folder, verdict, how)


def _say(report: Recipe | ReportProgram, folder: Path, verdict: Verdict, how: _How) -> Code:
    faults, notes = verdict.faults, verdict.notes
    how.note(report, folder, "stale" if faults else "follows", faults=faults, notes=notes)
    more = f" ({'; '.join(notes)})" if notes else ""
    if not faults:
        write(f"{report.name}: follows{more}")
        return Code.FINE
    write(f"{report.name}: does not follow: {'; '.join(faults)}{more}")
    return Code.STALE


_WAYS: Final[dict[_Way, Callable[[Recipe, Path, _How], Code]]] = {
    "write": _write,
    "redraw": _redraw,
    "check": _check,
    "rerun": partial(_check, is_again=True),
}
