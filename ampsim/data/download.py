"""Download of data sets by hash, and a survey of what is there and where the rest comes from.

A file that was downloaded is there whole and as it must be, or not at all.

A download goes to a temporary file beside its place, which it takes once its hash is right; so
nothing half-read or wrong is ever used. Files that are there already are left alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from ampsim.arguments import checked
from ampsim.data.mnist import read_idx
from ampsim.data.molecules import read_qm9
from ampsim.data.registry import (
    DATASETS,
    Copy,
    DataFile,
    DataSource,
    MissingDataError,
    data_folder,
    source_named,
    there,
)
from ampsim.data.sentiment_trees import read_trees
from ampsim.data.wikiner import read_tagged
from ampsim.errors import FileFormatError, OutputError
from ampsim.files import prepare_folder, sha256_of

TIMEOUT_S: Final = 30.0
"""How long a server may be silent; chosen, as browsers wait about as long."""

CHUNK_BYTES: Final = 1 << 16
"""How much is written at a time; chosen: small beside the memory, large beside a call."""


def fetch(
    dataset: str | DataSource,
    folder: str | os.PathLike[str] | None = None,
    *,
    say: Callable[[str], None] = lambda line: None,
) -> list[Path]:
    """Download the files of a data set that are not there yet.

    Args:
        dataset: its name in `DATASETS`, or a record of the same form.
        folder: the data folder; see `data_folder`.
        say: called with a line before each download.

    Returns:
        The files downloaded, perhaps none.

    Raises:
        UnknownNameError: there is no data set of that name.
        MissingDataError: nobody gives it out, or no server that does answers.
        FileFormatError: what came is not the file that was asked for.
        OutputError: the folder cannot be written.
    """
    source = source_named(dataset) if isinstance(dataset, str) else dataset
    root = data_folder(folder)
    missing = [file for file in source.files.values() if there(source, file, root) is None]
    wanted = [file.remote for file in missing if file.remote is not None]
    if len(wanted) < len(missing):
        stems = ", ".join(file.stems[-1] for file in missing if file.remote is None)
        raise MissingDataError(
            f"{source.name}: {stems} cannot be downloaded: it is {source.source};"
            " try --set data=synthetic"
        )
    if not wanted:
        return []
    place = prepare_folder(root / source.name)
    return [_fetch_copy(copy, place, say) for copy in wanted]


def _fetch_copy(copy: Copy, place: Path, say: Callable[[str], None]) -> Path:
    problem: Exception | None = None
    for url in copy.urls:
        say(f"{copy.name}: {copy.size_bytes:,} bytes from {url}")
        try:
            return _retrieve(url, copy, place)
        except (MissingDataError, FileFormatError) as error:
            problem = error
    assert problem is not None, f"{copy.name} has no address"
    raise problem


def _retrieve(url: str, copy: Copy, place: Path) -> Path:
    # Imported here: they bring a whole HTTP client, which few commands need. Pooch has no types.
    import requests

    pooch: Any = import_module("pooch")
    pooch.get_logger().setLevel("ERROR")
    scheme, separator, _ = url.partition("://")
    if not separator or scheme.lower() not in ("http", "https"):
        got = f"{scheme}://" if separator else "none"
        raise _failed(url, f"expected an address with http:// or https://, got {got}")
    try:
        pooch.retrieve(url, f"sha256:{copy.sha256}", copy.name, place, downloader=_load)
    except requests.RequestException as error:
        raise _failed(url, _reason(error)) from error
    except ValueError as error:
        got = re.search(r"but got (\w+)", str(error))
        if got is None:
            raise _failed(url, "it is no address") from error
        raise FileFormatError(
            f"{url}: expected a file of SHA-256 {copy.sha256}, got {got[1]}; nothing was kept;"
            " try again, or another network"
        ) from error
    except OSError as error:
        raise OutputError(
            f"cannot write {place / copy.name}: {(error.strerror or str(error)).lower()};"
            " choose another data folder"
        ) from error
    return place / copy.name


def _load(url: str, output_file: str, _pooch: object) -> None:
    """Pooch's own way to download, but one that leaves no connection open when it fails."""
    import requests

    with (
        requests.get(url, stream=True, timeout=TIMEOUT_S) as response,
        open(output_file, "wb") as file,
    ):
        response.raise_for_status()
        file.writelines(response.iter_content(CHUNK_BYTES))


