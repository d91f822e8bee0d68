"""The kinds of wrong inputs, and how many of each there are among a number of calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mutation import (
    command_line,
    data_files,
    functions,
    kept_folders,
    models,
    surroundings,
    written_files,
)
from mutation.case import Maker


@dataclass(frozen=True)
class Kind:
    """A kind of wrong input.

    Args:
        make: makes a case of it.
        share: how many of `sum of all shares` calls are of this kind.
    """

    make: Maker
    share: int


KINDS = {
    "hardware": Kind(written_files.hardware, 4),
    "placement": Kind(written_files.placement, 2),
    "recipe": Kind(written_files.recipe, 3),
    "calibration": Kind(written_files.calibration, 2),
    "model": Kind(models.model, 5),
    "run-folder": Kind(kept_folders.run_folder, 4),
    "report": Kind(kept_folders.report_folder, 1),
    "data": Kind(data_files.data, 4),
    "vectors": Kind(data_files.vectors, 1),
    "option": Kind(command_line.options, 8),
    "surroundings": Kind(surroundings.surroundings, 1),
    "function": Kind(functions.function, 8),
}


def sequence(names: list[str], count: int) -> Iterator[str]:
    """`count` kinds in turn, each as often as its share says, the same kinds spread evenly."""
    done = dict.fromkeys(names, 0)
    for _ in range(count):
        name = min(names, key=lambda one: ((done[one] + 1) / KINDS[one].share, one))
        done[name] += 1
        yield name
