"""Exceptions of code that a user wrote: told in one line, with the user's own file and line.

A model's functions, its data set and its nodes are called from inside a run. What they raise is
theirs, whatever it is: an OSError of theirs is no fault of our output, a SystemExit no end of ours.
"""

from __future__ import annotations

import contextlib
import os
import site
import sysconfig
import traceback
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from ampsim.errors import AmpsimError, SimulationError

TEXT_MAX: Final = 400
"""Characters that are told of an exception's text at most (chosen: a few lines of a terminal)."""

OURS_TO_PASS: Final = (AmpsimError, KeyboardInterrupt)
"""What is never told as the user's: errors that are told already, and Ctrl-C."""

PACKAGE: Final = Path(__file__).resolve().parent
"""The folder of ampsim itself, whose code is not the user's."""


class Place(NamedTuple):
    """A line of the user's own."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


def told(error: BaseException) -> str:
    """Kind and text of an exception on one line, and the user's line that it came from.

    >>> told(ValueError("no such  word"))
    'ValueError: no such word'
    """
    kind, text = type(error).__name__, text_of(error)
    place = place_of(error)
    return f"{kind}{': ' if text else ''}{text}" + (f" ({place})" if place else "")


def text_of(error: BaseException) -> str:
    """Text of an exception on one line, of a length that can be read."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # its own __str__ is the user's code too
        return "which cannot be shown"
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}..."


def place_of(error: BaseException) -> Place | None:
    """The innermost line of the user's own on the way to an exception; None where there is none.

    The user's own is what belongs neither to ampsim nor to an installed library.
    """
    if isinstance(error, SyntaxError) and error.filename and is_own(error.filename):
        return Place(error.filename, error.lineno or 0)
    own = [
        Place(frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if is_own(frame.f_code.co_filename)
    ]
    if own:
        return own[-1]
    return place_of(error.__cause__) if error.__cause__ is not None else None


def is_own(file: str) -> bool:
    """Tell whether a source file is the user's; model files are, those that are shipped too."""
    if file.startswith("<"):
        return file.startswith(("<stdin", "<ipython-input"))
    path = Path(os.path.realpath(file))
    if path.is_relative_to(PACKAGE):
        return path.is_relative_to(PACKAGE / "_shipped")
    return not any(path.is_relative_to(folder) for folder in _libraries())


@contextlib.contextmanager
def user_code(what: str, kind: type[AmpsimError] = SimulationError) -> Generator[None]:
    """Tell what the user's code in this block raises as an error of ampsim.

    Args:
        what: the sentence that the exception ends: "make_data of model rnn failed".
        kind: class of the error.

    Raises:
        AmpsimError: of `kind`; one that the code raised itself passes, and so does Ctrl-C.
    """
    try:
        yield
    except OURS_TO_PASS:
        raise
    except BaseException as error:
        raise kind(f"{what}: {told(error)}") from error


@cache
def _libraries() -> tuple[Path, ...]:
    known = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    known += [*site.getsitepackages(), site.getusersitepackages()]
    return tuple(Path(os.path.realpath(one)) for one in known)
