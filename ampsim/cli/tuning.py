"""The options of schedules, as commands take them, and the schedules that they make."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from ampsim.cli import completion
from ampsim.cli.say import Code, complain
from ampsim.errors import OptionError

if TYPE_CHECKING:
    from ampsim.model_parallel import Schedule

ActiveKeysOption = Annotated[
    str | None,
    typer.Option(
        "--max-active-keys", metavar="N,...", show_default=False,
        help="Instances in flight at most; for schedules that drain, those of a group. "
        "sequential always has 1. Several, such as 2,4,8, make a row of each.  [default: 8]",
    ),
]  # fmt: skip
UpdateIntervalOption = Annotated[
    str | None,
    typer.Option(
        "--min-update-interval", metavar="N,...", show_default=False,
        help="Gradients between updates of a node, under amp, amp-budget and pipedream-2bw. "
        "Several make a row of each.  [default: as the model prefers; pipedream-2bw: 8]",
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
        autocompletion=completion.one_of(*completion.REMEDIES),
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

COUNTS: Final = ("max_active_keys", "min_update_interval")
"""Those of them that may be several whole numbers."""

Tuning: TypeAlias = dict[str, Any]
"""What was given of `SCHEDULE_OPTIONS`, by name; None where nothing was."""


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
        tuning |= {name: counts_of(name, tuning[name]) for name in COUNTS}
        return command(**given, tuning=tuning)

    del wrapped.__wrapped__  # its signature is another's
    wrapped.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore[reportAttributeAccessIssue]  # inspect reads it
    wrapped.__annotations__ = {one.name: one.annotation for one in parameters}
    return wrapped


def counts_of(option: str, text: str | None) -> int | list[int] | None:
    """Read a whole number, or several with commas between.

    Raises:
        OptionError: it is neither, or a number is below 1 or comes twice.
    """
    from ampsim.options import require_count

    if text is None:
        return None
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


def make_schedules(names: str, tuning: Tuning) -> list[Schedule]:
    """The schedules that the command line names; says so where an option concerns none of them."""
    from ampsim.study.schedule_names import schedules_of, without_effect

    schedules = schedules_of(names, **tuning)
    named = [option for option, value in tuning.items() if value is not None]
    for option in without_effect(schedules, named):
        complain(f"note: --{option.replace('_', '-')} has no effect on {names}")
    return schedules
