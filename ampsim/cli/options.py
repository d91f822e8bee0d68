"""The options that several commands share, and what they make together."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from ampsim.cli.say import Code, complain, write

if TYPE_CHECKING:
    from ampsim.hardware import Cluster
    from ampsim.runtime import Schedule
    from ampsim.study import Model

DEVICE = "tflops-1"
PLACEMENT = "paper"
ALL_SCHEDULES = "sequential,pipeline,amp"


class ModeName(StrEnum):
    """What is computed."""

    NUMERIC = "numeric"
    SLEEP = "sleep"


ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="A shipped model's name, or a .py file of your own.")
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
ActiveKeysOption = Annotated[
    int | None,
    typer.Option(
        "--max-active-keys", metavar="N", show_default=False,
        help="Instances in flight at most; for schedules that drain, those of a group. "
        "sequential always has 1.  [default: 8]",
    ),
]  # fmt: skip
UpdateIntervalOption = Annotated[
    int | None,
    typer.Option(
        "--min-update-interval", metavar="N", show_default=False,
        help="Gradients between updates of a node, under amp, amp-budget and pipedream-2bw.  "
        "[default: as the model prefers; pipedream-2bw: 8]",
    ),
]  # fmt: skip
BudgetOption = Annotated[
    float | None,
    typer.Option(
        "--staleness-budget", metavar="X", show_default=False,
        help="Updates that a gradient may be old for another instance to be admitted, under "
        "amp-budget.  [default: 4]",
    ),
]  # fmt: skip
RemedyOption = Annotated[
    str | None,
    typer.Option(
        "--remedy", metavar="NAME", show_default=False,
        help="What amp and amp-budget do about delayed gradients: none, or weight-prediction.  "
        "[default: none]",
    ),
]  # fmt: skip
VerticalSyncOption = Annotated[
    bool | None,
    typer.Option(
        "--vertical-sync/--no-vertical-sync", show_default=False,
        help="One version of the weights for an instance at all stages, under pipedream.",
    ),
]  # fmt: skip
GroupOption = Annotated[
    int | None,
    typer.Option(
        "--max-group", metavar="N", show_default=False,
        help="Messages for one node that a worker may merge into one step, under amp and "
        "amp-budget.  [default: 1]",
    ),
]  # fmt: skip
GroupWaitOption = Annotated[
    float | None,
    typer.Option(
        "--group-wait-s", metavar="SECONDS", show_default=False,
        help="How long a worker waits, once, before it starts a smaller group.  [default: 0]",
    ),
]  # fmt: skip
SCHEDULE_OPTIONS: Final[dict[str, Any]] = {
    "max_active_keys": ActiveKeysOption,
    "min_update_interval": UpdateIntervalOption,
    "staleness_budget": BudgetOption,
    "remedy": RemedyOption,
    "max_group": GroupOption,
    "group_wait_s": GroupWaitOption,
    "vertical_sync": VerticalSyncOption,
}
"""Every option that some schedule takes, as `with_schedule_options` adds it to a command."""

Tuning: TypeAlias = dict[str, Any]
"""What was given of `SCHEDULE_OPTIONS`, by name; None where nothing was."""

PlacementOption = Annotated[
    str,
    typer.Option(
        "--placement",
        metavar="NAME|FILE",
        help="Which worker hosts which node: paper, balanced, k-hop (3-hop, ...), "
        "communication-aware, or a .toml file of lines NODE = WORKER.",
    ),
]
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
        help="Write one JSON object; - gives it alone on standard output.",
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


def with_schedule_options(command: Callable[..., Code]) -> Callable[..., Code]:
    """Give a command every option of `SCHEDULE_OPTIONS`; it gets them in its `tuning`, by name."""
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.name != "tuning":
            parameters.append(parameter)
            continue
        parameters += [
            parameter.replace(name=name, annotation=option, default=None)
            for name, option in SCHEDULE_OPTIONS.items()
        ]

    @functools.wraps(command)
    def wrapped(**given: Any) -> Code:
        tuning = {name: given.pop(name) for name in SCHEDULE_OPTIONS}
        return command(**given, tuning=tuning)

    del wrapped.__wrapped__  # its signature is another's
    wrapped.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore[reportAttributeAccessIssue]  # inspect reads it
    wrapped.__annotations__ = {one.name: one.annotation for one in parameters}
    return wrapped


def make_jobs(jobs: int | None) -> int:
    """How many runs to make at a time: as told, else as many as there are cores."""
    from ampsim.study import jobs_here, require_jobs

    return require_jobs(jobs_here() if jobs is None else jobs)


def make_schedules(names: str, tuning: Tuning) -> list[Schedule]:
    """The schedules that the command line names; says so where an option concerns none of them."""
    from ampsim.study.schedule_names import schedules_of, without_effect

    schedules = schedules_of(names, **tuning)
    named = [option for option, value in tuning.items() if value is not None]
    for option in without_effect(schedules, named):
        complain(f"note: --{option.replace('_', '-')} has no effect on {names}")
    return schedules


def prepare_json(json: str | None) -> None:
    """Try the file of --json before the long work."""
    from ampsim.files import prepare_file

    if json not in (None, "-"):
        prepare_file(json)


def write_json(text: str, json: str) -> None:
    """Write JSON text to the file of --json, or alone to standard output."""
    from ampsim.files import write_text

    if json == "-":
        write(text.rstrip("\n"))
    else:
        write_text(json, text)
