"""Start of the program, and how every ending becomes a line and a code.

What takes a moment to import is imported within `main`, so that Ctrl-C meanwhile ends it in a line.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import warnings
from collections.abc import Generator, Sequence
from itertools import pairwise
from typing import Any, NoReturn

from ampsim.cli.signals import (
    Nowhere,
    Received,
    UnwritableOutput,
    forget,
    forget_interruption,
    ignore_all,
    interrupting,
    open_streams,
    watched,
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program and exit: 0 fine, 2 a mistake or a failed run, 130 interrupted.

    SIGTERM interrupts as Ctrl-C does, with 143. It exits with 1 where a report does not follow any
    more from its recipe, or where nobody could be told: standard output is closed or its disk full.

    Args:
        arguments: instead of those on the command line.
    """
    try:
        from ampsim.cli.entry import Code, complain
    except KeyboardInterrupt:
        sys.stderr.write("ampsim: interrupted\n")
        forget_interruption()
        sys.exit(130)
    lost = _prepared()
    with interrupting() as received:
        try:
            with watched():
                code = _run(sys.argv[1:] if arguments is None else arguments, received)
            received.is_over = True
        except UnwritableOutput as error:
            forget()
            code = 1
            if error.reason is not None:
                complain(f"cannot write to standard output: {error.reason}")
        except KeyboardInterrupt:  # in the last moments
            code = Code.INTERRUPTED
        received.is_over = True
        if arguments is None:
            ignore_all()
    if lost is not None and lost.is_used and code == Code.FINE:
        code = 1
        complain("cannot write to standard output: it is closed")
    if arguments is None:
        forget_interruption()
    sys.exit(received.code if code == Code.INTERRUPTED else code)


def _prepared() -> Nowhere | None:
    """Standard output if it leads nowhere; streams and matplotlib are made to be no trouble."""
    lost = open_streams()
    os.environ["MPLBACKEND"] = "agg"  # a notebook's, inherited, need not exist here
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # not that its cache cannot be kept
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may not know every letter
    return lost


def _run(typed: Sequence[str], received: Received) -> int:
    import typer

    from ampsim.cli import mistakes
    from ampsim.cli.entry import Code, UsageError, app, complain
    from ampsim.errors import AmpsimError

    try:
        with _notes_in_a_line():
            _require_words(typed)
            ended = app(typed, prog_name="ampsim", standalone_mode=False)
    except AmpsimError as error:
        complain(mistakes.as_typed(str(error), typed))
        return Code.FAILED
    except UsageError as error:
        complain(mistakes.told(error, typed))
        return Code.FAILED
    except (KeyboardInterrupt, typer.Abort):
        ended = 130
    except Exception:
        # another library, or Python itself, made an error of the interruption, or follows from it
        if not received.has_come:
            raise
        ended = 130
    if ended == 130 and not isinstance(ended, Code):  # nobody has said so yet
        complain("interrupted")
    return int(ended or 0)


def _require_words(arguments: Sequence[str]) -> None:
    """Refuse a value that is empty, as of a variable that was not set: nothing is called so.

    Raises:
        OptionError: one is.
    """
    from ampsim.errors import OptionError

    for before, word in pairwise(["", *arguments]):
        option, equals, value = word.partition("=")
        is_option = option.startswith("-") and bool(equals)
        if not word or (is_option and not value):
            name = option or (before if before.startswith("-") else "an argument")
            raise OptionError(f"{name} must not be empty, got ''; give a value, or leave it out")


@contextlib.contextmanager
def _notes_in_a_line() -> Generator[None]:
    """Say ampsim's own warnings in a line each, and other's as Python does."""
    from ampsim.cli.console import complain
    from ampsim.errors import PlacementWarning

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
