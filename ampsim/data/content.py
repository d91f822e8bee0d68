"""Content of plain, gzip and xz files, whole, and every mistake in them in one line."""

from __future__ import annotations

import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import lru_cache, wraps
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, Final, ParamSpec, TypeVar, cast

from ampsim.errors import FileFormatError
from ampsim.files import open_regular

P = ParamSpec("P")
T = TypeVar("T")

REMEDY: Final = "remove it and fetch it again"

CONTENT_BYTES_MAX: Final = 256_000_000
"""Most bytes of a file that is read at once, unpacked (chosen: four times what the largest of the
data sets has; a few hundred kilobytes can unpack to more than there is memory)."""

LINE_LETTERS_MAX: Final = 50_000
"""Letters of a line of text, which is a sentence; chosen: twenty times the longest shipped one. A
file whose line ends were lost would else be one instance of a run without end."""

PACKED_BYTES: Final = 1 << 16
"""Bytes of a packed file that are read at a time; chosen: as much as a download writes at once."""

KEPT_MAX: Final = 4
"""How many of the results of a reader a process keeps; chosen: real, limited and two others."""

UNREADABLE: Final = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError)
"""What damaged packed data raises while it is unpacked."""


@contextmanager
def open_content(path: Path) -> Generator[BinaryIO]:
    """The file as a stream of its unpacked bytes; the suffix says how it is packed.

    Raises:
        FileFormatError: it is no regular file.
        OSError: it cannot be opened.
    """
    with open_regular(path) as packed:
        if path.suffix == ".gz":
            with gzip.open(packed, "rb") as file:
                yield cast(BinaryIO, file)
        elif path.suffix == ".xz":
            with BufferedReader(_XzStreams(packed)) as file:
                yield file
        else:
            yield packed


class _XzStreams(RawIOBase):
    """The streams of an .xz file; `lzma.open` ends without a word at what is no further stream."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed, self._stream = packed, lzma.LZMADecompressor()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        content = b""
        while not content:
            rest = b""
            if self._stream.eof:
                rest = (self._stream.unused_data or self._packed.read(PACKED_BYTES)).lstrip(b"\0")
                if not rest and not (rest := self._packed.read(PACKED_BYTES).lstrip(b"\0")):
                    return 0
                self._stream = lzma.LZMADecompressor()
            elif self._stream.needs_input and not (rest := self._packed.read(PACKED_BYTES)):
                raise EOFError
            content = self._stream.decompress(rest, len(buffer))
        buffer[: len(content)] = content
        return len(content)


def explain(path: Path, error: Exception) -> FileFormatError:
    """The one line about a file that could not be read to its end."""
    if isinstance(error, EOFError):
        reason = f"is cut off: its {path.suffix} data ends too early; {REMEDY}"
    elif isinstance(error, UNREADABLE):
        reason = f"expected whole {path.suffix} data, got: {_clause(error)}; {REMEDY}"
    else:
        reason = f"cannot be read: {_clause(error)}"
    return FileFormatError(f"{path}: {reason}")


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The unpacked content of a file.

    Raises:
        FileFormatError: it cannot be read, is cut off or damaged, is empty, or has more than
            `CONTENT_BYTES_MAX` bytes.
    """
    path = Path(path)
    try:
        with open_content(path) as file:
            content = file.read(CONTENT_BYTES_MAX + 1)
    except (*UNREADABLE, OSError) as error:
        raise explain(path, error) from error
    if not content:
        raise FileFormatError(f"{path}: is empty; {REMEDY}")
    if len(content) > CONTENT_BYTES_MAX:
        raise FileFormatError(
            f"{path}: expected at most {CONTENT_BYTES_MAX} bytes unpacked, got more; {REMEDY}"
        )
    return content


def read_lines(path: str | os.PathLike[str]) -> list[tuple[int, str]]:
    """The lines of a UTF-8 text with their numbers, from 1, without those that are blank.

    A line ends at a line feed and nowhere else: a text may hold other letters that some count as
    the end of a line. A mark of its encoding may stand before the first.

    Raises:
        FileFormatError: it cannot be read, is cut off, damaged, empty or not UTF-8, or a line has
            more than `LINE_LETTERS_MAX` letters or a carriage return within.
    """
    content = read_bytes(path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number, wrong = error.object.count(b"\n", 0, error.start) + 1, error.object[error.start]
        raise FileFormatError(
            f"{path}: line {number}: expected UTF-8 text, got byte 0x{wrong:02x}; save it as UTF-8"
        ) from error
    numbered = enumerate(text.split("\n"), 1)
    lines = [(number, line) for number, line in numbered if line and not line.isspace()]
    if not lines:
        raise FileFormatError(f"{path}: is empty but for blank lines; {REMEDY}")
    for number, line in lines:
        if len(line) > LINE_LETTERS_MAX:
            raise FileFormatError(
                f"{path}: line {number}: expected a sentence, of at most {LINE_LETTERS_MAX} "
                f"letters, got {len(line)}; are line ends missing?"
            )
        if "\r" in line.rstrip("\r"):
            raise FileFormatError(
                f"{path}: line {number}: expected lines that end in a line feed, got a carriage "
                "return within one; save it with other line ends"
            )
    return lines


def once(read: Callable[P, T]) -> Callable[P, T]:
    """`read`, but the same unchanged files are read once in a process.

    Arguments go by position and are hashable; the files are those that are a `Path`, and count as
    unchanged as long as size and time of change are. What is given back is shared: it must not be
    written to.
    """

    @lru_cache(KEPT_MAX)
    def known(_stamps: tuple[tuple[int, int], ...], *args: P.args, **keywords: P.kwargs) -> T:
        return read(*args, **keywords)

    @wraps(read)
    def wrapped(*args: P.args, **keywords: P.kwargs) -> T:
        stamps = tuple(_stamp(one) for one in args if isinstance(one, Path))
        return known(stamps, *args, **keywords)

    return wrapped


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _clause(error: Exception) -> str:
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (said or type(error).__name__).rstrip(".").lower()
