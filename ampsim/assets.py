"""Paths of the shipped device and model files, and of those that a user names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from ampsim.errors import UnknownNameError, one_of
from ampsim.files import expanded

Kind = Literal["devices", "models"]

_PACKAGE = Path(__file__).parent
_FILES: dict[Kind, tuple[str, str]] = {"devices": ("device", ".toml"), "models": ("model", ".py")}


def shipped(kind: Kind) -> Path:
    """Folder of the shipped files: inside the installed package, else in the checkout around it."""
    installed = _PACKAGE / "_shipped" / kind
    return installed if os.path.isdir(installed) else _PACKAGE.parent / kind


def names(kind: Kind) -> list[str]:
    """Names of the shipped files, sorted: each is its file's name without the suffix."""
    return sorted(path.stem for path in shipped(kind).glob(f"[!._]*{_FILES[kind][1]}"))


def named(kind: Kind, name: str) -> Path:
    """The shipped file of that name.

    Raises:
        UnknownNameError: there is none.
    """
    noun, suffix = _FILES[kind]
    if name not in names(kind):
        raise UnknownNameError(one_of(noun, name, names(kind), label="shipped"))
    return shipped(kind) / f"{name}{suffix}"


def locate(kind: Kind, name_or_path: str | os.PathLike[str]) -> Path:
    """The file that a shipped name or a path of the user's leads to.

    A path is what has a separator or the suffix of its kind (`.toml`, `.py`), or is a `PathLike`;
    everything else is a name. A shipped file and a user's own file have the same standing.

    Raises:
        UnknownNameError: no shipped file has that name, or there is nothing at that path, or a
            folder or a file of another type.
    """
    noun, suffix = _FILES[kind]
    given = os.fspath(name_or_path)
    has_separator = os.sep in given or bool(os.altsep and os.altsep in given)
    is_name = isinstance(name_or_path, str) and not has_separator and not given.endswith(suffix)
    if is_name and (given in names(kind) or not os.path.isdir(given)):
        if given not in names(kind):
            _refuse_own_file(kind, given)
        return named(kind, given)
    path = expanded(given)
    if os.path.isdir(path):
        inside = [one.name for one in sorted(path.glob(f"*{suffix}"))]
        some = f"name a file in it, such as {path / inside[0]}" if inside else "there is none in it"
        raise UnknownNameError(f"{given}: expected a {noun} file ({suffix}), got a folder; {some}")
    if not os.path.exists(path):
        known = ", ".join(names(kind)) or "none"
        raise UnknownNameError(
            f"no {noun} file {given!r}; give the path of a {suffix} file, or a name: {known}"
        )
    return path


def _refuse_own_file(kind: Kind, given: str) -> None:
    """Say of a name that is none that a file of the user's has it, without the suffix or as it is.

    Raises:
        UnknownNameError: there is such a file.
    """
    (noun, suffix), known = _FILES[kind], ", ".join(names(kind)) or "none"
    if os.path.isfile(f"{given}{suffix}"):
        told = f"no {noun} named {given!r}; did you mean the file '{given}{suffix}'?"
        raise UnknownNameError(f"{told} shipped: {known}")
    if os.path.isfile(given):
        told = f"{given}: expected a {noun} file ({suffix}), got a file of another type"
        raise UnknownNameError(f"{told}; give the path of a {suffix} file, or a name: {known}")
