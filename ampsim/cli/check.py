"""ampsim check: is a file that a user wrote what it should be?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ampsim
from ampsim import assets
from ampsim.cli.console import Code, complain, object_of, show_traceback, write, write_json
from ampsim.cli.devices import load, summary
from ampsim.cli.models import parameter_count
from ampsim.cli.options import RECIPE_FILE, recipe_at
from ampsim.errors import AmpsimError, FileFormatError


def check(files: list[str], *, json: str | None = None) -> Code:
    """Check device, cluster, placement, recipe and model files; a model is built and tried out.

    It goes on after a file that is wrong, says so of each, and then ends with 2. Hardware beyond
    anything known is right and gets a note, and so do data with nothing to validate on. A model
    file, and the one that a recipe names, is Python and is executed: check only files that you
    would run. The object of --json: ampsim, files (a list: file, kind, is_right, text, error,
    notes).
    """
    rows = [_row(file) for file in files]
    for row in rows:
        for note in row["notes"]:
            complain(f"note: {row['file']}: {note}")
        if row["error"] is not None:
            complain(row["error"])
        else:
            write(f"ok: {row['file']}: {row['text']}")
    if json is not None:
        write_json(object_of(files=rows), json)
    return Code.FINE if all(row["is_right"] for row in rows) else Code.FAILED


def _row(file: str) -> dict[str, Any]:
    """Check one file, and tell all that there is to say of it."""
    from ampsim.calibration.texts import measured_elsewhere
    from ampsim.hardware import implausible

    row: dict[str, Any] = {"file": file, "kind": None, "is_right": False, "text": None, "notes": []}
    try:
        row["kind"] = kind = _kind(file)
        if kind in ("device", "cluster"):
            hardware = load(file)
            row["text"] = f"{kind} {hardware.name}, {summary(hardware)}"
            row["notes"] = [*implausible(hardware), *measured_elsewhere(hardware)]
        elif kind == "model":
            row["text"], row["notes"] = _model_words(file)
        else:
            row["text"] = _recipe_words(file) if kind == "recipe" else _placement_words(file)
        row |= {"is_right": True, "error": None}
    except AmpsimError as error:
        row["error"] = text if file in (text := str(error)) else f"{file}: {text}"
        show_traceback(error)
    return row


def _kind(file: str) -> str:
    """Guess a file's kind by its name, and of hardware and placements by its keys."""
    suffix = Path(file).suffix.lower()
    if recipe_at(file):
        return "recipe"
    if suffix == ".toml":
        return _kind_of_table(file)
    if suffix == ".py":
        return "model"
    raise FileFormatError(
        f"{file}: expected a device, cluster or placement file (.toml), a folder with "
        f"{RECIPE_FILE} or a model file (.py)"
    )


def _kind_of_table(file: str) -> str:
    from ampsim.hardware.load import is_cluster
    from ampsim.hardware.record import HARDWARE
    from ampsim.toml_file import read_table

    path = assets.locate("devices", file)
    try:
        table = read_table(path, file, HARDWARE)
    except FileFormatError:  # such as a node with two workers, which the other reader explains
        return "device"
    if is_cluster(table):
        return "cluster"
    known = {*ampsim.Device.model_fields, *ampsim.Cluster.model_fields}
    has_number = any(isinstance(value, int) for value in table.values())
    return "placement" if has_number and not known & set(table) else "device"


def _placement_words(file: str) -> str:
    from ampsim.model_parallel.placements.file import read_placement

    placed = read_placement(file)
    workers = len(set(placed.values()))
    count = f"{len(placed)} node{'s' * (len(placed) != 1)}"
    return f"placement of {count} on {workers} worker{'s' * (workers != 1)}"


def _recipe_words(file: str) -> str:
    from ampsim.recipes.recipe import read_recipe
    from ampsim.recipes.rows import make_rows, search_of, space_of

    recipe = read_recipe(recipe_at(file) or file)
    if recipe.file.search is not None:
        rows, _how = search_of(recipe)
        count = f"a search of {recipe.file.search.trials} trials"
    elif recipe.file.explore:
        space = space_of(recipe)
        rows = space.at_ends
        count = f"a map of {len(space.points) * len(recipe.file.schedules)} cells"
    else:
        rows = make_rows(recipe)
        count = f"{len(rows.rows) * len(recipe.file.seeds)} runs"
    return f"recipe of {rows.model.name} on {rows.cluster.name}, {count}"


def _model_words(file: str) -> tuple[str, list[str]]:
    """Describe a model, with notes on it."""
    from ampsim.study.loading import where

    model = ampsim.load_model(file)
    try:
        trial = ampsim.try_out(model)
    except AmpsimError:
        raise
    except Exception as error:  # of the user's own code: data or pump
        raise FileFormatError(f"{file}: tried out and failed{where(error, Path(file))}") from error
    graph = model.graph()
    nodes, steps = f"{len(graph.nodes)} nodes", "messages"
    if model.is_program_only:
        count, steps = len(graph.parameterized), "steps"
        nodes = f"a program of {count} layer{'s' * (count != 1)}"
    words = (
        f"model {model.name}, {nodes}, {parameter_count(graph):,} parameters; "
        f"an instance of {trial.items} items went forward and back in {trial.messages} {steps} "
        f"(mode {trial.mode})"
    )
    unmeasured = "no data to validate on, so that no target is reached; give some as valid"
    return words, [] if trial.is_measured else [unmeasured]
