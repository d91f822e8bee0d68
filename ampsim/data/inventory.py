"""A survey of a data folder: which files are there, and where the rest comes from."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ampsim.arguments import checked
from ampsim.data.mnist import read_idx
from ampsim.data.molecules import read_qm9
from ampsim.data.registry import DATASETS, DataFile, DataSource, data_folder, source_named, there
from ampsim.data.sentiment_trees import read_trees
from ampsim.data.wikiner import read_tagged
from ampsim.errors import FileFormatError
from ampsim.files import sha256_of

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
    remote = file.remote
    usual = remote or file.copies[0]
    if path is None:
        instances, is_known, problem = None, False, None
        name, size_bytes = usual.name, usual.size_bytes
    else:
        instances, is_known, problem = _examine(source, file, path)
        name, size_bytes = path.name, path.stat().st_size
    return FileStatus(
        dataset=source.name,
        file=name,
        holds=file.holds,
        path=path,
        size_bytes=size_bytes,
        instances=instances,
        is_known=is_known,
        problem=problem,
        source=source.source,
        can_fetch=remote is not None,
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
