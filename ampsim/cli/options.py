"""The options that several commands share, and what they make together."""

from __future__ import annotations

import re
from dataclasses import dataclass, make_dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from ampsim.cli import completion
from ampsim.cli.console import complain
from ampsim.cli.methods import OPTIONS, SEVERAL, Option
from ampsim.errors import OptionError

if TYPE_CHECKING:
    from ampsim.hardware import Cluster
    from ampsim.model_parallel import Schedule
    from ampsim.study import Model

DEVICE = "tflops-1"
ALL_SCHEDULES = "sequential,pipeline,amp"
OF_PROGRAMS = "dataflow,out-of-graph"


def optional(metavar: str | None, text: str, *names: str, **more: Any) -> Any:
    """An option whose default, None, is not shown; `text` says at its end what it stands for.

    Args:
        metavar: what its value is called in the help; None of a flag, which has none.
        text: its help.
        names: such as "--jobs" and "-j"; that of its argument unless given.
        more: of `typer.Option`.
    """
    return typer.Option(*names, metavar=metavar, show_default=False, help=text, **more)


class ModeName(StrEnum):
    """What is computed."""

    NUMERIC = "numeric"
    SLEEP = "sleep"


ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        autocompletion=completion.models,
        help="A shipped model's name, or a .py file of your own.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set an option of the model; may be repeated. `ampsim models MODEL` lists them.",
    ),
]
InstancesOption = Annotated[int | None, optional("N", "Training items to use.  [default: all]")]
ValidateEveryOption = Annotated[
    int | None,
    optional(
        "N",
        "Validate also within an epoch, after so many training items: what is in flight "
        "finishes first, and validation takes its time; under a solver nothing stops.  "
        "[default: at the end of an epoch]",
    ),
]
TargetOption = Annotated[
    float | None,
    optional(
        "X",
        "Validation accuracy to reach, 0.97 is 97 %, or error, in the model's unit.  "
        "[default: as the model file says]",
    ),
]
PlacementOption = Annotated[
    str | None,
    optional(
        "NAME|FILE",
        "Which worker hosts which node: paper, balanced, k-hop (3-hop, ...), "
        "communication-aware, search, or a .toml file of lines NODE = WORKER.  [default: paper, "
        "with a line where another is faster]",
        autocompletion=completion.placements,
    ),
]
SeedOption = Annotated[
    int,
    typer.Option("--seed", metavar="N", help="Of data, first weights, order and placement."),
]
ModeOption = Annotated[
    ModeName,
    typer.Option("--mode", help="Compute everything, or times only: sleep has no accuracy."),
]
JobsOption = Annotated[
    int | None,
    optional(
        "N",
        "Runs to make at a time, each on a core of its own.  [default: as many as cores]",
        "--jobs",
        "-j",
    ),
]
ForOption = Annotated[
    list[str] | None,
    optional(
        "KEY=VALUES",
        "What varies, and over which values: KEY=A,B,... or KEY=A..B[:log], such as "
        "latency_s=1e-7..1e-4:log, device.flop_per_s=1e11,1e12, workers=2,4, max_active_keys=1..16 "
        "or model.hidden=64,128; repeat it for another key.",
        "--for",
    ),
]
BudgetOption = Annotated[
    str | None,
    optional("TIME", "End after this time, such as 60s, 30m or 2h.  [default: none]", "--budget"),
]
ExecutorOption = Annotated[
    str | None,
    optional(
        "dask:FILE|dask:ADDRESS|dask",
        "Make runs on the workers of a Dask cluster, by the file or the address of its scheduler; "
        "dask alone reads $DASK_SCHEDULER_ADDRESS.  [default: processes here, see --jobs]",
    ),
]
RunLimitOption = Annotated[
    str | None,
    optional(
        "TIME",
        "End a run that takes longer, such as 10m; the others go on.  [default: none]",
        "--run-limit",
    ),
]
ColumnsOption = Annotated[
    str | None,
    optional(
        "all|NAME,...",
        "Columns of the printed table, by their names in forecast.csv.  [default: the answer's]",
        autocompletion=completion.columns,
    ),
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show no progress on standard error.")
]
DataOption = Annotated[
    str | None,
    optional(
        "DIR",
        "Folder of the data sets, for a model that reads one.  "
        "[default: $AMPSIM_DATA, or the cache folder]",
    ),
]
JsonOption = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="FILE|-",
        help="Write one JSON object; - gives it alone on standard output. Unknown is null.",
    ),
]
OutFolderOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Folder for what is written, if not the usual one."),
]


@dataclass(frozen=True, slots=True)
class Hardware:
    """The options that name a cluster; None of what was not given."""

    device: Annotated[
        str | None,
        optional(
            "NAME|FILE",
            "A shipped device's name, a device or cluster file (.toml), or groups such as "
            f"p100:8,cpu-core:1.  [default: {DEVICE}]",
            autocompletion=completion.devices,
        ),
    ] = None
    workers: Annotated[
        int | None, optional("N", "How many workers.  [default: 16, or as the cluster file says]")
    ] = None
    latency_s: Annotated[
        float | None,
        optional(
            "X",
            "Seconds from sending to arrival of a message between workers.  "
            "[default: 0, or the file's]",
        ),
    ] = None
    bandwidth_bytes_per_s: Annotated[
        float | None,
        optional(
            "X",
            "Rate at which a message enters a link.  [default: infinite, or the file's]",
        ),
    ] = None
    topology: Annotated[
        str | None,
        optional(
            "KIND",
            "Edges between workers, which messages share in fair shares, each of that latency and "
            "bandwidth: fully-connected, ring, mesh:4x4, torus:4x4, star, fat-tree:4 or "
            "hierarchy:8x2, with numbers of your own.  [default: a link for each pair, or the "
            "file's]",
            autocompletion=completion.one_of(*completion.TOPOLOGIES),
        ),
    ] = None

    def cluster(self) -> Cluster:
        """The cluster that they name."""
        from ampsim.hardware import load_cluster

        return load_cluster(
            DEVICE if self.device is None else self.device,
            workers=self.workers,
            latency_s=self.latency_s,
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s,
            topology=self.topology,
        )


def free_links_line(cluster: Cluster) -> str:
    """What is to be known of links that take no time; "" where one does."""
    if cluster.workers == 1 or not cluster.is_link_free:
        return ""
    return "Links are free here; --latency-s and --bandwidth-bytes-per-s give them a cost."


def make_model(name: str, settings: list[str] | None, data: str | None = None) -> Model:
    """The model that the command line names, with its settings and its data folder."""
    from ampsim.study import load_model
    from ampsim.study.loading import option_names, settings_of, with_data_folder

    chosen = settings_of(settings or [])
    if data is not None:
        chosen = with_data_folder(chosen, data, name, option_names(name))
    return load_model(name, **chosen)


def make_executor(jobs: int | None, executor: str | None) -> int | str:
    """What makes runs: as told, else as many processes as there are cores.

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
    """What was given of `OPTIONS`; None of what was not.

    Raises:
        OptionError: one that counts something is no count.
    """

    def __post_init__(self) -> None:
        """Read the counts, so that one that is none is told before any work."""
        self.given()

    def given(self) -> dict[str, Any]:
        """What was given, by name."""
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


def _typed(one: Option) -> Any:
    more = {"autocompletion": completion.one_of(*one.offered)} if one.offered else {}
    return optional(one.metavar, one.text, **more)


if TYPE_CHECKING:
    Tuning: TypeAlias = Given
else:
    Tuning = make_dataclass(
        "Tuning",
        [(name, Annotated[one.kind | None, _typed(one)], None) for name, one in OPTIONS.items()],
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
