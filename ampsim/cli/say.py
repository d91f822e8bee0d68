"""What the command line says on its two streams, and the codes that it ends with."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from enum import IntEnum

from ampsim.printable import printable

_LAYOUT = "\n\t"
_WIDTH_IN_PIPE = 160  # chosen: nobody reads a pipe by eye, so little is left out


class Code(IntEnum):
    """How a command ended."""

    FINE = 0
    STALE = 1
    FAILED = 2
    INTERRUPTED = 130


def complain(text: object) -> None:
    """Say one line on standard error, with the program's name in front."""
    line = printable(" ".join(str(text).split()))
    with contextlib.suppress(OSError, ValueError):  # nobody listens: what was made counts
        sys.stderr.write(f"ampsim: {line}\n")


def write(text: str) -> None:
    """Say one or more lines on standard output; what would command a terminal is shown as text."""
    sys.stdout.write(f"{printable(text, keep=_LAYOUT)}\n")


def width() -> int:
    """Characters in a line of standard output."""
    is_free = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return _WIDTH_IN_PIPE if is_free else shutil.get_terminal_size().columns


def in_columns(rows: Iterable[Sequence[str]], *, indent: str = "") -> str:
    """Rows as aligned columns; the last one is wrapped to the width of the output."""
    lines = [[printable(cell, keep=_LAYOUT) for cell in row] for row in rows]
    if not lines:
        return ""
    widths = [max(map(len, column)) for column in zip(*(line[:-1] for line in lines), strict=True)]
    return "\n".join(_line(line, widths, indent) for line in lines)


def _line(line: list[str], widths: list[int], indent: str) -> str:
    head = indent + "".join(f"{cell:<{wide}}  " for cell, wide in zip(line, widths, strict=False))
    room = max(24, width() - len(head))
    wrapped = textwrap.wrap(line[-1], room) or [""]
    return f"\n{' ' * len(head)}".join([f"{head}{wrapped[0]}", *wrapped[1:]]).rstrip()
