"""`python tests/unpainted.py WORDS` is `python -m ampsim WORDS`, but for empty pictures.

Painting is most of what a command takes, and of a process that is killed, or whose streams are
closed, nobody looks at the pictures; who paints has its own tests.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any, BinaryIO

sys.path[0] = ""  # as `python -m` has it

from matplotlib.figure import Figure  # noqa: E402  # not before the path is right


def savefig(_: Figure, target: Path | BinaryIO, **_options: Any) -> None:
    """Write down an empty picture."""
    (target.write_bytes if isinstance(target, Path) else target.write)(
        b'<svg width="1pt" height="1pt" viewBox="0 0 1 1"></svg>'
    )


if __name__ == "__main__":
    untyped: Any = Figure
    untyped.savefig = savefig
    sys.orig_argv = [sys.executable, "-m", "ampsim", *sys.argv[1:]]
    runpy.run_module("ampsim", run_name="__main__", alter_sys=True)
