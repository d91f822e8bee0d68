"""The origin of a run's numbers, and a hash of the code that made them."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import hashlib
import itertools
import os
import platform
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from ampsim.assets import shipped
from ampsim.data import DATASETS, data_folder
from ampsim.data.registry import cache_folder, there
from ampsim.data_parallel import Solver
from ampsim.dataflow import OfProgram
from ampsim.errors import AmpsimError
from ampsim.files import expanded, prepare_folder, sha256_of, write_text
from ampsim.hardware import Cluster, charges, variations
from ampsim.hardware.cluster import charges_between
from ampsim.hardware.device import REMARKS
from ampsim.model_parallel import Schedule
from ampsim.study.model import Model
from ampsim.study.process_settings import linear_algebra
from ampsim.study.read_off import UPKEEP

WITHOUT_EFFECT: Final = ("cli", "figures.py", "report", "_shipped")
"""Parts that show numbers and decide none; shipped models have hashes of their own."""

_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_UNSAID: Final = {"ctx", "kind", "type_comment", "type_ignores", "type_params"}


@cache
def source_digest() -> str:
    """SHA-256 over the code that decides numbers: all of the package but `WITHOUT_EFFECT`.

    Comments, docstrings and layout do not count, so that a report need not be made again when a
    sentence was put better. To read the code so takes a second: what came of it is kept in the
    platform's cache folder, under the code's `code_digest`.
    """
    kept = cache_folder() / "code" / code_digest()
    try:
        digest = kept.read_text("ascii") if kept.is_absolute() else ""
    except (OSError, ValueError):
        digest = ""
    if not re.fullmatch("[0-9a-f]{64}", digest):
        digest = _digest_of(meaning_of)
        with contextlib.suppress(AmpsimError):  # then the next command reads the code again
            if kept.is_absolute():
                write_text(prepare_folder(kept.parent) / kept.name, digest)
    return digest


@cache
def code_digest() -> str:
    """Hash the code to the letter, comments too; quick, for what only outlives a restart."""
    return _digest_of(str)


def _digest_of(said: Callable[[str], str]) -> str:
    root = Path(__file__).parents[1]
    hasher = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        if place.parts[0] not in WITHOUT_EFFECT:
            hasher.update(f"{place.as_posix()}\0{said(path.read_text('utf-8'))}\0".encode())
    return hasher.hexdigest()


def about() -> tuple[str, ...]:
    """Return what numbers rest on besides the task: ampsim, Python, NumPy, kernels of products."""
    return code_digest(), sysconfig.get_python_version(), np.__version__, linear_algebra()


def file_digest(path: Path) -> str:
    """SHA-256 over what one file of Python says, of which comments are no part."""
    return hashlib.sha256(meaning_of(path.read_text("utf-8")).encode()).hexdigest()


def meaning_of(source: str) -> str:
    r"""Python source without comments, docstrings and layout, the same under every Python.

    >>> meaning_of("x = 1  # one") == meaning_of('"A number."\nx = (1)')
    True
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return _told(tree)


def _told(value: object) -> str:
    """A node and what is below it, without fields that are empty or known to some Pythons only."""
    if isinstance(value, list):
        return f"[{','.join(_told(one) for one in cast('list[object]', value))}]"
    if not isinstance(value, ast.AST):
        return repr(value)
    fields = [
        f"{name}={_told(one)}"
        for name, one in ast.iter_fields(value)
        if name not in _UNSAID and one is not None and one != []
    ]
    return f"{type(value).__name__}({','.join(fields)})"


def origin_of(
    model: Model, cluster: Cluster, schedule: Schedule, *, seed: int, mode: str
) -> dict[str, Any]:
    """Return everything that one needs to repeat a run, as nested plain values."""
    return {
        **software(),
        "seed": seed,
        "mode": mode,
        "model": model_origin(model),
        "cluster": cluster_origin(cluster),
        "schedule": schedule_origin(schedule),
        "costs": costs(cluster, [schedule]),
    }


@cache
def software() -> dict[str, Any]:
    """Return command, version, commit and the libraries that decide the numbers."""
    program = Path(sys.argv[0])
    is_module = program.parts[-2:] == ("ampsim", "__main__.py")  # as python -m ampsim
    return {
        "command": ["ampsim" if is_module else program.name, *sys.argv[1:]],
        "ampsim": own_version(),
        "commit": commit() or "unknown",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "linear_algebra": linear_algebra() or "unknown",
        "simpy": version("simpy"),
    }


def own_version() -> str:
    """Return the installed version."""
    try:
        return version("ampsim")
    except PackageNotFoundError:
        return "unknown"


