"""Paths that users give: home folders written out, and files read without waiting for anybody."""

from __future__ import annotations

import os
import stat
from io import BufferedReader
from pathlib import Path

from ampsim.errors import FileFormatError, UnknownNameError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

# A pipe without a writer is opened at once; a terminal does not become the process's own.
_WITHOUT_WAITING = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)


def expanded(path: str | os.PathLike[str]) -> Path:
    """A user's path with `~` and `~name` written out.

    Raises:
        UnknownNameError: there is no such home folder, or no path can be so.
    """
    given = os.fspath(path)
    if "\0" in given:
        raise UnknownNameError(f"no path can hold a zero byte, got {given!r}; remove it")
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        home = given.split(os.sep, 1)[0]
        raise UnknownNameError(
            f"no home folder {home!r}, got path {given!r}; write the folder out, or "
            f"{os.path.join(os.curdir, given)!r} for a name that begins so"
        ) from error


def open_regular(path: str | os.PathLike[str], label: str | None = None) -> BufferedReader:
    """Open a file to read its bytes; what is no regular file is refused and never waited for.

    Args:
        path: the file.
        label: what to call it in a message; its path unless given.

    Raises:
        FileFormatError: it is a folder, a pipe, a socket or a device.
        OSError: it cannot be opened.
    """
    shown = os.fspath(path) if label is None else label
    _require_regular(os.stat(path).st_mode, shown)
    descriptor = os.open(path, _WITHOUT_WAITING)
    try:  # once more, for another may have taken its name
        _require_regular(os.fstat(descriptor).st_mode, shown)
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def read_regular(path: str | os.PathLike[str], label: str | None = None) -> bytes:
    """The bytes of a file; see `open_regular`.

    Raises:
        FileFormatError: it is a folder, a pipe, a socket or a device.
        OSError: it cannot be read.
    """
    with open_regular(path, label) as file:
        return file.read()


def read_limited(
    path: str | os.PathLike[str], label: str, *, size_bytes_max: int, noun: str
) -> bytes:
    """The bytes of a file that a user writes, which is small if it is what it should be.

    Args:
        path: the file.
        label: what to call it in a message.
        size_bytes_max: the most that it may have.
        noun: what it should be, such as "a placement".

    Raises:
        FileFormatError: it cannot be read, is no regular file, or has more bytes.
    """
    try:
        with open_regular(path, label) as file:
            content = file.read(size_bytes_max + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        text = f"{label}: cannot be read: {reason}; check the path and its permissions"
        raise FileFormatError(text) from error
    if len(content) > size_bytes_max:
        raise FileFormatError(
            f"{label}: expected at most {size_bytes_max} bytes, got more; is it {noun}?"
        )
    return content


def kind_of(mode: int) -> str:
    """What a file of that mode is, in words."""
    return _KINDS.get(stat.S_IFMT(mode), "a file")


def _require_regular(mode: int, shown: str) -> None:
    if not stat.S_ISREG(mode):
        raise FileFormatError(f"{shown}: expected a file, got {kind_of(mode)}; name a regular file")
