"""The program `ampsim`: its commands, and how every ending becomes a line and a code."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import warnings
from collections.abc import Generator, Sequence
from typing import Annotated, Any, NoReturn, cast

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
    models,
    report,
    run,
    signals,
    standard_output,
)
from ampsim.cli.resources import releasing
from ampsim.cli.say import Code, complain, write
from ampsim.cli.standard_output import UnwritableOutput
from ampsim.cli.streams import open_streams
from ampsim.cli.traceback import with_traceback
from ampsim.errors import AmpsimError, PlacementWarning

app = typer.Typer(
    name="ampsim",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command, _help in (
    (forecast.forecast, "How fast, and to what accuracy, would a model train?"),
    (run.run, "Run one schedule and keep its trace."),
    (gantt.gantt, "Draw who works when."),
    (compare.compare, "Say what differs between two runs that were kept."),
    (devices.devices, "List the devices, or show one."),
    (models.models, "List the models, or show one."),
    (calibrate.calibrate, "Find a device's numbers, from published rows or this machine."),
    (data.data, "Say which data sets are there, or fetch them."),
    (report.report, "Make a recipe's report, or check one."),
    (check.check, "Check device, cluster, placement, model or recipe files."),
):
    app.command(short_help=_help)(with_traceback(releasing(_command)))

# The class of all mistakes in calling a program: typer carries its own copy of click or not,
# depending on its version, and exports this one subclass of it.
_UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__base__)


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


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program and exit: 0 fine, 2 a mistake or a failed run, 130 interrupted.

    SIGTERM interrupts as Ctrl-C does, with 143. It exits with 1 where a report does not follow any
    more from its recipe, or where nobody could be told: standard output is closed or its disk full.

    Args:
        arguments: instead of those on the command line.
    """
    lost = open_streams()
    os.environ["MPLBACKEND"] = "agg"  # a notebook's, inherited, need not exist here
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # not that its cache cannot be kept
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may not know every letter
    with signals.interrupting() as received:
        try:
            with standard_output.watched():
                code = _run(arguments)
        except UnwritableOutput as error:
            standard_output.forget()
            code = 1
            if error.reason is not None:
                complain(f"cannot write to standard output: {error.reason}")
        except KeyboardInterrupt:  # in the last moments
            code = Code.INTERRUPTED
    if lost is not None and lost.is_used and code == Code.FINE:
        code = 1
        complain("cannot write to standard output: it is closed")
    if arguments is None:
        signals.ignore_all()
        signals.forget_interruption()
    sys.exit(received.code if code == Code.INTERRUPTED else code)


def _run(arguments: Sequence[str] | None) -> int:
    """Run the program and say what went wrong, if anything did, in one line."""
    try:
        with _notes_in_a_line():
            ended = app(arguments, prog_name="ampsim", standalone_mode=False)
    except AmpsimError as error:
        complain(error)
        return Code.FAILED
    except _UsageError as error:
        context = error.ctx
        command = "ampsim" if context is None else context.command_path
        said = error.format_message().rstrip(".")
        complain(f"{said}{'' if said.endswith('?') else ';'} see '{command} --help'")
        return Code.FAILED
    except (KeyboardInterrupt, typer.Abort):
        ended = 130
    except Exception as error:
        # Python 3.11 makes a RuntimeError of what interrupts `__set_name__`, as in an import
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        ended = 130
    if ended == 130 and not isinstance(ended, Code):  # nobody has said so yet
        complain("interrupted")
    return int(ended or 0)


@contextlib.contextmanager
def _notes_in_a_line() -> Generator[None]:
    """Say ampsim's own warnings in a line each, and other's as Python does."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any) -> None:
            if issubclass(category, PlacementWarning):
                complain(f"note: {message}")
            else:
                usual(message, category, *rest)

        warnings.simplefilter("always", PlacementWarning)
        warnings.showwarning = show  # pyright: ignore[reportAttributeAccessIssue]  # as documented
        yield
