"""Folders of results: one process at a time, written whole, and nothing that is not ours lost.

A folder is taken by a lock that ends with its process. What is made goes to a hidden folder within
and takes its place once all of it is there, the manifest last. The manifest holds a hash of each
file beside it, which is how a later run knows them as its own: only those are replaced or removed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tomllib
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

from filelock import FileLock, Timeout

from ampsim.arguments import checked
from ampsim.errors import FileFormatError, OutputError
from ampsim.files import (
    expanded,
    output_error,
    prepared_folder,
    read_regular,
    sha256_of,
    write_bytes,
    write_text,
)
from ampsim.text import mapping, to_toml

Kind: TypeAlias = Literal[
    "run", "forecast", "report", "calibration", "exploration", "search", "whatif", "solve"
]

MANIFEST: Final = "manifest.toml"
_KINDS: Final = get_args(Kind)
_LOCK: Final = ".ampsim.lock"
_STAGING: Final = ".ampsim-new-"
_SUFFIXES: Final = (".csv", ".html", ".json", ".md", ".parquet", ".png")
"""Those of files that are written; nothing else is ever removed, whatever a manifest says. A
calibration writes a device, too."""

_Digests: TypeAlias = dict[str, set[str]]


@dataclass(frozen=True, slots=True)
class OutputFolder(os.PathLike[str]):
    """A folder that this process has taken.

    Args:
        path: where it is.
        kind: what is to be written there.
    """

    path: Path
    kind: Kind

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)


@contextlib.contextmanager
def taken(
    folder: str | os.PathLike[str], kind: Kind, names: Iterable[str] = ()
) -> Generator[OutputFolder]:
    """Take a folder while the block runs; it is made, and tried, before the long work.

    Folders that were made for it are removed again if nothing was written.

    Args:
        folder: where it is, or is to be.
        kind: what is to be written there.
        names: files that will be written, as far as they are known.

    Raises:
        OutputError: it cannot be written, another process has it, it holds something of another
            kind, or a file of one of these names that is not known to be ours.
    """
    with prepared_folder(folder) as path, _locked(path):
        digests = _digests(path, kind)
        for name in names:
            _require_ours(path / name, digests)
        yield OutputFolder(path, kind)


@contextlib.contextmanager
def staged(folder: str | os.PathLike[str], kind: Kind) -> Generator[Path]:
    """A new folder to write into, whose files take their place in `folder` when the block ends.

    Files that an earlier one of the same kind left are replaced or removed. If the block fails,
    everything stays as it was. If at last a file is in the way, what was made is kept beside it.

    Args:
        folder: one that is `taken`, or any other, which is then taken while the block runs.
        kind: what is written.

    Raises:
        OutputError: as for `taken`.
    """
    if not isinstance(folder, OutputFolder):
        with taken(folder, kind) as own, staged(own, kind) as place:
            yield place
        return
    assert folder.kind == kind, f"{folder} was taken for a {folder.kind}, not a {kind}"
    place = folder.path / f"{_STAGING}{secrets.token_hex(6)}"
    try:
        place.mkdir()
    except OSError as error:
        raise output_error("write in folder", folder.path, error) from error
    try:
        with _named_as(place, folder.path):
            yield place
        _commit(place, folder)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def write_files(
    folder: str | os.PathLike[str],
    kind: Kind,
    contents: Mapping[str, str | bytes],
    manifest: dict[str, Any],
    listed: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write files and a manifest with their hashes, whole or not at all, as of `staged`.

    Args:
        folder: where to.
        kind: what is written.
        contents: what each file holds, by its name.
        manifest: what it says beside `kind` and the hashes.
        listed: hashes that it had, in their order; those of files that are not written stay.

    Returns:
        The files, in the order written.

    Raises:
        OutputError: as for `taken`.
    """
    with staged(folder, kind) as place:
        for name, content in contents.items():
            is_text = isinstance(content, str)
            write_bytes(place / name, content.encode("utf-8") if is_text else content)
        files = {**(listed or {}), **{name: sha256_of(place / name) for name in contents}}
        write_text(place / MANIFEST, to_toml({"kind": kind, **manifest, "files": files}))
    return [expanded(folder) / name for name in (*contents, MANIFEST)]


