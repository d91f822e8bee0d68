"""Paths that users name, and files that are read and written whole."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Generator
from io import BufferedReader
from pathlib import Path

from ampsim.errors import FileFormatError, OutputError, UnknownNameError

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
    if not given:
        raise UnknownNameError("expected a path, got ''; write . for the folder that you are in")
    if "\0" in given:
        raise UnknownNameError(f"no path can hold a zero byte, got {given!r}; remove it")
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        home = Path(given).parts[0]
        raise UnknownNameError(
            f"no home folder {home!r}, got path {given!r}; write the folder out, or the whole path "
            "of a name that begins so"
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
    """Name the kind of a file of that mode."""
    return _KINDS.get(stat.S_IFMT(mode), "a file")


def _require_regular(mode: int, shown: str) -> None:
    if not stat.S_ISREG(mode):
        raise FileFormatError(f"{shown}: expected a file, got {kind_of(mode)}; name a regular file")


_REASONS = {
    errno.EACCES: ("no permission to write there", "choose a folder of your own"),
    errno.EPERM: ("no permission to write there", "choose a folder of your own"),
    errno.EROFS: ("the file system is read-only", "choose a folder elsewhere"),
    errno.ENOSPC: ("the disk is full", "free some space or choose a folder on another disk"),
    errno.EDQUOT: ("the disk quota is used up", "free some space or choose another folder"),
    errno.EISDIR: ("it is a folder", "choose another file name"),
    errno.EEXIST: ("it exists and is not a folder", "choose another name or remove it"),
    errno.ENOTDIR: ("a part of the path is a file, not a folder", "choose another folder"),
    errno.ENOENT: ("its folder does not exist", "create the folder or choose another"),
    errno.ENAMETOOLONG: ("the name is too long", "choose a shorter one"),
    errno.ELOOP: ("its links lead round in a circle", "choose another name"),
}


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, is_lasting: bool = True) -> Generator[Path]:
    """A temporary path beside `path` which takes its place when the block ends without an error.

    Whatever goes wrong in the block, Ctrl-C included, the temporary file is removed and the old
    file, if there was one, is untouched. The temporary name keeps the suffix, which some writers
    read the format from. A link is followed; a device such as `/dev/null` cannot be replaced and is
    written itself; a pipe, which may wait for its reader for ever, is refused. What is not lasting
    may be lost in a power cut, and is not waited for.

    Raises:
        OutputError: the file cannot be written; an error about another file passes as it is.

    Example:
        with replacing("out/gantt.svg") as temporary:
            figure.savefig(temporary)
    """
    wanted = expanded(path)
    target = Path(os.path.realpath(wanted))
    _refuse_pipe(wanted)
    direct = os.path.exists(target) and not os.path.isfile(target)
    name = f".{target.stem[:40]}.{secrets.token_hex(6)}{target.suffix}"
    temporary = target if direct else target.with_name(name)
    try:
        if os.path.isdir(target):
            raise IsADirectoryError(errno.EISDIR, "is a folder", str(temporary))
        yield temporary
        if not direct:
            assert os.path.exists(temporary), f"nothing was written to {temporary}"
            if is_lasting:
                _flush_to_disk(temporary)
            os.replace(temporary, target)
    except OSError as error:
        if error.errno is None or not _concerns(error, temporary):
            raise
        raise output_error("write", wanted, error) from error
    finally:
        if not direct:
            _remove(temporary)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes `text` as UTF-8 with newlines as they are, whole or not at all (`replacing`).

    Raises:
        OutputError: the file cannot be written.
    """
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | os.PathLike[str], content: bytes, *, is_lasting: bool = True) -> None:
    """Writes `content`, whole or not at all (`replacing`).

    Raises:
        OutputError: the file cannot be written.
    """
    with replacing(path, is_lasting=is_lasting) as temporary, open(temporary, "wb") as file:
        file.write(content)


@contextlib.contextmanager
def appending(path: Path, attempt: str = "write") -> Generator[None]:
    """Tell in a line why a file could not be added to, whoever does that in the block.

    Raises:
        OutputError: it could not.
    """
    try:
        yield
    except OSError as error:
        raise output_error(attempt, path, error) from error


def prepare_folder(path: str | os.PathLike[str]) -> Path:
    """The folder `path`, created with its parents where missing, and tried by writing in it.

    Raises:
        OutputError: it is a file, cannot be created or cannot be written.
    """
    folder = expanded(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise output_error("create folder", folder, error) from error
    probe = folder / f".writable.{secrets.token_hex(6)}"
    try:
        probe.write_bytes(b"?")
    except OSError as error:
        raise output_error("write in folder", folder, error) from error
    finally:
        _remove(probe)
    return folder


@contextlib.contextmanager
def prepared_folder(path: str | os.PathLike[str]) -> Generator[Path]:
    """The folder `path` (`prepare_folder`) while the block runs that is to write into it.

    Folders that were made for it are removed again if nothing was written.

    Raises:
        OutputError: it is a file, cannot be created or cannot be written.
    """
    folder = expanded(path)
    new = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    try:
        yield prepare_folder(folder)
    finally:
        with contextlib.suppress(OSError):  # as a rule it holds something by now
            for each in new:
                each.rmdir()


@contextlib.contextmanager
def prepared_file(path: str | os.PathLike[str]) -> Generator[Path]:
    """The path of a file that the block is to write; its folder is made where missing, and tried.

    Folders that were made for it are removed again if nothing was written.

    Raises:
        OutputError: it is a folder, or its folder cannot be created or written.
    """
    target = expanded(path)
    _refuse_pipe(target)
    if os.path.isdir(target):
        raise output_error("write", target, IsADirectoryError(errno.EISDIR, "is a folder"))
    if os.path.exists(target) and not os.path.isfile(target):  # a device is written itself
        yield target
        return
    with prepared_folder(target.parent):
        try:
            os.stat(target)
        except FileNotFoundError:
            pass
        except OSError as error:  # a name that no file there can have
            raise output_error("write", target, error) from error
        yield target


def sha256_of(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's content, 64 hexadecimal digits.

    Raises:
        FileFormatError: it is no regular file.
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _concerns(error: OSError, temporary: Path) -> bool:
    """Tell whether the error is about this output; one without a name came from a write to it."""
    name: object = error.filename
    return name is None or str(name) == str(temporary)


def output_error(attempt: str, path: Path, error: OSError) -> OutputError:
    """The one line for a person: what was attempted, where, why it failed, what to try."""
    other = (str(error.strerror or error).lower(), "choose another folder")
    reason, remedy = _REASONS.get(error.errno or 0, other)
    return OutputError(f"cannot {attempt} {path}: {reason}; {remedy}")


def _refuse_pipe(path: Path) -> None:
    """Raise for what would be waited for, such as a pipe without a reader."""
    with contextlib.suppress(OSError):
        mode = os.stat(path).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISBLK(mode):
            raise OutputError(
                f"cannot write {path}: it is {kind_of(mode)}, expected a file; choose another name"
            )


def _remove(temporary: Path) -> None:
    """Removes what may not exist; a failure here must not hide the error that led here."""
    with contextlib.suppress(OSError):
        temporary.unlink()


def _flush_to_disk(temporary: Path) -> None:
    """Brings the content to the disk before the name, so that a power cut leaves one or the other.

    Some file systems report a full disk only here.
    """
    with open(temporary, "rb+") as file:
        os.fsync(file.fileno())
