"""What the command line says on its two streams, and the codes that it ends with."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import textwrap
from collections.abc import Generator, Iterable, Sequence
from enum import IntEnum
from pathlib import Path

_WIDTH_IN_PIPE = 160  # chosen: nobody reads a pipe by eye, so little is left out


class Code(IntEnum):
    """How a command ended."""

    FINE = 0
    STALE = 1
    FAILED = 2
    INTERRUPTED = 130


def complain(text: object) -> None:
    """Say one line on standard error, with the program's name in front."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    sys.stderr.write(f"ampsim: {line}\n")


def write(text: str) -> None:
    """Say a line on standard output."""
    sys.stdout.write(f"{text}\n")


def width() -> int:
    """Characters in a line of standard output."""
    is_free = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return _WIDTH_IN_PIPE if is_free else shutil.get_terminal_size().columns


def in_columns(rows: Iterable[Sequence[str]], *, indent: str = "") -> str:
    """Rows as aligned columns; the last one is wrapped to the width of the output."""
    lines = [list(row) for row in rows]
    if not lines:
        return ""
    widths = [max(map(len, column)) for column in zip(*(line[:-1] for line in lines), strict=True)]
    return "\n".join(_line(line, widths, indent) for line in lines)


def _line(line: list[str], widths: list[int], indent: str) -> str:
    head = indent + "".join(f"{cell:<{wide}}  " for cell, wide in zip(line, widths, strict=False))
    room = max(24, width() - len(head))
    wrapped = textwrap.wrap(line[-1], room) or [""]
    return f"\n{' ' * len(head)}".join([f"{head}{wrapped[0]}", *wrapped[1:]]).rstrip()


@contextlib.contextmanager
def output_folder(path: Path) -> Generator[Path]:
    """The folder, tried before the long work; taken back if nothing is written there.

    Raises:
        OutputError: it cannot be created or written.
    """
    from ampsim.files import prepare_folder

    is_new = not path.exists()
    folder = prepare_folder(path)
    try:
        yield folder
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # as a rule it holds something by now
                folder.rmdir()