class Saveable:
    """An answer that is kept as a folder: pages, tables and figures, and a manifest.

    `kind` is what the folder is called; each kind has a format of its own, which its manifest says.
    """

    kind: ClassVar[Kind]

    def contents(self) -> dict[str, str | bytes]:
        """Make the files, by name, in the order in which they are written."""
        raise NotImplementedError

    def origin(self) -> dict[str, Any]:
        """The manifest, beside its kind and the hashes of the files."""
        raise NotImplementedError

    @checked
    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write pages, tables, figures and manifest, whole or not at all, as `--out` does.

        They take the place of what an earlier answer of this kind left there.

        Args:
            folder: made if missing.

        Returns:
            The files, in the order written, the manifest last.

        Raises:
            OutputError: the folder or a file in it cannot be written, or is another's.
        """
        return write_files(folder, self.kind, self.contents(), self.origin())


def read_table(manifest: Path, label: str | None = None) -> dict[str, Any]:
    """Read a manifest.

    Args:
        manifest: its path.
        label: what to call it in a message; its path unless given.

    Raises:
        FileFormatError: it is no regular file.
        OSError: it cannot be read.
        ValueError: it is no TOML.
    """
    content = read_regular(manifest, label)
    try:
        return tomllib.loads(content.decode("utf-8"))
    except RecursionError as error:
        raise ValueError(str(error)) from error


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    """Hold the folder's lock; its file goes when the lock does."""
    lock = FileLock(path / _LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise OutputError(
            f"{path}: another ampsim is writing there; wait until it has ended, or choose another "
            "folder"
        ) from None
    except OSError as error:
        raise output_error("lock folder", path, error) from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # before it is released, so that nobody holds it yet
            os.unlink(path / _LOCK)
        lock.release()


@contextlib.contextmanager
def _named_as(place: Path, shown: Path) -> Generator[None]:
    """Errors of the block speak of where files were to be, not of where they are made."""
    try:
        yield
    except OutputError as error:
        raise OutputError(str(error).replace(str(place), str(shown))) from error


def _commit(place: Path, folder: OutputFolder) -> None:
    """Put everything in its place; Ctrl-C waits for the few renames that this takes."""
    names = sorted(name for name in os.listdir(place) if name != MANIFEST)
    assert os.path.isfile(place / MANIFEST), f"no {MANIFEST} was written"
    leftovers = [each for each in _stagings(folder.path) if each != place]
    try:
        digests = _digests(folder.path, folder.kind)
        for name in names:
            _require_ours(folder.path / name, digests)
        older = [
            folder.path / name
            for name in digests
            if name not in names and _is_ours(folder.path / name, digests)
        ]
        try:
            _move(place, folder.path, names, older)
        except KeyboardInterrupt:
            _move(place, folder.path, names, older)
            raise
    except OutputError as error:
        raise OutputError(f"{error}; what was made is in {_keep(place)}") from error
    except OSError as error:
        text = str(output_error("write in folder", folder.path, error))
        raise OutputError(f"{text}; what was made is in {_keep(place)}") from error
    for each in leftovers:
        shutil.rmtree(each, ignore_errors=True)


def _move(place: Path, target: Path, names: list[str], older: list[Path]) -> None:
    """Old files go first, the manifest comes last; what was done already is not done again."""
    for path in older:
        path.unlink(missing_ok=True)
    for name in (*names, MANIFEST):
        if os.path.lexists(place / name):
            os.replace(place / name, target / name)


def _keep(place: Path) -> Path:
    """Keep what could not be put in its place, under a name that is seen and not cleared away."""
    kept = place.with_name(place.name.replace(_STAGING, "ampsim-kept-"))
    os.replace(place, kept)
    return kept


def _digests(path: Path, kind: Kind) -> _Digests:
    """The hashes under which files in the folder are ours.

    They stand in its manifest, and in that of what a process that was killed did not finish.
    """
    found: _Digests = {}
    manifests = [path / MANIFEST, *(each / MANIFEST for each in _stagings(path))]
    for manifest in manifests:
        if not os.path.lexists(manifest):
            continue
        for name, digest in _listed(_read(manifest, kind)).items():
            found.setdefault(name, set()).add(digest)
    return found


def _one(kind: str | None) -> str:
    return f"{'an' if kind == 'exploration' else 'a'} {kind}"


def _read(manifest: Path, kind: Kind) -> dict[str, Any]:
    """A manifest of ours.

    Raises:
        OutputError: it is something else, or of something else.
    """
    try:
        table = read_table(manifest)
    except (OSError, ValueError, FileFormatError):
        raise _foreign(manifest) from None
    there = table.get("kind")
    if there not in _KINDS:
        raise _foreign(manifest)
    if there != kind:
        raise OutputError(
            f"{manifest.parent}: holds {_one(there)}, which {_one(kind)} must not replace; choose "
            "another folder, or remove it"
        )
    return table


def _listed(manifest: dict[str, Any]) -> dict[str, str]:
    """Name and hash of each file that the manifest lists; of a run, tables and pages."""
    listed: dict[str, str] = {}
    suffixes = (*_SUFFIXES, ".toml") if manifest.get("kind") == "calibration" else _SUFFIXES
    for key in ("files", "pages"):
        table = manifest.get(key)
        for name, entry in (mapping(table) if isinstance(table, dict) else {}).items():  # pyright: ignore[reportUnknownArgumentType]  # any TOML
            is_table = isinstance(entry, dict)
            digest: Any = mapping(entry).get("sha256") if is_table else entry  # pyright: ignore[reportUnknownArgumentType]  # any TOML
            own = f"{name}.parquet" if is_table else name
            is_plain = Path(own).name == own and own.endswith(suffixes) and "\0" not in own
            if isinstance(digest, str) and is_plain:
                listed[own] = digest
    return listed


def _require_ours(path: Path, digests: _Digests) -> None:
    if os.path.lexists(path) and path.name != MANIFEST and not _is_ours(path, digests):
        raise _foreign(path)


def _is_ours(path: Path, digests: _Digests) -> bool:
    """Tell whether it is a file that was written by us and not changed since."""
    if path.is_symlink() or not os.path.isfile(path):
        return False
    try:
        return sha256_of(path) in digests.get(path.name, set())
    except (OSError, FileFormatError):
        return False


def _foreign(path: Path) -> OutputError:
    return OutputError(
        f"{path}: is not replaced, for it is not known as written by this ampsim, or was changed "
        "since; move it away, or choose another folder"
    )


def _stagings(path: Path) -> list[Path]:
    """Folders that results were being made in: of this process, or of one that was killed."""
    with contextlib.suppress(OSError):
        found = sorted(name for name in os.listdir(path) if name.startswith(_STAGING))
        return [path / name for name in found if os.path.isdir(path / name)]
    return []
