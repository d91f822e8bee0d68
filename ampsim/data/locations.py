"""Where the files of data sets lie, and what is said when they do not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from ampsim.arguments import checked
from ampsim.data.registry import DataFile, DataSource, source_named
from ampsim.errors import AmpsimError, UnknownNameError, one_of
from ampsim.paths import expanded

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
    named = os.fspath(explicit) if explicit is not None else os.environ.get(VARIABLE)
    if named:
        return expanded(named)
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
    """Which file, where it was looked for, where it comes from, what to try."""
    file = source.files[part]
    stems = " or ".join(file.stems)
    remedies = ["--set data=synthetic", f"{VARIABLE}=FOLDER if you have it elsewhere"]
    if file.remote is not None:
        remedies.insert(0, f"'ampsim data {source.name} --download'")
    return (
        f"{source.name}: no {stems} (plain, .gz or .xz) in {root / source.name};"
        f" its source: {source.source}; try {', '.join(remedies[:-1])}, or {remedies[-1]}"
    )
