"""One call in a process of its own, forked from a warm one: nothing of a case reaches the next."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import io
import os
import resource
import select
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from mutation.case import Call, Command

MEMORY_BYTES = 2 << 30
FILE_BYTES = 256 << 20
REFUSED = 3
"""Exit code of a call in Python that raised an AmpsimError."""


@dataclass(frozen=True)
class Ended:
    """How a call ended.

    Args:
        code: exit code; below 0 the signal that killed it.
        out: what it wrote to standard output.
        err: what it wrote to standard error.
        is_hung: whether it was killed because it took too long.
        left: how many of its processes were still there afterwards.
    """

    code: int
    out: str
    err: str
    is_hung: bool
    left: int


def run(call: Call, folder: Path, notes: Path, *, limit_s: float, is_real: bool) -> Ended:
    """Make a call in `folder`, with its streams in files of the folder `notes`.

    Args:
        call: what is called.
        folder: where.
        notes: for what it says.
        limit_s: it is killed after so many seconds.
        is_real: start Python anew for it, as a user would.
    """
    for name in ("out", "err", "stacks"):
        (notes / name).write_bytes(b"")
    pid = os.fork()
    if pid == 0:
        _become(call, folder, notes, is_real)
    is_hung = not _ends_within(pid, limit_s)
    if is_hung:
        os.kill(pid, signal.SIGUSR1)  # says where it is
        _ends_within(pid, 0.5)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _pid, status = os.waitpid(pid, 0)
    left = _left_of(pid)
    out, err = ((notes / name).read_bytes().decode("utf-8", "replace") for name in ("out", "err"))
    if is_hung:
        err += (notes / "stacks").read_text(errors="replace")
    return Ended(os.waitstatus_to_exitcode(status), out, err, is_hung, left)


def _ends_within(pid: int, limit_s: float) -> bool:
    descriptor = os.pidfd_open(pid)
    try:
        return bool(select.select([descriptor], [], [], limit_s)[0])
    finally:
        os.close(descriptor)


def _left_of(group: int) -> int:
    """Whether processes of the call outlive it for a second; they are killed then."""
    for _ in range(20):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return 0
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    return 1


def _become(call: Call, folder: Path, notes: Path, is_real: bool) -> None:
    """Be the process that makes the call; it never returns."""
    code = 99
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with open(notes / "stacks", "w") as stacks:
            faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)
            _limit()
            os.chdir(folder)
            _surround(call, folder)
            _open_streams(call, notes)
            is_new = isinstance(call, Command) and (is_real or call.is_real)
            code = _start(call) if is_new else _make(call)
    finally:
        os._exit(code)


def _surround(call: Call, folder: Path) -> None:
    """Set the variables of the environment."""
    os.environ.update(HOME=str(folder), XDG_CACHE_HOME=str(folder / "cache"))
    for name, value in (call.environment if isinstance(call, Command) else {}).items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _limit() -> None:
    with open("/proc/self/statm", encoding="ascii") as file:
        held = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY_BYTES, held + MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def _open_streams(call: Call, notes: Path) -> None:
    """Put standard input, output and error where they belong, or spoil them as the call says."""
    streams = call.streams if isinstance(call, Command) else ""
    null = os.open(os.devnull, os.O_RDWR)
    out = os.open(notes / "out", os.O_WRONLY | os.O_APPEND)
    err = os.open(notes / "err", os.O_WRONLY | os.O_APPEND)
    if streams == "stdout full":
        out = os.open("/dev/full", os.O_WRONLY)
    if streams == "stdout pipe":
        reader, out = os.pipe()
        os.close(reader)
    for descriptor, target in ((0, null), (1, out), (2, err)):
        os.dup2(target, descriptor)
    closed = {
        "stdin closed": (0,),
        "stdout closed": (1,),
        "stderr closed": (2,),
        "both closed": (1, 2),
    }
    for descriptor in closed.get(streams, ()):
        os.close(descriptor)
    sys.stdin, sys.stdout, sys.stderr = (_stream(number) for number in range(3))
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # pyright: ignore[reportAttributeAccessIssue]  # as Python starts


def _stream(number: int) -> io.TextIOWrapper:
    """A standard stream as Python makes it at its start; None where it is closed."""
    try:
        os.fstat(number)
    except OSError:
        return None  # pyright: ignore[reportReturnType]  # as Python does
    errors = "backslashreplace" if number == 2 else "strict"
    raw = os.fdopen(number, "rb" if number == 0 else "wb", closefd=False)
    return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, line_buffering=number == 2)  # pyright: ignore[reportArgumentType]  # a buffer


def _start(call: Call) -> int:
    """Become a new Python that runs the program."""
    assert isinstance(call, Command)
    os.execv(sys.executable, [sys.executable, "-P", "-m", "ampsim", *map(os.fsencode, call.words)])
    return 99


def _make(call: Call) -> int:
    """Make the call here; return what its process ends with."""
    try:
        code = _run_command(call) if isinstance(call, Command) else _run_function(call)
    except BaseException:
        code = 1
        with contextlib.suppress(Exception):
            traceback.print_exc()
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()  # as at the end of a process
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            code = 120  # as Python ends then
    return code


def _run_command(call: Command) -> int:
    from ampsim.cli.start import main

    sys.argv = ["ampsim", *call.words]
    try:
        main(call.words)
    except SystemExit as ending:
        if not isinstance(ending.code, int | None):
            raise
        return int(ending.code or 0)


def _run_function(call: Call) -> int:
    from ampsim.errors import AmpsimError

    assert not isinstance(call, Command)
    try:
        call.call()
    except AmpsimError as error:
        sys.stderr.write(f"ampsim: {error}\n")
        return REFUSED
    return 0
