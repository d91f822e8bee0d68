"""`python tests/unpainted.py WORDS` is `python -m ampsim WORDS`, but for empty pictures.

Drawing is most of what a command takes, and of a process that is killed, or whose streams are
closed, nobody looks at the pictures; who draws has its own tests.
"""

from __future__ import annotations

import gc
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

DRAWN = ("ampsim.report.plot.", "ampsim.report.gantt.chart")
"""Where figures are drawn."""


def savefig(_figure: Any, target: Path | BinaryIO, **_options: Any) -> None:
    """Write down an empty picture."""
    (target.write_bytes if isinstance(target, Path) else target.write)(
        b'<svg width="1pt" height="1pt" viewBox="0 0 1 1"></svg>'
    )


def no_paint(patch: Any) -> None:
    """Have figures written down as an empty picture, as long as pytest's patch lasts."""
    from matplotlib.figure import Figure

    patch.setattr(Figure, "savefig", savefig)


def leave_empty() -> None:
    """Have each figure left empty, and written down as an empty picture."""
    from matplotlib.figure import Figure

    from ampsim.report import style

    usual: Any = style.styled

    def styled(draw: Callable[..., Any]) -> Callable[..., Any]:
        return (lambda *_, **__: Figure()) if draw.__module__.startswith(DRAWN) else usual(draw)

    style.styled, Figure.savefig = styled, savefig  # pyright: ignore[reportAttributeAccessIssue]  # in this process


if __name__ == "__main__":
    sys.path[0] = ""  # as `python -m` has it
    sys.orig_argv = [sys.executable, "-m", "ampsim", *sys.argv[1:]]
    gc.set_threshold(400_000)  # as the program does itself, before it imports the most
    leave_empty()
    runpy.run_module("ampsim", run_name="__main__", alter_sys=True)
