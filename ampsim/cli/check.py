"""ampsim check: is a file that a user wrote what it should be?"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ampsim.cli import devices as devices_command
from ampsim.cli import options
from ampsim.cli.json_object import object_of, prepare_json, write_json
from ampsim.cli.models import parameter_count
from ampsim.cli.say import Code, complain, write
from ampsim.cli.traceback import show_traceback
from ampsim.errors import AmpsimError, FileFormatError
from ampsim.paths import expanded

RECIPE_FILE = "recipe.toml"

FilesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...",
        help="Device and cluster files (.toml), placements (.toml, NODE = WORKER), recipes "
        "(recipe.toml, or its folder) and models (.py).",
    ),
]


def check(files: FilesArgument, *, json: options.JsonOption = None) -> Code:
    """Check device, cluster, placement, recipe and model files; a model is built and tried out.

    It goes on after a file that is wrong, says so of each, and then ends with 2. A model file, and
    the one that a recipe names, is Python and is executed: check only files that you would run. The
    object of --json: ampsim, files (a list: file, kind, is_right, text, error).
    """
    prepare_json(json)
    rows = [_row(file) for file in files]
    for row in rows:
        if row["error"] is not None:
            complain(row["error"])
        elif json != "-":
            write(f"ok: {row['file']}: {row['text']}")
    if json is not None:
        write_json(object_of(files=rows), json)
    return Code.FINE if all(row["is_right"] for row in rows) else Code.FAILED


def _row(file: str) -> dict[str, Any]:
    """What there is to say of one file."""
    row: dict[str, Any] = {"file": file, "kind": None, "is_right": False, "text": None}
    try:
        row["kind"] = kind = _kind(file)
        row |= {"text": _WORDS[kind](file), "is_right": True, "error": None}
    except AmpsimError as error:
        row["error"] = str(error)
        show_traceback(error)
    return row


def _kind(file: str) -> str:
    """What a file is meant as, by its name, and for hardware and placements by its keys."""
    path, suffix = expanded(file), Path(file).suffix.lower()
    if Path(file).name == RECIPE_FILE or os.path.isfile(path / RECIPE_FILE):
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
    from ampsim import assets
    from ampsim.hardware import Cluster, Device
    from ampsim.hardware.cluster_file import is_cluster
    from ampsim.hardware.record import HARDWARE
    from ampsim.toml_file import read_table

    path = assets.locate("devices", file)
    try:
        table = read_table(path, file, HARDWARE)
    except FileFormatError:  # such as a node with two workers, which the other reader explains
        return "device"
    if is_cluster(table):
        return "cluster"
    known = {*Device.model_fields, *Cluster.model_fields}
    has_number = any(isinstance(value, int) for value in table.values())
    return "placement" if has_number and not known & set(table) else "device"


def _placement_words(file: str) -> str:
    from ampsim.model_parallel.placements.file import read_placement

    placed = read_placement(file)
    workers = len(set(placed.values()))
    return f"placement of {len(placed)} nodes on {workers} worker{'s' * (workers != 1)}"


def _device_words(file: str) -> str:
    from ampsim.hardware import Device

    loaded = devices_command.load(file)
    kind = "device" if isinstance(loaded, Device) else "cluster"
    return f"{kind} {loaded.name}, {devices_command.summary(loaded)}"


def _recipe_words(file: str) -> str:
    from ampsim.recipes.recipe import read_recipe
    from ampsim.recipes.rows import make_rows

    path = expanded(file)
    recipe = read_recipe(path if os.path.isdir(path) else path.parent)
    rows = make_rows(recipe)
    runs = len(rows.rows) * len(recipe.file.seeds)
    return f"recipe of {rows.model.name} on {rows.cluster.name}, {runs} runs"


def _model_words(file: str) -> str:
    from ampsim.study import load_model
    from ampsim.study.checking import try_out
    from ampsim.study.loading import where

    model = load_model(file)
    graph = model.graph()
    try:
        trial = try_out(model)
    except AmpsimError:
        raise
    except Exception as error:  # of the user's own code: data or pump
        raise FileFormatError(f"{file}: tried out and failed{where(error, Path(file))}") from error
    return (
        f"model {model.name}, {len(graph.nodes)} nodes, {parameter_count(graph):,} parameters; "
        f"an instance of {trial.items} items went forward and back in {trial.messages} messages "
        f"(mode {trial.mode})"
    )


_WORDS: Final[dict[str, Callable[[str], str]]] = {
    "device": _device_words,
    "cluster": _device_words,
    "placement": _placement_words,
    "recipe": _recipe_words,
    "model": _model_words,
}
