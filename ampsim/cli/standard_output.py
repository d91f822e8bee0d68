"""Standard output, whose faults are told apart from all others."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator
from typing import Any


class UnwritableOutput(Exception):  # what is wrong, not that something is
    """Nothing can be written to standard output.

    Attributes:
        reason: why, in a few words; None where a reader has seen enough, as `head` has.
    """

    def __init__(self, error: OSError) -> None:
        """Take the reason from what the system said."""
        super().__init__(str(error))
        self.reason = None if isinstance(error, BrokenPipeError) else error.strerror


class _Watched:
    """A stream that says of its own faults that they are its own."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with _told():
            return self._stream.write(text)

    def writelines(self, lines: list[str]) -> None:
        with _told():
            self._stream.writelines(lines)

    def flush(self) -> None:
        with _told():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def watched() -> Generator[None]:
    """While the block runs, faults of standard output, and no others, are `UnwritableOutput`.

    Raises:
        UnwritableOutput: something could not be written, at the latest when the block ends.
    """
    before: Any = sys.stdout
    untyped: Any = sys
    untyped.stdout = _Watched(before)
    try:
        yield
        sys.stdout.flush()
    finally:
        sys.stdout = before


def forget() -> None:
    """Keep Python from complaining, at its end, about what could not be written."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def _told() -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise UnwritableOutput(error) from error
