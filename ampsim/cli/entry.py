"""The program `ampsim`: its commands."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any, Final, cast

import typer

import ampsim
from ampsim.cli import (
    calibrate,
    check,
    compare,
    data,
    devices,
    forecast,
    gantt,
    importing,
    models,
    questions,
    report,
    run,
)
from ampsim.cli.console import Code, Panelled, command, complain, write

__all__ = ["Code", "UsageError", "app", "complain", "program"]

app = typer.Typer(
    name="ampsim",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _function, _help in (
    (forecast.forecast, "How fast, and to what accuracy, would a model train?"),
    (questions.explore, "Map which schedule is first over a space of hardware."),
    (questions.search, "Search hardware and schedules for what no other choice beats."),
    (run.run, "Run one schedule and keep its trace."),
    (questions.whatif, "What binds, and what would each thing buy if it were faster?"),
    (questions.solve, "How fast, or how many, until a condition holds?"),
    (gantt.gantt, "Draw who works when."),
    (compare.compare, "Say what differs between two runs that were kept."),
    (devices.devices, "List the devices, or show one."),
    (models.models, "List the models, or show one."),
    (calibrate.calibrate, "Find a device's numbers, from published rows or this machine."),
    (data.data, "Say which data sets are there, or fetch them."),
    (report.report, "Make a recipe's report, or check one."),
    (importing.import_, "Write a model file of a PyTorch module."),
    (check.check, "Check device, cluster, placement, model or recipe files."),
):
    app.command(_function.__name__.strip("_"), cls=Panelled, short_help=_help)(command(_function))

# The class of all mistakes in calling a program: typer carries its own copy of click or not,
# depending on its version, and exports this one subclass of it.
UsageError: Final = cast("type[typer.BadParameter]", typer.BadParameter.__base__)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        write(f"ampsim {ampsim.__version__}")
        raise typer.Exit


VersionOption = Annotated[
    bool,
    typer.Option("--version", callback=_print_version, is_eager=True, help="Say which version."),
]


@app.callback(invoke_without_command=True)
def start(context: typer.Context, version: VersionOption = False) -> None:
    """Simulate how a network trains, and what it learns, on hardware that need not exist."""
    if context.invoked_subcommand is None:
        write(context.get_help())


@functools.cache
def program() -> Callable[..., Any]:
    """The commands with their options; reading them off all signatures takes 20 ms, once."""
    return typer.main.get_command(app)