def commit() -> str | None:
    """Return the commit that the code is from: written into a wheel when built, else asked of git.

    A checkout with changes that are not committed says so with ``+changes``.
    """
    written = shipped("devices").parent / "commit.txt"
    if os.path.isfile(written):
        return written.read_text(encoding="utf-8").strip() or None
    folder = Path(__file__).parent
    head = _git(folder, "rev-parse", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no", ".")
    return f"{head}+changes" if head and changes else head


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def model_origin(model: Model) -> dict[str, Any]:
    """Return name, file, hash and options of a model."""
    config = {} if model.config is None else dataclasses.asdict(model.config)
    return {"name": model.name, **model.origin, "items": model.items, "config": config}


def data_files(model: Model) -> tuple[dict[str, str], ...]:
    """The data files that a model reads, as far as they are there, with their hashes.

    By the convention of the shipped models: their option `data` names the data set, and `folder`
    where it lies. Any other option may name a file, such as `vectors`, by its path.
    """
    name, folder = getattr(model.config, "data", ""), getattr(model.config, "folder", None)
    read = list[tuple[str, Path | None]]()
    if name in DATASETS and folder is not None:
        source, root = DATASETS[name], data_folder(folder or None)
        read += [(name, there(source, file, root)) for file in source.files.values()]
    for one in () if model.config is None else dataclasses.fields(model.config):
        path: Any = getattr(model.config, one.name)
        if isinstance(path, str | Path):
            with contextlib.suppress(AmpsimError):  # a text that can be no path
                read.append((one.name, expanded(str(path))))
    return tuple(
        {"file": f"{of}/{path.name}", "sha256": sha256_of(path)}
        for of, path in read
        if path is not None and os.path.isfile(path)
    )


def cluster_origin(cluster: Cluster) -> dict[str, Any]:
    """Return name, hash and devices of a cluster, each device with its own hash.

    `groups` says which workers have which: so many in a row, from worker 0 on.
    """
    names, said = cluster.kinds, (*UPKEEP, *REMARKS.values())
    return {
        "name": cluster.name,
        "sha256": cluster.digest,
        "workers": cluster.workers,
        "devices": {name: one.digest for one, name in names.items()},
        "groups": [
            {"device": names[one], "workers": len(list(row))}
            | {key: known for key in said if (known := getattr(one, key)) is not None}
            for one, row in itertools.groupby(cluster.devices)
        ],
    }


def devices_of(manifest: Mapping[str, Any]) -> list[str]:
    """The name of each worker's device; none where the manifest does not say."""
    groups = manifest.get("cluster", {}).get("groups", ())
    return [str(one["device"]) for one in groups for _ in range(int(one["workers"]))]


def schedule_origin(schedule: Schedule) -> dict[str, Any]:
    """Return name and options of a schedule; what was left to the model says so."""
    options: dict[str, Any] = {}
    if dataclasses.is_dataclass(schedule):
        options = {one.name: getattr(schedule, one.name) for one in dataclasses.fields(schedule)}
    unsaid = "by default" if isinstance(schedule, Solver) else "as the model prefers"
    return {
        "name": schedule.name,
        **{
            key: schedule_origin(value) if key == "inner" else (unsaid if value is None else value)
            for key, value in options.items()
        },
    }


def costs(cluster: Cluster, schedules: Iterable[Schedule] = ()) -> list[dict[str, str]]:
    """Return what was charged, per device: each cost with its kind (formula, measured, assumed).

    Under schedules of programs, also whether their control flow was.
    """
    taken = [(name, one) for of, name in cluster.kinds.items() for one in charges(of)]
    rows = [
        {"of": of, "what": charge.what, "kind": charge.kind, "text": charge.text}
        for of, charge in (*taken, *charges_between(cluster))
    ]
    rows += [
        {"of": of, "what": what, "kind": source.kind, "text": source.text}
        for of, what, source in variations(cluster)
    ]
    host = "replica averaging, loading of data"
    if cluster.host is None or cluster.is_host_free:
        host = f"controller, {host}"
    free = {name: not device.dispatch_s for device, name in cluster.kinds.items()}
    if any(free.values()) and any(isinstance(one, OfProgram) for one in schedules):
        where = "" if all(free.values()) else f" on {' and '.join(filter(free.get, free))}"
        host += f", control flow of programs{where}"
    rows.append({"of": "host", "what": host, "kind": "assumed", "text": "take no time"})
    if cluster.memory is not None:
        text = "what heavy nodes keep moves to the host and back over copy lanes"
        if not cluster.offloads:
            text = "LSTM and GRU cells keep their inputs alone, and compute the rest again"
        what = f"remedy {cluster.memory.remedy}"
        rows.append({"of": "memory", "what": what, "kind": "assumed", "text": text})
    return rows
