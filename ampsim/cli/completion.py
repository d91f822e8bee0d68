"""Values that the shell offers, once `ampsim --install-completion` was run.

Nothing heavy is imported, so that a shell answers at once; of other names than methods that live in
heavy modules some stand here again, and a test compares them with their registries.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from typing import Final

from ampsim import assets
from ampsim.cli.methods import METHODS, Complete

SCHEDULES: Final = tuple(one.name for one in METHODS)
PLACEMENTS: Final = ("paper", "balanced", "k-hop", "communication-aware", "search")
DATASETS: Final = ("list_reduction", "mnist", "sst", "qm9", "wikiner")
TOPOLOGIES: Final = (
    "fully-connected", "ring", "mesh:4x4", "torus:4x4", "star", "fat-tree:4", "hierarchy:8x2",
)  # fmt: skip


def one_of(*names: str) -> Complete:
    """Offer these names."""

    def complete(incomplete: str) -> list[str]:
        return _starting(names, incomplete)

    return complete


def several_of(*names: str) -> Complete:
    """Offer these names after each comma, but none that is there already."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        rest = [name for name in names if name not in before.split(",")]
        return [f"{before}{comma}{name}" for name in _starting(rest, last)]

    return complete


def columns(incomplete: str) -> list[str]:
    """Columns of a forecast's table."""
    from ampsim.report.columns import COLUMNS

    return several_of("all", *COLUMNS)(incomplete)


def models(incomplete: str) -> list[str]:
    """Shipped models, and Python files."""
    return _starting(assets.names("models"), incomplete) + _paths(incomplete, ".py")


def devices(incomplete: str) -> list[str]:
    """Shipped devices, and TOML files."""
    return _starting(assets.names("devices"), incomplete) + _paths(incomplete, ".toml")


def placements(incomplete: str) -> list[str]:
    """Placements, and TOML files."""
    return _starting(PLACEMENTS, incomplete) + _paths(incomplete, ".toml")


def recipes(incomplete: str) -> list[str]:
    """Recipes in the folder `reports/` here, and folders."""
    found = glob.glob(os.path.join("reports", "*", "recipe.toml"))
    here = sorted(os.path.basename(os.path.dirname(path)) for path in found)
    return _starting(here, incomplete) + _paths(incomplete, None)


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _paths(incomplete: str, suffix: str | None) -> list[str]:
    """Folders, with a separator at the end, and files of that suffix."""
    found = sorted(glob.glob(f"{glob.escape(os.path.expanduser(incomplete))}*"))
    folders = [path + os.sep for path in found if os.path.isdir(path)]
    return folders + [path for path in found if suffix is not None and path.endswith(suffix)]