def _failed(url: str, reason: str) -> MissingDataError:
    return MissingDataError(
        f"{url}: cannot be downloaded: {reason}; try again later, or --set data=synthetic"
    )


def _reason(error: Exception) -> str:
    response: Any = getattr(error, "response", None)
    if response is not None:
        return f"the server answered {response.status_code} {response.reason}"
    kinds = {
        "ConnectTimeout": "the server does not answer",
        "ReadTimeout": "the server fell silent",
        "TooManyRedirects": "its redirections do not end",
        "InvalidSchema": "it leads to an address without http:// or https://",
        "ChunkedEncodingError": "the connection broke off",
        "ConnectionError": "the server cannot be reached",
    }
    return kinds.get(type(error).__name__, type(error).__name__)


_COUNT: Final[Mapping[str, Callable[[Path], int]]] = {
    "mnist": lambda path: len(read_idx(path, 3 if "images" in path.name else 1)),
    "sst": lambda path: len(read_trees(path)),
    "qm9": lambda path: read_qm9(path).count,
    "wikiner": lambda path: len(read_tagged(path)),
}


@dataclass(frozen=True, slots=True)
class FileStatus:
    """A file of a data set, and what a survey found of it.

    Args:
        dataset: whose file it is.
        file: its name as it is there, or as it would be fetched.
        holds: what is in it, in words.
        path: where it is; None if it is missing.
        size_bytes: of the file as it is there, else as it would be fetched.
        instances: how many items it has, if it is there and can be read.
        is_known: whether it is, to the last bit, a file that the project knows.
        problem: why it cannot be used, in one line.
        source: where it comes from.
        can_fetch: whether `fetch` can download it.
    """

    dataset: str
    file: str
    holds: str
    path: Path | None
    size_bytes: int
    instances: int | None
    is_known: bool
    problem: str | None
    source: str
    can_fetch: bool


@checked
def survey(
    folder: str | os.PathLike[str] | None = None, dataset: str | None = None
) -> list[FileStatus]:
    """List the files; one that is there and not known to the last bit is read and checked.

    Args:
        folder: the data folder; see `data_folder`.
        dataset: the only data set to look at; None for all. One that is generated has no files.

    Raises:
        UnknownNameError: there is no data set of that name.
    """
    root = data_folder(folder)
    sources = DATASETS.values() if dataset is None else [source_named(dataset)]
    return [_status(source, file, root) for source in sources for file in source.files.values()]


def _status(source: DataSource, file: DataFile, root: Path) -> FileStatus:
    path = there(source, file, root)
    usual = file.remote or file.copies[0]
    found = (None, False, None) if path is None else _examine(source, file, path)
    instances, is_known, problem = found
    return FileStatus(
        dataset=source.name,
        file=usual.name if path is None else path.name,
        holds=file.holds,
        path=path,
        size_bytes=usual.size_bytes if path is None else path.stat().st_size,
        instances=instances,
        is_known=is_known,
        problem=problem,
        source=source.source,
        can_fetch=file.remote is not None,
    )


def _examine(source: DataSource, file: DataFile, path: Path) -> tuple[int | None, bool, str | None]:
    try:
        if sha256_of(path) in {copy.sha256 for copy in file.copies}:
            return file.instances, True, None
        return _COUNT[source.name](path), False, None
    except FileFormatError as error:
        return None, False, str(error)
    except OSError as error:
        return None, False, f"{path}: cannot be read: {error.strerror or error}"
