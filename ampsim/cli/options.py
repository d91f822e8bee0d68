"""The options that several commands share, and what they make together."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ampsim.cli import completion

if TYPE_CHECKING:
    from ampsim.hardware import Cluster
    from ampsim.study import Model

DEVICE = "tflops-1"
ALL_SCHEDULES = "sequential,pipeline,amp"


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
DeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device",
        autocompletion=completion.devices,
        metavar="NAME|FILE",
        show_default=False,
        help=f"A shipped device's name, or a device or cluster file (.toml).  [default: {DEVICE}]",
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers", metavar="N", show_default=False,
        help="How many workers.  [default: 16, or as the cluster file says]",
    ),
]  # fmt: skip
LatencyOption = Annotated[
    float | None,
    typer.Option(
        "--latency-s", metavar="X", show_default=False,
        help="Seconds from sending to arrival of a message between workers.  "
        "[default: 0, or the file's]",
    ),
]  # fmt: skip
BandwidthOption = Annotated[
    float | None,
    typer.Option(
        "--bandwidth-bytes-per-s", metavar="X", show_default=False,
        help="Rate at which a message enters a link.  [default: infinite, or the file's]",
    ),
]  # fmt: skip
PlacementOption = Annotated[
    str | None,
    typer.Option(
        "--placement", metavar="NAME|FILE", show_default=False,
        autocompletion=completion.placements,
        help="Which worker hosts which node: paper, balanced, k-hop (3-hop, ...), "
        "communication-aware, or a .toml file of lines NODE = WORKER.  [default: paper, with a "
        "line where devices or links differ and another is faster]",
    ),
]  # fmt: skip
TargetOption = Annotated[
    float | None,
    typer.Option(
        "--target", metavar="X", show_default=False,
        help="Validation accuracy to reach, 0.97 is 97 %, or error, in the model's unit.  "
        "[default: as the model file says]",
    ),
]  # fmt: skip
InstancesOption = Annotated[
    int | None,
    typer.Option(
        "--instances", metavar="N", show_default=False,
        help="Training items to use.  [default: all]",
    ),
]  # fmt: skip
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
    typer.Option(
        "--jobs", "-j", metavar="N", show_default=False,
        help="Runs to make at a time, each on a core of its own.  [default: as many as cores]",
    ),
]  # fmt: skip
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show no progress on standard error.")
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data", metavar="DIR", show_default=False,
        help="Folder of the data sets, for a model that reads one.  "
        "[default: $AMPSIM_DATA, or the cache folder]",
    ),
]  # fmt: skip
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


def make_model(name: str, settings: list[str] | None, data: str | None = None) -> Model:
    """The model that the command line names, with its settings and its data folder."""
    from ampsim.study import load_model
    from ampsim.study.loading import option_names
    from ampsim.study.settings import settings_of, with_data_folder

    chosen = settings_of(settings or [])
    if data is not None:
        chosen = with_data_folder(chosen, data, name, option_names(name))
    return load_model(name, **chosen)


def make_cluster(
    device: str | None,
    *,
    workers: int | None,
    latency_s: float | None,
    bandwidth_bytes_per_s: float | None,
) -> Cluster:
    """The cluster that the command line names."""
    from ampsim.hardware import load_cluster

    return load_cluster(
        DEVICE if device is None else device,
        workers=workers,
        latency_s=latency_s,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
    )


def make_jobs(jobs: int | None) -> int:
    """How many runs to make at a time: as told, else as many as there are cores."""
    from ampsim.study import jobs_here, require_jobs

    return require_jobs(jobs_here() if jobs is None else jobs)
