"""Every data set: its files, where they come from, and where they lie here; see `sources.toml`."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from ampsim.arguments import checked
from ampsim.errors import AmpsimError, UnknownNameError, one_of
from ampsim.files import expanded

COMPRESSIONS: Final = ("", ".gz", ".xz")
"""Suffixes under which a file is looked for, in this order."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A form in which a file is known.

    Args:
        name: with the suffix of its compression.
        size_bytes: of the file as it is given out.
        sha256: of the file as it is given out, 64 hexadecimal digits.
        urls: where it can be fetched from, each tried in turn; none where nobody gives it out.
    """

    name: str
    size_bytes: int
    sha256: str
    urls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a data set.

    Args:
        stems: names without suffix of compression under which it is accepted, the best first.
        holds: what is in it, in words.
        instances: how many items each known copy has.
        copies: the forms that are known; others are read just as well.
    """

    stems: tuple[str, ...]
    holds: str
    instances: int
    copies: tuple[Copy, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Every name under which the file is looked for, the best first."""
        return tuple(stem + suffix for stem in self.stems for suffix in COMPRESSIONS)

    @property
    def remote(self) -> Copy | None:
        """The copy that can be fetched, if there is one."""
        return next((copy for copy in self.copies if copy.urls), None)


@dataclass(frozen=True, slots=True)
class DataSource:
    """A data set by its files.

    Args:
        name: of the data set, and of its folder.
        description: what an item is and what is to be told from it.
        source: who made it, where, under which licence.
        files: by the name under which the readers ask for them; empty where it is generated.
    """

    name: str
    description: str
    source: str
    files: Mapping[str, DataFile]


def source_named(name: str) -> DataSource:
    """The data set of that name.

    Raises:
        UnknownNameError: there is none.
    """
    if name not in DATASETS:
        raise UnknownNameError(one_of("data set", name, DATASETS))
    return DATASETS[name]


def _sources() -> dict[str, DataSource]:
    tables = tomllib.loads(Path(__file__).with_name("sources.toml").read_text(encoding="utf-8"))
    return {name: _source(name, **table) for name, table in tables.items()}


def _source(
    name: str, description: str, source: str, files: Mapping[str, Any] = MappingProxyType({})
) -> DataSource:
    return DataSource(name, description, source, {key: _file(**one) for key, one in files.items()})


def _file(stems: list[str], holds: str, instances: int, copies: list[dict[str, Any]]) -> DataFile:
    known = tuple(
        Copy(copy["name"], copy["size_bytes"], copy["sha256"], tuple(copy.get("urls", ())))
        for copy in copies
    )
    return DataFile(tuple(stems), holds, instances, known)


DATASETS: Final[Mapping[str, DataSource]] = MappingProxyType(_sources())
"""Every data set by its name."""


VARIABLE: Final = "AMPSIM_DATA"
"""Environment variable that names the data folder."""


class MissingDataError(AmpsimError):
    """A file of a data set is not there, or could not be fetched."""


@checked
def data_folder(explicit: str | os.PathLike[str] | None = None) -> Path:
    """The folder with `mnist/`, `sst/`, `qm9/` and `wikiner/` in it; it need not exist.

    Args:
        explicit: the folder, if the user named one; else `$AMPSIM_DATA`, else the cache folder
            that the platform keeps for a program.
    """
    named = os.fspath(explicit or "") or os.environ.get(VARIABLE)
    if named:
        return expanded(named)
    return cache_folder()


def cache_folder() -> Path:
    """The folder that the platform keeps for what a program can fetch or make again."""
    import platformdirs  # here, so that those who name a folder need not wait for it

    return platformdirs.user_cache_path("ampsim", appauthor=False)


def there(source: DataSource, file: DataFile, folder: Path) -> Path | None:
    """The file of a data set in a data folder, in whichever form it is there, the best first."""
    candidates = (folder / source.name / name for name in file.names)
    return next((path for path in candidates if os.path.isfile(path)), None)


@checked
def find_file(dataset: str, part: str, folder: str | os.PathLike[str] | None = None) -> Path:
    """The file of one part of a data set.

    Args:
        dataset: its name in `DATASETS`.
        part: key of the file there, such as "train".
        folder: as for `data_folder`.

    Raises:
        MissingDataError: it is not there; the line says where it comes from and what to try.
        UnknownNameError: no data set has that name, or it has no such part.
    """
    source, root = source_named(dataset), data_folder(folder)
    if part not in source.files:
        raise UnknownNameError(one_of(f"file of data set {dataset}", part, source.files))
    path = there(source, source.files[part], root)
    if path is None:
        raise MissingDataError(_missing(source, part, root))
    return path


def _missing(source: DataSource, part: str, root: Path) -> str:
    file = source.files[part]
    stems = " or ".join(file.stems)
    remedies = ["--set data=synthetic", f"{VARIABLE}=FOLDER if you have it elsewhere"]
    if file.remote is not None:
        remedies.insert(0, f"'ampsim data {source.name} --download'")
    return (
        f"{source.name}: no {stems} (plain, .gz or .xz) in {root / source.name};"
        f" its source: {source.source}; try {', '.join(remedies[:-1])}, or {remedies[-1]}"
    )
