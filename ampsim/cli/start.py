"""Start of the program, and how every ending becomes a line and a code.

Signals and standard streams are part of that: the program ends in good order whatever becomes of
them. What takes a moment to import is imported within `main`, so that Ctrl-C meanwhile ends it in a
line.
"""

from __future__ import annotations

import _thread
import contextlib
import gc
import io
import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Generator, Sequence
from itertools import pairwise
from types import FrameType
from typing import Any, Final, NoReturn

ALLOCATIONS: Final = 400_000
"""Between two garbage collections of a command, as of passes: what it imports is not searched for
what is gone, which takes a tenth of the time of a short one."""


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
    if arguments is None:
        gc.set_threshold(ALLOCATIONS)
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
    if lost is not None and lost.getvalue() and code == Code.FINE:
        code = 1
        complain("cannot write to standard output: it is closed")
    if arguments is None:
        gc.freeze()  # else all that was imported is searched and freed at the end: 0.2 s
        forget_interruption()
    sys.exit(received.code if code == Code.INTERRUPTED else code)


def _prepared() -> io.StringIO | None:
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
    from ampsim.cli.entry import Code, UsageError, complain, program
    from ampsim.errors import AmpsimError

    try:
        with _notes_in_a_line():
            _require_words(typed)
            ended = program()(typed, prog_name="ampsim", standalone_mode=False)
    except (AmpsimError, UsageError) as error:
        complain(mistakes.told(error, typed))
        return Code.FAILED
    except (KeyboardInterrupt, typer.Abort):
        ended = 130
    except Exception:
        if not received.has_come:  # else a library, or Python itself, made that of the interruption
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


ENDING: Final = ("SIGTERM", "SIGHUP", "SIGBREAK")
"""Signals that are treated as Ctrl-C is, by their names on any system."""

AGAIN_S: Final = 1.0
"""Seconds within which further signals belong to the first (chosen: `timeout` sends two, and what
passes signals on to a program that the terminal told already, within milliseconds; who presses
Ctrl-C once more, because winding up takes long, has waited longer)."""

REPEATED_AFTER_S: Final = 0.01
"""Seconds after which an interruption that got lost is repeated (chosen: what it got lost in, such
as a call for an object that is being deleted, is over by then)."""


class Received:
    """The first signal that came, if one did.

    Attributes:
        number: that of the first; SIGINT where none came.
        is_over: whether there is nothing left to interrupt.
    """

    def __init__(self) -> None:
        self.number: int = signal.SIGINT
        self.is_over = False
        self._last_s: float | None = None
        self._is_lost, self._dropping = False, threading.Lock()

    @property
    def code(self) -> int:
        """The exit code: 130 after Ctrl-C, 143 after SIGTERM."""
        return 128 + self.number

    @property
    def has_come(self) -> bool:
        """Whether a signal has interrupted the program."""
        return self._last_s is not None

    def take(self, number: int, frame: FrameType | None) -> None:
        """Interrupt whatever is under way, unless a signal just did.

        Raises:
            KeyboardInterrupt: always, but for those that belong to the one before.
        """
        now_s = time.monotonic()
        is_same = self._last_s is not None and now_s - self._last_s < AGAIN_S
        if self.is_over or (is_same and not self._is_lost):
            return
        self.number = self.number if self.has_come else number
        self._last_s, self._is_lost = now_s, False
        raise KeyboardInterrupt

    def repeat(self) -> None:
        """Interrupt once more, in a moment, for Python has dropped the interruption."""
        self._is_lost = True
        with self._dropping:  # in here one would be dropped as well
            again = threading.Timer(REPEATED_AFTER_S, self._interrupt_main)
            again.daemon = True
            again.start()

    def _interrupt_main(self) -> None:
        """Send the signal to the thread that handles signals, which wakes it if it waits."""
        with self._dropping:
            main = threading.main_thread().ident
        if self.is_over or main is None:
            return
        if sys.platform == "win32":
            _thread.interrupt_main(self.number)
        else:
            signal.pthread_kill(main, self.number)


@contextlib.contextmanager
def interrupting() -> Generator[Received]:
    """Let signals that end a program interrupt the block as Ctrl-C does, several at once as one.

    Python tells no caller of an error in what it calls by itself, such as a finaliser; an
    interruption of that is repeated. One that the caller ignores, as under `nohup`, stays ignored.
    """
    received, before, usual = Received(), dict[int, Any](), sys.unraisablehook

    def tell(dropped: Any) -> None:  # what no caller can be told, such as an error of a finaliser
        if isinstance(dropped.exc_value, KeyboardInterrupt):
            received.repeat()
        else:
            usual(dropped)

    if threading.current_thread() is threading.main_thread():  # no other may set handlers
        for name in ("SIGINT", *ENDING):
            number = getattr(signal, name, None)
            if number is not None and _is_ours_to_take(name, signal.getsignal(number)):
                before[number] = signal.signal(number, received.take)
    sys.unraisablehook = tell
    try:
        yield received
    finally:
        received.is_over = True
        sys.unraisablehook = usual
        for number, handler in before.items():
            if signal.getsignal(number) == received.take:  # else they are ignored by now
                signal.signal(number, handler)


def _is_ours_to_take(name: str, handler: object) -> bool:
    """Tell whether a signal ends the program as it is; Ctrl-C does so by a handler in Python."""
    return handler == signal.SIG_DFL or (name == "SIGINT" and callable(handler))


def ignore_all() -> None:
    """Let no signal, and no warning of what was given up, spoil a process whose work is done."""
    warnings.simplefilter("ignore")
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


def open_streams() -> io.StringIO | None:
    """Make standard streams that are closed lead nowhere; return what keeps standard output's.

    Their numbers are taken, too, or the next file that is opened would get what is said.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
    streams: Any = sys  # has None for a stream that was closed when Python started
    if streams.stderr is None:
        sys.stderr = io.StringIO()
    if streams.stdout is not None:
        return None
    lost = sys.stdout = io.StringIO()
    return lost


class UnwritableOutput(Exception):  # what is wrong, not that something is
    """Nothing can be written to standard output.

    Attributes:
        reason: why, in a few words; None where a reader has seen enough, as `head` has.
    """

    def __init__(self, error: OSError) -> None:
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
