"""What is made once for all cases: the imports, and folders that ampsim wrote."""

from __future__ import annotations

import functools
import importlib
import os
import pkgutil
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

from ampsim.study import provenance
from mutation import bases, child
from mutation.case import Command
from mutation.text import to_toml


def warm_up(root: Path) -> None:
    """Import all of ampsim, and write a run, a report and data into `root`/shared.

    Its code is read for a hash once, which takes a second: no case has the cache of another.
    """
    os.environ.update(
        AMPSIM_DATA=str(root / "shared" / "data"),
        COLUMNS="120",
        MPLCONFIGDIR=str(root / "matplotlib"),
        OPENBLAS_NUM_THREADS="1",
        http_proxy="http://127.0.0.1:9",  # the network is not part of this
        https_proxy="http://127.0.0.1:9",
    )
    folder = root / "shared"
    for name in ("shared/data", "shared/reports/toy", "notes"):
        (root / name).mkdir(parents=True)
    _import_all()
    code: Any = provenance
    code._digest_of = functools.cache(code._digest_of)
    code._digest_of(code.meaning_of)
    bases.lay_out_data(folder / "data")
    toy = folder / "reports" / "toy"
    (folder / "model.py").write_text(bases.MODEL)
    (toy / "model.py").write_text(bases.MODEL)
    (toy / "device.toml").write_text(to_toml(bases.DEVICE))
    (toy / "cluster.toml").write_text(to_toml(bases.CLUSTER))
    (toy / "recipe.toml").write_text(to_toml(bases.RECIPE))
    few = ["--instances", "4", "--workers", "2", "--quiet"]
    for words in (
        ["run", "model.py", *few, "--out", "run-folder"],
        ["report", "--quiet", "--jobs", "1", "toy"],
    ):
        ended = child.run(Command(words), folder, root / "notes", limit_s=120, is_real=False)
        assert ended.code == 0, f"{words}: {ended.err}"


def _import_all() -> None:
    """Import every module of ampsim, and what draws, so that no case need do it."""
    import ampsim

    for module in pkgutil.walk_packages(ampsim.__path__, "ampsim."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("agg", "svg", "pdf"):
        importlib.import_module(f"matplotlib.backends.backend_{name}")
    for name in ("rich.console", "rich.progress", "rich.table", "pooch", "requests"):
        importlib.import_module(name)
    sys.stdout.flush()


def remove(folder: Path) -> None:
    """Remove a folder, whatever is in it and whoever may not read it."""
    for path in folder.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)
