"""Signals that end the program in good order: what finished is kept, and one line is said."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Generator
from types import FrameType
from typing import Final

ENDING: Final = ("SIGTERM", "SIGHUP", "SIGBREAK")
"""Signals that are treated as Ctrl-C is, by their names on any system."""


class Received:
    """Which signal came, if one did.

    Attributes:
        number: that of the first; SIGINT unless another came.
    """

    def __init__(self) -> None:
        """None has come yet."""
        self.number: int = signal.SIGINT

    @property
    def code(self) -> int:
        """What the program exits with: 130 after Ctrl-C, 143 after SIGTERM."""
        return 128 + self.number

    def take(self, number: int, frame: FrameType | None) -> None:
        """Interrupt whatever is under way.

        Raises:
            KeyboardInterrupt: always.
        """
        if self.number == signal.SIGINT:
            self.number = number
        raise KeyboardInterrupt


@contextlib.contextmanager
def interrupting() -> Generator[Received]:
    """Let signals that end a program interrupt the block as Ctrl-C does.

    One that the caller ignores, as under `nohup`, stays ignored.
    """
    received, before = Received(), dict[int, object]()
    if threading.current_thread() is threading.main_thread():  # no other may set handlers
        for name in ENDING:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) == signal.SIG_DFL:
                before[number] = signal.signal(number, received.take)
    try:
        yield received
    finally:
        for number in before:
            signal.signal(number, signal.SIG_DFL)


def ignore_all() -> None:
    """Let no signal spoil the last moments of a process whose work is done."""
    with contextlib.suppress(ValueError):  # not in the main thread
        for name in ("SIGINT", *ENDING):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), signal.SIG_IGN)


def forget_interruption() -> None:
    """Let the process end with its own exit code although a Ctrl-C was handled.

    Under `python -m`, CPython ends a process by SIGINT if the last text that was executed, such as
    the body of a data class while it is made, ended in a KeyboardInterrupt, even one that was
    caught. Another text makes it forget that.
    """
    exec("")  # a text, for one that is compiled already does not count
