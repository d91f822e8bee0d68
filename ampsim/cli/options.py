"""The options that several commands share, and what they make together."""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import ampsim
from ampsim.cli.console import complain
from ampsim.cli.methods import OPTIONS, SEVERAL
from ampsim.cli.option_table import ALL_SCHEDULES, DEVICE, OF_PROGRAMS
from ampsim.errors import OptionError
from ampsim.files import expanded

if TYPE_CHECKING:
    from ampsim.model_parallel import Schedule


RECIPE_FILE: Final = "recipe.toml"


def recipe_at(file: str) -> Path | None:
    """The folder of a recipe that is named by its path, or by its folder's; None of all else."""
    path = expanded(file)
    if path.name == RECIPE_FILE:
        return path.parent
    return path if os.path.isfile(path / RECIPE_FILE) else None


ModeName: TypeAlias = Literal["numeric", "sleep"]
"""What is computed."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """The options that name a cluster; None of what was not given."""

    device: str | None = None
    workers: int | None = None
    latency_s: float | None = None
    bandwidth_bytes_per_s: float | None = None
    topology: str | None = None

    def cluster(self) -> ampsim.Cluster:
        """The cluster that they name."""
        given = asdict(self)
        device = given.pop("device")
        return ampsim.load_cluster(DEVICE if device is None else device, **given)


def seconds(option: str, given: str | None) -> float | None:
    """The seconds of an option that was given; None of one that was not."""
    from ampsim.options import seconds_of

    return None if given is None else seconds_of(option, given)


def free_links_line(cluster: ampsim.Cluster) -> str:
    """Note that links take no time; "" where one does."""
    if cluster.workers == 1 or not cluster.is_link_free:
        return ""
    return "Links are free here; --latency-s and --bandwidth-bytes-per-s give them a cost."


def note_free_products(model: ampsim.Model, cluster: ampsim.Cluster) -> None:
    """Note which products of matrices take no time, by what a device's file leaves out."""
    from ampsim.model_parallel import free_products
    from ampsim.study.process_settings import fixed_settings

    with fixed_settings():
        for line in free_products(model.bare_graph(), cluster):
            complain(f"note: {line}")


def make_model(name: str, settings: list[str] | None, data: str | None = None) -> ampsim.Model:
    """The model that the command line names, with its settings and its data folder."""
    from ampsim.study.loading import option_names, settings_of, with_data_folder

    chosen = settings_of(settings or [])
    if data is not None:
        chosen = with_data_folder(chosen, data, name, option_names(name))
    if "folder" in chosen and chosen.get("data") == "synthetic":
        raise OptionError(
            f"{'--set folder=' if data is None else '--data '}{chosen['folder']} has no effect "
            "beside --set data=synthetic, which reads no file; leave one of them out"
        )
    return ampsim.load_model(name, **chosen)


def usual_of(model: ampsim.Model) -> str:
    """Names of the schedules that are compared unless some are named."""
    return ALL_SCHEDULES if model.make_graph else OF_PROGRAMS


def make_executor(jobs: int | None, executor: str | None) -> int | str:
    """Choose what makes runs: as told, else as many processes as there are cores.

    Raises:
        OptionError: both are given.
    """
    from ampsim.runs import jobs_here

    if executor is None:
        return jobs_here() if jobs is None else jobs
    if jobs is not None:
        raise OptionError(
            f"--jobs {jobs} and --executor {executor} say the same thing; leave one of them out"
        )
    return executor


@dataclass(frozen=True)
class Given:
    """The given ones of `OPTIONS`; None of those that were not.

    Raises:
        OptionError: one that counts something is no count.
    """

    def __post_init__(self) -> None:
        """Read the counts, so that one that is none is told before any work."""
        self.given()

    def given(self) -> dict[str, Any]:
        """Return those that were given, by name."""
        every = {name: getattr(self, name) for name in OPTIONS}
        return {
            name: counts_of(name, value) if OPTIONS[name].metavar == SEVERAL else value
            for name, value in every.items()
            if value is not None
        }

    def schedules(self, names: str) -> list[Schedule]:
        """The schedules of these names; says so where an option concerns none of them."""
        from ampsim.study.schedule_names import schedules_of, without_effect

        given = self.given()
        made = schedules_of(names, **given)
        for option in without_effect(made, list(given)):
            complain(f"note: --{option.replace('_', '-')} has no effect on {names}")
        return made


if TYPE_CHECKING:
    Tuning: TypeAlias = Given
else:
    Tuning = make_dataclass(
        "Tuning",
        [(name, one.kind | None, None) for name, one in OPTIONS.items()],
        bases=(Given,),
        frozen=True,
    )
"""A command's argument of this type has all of `OPTIONS`."""


def counts_of(option: str, text: str) -> int | list[int]:
    """Read a whole number, or several with commas between.

    Raises:
        OptionError: it is neither, or a number is below 1 or comes twice.
    """
    from ampsim.options import require_count

    parts = text.split(",")
    if not all(re.fullmatch(r"\s*[+-]?[0-9]{1,100}\s*", part) for part in parts):
        raise OptionError(
            f"--{option.replace('_', '-')} must be a whole number, or several with single commas "
            f"between, such as 2,4,8, got {text!r}"
        )
    counts = [require_count(option, int(part)) for part in parts]
    if len(set(counts)) < len(counts):
        raise OptionError(
            f"--{option.replace('_', '-')} must be numbers that differ, got {text!r}; "
            "leave out what comes twice"
        )
    return counts[0] if len(counts) == 1 else counts
