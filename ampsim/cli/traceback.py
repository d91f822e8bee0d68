"""The option --traceback, which every command has: all that led to an error, not one line."""

from __future__ import annotations

import functools
import inspect
import sys
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from typing import Annotated, Any, Final

import typer

from ampsim.cli.option_groups import with_parameters
from ampsim.cli.say import Code
from ampsim.errors import AmpsimError, Failure

_IS_ASKED: Final = ContextVar("_IS_ASKED", default=False)

TracebackOption = Annotated[
    bool,
    typer.Option(
        "--traceback",
        help="When something fails, show the whole traceback, with the lines of your own model.",
    ),
]


def with_traceback(command: Callable[..., Code]) -> Callable[..., Code]:
    """Give a command the option; with it, an error that ends the command is shown whole."""
    signature = inspect.signature(command, eval_str=True)
    option = inspect.Parameter(
        "traceback", inspect.Parameter.KEYWORD_ONLY, annotation=TracebackOption, default=False
    )

    @functools.wraps(command)
    def wrapped(*given: Any, traceback: bool = False, **named: Any) -> Code:
        token = _IS_ASKED.set(traceback)
        try:
            return command(*given, **named)
        except AmpsimError as error:
            show_traceback(error)
            raise
        finally:
            _IS_ASKED.reset(token)

    parameters = [*signature.parameters.values(), option]
    return with_parameters(wrapped, parameters)


def show_traceback(error: BaseException | str | None) -> None:
    """Write how an error came about to standard error, if --traceback asked for it."""
    if not _IS_ASKED.get():
        return
    if isinstance(error, BaseException):
        sys.stderr.write("".join(traceback.format_exception(error)))
    elif isinstance(error, Failure):
        sys.stderr.write(error.traceback)
