"""A placement as a TOML file: ``NODE = WORKER`` for each node of the graph.

A name with a dot is a key in quotes, as in ``"linear-1.0" = 3``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from ampsim.errors import FileFormatError, one_of
from ampsim.files import expanded, read_limited
from ampsim.hardware import HOST
from ampsim.hardware.topology import WORKERS_MAX
from ampsim.model_parallel.placements.base import Situation
from ampsim.toml_file import parsed

SIZE_BYTES_MAX: Final = 10_000_000
"""Largest placement file; chosen: room for 100 000 nodes, so a larger one is a slip."""


@dataclass(frozen=True)
class FromFile:
    """The placement that a file says."""

    path: str

    @property
    def origin(self) -> dict[str, Any]:
        """Path and hash of the file."""
        content = _read(self.path)
        return {"name": "file", "file": self.path, "sha256": hashlib.sha256(content).hexdigest()}

    def place(self, situation: Situation) -> list[int]:
        """Place as the file says.

        Raises:
            FileFormatError: it cannot be read, is no TOML, misses a node or has one twice, or names
                an unknown node or a worker that there is not.
        """
        table = _parse(_read(self.path), self.path)
        names = [node.name for node in situation.graph.nodes[1:]]
        for name, value in table.items():
            _check_entry(self.path, name, value, names)
            _check_worker(self.path, name, value, situation.cluster.workers)
        missing = [name for name in names if name not in table]
        if missing:
            more = f" (and {len(missing) - 1} others)" if len(missing) > 1 else ""
            raise FileFormatError(
                f"{self.path}: missing key {missing[0]!r}{more}; give each node a worker, "
                f"as in {_quoted(missing[0])} = 0"
            )
        return [HOST, *(table[name] for name in names)]


def read_placement(path: str) -> dict[str, int]:
    """The worker of each node that a placement file names, whatever graph it is for.

    Raises:
        FileFormatError: it cannot be read, is no TOML, or has a line that is not NODE = WORKER.
    """
    table = _parse(_read(path), path)
    for name, value in table.items():
        _check_entry(path, name, value, () if isinstance(value, dict) else (name,))
        _check_worker(path, name, value, WORKERS_MAX)
    return table


def _read(path: str) -> bytes:
    noun = "a placement"
    return read_limited(expanded(path), path, size_bytes_max=SIZE_BYTES_MAX, noun=noun)


def _parse(content: bytes, path: str) -> dict[str, Any]:
    try:
        return parsed(content, path, "write NODE = WORKER")
    except FileFormatError as error:
        twice = _doubled(str(error.__cause__), content)
        if twice is None:
            raise
        raise FileFormatError(
            f"{path}: {twice!r} has a worker twice; keep one of the two lines"
        ) from error


def _doubled(reason: str, content: bytes) -> str | None:
    """Return the key in the line at which TOML found a second value, if that is the reason."""
    found = re.match(r"Cannot overwrite a value \(at line (\d+)", reason)
    at_end = re.match(r"Cannot overwrite a value \(at end of document", reason)
    if not (found or at_end):
        return None
    lines = content.decode("utf-8-sig").splitlines()
    line = lines[int(found[1]) - 1] if found else lines[-1]
    return line.partition("=")[0].strip().strip("\"'")


def _check_entry(path: str, name: str, value: Any, names: Iterable[str]) -> None:
    if name == "controller":
        raise FileFormatError(
            f"{path}: 'controller' lives on the host, which is no worker; remove its line"
        )
    if name in names:
        return
    if isinstance(value, dict):
        raise FileFormatError(
            f"{path}: {name!r} is a table, expected NODE = WORKER; put a name that holds a dot "
            f'in quotes, as in "{name}.0" = 0'
        )
    raise FileFormatError(f"{path}: {one_of('node', name, names)}")


def _check_worker(path: str, name: str, value: Any, workers: int) -> None:
    if type(value) is not int or not 0 <= value < workers:
        raise FileFormatError(
            f"{path}: {name} must be a worker, 0 to {workers - 1}, got {value!r}; "
            "change it, or add workers, under a solver to each rank (workers_per_rank)"
        )


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else f'"{name}"'
