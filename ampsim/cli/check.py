"""ampsim check: is a file that a user wrote what it should be?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ampsim.cli import devices as devices_command
from ampsim.cli.models import parameter_count
from ampsim.cli.say import Code, write
from ampsim.errors import AmpsimError, FileFormatError

RECIPE_FILE = "recipe.toml"

FileArgument = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="A device or cluster file (.toml), a recipe.toml, or a model (.py)."
    ),
]


def check(file: FileArgument) -> Code:
    """Check a device, cluster, recipe or model file; a model is built, verified and tried out."""
    suffix = Path(file).suffix.lower()
    if Path(file).name == RECIPE_FILE:
        write(f"ok: {file}: {_recipe_words(file)}")
    elif suffix == ".toml":
        write(f"ok: {file}: {_device_words(file)}")
    elif suffix == ".py":
        write(f"ok: {file}: {_model_words(file)}")
    else:
        raise FileFormatError(
            f"{file}: expected a device or cluster file (.toml) or a model file (.py)"
        )
    return Code.FINE


def _device_words(file: str) -> str:
    from ampsim.hardware import Device

    loaded = devices_command.load(file)
    kind = "device" if isinstance(loaded, Device) else "cluster"
    return f"{kind} {loaded.name}, {devices_command.summary(loaded)}"


def _recipe_words(file: str) -> str:
    from ampsim.study.recipe import read_recipe
    from ampsim.study.recipe_plan import make_rows

    recipe = read_recipe(Path(file).parent)
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
