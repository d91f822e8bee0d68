"""ampsim report: a recipe run and written up, or a report that was written checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ampsim.cli import options
from ampsim.cli.say import Code, complain, in_columns, output_folder, write
from ampsim.errors import OptionError

if TYPE_CHECKING:
    from ampsim.study.recipe import Recipe
    from ampsim.study.recipe_run import Findings

NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME|DIR]...",
        help="Recipes of the folder reports/ here, or folders with a recipe.toml.",
    ),
]
ListOption = Annotated[bool, typer.Option("--list", help="List the recipes.")]
CheckOption = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Run nothing; say whether the reports still follow from recipe and code, by the "
        "hashes in their manifests. All recipes unless some are named.",
    ),
]
RerunOption = Annotated[
    bool, typer.Option("--rerun", help="With --check: run again and compare the numbers too.")
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", help="Write to DIR/NAME, instead of into the recipe's folder."
    ),
]


def report(
    names: NamesArgument = None,
    *,
    list_only: ListOption = False,
    check: CheckOption = False,
    rerun: RerunOption = False,
    out: OutOption = None,
    jobs: options.JobsOption = None,
    quiet: options.QuietOption = False,
) -> Code:
    """Run recipes and write their reports: page, tables, figures and manifest.

    Finished runs are kept beside the report, so that an interrupted one goes on where it was.
    Without a name, or with --list, it lists the recipes. --check ends with 1 where a report does
    not follow any more.
    """
    from ampsim.study.recipe import read_recipe
    from ampsim.study.recipe_places import recipe_folder, recipe_names

    if rerun and not check:
        raise OptionError("--rerun belongs to --check; add it, or leave --rerun out")
    if check and not names:
        names = recipe_names()
    if list_only or not names:
        _list(names)
        return Code.FINE
    recipes = [read_recipe(recipe_folder(name)) for name in names]
    make = _check_numbers if rerun else _check if check else _write
    how = _How(options.make_jobs(jobs), quiet)
    codes: list[Code] = []
    for recipe in recipes:
        codes.append(make(recipe, recipe.folder if out is None else out / recipe.name, how))
        if codes[-1] is Code.INTERRUPTED:
            break
    return max(codes)


def _list(names: list[str] | None) -> None:
    from ampsim.study.recipe import read_recipe
    from ampsim.study.recipe_places import recipe_folder, recipe_names

    recipes = [read_recipe(recipe_folder(name)) for name in names or recipe_names()]
    write(in_columns((recipe.name, recipe.file.title) for recipe in recipes) or "no recipes here")


@dataclass(frozen=True, slots=True)
class _How:
    """How recipes are run: so many runs at a time, with or without progress."""

    jobs: int
    is_quiet: bool


def _run(recipe: Recipe, folder: Path, how: _How) -> Findings | None:
    """What the recipe gives; None where Ctrl-C came first, which is said."""
    from ampsim.cli.progress import shown
    from ampsim.study.recipe_run import InterruptedReport, run_recipe

    def say(line: str) -> None:
        if not how.is_quiet:
            complain(f"{recipe.name}: {line}")

    try:
        with shown(is_quiet=how.is_quiet) as on_progress:
            return run_recipe(recipe, folder, jobs=how.jobs, on_progress=on_progress, say=say)
    except InterruptedReport as error:
        complain(f"{recipe.name}: {error}")
        return None


def _write(recipe: Recipe, folder: Path, how: _How) -> Code:
    """Run a recipe and write its report."""
    from ampsim.report.recipe_page import write_report

    with output_folder(folder) as place:
        findings = _run(recipe, place, how)
        if findings is None:
            return Code.INTERRUPTED
        written = write_report(findings, recipe.file, place)
    write(f"wrote {written[-2]} with its figures, tables and manifest")
    for failure in findings.failures:
        complain(f"{recipe.name}: {failure}")
    return Code.FAILED if findings.failures else Code.FINE


def _check(recipe: Recipe, folder: Path, how: _How) -> Code:
    """Compare hashes, and say what came of it."""
    from ampsim.study.recipe_check import check_report

    verdict = check_report(recipe, folder)
    return _say(recipe, verdict.faults, verdict.notes)


def _check_numbers(recipe: Recipe, folder: Path, how: _How) -> Code:
    """Run again, compare numbers, and say what came of it."""
    from ampsim.study.recipe_check import check_numbers

    findings = _run(recipe, folder, how)
    if findings is None:
        return Code.INTERRUPTED
    verdict = check_numbers(recipe, folder, findings)
    return _say(recipe, verdict.faults, verdict.notes)


def _say(recipe: Recipe, faults: tuple[str, ...], notes: tuple[str, ...]) -> Code:
    more = f" ({'; '.join(notes)})" if notes else ""
    if not faults:
        write(f"{recipe.name}: follows{more}")
        return Code.FINE
    write(f"{recipe.name}: does not follow: {'; '.join(faults)}{more}")
    return Code.STALE
