"""Where recipes lie: in the `reports/` of a checkout, or wherever a user says."""

from __future__ import annotations

import os
from pathlib import Path

from ampsim.assets import shipped
from ampsim.errors import UnknownNameError, one_of
from ampsim.paths import expanded
from ampsim.recipes.recipe import RECIPE

PROGRAM = "program.py"
"""A report's program, in place of a recipe."""


def reports_folder() -> Path | None:
    """The folder `reports/` here, else in the checkout around the package; None without one.

    Reports are not shipped: an installed package has none of its own.
    """
    candidates = (Path("reports"), shipped("models").parent / "reports")
    return next((path for path in candidates if os.path.isdir(path)), None)


def recipe_names() -> list[str]:
    """Names of the recipes there, sorted: each is its folder's."""
    folder = reports_folder()
    return [] if folder is None else sorted(path.parent.name for path in folder.glob(f"*/{RECIPE}"))


def recipe_folder(name_or_path: str) -> Path:
    """The folder that a name, the path of a folder or that of its recipe leads to.

    A path is what has a separator, or is a folder that is named by dots.

    Raises:
        UnknownNameError: there is no such recipe.
    """
    is_path = os.sep in name_or_path or name_or_path in (".", "..", RECIPE)
    if is_path:
        path = expanded(name_or_path)
        folder = path.parent if path.name == RECIPE else path
        if os.path.isfile(folder / RECIPE):
            return folder
        raise UnknownNameError(f"no recipe in {str(folder)!r}; expected a folder with {RECIPE}")
    folder = reports_folder()
    if folder is None:
        raise UnknownNameError(
            f"no recipe named {name_or_path!r}: there is no folder 'reports' here; go to a "
            f"checkout of ampsim, or give the path of a folder with {RECIPE}"
        )
    if name_or_path not in recipe_names():
        known = sorted([*recipe_names(), *program_names()])
        raise UnknownNameError(
            f"{one_of('recipe', name_or_path, known)}; or give the path of a folder with {RECIPE}"
        )
    return folder / name_or_path


def program_names() -> list[str]:
    """Names of the reports there that a program makes, sorted."""
    folder = reports_folder()
    if folder is None:
        return []
    return sorted(path.parent.name for path in folder.glob(f"*/{PROGRAM}"))


def program_folder(name_or_path: str) -> Path | None:
    """The folder of a program that a name or a path leads to; None where it leads to none."""
    if name_or_path in program_names():
        folder = reports_folder()
        return None if folder is None else folder / name_or_path
    path = expanded(name_or_path)
    folder = path.parent if path.name == PROGRAM else path
    is_path = os.sep in name_or_path or name_or_path in (".", "..", PROGRAM)
    return folder if is_path and os.path.isfile(folder / PROGRAM) else None
